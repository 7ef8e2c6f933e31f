//! Listings of a device manager, as `--json` of the tool prints them and as the dashboard shows them.
//!
//! This module formats nothing for people. Invariant: one type for each listing, whoever shows it. The rules of
//! the tool's `json.rs` apply: keys are never renamed or removed.

use std::collections::HashMap;
use std::fmt;

use causeway_links::LinkEntry;
use causeway_proto::control::Client as ClientWord;
use causeway_proto::manager as pb;
use serde::Serialize;

use crate::report::DeviceUsage;

/// A lease or a reservation.
#[derive(Debug, Serialize)]
pub struct Lease {
    /// The lease's id.
    pub lease: String,
    /// The lease's user.
    pub user: String,
    /// `offered`, `reserved`, `active`, `lapsed` (its client was lost; kept for a while) or `ending`.
    pub state: &'static str,
    /// The lease's units, by node.
    pub nodes: Vec<NodeShare>,
    /// Units that the lease has lost, by node.
    pub lost: Vec<NodeShare>,
    /// Time since the grant.
    pub age_ms: u64,
    /// Time until the lease ends unless it is renewed.
    pub lifetime_ms: u64,
    /// Number of open sessions.
    pub sessions: u32,
    /// Number of open sessions whose connections are broken.
    pub away: u32,
    /// The client that requested the lease.
    pub client: Option<Client>,
}

/// A lease's part on one node.
#[derive(Debug, Serialize)]
pub struct NodeShare {
    /// The node's id.
    pub node: String,
    /// The node's name.
    pub name: String,
    /// `host:port` where clients reach the node, the most likely address first.
    pub addresses: Vec<String>,
    /// Devices, or shares of them.
    pub units: Vec<Unit>,
}

/// A device or one share of it, by its place in its node's inventory.
#[derive(Debug, Serialize)]
pub struct Unit {
    /// Index of the native platform.
    pub platform: u32,
    /// Index of the device within the platform.
    pub device: u32,
    /// Index of the share; 0 for an undivided device.
    pub share: u32,
    /// `CL_DEVICE_NAME`; empty while the node is not connected.
    pub name: String,
}

/// A program, as it describes itself.
#[derive(Debug, Serialize)]
pub struct Client {
    /// Process id.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// User name on that host.
    pub user: String,
    /// Name of the program.
    pub program: String,
}

/// The device managers that share a store.
#[derive(Debug, Serialize)]
pub struct Managers {
    /// The id of the cluster, as 32 hexadecimal digits.
    pub cluster: String,
    /// The leader's term.
    pub term: u64,
    /// `redb` or `etcd`.
    pub store: String,
    /// The managers, the leader first.
    pub managers: Vec<ManagerState>,
    /// etcd's members.
    pub members: Vec<StoreMember>,
}

/// A device manager.
#[derive(Debug, Serialize)]
pub struct ManagerState {
    /// Where clients reach the manager. Empty: it does not say.
    pub address: String,
    /// `leader` or `standby`.
    pub role: &'static str,
    /// How long the manager has had this role.
    pub since_ms: u64,
    /// The version of its program.
    pub version: String,
    /// The newest schema of the store that the manager knows.
    pub schema: u32,
    /// Why the manager cannot lead. Empty: it can.
    pub problem: String,
    /// The URL of its dashboard. Empty: it has none that others reach.
    pub dashboard: String,
}

/// A member of etcd.
#[derive(Debug, Serialize)]
pub struct StoreMember {
    /// The member's name.
    pub name: String,
    /// URLs for clients.
    pub addresses: Vec<String>,
    /// Its version. Empty: it does not answer.
    pub version: String,
    /// Whether the member leads etcd.
    pub leader: bool,
    /// Size of its database.
    pub database_bytes: u64,
    /// Why the member is unhealthy. Empty: it is healthy.
    pub problem: String,
}

