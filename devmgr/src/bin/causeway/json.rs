//! The output of `--json`, in one place: the types that the verbs print.
//!
//! | verb | on standard output |
//! |---|---|
//! | `devices` | list of [`causeway_devmgr::report::NodeReport`], then what a configured manager offers |
//! | `discover` | list of nodes and managers, `Shown` in its file; with `--watch` one list for each change |
//! | `leases` | list of [`Lease`] |
//! | `queue` | [`Queue`] |
//! | `request` | [`Fitting`] |
//! | `release` | [`Released`] |
//! | `run` | the program's own output; on standard error a line with a [`Step`] for each change |
//! | `nodes`, `nodes drain`, `nodes resume`, `nodes remove` | list of [`ManagedNode`], after the change |
//! | `users list` | list of [`User`] |
//! | `users add`, `users groups`, `users admin`, `users node` | [`User`], after the change |
//! | `users remove`, `tokens revoke` | [`Removed`] |
//! | `tokens create` | [`NewToken`] |
//! | `tokens list` | list of [`Token`] |
//! | `quota` | [`Quotas`], after the change |
//! | `certs` | [`Certificate`] |
//! | `top` | [`Load`] |
//! | `completions` | [`Script`] |
//! | `man` | [`Pages`] |
//! | any that fails | [`Error`], on standard error |
//!
//! Rules: keys are never renamed or removed; new ones may be added. An id is a string of 32 hexadecimal
//! digits. Times are whole milliseconds (`_ms`), sizes are bytes (`_bytes`). A missing value is `null`,
//! or left out where the type's documentation says so.

use std::fmt;
use std::path::{Path, PathBuf};

use causeway_devmgr::report::DeviceUsage;
use causeway_proto::control::Client as ClientWord;
use causeway_proto::manager as pb;
use serde::Serialize;

/// A failure.
#[derive(Debug, Serialize)]
pub(crate) struct Error {
    /// What happened.
    pub(crate) error: String,
    /// What to do about it, if known.
    pub(crate) cure: Option<String>,
}

/// A lease or a reservation.
#[derive(Debug, Serialize)]
pub(crate) struct Lease {
    /// The lease's id.
    pub(crate) lease: String,
    /// The lease's user.
    pub(crate) user: String,
    /// `offered`, `reserved`, `active`, `lapsed` (its client was lost; kept for a while) or `ending`.
    pub(crate) state: &'static str,
    /// The lease's units, by node.
    pub(crate) nodes: Vec<NodeShare>,
    /// Units that the lease has lost, by node.
    pub(crate) lost: Vec<NodeShare>,
    /// Time since the grant.
    pub(crate) age_ms: u64,
    /// Time until the lease ends unless it is renewed.
    pub(crate) lifetime_ms: u64,
    /// Number of open sessions.
    pub(crate) sessions: u32,
    /// Number of open sessions whose connections are broken.
    pub(crate) away: u32,
    /// The client that requested the lease.
    pub(crate) client: Option<Client>,
}

/// A lease's part on one node.
#[derive(Debug, Serialize)]
pub(crate) struct NodeShare {
    /// The node's id.
    pub(crate) node: String,
    /// The node's name.
    pub(crate) name: String,
    /// `host:port` where clients reach the node, the most likely address first.
    pub(crate) addresses: Vec<String>,
    /// Devices, or shares of them.
    pub(crate) units: Vec<Unit>,
}

/// A device or one share of it, by its place in its node's inventory.
#[derive(Debug, Serialize)]
pub(crate) struct Unit {
    /// Index of the native platform.
    pub(crate) platform: u32,
    /// Index of the device within the platform.
    pub(crate) device: u32,
    /// Index of the share; 0 for an undivided device.
    pub(crate) share: u32,
    /// `CL_DEVICE_NAME`; empty while the node is not connected.
    pub(crate) name: String,
}

