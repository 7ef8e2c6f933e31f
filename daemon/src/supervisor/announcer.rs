//! Announces the node on its networks: what is said, and how the announcing process is started.
//!
//! `causeway_announcer` keeps the process running. Invariant: a daemon on loopback only announces nothing.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use causeway_announcer::{Announcer, Order, Running, Start};
use causeway_discovery::{Announcement, Role as Announced};
use causeway_proto::version::WireVersion;

use super::identity::Identity;
use super::process::{Process, Processes, Role, describe};
use crate::config::Settings;

/// Announces the node. Clones share their state.
pub(super) type NodeAnnouncer = Announcer<Processes>;

/// Returns `None` if the settings do not ask for it, or if the daemon listens on loopback only.
pub(super) fn announcer(
    settings: &Settings,
    addresses: &[SocketAddr],
    identity: &Identity,
    processes: Processes,
) -> Option<NodeAnnouncer> {
    let announce = settings.announce.as_ref()?;
    let said = Announcement {
        role: Announced::Node,
        id: *identity.uuid.as_bytes(),
        run: identity.run,
        wire: WireVersion::CURRENT.number(),
        tls: settings.security.tls.is_some(),
        managed: settings.manager.is_some(),
        ca: announce.ca,
    };
    let order = Order::of(announce, &said, addresses)?;
    Some(Announcer::new(order, processes))
}

impl Start for Processes {
    type Process = Process;

    fn start(&self, channel: OwnedFd) -> io::Result<Process> {
        Processes::start(self, Role::Announce, channel)
    }
}

impl Running for Process {
    async fn wait(&mut self) -> String {
        match Process::wait(self).await {
            Ok(status) => describe(status),
            Err(error) => error.to_string(),
        }
    }

    async fn end(self) {
        Process::end(self).await;
    }
}