impl From<pb::ManagerList> for Managers {
    fn from(list: pb::ManagerList) -> Managers {
        let managers = list.managers.into_iter().map(|of| ManagerState {
            role: match of.role() {
                pb::ManagerRole::Leader => "leader",
                pb::ManagerRole::Standby | pb::ManagerRole::Unspecified => "standby",
            },
            address: of.address,
            since_ms: of.since_ms,
            version: of.version,
            schema: of.schema,
            problem: of.problem,
            dashboard: of.dashboard,
        });
        let members = list.members.into_iter().map(|of| StoreMember {
            name: of.name,
            addresses: of.addresses,
            version: of.version,
            leader: of.leader,
            database_bytes: of.database_bytes,
            problem: of.problem,
        });
        Managers {
            cluster: id(&list.cluster_id),
            term: list.term,
            store: list.store,
            managers: managers.collect(),
            members: members.collect(),
        }
    }
}

/// The queue.
#[derive(Debug, Serialize)]
pub struct Queue {
    /// Requests that the caller may see, in the order of their arrival.
    pub requests: Vec<Waiting>,
    /// Number of all requests, including those of others.
    pub waiting: u32,
}

/// A waiting request.
#[derive(Debug, Serialize)]
pub struct Waiting {
    /// The id of the request, and later of its lease.
    pub lease: String,
    /// The request's user.
    pub user: String,
    /// Position in the queue, from 1.
    pub position: u32,
    /// Time since the request was made.
    pub waiting_ms: u64,
    /// The devices requested, in one line.
    pub request: String,
    /// `low`, `normal` or `high`.
    pub priority: &'static str,
    /// The client that made the request.
    pub client: Option<Client>,
    /// Why the request waits. `null`: the manager does not say.
    pub why: Option<String>,
}

/// A node of the device manager.
#[derive(Debug, Serialize)]
pub struct ManagedNode {
    /// The node's id.
    pub node: String,
    /// The node's name.
    pub name: String,
    /// `host:port` where clients reach the node, the most likely address first.
    pub addresses: Vec<String>,
    /// Whether the node is connected to the manager.
    pub connected: bool,
    /// Whether the node is being drained, and gets no new leases.
    pub draining: bool,
    /// Whether the node was told to shut down: it gets no new leases, and its sessions end soon.
    pub stopping: bool,
    /// Whether everyone who can reach the node can use it.
    pub insecure: bool,
    /// The node's devices; empty while the node is not connected.
    pub devices: Vec<ManagedDevice>,
    /// Bytes transferred over bulk connections since the daemon's start, both ways.
    pub moved_bytes: u64,
    /// Commands run since the daemon's start.
    pub commands: u64,
    /// Number of open sessions.
    pub sessions: u32,
    /// Number of open sessions whose connections are broken.
    pub away: u32,
    /// Processes that serve several sessions.
    pub hosts: Vec<HostLoad>,
    /// What becomes of the leases that `nodes drain --migrate` was to move.
    pub leaving: Vec<Leaving>,
    /// The node's measured links. Absent: none is known, or they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<NodeLinks>,
}

/// The slowest and the fastest link of a node, by the slower direction of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeLinks {
    /// Number of measured links.
    pub measured: usize,
    /// The slowest one.
    pub slowest: LinkTo,
    /// The fastest one.
    pub fastest: LinkTo,
}

/// A link to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkTo {
    /// The other node's id.
    pub node: String,
    /// The other node's name.
    pub name: String,
    /// Bytes per second of the slower direction.
    pub bytes_per_second: u64,
}

