//! What `--json` prints: the one place that says so, and that the verbs make it from.
//!
//! | verb | on standard output |
//! |---|---|
//! | `devices` | list of [`causeway_devmgr::report::NodeReport`] |
//! | `leases` | list of [`Lease`] |
//! | `queue` | [`Queue`] |
//! | `request` | [`Fitting`] |
//! | `release` | [`Released`] |
//! | `run` | what the program prints; on standard error a line of [`Step`] for each change |
//! | `nodes`, `nodes drain`, `nodes resume`, `nodes remove` | list of [`ManagedNode`], as they are then |
//! | `users list` | list of [`User`] |
//! | `users add`, `users groups`, `users admin`, `users node` | [`User`], as he is then |
//! | `users remove`, `tokens revoke` | [`Removed`] |
//! | `tokens create` | [`NewToken`] |
//! | `tokens list` | list of [`Token`] |
//! | `quota` | [`Quotas`], as they are then |
//! | `certs` | [`Certificate`] |
//! | `top` | [`Load`] |
//! | `completions` | [`Script`] |
//! | `man` | [`Pages`] |
//! | any that fails | [`Error`], on standard error |
//!
//! What holds for all of it: keys are never renamed or taken away, new ones may come. An id is its 32 hexadecimal
//! digits. Times are whole milliseconds (`_ms`), sizes bytes (`_bytes`); what there is none of is `null`, or left out
//! where that is said.

use std::fmt;

use causeway_proto::control::Client as ClientWord;
use causeway_proto::manager as pb;
use serde::Serialize;

mod administration;

pub(crate) use administration::{
    Certificate, LeaseLoad, Load, NewToken, NodeLoad, Pages, Quota, Quotas, Removed, Script, Token,
    Used, User,
};

/// Something went wrong.
#[derive(Debug, Serialize)]
pub(crate) struct Error {
    /// What.
    pub(crate) error: String,
    /// What to do about it, where that is known.
    pub(crate) cure: Option<String>,
}

/// A lease or a reservation.
#[derive(Debug, Serialize)]
pub(crate) struct Lease {
    /// Its id.
    pub(crate) lease: String,
    /// Whose it is.
    pub(crate) user: String,
    /// `offered`, `reserved`, `active`, `lapsed` (its client was lost; kept for a while) or `ending`.
    pub(crate) state: &'static str,
    /// What it has, by node.
    pub(crate) nodes: Vec<NodeShare>,
    /// What it had beside that, of nodes that were lost.
    pub(crate) lost: Vec<NodeShare>,
    /// Since it was granted.
    pub(crate) age_ms: u64,
    /// Until it ends unless it is renewed.
    pub(crate) lifetime_ms: u64,
    /// Who asked for it.
    pub(crate) client: Option<Client>,
}

/// What a lease has of one node.
#[derive(Debug, Serialize)]
pub(crate) struct NodeShare {
    /// The node's id.
    pub(crate) node: String,
    /// Its name.
    pub(crate) name: String,
    /// `host:port` where it is reached, the likeliest first.
    pub(crate) addresses: Vec<String>,
    /// Devices, or shares of them.
    pub(crate) units: Vec<Unit>,
}

/// A device or one share of it, by its place in its node's inventory.
#[derive(Debug, Serialize)]
pub(crate) struct Unit {
    /// The native platform.
    pub(crate) platform: u32,
    /// The device of that platform.
    pub(crate) device: u32,
    /// The share; 0 of an exclusive device.
    pub(crate) share: u32,
    /// `CL_DEVICE_NAME`; empty while the node is not connected.
    pub(crate) name: String,
}

/// A program, as it says of itself.
#[derive(Debug, Serialize)]
pub(crate) struct Client {
    /// Its process.
    pub(crate) pid: u32,
    /// The host that it runs on.
    pub(crate) host: String,
    /// The user there.
    pub(crate) user: String,
    /// Its name.
    pub(crate) program: String,
}

/// Who waits.
#[derive(Debug, Serialize)]
pub(crate) struct Queue {
    /// Requests that the caller may see, in the order in which they came.
    pub(crate) requests: Vec<Waiting>,
    /// All requests, those of others included.
    pub(crate) waiting: u32,
}

/// A request that waits.
#[derive(Debug, Serialize)]
pub(crate) struct Waiting {
    /// Its id, and then its lease's.
    pub(crate) lease: String,
    /// Whose it is.
    pub(crate) user: String,
    /// Its place, from 1.
    pub(crate) position: u32,
    /// Since when.
    pub(crate) waiting_ms: u64,
    /// What is asked for, in one line.
    pub(crate) request: String,
    /// `low`, `normal` or `high`.
    pub(crate) priority: &'static str,
    /// Who asks.
    pub(crate) client: Option<Client>,
}

