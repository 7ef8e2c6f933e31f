//! The output of `--json` of verbs that administrate a device manager, and of those that make files.

use std::path::{Path, PathBuf};

use causeway_proto::manager as pb;
use serde::Serialize;

use super::{Lease, ManagedNode};

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
