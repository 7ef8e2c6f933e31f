//! A configured daemon: where it is, what it has, and the process's session on it.

use std::sync::Arc;
use std::time::Duration;

use causeway_proto::control::Inventory;
use causeway_proto::status::WireError;

use super::session::{Session, SessionEvents};
use crate::config::ServerSettings;

/// One configured daemon.
#[derive(Debug)]
pub struct Node {
    settings: ServerSettings,
}

/// What [`discover`] found out about one node.
#[derive(Debug)]
pub struct Discovered {
    /// The node.
    pub node: Arc<Node>,
    /// Its devices, or why there are none.
    pub inventory: Result<Arc<Inventory>, WireError>,
    /// One network round trip (the TCP handshake), when the node was reached.
    pub round_trip: Option<Duration>,
    /// Other configured addresses that lead to the same daemon; they give no devices of their own.
    pub also_at: Vec<String>,
}

/// Asks all servers for their inventories, in parallel; at most one second in all.
///
/// In the order of the settings. Opens no session; when it returns, no thread and no socket is left.
/// Two addresses of one daemon (same node uuid) give one entry. Must not be called inside of a tokio runtime's own
/// thread pool that it would block; it runs its own runtime on a thread that it joins.
#[must_use]
pub fn discover(servers: &[ServerSettings]) -> Vec<Discovered> {
    let _ = servers;
    Vec::new()
}

impl Node {
    /// The session of this process on the node: opened now if there is none or the last is lost,
    /// otherwise the one there is. `events` counts only when it is opened now.
    ///
    /// Waits for the network when it opens: at most five seconds.
    ///
    /// # Errors
    /// [`WireError::Unreachable`], [`WireError::Protocol`], [`WireError::Refused`], [`WireError::Forked`].
    pub fn session(
        self: &Arc<Self>,
        events: Arc<dyn SessionEvents>,
    ) -> Result<Arc<Session>, WireError> {
        let _ = events;
        Err(WireError::Unreachable {
            address: self.address().to_owned(),
            reason: "not written yet".to_owned(),
        })
    }

    /// `host:port`, as configured.
    #[must_use]
    pub fn address(&self) -> &str {
        self.settings.address.as_str()
    }

    /// The name for people: the configured one, else the address.
    #[must_use]
    pub fn name(&self) -> &str {
        self.settings.name.as_deref().unwrap_or(self.address())
    }

    /// Whether the node answered when it was last spoken to: `CL_DEVICE_AVAILABLE`.
    #[must_use]
    pub fn is_available(&self) -> bool {
        true
    }

    /// What it has, as far as known.
    #[must_use]
    pub fn inventory(&self) -> Option<Arc<Inventory>> {
        None
    }
}
