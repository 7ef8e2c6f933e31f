//! A device manager of this build, as a process, with queries of its state.
//!
//! Its store is a file, or three members of etcd, which several managers may share. Invariant: the store is removed with
//! its last [`Manager`].
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_cluster::Etcd;
use causeway_network::Host;
use causeway_proto::manager::admin_client::AdminClient;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    DrainNodeRequest, LeaseInfo, LeavingState, ListLeasesRequest, ListNodesRequest, NodeInfo,
};
use rustix::process::Signal;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};

use crate::setup::{Build, Process};

/// Timeout for nodes to join.
const PATIENCE: Duration = Duration::from_secs(30);

/// The store of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// A file.
    Redb,
    /// Three members of etcd on loopback.
    Etcd,
}

/// Number of etcd's members, and of several managers.
pub(crate) const MEMBERS: usize = 3;

/// The process.
pub(crate) struct Manager {
    build: Build,
    settings: String,
    store: PathBuf,
    process: Option<Process>,
    address: String,
    /// Whether nobody else can reach the manager's host, so that no authentication is needed.
    is_alone: bool,
    /// Where the dashboard is, if it was asked for.
    dashboard: Option<String>,
    has_dashboard: bool,
    _etcd: Option<Arc<Etcd>>,
    /// After the members of etcd, whose data are in it.
    _folder: Arc<tempfile::TempDir>,
}

impl Manager {
    /// Starts a manager with its store in the folder for temporary files.
    pub(crate) fn start() -> io::Result<Manager> {
        Manager::start_over(Engine::Redb, None, false)
    }

    /// As [`Manager::start`], for nodes and programs on an emulated network, where this host has this address.
    pub(crate) fn start_at(address: Option<Ipv4Addr>) -> io::Result<Manager> {
        Manager::start_with(Engine::Redb, None, false, address)
    }

    /// Starts a manager over this engine, with its store below `folder`, or in the folder for temporary files.
    pub(crate) fn start_over(
        engine: Engine,
        folder: Option<&Path>,
        has_dashboard: bool,
    ) -> io::Result<Manager> {
        Manager::start_with(engine, folder, has_dashboard, None)
    }

    fn start_with(
        engine: Engine,
        folder: Option<&Path>,
        has_dashboard: bool,
        address: Option<Ipv4Addr>,
    ) -> io::Result<Manager> {
        let folder = match folder {
            Some(folder) => tempfile::tempdir_in(folder)?,
            None => tempfile::tempdir()?,
        };
        let store = folder.path().join("store");
        let (settings, etcd) = match engine {
            Engine::Redb => (format!("store = {store:?}\n"), None),
            Engine::Etcd => {
                let etcd = Etcd::start(folder.path(), MEMBERS).map_err(io::Error::other)?;
                (over_etcd(&etcd, folder.path()), Some(Arc::new(etcd)))
            }
        };
        let settings = match has_dashboard {
            true => settings + "[dashboard]\nlisten = \"127.0.0.1:0\"\n",
            false => settings,
        };
        let mut manager = Manager {
            build: Build::find()?,
            settings,
            store,
            process: None,
            address: format!("{}:0", address.unwrap_or(Ipv4Addr::LOCALHOST)),
            is_alone: address.is_some(),
            dashboard: None,
            has_dashboard,
            _etcd: etcd,
            _folder: Arc::new(folder),
        };
        manager.begin()?;
        Ok(manager)
    }

    /// Starts several managers over three members of etcd on loopback, or one of each on each of these three hosts.
    pub(crate) fn start_several(
        folder: Option<&Path>,
        hosts: Option<&[Host; MEMBERS]>,
    ) -> io::Result<Vec<Manager>> {
        let folder = match folder {
            Some(folder) => tempfile::tempdir_in(folder)?,
            None => tempfile::tempdir()?,
        };
        let etcd = match hosts {
            None => Etcd::start(folder.path(), MEMBERS),
            Some(hosts) => {
                let addresses = hosts.each_ref().map(Host::address);
                let spawn = |number: usize, command: &mut Command| {
                    on(hosts.get(number), || command.spawn())
                };
                Etcd::start_at(folder.path(), &addresses, spawn)
            }
        };
        let etcd = Arc::new(etcd.map_err(io::Error::other)?);
        let (settings, folder) = (over_etcd(&etcd, folder.path()), Arc::new(folder));
        let mut managers = Vec::new();
        for number in 0..MEMBERS {
            let host = hosts.map(|hosts| &hosts[number]);
            let address = host.map_or(Ipv4Addr::LOCALHOST, Host::address);
            let mut manager = Manager {
                build: Build::find()?,
                settings: settings.clone(),
                store: folder.path().join("store"),
                process: None,
                address: format!("{address}:0"),
                is_alone: host.is_some(),
                dashboard: None,
                has_dashboard: false,
                _etcd: Some(Arc::clone(&etcd)),
                _folder: Arc::clone(&folder),
            };
            on(host, || manager.begin())?;
            managers.push(manager);
        }
        Ok(managers)
    }