impl NodeLinks {
    /// The links of each node, by its id. Old figures do not count.
    #[must_use]
    pub fn by_node<'a>(
        links: impl IntoIterator<Item = &'a LinkReport>,
    ) -> HashMap<&'a str, NodeLinks> {
        let mut nodes: HashMap<&str, NodeLinks> = HashMap::new();
        for of in links.into_iter().filter(|of| !of.old) {
            let Some(from_id) = of.from_id.as_deref() else {
                continue;
            };
            let (from, to) = ((from_id, &of.from), (&*of.to_id, &of.to));
            for ((node, _), other) in [(from, to), (to, from)] {
                match nodes.get_mut(node) {
                    Some(known) => known.count(other, of.slower()),
                    None => drop(nodes.insert(node, NodeLinks::one(other, of.slower()))),
                }
            }
        }
        nodes
    }

    fn one(other: (&str, &String), bytes_per_second: u64) -> NodeLinks {
        let link = LinkTo::new(other, bytes_per_second);
        NodeLinks {
            measured: 1,
            slowest: link.clone(),
            fastest: link,
        }
    }

    fn count(&mut self, other: (&str, &String), bytes_per_second: u64) {
        self.measured += 1;
        if bytes_per_second < self.slowest.bytes_per_second {
            self.slowest = LinkTo::new(other, bytes_per_second);
        }
        if bytes_per_second > self.fastest.bytes_per_second {
            self.fastest = LinkTo::new(other, bytes_per_second);
        }
    }
}

impl LinkTo {
    fn new((node, name): (&str, &String), bytes_per_second: u64) -> LinkTo {
        LinkTo {
            node: node.to_owned(),
            name: name.clone(),
            bytes_per_second,
        }
    }
}

/// A lease that is to leave a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leaving {
    /// The lease's id.
    pub lease: String,
    /// The lease's user; empty if the lease has ended.
    pub user: String,
    /// `waits` (for equal free devices), `moves`, `moved`, `stays` or `ended`.
    pub state: String,
    /// Why it waits or stays, or the node to which it moves.
    pub reason: String,
}

/// A process that serves the sessions of one domain.
#[derive(Debug, Serialize)]
pub struct HostLoad {
    /// The process's number in the daemon's log.
    pub worker: u64,
    /// Kind of the domain: `user`, `group` or `all`.
    pub domain: String,
    /// Number of open sessions.
    pub sessions: u32,
}

/// A measured link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkReport {
    /// The name of the host that has measured.
    pub from: String,
    /// Its id; `null`: this machine.
    pub from_id: Option<String>,
    /// The name of the other end.
    pub to: String,
    /// Its id.
    pub to_id: String,
    /// The address of the host that has measured.
    pub from_address: String,
    /// The other end's address.
    pub to_address: String,
    /// The shortest round trip, in nanoseconds.
    pub round_trip_least_ns: u64,
    /// The median of the round trips, in nanoseconds.
    pub round_trip_median_ns: u64,
    /// Number of lost probes, out of 11.
    pub lost: u32,
    /// Bytes per second to the other end.
    pub outward_bytes_per_second: u64,
    /// Bytes per second from the other end.
    pub inward_bytes_per_second: u64,
    /// Duration of each direction, in milliseconds.
    pub stream_ms: u32,
    /// Whether the streams were encrypted.
    pub tls: bool,
    /// Age in milliseconds.
    pub age_ms: u64,
    /// Whether the figures are too old to be used.
    pub old: bool,
}

/// By how many seconds a host's clock may be ahead of the reader's.
pub const CLOCKS_DIFFER: u64 = 600;

impl LinkReport {
    /// A figure between two hosts, each with its name and id. `now` is in seconds since 1970. A figure of far in the future
    /// is the oldest of all.
    #[must_use]
    pub fn new(
        (from, from_id): (String, Option<String>),
        (to, to_id): (String, String),
        of: &LinkEntry,
        now: u64,
    ) -> LinkReport {
        let is_future = of.when > now.saturating_add(CLOCKS_DIFFER);
        let when = if is_future { 0 } else { of.when };
        LinkReport {
            from,
            from_id,
            to,
            to_id,
            from_address: of.from.to_string(),
            to_address: of.to.to_string(),
            round_trip_least_ns: of.least_ns,
            round_trip_median_ns: of.median_ns,
            lost: of.lost,
            outward_bytes_per_second: of.outward,
            inward_bytes_per_second: of.inward,
            stream_ms: of.stream_ms,
            tls: of.tls,
            age_ms: now.saturating_sub(when).saturating_mul(1000),
            old: is_future || of.is_old(now),
        }
    }

