//! Settings of a gRPC client over an existing connection to a node or to the device manager.
//!
//! No connection is opened here. Invariant: a peer that disappears without closing the connection is
//! detected during a call.

use std::time::Duration;

use tonic::transport::Endpoint;

/// Keep-alive pings, which are sent during calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The silence after which a ping is sent.
    every: Duration,
    /// The time limit for the answer.
    within: Duration,
}

impl KeepAlive {
    /// For most connections. Nodes also use it to managers, because their own heartbeats notice silence.
    pub const USUAL: KeepAlive = KeepAlive {
        every: Duration::from_secs(15),
        within: Duration::from_secs(10),
    };
    /// For a client's connections to one of several device managers. A client that waits in the queue may hear nothing for
    /// long, and another manager may lead meanwhile. So a silent manager is left after 5 s.
    pub const OF_SEVERAL: KeepAlive = KeepAlive {
        every: Duration::from_secs(2),
        within: Duration::from_secs(3),
    };

    /// For a client's connection to a device manager. No other one takes over from a manager that is alone.
    #[must_use]
    pub fn to_manager(has_several: bool) -> KeepAlive {
        match has_several {
            true => KeepAlive::OF_SEVERAL,
            false => KeepAlive::USUAL,
        }
    }

    /// The endpoint with these pings.
    #[must_use]
    pub fn of(self, endpoint: Endpoint) -> Endpoint {
        endpoint
            .http2_keep_alive_interval(self.every)
            .keep_alive_timeout(self.within)
    }
}

/// An endpoint whose connector supplies the connection. The host name in the URI only fills a header.
///
/// # Panics
/// Panics if `uri` is not a URI.
#[must_use]
pub fn over_connection(uri: &'static str, keep_alive: KeepAlive) -> Endpoint {
    keep_alive.of(Endpoint::from_static(uri))
}
