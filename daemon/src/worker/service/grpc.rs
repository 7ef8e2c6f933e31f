//! The gRPC carrier: HTTP/2 on the command connection, with one `Commands` call.
//!
//! tonic runs on a thread and runtime of its own for each connection. The calling thread applies commands, as with the
//! direct carrier. HTTP/2 pings are off, because a client that is stopped in a debugger could not answer them.
//!
//! If the session outlives its connections, events are kept until the client acknowledges them ([`Window`]), and a new
//! connection first gets those that the client has not handled.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use causeway_proto::command::EventBatch;
use causeway_proto::frame::{self, PREFIX};
use causeway_security::{Line, SecureStream};
use causeway_serving::gate::Port;
use parking_lot::{Condvar, Mutex};
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::server::StreamingService;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};

use super::carrier::{self, Arrived, Carrier, GIVE_UP, GIVE_UP_IN_HOST, HIGH, LOW, Losses};
use super::ending::Ending;
use super::grpc_service::{Encoded, Received, WorkerService};
use super::stage::{Commands, Stage};
use super::window::{BadNumber, Frames, Window};
use crate::guarded_io::GuardedIo;
use crate::worker::connection::EventSink;
use crate::worker::session::Session;
use crate::worker::threads::Scope;

/// Number of decoded batches that may wait. HTTP/2's flow control holds back the rest.
const AHEAD: usize = 4;
const CONNECTION: &str = "commands (gRPC)";
/// HTTP/2 flow-control window: bytes that the client may have in flight.
const WINDOW: u32 = 8 << 20;
/// Most bytes of kept events that are copied at once for a new connection.
const AGAIN: usize = 1 << 20;

/// Carries commands to the session that `begin` starts, until the session ends. If the session outlives its
/// connections, the next one follows when one ends.
pub(super) fn carry(
    first: Arrived,
    stage: &Arc<Stage>,
    arrivals: &std::sync::mpsc::Receiver<Commands>,
    scope: &Scope,
    begin: impl FnOnce(Arc<dyn EventSink>) -> Arc<Session>,
) -> Ending {
    let behind = match carrier::begins_behind(stage, &first) {
        Ok(behind) => behind,
        Err(ending) => return ending,
    };
    let events = Arc::new(GrpcEvents::new(stage.losses(), stage.resumes(), scope));
    if let Some(number) = behind {
        events.begin_behind(number);
    }
    let _closing = Closing(Arc::clone(&events));
    Arc::clone(&events).serve(first);
    stage.carries(Arc::new(SharedEvents(Arc::clone(&events))));
    for later in arrivals.try_iter() {
        Arc::clone(&events).serve(later.arrived);
    }
    let session = begin(Arc::<GrpcEvents>::clone(&events));
    let next = || {
        let reading = events.next_connection()?;
        Some((reading.number, reading))
    };
    carrier::read_all(stage, &session, next, |reading| {
        read(reading, &events, &session, stage)
    })
}

/// Applies the commands of one connection until it ends. Returns how it ended.
fn read(mut from: Reading, events: &GrpcEvents, session: &Session, stage: &Arc<Stage>) -> Ending {
    loop {
        events.wait_for_room();
        match from.arrivals.blocking_recv() {
            Some(Ok(Received { mut batch, bytes })) => {
                session.received(bytes);
                if let Some(ending) = carrier::apply(stage, session, &mut batch) {
                    return ending;
                }
            }
            // The decoder reports a malformed message with this code.
            Some(Err(status)) if status.code() == Code::InvalidArgument => {
                return Ending::Violation(status.message().to_owned());
            }
            Some(Err(status)) => return broken(&status),
            None => return Ending::ClientClosed,
        }
    }
}

/// The ending for an error of the command stream. HTTP/2 reports any end of the connection
/// while a stream is open as an error, a program's exit too, and hides its cause. A network
/// failure shows on the heartbeat connection.
fn broken(status: &Status) -> Ending {
    Ending::ClientLost {
        connection: CONNECTION,
        error: io::Error::new(io::ErrorKind::ConnectionReset, status.message().to_owned()),
    }
}

type Arrival = Result<Received, Status>;

/// Serves the one connection until it closes and the session has all of its commands. `passed` gets no value; its sender
/// is dropped then.
#[tokio::main(flavor = "current_thread")]
async fn serve(line: Line, call: Call, passed: oneshot::Receiver<Infallible>) -> io::Result<()> {
    let (socket, tls) = line.into_parts();
    socket.set_nonblocking(true)?;
    let socket = tokio::net::TcpStream::from_std(socket)?;
    let port = match tls {
        None => Port::Clear(socket),
        Some((records, opener)) => Port::Tls(Box::new(SecureStream::over(socket, records, opener))),
    };
    let (open, closed) = oneshot::channel::<()>();
    let socket = GuardedIo::new(port, open);
    let incoming = tokio_stream::once(Ok::<_, io::Error>(socket)).chain(tokio_stream::pending());
    let serving = Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(4)
        .http2_max_header_list_size(16 << 10)
        .serve_with_incoming(WorkerService(call), incoming);
    tokio::select! {
        served = serving => served.map_err(io::Error::other),
        // The sender is dropped with the connection, which ends this wait.
        _ = closed => {
            // Commands that arrived before the end count, the farewell among them. The end of the runtime would drop
            // those that the session has no time for yet.
            let _ = passed.await;
            Ok(())
        }
    }
}

