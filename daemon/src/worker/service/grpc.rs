//! The gRPC carrier: HTTP/2 on the command connection, with one `Commands` call.
//!
//! tonic runs on its own thread and runtime. The calling thread applies commands, as with the direct
//! carrier. HTTP/2 pings are off, because a client that is stopped in a debugger could not answer them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use causeway_proto::command::{CommandBatch, EventBatch};
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

use super::direct_events::GIVE_UP_IN_HOST;
use super::ending::{Ending, Endings};
use super::grpc_service::WorkerService;
use crate::guarded_io::GuardedIo;
use crate::worker::connection::EventSink;
use crate::worker::session::Session;
use crate::worker::threads::Scope;

/// Number of decoded batches that may wait. HTTP/2's flow control holds back the rest.
const AHEAD: usize = 4;
const CONNECTION: &str = "commands (gRPC)";
/// HTTP/2 flow-control window: bytes that the client may have in flight.
const WINDOW: u32 = 8 << 20;
/// With more waiting event bytes than this, no further commands are applied.
const HIGH: usize = 64 << 20;

/// Carries commands to the session that `begin` starts, until the connection or the session ends.
pub(super) fn carry(
    line: Line,
    endings: &Endings,
    scope: &Scope,
    begin: impl FnOnce(Arc<dyn EventSink>) -> Arc<Session>,
) -> Ending {
    let (commands, mut arrivals) = mpsc::channel(AHEAD);
    let (events, outgoing) = mpsc::unbounded_channel();
    let backlog = Arc::new(Backlog::default());
    let call = Call(Arc::new(Mutex::new(Some(Ends {
        commands,
        events: Departures {
            from: UnboundedReceiverStream::new(outgoing),
            backlog: Arc::clone(&backlog),
        },
    }))));
    let failed = endings.clone();
    let started = scope.try_spawn("grpc", move || {
        if let Err(error) = serve(line, call) {
            failed.end(Ending::ClientLost {
                connection: CONNECTION,
                error,
            });
        }
    });
    if let Err(error) = started {
        return Ending::Broken(format!("cannot set up the command connection: {error}"));
    }
    let session = begin(Arc::new(GrpcEvents {
        events,
        backlog: Arc::clone(&backlog),
        endings: endings.clone(),
        most: match scope.is_hosted() {
            true => GIVE_UP_IN_HOST,
            false => usize::MAX,
        },
    }));
    loop {
        backlog.wait_for_room();
        match arrivals.blocking_recv() {
            Some(Ok(mut batch)) => {
                if let Err(violation) = session.apply(&mut batch) {
                    return Ending::Violation(violation.to_string());
                }
            }
            // The decoder reports a malformed message with this code.
            Some(Err(status)) if status.code() == Code::InvalidArgument => {
                return Ending::Violation(status.message().to_owned());
            }
            Some(Err(status)) => return broken(&status),
            None => {
                backlog.give_up();
                return Ending::ClientClosed;
            }
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

type Arrival = Result<CommandBatch, Status>;

/// Serves the one connection until it closes.
#[tokio::main(flavor = "current_thread")]
async fn serve(line: Line, call: Call) -> io::Result<()> {
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
        _ = closed => Ok(()),
    }
}

/// The service. Its first call gets the session's channel ends; a second call is refused.
#[derive(Clone)]
struct Call(Arc<Mutex<Option<Ends>>>);

struct Ends {
    commands: mpsc::Sender<Arrival>,
    events: Departures,
}

impl StreamingService<CommandBatch> for Call {
    type Response = EventBatch;
    type ResponseStream = Departures;
    type Future = std::future::Ready<Result<Response<Departures>, Status>>;

    fn call(&mut self, request: Request<Streaming<CommandBatch>>) -> Self::Future {
        std::future::ready(self.begin(request.into_inner()))
    }
}

impl Call {
    fn begin(&self, mut arriving: Streaming<CommandBatch>) -> Result<Response<Departures>, Status> {
        let ends = self.0.lock().take();
        let Ends { commands, events } =
            ends.ok_or_else(|| Status::resource_exhausted("the session has its command stream"))?;
        tokio::spawn(async move {
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
    events: mpsc::UnboundedSender<(EventBatch, usize)>,
    backlog: Arc<Backlog>,
    endings: Endings,
    /// With more waiting bytes than this, the client is given up.
    most: usize,
}

impl EventSink for GrpcEvents {
    fn send(&self, batch: EventBatch) {
        let length = batch.encoded_len();
        let before = self.backlog.bytes.fetch_add(length, Ordering::Relaxed);
        if before > self.most {
            self.backlog.bytes.fetch_sub(length, Ordering::Relaxed);
            let error = io::Error::other("the client reads no events from its command connection");
            self.endings.end(Ending::ClientLost {
                connection: CONNECTION,
                error,
            });
            return;
        }
        // Without a receiver the connection is gone, which another thread reports.
        let _ = self.events.send((batch, length));
    }
}

/// Event bytes that HTTP/2 has not taken.
#[derive(Default)]
struct Backlog {
    bytes: AtomicUsize,
    given_up: Mutex<bool>,
    room: Condvar,
}

impl Backlog {
    fn wait_for_room(&self) {
        if self.bytes.load(Ordering::Relaxed) <= HIGH {
            return;
        }
        let mut given_up = self.given_up.lock();
        while self.bytes.load(Ordering::Relaxed) > HIGH / 2 && !*given_up {
            self.room.wait(&mut given_up);
        }
    }

    fn taken(&self, length: usize) {
        let before = self.bytes.fetch_sub(length, Ordering::Relaxed);
        if before > HIGH / 2 && before - length <= HIGH / 2 {
            // The lock ensures that a thread between its check and its wait does not miss the notification.
            let _waiting_or_not_yet_looking = self.given_up.lock();
            self.room.notify_all();
        }
    }

    fn give_up(&self) {
        *self.given_up.lock() = true;
        self.room.notify_all();
    }
}

/// The client's side of the events. Its drop, with the connection, ends a wait for room.
struct Departures {
    from: UnboundedReceiverStream<(EventBatch, usize)>,
    backlog: Arc<Backlog>,
}

impl Stream for Departures {
    type Item = Result<EventBatch, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = Pin::new(&mut self.from).poll_next(cx);
        next.map(|next| {
            next.map(|(batch, length)| {
                self.backlog.taken(length);
                Ok(batch)
            })
        })
    }
}

impl Drop for Departures {
    fn drop(&mut self) {
        self.backlog.give_up();
    }
}
