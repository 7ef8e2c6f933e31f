//! A gRPC client over a connection that is there already: to a node, or to the device manager.
//!
//! What it is not: it opens nothing. Invariant: a peer that is gone without a word is noticed while a call goes on.

use std::time::Duration;

use tonic::transport::Endpoint;

/// While a call goes on, the other end is asked so often whether it is there, and has so long to answer.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_WITHIN: Duration = Duration::from_secs(10);

/// One whose connector is to give the connection; the name in the URI only fills a header.
///
/// # Panics
/// If it is no URI.
#[must_use]
pub fn over_connection(uri: &'static str) -> Endpoint {
    Endpoint::from_static(uri)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN)
}
