//! The processes of a proof: three members of etcd, three managers, and daemons, all on loopback with TLS.
//!
//! Invariant: a dropped process has ended. Ports are chosen once, so that a process that is started again has
//! the same addresses.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use causeway_cluster::Certificates;
use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::BUILD_CACHE;
use crate::places;
use crate::{SetupError, io_error};

/// Number of managers, and of members of etcd.
pub(super) const COUNT: usize = 3;
/// Time limit for the cluster to become ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that can be killed, stopped and started again. Killed on drop.
pub(super) struct Server {
    pub(super) name: String,
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Server {
    /// Starts the process, if it does not run.
    pub(super) fn start(&mut self) -> Result<(), SetupError> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(io_error("cannot write a log"))?;
        let output = log.try_clone().map_err(io_error("cannot write a log"))?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            .spawn();
        let failed = io_error(format!("cannot run {}", self.program.display()));
        self.child = Some(child.map_err(failed)?);
        Ok(())
    }

    /// Kills the process, as a crash would.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops the process, or lets it go on.
    pub(super) fn stop(&self, stops: bool) {
        let signal = if stops { Signal::STOP } else { Signal::CONT };
        if let Some(child) = &self.child {
            // Fails only if the process has ended.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The cluster. See the module.
pub(super) struct Cluster {
    pub(super) managers: Vec<Server>,
    pub(super) etcd: Vec<Server>,
    daemons: Vec<Server>,
    addresses: Vec<String>,
    certificates: Certificates,
    folder: PathBuf,
}

impl Cluster {
    /// Starts etcd, the managers, and this number of daemons with one device each.
    pub(super) fn start(
        folder: &Path,
        devmgr: &Path,
        daemon: &Path,
        daemons: usize,
    ) -> Result<Cluster, SetupError> {
        let certificates = Certificates::new(folder)?;
        certificates.server("server", &["127.0.0.1"])?;
        certificates.user("admin")?;
        let ports = ports(3 * COUNT + daemons)?;
        let mut cluster = Cluster {
            managers: Vec::new(),
            etcd: Vec::new(),
            daemons: Vec::new(),
            addresses: (0..COUNT).map(|at| local(ports[at])).collect(),
            certificates,
            folder: folder.to_owned(),
        };
        let (clients, peers) = (&ports[COUNT..2 * COUNT], &ports[2 * COUNT..3 * COUNT]);
        for (at, client) in clients.iter().enumerate() {
            let mut member = cluster.member(at, *client, peers);
            member.start()?;
            cluster.etcd.push(member);
        }
        for at in 0..COUNT {
            let mut manager = cluster.manager(at, devmgr, clients)?;
            manager.start()?;
            cluster.managers.push(manager);
        }
        cluster.until("a leader", |cluster| {
            Ok(cluster.tool(&["managers"])?.is_some())
        })?;
        cluster.tool(&["users", "add", "node", "--node"])?;
        let token = cluster.path("node.token");
        cluster.tool(&["tokens", "create", "node", "--out", &token])?;
        for (at, port) in ports[3 * COUNT..].iter().enumerate() {
            let mut server = cluster.daemon(at, *port, daemon)?;
            server.start()?;
            cluster.daemons.push(server);
        }
        cluster.until("the daemons", |cluster| {
            let nodes = cluster.tool(&["nodes", "--json"])?.unwrap_or_default();
            Ok(nodes.matches("\"connected\": true").count() == daemons)
        })?;
        Ok(cluster)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn server(&self, name: String, program: &Path, arguments: Vec<String>) -> Server {
        Server {
            log: self.folder.join(format!("{name}.log")),
            name,
            program: program.to_owned(),
            arguments,
            variables: Vec::new(),
            child: None,
        }
    }

    fn member(&self, at: usize, client: u16, peers: &[u16]) -> Server {
        let url = |port: u16| format!("https://{}", local(port));
        let all = peers.iter().enumerate();
        let all: Vec<String> = all
            .map(|(at, port)| format!("m{at}={}", url(*port)))
            .collect();
        let (certificate, key, ca) = (
            self.path("server.pem"),
            self.path("server.key"),
            self.path("ca.pem"),
        );
        let pairs = [
            ("name", format!("m{at}")),
            ("data-dir", self.path(&format!("etcd-{at}"))),
            ("listen-client-urls", url(client)),
            ("advertise-client-urls", url(client)),
            ("listen-peer-urls", url(peers[at])),
            ("initial-advertise-peer-urls", url(peers[at])),
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
        let pairs = pairs.map(|(name, value)| format!("--{name}={value}"));
        self.server(format!("etcd-{at}"), Path::new("etcd"), pairs.into())
    }

    fn manager(&self, at: usize, program: &Path, etcd: &[u16]) -> Result<Server, SetupError> {
        let endpoints: Vec<String> = etcd
            .iter()
            .map(|port| format!("https://{}", local(*port)))
            .collect();
        let (certificate, key, ca) = (
            self.path("server.pem"),
            self.path("server.key"),
            self.path("ca.pem"),
        );
        let text = format!(
            "listen = [{0:?}]\nadvertise = {0:?}\nstore = \"etcd\"\nauthenticate = true\n\
             [tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {ca:?}\n\
             [etcd]\nendpoints = {endpoints:?}\nca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n\
             admin_token = {1:?}\n",
            self.addresses[at],
            self.path("admin.token"),
        );
        let config = self.path(&format!("manager-{at}.toml"));
        fs::write(&config, text).map_err(io_error("cannot write a manager's settings"))?;
        let arguments = vec!["--config".to_owned(), config];
        Ok(self.server(format!("manager-{at}"), program, arguments))
    }

    fn daemon(&self, at: usize, port: u16, program: &Path) -> Result<Server, SetupError> {
        let state = self.path(&format!("node-{at}"));
        fs::create_dir(&state).map_err(io_error("cannot make a daemon's folder"))?;
        let mut arguments = vec!["--listen".to_owned(), local(port)];
        for address in &self.addresses {
            arguments.extend(["--manager".to_owned(), address.clone()]);
        }
        for (flag, file) in [
            ("--manager-ca", "ca.pem"),
            ("--manager-token-file", "node.token"),
            ("--tls-certificate", "server.pem"),
            ("--tls-key", "server.key"),
        ] {
            arguments.extend([flag.to_owned(), self.path(file)]);
        }
        let mut server = self.server(format!("daemon-{at}"), program, arguments);
        server.variables = vec![
            ("STATE_DIRECTORY".to_owned(), state),
            (BUILD_CACHE.to_owned(), "0".to_owned()),
        ];
        Ok(server)
    }

    /// The command of the tool `causeway`, as the administrator.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(places::tool());
        let nothing = self.path("servers.toml");
        let made = fs::write(&nothing, "");
        debug_assert!(made.is_ok(), "the folder is writable");
        command
            .env("CAUSEWAY_CONFIG", nothing)
            .env("CAUSEWAY_MANAGER", self.addresses.join(","))
            .env("CAUSEWAY_CA", self.certificates.ca())
            .env("CAUSEWAY_CERTIFICATE", self.path("admin.pem"))
            .env("CAUSEWAY_KEY", self.path("admin.key"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the tool. Returns its output if it succeeds.
    pub(super) fn tool(&self, arguments: &[&str]) -> Result<Option<String>, SetupError> {
        let output = self.command().args(arguments).output();
        let output = output.map_err(io_error("cannot run the tool `causeway`"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(output.status.success().then_some(text))
    }

    /// Waits until a condition holds.
    pub(super) fn until(
        &self,
        what: &str,
        is_so: impl Fn(&Cluster) -> Result<bool, SetupError>,
    ) -> Result<(), SetupError> {
        let end = Instant::now() + PATIENCE;
        while !is_so(self)? {
            if Instant::now() > end {
                let logs = self.managers.iter().chain(&self.daemons);
                let logs = logs.map(|of| fs::read_to_string(&of.log).unwrap_or_default());
                let logs: Vec<String> = logs.collect();
                let text = format!("{what}\n{}", logs.join("\n"));
                return Err(causeway_cluster::Error::InVain(text).into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Free ports, all different.
fn ports(count: usize) -> Result<Vec<u16>, SetupError> {
    let listeners: Result<Vec<TcpListener>, _> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect();
    let listeners = listeners.map_err(io_error("no free port"))?;
    let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    let ports: Result<Vec<u16>, _> = listeners.iter().map(port).collect();
    ports.map_err(io_error("no free port"))
}
