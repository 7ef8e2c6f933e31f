//! One host: a namespace with one cable, `eth0`, whose other end is a port of the switch.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::error::{Error, Result};
use crate::firewall::{self, Refusal};
use crate::namespace::Namespace;
use crate::tools;
use crate::traffic::Interface;

/// Set for every process that runs on a host, so that `network clean` finds those whose network is gone.
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
    /// Its place in the network, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where the others reach it. Its `127.0.0.1` is its own.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// `program`, to be run on this host. Only the network is another one: files, users and processes are those
    /// of this machine.
    ///
    /// A process that outlives the network is killed when the network is dropped.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.namespace.command(program);
        command.env(VARIABLE, &self.network);
        command
    }

    /// Runs `body` on this host, in a thread of its own: sockets that it opens are this host's, wherever they
    /// are used later, and so are threads and processes that it starts.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when no thread can be started or the kernel refuses.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T> {
        self.namespace.enter(body)
    }

    /// A path to its network namespace (`nsenter --net=…`), good while the process that built the network lives.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.namespace.path()
    }

    /// From now on, packets that arrive here for `port` (TCP and UDP) vanish, as a firewall makes them; a
    /// connection attempt hangs until its own limit.
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] when `nft` refuses.
    pub fn block_port(&self, port: u16) -> Result<()> {
        self.block(port, Refusal::Silent)
    }

    /// From now on, TCP connections to `port` here are refused at once with a reset.
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] when `nft` refuses.
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
    /// [`Error::Tool`] when `nft` refuses.
    pub fn open_port(&self, port: u16) -> Result<()> {
        tools::nft(&self.namespace, &firewall::open_port(port))
    }

    /// Pulls the cable out of the switch: the host's own end sees no carrier. For a silent cut see
    /// [`Link::cut`](crate::Link::cut).
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] when `ip` refuses.
    pub fn unplug(&self) -> Result<()> {
        tools::ip(&self.switch, &format!("link set {} down", port(self.index)))
    }

    /// Undoes [`unplug`](Self::unplug).
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] when `ip` refuses.
    pub fn plug(&self) -> Result<()> {
        tools::ip(&self.switch, &format!("link set {} up", port(self.index)))
    }

    /// What its cable carried since the network was built, frame headers included.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::Unexpected`] when the kernel's figures cannot be read.
    pub fn interface(&self) -> Result<Interface> {
        let text = self
            .enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?
            .map_err(Error::io("read a host's interface statistics"))?;
        Interface::parse(&text, "eth0")
    }
}

/// `program`, to be run on a host of a network that another process holds; `namespace` is what
/// [`Host::namespace`] said there, and `network` its [`name`](crate::Network::name).
///
/// # Errors
///
/// [`Error::Io`] when there is no such namespace (any more), or only root may know.
pub fn command_on(namespace: &str, network: &str, program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Namespace::open(namespace)?.command(program);
    command.env(VARIABLE, network);
    Ok(command)
}

/// The name of a host's port in the switch.
pub(crate) fn port(index: usize) -> String {
    format!("port{index}")
}