/// A program, as it describes itself.
#[derive(Debug, Serialize)]
pub(crate) struct Client {
    /// Process id.
    pub(crate) pid: u32,
    /// Host name.
    pub(crate) host: String,
    /// User name on that host.
    pub(crate) user: String,
    /// Name of the program.
    pub(crate) program: String,
}

/// The device managers that share a store.
#[derive(Debug, Serialize)]
pub(crate) struct Managers {
    /// The id of the cluster, as 32 hexadecimal digits.
    pub(crate) cluster: String,
    /// The leader's term.
    pub(crate) term: u64,
    /// `redb` or `etcd`.
    pub(crate) store: String,
    /// The managers, the leader first.
    pub(crate) managers: Vec<ManagerState>,
    /// etcd's members.
    pub(crate) members: Vec<StoreMember>,
}

/// A device manager.
#[derive(Debug, Serialize)]
pub(crate) struct ManagerState {
    /// Where clients reach the manager. Empty: it does not say.
    pub(crate) address: String,
    /// `leader` or `standby`.
    pub(crate) role: &'static str,
    /// How long the manager has had this role.
    pub(crate) since_ms: u64,
    /// The version of its program.
    pub(crate) version: String,
    /// The newest schema of the store that the manager knows.
    pub(crate) schema: u32,
    /// Why the manager cannot lead. Empty: it can.
    pub(crate) problem: String,
}

/// A member of etcd.
#[derive(Debug, Serialize)]
pub(crate) struct StoreMember {
    /// The member's name.
    pub(crate) name: String,
    /// URLs for clients.
    pub(crate) addresses: Vec<String>,
    /// Its version. Empty: it does not answer.
    pub(crate) version: String,
    /// Whether the member leads etcd.
    pub(crate) leader: bool,
    /// Size of its database.
    pub(crate) database_bytes: u64,
    /// Why the member is unhealthy. Empty: it is healthy.
    pub(crate) problem: String,
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
            cluster: list
                .cluster_id
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            term: list.term,
            store: list.store,
            managers: managers.collect(),
            members: members.collect(),
        }
    }
}

/// The queue.
#[derive(Debug, Serialize)]
pub(crate) struct Queue {
    /// Requests that the caller may see, in the order of their arrival.
    pub(crate) requests: Vec<Waiting>,
    /// Number of all requests, including those of others.
    pub(crate) waiting: u32,
}

/// A waiting request.
#[derive(Debug, Serialize)]
pub(crate) struct Waiting {
    /// The id of the request, and later of its lease.
    pub(crate) lease: String,
    /// The request's user.
    pub(crate) user: String,
    /// Position in the queue, from 1.
    pub(crate) position: u32,
    /// Time since the request was made.
    pub(crate) waiting_ms: u64,
    /// The devices requested, in one line.
    pub(crate) request: String,
    /// `low`, `normal` or `high`.
    pub(crate) priority: &'static str,
    /// The client that made the request.
    pub(crate) client: Option<Client>,
    /// Why the request waits. `null`: the manager does not say.
    pub(crate) why: Option<String>,
}

/// Whether devices could be granted now.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Fitting {
    /// The devices requested, in one line.
    pub(crate) request: String,
    /// Whether the request would be granted.
    pub(crate) fits: bool,
    /// An example of what would be granted; empty if the caller may not see others' leases.
    pub(crate) nodes: Vec<NodeShare>,
    /// The names of the devices that would be granted.
    pub(crate) devices: Vec<String>,
    /// Why the request would be refused: see [`refusal`].
    pub(crate) refusal: Option<&'static str>,
    /// The reason as text.
    pub(crate) reason: Option<String>,
}

/// A lease was released or revoked.
#[derive(Debug, Serialize)]
pub(crate) struct Released {
    /// The lease's id.
    pub(crate) released: String,
}

