//! What `--json` prints of those verbs by which a device manager is looked after.

use std::path::{Path, PathBuf};

use causeway_proto::manager as pb;
use serde::Serialize;

use super::{Lease, ManagedNode};

/// A user of the device manager.
#[derive(Debug, Serialize)]
pub(crate) struct User {
    /// By what it knows him.
    pub(crate) name: String,
    /// Whose quotas he shares.
    pub(crate) groups: Vec<String>,
    /// May do everything.
    pub(crate) admin: bool,
    /// Is a node, and may join.
    pub(crate) node: bool,
}

/// What is no more.
#[derive(Debug, Serialize)]
pub(crate) struct Removed {
    /// The user, or the tokens' ids.
    pub(crate) removed: Vec<String>,
}

/// A token, without itself.
#[derive(Debug, Serialize)]
pub(crate) struct Token {
    /// By what it is revoked.
    pub(crate) id: String,
    /// Whose it is.
    pub(crate) user: String,
    /// What it was called.
    pub(crate) label: String,
    /// Until when it counts, by the manager's clock; null: until it is revoked.
    pub(crate) expires_unix_ms: Option<u64>,
}

/// A token that was made.
#[derive(Debug, Serialize)]
pub(crate) struct NewToken<'a> {
    /// By what it is revoked.
    pub(crate) id: &'a str,
    /// Whose it is.
    pub(crate) user: &'a str,
    /// The token itself, shown this once; null if it is in a file.
    pub(crate) token: Option<&'a str>,
    /// The file that it is in.
    pub(crate) file: Option<&'a Path>,
}

/// What `quota` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Quotas {
    /// In which device time is counted.
    pub(crate) window_seconds: u64,
    /// The limits.
    pub(crate) quotas: Vec<Quota>,
    /// What is used.
    pub(crate) used: Vec<Used>,
}

/// Limits; null: none.
#[derive(Debug, Serialize)]
pub(crate) struct Quota {
    /// `user NAME`, `group NAME` or `every user`.
    pub(crate) who: String,
    /// Devices at once.
    pub(crate) devices: Option<u64>,
    /// Their memory at once.
    pub(crate) memory_bytes: Option<u64>,
    /// Time of devices in the window.
    pub(crate) device_seconds: Option<u64>,
    /// The most urgent class: `low`, `normal` or `high`.
    pub(crate) highest: Option<&'static str>,
}

/// What somebody has, or has had in the window; `null` for a group's, which its members are not shown.
#[derive(Debug, Serialize)]
pub(crate) struct Used {
    /// `user NAME` or `group NAME`.
    pub(crate) who: String,
    /// Devices now.
    pub(crate) devices: Option<u32>,
    /// Their memory.
    pub(crate) memory_bytes: Option<u64>,
    /// Time of devices in the window, with all that running leases may come to.
    pub(crate) device_seconds: Option<u64>,
}

/// A certificate that was made.
#[derive(Debug, Serialize)]
pub(crate) struct Certificate {
    /// Its file.
    pub(crate) certificate: PathBuf,
    /// The file of its key.
    pub(crate) key: PathBuf,
    /// Names and addresses that it is good for; none of a CA.
    pub(crate) names: Vec<String>,
    /// RFC 3339.
    pub(crate) valid_until: String,
    /// What to do next, for people.
    pub(crate) next: Vec<String>,
}

/// What `completions` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Script {
    /// Of which shell.
    pub(crate) shell: String,
    /// What it is to read.
    pub(crate) script: String,
}

/// What `man` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Pages {
    /// The files that were written.
    pub(crate) pages: Vec<PathBuf>,
}

/// What `top` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Load {
    /// `host:port`.
    pub(crate) manager: String,
    /// What all nodes move over bulk connections, both ways.
    pub(crate) bytes_per_second: f64,
    /// Commands of all nodes.
    pub(crate) commands_per_second: f64,
    /// The nodes.
    pub(crate) nodes: Vec<NodeLoad>,
    /// Leases and reservations.
    pub(crate) leases: Vec<LeaseLoad>,
    /// Requests in the queue.
    pub(crate) waiting: u32,
}

/// A node, and what it does.
#[derive(Debug, Serialize)]
pub(crate) struct NodeLoad {
    /// As `nodes` shows it.
    #[serde(flatten)]
    pub(crate) node: ManagedNode,
    /// What it moves over bulk connections, both ways; null: not known.
    pub(crate) bytes_per_second: Option<f64>,
    /// Commands; null: not known.
    pub(crate) commands_per_second: Option<f64>,
}

/// A lease, and what its sessions do.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseLoad {
    /// As `leases` shows it.
    #[serde(flatten)]
    pub(crate) lease: Lease,
    /// What they move over bulk connections, both ways; null: not known.
    pub(crate) bytes_per_second: Option<f64>,
    /// Commands; null: not known.
    pub(crate) commands_per_second: Option<f64>,
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
