//! Settings of a gRPC client over an existing connection to a node or to the device manager.
//!
//! No connection is opened here. Invariant: a peer that disappears without closing the connection is
//! detected during a call.

use std::time::Duration;

use tonic::transport::Endpoint;

/// Interval of keep-alive pings during a call, and the time limit for the answer.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_WITHIN: Duration = Duration::from_secs(10);

/// An endpoint whose connector supplies the connection. The host name in the URI only fills a header.
///
/// # Panics
/// Panics if `uri` is not a URI.
#[must_use]
pub fn over_connection(uri: &'static str) -> Endpoint {
    with_keep_alive(Endpoint::from_static(uri))
}

/// The endpoint with keep-alive pings.
#[must_use]
pub fn with_keep_alive(endpoint: Endpoint) -> Endpoint {
    endpoint
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN)
}
