//! The hosts and processes of a proof: three members of etcd, three managers, and daemons, with TLS.
//!
//! Each manager and each member has a host of its own, so that each can be cut off. Nodes, clients and the observer
//! have other hosts. Invariant: the observer's host is never cut off.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use causeway_cluster::{Certificates, Managers};
use causeway_network::Network;

use super::faults::{COUNT, SMALL};
use super::mounts::Disk;
use super::server::Server;
use crate::daemon::BUILD_CACHE;
use crate::places;
use crate::{SetupError, io_error};

/// Hosts of the managers, of etcd's members, of nodes and of clients; the last one is the observer's.
pub(super) const MANAGERS: [usize; COUNT] = [0, 1, 2];
pub(super) const MEMBERS: [usize; COUNT] = [3, 4, 5];
pub(super) const NODES: [usize; 2] = [6, 7];
pub(super) const CLIENTS: [usize; 2] = [8, 9];
pub(super) const OBSERVER: usize = 10;
const HOSTS: usize = 11;

/// Users of the clients, each with a certificate.
pub(super) const USERS: [&str; 3] = [CROWD, LIMITED, REVOKED];
pub(super) const CROWD: &str = "crowd";
/// A user with a quota of [`QUOTA`] devices.
pub(super) const LIMITED: &str = "limited";
pub(super) const QUOTA: usize = 2;
/// A user whose leases an administrator ends now and then.
pub(super) const REVOKED: &str = "revoked";
const ADMIN: &str = "admin";

/// Time limit for the cluster to become ready, and for all leases to end. A lease that could not be released expires
/// after 90 s at most.
const PATIENCE: Duration = Duration::from_secs(180);

const MANAGER_PORT: u16 = 7078;
const DAEMON_PORT: u16 = 7079;
const MEMBER_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// What does not change during a proof. See the module.
pub(super) struct Cluster {
    pub(super) network: Network,
    certificates: Certificates,
    folder: PathBuf,
}

/// The processes that faults happen to.
pub(super) struct Servers {
    pub(super) managers: Vec<Server>,
    pub(super) members: Vec<Server>,
    pub(super) daemons: Vec<Server>,
    /// The data folder of the member [`SMALL`]. Last, because the member uses it.
    _disk: Disk,
}

/// The programs.
pub(super) struct Programs {
    pub(super) manager: PathBuf,
    pub(super) daemon: PathBuf,
}

impl Cluster {
    /// Makes the hosts and the files. No process runs yet.
    pub(super) fn new(folder: &Path) -> Result<Cluster, SetupError> {
        let network = Network::builder().hosts(HOSTS).build()?;
        let certificates = Certificates::new(folder)?;
        let hosts = network.hosts().iter();
        let hosts: Vec<String> = hosts.map(|host| host.address().to_string()).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        certificates.server("server", &hosts)?;
        for user in USERS.iter().chain([&ADMIN]) {
            certificates.user(user)?;
        }
        Ok(Cluster {
            network,
            certificates,
            folder: folder.to_owned(),
        })
    }

    /// Starts etcd, the managers, and a daemon on each host of nodes. Adds the users.
    pub(super) fn start(&self, programs: &Programs) -> Result<Servers, SetupError> {
        let mut servers = Servers {
            managers: Vec::new(),
            members: Vec::new(),
            daemons: Vec::new(),
            _disk: Disk::mount(self.member_folder(SMALL))?,
        };
        for number in 0..COUNT {
            servers.members.push(self.member(number));
            let manager = self.manager(number, &programs.manager)?;
            servers.managers.push(manager);
        }
        for server in servers.members.iter_mut().chain(&mut servers.managers) {
            server.start(&self.network)?;
        }
        self.until("a leader", &servers, || {
            Ok(self.tool(&["managers"])?.is_some())
        })?;
        self.users()?;
        for number in 0..NODES.len() {
            let mut daemon = self.daemon(number, &programs.daemon)?;
            daemon.start(&self.network)?;
            servers.daemons.push(daemon);
        }
        Ok(servers)
    }

    fn users(&self) -> Result<(), SetupError> {
        self.order(&["users", "add", "node", "--node"])?;
        self.order(&[
            "tokens",
            "create",
            "node",
            "--out",
            &self.path("node.token"),
        ])?;
        for user in USERS {
            self.order(&["users", "add", user])?;
        }
        let quota = QUOTA.to_string();
        self.order(&["quota", "set", "--user", LIMITED, "--devices", &quota])
    }

    /// Waits until this number of nodes has joined.
    pub(super) fn until_joined(&self, count: usize, servers: &Servers) -> Result<(), SetupError> {
        self.until("all nodes", servers, || {
            let nodes = self.tool(&["nodes", "--json"])?.unwrap_or_default();
            Ok(nodes.matches("\"connected\": true").count() == count)
        })
    }

    /// The managers, for a caller with the token in this file.
    pub(super) fn managers(&self, token: &str) -> Result<Managers, SetupError> {
        let file = self.path(&format!("{token}.token"));
        let token = fs::read_to_string(file).map_err(io_error("cannot read a token"))?;
        let addresses = MANAGERS.map(|host| self.address(host, MANAGER_PORT));
        let ca = self.certificates.ca();
        Ok(Managers::new(&addresses, &ca, token.trim())?)
    }

