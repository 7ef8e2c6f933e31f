//! The gRPC carrier: the same batches as messages of one bidirectional stream, over a socket whose
//! handshake has proved the session's secret.
//!
//! A dedicated thread runs HTTP/2 on a current-thread runtime. Batches cross as raw bytes in both
//! directions, so this carrier encodes and decodes nothing that the direct one does not. It is slower
//! than the direct carrier (two more thread wake-ups per round trip). It carries only commands and
//! events; bulk and heartbeat connections are the same with either carrier.

mod written;

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use causeway_proto::endpoint::KeepAlive;
use causeway_proto::frame::PREFIX;
use causeway_proto::limits::MAX_BATCH;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status, Streaming};

use causeway_security::{Line, Opener, Records, SecureStream};

use self::written::{Flushes, Written};
use super::Carrier;
use super::direct::Readable;
use crate::thread::Stack;
use crate::transport::control;
use crate::transport::core::Core;
use crate::transport::ended::Broken;
use crate::transport::reader::{self, Undertaker};
use crate::transport::standard;

/// Number of batches between the writer and the stream. Then the writer blocks, as it would for room on a
/// socket.
const QUEUED_BATCHES: usize = 4;

/// Longest time for which the thread does not notice that a session which is away is lost.
const LOOKS_UP_EVERY: Duration = Duration::from_millis(100);

/// The sending half.
#[derive(Debug)]
pub(in crate::transport) struct Grpc {
    // Replaced when the session is resumed.
    connection: Mutex<Arc<Connection>>,
    // Takes further connections to the carrier's thread.
    further: std::sync::mpsc::Sender<Incoming>,
}

#[derive(Debug)]
struct Connection {
    batches: mpsc::Sender<Bytes>,
    written: Arc<Written>,
    // Used only to shut the connection down: the runtime owns a duplicate.
    socket: TcpStream,
}

/// The parts that the carrier's thread takes over.
#[derive(Debug)]
pub(in crate::transport) struct Incoming {
    batches: mpsc::Receiver<Bytes>,
    written: Arc<Written>,
    socket: TcpStream,
    tls: Option<(Arc<Records>, Opener)>,
    /// Number of the session's connections before this one.
    generation: u64,
}

/// The connections that the carrier's thread serves, one after the other.
#[derive(Debug)]
pub(in crate::transport) struct Connections {
    first: Incoming,
    further: std::sync::mpsc::Receiver<Incoming>,
}

impl Grpc {
    /// Takes a socket after its handshake. The second part of the result is for [`start`].
    ///
    /// # Errors
    /// Errors of the system.
    pub(in crate::transport) fn new(line: Line) -> io::Result<(Grpc, Connections)> {
        let (connection, first) = Connection::new(line, 0)?;
        let (sender, further) = std::sync::mpsc::channel();
        let carrier = Grpc {
            connection: Mutex::new(Arc::new(connection)),
            further: sender,
        };
        Ok((carrier, Connections { first, further }))
    }

    fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection.lock())
    }
}

impl Connection {
    fn new(line: Line, generation: u64) -> io::Result<(Connection, Incoming)> {
        let (socket, tls) = line.into_parts();
        let (sender, receiver) = mpsc::channel(QUEUED_BATCHES);
        let duplicate = socket.try_clone()?;
        duplicate.set_nonblocking(true)?;
        let written = Arc::<Written>::default();
        let connection = Connection {
            batches: sender,
            written: Arc::clone(&written),
            socket,
        };
        let incoming = Incoming {
            batches: receiver,
            written,
            socket: duplicate,
            tls,
            generation,
        };
        Ok((connection, incoming))
    }
}

impl Carrier for Grpc {
    fn write(&self, batch: &mut [u8]) -> io::Result<()> {
        let batch = Bytes::copy_from_slice(&batch[PREFIX..]);
        let connection = self.connection();
        match connection.batches.try_send(batch) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(batch)) => connection
                .batches
                .blocking_send(batch)
                .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?,
            Err(mpsc::error::TrySendError::Closed(_)) => {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        connection.written.note_queued();
        Ok(())
    }