/// The service. Its first call gets the connection's channel ends; a second call is refused.
#[derive(Clone)]
struct Call(Arc<Mutex<Option<Ends>>>);

struct Ends {
    commands: mpsc::Sender<Arrival>,
    passing: oneshot::Sender<Infallible>,
    events: Departures,
}

impl StreamingService<Received> for Call {
    type Response = Encoded;
    type ResponseStream = Departures;
    type Future = std::future::Ready<Result<Response<Departures>, Status>>;

    fn call(&mut self, request: Request<Streaming<Received>>) -> Self::Future {
        std::future::ready(self.begin(request.into_inner()))
    }
}

impl Call {
    fn begin(&self, mut arriving: Streaming<Received>) -> Result<Response<Departures>, Status> {
        let ends = self.0.lock().take();
        let Ends {
            commands,
            passing,
            events,
        } = ends.ok_or_else(|| Status::resource_exhausted("the session has its command stream"))?;
        tokio::spawn(async move {
            let _passing = passing;
            loop {
                let arrival = match arriving.message().await {
                    Ok(Some(batch)) => Ok(batch),
                    Ok(None) => break,
                    Err(status) => Err(status),
                };
                let last = arrival.is_err();
                if commands.send(arrival).await.is_err() || last {
                    break;
                }
            }
        });
        Ok(Response::new(events))
    }
}

/// The session's side of the events.
struct GrpcEvents {
    losses: Box<dyn Losses>,
    scope: Scope,
    /// With more bytes than this that wait or are not acknowledged, the client is given up.
    most: usize,
    state: Mutex<EventsState>,
    /// Signals that there is room again, or that the connection is lost.
    room: Condvar,
    /// Signals a new connection to the thread that reads commands.
    arrived: Condvar,
}

#[derive(Default)]
struct EventsState {
    /// The way to the newest connection.
    events: Option<mpsc::UnboundedSender<Bytes>>,
    /// Number of the newest connection.
    number: u64,
    /// The commands of a new connection, until the reading thread takes them.
    reading: Option<Reading>,
    /// The sent events that the client has not acknowledged, if the session outlives its connections.
    window: Option<Window>,
    /// Number of the last batch.
    last: u64,
    /// Bytes that HTTP/2 has not taken on the newest connection.
    waiting: usize,
    is_over: bool,
}

/// The commands of one connection.
struct Reading {
    arrivals: mpsc::Receiver<Arrival>,
    number: u64,
}

impl EventsState {
    fn backlog(&self) -> usize {
        (self.window.as_ref()).map_or(self.waiting, Window::bytes)
    }
}

impl GrpcEvents {
    fn new(losses: impl Losses + 'static, keeps: bool, scope: &Scope) -> GrpcEvents {
        GrpcEvents {
            losses: Box::new(losses),
            scope: scope.clone(),
            most: match (scope.is_hosted(), keeps) {
                (true, _) => GIVE_UP_IN_HOST,
                (false, true) => GIVE_UP,
                (false, false) => usize::MAX,
            },
            state: Mutex::new(EventsState {
                window: keeps.then(Window::default),
                ..EventsState::default()
            }),
            room: Condvar::new(),
            arrived: Condvar::new(),
        }
    }

    /// As for the direct carrier.
    fn begin_behind(&self, number: u64) {
        let mut state = self.state.lock();
        state.window = Some(Window::behind(number));
        state.last = number;
    }

    /// Starts the thread that serves a new connection, unless a later one has arrived.
    fn serve(self: Arc<Self>, arrived: Arrived) {
        let number = arrived.number;
        let (commands, arrivals) = mpsc::channel(AHEAD);
        let (events, outgoing) = mpsc::unbounded_channel();
        {
            let mut state = self.state.lock();
            if state.is_over || number <= state.number {
                return;
            }
            match state.take_over(arrived.position, &events) {
                Ok(waiting) => state.waiting = waiting,
                Err(wrong) => {
                    drop(state);
                    self.losses.end(Ending::Violation(wrong.to_string()));
                    return;
                }
            }
            state.number = number;
            state.events = Some(events);
            state.reading = Some(Reading { arrivals, number });
        }
        self.arrived.notify_all();
        self.room.notify_all();
        let (passing, passed) = oneshot::channel();
        let call = Call(Arc::new(Mutex::new(Some(Ends {
            commands,
            passing,
            events: Departures {
                from: UnboundedReceiverStream::new(outgoing),
                number,
                session: Arc::clone(&self),
            },
        }))));
        let (own, line) = (Arc::clone(&self), arrived.line);
        let lost = move |error| {
            let connection = CONNECTION;
            own.losses
                .lost(number, Ending::ClientLost { connection, error });
        };
        let failed = lost.clone();
        let started = self.scope.try_spawn("grpc", move || {
            if let Err(error) = serve(line, call, passed) {
                lost(error);
            }
        });
        if let Err(error) = started {
            failed(error);
        }
    }

