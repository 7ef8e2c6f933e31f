//! A client whose session outlives its connections. It keeps sent commands, and counts the events that it has handled.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use causeway_proto::command::{command::Kind, *};
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{
    Client as Who, CloseSessionRequest, EndAwayRequest, GetSessionEndRequest, OpenSessionReply,
    OpenSessionRequest, SessionEnd,
};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{ClientWord, Preamble, Purpose, Verdict};
use causeway_proto::version::WireVersion;
use prost::Message;
use prost::bytes::Bytes;

use super::{Daemon, LIMIT, block_on, eventually, prove_with};

/// A process of this client's host.
pub fn process(pid: u32) -> Who {
    Who {
        pid,
        boot_id: "a boot".into(),
        pid_namespace: 7,
        start_time: 1000 + u64::from(pid),
        ..Who::default()
    }
}

/// Ends the sessions that are away of processes that have ended. Returns how many have ended.
pub fn end_away(daemon: &Daemon, caller: Who, ended: Vec<Who>, credential: &[u8]) -> u32 {
    let reply = block_on(async {
        let address = format!("http://{}", daemon.address);
        let mut node = NodeClient::connect(address).await.unwrap();
        let request = EndAwayRequest {
            wire_version: WireVersion::CURRENT.number().into(),
            client: Some(caller),
            ended,
            credential: Bytes::copy_from_slice(credential),
        };
        node.end_away(request).await
    });
    reply.unwrap().into_inner().ended
}

pub struct Resuming {
    pub address: String,
    pub id: SessionId,
    pub secret: SessionSecret,
    pub reply: OpenSessionReply,
    /// Whether the client tells the node its own address, so that no tunnel seems to be between them.
    pub is_direct: bool,
    pub commands: TcpStream,
    pub heartbeat: TcpStream,
    /// Number of the next command.
    pub next: u64,
    /// The frames of the batches that may have to be sent again, with the numbers of their last commands.
    kept: Vec<(u64, Vec<u8>)>,
    /// Number of the last event batch that was handled.
    pub handled: u64,
    pub answers: Vec<u64>,
    pub completions: Vec<u64>,
    /// Words about parking that the test has not asked for yet.
    pub parkings: Vec<Parking>,
}

impl Resuming {
    pub fn open(daemon: &Daemon, (resume_ms, keep_ms): (u32, u32)) -> Resuming {
        Resuming::open_by(daemon, process(1), (resume_ms, keep_ms), false).unwrap()
    }

    pub fn open_by(
        daemon: &Daemon,
        client: Who,
        (resume_ms, keep_ms): (u32, u32),
        is_direct: bool,
    ) -> Result<Resuming, tonic::Status> {
        Resuming::open_leased(daemon, client, (resume_ms, keep_ms), is_direct, &[])
    }

    pub fn open_leased(
        daemon: &Daemon,
        client: Who,
        (resume_ms, keep_ms): (u32, u32),
        is_direct: bool,
        credential: &[u8],
    ) -> Result<Resuming, tonic::Status> {
        let request = OpenSessionRequest {
            client: Some(client),
            credential: Bytes::copy_from_slice(credential),
            resume_ms,
            keep_ms,
            restart_ms: 300_000,
            ..OpenSessionRequest::default()
        };
        Resuming::open_asking(daemon, request, is_direct)
    }

    /// Opens a session whose commands another worker may execute again.
    pub fn open_reexecuted(daemon: &Daemon, (resume_ms, keep_ms): (u32, u32)) -> Resuming {
        let request = OpenSessionRequest {
            client: Some(process(1)),
            resume_ms,
            keep_ms,
            restart_ms: 300_000,
            reexecute: true,
            ..OpenSessionRequest::default()
        };
        let opened = Resuming::open_asking(daemon, request, false).unwrap();
        assert!(opened.reply.reexecutes);
        opened
    }

    pub fn open_asking(
        daemon: &Daemon,
        request: OpenSessionRequest,
        is_direct: bool,
    ) -> Result<Resuming, tonic::Status> {
        let credential = &request.credential;
        let inventory = daemon.inventory_for(credential);
        let reply = block_on(async {
            let address = format!("http://{}", daemon.address);
            let mut node = NodeClient::connect(address).await.unwrap();
            let request = OpenSessionRequest {
                wire_version: WireVersion::CURRENT.number().into(),
                inventory_generation: inventory.generation,
                ..request
            };
            node.open_session(request).await
        })?
        .into_inner();
        let id = SessionId(reply.session_id.as_ref().try_into().unwrap());
        let secret = SessionSecret(reply.session_secret.as_ref().try_into().unwrap());
        let to = |purpose| connect(&daemon.address, id, &secret, purpose, 0, is_direct).unwrap();
        let (commands, heartbeat) = (to(Purpose::Commands), to(Purpose::Heartbeat));
        assert_eq!(commands.1, 0);
        assert_ne!(heartbeat.1, 0);
        Ok(Resuming {
            address: daemon.address.clone(),
            id,
            secret,
            reply,
            is_direct,
            commands: commands.0,
            heartbeat: heartbeat.0,
            next: 1,
            kept: Vec::new(),
            handled: 0,
            answers: Vec::new(),
            completions: Vec::new(),
            parkings: Vec::new(),
        })
    }