/// An event of `run`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Step {
    /// The request waits for devices.
    Waiting {
        /// The devices requested, in one line.
        request: String,
        /// Position in the queue, from 1.
        position: u32,
        /// Number of all waiting requests.
        waiting: u32,
        /// The devices that the request lacks, regardless of other requests.
        lack: Option<String>,
        /// Why the request waits, as `causeway queue` says it. `null`: not told yet, or told less than 10 s ago.
        why: Option<String>,
    },
    /// A connection was lost and is retried: to the manager, where the request keeps its place for a while, or of one of
    /// the program's sessions, for a second by now.
    Away {
        /// The session's node. `null`: the manager.
        server: Option<String>,
        /// The process that has the session.
        pid: Option<u32>,
        /// The beginning of the session's id, as the node's log shows it.
        session: Option<String>,
        /// What happened.
        reason: String,
    },
    /// A session of the program was resumed after its connections broke. Breaks of less than a second are reported only
    /// here.
    Resumed {
        /// The session's node.
        server: String,
        /// The process that has the session.
        pid: u32,
        /// The beginning of the session's id.
        session: String,
        /// How often the session was resumed so far.
        times: u64,
        /// Time without a connection.
        away_ms: u64,
    },
    /// A session of the program is lost.
    Lost {
        /// The session's node.
        server: String,
        /// The process that had the session.
        pid: u32,
        /// The beginning of the session's id.
        session: String,
        /// Why the session is lost.
        reason: String,
        /// Time without a connection before.
        away_ms: u64,
    },
    /// The lease is granted; the program starts.
    Granted {
        /// The lease's id.
        lease: String,
        /// The lease's devices, by node.
        nodes: Vec<NodeShare>,
        /// Time until the lease ends in any case.
        time_left_ms: Option<u64>,
    },
    /// The lease has lost the devices of some nodes, and goes on with the others.
    Reduced {
        /// The lost devices, by node.
        lost: Vec<NodeShare>,
        /// The remaining devices, by node.
        nodes: Vec<NodeShare>,
    },
    /// The sessions of the lease on one node have moved to another node.
    Moved {
        /// The node that the lease has left.
        from: NodeShare,
        /// The node that has taken over.
        to: NodeShare,
    },
    /// The lease is over before the program has ended.
    Over {
        /// The reason.
        reason: String,
    },
}

/// A node of the device manager.
#[derive(Debug, Serialize)]
pub(crate) struct ManagedNode {
    /// The node's id.
    pub(crate) node: String,
    /// The node's name.
    pub(crate) name: String,
    /// `host:port` where clients reach the node, the most likely address first.
    pub(crate) addresses: Vec<String>,
    /// Whether the node is connected to the manager.
    pub(crate) connected: bool,
    /// Whether the node is being drained, and gets no new leases.
    pub(crate) draining: bool,
    /// Whether the node was told to shut down: it gets no new leases, and its sessions end soon.
    pub(crate) stopping: bool,
    /// Whether everyone who can reach the node can use it.
    pub(crate) insecure: bool,
    /// The node's devices; empty while the node is not connected.
    pub(crate) devices: Vec<ManagedDevice>,
    /// Bytes transferred over bulk connections since the daemon's start, both ways.
    pub(crate) moved_bytes: u64,
    /// Commands run since the daemon's start.
    pub(crate) commands: u64,
    /// Number of open sessions.
    pub(crate) sessions: u32,
    /// Number of open sessions whose connections are broken.
    pub(crate) away: u32,
    /// Processes that serve several sessions.
    pub(crate) hosts: Vec<HostLoad>,
    /// What becomes of the leases that `nodes drain --migrate` was to move.
    pub(crate) leaving: Vec<Leaving>,
}

/// A lease that is to leave a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Leaving {
    /// The lease's id.
    pub(crate) lease: String,
    /// The lease's user; empty if the lease has ended.
    pub(crate) user: String,
    /// `waits` (for equal free devices), `moves`, `moved`, `stays` or `ended`.
    pub(crate) state: String,
    /// Why it waits or stays, or the node to which it moves.
    pub(crate) reason: String,
}