    /// As for the direct carrier.
    fn next_connection(&self) -> Option<Reading> {
        let mut state = self.state.lock();
        loop {
            match state.reading.take() {
                Some(reading) => return Some(reading),
                None if state.is_over => return None,
                None => self.arrived.wait(&mut state),
            }
        }
    }

    fn taken(&self, number: u64, length: usize) {
        let mut state = self.state.lock();
        if number == state.number {
            state.waiting = state.waiting.saturating_sub(length);
            if state.backlog() <= LOW {
                self.room.notify_all();
            }
        }
    }

    /// Handles the end of a connection. Without further ones, nobody takes the events.
    fn left(&self, number: u64) {
        let mut state = self.state.lock();
        if number == state.number {
            state.events = None;
            state.is_over |= state.window.is_none();
            self.room.notify_all();
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        // Its thread must not wait for a session that reads no more.
        state.reading = None;
        drop(state);
        self.room.notify_all();
        self.arrived.notify_all();
    }
}

impl EventsState {
    /// Puts the events that the client has not handled into the way to its new connection. Returns their bytes.
    fn take_over(
        &mut self,
        position: u64,
        events: &mpsc::UnboundedSender<Bytes>,
    ) -> Result<usize, BadNumber> {
        let Some(window) = &mut self.window else {
            return Ok(0);
        };
        let mut next = window.resume(position)?;
        let mut bytes = 0;
        while next <= window.last() {
            let mut frames = Vec::new();
            next = window.copy(next, AGAIN, &mut frames);
            for frame in Frames(&frames) {
                bytes += frame.len() - PREFIX;
                // The receiver is still here.
                let _ = events.send(Bytes::copy_from_slice(&frame[PREFIX..]));
            }
        }
        Ok(bytes)
    }
}

impl EventSink for GrpcEvents {
    fn send(&self, mut batch: EventBatch) {
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        batch.number = state.last + 1;
        let length = batch.encoded_len();
        let prefix = match frame::prefix(length) {
            Ok(prefix) => prefix,
            Err(error) => {
                drop(state);
                self.losses.end(Ending::Broken(error.to_string()));
                return;
            }
        };
        if state.backlog() > self.most {
            state.is_over = true;
            drop(state);
            self.room.notify_all();
            let error = io::Error::other("the client reads no events from its command connection");
            self.losses.end(Ending::ClientLost {
                connection: CONNECTION,
                error,
            });
            return;
        }
        state.last += 1;
        let mut encoded = Vec::with_capacity(PREFIX + length);
        encoded.extend_from_slice(&prefix);
        batch
            .encode(&mut encoded)
            .expect("a Vec grows as encoding needs it");
        if let Some(window) = &mut state.window {
            window.keep(&encoded);
        }
        state.waiting += length;
        if let Some(events) = &state.events {
            // Without a receiver the connection is gone, which another thread reports.
            let _ = events.send(Bytes::from(encoded).slice(PREFIX..));
        }
    }

    fn wait_for_room(&self) {
        let mut state = self.state.lock();
        if state.backlog() > HIGH {
            while state.backlog() > LOW && !state.is_over {
                self.room.wait(&mut state);
            }
        }
    }

    fn violated(&self, what: String) {
        self.losses.end(Ending::Violation(what));
    }
}

/// The carrier as the stage has it, which needs to share the events with new threads.
struct SharedEvents(Arc<GrpcEvents>);

impl Carrier for SharedEvents {
    fn switch(&self, arrived: Arrived) {
        Arc::clone(&self.0).serve(arrived);
    }

    fn acknowledge(&self, number: u64) -> Result<(), BadNumber> {
        let mut state = self.0.state.lock();
        let Some(window) = &mut state.window else {
            return Ok(());
        };
        window.acknowledge(number)?;
        if state.backlog() <= LOW {
            self.0.room.notify_all();
        }
        Ok(())
    }

    fn heard(&self) -> Option<u64> {
        let state = self.0.state.lock();
        let is_heard = state.window.as_ref()?.is_heard();
        is_heard.then_some(state.last)
    }

    fn last(&self) -> u64 {
        self.0.state.lock().last
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Ends the carrier's waits when its thread ends.
struct Closing(Arc<GrpcEvents>);

impl Drop for Closing {
    fn drop(&mut self) {
        // In a worker of its own, events still leave until the process exits.
        if self.0.scope.is_hosted() {
            self.0.close();
        }
    }
}

/// The client's side of the events of one connection. Its drop, with the connection, ends a wait for room.
struct Departures {
    from: UnboundedReceiverStream<Bytes>,
    number: u64,
    session: Arc<GrpcEvents>,
}

impl Stream for Departures {
    type Item = Result<Encoded, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = Pin::new(&mut self.from).poll_next(cx);
        next.map(|next| {
            next.map(|batch| {
                self.session.taken(self.number, batch.len());
                Ok(Encoded(batch))
            })
        })
    }
}

impl Drop for Departures {
    fn drop(&mut self) {
        self.session.left(self.number);
    }
}
