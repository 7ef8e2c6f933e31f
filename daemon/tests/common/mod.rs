//! A small client that speaks the real wire to a real daemon: for tests alone.
//!
//! It sends what it is told, also what no client of ours would send, and waits with a limit.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod bulk;
pub mod cutter;
mod links;
pub mod site;
pub mod spin;
mod wire;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_lane::Place;
use causeway_proto::command::{command::Kind, *};
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{Client as Who, GetInventoryRequest, Inventory, OpenSessionRequest};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{Preamble, Purpose, Verdict};
use causeway_proto::version::WireVersion;
use prost::Message;
use prost::bytes::Bytes;

pub use self::wire::*;

pub const LIMIT: Duration = Duration::from_secs(60);
const LOOPBACK: &str = "127.0.0.1:0";

/// A daemon on a free loopback port; ends with its value.
pub struct Daemon {
    child: Child,
    pub address: String,
    vendors: Option<tempfile::TempDir>,
}

impl Daemon {
    pub fn start() -> Daemon {
        Daemon::with(&[])
    }

    pub fn with(environment: &[(&str, &str)]) -> Daemon {
        Daemon::run(LOOPBACK, &[], environment)
    }

    pub fn with_arguments(arguments: &[&str]) -> Daemon {
        Daemon::run(LOOPBACK, arguments, &[])
    }

    /// With the fake driver alone, told by `settings` what to do.
    pub fn fake(settings: &str) -> Daemon {
        Daemon::fake_on(LOOPBACK, settings)
    }

    /// The same at another address than other daemons.
    pub fn fake_on(listen: &str, settings: &str) -> Daemon {
        // Cargo puts the driver beside the test programs.
        let library = std::env::current_exe()
            .unwrap()
            .with_file_name("libfake_opencl.so");
        assert!(library.exists(), "{library:?}");
        let vendors = tempfile::tempdir().unwrap();
        std::fs::write(vendors.path().join("fake.icd"), library.to_str().unwrap()).unwrap();
        let environment = [
            ("OCL_ICD_VENDORS", vendors.path().to_str().unwrap()),
            ("FAKE_OPENCL_CONFIG", settings),
        ];
        let mut daemon = Daemon::run(listen, &[], &environment);
        daemon.vendors = Some(vendors);
        daemon
    }