/// A process that serves the sessions of one domain.
#[derive(Debug, Serialize)]
pub(crate) struct HostLoad {
    /// The process's number in the daemon's log.
    pub(crate) worker: u64,
    /// Kind of the domain: `user`, `group` or `all`.
    pub(crate) domain: String,
    /// Number of open sessions.
    pub(crate) sessions: u32,
}

/// A device of one of the manager's nodes.
#[derive(Debug, Serialize)]
pub(crate) struct ManagedDevice {
    /// Index of the native platform.
    pub(crate) platform: u32,
    /// Index of the device within the platform.
    pub(crate) device: u32,
    /// `CL_DEVICE_NAME`.
    pub(crate) name: String,
    /// `GPU`, `CPU`, `ACCELERATOR`, `CUSTOM` or `OTHER`.
    pub(crate) kind: String,
    /// `CL_DEVICE_GLOBAL_MEM_SIZE`.
    pub(crate) memory_bytes: u64,
    /// Number of shares that the device is offered as; 1 for an undivided device.
    pub(crate) shares: u32,
    /// Number of shares in leases.
    pub(crate) leased: u32,
    /// The device's use. `null`: unknown.
    #[serde(rename = "use")]
    pub(crate) usage: Option<DeviceUsage>,
}

/// A user of the device manager.
#[derive(Debug, Serialize)]
pub(crate) struct User {
    /// The user's name at the manager.
    pub(crate) name: String,
    /// The groups whose quotas the user shares.
    pub(crate) groups: Vec<String>,
    /// Whether the user is an administrator.
    pub(crate) admin: bool,
    /// Whether the user is a node, and may join.
    pub(crate) node: bool,
}

/// A user or tokens that were removed.
#[derive(Debug, Serialize)]
pub(crate) struct Removed {
    /// The user's name, or the tokens' ids.
    pub(crate) removed: Vec<String>,
}

/// A token, without its secret.
#[derive(Debug, Serialize)]
pub(crate) struct Token {
    /// The token's id, for `tokens revoke`.
    pub(crate) id: String,
    /// The token's user.
    pub(crate) user: String,
    /// The token's label.
    pub(crate) label: String,
    /// When the token expires, by the manager's clock. `null`: never.
    pub(crate) expires_unix_ms: Option<u64>,
}

/// A token that was created.
#[derive(Debug, Serialize)]
pub(crate) struct NewToken<'a> {
    /// The token's id, for `tokens revoke`.
    pub(crate) id: &'a str,
    /// The token's user.
    pub(crate) user: &'a str,
    /// The secret itself, shown only once. `null` if it is in a file.
    pub(crate) token: Option<&'a str>,
    /// The file with the secret.
    pub(crate) file: Option<&'a Path>,
}

/// The output of `quota`.
#[derive(Debug, Serialize)]
pub(crate) struct Quotas {
    /// Length of the window in which device time is counted.
    pub(crate) window_seconds: u64,
    /// The limits.
    pub(crate) quotas: Vec<Quota>,
    /// The use.
    pub(crate) used: Vec<Used>,
}

/// The limits of a subject. `null`: no limit.
#[derive(Debug, Serialize)]
pub(crate) struct Quota {
    /// `user NAME`, `group NAME` or `every user`.
    pub(crate) who: String,
    /// Number of devices at once.
    pub(crate) devices: Option<u64>,
    /// Memory of these devices at once.
    pub(crate) memory_bytes: Option<u64>,
    /// Device time in the window.
    pub(crate) device_seconds: Option<u64>,
    /// The highest priority class: `low`, `normal` or `high`.
    pub(crate) highest: Option<&'static str>,
}