    /// The slower direction, in bytes per second.
    #[must_use]
    pub fn slower(&self) -> u64 {
        self.outward_bytes_per_second
            .min(self.inward_bytes_per_second)
    }
}

/// A device of one of the manager's nodes.
#[derive(Debug, Serialize)]
pub struct ManagedDevice {
    /// Index of the native platform.
    pub platform: u32,
    /// Index of the device within the platform.
    pub device: u32,
    /// `CL_DEVICE_NAME`.
    pub name: String,
    /// `GPU`, `CPU`, `ACCELERATOR`, `CUSTOM` or `OTHER`.
    pub kind: String,
    /// `CL_DEVICE_GLOBAL_MEM_SIZE`.
    pub memory_bytes: u64,
    /// Number of shares that the device is offered as; 1 for an undivided device.
    pub shares: u32,
    /// Number of shares in leases.
    pub leased: u32,
    /// The device's use. `null`: unknown.
    #[serde(rename = "use")]
    pub usage: Option<DeviceUsage>,
}

impl From<pb::LeaseInfo> for Lease {
    fn from(info: pb::LeaseInfo) -> Lease {
        let state = match info.state() {
            pb::LeaseState::Unspecified => "unknown",
            pb::LeaseState::Offered => "offered",
            pb::LeaseState::Reserved => "reserved",
            pb::LeaseState::Active => "active",
            pb::LeaseState::Lapsed => "lapsed",
            pb::LeaseState::Ending => "ending",
        };
        Lease {
            lease: id(&info.lease_id),
            user: info.user,
            state,
            nodes: info.nodes.into_iter().map(NodeShare::from).collect(),
            lost: info.lost.into_iter().map(NodeShare::from).collect(),
            age_ms: info.age_ms,
            lifetime_ms: info.lifetime_ms,
            sessions: info.sessions,
            away: info.away,
            client: info.client.map(Client::from),
        }
    }
}

impl From<pb::NodeShare> for NodeShare {
    fn from(share: pb::NodeShare) -> NodeShare {
        // Names may be missing; they are empty then.
        let names = share
            .devices
            .into_iter()
            .chain(std::iter::repeat(String::new()));
        let units = share.units.into_iter().zip(names).map(|(unit, name)| Unit {
            platform: unit.platform,
            device: unit.device,
            share: unit.share,
            name,
        });
        let units = units.collect();
        NodeShare {
            node: id(&share.node_uuid),
            name: share.name,
            addresses: share.addresses,
            units,
        }
    }
}

impl From<pb::QueueList> for Queue {
    fn from(list: pb::QueueList) -> Queue {
        Queue {
            requests: list.requests.into_iter().map(Waiting::from).collect(),
            waiting: list.waiting,
        }
    }
}

impl From<pb::WaitingRequest> for Waiting {
    fn from(request: pb::WaitingRequest) -> Waiting {
        let priority = class(request.priority());
        Waiting {
            lease: id(&request.lease_id),
            user: request.user,
            position: request.position,
            waiting_ms: request.waiting_ms,
            request: request.request,
            priority,
            client: request.client.map(Client::from),
            why: Some(request.why).filter(|why| !why.is_empty()),
        }
    }
}

impl From<ClientWord> for Client {
    fn from(client: ClientWord) -> Client {
        Client {
            pid: client.pid,
            host: client.host,
            user: client.user,
            program: client.program,
        }
    }
}

impl From<pb::NodeInfo> for ManagedNode {
    fn from(info: pb::NodeInfo) -> ManagedNode {
        ManagedNode {
            node: id(&info.node_uuid),
            name: info.name,
            addresses: info.addresses,
            connected: info.connected,
            draining: info.draining,
            stopping: info.stopping,
            insecure: info.insecure,
            devices: info.devices.into_iter().map(ManagedDevice::from).collect(),
            moved_bytes: info.bytes,
            commands: info.commands,
            sessions: info.sessions,
            away: info.away,
            leaving: info.leaving.into_iter().map(Leaving::from).collect(),
            links: None,
            hosts: (info.hosts.into_iter())
                .map(|of| HostLoad {
                    worker: of.worker,
                    domain: of.domain,
                    sessions: of.sessions,
                })
                .collect(),
        }
    }
}