    fn address(&self, host: usize, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.network.host(host).address()), port)
    }

    fn url(&self, host: usize, port: u16) -> String {
        format!("https://{}", self.address(host, port))
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The data folder of a member of etcd.
    pub(super) fn member_folder(&self, number: usize) -> String {
        self.path(&format!("etcd-{number}"))
    }

    fn member(&self, number: usize) -> Server {
        let host = MEMBERS[number];
        let all = MEMBERS.iter().enumerate();
        let all = all.map(|(number, host)| format!("m{number}={}", self.url(*host, PEER_PORT)));
        let all: Vec<String> = all.collect();
        let (certificate, key, ca) = (
            self.path("server.pem"),
            self.path("server.key"),
            self.path("ca.pem"),
        );
        let (client, peer) = (self.url(host, MEMBER_PORT), self.url(host, PEER_PORT));
        let pairs = [
            ("name", format!("m{number}")),
            ("data-dir", self.member_folder(number)),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", peer.clone()),
            ("initial-advertise-peer-urls", peer),
            ("initial-cluster", all.join(",")),
            ("client-cert-auth", "true".to_owned()),
            ("cert-file", certificate.clone()),
            ("key-file", key.clone()),
            ("trusted-ca-file", ca.clone()),
            ("peer-client-cert-auth", "true".to_owned()),
            ("peer-cert-file", certificate),
            ("peer-key-file", key),
            ("peer-trusted-ca-file", ca),
            ("logger", "zap".to_owned()),
            ("log-level", "error".to_owned()),
        ];
        let name = format!("etcd-{number}");
        let mut server = Server::new(name, host, PathBuf::from("etcd"), &self.folder);
        server.arguments = pairs
            .map(|(name, value)| format!("--{name}={value}"))
            .into();
        server
    }

    fn manager(&self, number: usize, program: &Path) -> Result<Server, SetupError> {
        let address = self.address(MANAGERS[number], MANAGER_PORT).to_string();
        let endpoints = MEMBERS.map(|host| self.url(host, MEMBER_PORT));
        let (certificate, key, ca) = (
            self.path("server.pem"),
            self.path("server.key"),
            self.path("ca.pem"),
        );
        let text = format!(
            "listen = [{address:?}]\nadvertise = {address:?}\nstore = \"etcd\"\nauthenticate = true\n\
             [tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {ca:?}\n\
             [etcd]\nendpoints = {endpoints:?}\nca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n\
             admin_token = {:?}\n",
            self.path("admin.token"),
        );
        let config = self.path(&format!("manager-{number}.toml"));
        fs::write(&config, text).map_err(io_error("cannot write a manager's settings"))?;
        let name = format!("manager-{number}");
        let mut server = Server::new(name, MANAGERS[number], program.to_owned(), &self.folder);
        server.arguments = vec!["--config".to_owned(), config];
        Ok(server)
    }

    fn daemon(&self, number: usize, program: &Path) -> Result<Server, SetupError> {
        let state = self.path(&format!("node-{number}"));
        fs::create_dir(&state).map_err(io_error("cannot make a daemon's folder"))?;
        let listen = self.address(NODES[number], DAEMON_PORT).to_string();
        let mut arguments = vec!["--listen".to_owned(), listen];
        for host in MANAGERS {
            let manager = self.address(host, MANAGER_PORT).to_string();
            arguments.extend(["--manager".to_owned(), manager]);
        }
        for (flag, file) in [
            ("--manager-ca", "ca.pem"),
            ("--manager-token-file", "node.token"),
            ("--tls-certificate", "server.pem"),
            ("--tls-key", "server.key"),
        ] {
            arguments.extend([flag.to_owned(), self.path(file)]);
        }
        let name = format!("daemon-{number}");
        let mut server = Server::new(name, NODES[number], program.to_owned(), &self.folder);
        server.arguments = arguments;
        server.variables = vec![
            ("STATE_DIRECTORY".to_owned(), state),
            (BUILD_CACHE.to_owned(), "0".to_owned()),
        ];
        Ok(server)
    }

    /// The command of the tool `causeway`, as this user on this host.
    pub(super) fn command(&self, host: usize, user: &str) -> Command {
        let mut command = self.network.host(host).command(places::tool());
        let managers = MANAGERS.map(|host| self.address(host, MANAGER_PORT).to_string());
        command
            .env("CAUSEWAY_CONFIG", "/dev/null")
            .env("CAUSEWAY_MANAGER", managers.join(","))
            .env("CAUSEWAY_CA", self.certificates.ca())
            .env("CAUSEWAY_CERTIFICATE", self.path(&format!("{user}.pem")))
            .env("CAUSEWAY_KEY", self.path(&format!("{user}.key")))
            .stdin(Stdio::null());
        command
    }

    /// Runs the tool as the administrator. Returns its output if it succeeds.
    pub(super) fn tool(&self, arguments: &[&str]) -> Result<Option<String>, SetupError> {
        let output = self.command(OBSERVER, ADMIN).args(arguments).output();
        let output = output.map_err(io_error("cannot run the tool `causeway`"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(output.status.success().then_some(text))
    }

    /// Runs the tool, which has to succeed.
    fn order(&self, arguments: &[&str]) -> Result<(), SetupError> {
        let done = self.tool(arguments)?;
        let in_vain = || causeway_cluster::Error::InVain(format!("causeway {arguments:?}"));
        done.map(drop).ok_or_else(|| in_vain().into())
    }

    /// Waits until a condition holds.
    pub(super) fn until(
        &self,
        what: &str,
        servers: &Servers,
        is_so: impl Fn() -> Result<bool, SetupError>,
    ) -> Result<(), SetupError> {
        let end = Instant::now() + PATIENCE;
        while !is_so()? {
            if Instant::now() > end {
                let logs = servers.managers.iter().chain(&servers.daemons);
                let logs: Vec<String> = logs.map(Server::log).collect();
                let text = format!("{what}\n{}", logs.join("\n"));
                return Err(causeway_cluster::Error::InVain(text).into());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}
