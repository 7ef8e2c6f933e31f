//! The description of a network, and the steps that build it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::firewall;
use crate::host::{Host, port};
use crate::leftovers;
use crate::namespace::Namespace;
use crate::network::{BRIDGE, GATEWAY, Network};
use crate::shape::Shape;
use crate::tools;
use crate::units::Rate;

/// The maximum number of hosts of one network.
pub const MOST_HOSTS: usize = 64;
/// The maximum number of hosts that learn each other's link addresses. All namespaces of a machine together learn about
/// 1,000 (`gc_thresh3`), and drop packets beyond. Hosts of larger networks know the addresses from the start.
const MOST_LEARNERS: usize = 16;

/// Describes a network; made by [`Network::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    hosts: usize,
    rates: Vec<Option<Rate>>,
    rate: Option<Rate>,
    bucket: Bucket,
    every: Option<Shape>,
    links: Vec<(usize, usize, Shape)>,
    seed: u64,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            hosts: 2,
            rates: Vec::new(),
            rate: None,
            bucket: Bucket::default(),
            every: None,
            links: Vec::new(),
            seed: 1,
        }
    }

    /// Sets the number of hosts, 1 to [`MOST_HOSTS`]; the default is 2.
    #[must_use]
    pub fn hosts(mut self, hosts: usize) -> Self {
        self.hosts = hosts;
        self
    }

    /// Sets the rate of each host's cable in each direction (`tc tbf`). The default is the machine's speed.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Sets the rate of one host's cable.
    #[must_use]
    pub fn host_rate(mut self, host: usize, rate: Rate) -> Self {
        if self.rates.len() <= host {
            self.rates.resize(host + 1, None);
        }
        self.rates[host] = Some(rate);
        self
    }

    /// Sets how much passes a rated cable at once after a pause, as time at its rate; the default is 0.6 ms. It
    /// must cover the lateness of this machine's timers. A busy machine needs more (2 ms) to reach 10 Gbit/s.
    #[must_use]
    pub fn burst(mut self, burst: Duration) -> Self {
        self.bucket.burst = burst;
        self
    }

    /// Sets how much may wait before a rated cable until more is lost, as time at its rate. The default
    /// is 5 ms; the minimum is 256 KiB.
    #[must_use]
    pub fn queue(mut self, queue: Duration) -> Self {
        self.bucket.queue = queue;
        self
    }

    /// Shapes both directions between all hosts.
    #[must_use]
    pub fn every_link(mut self, shape: Shape) -> Self {
        self.every = Some(shape);
        self
    }

    /// Shapes both directions between two hosts.
    #[must_use]
    pub fn link(mut self, a: usize, b: usize, shape: Shape) -> Self {
        self.links.push((a, b, shape));
        self
    }

    /// Sets the seed of random decisions (loss, jitter, reordering); the default is 1.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Builds the network. This takes a few tens of milliseconds for a handful of hosts.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if this machine or user cannot have networks; a test then
    /// reports that it is skipped. [`Error::Setting`] for invalid settings. Otherwise the
    /// error of `ip`, `tc`, `nft` or the kernel.
    pub fn build(self) -> Result<Network> {
        self.check()?;
        possible()?;
        let name = name()?;
        let switch = switch()?;
        let addresses: Vec<Ipv4Addr> = (0..self.hosts).map(address).collect();
        let mut hosts = Vec::with_capacity(self.hosts);
        for index in 0..self.hosts {
            let rate = self.rates.get(index).copied().flatten().or(self.rate);
            let limit = rate.map(|rate| (rate, self.bucket));
            hosts.push(host(index, &name, &switch, &addresses, limit)?);
        }
        let network = Network {
            name,
            switch,
            hosts,
            emulator: Mutex::new(None),
            seed: self.seed,
        };
        let every = self
            .every
            .into_iter()
            .flat_map(|shape| pairs(self.hosts).map(move |(a, b)| (a, b, shape)));
        // A later shape of the same link replaces an earlier one.
        let links = every.chain(self.links.iter().copied());
        let ways = links.flat_map(|(a, b, shape)| [(a, b, shape), (b, a, shape)]);
        network.shape(&ways.collect::<Vec<_>>())?;
        Ok(network)
    }

    fn check(&self) -> Result<()> {
        let setting = |text: String| Err(Error::Setting(text));
        if !(1..=MOST_HOSTS).contains(&self.hosts) {
            return setting(format!(
                "a network has 1 to {MOST_HOSTS} hosts, not {}",
                self.hosts
            ));
        }
        if self.rates.len() > self.hosts {
            return setting(format!(
                "there is no host {} to give a rate",
                self.rates.len() - 1
            ));
        }
        for (a, b, _) in &self.links {
            if a == b || *a.max(b) >= self.hosts {
                return setting(format!("there is no link from host {a} to host {b}"));
            }
        }
        let mut shapes = self
            .links
            .iter()
            .map(|(_, _, shape)| shape)
            .chain(&self.every);
        shapes.try_for_each(Shape::check)
    }
}