    fn write_last(&self, batch: &mut [u8], limit: Duration) -> io::Result<()> {
        let batch = Bytes::copy_from_slice(&batch[PREFIX..]);
        let connection = self.connection();
        let deadline = Instant::now() + limit;
        // The batches before this one may fill the queue.
        connection.written.wait(deadline);
        connection
            .batches
            .try_send(batch)
            .map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        connection.written.note_queued();
        // The stream's thread must have written the batch before the end of the process stops that thread.
        connection.written.wait(deadline);
        Ok(())
    }

    fn replace(&self, line: Line, generation: u64) -> io::Result<Option<Readable>> {
        let (connection, incoming) = Connection::new(line, generation)?;
        *self.connection.lock() = Arc::new(connection);
        self.further
            .send(incoming)
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(None)
    }

    fn shut_down(&self) {
        let _ = self.connection().socket.shutdown(Shutdown::Both);
    }
}

/// Starts the streams' thread, which tears the session down when the session is lost.
pub(in crate::transport) fn start(core: &Arc<Core>, connections: Connections) -> io::Result<()> {
    let core = Arc::clone(core);
    crate::transport::thread::spawn("cw-grpc", Stack::Runtime, move || {
        let undertaker = Undertaker(core);
        serve_all(&undertaker.0, connections);
    })
}

// Serves one connection after the other, until the session is lost.
fn serve_all(core: &Arc<Core>, connections: Connections) {
    let Connections { first, further } = connections;
    let mut next = Some(first);
    while !core.is_failed() {
        let Some(incoming) = next.take() else {
            // The session is away. Nothing wakes this thread at a loss, so it looks.
            next = further.recv_timeout(LOOKS_UP_EVERY).ok();
            continue;
        };
        let generation = incoming.generation;
        let broken = match runtime(&incoming.written) {
            Ok(runtime) => runtime.block_on(serve(core, incoming)),
            Err(error) => Broken::Connection(error.to_string()),
        };
        match broken {
            Broken::Nonsense(reason) => core.fail(reason),
            Broken::Connection(reason) => drop(core.break_off(generation, reason)),
        }
    }
}

// A runtime for one connection.
fn runtime(written: &Arc<Written>) -> io::Result<tokio::runtime::Runtime> {
    let _kept_free = standard::kept_free();
    let written = Arc::clone(written);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || written.note_idle())
        .build()
}

async fn serve(core: &Arc<Core>, incoming: Incoming) -> Broken {
    let broken = |status: Status| Broken::Connection(status.message().to_owned());
    let generation = incoming.generation;
    let mut events = match open_stream(incoming).await {
        Ok(events) => events,
        Err(status) => return broken(status),
    };
    let mut decoder = reader::Decoder::default();
    while !core.is_failed() {
        match events.message().await {
            Ok(Some(batch)) => {
                if let Err(reason) = decoder.handle(core, generation, batch) {
                    return Broken::Nonsense(reason);
                }
            }
            Ok(None) => break,
            Err(status) => return broken(status),
        }
    }
    Broken::Connection("the node closed the connection".to_owned())
}

async fn open_stream(incoming: Incoming) -> Result<Streaming<Bytes>, Status> {
    let written = incoming.written;
    let socket = tokio::net::TcpStream::from_std(incoming.socket)
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let channel = match incoming.tls {
        None => {
            let stream = Flushes::new(socket, Arc::clone(&written));
            control::channel_over(TokioIo::new(stream), KeepAlive::USUAL).await
        }
        Some((records, opener)) => {
            let secured = SecureStream::over(socket, records, opener);
            let stream = Flushes::new(secured, Arc::clone(&written));
            control::channel_over(TokioIo::new(stream), KeepAlive::USUAL).await
        }
    };
    let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut client = tonic::client::Grpc::new(channel)
        .max_decoding_message_size(MAX_BATCH)
        .max_encoding_message_size(MAX_BATCH);
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/causeway.command.v1.Worker/Commands");
    let batches = ReceiverStream::new(incoming.batches);
    let request = Request::new(batches.map(move |batch| {
        written.note_taken();
        batch
    }));
    Ok(client
        .streaming(request, path, RawCodec)
        .await?
        .into_inner())
}

/// A codec for messages that are already encoded.
#[derive(Debug, Clone, Copy, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = RawCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> RawCodec {
        RawCodec
    }

    fn decoder(&mut self) -> RawCodec {
        RawCodec
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = source.remaining();
        Ok(Some(source.copy_to_bytes(length)))
    }
}
