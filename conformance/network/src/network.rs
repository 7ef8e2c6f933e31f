//! A network of several hosts.
//!
//! ```text
//!  host 0: eth0 ─ port0 ┐                       ┌ port1 ─ eth0 :host 1
//!                       ├ bridge ── (shaped) ── TUN ⇄ emulator
//!  host 2: eth0 ─ port2 ┘
//! ```
//!
//! Every box is a namespace without a name, including the switch. So this machine's own network never
//! sees them. Hosts reach each other over the bridge. A shaped direction is routed through the bridge's
//! own address instead, and from there through the emulator.

use std::fmt::{self, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::builder::{self, Builder};
use crate::emulator::Emulator;
use crate::error::{Error, Result};
use crate::firewall;
use crate::host::Host;
use crate::leftovers;
use crate::link::Link;
use crate::namespace::Namespace;
use crate::shape::Shape;
use crate::tools;
use crate::traffic::{self, Traffic};

/// The bridge's name in the switch.
pub(crate) const BRIDGE: &str = "bridge";
/// The bridge's address, through which shaped traffic goes.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 79, 255, 254);
/// The emulator's device in the switch.
const DEVICE: &str = "emulator";

/// Several hosts, joined by a switch. Its drop removes everything and kills what still runs on the hosts.
pub struct Network {
    pub(crate) name: String,
    pub(crate) switch: Namespace,
    pub(crate) hosts: Vec<Host>,
    /// Started when the first direction is shaped.
    pub(crate) emulator: Mutex<Option<Arc<Emulator>>>,
    pub(crate) seed: u64,
}

impl Network {
    /// Starts the description of a network.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Checks whether this user on this machine can have networks at all.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] with the reason.
    pub fn possible() -> Result<()> {
        builder::possible()
    }

    /// The name, unique on this machine.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All hosts, in order.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host `index`.
    ///
    /// # Panics
    ///
    /// If there is no such host.
    #[must_use]
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// Both directions between two hosts.
    ///
    /// # Panics
    ///
    /// If there is no such host, or both are the same.
    #[must_use]
    pub fn link(&self, a: usize, b: usize) -> Link<'_> {
        Link::new(self, self.host(a), self.host(b), true)
    }

    /// The direction from one host to another.
    ///
    /// # Panics
    ///
    /// If there is no such host, or both are the same.
    #[must_use]
    pub fn one_way(&self, from: usize, to: usize) -> Link<'_> {
        Link::new(self, self.host(from), self.host(to), false)
    }

    /// Returns how many bytes arrived, by pair and direction, since the network was built.
    ///
    /// # Errors
    ///
    /// Any error that prevents reading the counters.
    pub fn traffic(&self) -> Result<Traffic> {
        let mut traffic = Traffic::new(self.hosts.len());
        for to in &self.hosts {
            let counters = traffic::counters(&tools::nft_counters(&to.namespace)?)?;
            for from in &self.hosts {
                let name = firewall::counter(from.address);
                if let Some((_, bytes)) = counters.iter().find(|(counter, _)| *counter == name) {
                    traffic.set(from.index, to.index, *bytes);
                }
            }
        }
        Ok(traffic)
    }

    /// Shapes directions. The emulator gets the shapes first; then the routes of each host
    /// are changed all at once.
    pub(crate) fn shape(&self, ways: &[(usize, usize, Shape)]) -> Result<()> {
        if ways.is_empty() {
            return Ok(());
        }
        for (_, _, shape) in ways {
            shape.check()?;
        }
        let emulator = self.emulator_started()?;
        for host in &self.hosts {
            let mut routes = String::new();
            for (from, to, shape) in ways {
                if *from == host.index {
                    let to = self.host(*to).address;
                    emulator.shape((host.address, to), *shape);
                    // Writing to a String cannot fail.
                    let _ = writeln!(routes, "route replace {to}/32 via {GATEWAY} dev eth0");
                }
            }
            if !routes.is_empty() {
                tools::ip(&host.namespace, &routes)?;
            }
        }
        Ok(())
    }

    /// The emulator, if any direction is shaped.
    pub(crate) fn emulator(&self) -> Option<Arc<Emulator>> {
        self.emulator.lock().clone()
    }

    /// Returns the emulator, and starts it at the first use.
    fn emulator_started(&self) -> Result<Arc<Emulator>> {
        let mut slot = self.emulator.lock();
        if let Some(emulator) = &*slot {
            return Ok(Arc::clone(emulator));
        }
        let emulator = Arc::new(Emulator::start(&self.switch, DEVICE, self.seed)?);
        tools::ip(
            &self.switch,
            &format!(
                "link set {DEVICE} up txqueuelen 10000
route add default dev {DEVICE} table 100
rule add iif {BRIDGE} lookup 100
"
            ),
        )?;
        *slot = Some(Arc::clone(&emulator));
        Ok(emulator)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut network = f.debug_struct("Network");
        network
            .field("name", &self.name)
            .field("hosts", &self.hosts);
        network.finish_non_exhaustive()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Without processes inside and with this process's descriptors closed, the kernel removes the rest.
        let namespaces = self.hosts.iter().map(|host| &host.namespace);
        let labels: Result<Vec<String>, Error> = namespaces
            .chain([&self.switch])
            .map(Namespace::label)
            .collect();
        if let Ok(labels) = labels {
            leftovers::end_occupants(&labels);
        }
    }
}