fn pairs(hosts: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..hosts).flat_map(move |a| (a + 1..hosts).map(move |b| (a, b)))
}

/// Checks whether this user on this machine can have networks. The error has the reason.
pub(crate) fn possible() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Unavailable(
            "root is needed to make network namespaces".into(),
        ));
    }
    tools::check()
}

/// Returns a unique name: a process number, its start time, and a count.
fn name() -> Result<String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    let started = leftovers::start_time(process).ok_or_else(|| Error::Unexpected {
        what: "/proc/self/stat",
        said: String::new(),
    })?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(format!("{process}-{started}-{count}"))
}

/// Returns a host's address. Each network has its own switch, so all networks may use the same addresses.
fn address(index: usize) -> Ipv4Addr {
    let [first, second, ..] = GATEWAY.octets();
    Ipv4Addr::new(first, second, 0, u8::try_from(index + 1).unwrap_or(u8::MAX))
}

/// Returns a host's link address. The first byte says that it is of no manufacturer.
fn link_address(address: Ipv4Addr) -> String {
    let [_, _, high, low] = address.octets();
    format!("02:00:00:00:{high:02x}:{low:02x}")
}

/// The lines that make the other hosts of a large network known to a host.
fn neighbours(own: Ipv4Addr, addresses: &[Ipv4Addr]) -> String {
    let others = addresses.iter().filter(|of| **of != own);
    let line = |of: &Ipv4Addr| {
        let at = link_address(*of);
        format!("neighbour add {of} lladdr {at} dev eth0 nud permanent\n")
    };
    match addresses.len() > MOST_LEARNERS {
        true => others.map(line).collect(),
        false => String::new(),
    }
}

fn switch() -> Result<Namespace> {
    let switch = Namespace::new()?;
    let settings = [
        ("net/ipv6/conf/default/disable_ipv6", "1"),
        ("net/ipv4/ip_forward", "1"),
        // Packets of shaped pairs come back through a device other than their sender's.
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/default/rp_filter", "0"),
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/conf/default/send_redirects", "0"),
        ("net/bridge/bridge-nf-call-iptables", "0"),
    ];
    switch.enter(|| settings.iter().try_for_each(|(key, value)| set(key, value)))??;
    tools::ip(
        &switch,
        &format!(
            "link set lo up
link add {BRIDGE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0
address add {GATEWAY}/16 dev {BRIDGE}
link set {BRIDGE} up
"
        ),
    )?;
    Ok(switch)
}

/// Sets a kernel parameter, if this kernel has it.
fn set(key: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys").join(key);
    if path.exists() {
        fs::write(&path, value).map_err(Error::io(format!("set {key}")))?;
    }
    Ok(())
}

fn host(
    index: usize,
    network: &str,
    switch: &Namespace,
    addresses: &[Ipv4Addr],
    limit: Option<(Rate, Bucket)>,
) -> Result<Host> {
    let namespace = Namespace::new()?;
    let address = addresses[index];
    // Without IPv6 there is no neighbour discovery or similar traffic. Only packets of
    // programs cross the network.
    namespace.enter(|| set("net/ipv6/conf/default/disable_ipv6", "1"))??;
    let (port, switch_path) = (port(index), switch.path());
    tools::ip(
        &namespace,
        &format!(
            "link set lo up
link add eth0 address {} type veth peer name {port} netns {switch_path}
address add {address}/16 dev eth0
link set eth0 up
{}",
            link_address(address),
            neighbours(address, addresses)
        ),
    )?;
    tools::ip(switch, &format!("link set {port} master {BRIDGE} up\n"))?;
    if let Some((rate, bucket)) = limit {
        tools::tc(&namespace, &bucket.limit("eth0", rate))?;
        tools::tc(switch, &bucket.limit(&port, rate))?;
    }
    let peers: Vec<Ipv4Addr> = addresses
        .iter()
        .copied()
        .filter(|peer| *peer != address)
        .collect();
    tools::nft(&namespace, &firewall::table(&peers))?;
    Ok(Host {
        index,
        address,
        namespace,
        switch: switch.clone(),
        network: network.to_owned(),
    })
}

/// The parameters of a rate limit, as times at that rate.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    burst: Duration,
    queue: Duration,
}

impl Default for Bucket {
    /// The burst covers the lateness of a machine's timers and little more. The queue is that
    /// of a simple switch.
    fn default() -> Self {
        Self {
            burst: Duration::from_micros(600),
            queue: Duration::from_millis(5),
        }
    }
}

impl Bucket {
    fn limit(self, device: &str, rate: Rate) -> String {
        let burst = rate.bytes_in(self.burst).max(16 << 10);
        let queue = rate.bytes_in(self.queue).max(256 << 10);
        let rate = rate.bits_per_second();
        format!("qdisc add dev {device} root tbf rate {rate}bit burst {burst}b limit {queue}b\n")
    }
}
