//! The manager's process.
//!
//! Invariant: at most one process at a time uses the store, and none after the drop.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use causeway_security::Token;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{Caller, Certificates, Error, PATIENCE, io};

/// Polling interval for conditions that cannot be waited for.
const LOOK: Duration = Duration::from_millis(5);

/// A running device manager. See the module.
pub struct Manager {
    program: PathBuf,
    child: Child,
    address: SocketAddr,
    /// The CA of this cluster, and its files.
    pub certificates: Certificates,
    runtime: Arc<Runtime>,
    admin: String,
    // Last, because the other fields' files are in this folder.
    folder: TempDir,
}

impl Manager {
    /// Starts `program` on a free loopback port. `settings` are added to its configuration file, which
    /// has TLS and `authenticate`.
    ///
    /// # Errors
    /// [`Error`] if the files cannot be made or the manager does not start.
    pub fn start(program: &Path, settings: &str) -> Result<Manager, Error> {
        Manager::start_at(Ipv4Addr::LOCALHOST.into(), program, settings)
    }

    /// Starts `program` at another address of this machine, or of the network namespace of the calling
    /// thread. Its nodes have the same address.
    ///
    /// # Errors
    /// [`Error`] if the files cannot be made or the manager does not start.
    pub fn start_at(address: IpAddr, program: &Path, settings: &str) -> Result<Manager, Error> {
        // In memory if possible: the tests only lose the process, never the machine.
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => TempDir::new_in(memory),
            false => TempDir::new(),
        };
        let folder = folder.map_err(io("no temporary folder"))?;
        let certificates = Certificates::new(folder.path())?;
        let host = address.to_string();
        let (certificate, key) = certificates.server("manager", &[&host])?;
        certificates.server("node", &[&host])?;
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        let text = format!(
            "authenticate = true\n{settings}\n[tls]\ncertificate = {}\nkey = {}\nclient_ca = {}\n",
            quoted(&certificate),
            quoted(&key),
            quoted(&certificates.ca()),
        );
        let config = folder.path().join("manager.toml");
        fs::write(&config, text).map_err(io("cannot write the manager's settings"))?;
        let (child, address) = spawn(
            program,
            folder.path(),
            &SocketAddr::new(address, 0).to_string(),
        )?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(io("no runtime"))?;
        let mut manager = Manager {
            program: program.to_owned(),
            child,
            address,
            certificates,
            runtime: Arc::new(runtime),
            admin: String::new(),
            folder,
        };
        let token = Token::from_file(&manager.folder.path().join("store.admin-token"))?;
        manager.admin = token.reveal().to_owned();
        let node = manager.admin().put_user("node", true)?;
        let token = node.token().as_bytes();
        manager.certificates.private("node.token", token)?;
        Ok(manager)
    }

    /// The address on which the manager listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a caller that is the manager's administrator.
    #[must_use]
    pub fn admin(&self) -> Caller {
        let ca = self.certificates.ca();
        Caller::new(self.runtime.clone(), self.address, &ca, &self.admin)
    }

    /// Adds a user. Returns a caller and the file with the user's token.
    ///
    /// # Errors
    /// [`Error`] if the manager refuses or the file cannot be written.
    pub fn user(&self, name: &str) -> Result<(Caller, PathBuf), Error> {
        let caller = self.admin().put_user(name, false)?;
        let token = caller.token().as_bytes();
        let file = self.certificates.private(&format!("{name}.token"), token)?;
        Ok((caller, file))
    }

    /// Returns the arguments that make a `causewayd` at the manager's own address a node of
    /// this cluster, with TLS.
    #[must_use]
    pub fn node_arguments(&self) -> Vec<String> {
        let path = |file: &str| self.certificates.path(file).display().to_string();
        [
            ("--manager", self.address.to_string()),
            ("--manager-ca", path("ca.pem")),
            ("--manager-token-file", path("node.token")),
            ("--tls-certificate", path("node.pem")),
            ("--tls-key", path("node.key")),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    }

    /// Returns a `servers.toml` for a user who requests devices, without the `[[request]]` tables. `link`
    /// has further keys of `[manager]`.
    #[must_use]
    pub fn client_settings(&self, token: &Path, link: &str) -> String {
        format!(
            "[tls]\nca = {:?}\n[manager]\naddress = \"{}\"\ntoken_file = {:?}\n{link}",
            self.certificates.ca().display().to_string(),
            self.address,
            token.display().to_string(),
        )
    }

    /// Waits until connected nodes have `count` devices.
    ///
    /// # Errors
    /// [`Error`] if the devices do not come in time.
    pub fn see_devices(&self, count: usize) -> Result<(), Error> {
        self.see(&format!("{count} devices"), |admin| {
            let nodes = admin.nodes()?;
            let there = nodes.iter().filter(|node| node.connected);
            Ok(there.map(|node| node.devices.len()).sum::<usize>() == count)
        })
    }

    /// Queries the manager as the administrator until the condition holds.
    ///
    /// # Errors
    /// [`Error`] if the condition does not hold in time.
    pub fn see(
        &self,
        what: &str,
        mut is_so: impl FnMut(&Caller) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let (admin, end) = (self.admin(), Instant::now() + PATIENCE);
        while !is_so(&admin)? {
            if Instant::now() > end {
                return Err(Error::InVain(format!("{what}\n{}", self.log())));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Returns the manager's log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Kills the manager, as a crash would.
    ///
    /// # Errors
    /// [`Error::Io`] if a system call fails.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.signal(Signal::KILL)?;
        self.child.wait().map_err(io("cannot wait"))?;
        Ok(())
    }

    /// Sends a signal to the manager, for example to stop or to continue it.
    ///
    /// # Errors
    /// [`Error::Io`] if the signal cannot be sent.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|error| Error::Io("cannot send a signal".to_owned(), error.into()))
    }

    /// Starts the manager again over the same store, at the same address.
    ///
    /// # Errors
    /// [`Error`] if the manager does not start.
    pub fn start_again(&mut self) -> Result<(), Error> {
        let listen = self.address.to_string();
        (self.child, _) = spawn(&self.program, self.folder.path(), &listen)?;
        Ok(())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &Path, folder: &Path, listen: &str) -> Result<(Child, SocketAddr), Error> {
    let log = folder.join("log");
    let stderr = File::options().create(true).append(true).open(&log);
    let mut child = Command::new(program)
        .args(["--listen", listen, "--config"])
        .arg(folder.join("manager.toml"))
        .arg("--store")
        .arg(folder.join("store"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr.map_err(io("cannot write the manager's log"))?)
        .spawn()
        .map_err(io(format!("cannot run {}", program.display())))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let read = BufReader::new(stdout).read_line(&mut line);
        read.map_err(io("cannot read what the manager says"))?;
    }
    let address = line.trim().strip_prefix("listening on ");
    if let Some(address) = address.and_then(|address| address.parse().ok()) {
        return Ok((child, address));
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(Error::NotStarted(
        fs::read_to_string(log).unwrap_or_default(),
    ))
}