    /// Starts the process over the store, and waits until it listens.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        let mut command = self.build.manager_command(&self.address, &self.settings)?;
        if self.is_alone {
            command.arg("--insecure");
        }
        let (mut process, address) = Build::listening(&mut command)?;
        self.dashboard = match self.has_dashboard {
            true => Some(process.said_address("dashboard on ")?),
            false => None,
        };
        (self.process, self.address) = (Some(process), address);
        Ok(())
    }

    /// Kills the process, as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Sends a signal to the process, if it runs.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        self.process.as_ref().map_or(Ok(()), |of| of.signal(signal))
    }

    /// Waits for the end of a process that was told to end.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        if let Some(process) = &mut self.process {
            process.wait()?;
        }
        self.process = None;
        Ok(())
    }

    /// The process id; 0 if it does not run.
    pub(crate) fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, Process::id)
    }

    /// The address, which is the same after a restart.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where the dashboard is, if it was asked for.
    pub(crate) fn dashboard(&self) -> Option<&str> {
        self.dashboard.as_deref()
    }

    /// One of the manager's counters, from its metrics; with labels, its only sample.
    pub(crate) fn counter(&self, name: &str) -> io::Result<f64> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: manager\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let samples = text.lines().filter_map(|line| line.strip_prefix(name));
        let is_whole = |rest: &&str| rest.starts_with(['{', ' ']);
        let mut values = samples
            .filter(is_whole)
            .filter_map(|rest| rest.rsplit(' ').next());
        let value = values.find_map(|value| value.parse().ok());
        value.ok_or_else(|| io::Error::other(format!("the manager has no counter {name}")))
    }

    /// The store's file, of [`Engine::Redb`].
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }
}

/// The settings of a manager over these members.
fn over_etcd(etcd: &Etcd, folder: &Path) -> String {
    let (urls, token) = (etcd.urls(), folder.join("admin-token"));
    format!("store = \"etcd\"\n[etcd]\nendpoints = {urls:?}\nadmin_token = {token:?}\n")
}

/// Acts on this host of an emulated network, if there is one.
pub(crate) fn on<T: Send>(
    host: Option<&Host>,
    act: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    match host {
        None => act(),
        Some(host) => host.enter(act).map_err(io::Error::other)?,
    }
}

/// A client that queries the manager.
pub(crate) struct Watcher {
    runtime: Runtime,
    channel: Channel,
}

impl Watcher {
    /// Connects.
    pub(crate) fn new(address: &str) -> io::Result<Watcher> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.map_err(io::Error::other)?;
        let channel = runtime.block_on(endpoint.connect());
        let channel = channel.map_err(io::Error::other)?;
        Ok(Watcher { runtime, channel })
    }

    /// Waits until the manager has this number of devices.
    pub(crate) fn see_devices(&self, count: usize) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.devices()? < count {
            if Instant::now() > end {
                return Err(io::Error::other("not all nodes have joined the manager"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until nobody has a device.
    pub(crate) fn see_no_lease(&self) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut seen = BTreeMap::new();
            self.add_leases(&mut seen)?;
            if seen.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(io::Error::other("a lease does not end"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn nodes(&self) -> io::Result<Vec<NodeInfo>> {
        let mut admin = AdminClient::new(self.channel.clone());
        let nodes = self.runtime.block_on(admin.list_nodes(ListNodesRequest {}));
        Ok(nodes.map_err(io::Error::other)?.into_inner().nodes)
    }

    /// The only node, by the digits of its id.
    pub(crate) fn only_node(&self) -> io::Result<String> {
        match &self.nodes()?[..] {
            [node] => Ok(digits(&node.node_uuid)),
            nodes => Err(io::Error::other(format!(
                "{} nodes have joined",
                nodes.len()
            ))),
        }
    }

    /// Has all leases of a node move to others, and waits until they have.
    pub(crate) fn migrate(&self, node: &str, limit: Duration) -> io::Result<()> {
        let mut admin = AdminClient::new(self.channel.clone());
        let request = DrainNodeRequest {
            node: node.to_owned(),
            draining: true,
            migrate: true,
            ..DrainNodeRequest::default()
        };
        let drained = self.runtime.block_on(admin.drain_node(request));
        drained.map_err(io::Error::other)?;
        let end = Instant::now() + limit;
        loop {
            let nodes = self.nodes()?;
            let mut leaving = nodes.iter().flat_map(|node| &node.leaving);
            match leaving.next().map(|lease| (lease.state(), &lease.reason)) {
                Some((LeavingState::Moved, _)) => return Ok(()),
                Some((state, reason)) if Instant::now() > end => {
                    let state = state.as_str_name();
                    return Err(io::Error::other(format!("a lease is {state}: {reason}")));
                }
                None if Instant::now() > end => {
                    return Err(io::Error::other("no lease leaves the node"));
                }
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn devices(&self) -> io::Result<usize> {
        let nodes = self.nodes()?;
        let there = nodes.iter().filter(|node| node.connected);
        Ok(there.map(|node| node.devices.len()).sum())
    }

    /// Adds the nodes whose devices each lease has now to `seen`.
    pub(crate) fn add_leases(&self, seen: &mut BTreeMap<Vec<u8>, Vec<String>>) -> io::Result<()> {
        let mut leases = LeasesClient::new(self.channel.clone());
        let list = self
            .runtime
            .block_on(leases.list_leases(ListLeasesRequest {}));
        for lease in list.map_err(io::Error::other)?.into_inner().leases {
            let places = places(&lease);
            if !places.is_empty() {
                seen.insert(lease.lease_id.to_vec(), places);
            }
        }
        Ok(())
    }
}

/// Node and device of each unit.
fn places(lease: &LeaseInfo) -> Vec<String> {
    let of_node = lease.nodes.iter().flat_map(|node| {
        // All nodes may be on one host and have its name.
        let uuid = digits(&node.node_uuid);
        let places = node.units.iter();
        places.map(move |unit| format!("{uuid} {}.{}", unit.platform, unit.device))
    });
    of_node.collect()
}

/// An id in hexadecimal digits.
fn digits(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
