//! One host: a namespace with one cable, `eth0`, whose other end is a port of the switch.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::error::{Error, Result};
use crate::firewall::{self, Refusal};
use crate::namespace::Namespace;
use crate::tools;
use crate::traffic::Interface;

/// The variable that every process on a host has. `network clean` finds processes by it whose network is gone.
pub const VARIABLE: &str = "CAUSEWAY_NETWORK";

/// A host of a [`Network`](crate::Network).
#[derive(Debug)]
pub struct Host {
    pub(crate) index: usize,
    pub(crate) address: Ipv4Addr,
    pub(crate) namespace: Namespace,
    pub(crate) switch: Namespace,
    pub(crate) network: String,
}

impl Host {
    /// The host's index in the network, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The address under which the other hosts reach this one. `127.0.0.1` is local to the host.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns a command that runs `program` on this host. Only the network differs: files, users and
    /// processes are those of this machine.
    ///
    /// The drop of the network kills processes that still run.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.namespace.command(program);
        command.env(VARIABLE, &self.network);
        command
    }

    /// Runs `body` on this host, in its own thread. Sockets that it opens stay this host's, wherever they
    /// are used later. Its threads and processes belong to this host, too.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the thread cannot be started or a system call fails.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T> {
        self.namespace.enter(body)
    }

    /// A path to the host's network namespace (`nsenter --net=…`). It is valid while the process that
    /// built the network lives.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.namespace.path()
    }

    /// Drops packets that arrive here for `port` (TCP and UDP) from now on, as a firewall would. A
    /// connection attempt hangs until its own time limit.
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] if `nft` fails.
    pub fn block_port(&self, port: u16) -> Result<()> {
        self.block(port, Refusal::Silent)
    }

    /// Refuses TCP connections to `port` with a reset from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] if `nft` fails.
    pub fn refuse_port(&self, port: u16) -> Result<()> {
        self.block(port, Refusal::Reset)
    }

    fn block(&self, port: u16, how: Refusal) -> Result<()> {
        let script = firewall::close_port(port, how);
        tools::nft(&self.namespace, &script)
    }

    /// Undoes [`block_port`](Self::block_port) and [`refuse_port`](Self::refuse_port) of `port`.
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] if `nft` fails.
    pub fn open_port(&self, port: u16) -> Result<()> {
        tools::nft(&self.namespace, &firewall::open_port(port))
    }

    /// Pulls the cable out of the switch. The host's own end loses the carrier. For a silent cut, see
    /// [`Link::cut`](crate::Link::cut).
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] if `ip` fails.
    pub fn unplug(&self) -> Result<()> {
        tools::ip(&self.switch, &format!("link set {} down", port(self.index)))
    }

    /// Undoes [`unplug`](Self::unplug).
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] if `ip` fails.
    pub fn plug(&self) -> Result<()> {
        tools::ip(&self.switch, &format!("link set {} up", port(self.index)))
    }

    /// Returns the bytes on this host's cable since the network was built, including frame headers.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::Unexpected`] if the kernel's figures cannot be read.
    pub fn interface(&self) -> Result<Interface> {
        let text = self
            .enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?
            .map_err(Error::io("read a host's interface statistics"))?;
        Interface::parse(&text, "eth0")
    }
}

/// Returns a command that runs `program` on a host of a network that another process holds. `namespace`
/// is the result of [`Host::namespace`] there, and `network` the network's
/// [`name`](crate::Network::name).
///
/// # Errors
///
/// [`Error::Io`] if the namespace does not exist any more, or if the caller is not root.
pub fn command_on(namespace: &str, network: &str, program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Namespace::open(namespace)?.command(program);
    command.env(VARIABLE, network);
    Ok(command)
}

/// The name of a host's port in the switch.
pub(crate) fn port(index: usize) -> String {
    format!("port{index}")
}
