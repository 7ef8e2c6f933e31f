//! How the node presents itself: its name, its addresses, and its inventory message.
//!
//! Invariant: the addresses are computed on each call, because interfaces come and go.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_discovery::{Interface, Interfaces, Run};
use causeway_links::link_speed;
use causeway_proto::control::{Inventory, LinkSpeed};
use parking_lot::Mutex;
use tokio::sync::watch;

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

/// After this time, the speeds of interfaces are read again.
const SPEEDS_COUNT: Duration = Duration::from_secs(10);
/// Longest wait of a caller for drivers that tell the speeds.
const SPEEDS_WITHIN: Duration = Duration::from_millis(50);

/// The node's description.
pub(super) struct Description {
    pub(super) settings: Arc<Settings>,
    /// Addresses on which the daemon listens.
    pub(super) addresses: Vec<SocketAddr>,
    /// The uuid of the node, which it keeps; see `identity`.
    pub(super) uuid: uuid::Uuid,
    /// New at each start of the daemon.
    pub(super) run: Run,
    pub(super) speeds: KnownSpeeds,
}

/// The speeds of interfaces. No driver is asked while the lock is held. Clones share them.
pub(super) type KnownSpeeds = Arc<Mutex<Speeds>>;

/// The speeds that were read last.
#[derive(Debug, Default)]
pub(super) struct Speeds {
    /// `None`: none were read yet.
    of: Option<Vec<LinkSpeed>>,
    /// When the latest attempt to read them began.
    asked: Option<Instant>,
    /// Closes when that attempt ends; `None` afterwards.
    reading: Option<watch::Receiver<()>>,
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

