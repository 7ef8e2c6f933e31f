//! Announces the node on its networks, by a process of its own.
//!
//! The process reads strangers' packets; this module reads none. Invariants: a process that ends is started again after
//! a pause, which doubles up to a minute. After [`Announcer::end`] none is started.
#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_discovery::{Announcement, Role as Announced};
use causeway_proto::span::pause;
use causeway_proto::version::WireVersion;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::identity::Identity;
use super::process::{Process, Processes, Role, describe};
use crate::config::{AnnounceSettings, Settings};
use crate::handover::Order;

/// Pauses before a process that has ended is replaced: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a process must run to count as working.
const WORKS_AFTER: Duration = Duration::from_secs(60);
/// Time for the goodbye.
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);

/// Announces the node. Clones share their state.
#[derive(Clone)]
pub(super) struct Announcer(Arc<Inner>);

struct Inner {
    order: Order,
    processes: Processes,
    stage: watch::Sender<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not announced yet.
    Before,
    Announced,
    /// The node no longer announces itself; the goodbye is under way.
    Ending,
    /// No process is left.
    Over,
}

impl Announcer {
    /// Returns `None` if the settings do not ask for it.
    pub(super) fn new(
        settings: &Settings,
        addresses: &[SocketAddr],
        identity: &Identity,
        processes: Processes,
    ) -> Option<Announcer> {
        let order = order(settings.announce.as_ref()?, settings, addresses, identity)?;
        let (stage, _) = watch::channel(Stage::Before);
        Some(Announcer(Arc::new(Inner {
            order,
            processes,
            stage,
        })))
    }

    /// Begins to announce the node.
    pub(super) fn begin(&self) {
        let begins = |stage: &mut Stage| {
            let begins = *stage == Stage::Before;
            if begins {
                *stage = Stage::Announced;
            }
            begins
        };
        if self.0.stage.send_if_modified(begins) {
            let announcer = self.clone();
            tokio::spawn(async move {
                announcer.0.announce().await;
                announcer.0.stage.send_replace(Stage::Over);
            });
        }
    }

    /// Says goodbye. Does not wait.
    pub(super) fn end(&self) {
        self.0.stage.send_if_modified(|stage| {
            let next = match stage {
                Stage::Before => Stage::Over,
                Stage::Announced => Stage::Ending,
                Stage::Ending | Stage::Over => return false,
            };
            *stage = next;
            true
        });
    }

    /// Waits until the process has said goodbye and ended.
    pub(super) async fn ended(&self) {
        let mut stage = self.0.stage.subscribe();
        // The sender lives as long as `self`.
        let _ = stage.wait_for(|stage| *stage == Stage::Over).await;
    }
}

impl Inner {
    /// Keeps a process running until the announcement ends.
    async fn announce(&self) {
        let mut stage = self.stage.subscribe();
        let mut failures = 0;
        loop {
            let started = Instant::now();
            let fault = match self.start().await {
                Ok((mut process, channel)) => tokio::select! {
                    ended = process.wait() => match ended {
                        Ok(status) => describe(status),
                        Err(error) => error.to_string(),
                    },
                    () = is_over(&mut stage) => {
                        drop(channel);
                        let _ = tokio::time::timeout(GOODBYE_WITHIN, process.wait()).await;
                        process.end().await;
                        return;
                    }
                },
                Err(error) => error.to_string(),
            };
            if started.elapsed() >= WORKS_AFTER {
                failures = 0;
            }
            let pause = pause(PAUSES, failures);
            failures += 1;
            if failures == 1 {
                tracing::warn!(
                    fault,
                    "the process that announces the node has ended; it is started again"
                );
            } else {
                tracing::debug!(
                    fault,
                    ?pause,
                    "the process that announces the node has ended again"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = is_over(&mut stage) => return,
            }
        }
    }

    async fn start(&self) -> io::Result<(Process, UnixStream)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let process = self.processes.start(Role::Announce, theirs.into())?;
        let mut channel = UnixStream::from_std(ours)?;
        let order = self.order.encode().map_err(io::Error::other)?;
        channel.write_all(&order).await?;
        Ok((process, channel))
    }
}

/// Waits until the node no longer announces itself.
async fn is_over(stage: &mut watch::Receiver<Stage>) {
    // The sender lives as long as the announcer.
    let _ = stage.wait_for(|stage| *stage != Stage::Announced).await;
}

/// Returns what to announce. `None` if the daemon listens on loopback only.
fn order(
    announce: &AnnounceSettings,
    settings: &Settings,
    listening: &[SocketAddr],
    identity: &Identity,
) -> Option<Order> {
    let reachable = || {
        listening
            .iter()
            .filter(|at| !causeway_serving::is_loopback(at))
    };
    // Clients use one port for all addresses. The others are for those who know them.
    let port = reachable().next()?.port();
    let addresses: Vec<IpAddr> = reachable()
        .filter(|at| at.port() == port)
        .map(SocketAddr::ip)
        .collect();
    let is_everywhere = addresses.iter().any(IpAddr::is_unspecified);
    let said = Announcement {
        role: Announced::Node,
        id: *identity.uuid.as_bytes(),
        run: identity.run,
        wire: WireVersion::CURRENT.number(),
        tls: settings.security.tls.is_some(),
        managed: settings.manager.is_some(),
        ca: announce.ca,
    };
    let txt = said.to_txt().into_iter();
    Some(Order {
        name: announce.name.clone(),
        // Unique, so that no other responder, such as avahi or a copy of this machine, answers for it.
        host: format!("causeway-{:016x}", u64::from_be_bytes(identity.run)),
        port,
        has_v6: addresses.iter().any(IpAddr::is_ipv6),
        addresses: if is_everywhere { Vec::new() } else { addresses },
        interfaces: announce.interfaces.clone(),
        txt: txt.map(|(key, value)| (key.to_owned(), value)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigFile, Flags, Settings};
    use clap::Parser;

    fn ordered(listening: &[&str]) -> Option<Order> {
        let flags = Flags::parse_from(["causewayd", "--announce"]);
        let file = ConfigFile::parse("none".as_ref(), String::new()).unwrap();
        let settings = Settings::combine(&flags, &file).unwrap();
        let listening: Vec<_> = listening.iter().map(|at| at.parse().unwrap()).collect();
        let announce = settings.announce.clone().unwrap();
        order(
            &announce,
            &settings,
            &listening,
            &Identity::of(&settings, Some(uuid::Uuid::from_u128(7))),
        )
    }

    #[test]
    fn what_is_announced_is_what_others_can_reach() {
        assert_eq!(ordered(&["127.0.0.1:7079", "[::1]:7079"]), None);
        let all = ordered(&["127.0.0.1:1", "0.0.0.0:7079"]).unwrap();
        assert_eq!(
            (all.port, all.addresses.len(), all.has_v6),
            (7079, 0, false)
        );
        assert!(ordered(&["[::]:7079"]).unwrap().has_v6);
        let one = ordered(&["10.0.0.1:7079", "10.0.0.2:80", "127.0.0.1:7079"]).unwrap();
        let expected: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!((one.port, one.addresses), (7079, vec![expected]));
    }
}
