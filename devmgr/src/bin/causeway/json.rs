//! The output of `--json`, in one place: the types that the verbs print. Those that the dashboard shows, too, are
//! in [`causeway_devmgr::listing`].
//!
//! | verb | on standard output |
//! |---|---|
//! | `devices` | list of [`causeway_devmgr::report::NodeReport`], then what a configured manager offers |
//! | `discover` | list of nodes and managers, `Shown` in its file; with `--watch` one list for each change |
//! | `links` | list of `LinkReport` in `links/matrix.rs` |
//! | `leases` | list of [`Lease`] |
//! | `queue` | [`Queue`] |
//! | `request` | [`Fitting`] |
//! | `release` | [`Released`] |
//! | `run` | the program's own output; on standard error a line with a [`RunEvent`] for each change |
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

use std::path::{Path, PathBuf};

pub(crate) use causeway_devmgr::listing::{
    Lease, Leaving, ManagedDevice, ManagedNode, Managers, NodeShare, Queue, Unit, class, id,
};
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
pub(crate) enum RunEvent {
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
        /// Why the request waits, as `causeway queue` says it. `null`: unknown yet, unchanged, or changed less than 10 s after
        /// the last report of a reason.
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
    /// The lease has lost its only node. The device manager seeks equal devices, because the program's commands can be
    /// executed again.
    Seeking {
        /// The lost devices, by node.
        lost: Vec<NodeShare>,
    },
    /// Equal devices have replaced those of a lost node.
    Replaced {
        /// The lost devices.
        from: NodeShare,
        /// The new devices. They may be on the same node, if its daemon was started anew.
        to: NodeShare,
    },
    /// The lease is over before the program has ended.
    Over {
        /// The reason.
        reason: String,
    },
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