    pub fn connect(&self, purpose: Purpose, position: u64) -> Result<(TcpStream, u64), Verdict> {
        let (id, secret) = (self.id, &self.secret);
        connect(&self.address, id, secret, purpose, position, self.is_direct)
    }

    /// Encodes a batch with the next numbers, and keeps it.
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
        let frame = frame(&batch);
        self.kept.push((self.next - 1, frame.clone()));
        frame
    }

    /// Sends a batch without numbers of its own.
    pub fn send_raw(&mut self, batch: &CommandBatch) {
        let _ = self.commands.write_all(&frame(batch));
    }

    /// Sends commands. They get lost if the connection has ended.
    pub fn send(&mut self, commands: Vec<Kind>) {
        let frame = self.encode(commands);
        let _ = self.commands.write_all(&frame);
    }

    pub fn ping(request: u64) -> Kind {
        Kind::Query(Query {
            request,
            question: Some(query::Question::Ping(Ping {})),
        })
    }

    pub fn say_farewell(&mut self) {
        let batch = CommandBatch {
            first: self.next,
            closes: true,
            ..Default::default()
        };
        self.commands.write_all(&frame(&batch)).unwrap();
    }

    /// Reads and handles one batch. Returns `None` at the end of the connection.
    pub fn hear(&mut self) -> Option<EventBatch> {
        self.commands.set_read_timeout(Some(LIMIT)).unwrap();
        let mut prefix = [0; 4];
        self.commands.read_exact(&mut prefix).ok()?;
        let mut body = vec![0; u32::from_le_bytes(prefix) as usize];
        self.commands.read_exact(&mut body).ok()?;
        let batch = EventBatch::decode(&body[..]).unwrap();
        if batch.number <= self.handled {
            return Some(EventBatch::default());
        }
        assert_eq!(batch.number, self.handled + 1, "a batch is missing");
        self.handled = batch.number;
        if batch.parking() != Parking::No {
            self.parkings.push(batch.parking());
        }
        let answers = batch.answers.iter().map(|of| of.request);
        self.answers.extend(answers);
        let completions = batch.completions.iter().map(|of| of.event);
        self.completions.extend(completions);
        self.kept.retain(|(last, _)| *last > batch.applied);
        Some(batch)
    }

    /// Waits for the answer to a request.
    pub fn answer(&mut self, request: u64) {
        while !self.answers.contains(&request) {
            self.hear().expect("the session goes on");
        }
    }

    pub fn acknowledge(&mut self, number: u64) {
        self.heartbeat.write_all(&number.to_le_bytes()).unwrap();
    }

    /// Closes both connections.
    pub fn leave(&self) {
        for socket in [&self.commands, &self.heartbeat] {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Connects again, and sends the kept commands that the worker does not have.
    pub fn resume(&mut self) -> Result<u64, Verdict> {
        self.resume_commands()?;
        let _ = self.heartbeat.shutdown(Shutdown::Both);
        self.heartbeat = self.connect(Purpose::Heartbeat, 0)?.0;
        Ok(self.handled)
    }

    pub fn resume_commands(&mut self) -> Result<(), Verdict> {
        let (commands, position) = self.connect(Purpose::Commands, self.handled)?;
        self.commands = commands;
        assert!(position < self.next);
        for (_, frame) in self.kept.iter().filter(|(last, _)| *last > position) {
            let _ = (&self.commands).write_all(frame);
        }
        Ok(())
    }

    /// Asks the node to end the session.
    pub fn close(&self) {
        let request = CloseSessionRequest {
            session_id: self.id.0.to_vec().into(),
            session_secret: self.secret.0.to_vec().into(),
        };
        let reply = block_on(async {
            let address = format!("http://{}", self.address);
            let mut node = NodeClient::connect(address).await.unwrap();
            node.close_session(request).await
        });
        reply.unwrap();
    }

    /// Asks why the session has ended, until the node knows.
    pub fn end_reason(&self) -> String {
        eventually("the node knows why the session has ended", || {
            let end = self.session_end(&self.secret);
            end.known.then_some(end.reason)
        })
    }

    pub fn session_end(&self, secret: &SessionSecret) -> SessionEnd {
        let request = GetSessionEndRequest {
            session_id: self.id.0.to_vec().into(),
            session_secret: secret.0.to_vec().into(),
        };
        let reply = block_on(async {
            let address = format!("http://{}", self.address);
            let mut node = NodeClient::connect(address).await.unwrap();
            node.get_session_end(request).await
        });
        reply.unwrap().into_inner()
    }
}

fn frame(batch: &CommandBatch) -> Vec<u8> {
    let body = batch.encode_to_vec();
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_le_bytes()[..], &body].concat()
}

fn connect(
    address: &str,
    session: SessionId,
    secret: &SessionSecret,
    purpose: Purpose,
    position: u64,
    is_direct: bool,
) -> Result<(TcpStream, u64), Verdict> {
    let preamble = Preamble {
        purpose,
        lane: 0,
        session,
        link: 0,
    };
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let word = ClientWord {
        position,
        origin: is_direct.then(|| socket.local_addr().unwrap()),
        ..ClientWord::default()
    };
    prove_with(socket, &preamble, secret, &word)
}
