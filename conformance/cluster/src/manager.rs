//! The manager's process, or several over one etcd.
//!
//! Invariant: at most one process at a time uses a store in a file. No process is left after the drop.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use causeway_security::Token;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::etcd::Etcd;
use crate::{Caller, Certificates, Error, Managers, PATIENCE, io};

/// Polling interval for conditions that cannot be waited for.
const LOOK: Duration = Duration::from_millis(5);

/// The managers' configuration file, and the file with the first administrator's token.
const CONFIG: &str = "manager.toml";
const ADMIN_TOKEN: &str = "store.admin-token";

/// A process, and the address on which it listens.
struct Process {
    /// `None`: the process was killed.
    child: Option<Child>,
    address: SocketAddr,
}

impl Process {
    /// Starts the process, if it does not run.
    fn start(&mut self, start: &Start<'_>) -> Result<(), Error> {
        if self.child.is_none() {
            self.child = Some(start.process(&self.address.to_string())?.0);
        }
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails only if the process has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The name of the managers in their certificates.
const NAME: &str = "mgr1";

/// A running device manager, or several. See the module.
pub struct Manager {
    program: PathBuf,
    processes: Mutex<Vec<Process>>,
    addresses: Vec<SocketAddr>,
    /// The CA of this cluster, and its files.
    pub certificates: Certificates,
    runtime: Arc<Runtime>,
    admin: String,
    etcd: Option<Etcd>,
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
        Manager::start_several_at(address, program, settings, 1)
    }

    /// Starts several managers over one member of etcd, on free loopback ports. `settings` are added to
    /// their configuration file.
    ///
    /// # Errors
    /// [`Error`] if the files cannot be made, or etcd or a manager does not start.
    pub fn start_several(program: &Path, settings: &str, count: usize) -> Result<Manager, Error> {
        Manager::start_several_at(Ipv4Addr::LOCALHOST.into(), program, settings, count)
    }

    /// Starts several managers, or one without etcd, at another address, as [`Manager::start_at`] does.
    ///
    /// # Errors
    /// [`Error`] if the files cannot be made, or etcd or a manager does not start.
    pub fn start_several_at(
        address: IpAddr,
        program: &Path,
        settings: &str,
        count: usize,
    ) -> Result<Manager, Error> {
        // In memory if possible: the tests only lose the process, never the machine.
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => TempDir::new_in(memory),
            false => TempDir::new(),
        };
        let folder = folder.map_err(io("no temporary folder"))?;
        let etcd = match count {
            1 => None,
            _ => Some(Etcd::start(folder.path(), 1)?),
        };
        let certificates = Certificates::new(folder.path())?;
        configure(&certificates, address, settings, etcd.as_ref())?;
        let start = Start {
            program,
            folder: folder.path(),
            is_etcd: etcd.is_some(),
        };
        let listen = SocketAddr::new(address, 0).to_string();
        let mut processes = Vec::new();
        for _ in 0..count {
            let (child, address) = start.process(&listen)?;
            let child = Some(child);
            processes.push(Process { child, address });
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(io("no runtime"))?;
        let mut manager = Manager {
            program: program.to_owned(),
            addresses: processes.iter().map(|of| of.address).collect(),
            processes: Mutex::new(processes),
            certificates,
            runtime: Arc::new(runtime),
            admin: String::new(),
            etcd,
            folder,
        };
        manager.set_up()?;
        Ok(manager)
    }

    /// Reads the first administrator's token, and adds the nodes' user.
    fn set_up(&mut self) -> Result<(), Error> {
        let file = self.certificates.path(ADMIN_TOKEN);
        let end = Instant::now() + PATIENCE;
        // With etcd, the first leader makes the token after it has begun to listen.
        while self.etcd.is_some() && !file.exists() && Instant::now() < end {
            thread::sleep(LOOK);
        }
        self.admin = Token::from_file(&file)?.reveal().to_owned();
        let node = self.admin().put_user("node", true)?;
        let token = node.token().as_bytes();
        self.certificates.private("node.token", token)?;
        Ok(())
    }

    /// The address on which the manager listens; with several managers, the first one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// How many managers there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Returns a caller that is the manager's administrator.
    #[must_use]
    pub fn admin(&self) -> Caller {
        let ca = self.certificates.ca();
        Caller::new(self.runtime.clone(), &self.addresses, &ca, &self.admin)
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
        let files = [
            ("--manager-ca", path("ca.pem")),
            ("--manager-token-file", path("node.token")),
            ("--tls-certificate", path("node.pem")),
            ("--tls-key", path("node.key")),
        ];
        let addresses = self.addresses.iter();
        let addresses = addresses.map(|address| ("--manager", address.to_string()));
        addresses
            .chain(files)
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect()
    }

    /// Returns a `servers.toml` for a user who requests devices, without the `[[request]]` tables. `link`
    /// has further keys of `[manager]`.
    #[must_use]
    pub fn client_settings(&self, token: &Path, link: &str) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        format!(
            "[tls]\nca = {:?}\n[manager]\naddress = {addresses:?}\ntoken_file = {:?}\n{link}",
            self.certificates.ca().display().to_string(),
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

    /// Queries the manager as the administrator until the condition holds. One of several managers may end while
    /// it is asked, so another one is asked then.
    ///
    /// # Errors
    /// [`Error`] if the condition does not hold in time.
    pub fn see(
        &self,
        what: &str,
        mut is_so: impl FnMut(&Caller) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let (admin, end) = (self.admin(), Instant::now() + PATIENCE);
        let mut is_so_now = || match is_so(&admin) {
            Err(Error::Refused(_)) if self.count() > 1 => Ok(false),
            other => other,
        };
        while !is_so_now()? {
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

    /// Kills the manager, as a crash would; with several managers, all of them.
    ///
    /// # Errors
    /// [`Error::Io`] if a system call fails.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.processes.get_mut().iter_mut().for_each(Process::kill);
        Ok(())
    }

    /// Kills the manager that leads. [`Manager::revive`] starts it again.
    ///
    /// # Errors
    /// [`Error::InVain`] if none leads in time.
    pub fn kill_leader(&self) -> Result<(), Error> {
        let managers = Managers::new(&self.addresses, &self.certificates.ca(), &self.admin)?;
        let found = self.runtime.block_on(async {
            let leader = managers.leader(|_, _| Ok(()), |_| {});
            tokio::time::timeout(PATIENCE, leader).await
        });
        let in_vain = || Error::InVain("a manager that leads".to_owned());
        found.map_err(|_| in_vain())?;
        if let Some(leader) = managers.led() {
            self.processes.lock()[leader].kill();
        }
        Ok(())
    }

    /// Starts those of several managers again that were killed.
    ///
    /// # Errors
    /// [`Error`] if a manager does not start.
    pub fn revive(&self) -> Result<(), Error> {
        let start = self.start_of();
        let mut processes = self.processes.lock();
        processes.iter_mut().try_for_each(|of| of.start(&start))
    }

    /// Sends a signal to the manager, for example to stop or to continue it; with several managers, to all.
    ///
    /// # Errors
    /// [`Error::Io`] if the signal cannot be sent.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let processes = self.processes.lock();
        processes
            .iter()
            .filter_map(|of| of.child.as_ref())
            .try_for_each(|child| {
                let sent = kill_process(Pid::from_child(child), signal);
                sent.map_err(|error| Error::Io("cannot send a signal".to_owned(), error.into()))
            })
    }

    /// Starts the manager again over the same store, at the same address.
    ///
    /// # Errors
    /// [`Error`] if the manager does not start.
    pub fn start_again(&mut self) -> Result<(), Error> {
        self.revive()
    }

    fn start_of(&self) -> Start<'_> {
        Start {
            program: &self.program,
            folder: self.folder.path(),
            is_etcd: self.etcd.is_some(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes the servers' certificates and the managers' configuration file.
fn configure(
    certificates: &Certificates,
    address: IpAddr,
    settings: &str,
    etcd: Option<&Etcd>,
) -> Result<(), Error> {
    let host = address.to_string();
    let (certificate, key) = certificates.server("manager", &[&host, NAME])?;
    certificates.server("node", &[&host])?;
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let (store, table) = match etcd {
        None => ("", String::new()),
        Some(etcd) => {
            let token = quoted(&certificates.path(ADMIN_TOKEN));
            let urls = etcd.urls();
            let table = format!("[etcd]\nendpoints = {urls:?}\nadmin_token = {token}\n");
            ("store = \"etcd\"\n", table)
        }
    };
    let text = format!(
        "{store}authenticate = true\n{settings}\n{table}[tls]\ncertificate = {}\nkey = {}\nclient_ca = {}\n",
        quoted(&certificate),
        quoted(&key),
        quoted(&certificates.ca()),
    );
    let written = fs::write(certificates.path(CONFIG), text);
    written.map_err(io("cannot write the manager's settings"))
}

/// How a manager is started.
struct Start<'a> {
    program: &'a Path,
    folder: &'a Path,
    is_etcd: bool,
}

impl Start<'_> {
    /// Starts a process, and waits until it listens.
    fn process(&self, listen: &str) -> Result<(Child, SocketAddr), Error> {
        let log = self.folder.join("log");
        let stderr = File::options().create(true).append(true).open(&log);
        let mut command = Command::new(self.program);
        command
            .args(["--listen", listen, "--config"])
            .arg(self.folder.join(CONFIG))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr.map_err(io("cannot write the manager's log"))?);
        if !self.is_etcd {
            command.arg("--store").arg(self.folder.join("store"));
        }
        let spawned = command.spawn();
        let mut child = spawned.map_err(io(format!("cannot run {}", self.program.display())))?;
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
}