    fn run(listen: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Daemon {
        let mut child = Process::new(env!("CARGO_BIN_EXE_causewayd"))
            .args(["--listen", listen, "--spare-workers", "0"])
            .args(arguments)
            // What a test builds is no other test's affair, nor the user's.
            .env("CAUSEWAYD_BUILD_CACHE_SIZE", "0")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("causewayd starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its standard output");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("its first line");
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .expect("an address")
            .to_owned();
        Daemon {
            child,
            address,
            vendors: None,
        }
    }

    pub fn inventory(&self) -> Inventory {
        block_on(async {
            let mut node = NodeClient::connect(format!("http://{}", self.address))
                .await
                .unwrap();
            let request = GetInventoryRequest {
                wire_version: WireVersion::CURRENT.number().into(),
                ..GetInventoryRequest::default()
            };
            node.get_inventory(request).await.unwrap().into_inner()
        })
    }

    pub fn session(&self) -> Session {
        Session::open(self)
    }

    /// Tells it to end, and waits for that; whether it ended well.
    pub fn terminate(mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().success()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

/// Everything a session was told so far.
#[derive(Default)]
pub struct Heard {
    pub completions: HashMap<u64, Completion>,
    /// In order of arrival: which events ended, and what was printed.
    pub order: Vec<Told>,
    pub answers: HashMap<u64, Answer>,
    pub notices: Vec<Notice>,
    pub links: Vec<LinkState>,
    pub applied: u64,
    pub batches: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Ended(u64),
    Printed(String),
}

pub struct Session {
    daemon: u32,
    address: String,
    id: SessionId,
    secret: SessionSecret,
    place: Option<Place>,
    commands: TcpStream,
    next: u64,
    pub heard: Heard,
}

impl Session {
    pub fn open(daemon: &Daemon) -> Session {
        let inventory = daemon.inventory();
        let reply = block_on(async {
            let mut node = NodeClient::connect(format!("http://{}", daemon.address))
                .await
                .unwrap();
            let request = OpenSessionRequest {
                wire_version: WireVersion::CURRENT.number().into(),
                inventory_generation: inventory.generation,
                client: Some(Who {
                    pid: std::process::id(),
                    program: "test".into(),
                    ..Who::default()
                }),
                ..OpenSessionRequest::default()
            };
            node.open_session(request).await.unwrap().into_inner()
        });
        let id = SessionId(reply.session_id.as_ref().try_into().unwrap());
        let secret = SessionSecret(reply.session_secret.as_ref().try_into().unwrap());
        let commands = connect(&daemon.address, id, &secret, Purpose::Commands, 0);
        Session {
            daemon: daemon.child.id(),
            address: daemon.address.clone(),
            id,
            secret,
            place: Place::told(&reply.shared_memory),
            commands,
            next: 1,
            heard: Heard::default(),
        }
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    pub fn new_id(&mut self) -> u64 {
        // One counter for all sessions, as in the client.
        static IDS: AtomicU64 = AtomicU64::new(2);
        IDS.fetch_add(1, Ordering::Relaxed)
    }

    pub fn lane(&self, lane: u8) -> TcpStream {
        connect(&self.address, self.id, &self.secret, Purpose::Bulk, lane)
    }

    /// A connection for `purpose` over TCP, or over the Unix socket for lanes through shared memory.
    pub fn connect(&self, purpose: Purpose, lane: u8, local: bool) -> Result<TcpStream, Verdict> {
        let preamble = Preamble {
            purpose,
            lane,
            session: self.id,
            link: 0,
        };
        if !local {
            return connect_as(&self.address, &preamble, &self.secret);
        }
        let place = self.place.expect("a daemon on this host");
        let socket = TcpStream::from(place.connect().unwrap());
        prove(socket, &preamble, &self.secret)
    }

    pub fn send(&mut self, commands: Vec<Kind>) {
        let batch = CommandBatch {
            first: self.next,
            commands: commands
                .into_iter()
                .map(|kind| Command { kind: Some(kind) })
                .collect(),
        };
        self.next += batch.commands.len() as u64;
        self.send_raw(&batch);
    }

    /// A frame of its own for later; numbers it as the next commands.
    pub fn encode(&mut self, commands: Vec<Kind>) -> Vec<u8> {
        let batch = CommandBatch {
            first: self.next,
            commands: commands
                .into_iter()
                .map(|kind| Command { kind: Some(kind) })
                .collect(),
        };
        self.next += batch.commands.len() as u64;
        let body = batch.encode_to_vec();
        let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
        frame.extend(body);
        frame
    }

    /// A second handle of the command connection, to write from another thread.
    pub fn sender(&self) -> TcpStream {
        self.commands.try_clone().unwrap()
    }

    pub fn send_raw(&mut self, batch: &CommandBatch) {
        let body = batch.encode_to_vec();
        let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
        frame.extend(body);
        self.commands
            .write_all(&frame)
            .expect("the command connection takes a batch");
    }

    /// Reads one batch; `false` when the worker has closed the connection.
    pub fn hear(&mut self) -> bool {
        self.commands.set_read_timeout(Some(LIMIT)).unwrap();
        let mut prefix = [0; 4];
        match self.commands.read_exact(&mut prefix) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("nothing within {LIMIT:?}")
            }
            Err(_) => return false,
        }
        let mut body = vec![0; u32::from_le_bytes(prefix) as usize];
        self.commands.read_exact(&mut body).unwrap();
        let batch = EventBatch::decode(&body[..]).unwrap();
        for text in batch.printed {
            let text = String::from_utf8(text.to_vec()).unwrap();
            self.heard.order.push(Told::Printed(text));
        }
        for completion in batch.completions {
            self.heard.order.push(Told::Ended(completion.event));
            let before = self.heard.completions.insert(completion.event, completion);
            assert!(before.is_none(), "an event completed twice");
        }
        for answer in batch.answers {
            self.heard.answers.insert(answer.request, answer);
        }
        self.heard.batches += 1;
        self.heard.notices.extend(batch.notices);
        self.heard.links.extend(batch.links);
        self.heard.applied = self.heard.applied.max(batch.applied);
        true
    }

    pub fn wait(&mut self, event: u64) -> Completion {
        let until = Instant::now() + LIMIT;
        while !self.heard.completions.contains_key(&event) {
            assert!(Instant::now() < until, "event {event} does not end");
            assert!(self.hear(), "the session ended");
        }
        self.heard.completions[&event].clone()
    }

    pub fn answer(&mut self, request: u64) -> Answer {
        let until = Instant::now() + LIMIT;
        while !self.heard.answers.contains_key(&request) {
            assert!(Instant::now() < until, "request {request} is not answered");
            assert!(self.hear(), "the session ended");
        }
        self.heard.answers[&request].clone()
    }

    /// Round trip: everything sent before has been applied.
    pub fn ping(&mut self) {
        let request = self.new_id();
        self.send(vec![Kind::Query(Query {
            request,
            question: Some(query::Question::Ping(Ping {})),
        })]);
        self.answer(request);
    }

    /// The worker closes the connection.
    pub fn ends(&mut self) {
        let until = Instant::now() + LIMIT;
        while self.hear() {
            assert!(Instant::now() < until, "the session does not end");
        }
    }

    // ---- objects ---------------------------------------------------------

    pub fn context(&mut self) -> u64 {
        self.context_on(0)
    }

    pub fn context_on(&mut self, platform: u32) -> u64 {
        let context = self.new_id();
        self.send(vec![Kind::CreateContext(CreateContext {
            context,
            platform,
            devices: vec![0],
        })]);
        context
    }

    pub fn queue(&mut self, context: u64, bits: u64) -> u64 {
        const QUEUE_PROPERTIES: u64 = 0x1093;
        let queue = self.new_id();
        self.send(vec![Kind::CreateQueue(CreateQueue {
            queue,
            context,
            device: 0,
            properties: if bits == 0 {
                vec![]
            } else {
                vec![QUEUE_PROPERTIES, bits]
            },
        })]);
        queue
    }

    pub fn buffer(&mut self, context: u64, size: u64, contents: &[u8]) -> u64 {
        let buffer = self.new_id();
        self.send(vec![Kind::CreateBuffer(CreateBuffer {
            buffer,
            context,
            flags: 1,
            size,
            contents: Bytes::copy_from_slice(contents),
        })]);
        buffer
    }

    pub fn build(&mut self, context: u64, source: &str, options: &str) -> (u64, Answer) {
        let (program, request) = (self.new_id(), self.new_id());
        self.send(vec![
            Kind::CreateProgram(CreateProgram {
                program,
                context,
                from: Some(create_program::From::Source(Bytes::copy_from_slice(
                    source.as_bytes(),
                ))),
                request: 0,
            }),
            Kind::BuildProgram(BuildProgram {
                request,
                program,
                devices: vec![],
                options: options.into(),
                null_options: false,
                source: Bytes::new(),
            }),
        ]);
        (program, self.answer(request))
    }

    pub fn kernel(&mut self, program: u64, name: &str) -> u64 {
        let kernel = self.new_id();
        self.send(vec![Kind::CreateKernel(CreateKernel {
            kernel,
            program,
            name: name.into(),
        })]);
        kernel
    }

    pub fn user_event(&mut self) -> u64 {
        let event = self.new_id();
        self.send(vec![Kind::CreateUserEvent(CreateUserEvent { event })]);
        event
    }

    pub fn set(&mut self, event: u64, status: i32) {
        self.send(vec![Kind::SetUserEventStatus(SetUserEventStatus {
            event,
            status,
        })]);
    }

    pub fn release(&mut self, object: ObjectKind, id: u64) {
        self.send(vec![Kind::Release(Release {
            object: object.into(),
            id,
        })]);
    }

    // ---- work ------------------------------------------------------------

    pub fn enqueue(&mut self, queue: u64, wait: &[u64], operation: enqueue::Operation) -> u64 {
        let event = self.new_id();
        self.enqueue_as(event, queue, wait, operation);
        event
    }

    pub fn enqueue_as(
        &mut self,
        event: u64,
        queue: u64,
        wait: &[u64],
        operation: enqueue::Operation,
    ) {
        self.send(vec![Kind::Enqueue(Enqueue {
            event,
            queue,
            wait: wait.to_vec(),
            unseen: false,
            operation: Some(operation),
        })]);
    }

    pub fn write(
        &mut self,
        queue: u64,
        wait: &[u64],
        buffer: u64,
        offset: u64,
        bytes: &[u8],
    ) -> u64 {
        self.enqueue(
            queue,
            wait,
            write(buffer, linear(offset, bytes.len() as u64), Some(bytes)),
        )
    }

    pub fn read(&mut self, queue: u64, wait: &[u64], buffer: u64, offset: u64, length: u64) -> u64 {
        self.enqueue(queue, wait, read(buffer, linear(offset, length), false))
    }

    /// Reads and waits for the bytes.
    pub fn bytes(&mut self, queue: u64, buffer: u64, offset: u64, length: u64) -> Bytes {
        let event = self.read(queue, &[], buffer, offset, length);
        let completion = self.wait(event);
        assert_eq!(completion.status, 0, "{}", completion.message);
        completion.contents
    }
}

impl Session {
    /// The process that serves this session: the daemon's child that is a worker.
    pub fn worker(&self) -> u32 {
        let mut children = children_of(self.daemon);
        // Others list devices, or build for the cache.
        children.retain(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("--internal-worker")
        });
        assert_eq!(children.len(), 1, "one session, one worker: {children:?}");
        children[0]
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            // After the name in brackets: state, parent.
            let parent_of = stat(*pid).and_then(|s| {
                let rest = s.rsplit_once(')')?.1.to_owned();
                rest.split_whitespace().nth(1)?.parse::<u32>().ok()
            });
            parent_of == Some(parent)
        })
        .collect()
}
