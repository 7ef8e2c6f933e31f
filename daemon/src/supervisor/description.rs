//! How the node presents itself: its name, its addresses, and its inventory message.
//!
//! Invariant: the addresses are computed on each call, because interfaces come and go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use causeway_discovery::Run;
use causeway_proto::control::Inventory;

use super::domains;
use super::inventory::Known;
use super::peers;
use super::time_shares;
use super::warm;
use crate::config::Settings;
use crate::sys;

/// Remark shown by tools for a node that `--insecure` opens to everybody.
const EXPOSED: &str = "INSECURE: everyone who can reach this node can use it and read the traffic, because --insecure \
                       is set; set up [tls] and [auth] (causeway certs node NAME), and start causewayd without \
                       --insecure";
/// Remark shown by tools for a node that is shutting down.
const STOPPING: &str = "STOPPING: this node opens no new sessions, and ends when its running sessions have ended; use \
                        another node, or start causewayd there again after its end";

/// The node's description.
pub(super) struct Description {
    pub(super) settings: Arc<Settings>,
    /// Addresses on which the daemon listens.
    pub(super) addresses: Vec<SocketAddr>,
    /// The uuid of the node, which it keeps; see `identity`.
    pub(super) uuid: uuid::Uuid,
    /// New at each start of the daemon.
    pub(super) run: Run,
}

impl Description {
    /// The name of the node.
    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns whether callers from other machines can use the node without authentication.
    pub(super) fn is_exposed(&self) -> bool {
        self.addresses.iter().any(|at| self.settings.exposes(at))
    }

    /// Returns the remark that the node is open to everybody, if it is.
    pub(super) fn exposed(&self) -> Option<String> {
        self.is_exposed().then(|| EXPOSED.to_owned())
    }

    /// Returns the addresses at which other nodes may reach this one.
    pub(super) fn peer_addresses(&self) -> Vec<String> {
        peers::addresses(&self.addresses, &self.settings.advertise, || {
            sys::interface_addresses().unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot read the addresses of this machine's interfaces");
                Vec::new()
            })
        })
    }

    /// Builds the complete inventory message of this node. `is_stopping`: the node is shutting down.
    pub(super) fn inventory(&self, known: &Known, is_stopping: bool) -> Inventory {
        let stopping = is_stopping.then(|| STOPPING.to_owned());
        Inventory {
            node_uuid: self.uuid.as_bytes().to_vec().into(),
            run: self.run.to_vec().into(),
            node_name: self.settings.name.clone(),
            daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
            peer_addresses: self.peer_addresses(),
            resume_limit_ms: milliseconds(self.settings.sessions.resume_limit),
            remarks: (self.exposed().into_iter())
                .chain(domains::remark(
                    &self.settings.sharing,
                    &self.settings.shares,
                ))
                .chain(
                    self.settings
                        .manager
                        .as_ref()
                        .and_then(|_| time_shares::remark(&self.settings.shares)),
                )
                .chain(warm::remark(&self.settings.warm, &known.inventory))
                .chain(stopping)
                .chain(known.inventory.remarks.clone())
                .collect(),
            ..known.inventory.clone()
        }
    }
}

/// A duration as the wire has it.
pub(super) fn milliseconds(of: Duration) -> u32 {
    u32::try_from(of.as_millis()).unwrap_or(u32::MAX)
}