/// A subject's use, now and in the window. `null` for a group whose use the caller may not see.
#[derive(Debug, Serialize)]
pub(crate) struct Used {
    /// `user NAME` or `group NAME`.
    pub(crate) who: String,
    /// Number of devices now.
    pub(crate) devices: Option<u32>,
    /// Memory of these devices.
    pub(crate) memory_bytes: Option<u64>,
    /// Device time in the window, including the time that running leases may still use.
    pub(crate) device_seconds: Option<u64>,
}

/// A certificate that was made.
#[derive(Debug, Serialize)]
pub(crate) struct Certificate {
    /// The certificate's file.
    pub(crate) certificate: PathBuf,
    /// The key's file.
    pub(crate) key: PathBuf,
    /// Names and addresses in the certificate; empty for a CA.
    pub(crate) names: Vec<String>,
    /// End of the validity, in RFC 3339 form.
    pub(crate) valid_until: String,
    /// The next steps, for people.
    pub(crate) next: Vec<String>,
}

/// The output of `completions`.
#[derive(Debug, Serialize)]
pub(crate) struct Script {
    /// The shell's name.
    pub(crate) shell: String,
    /// The completion script.
    pub(crate) script: String,
}

/// The output of `man`.
#[derive(Debug, Serialize)]
pub(crate) struct Pages {
    /// The files that were written.
    pub(crate) pages: Vec<PathBuf>,
}

/// The output of `top`.
#[derive(Debug, Serialize)]
pub(crate) struct Load {
    /// The manager's `host:port`.
    pub(crate) manager: String,
    /// Bytes that all nodes transfer over bulk connections, both ways.
    pub(crate) bytes_per_second: f64,
    /// Commands that all nodes run.
    pub(crate) commands_per_second: f64,
    /// The nodes.
    pub(crate) nodes: Vec<NodeLoad>,
    /// Leases and reservations.
    pub(crate) leases: Vec<LeaseLoad>,
    /// Number of requests in the queue.
    pub(crate) waiting: u32,
}

/// A node with its rates.
#[derive(Debug, Serialize)]
pub(crate) struct NodeLoad {
    /// The node, as `nodes` shows it.
    #[serde(flatten)]
    pub(crate) node: ManagedNode,
    /// Bytes transferred over bulk connections, both ways. `null`: unknown.
    pub(crate) bytes_per_second: Option<f64>,
    /// Commands run. `null`: unknown.
    pub(crate) commands_per_second: Option<f64>,
    /// Part of the time in which sessions had commands under way, by device. `null`: unknown.
    pub(crate) busy: Vec<Option<f64>>,
}

/// A lease with the rates of its sessions.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseLoad {
    /// The lease, as `leases` shows it.
    #[serde(flatten)]
    pub(crate) lease: Lease,
    /// Bytes transferred over bulk connections, both ways. `null`: unknown.
    pub(crate) bytes_per_second: Option<f64>,
    /// Commands run. `null`: unknown.
    pub(crate) commands_per_second: Option<f64>,
    /// Part of the time in which commands were under way, summed over sessions and devices. `null`: unknown.
    pub(crate) busy: Option<f64>,
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

impl From<pb::User> for User {
    fn from(user: pb::User) -> User {
        User {
            name: user.name,
            groups: user.groups,
            admin: user.admin,
            node: user.node,
        }
    }
}

impl From<pb::Token> for Token {
    fn from(token: pb::Token) -> Token {
        Token {
            id: token.token_id,
            user: token.user,
            label: token.label,
            expires_unix_ms: Some(token.expires_unix_ms).filter(|&at| at != 0),
        }
    }
}

/// The `refusal` of a request. `nothing-fits`: no such devices exist. `nothing-free`: they are in use.
/// `store`: the manager cannot store a grant. Others: `quota`, `malformed`, `queue-full`, `priority`,
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

/// The name of a priority class.
pub(crate) fn class(priority: pb::Priority) -> &'static str {
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
pub(crate) fn id(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
