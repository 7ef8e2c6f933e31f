//! The flags of `causeway-devmgr`, as they were typed. `settings` validates them.
//!
//! Part of every build of this crate, because `causeway man` writes the manager's page from them. Invariant: nothing
//! here names a part of the manager.

use std::path::PathBuf;

use causeway_serving::settings::ServerFlags;

/// Shares a cluster's OpenCL devices among its users.
#[derive(Clone, Debug, Default, clap::Parser)]
#[command(name = "causeway-devmgr", version, about)]
#[command(
    mut_arg("listen", |arg| arg.help(
        "Listen on ADDR:PORT (repeatable; port 0 selects a free port) [default: 127.0.0.1:7078]"
    )),
    mut_arg("config", |arg| arg.help(
        "Read settings from FILE [default: /etc/causeway/manager.toml, if it exists]"
    )),
    mut_arg("log", |arg| arg.env("CAUSEWAY_DEVMGR_LOG")),
    mut_arg("log_format", |arg| arg.env("CAUSEWAY_DEVMGR_LOG_FORMAT")),
)]
pub struct Flags {
    /// The flags that `causewayd` has, too.
    #[command(flatten)]
    pub server: ServerFlags,

    /// Keep leases, queue, quotas and users in this file, or in `etcd` as the configuration file says
    /// [default: /var/lib/causeway/manager.redb]
    #[arg(long, value_name = "PATH")]
    pub store: Option<PathBuf>,

    /// Require a token or a client certificate from every caller
    #[arg(long)]
    pub authenticate: bool,

    /// Announce the manager on its networks by mDNS, so that nodes and clients with the address `discover` find it
    #[arg(long)]
    pub announce: bool,

    /// Announce what the socket on descriptor 0 says
    #[arg(long, hide = true)]
    pub internal_announce: bool,

    /// Write a new token for the user "admin" into the token's file, and exit. For use after the last token was
    /// lost; no manager may be using the store
    #[arg(long)]
    pub new_admin_token: bool,

    /// Write the whole store into a new file, and exit. No manager may be using the store. The file contains
    /// the key that signs leases
    #[arg(long, value_name = "FILE", conflicts_with = "new_admin_token")]
    pub export: Option<PathBuf>,

    /// Fill an empty store with a file of --export, and exit. No manager may be using the store
    #[arg(long, value_name = "FILE", conflicts_with_all = ["new_admin_token", "export"])]
    pub import: Option<PathBuf>,

    /// Prepare a store that was restored from a backup, and exit. No manager may be using the store. Nodes and
    /// clients refuse such a store otherwise
    #[arg(long, conflicts_with_all = ["new_admin_token", "export", "import"])]
    pub after_restore: bool,
}