/// Whether devices could be had now.
#[derive(Debug, Serialize)]
pub(crate) struct Fitting {
    /// What was asked for, in one line.
    pub(crate) request: String,
    /// Whether it would be granted.
    pub(crate) fits: bool,
    /// What would be granted, for example; none for who is not shown what others have.
    pub(crate) nodes: Vec<NodeShare>,
    /// The names of the devices that would be granted.
    pub(crate) devices: Vec<String>,
    /// Why it would not: see [`refusal`].
    pub(crate) refusal: Option<&'static str>,
    /// The same in words.
    pub(crate) reason: Option<String>,
}

/// A lease was given back, or taken away.
#[derive(Debug, Serialize)]
pub(crate) struct Released {
    /// Which.
    pub(crate) released: String,
}

/// What `run` has to tell.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Step {
    /// It waits for devices.
    Waiting {
        /// What for, in one line.
        request: String,
        /// Its place, from 1.
        position: u32,
        /// Requests that wait in all.
        waiting: u32,
        /// What is not there for it, whoever else comes first.
        lack: Option<String>,
    },
    /// The manager was lost, and is tried again; the place is kept for a while.
    Away {
        /// What happened.
        reason: String,
    },
    /// It has devices; the program starts.
    Granted {
        /// The lease.
        lease: String,
        /// Its devices.
        nodes: Vec<NodeShare>,
        /// Until it ends in any case.
        time_left_ms: Option<u64>,
    },
    /// The lease has lost the devices of nodes, and goes on with the others.
    Reduced {
        /// What it has lost.
        lost: Vec<NodeShare>,
        /// What it still has.
        nodes: Vec<NodeShare>,
    },
    /// The lease is over before the program is.
    Over {
        /// Why.
        reason: String,
    },
}

/// A node of the device manager.
#[derive(Debug, Serialize)]
pub(crate) struct ManagedNode {
    /// Its id.
    pub(crate) node: String,
    /// Its name.
    pub(crate) name: String,
    /// `host:port` where it is reached, the likeliest first.
    pub(crate) addresses: Vec<String>,
    /// Whether the manager is in touch with it.
    pub(crate) connected: bool,
    /// Whether it gets no new leases.
    pub(crate) draining: bool,
    /// Whether it was told to end: it gets none either, and what runs there ends soon.
    pub(crate) stopping: bool,
    /// Whether everybody who can reach it can use it.
    pub(crate) insecure: bool,
    /// Its devices; none while it is not connected.
    pub(crate) devices: Vec<ManagedDevice>,
    /// Moved over its bulk connections since it started, both ways.
    pub(crate) moved_bytes: u64,
    /// Commands that it has run since it started.
    pub(crate) commands: u64,
    /// Sessions that are open.
    pub(crate) sessions: u32,
}

/// A device of a node of the manager's.
#[derive(Debug, Serialize)]
pub(crate) struct ManagedDevice {
    /// The native platform.
    pub(crate) platform: u32,
    /// The device of that platform.
    pub(crate) device: u32,
    /// `CL_DEVICE_NAME`.
    pub(crate) name: String,
    /// `GPU`, `CPU`, `ACCELERATOR`, `CUSTOM` or `OTHER`.
    pub(crate) kind: String,
    /// `CL_DEVICE_GLOBAL_MEM_SIZE`.
    pub(crate) memory_bytes: u64,
    /// Shares that it is offered in; 1: it is exclusive.
    pub(crate) shares: u32,
    /// How many of them are in leases.
    pub(crate) leased: u32,
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
            client: info.client.map(Client::from),
        }
    }
}

impl From<pb::NodeShare> for NodeShare {
    fn from(share: pb::NodeShare) -> NodeShare {
        // One that is not told is empty.
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
        let priority = match request.priority() {
            pb::Priority::Low => "low",
            pb::Priority::Normal => "normal",
            pb::Priority::High => "high",
        };
        Waiting {
            lease: id(&request.lease_id),
            user: request.user,
            position: request.position,
            waiting_ms: request.waiting_ms,
            request: request.request,
            priority,
            client: request.client.map(Client::from),
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
        }
    }
}

/// Why a request gets nothing: `nothing-fits` (there are no such devices at all), `nothing-free` (they are in use),
/// `quota`, `malformed`, `queue-full`, `priority`, `store` (the manager cannot write down what it would grant), or
/// `other`.
pub(crate) fn refusal(code: pb::RefusalCode) -> &'static str {
    match code {
        pb::RefusalCode::Unspecified => "other",
        pb::RefusalCode::NothingFits => "nothing-fits",
        pb::RefusalCode::NothingFree => "nothing-free",
        pb::RefusalCode::Quota => "quota",
        pb::RefusalCode::Malformed => "malformed",
        pb::RefusalCode::QueueFull => "queue-full",
        pb::RefusalCode::Priority => "priority",
        pb::RefusalCode::Store => "store",
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}@{})", self.program, self.pid, self.host)
    }
}

/// An id as people and files have it.
pub(crate) fn id(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
