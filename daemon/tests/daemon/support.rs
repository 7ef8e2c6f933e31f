//! A daemon of one test, and a client that speaks the protocol without the library.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{
    GetInventoryRequest, GetStatusRequest, Inventory, NodeStatus, OpenSessionReply,
    OpenSessionRequest,
};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{
    self, GREETING, Greeting, Preamble, Purpose, Verdict, WORKER_PROOF,
};
use rustix::process::{Pid, Signal};
use tonic::transport::Channel;

pub(crate) use crate::eventually::eventually;

/// Time limit of each wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The wire version of this build.
pub(crate) const VERSION: u32 = causeway_proto::version::WireVersion::CURRENT.number() as u32;

/// A running daemon, killed on drop.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) watched_at: Option<SocketAddr>,
    pub(crate) folder: tempfile::TempDir,
}

/// The settings with which a daemon starts.
pub(crate) struct Setup {
    command: Command,
    config: String,
    listeners: usize,
    is_watched: bool,
    folder: tempfile::TempDir,
}

impl Setup {
    /// A daemon on a machine without OpenCL drivers.
    pub(crate) fn new() -> Setup {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_causewayd"));
        let vendors = folder.path().join("vendors");
        std::fs::create_dir(&vendors).unwrap();
        command
            .env("OCL_ICD_VENDORS", &vendors)
            .env_remove("OCL_ICD_FILENAMES")
            .env_remove("CAUSEWAYD_LOG")
            .env_remove("CAUSEWAYD_LOG_FORMAT")
            .env("CAUSEWAYD_BUILD_CACHE_SIZE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.path().join("log")).unwrap());
        Setup {
            command,
            config: String::new(),
            listeners: 1,
            is_watched: false,
            folder,
        }
    }

    /// A daemon with the machine's own drivers.
    pub(crate) fn with_drivers() -> Setup {
        let mut setup = Setup::new();
        setup.command.env_remove("OCL_ICD_VENDORS");
        setup
    }

    /// A daemon with the fake driver alone and these settings.
    pub(crate) fn with_fake_driver(settings: &str) -> Setup {
        let setup = Setup::new();
        let control = setup.folder().join("fake.toml");
        std::fs::write(&control, settings).unwrap();
        // Cargo puts the library next to this test, because it is a development dependency.
        let tests = std::env::current_exe().unwrap();
        let driver = tests.with_file_name("libfake_opencl.so");
        assert!(driver.exists(), "{}", driver.display());
        let icd = setup.folder().join("vendors/fake.icd");
        std::fs::write(icd, format!("{}\n", driver.display())).unwrap();
        let folder = setup.folder().to_owned();
        setup
            .env("FAKE_OPENCL_CONFIG", control)
            .env("CAUSEWAYD_SANDBOX_READ", folder)
    }

    /// Adds to the configuration file.
    pub(crate) fn config(mut self, text: &str) -> Setup {
        self.config.push_str(text);
        self
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Setup {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Setup {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stderr(mut self, to: impl Into<Stdio>) -> Setup {
        self.command.stderr(to);
        self
    }

    pub(crate) fn listeners(mut self, count: usize) -> Setup {
        self.listeners = count;
        self
    }

    /// Turns on `/metrics` and `/healthz`.
    pub(crate) fn watched(mut self) -> Setup {
        self.is_watched = true;
        self.args(&["--metrics", "127.0.0.1:0"])
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the daemon and waits until it listens.
    pub(crate) fn start(mut self) -> Daemon {
        for _ in 0..self.listeners {
            self.command.args(["--listen", "127.0.0.1:0"]);
        }
        self.start_as_is()
    }

    /// Starts the daemon without an address to listen on.
    pub(crate) fn start_as_is(mut self) -> Daemon {
        let file = self.folder.path().join("daemon.toml");
        std::fs::write(&file, &self.config).unwrap();
        let mut child = self.command.arg("--config").arg(&file).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let next = |prefix| {
            let line = receive.recv_timeout(PATIENCE).expect("a line on stdout");
            let address = line.strip_prefix(prefix);
            address.expect("the line").parse().expect("an address")
        };
        let addresses = (0..self.listeners).map(|_| next("listening on ")).collect();
        Daemon {
            child,
            addresses,
            watched_at: self.is_watched.then(|| next("metrics on ")),
            folder: self.folder,
        }
    }

    /// Starts a daemon that must refuse its settings. Returns its output and exit status.
    pub(crate) fn refused(mut self) -> (String, ExitStatus) {
        let file = self.folder.path().join("daemon.toml");
        std::fs::write(&file, &self.config).unwrap();
        let status = self.command.arg("--config").arg(&file).status().unwrap();
        let said = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        (said, status)
    }
}

impl Daemon {
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until the daemon has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the daemon ends", || self.child.try_wait().unwrap())
    }

    /// Returns the log of the daemon and its workers so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The daemon's child processes.
    pub(crate) fn children(&self) -> Vec<Pid> {
        children_of(self.pid())
    }

    pub(crate) async fn client(&self) -> NodeClient<Channel> {
        client(self.address()).await
    }

    pub(crate) async fn inventory(&self) -> Inventory {
        let request = GetInventoryRequest {
            wire_version: VERSION,
            ..GetInventoryRequest::default()
        };
        let answer = self.client().await.get_inventory(request).await;
        answer.unwrap().into_inner()
    }

    pub(crate) async fn status(&self) -> NodeStatus {
        let request = GetStatusRequest {
            wire_version: VERSION,
        };
        let answer = self.client().await.get_status(request).await;
        answer.unwrap().into_inner()
    }

    /// Opens a session, or returns the refusal.
    pub(crate) async fn try_open(&self) -> Result<Session, tonic::Status> {
        let request = OpenSessionRequest {
            wire_version: VERSION,
            inventory_generation: self.inventory().await.generation,
            ..OpenSessionRequest::default()
        };
        let reply = self.client().await.open_session(request).await?;
        Ok(Session::new(self.address(), &reply.into_inner()))
    }

    /// Opens a session that outlives its connections for a minute.
    pub(crate) async fn open_for_long(&self) -> Session {
        self.open_for(60_000, 60_000).await
    }

    /// Opens a session that outlives its connections for these times.
    pub(crate) async fn open_for(&self, resume_ms: u32, keep_ms: u32) -> Session {
        let request = OpenSessionRequest {
            wire_version: VERSION,
            inventory_generation: self.inventory().await.generation,
            resume_ms,
            keep_ms,
            ..OpenSessionRequest::default()
        };
        let reply = self.client().await.open_session(request).await;
        Session::new(self.address(), &reply.unwrap().into_inner())
    }

    pub(crate) async fn open(&self) -> Session {
        self.try_open().await.unwrap()
    }

    /// Waits until this number of sessions is served.
    pub(crate) async fn until_sessions(&self, count: u32) {
        self.until(|status| status.sessions == count).await;
    }

    /// Waits until `wanted` returns true for the daemon's status.
    pub(crate) async fn until(&self, wanted: impl Fn(&NodeStatus) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.status().await;
            if wanted(&status) {
                return;
            }
            assert!(Instant::now() < until, "not in time: {status:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the limits leave room for a call.
    pub(crate) async fn until_served(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let request = GetStatusRequest {
                wire_version: VERSION,
            };
            // The daemon may close a connection above the limit at any point of this.
            if let Ok(mut client) = NodeClient::connect(format!("http://{}", self.address())).await
                && client.get_status(request).await.is_ok()
            {
                return;
            }
            assert!(Instant::now() < until, "no place was given back");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Checks that the daemon still serves, at the end of every test of a hostile peer.
    pub(crate) async fn assert_serves(&self) {
        let session = self.open().await;
        let mut commands = session.connect(Purpose::Commands, 0).unwrap();
        assert_open(&mut commands);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}

/// An open session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) address: SocketAddr,
    pub(crate) id: SessionId,
    pub(crate) secret: SessionSecret,
}

impl Session {
    fn new(address: SocketAddr, reply: &OpenSessionReply) -> Session {
        Session {
            address,
            id: SessionId(reply.session_id[..].try_into().unwrap()),
            secret: SessionSecret(reply.session_secret[..].try_into().unwrap()),
        }
    }

    /// Encodes the session as text, for another process of a test.
    pub(crate) fn encode(&self) -> String {
        let (id, secret) = (u128::from_be_bytes(self.id.0), self.secret.0);
        let halves = [0, 16].map(|at| u128::from_be_bytes(std::array::from_fn(|i| secret[at + i])));
        format!("{} {id} {} {}", self.address, halves[0], halves[1])
    }

    /// Decodes the text of [`Session::encode`].
    pub(crate) fn decode(text: &str) -> Session {
        let mut words = text.split(' ');
        let address = words.next().unwrap().parse().unwrap();
        let mut number = || words.next().unwrap().parse::<u128>().unwrap().to_be_bytes();
        let (id, halves) = (SessionId(number()), [number(), number()]);
        let secret = SessionSecret(halves.concat().try_into().unwrap());
        Session {
            address,
            id,
            secret,
        }
    }

    /// Opens a further connection, and proves the secret on both sides.
    pub(crate) fn connect(&self, purpose: Purpose, lane: u8) -> Result<TcpStream, Verdict> {
        let connected = self.connect_after(purpose, lane, 0);
        connected.map(|(socket, _)| socket)
    }

    /// As [`Session::connect`], for a client with a position. Returns the worker's position, too.
    pub(crate) fn connect_after(
        &self,
        purpose: Purpose,
        lane: u8,
        position: u64,
    ) -> Result<(TcpStream, u64), Verdict> {
        let preamble = Preamble {
            purpose,
            lane,
            session: self.id,
            link: 0,
        }
        .encode();
        let mut socket = connect(self.address);
        socket.write_all(&preamble).unwrap();
        let greeting = greeting(&mut socket);
        if greeting.verdict != Verdict::Welcome {
            return Err(greeting.verdict);
        }
        let word = preamble::ClientWord {
            position,
            ..preamble::ClientWord::default()
        };
        let proof = preamble::client_proof(&self.secret, &preamble, &greeting.nonce, &word);
        socket.write_all(&proof).unwrap();
        let mut worker = [0; WORKER_PROOF];
        if socket.read_exact(&mut worker).is_err() {
            return Err(Verdict::Unproved);
        }
        let proved =
            preamble::check_worker_proof(&self.secret, &preamble, &greeting.nonce, &proof, &worker);
        if let Some(position) = proved {
            Ok((socket, position))
        } else {
            // A refusal is longer than a proof; its verdict is the seventh byte.
            assert_eq!(worker[..4], preamble::MAGIC);
            Err(Verdict::Unproved)
        }
    }
}

pub(crate) async fn client(address: SocketAddr) -> NodeClient<Channel> {
    NodeClient::connect(format!("http://{address}"))
        .await
        .unwrap()
}

/// Opens a plain connection, with a time limit on reads.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Opens a plain connection from another loopback address, as if from another machine.
pub(crate) fn connect_from(machine: u8, address: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType};
    let from = SocketAddr::from(([127, 0, 1, machine], 0));
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &from).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub(crate) fn greeting(socket: &mut TcpStream) -> Greeting {
    let mut bytes = [0; GREETING];
    socket.read_exact(&mut bytes).unwrap();
    Greeting::decode(&bytes).unwrap()
}

/// Reads until the other side closes, with or without a reset. Returns the bytes.
pub(crate) fn read_to_close(socket: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    if let Err(error) = socket.read_to_end(&mut said) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "never closed");
    }
    said
}

/// Checks that the other side has neither closed nor sent anything.
pub(crate) fn assert_open(socket: &mut TcpStream) {
    socket.set_nonblocking(true).unwrap();
    let error = socket.read(&mut [0]).expect_err("nothing to read yet");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
}

/// Returns the running processes whose parent is `parent`.
pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    let stat = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The state and the parent follow the name, which is in parentheses.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let of: i32 = fields.next()?.parse().ok()?;
        (of == parent.as_raw_nonzero().get() && state != "Z").then(|| Pid::from_raw(pid))?
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| stat(entry.ok()?))
        .collect()
}

/// Whether a process is still running.
pub(crate) fn is_alive(pid: Pid) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.starts_with(" Z"))
    })
}
