//! A small client for tests that speaks the real protocol to a real daemon.
//!
//! The client also sends messages that Causeway's library would not send, and every wait has a limit.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod bulk;
pub mod cached;
mod closed;
pub mod cutter;
mod daemon;
mod eventually;
mod links;
pub mod manager;
pub mod parking;
pub mod resuming;
pub mod site;
pub mod spin;
mod wire;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_lane::DaemonPlace;
use causeway_proto::command::{command::Kind, *};
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{Client as Who, OpenSessionRequest};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{Preamble, Purpose, Verdict};
use causeway_proto::version::WireVersion;
use prost::Message;
use prost::bytes::Bytes;

pub use self::closed::Closed;
pub use self::daemon::Daemon;
pub use self::daemon::block_on;
pub(crate) use self::eventually::eventually;
pub use self::wire::*;

pub const LIMIT: Duration = Duration::from_secs(60);

/// Everything that a session has received so far.
#[derive(Default)]
pub struct Heard {
    pub completions: HashMap<u64, Completion>,
    /// Ended events and printed texts, in order of arrival.
    pub order: Vec<Told>,
    pub answers: HashMap<u64, Answer>,
    pub notices: Vec<Notice>,
    pub links: Vec<LinkState>,
    pub applied: u64,
    pub batches: u64,
    /// The reason for the session's end.
    pub close_reason: String,
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
    place: Option<DaemonPlace>,
    commands: TcpStream,
    next: u64,
    /// For how long the node keeps the session without connections.
    resume_ms: u32,
    pub heard: Heard,
}

impl Session {
    pub fn open(daemon: &Daemon) -> Session {
        Session::try_open(daemon, &[]).unwrap()
    }

    /// Opens a session that has a worker of its own in any case.
    pub fn open_isolated(daemon: &Daemon) -> Session {
        Session::try_open_isolated(daemon).unwrap()
    }

    /// As [`Session::open_isolated`], and returns the refusal.
    pub fn try_open_isolated(daemon: &Daemon) -> Result<Session, tonic::Status> {
        Session::open_as(daemon, &[], true, 0)
    }

    /// Opens a session with a token or a lease's credential.
    pub fn try_open(daemon: &Daemon, credential: &[u8]) -> Result<Session, tonic::Status> {
        Session::open_as(daemon, credential, false, 0)
    }

    /// Opens a session that outlives its connections.
    pub fn open_resuming(daemon: &Daemon, resume_ms: u32) -> Session {
        Session::open_as(daemon, &[], false, resume_ms).unwrap()
    }

    fn open_as(
        daemon: &Daemon,
        credential: &[u8],
        isolated: bool,
        resume_ms: u32,
    ) -> Result<Session, tonic::Status> {
        let inventory = daemon.inventory_for(credential);
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
                credential: Bytes::copy_from_slice(credential),
                isolated,
                resume_ms,
                keep_ms: resume_ms,
                ..OpenSessionRequest::default()
            };
            node.open_session(request).await
        })?
        .into_inner();
        let id = SessionId(reply.session_id.as_ref().try_into().unwrap());
        let secret = SessionSecret(reply.session_secret.as_ref().try_into().unwrap());
        let commands = connect(&daemon.address, id, &secret, Purpose::Commands, 0);
        Ok(Session {
            daemon: daemon.child.id(),
            address: daemon.address.clone(),
            id,
            secret,
            place: DaemonPlace::told(&reply.shared_memory),
            commands,
            next: 1,
            resume_ms: reply.resume_ms,
            heard: Heard::default(),
        })
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    pub fn new_id(&mut self) -> u64 {
        // All sessions share one counter, as in the client.
        static IDS: AtomicU64 = AtomicU64::new(2);
        IDS.fetch_add(1, Ordering::Relaxed)
    }

    pub fn lane(&self, lane: u8) -> TcpStream {
        connect(&self.address, self.id, &self.secret, Purpose::Bulk, lane)
    }

    /// Opens a connection for `purpose` over TCP, or over the Unix socket for shared-memory lanes.
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
            ..Default::default()
        };
        self.next += batch.commands.len() as u64;
        self.send_raw(&batch);
    }

    /// Encodes commands as a frame to be sent later, with the next numbers.
    pub fn encode(&mut self, commands: Vec<Kind>) -> Vec<u8> {
        let batch = CommandBatch {
            first: self.next,
            commands: commands
                .into_iter()
                .map(|kind| Command { kind: Some(kind) })
                .collect(),
            ..Default::default()
        };
        self.next += batch.commands.len() as u64;
        let body = batch.encode_to_vec();
        let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
        frame.extend(body);
        frame
    }

    /// Returns a second handle of the command connection, for another thread.
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

    /// Reads one batch. Returns `false` when the worker has closed the connection.
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
        self.heard.close_reason += &batch.close_reason;
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

    /// Makes a round trip, after which everything sent before has been applied.
    pub fn ping(&mut self) {
        let request = self.new_id();
        self.send(vec![Kind::Query(Query {
            request,
            question: Some(query::Question::Ping(Ping {})),
        })]);
        self.answer(request);
    }

    /// Waits until the worker closes the connection.
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
        self.queue_of(context, bits, false)
    }

    /// Makes a queue of a program that may be traced.
    pub fn queue_of(&mut self, context: u64, bits: u64, traced: bool) -> u64 {
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
            traced,
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
        self.send(build_commands(context, program, request, source, options));
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
            unobserved: false,
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

    /// Reads, and waits for the bytes.
    pub fn bytes(&mut self, queue: u64, buffer: u64, offset: u64, length: u64) -> Bytes {
        let event = self.read(queue, &[], buffer, offset, length);
        let completion = self.wait(event);
        assert_eq!(completion.status, 0, "{}", completion.message);
        completion.contents
    }
}

/// The commands that make and build a program.
pub fn build_commands(
    context: u64,
    program: u64,
    request: u64,
    source: &str,
    options: &str,
) -> Vec<Kind> {
    let source = Bytes::copy_from_slice(source.as_bytes());
    vec![
        Kind::CreateProgram(CreateProgram {
            program,
            context,
            from: Some(create_program::From::Source(source)),
            request: 0,
        }),
        Kind::BuildProgram(BuildProgram {
            request,
            program,
            devices: vec![],
            options: Bytes::copy_from_slice(options.as_bytes()),
            null_options: false,
            source: Bytes::new(),
            constants: Vec::new(),
        }),
    ]
}

/// Creates a context on one device.
pub fn context_on(session: &mut Session, device: u32) -> u64 {
    let context = session.new_id();
    session.send(vec![Kind::CreateContext(CreateContext {
        context,
        platform: 0,
        devices: vec![device],
    })]);
    context
}

/// Creates a buffer. Returns it with 0, or the code of the failure.
pub fn allocate(session: &mut Session, context: u64, size: u64) -> (u64, i32) {
    let buffer = session.buffer(context, size, &[]);
    session.ping();
    let mut notices = session.heard.notices.iter();
    let broken = notices.find(|notice| notice.id == buffer);
    (buffer, broken.map_or(0, |notice| notice.status))
}