impl From<pb::Leaving> for Leaving {
    fn from(of: pb::Leaving) -> Leaving {
        let state = match of.state() {
            pb::LeavingState::Unspecified => "unknown",
            pb::LeavingState::Waits => "waits",
            pb::LeavingState::Moves => "moves",
            pb::LeavingState::Moved => "moved",
            pb::LeavingState::Stays => "stays",
            pb::LeavingState::Ended => "ended",
        };
        Leaving {
            lease: id(&of.lease_id),
            user: of.user,
            state: state.to_owned(),
            reason: of.reason,
        }
    }
}

impl From<pb::DeviceInfo> for ManagedDevice {
    fn from(info: pb::DeviceInfo) -> ManagedDevice {
        ManagedDevice {
            platform: info.platform,
            device: info.device,
            name: info.name,
            kind: info.r#type,
            memory_bytes: info.memory,
            shares: info.shares,
            leased: info.leased,
            usage: info.r#use.map(DeviceUsage::from),
        }
    }
}

/// Devices that are alike; a share counts as one.
#[derive(Debug, Serialize)]
pub struct Kind {
    /// `CL_DEVICE_NAME`.
    pub name: String,
    /// `GPU`, `CPU`, …
    pub kind: String,
    /// Bytes of memory of one device or share.
    pub memory_bytes: u64,
    /// Number of devices.
    pub count: u32,
    /// Number of free devices.
    pub free: u32,
}

impl From<pb::DeviceKind> for Kind {
    fn from(of: pb::DeviceKind) -> Kind {
        Kind {
            name: of.name,
            kind: of.r#type,
            memory_bytes: of.memory,
            count: of.count,
            free: of.free,
        }
    }
}

/// The name of a priority class.
#[must_use]
pub fn class(priority: pb::Priority) -> &'static str {
    match priority {
        pb::Priority::Low => "low",
        pb::Priority::Normal => "normal",
        pb::Priority::High => "high",
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}@{})", self.program, self.pid, self.host)
    }
}

/// An id as 32 hexadecimal digits.
#[must_use]
pub fn id(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(from: Option<&str>, to: &str, rate: u64, when: u64) -> LinkReport {
        let ends = ([10, 0, 0, 1].into(), ([10, 0, 0, 2], 7079).into());
        let of = LinkEntry {
            outward: rate,
            inward: rate + 1,
            when,
            ..LinkEntry::unmeasured(to.to_owned(), ends.0, ends.1)
        };
        let named = |id: &str| format!("name of {id}");
        let from = from.map_or((String::new(), None), |id| (named(id), Some(id.to_owned())));
        LinkReport::new(from, (named(to), to.to_owned()), &of, 10_000_000)
    }

    #[test]
    fn each_node_has_its_slowest_and_its_fastest_link() {
        let now = 10_000_000;
        let links = [
            link(Some("a"), "b", 5, now),
            link(Some("c"), "a", 9, now),
            link(Some("a"), "d", 7, now),
            link(Some("a"), "e", 1, 0),
            link(None, "a", 1, now),
        ];
        let nodes = NodeLinks::by_node(&links);
        assert_eq!(nodes.len(), 4);
        let a = &nodes["a"];
        assert_eq!(a.measured, 3);
        assert_eq!((&*a.slowest.node, a.slowest.bytes_per_second), ("b", 5));
        assert_eq!(
            (&*a.fastest.name, a.fastest.bytes_per_second),
            ("name of c", 9)
        );
        assert_eq!(nodes["d"].slowest, nodes["d"].fastest);
        assert_eq!(nodes["d"].slowest.node, "a");
    }
}