    /// Returns the speeds of the interfaces that have these addresses of the node; none if there is one address only. Drivers
    /// that take long are asked by one thread at a time, and only first callers wait for them, for a moment.
    pub(super) async fn link_speeds(&self, addresses: &[String]) -> Vec<LinkSpeed> {
        // Clients compare the speeds of addresses.
        if addresses.len() < 2 {
            return Vec::new();
        }
        let addresses = addresses.to_vec();
        let read = move || {
            let interfaces = Interfaces::of_host().ok()?;
            Some(speeds_of(&interfaces, &addresses, Interface::speed))
        };
        known(&self.speeds, SPEEDS_WITHIN, read).await
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

/// An attempt to read the speeds. The next one is possible after its end, and after a panic too.
struct Attempt {
    speeds: KnownSpeeds,
    /// Dropped after `reading` is `None`.
    _ends: watch::Sender<()>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.speeds.lock().reading = None;
    }
}

/// The speeds that are known, after an attempt to `read` them if they are old. The first callers wait for their attempt, and
/// for one of others, `within` this time. Later ones get the earlier speeds while others read, and if nothing can be read.
/// Without speeds, clients take all paths for equal.
async fn known(
    speeds: &KnownSpeeds,
    within: Duration,
    read: impl FnOnce() -> Option<Vec<LinkSpeed>> + Send + 'static,
) -> Vec<LinkSpeed> {
    let mut reading = {
        let mut known = speeds.lock();
        let is_fresh = known.asked.is_some_and(|at| at.elapsed() < SPEEDS_COUNT);
        match (&known.of, &known.reading) {
            (Some(of), None) if is_fresh => return of.clone(),
            (Some(of), Some(_)) => return of.clone(),
            (None, Some(reading)) => reading.clone(),
            (_, None) => {
                let (ends, reading) = watch::channel(());
                (known.asked, known.reading) = (Some(Instant::now()), Some(reading.clone()));
                let attempt = Attempt {
                    speeds: Arc::clone(speeds),
                    _ends: ends,
                };
                tokio::task::spawn_blocking(move || {
                    let read = read();
                    let of = &mut attempt.speeds.lock().of;
                    *of = read.or(of.take()).or(Some(Vec::new()));
                });
                reading
            }
        }
    };
    // Nothing is sent. The end of the attempt is an error here.
    let _ = tokio::time::timeout(within, reading.changed()).await;
    speeds.lock().of.clone().unwrap_or_default()
}

/// The speeds of the interfaces that have these addresses.
fn speeds_of(
    interfaces: &Interfaces,
    addresses: &[String],
    speed: impl Fn(&Interface) -> Option<u32>,
) -> Vec<LinkSpeed> {
    let ip = |address: &String| Some(address.parse::<SocketAddr>().ok()?.ip());
    let own: Vec<IpAddr> = addresses.iter().filter_map(ip).collect();
    let told = |of: &Interface| Some(link_speed(of.address, of.prefix, speed(of)?));
    let of_own = (interfaces.0.iter()).filter(|of| own.contains(&of.address));
    of_own.filter_map(told).collect()
}

/// A duration as the wire has it.
pub(super) fn milliseconds(of: Duration) -> u32 {
    u32::try_from(of.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_comes_while_speeds_are_read_first_waits_for_them() {
        let (speeds, long) = (KnownSpeeds::default(), Duration::from_secs(60));
        let (go, may_read) = std::sync::mpsc::channel();
        let told = vec![link_speed([10, 0, 0, 5].into(), 24, 1_000)];
        let read = told.clone();
        let first = known(&speeds, long, move || {
            may_read.recv().unwrap();
            Some(read)
        });
        let second = known(&speeds, long, || panic!("one reads at a time"));
        let (first, second, sent) = tokio::join!(first, second, async { go.send(()) });
        sent.unwrap();
        assert_eq!([&first, &second], [&told, &told]);
        // Nobody waits for a driver again.
        speeds.lock().asked = None;
        let (_go, may_read) = std::sync::mpsc::channel::<()>();
        let slow = move || {
            let _ = may_read.recv();
            None
        };
        assert_eq!(known(&speeds, Duration::ZERO, slow).await, told);
        assert_eq!(known(&speeds, long, || Some(Vec::new())).await, told);
    }

    #[tokio::test]
    async fn a_failed_attempt_keeps_earlier_speeds_and_is_not_the_last_one() {
        let (speeds, long) = (KnownSpeeds::default(), Duration::from_secs(60));
        assert_eq!(known(&speeds, long, || panic!("a driver")).await, []);
        let told = vec![link_speed([10, 0, 0, 5].into(), 24, 1_000)];
        let read = told.clone();
        assert_eq!(known(&speeds, long, || Some(read)).await, told);
        speeds.lock().asked = None;
        assert_eq!(known(&speeds, long, || None).await, told);
        speeds.lock().asked = None;
        assert_eq!(known(&speeds, long, || Some(Vec::new())).await, []);
    }

    #[test]
    fn speeds_are_told_of_the_nodes_own_addresses() {
        let interface = |name: &str, address: &str| Interface {
            index: 2,
            name: name.to_owned(),
            address: address.parse().unwrap(),
            prefix: 24,
        };
        let interfaces = Interfaces(vec![
            interface("eth0", "10.0.0.5"),
            interface("eth1", "fd00::5"),
            interface("docker0", "172.17.0.1"),
            interface("wlan0", "10.2.0.5"),
        ]);
        let speed = |of: &Interface| match of.name.as_str() {
            "eth0" => Some(1_000),
            "wlan0" => None,
            _ => Some(10_000),
        };
        let of = |addresses: &[&str]| {
            let addresses: Vec<String> = addresses.iter().map(|&of| of.to_owned()).collect();
            let speeds = speeds_of(&interfaces, &addresses, speed);
            let told = speeds
                .iter()
                .map(|of| (of.address.len(), of.mbits, of.prefix));
            told.collect::<Vec<_>>()
        };
        let both = [
            "10.0.0.5:7079",
            "[fd00::5]:7079",
            "gpu1:7079",
            "10.2.0.5:7079",
        ];
        assert_eq!(of(&both), [(4, 1_000, 24), (16, 10_000, 24)]);
        // The other one tells nothing.
        assert_eq!(of(&["10.0.0.5:7079", "10.2.0.5:7079"]), [(4, 1_000, 24)]);
        assert_eq!(of(&[]), []);
    }
}
