//! The session of this process on one node: the interface that the client's objects use.
//!
//! [`Session`] adds the public API and the checks for `fork` to the state that the session's threads share.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_proto::clock::Offset;
use causeway_proto::command::{Answer, Command, DeviceTimer, Ping, query};
use causeway_proto::control::LinkSpeed;
use causeway_proto::id::{EventId, RequestId, SessionId};
use causeway_proto::preamble::Purpose;
use causeway_proto::status::WireError;
use causeway_security::{Fingerprint, Line};
use parking_lot::Mutex;

use super::bulk::memory::HostRegion;
use super::bulk::{Bulk, BulkSettings, EagerGrant, Owner, relay};
use super::carrier::direct::Direct;
use super::carrier::grpc::{self, Grpc};
use super::clock::{self, NodeClock};
use super::core::{Connections, Core};
use super::encode::EncodeCommand;
use super::gauge::Gauge;
use super::granted::Granted;
use super::heartbeat::{self, Rhythm};
use super::inline_reads::InlineReads;
use super::node::Node;
use super::patience::Patience;
use super::rails::Destination;
use super::reader::{self, CommandReader};
use super::reconnect::{Recovery, Redialer};
use super::retry::Retry;
use super::socket::{Dialer, NotOpened};
use super::wait::Change;
use super::{SessionEvents, exit, flusher};
use crate::config::{Carrier, ServerSettings};
use crate::fork;
use crate::trace;

/// A session's node, as other nodes need to know it.
#[derive(Clone, Debug)]
pub struct Location {
    /// The address at which this process reached the node.
    pub peer: SocketAddr,
    /// The node's uuid; empty if it never reported one.
    pub uuid: Bytes,
    /// The node's name, for people.
    pub name: String,
    /// Addresses (`host:port`) that the node reports for other nodes, the likeliest first.
    pub addresses: Vec<String>,
    /// The speeds of its interfaces, as far as it tells them.
    pub speeds: Vec<LinkSpeed>,
    /// For how long the node has granted that the session outlives its connections.
    pub resume: Duration,
}

/// Why a session is opened anew, also one that still has connections.
pub(super) const NODE_LOST: &str =
    "the lease has lost this node, and has equal devices in its place";

/// What helps a session that cannot begin anew.
const WITH_REEXECUTION: &str =
    "with `reexecute = true` below [survival] in servers.toml, a session goes on there";

/// Time for the node to learn that the session ends.
const FAREWELL_LIMIT: Duration = Duration::from_millis(100);

/// A live (or lost) session. Dropping the last reference ends it.
pub struct Session {
    core: Arc<Core>,
    id: SessionId,
    location: Location,
    clock: Arc<NodeClock>,
    gauge: Arc<Gauge>,
    inline_reads: Arc<InlineReads>,
}

/// Everything that is needed to open a session.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) dialer: Dialer,
    pub(super) carrier: Carrier,
    pub(super) rhythm: Rhythm,
    pub(super) bulk: BulkSettings,
    pub(super) deadline: Instant,
    pub(super) gauge: Arc<Gauge>,
    pub(super) location: Location,
    /// The node's settings.
    pub(super) server: ServerSettings,
    /// How long the node keeps the session when connections break.
    pub(super) granted: Granted,
    /// The session's node.
    pub(super) node: Weak<Node>,
}

impl Session {
    /// Opens the command and heartbeat connections and starts the threads.
    pub(super) fn open(
        opening: Opening,
        events: Arc<dyn SessionEvents>,
    ) -> Result<Session, NotOpened> {
        let Opening {
            dialer,
            carrier,
            rhythm,
            bulk,
            deadline,
            gauge,
            location,
            server,
            granted,
            node,
        } = opening;
        let purpose = match carrier {
            Carrier::Direct => Purpose::Commands,
            Carrier::Grpc => Purpose::CommandsGrpc,
        };
        let resumes = granted.resumes();
        // If one breaks while the other opens, the session begins by being resumed.
        let retry = match resumes {
            true => Retry::Unreachable,
            false => Retry::Closed,
        };
        let commands = dialer.open(purpose, retry, deadline)?;
        let heartbeat = Arc::new(dialer.open(Purpose::Heartbeat, retry, deadline)?);
        let bulk = Bulk::new(dialer.clone(), bulk, Arc::clone(&gauge));
        let (address, id) = (dialer.address.clone(), dialer.session);
        let secret = dialer.secret.clone();
        let redialer = resumes.then_some(Redialer {
            dialer,
            server,
            commands: purpose,
            patience: Patience::new(granted.resume),
            restart: granted.restart,
            recovery: Recovery::default(),
            opened: Instant::now(),
            node,
        });
        let started = match carrier {
            Carrier::Direct => start_direct(commands, heartbeat, granted, &address, bulk, events),
            Carrier::Grpc => start_grpc(commands, heartbeat, granted, &address, bulk, events),
        };
        let no_thread = |error: io::Error| WireError::Refused {
            address: address.clone(),
            reason: format!("the client cannot start another thread: {error}"),
        };
        // From here on the session exists; dropping it ends what has been started.
        let session = Session {
            core: started.map_err(no_thread)?,
            id,
            location,
            clock: Arc::default(),
            gauge,
            inline_reads: Arc::default(),
        };
        heartbeat::start(&session.core, secret, rhythm, redialer).map_err(no_thread)?;
        flusher::start(&session.core).map_err(no_thread)?;
        exit::register(&session.core);
        if trace::is_on() {
            trace::name_node(&address, &session.location.name);
        }
        Ok(session)
    }

    /// The bytes of small reads on their way.
    #[must_use]
    pub fn inline_reads(&self) -> &Arc<InlineReads> {
        &self.inline_reads
    }

    /// The session's id, by which other workers of the same client reach its worker.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Has the session go on at another server, or begin anew there if its node is lost.
    pub(super) fn lead_to(&self, destination: &Destination) {
        if !self.core.bulk.rails().lead_to(destination) {
            return;
        }
        // The client may reach the lost node still. Nothing more of it is handled.
        match self.core.may_be_replaced() {
            true => {
                self.core
                    .break_off(self.core.generation(), NODE_LOST.to_owned());
            }
            false => {
                let reason = match self.core.granted.reexecutes {
                    Some(_) => self.core.explain_lost_node(NODE_LOST.to_owned()),
                    None => format!("{NODE_LOST}; {WITH_REEXECUTION}"),
                };
                self.close(&reason);
            }
        }
    }

    /// Measured round trip and bandwidth between this process and the node.
    #[must_use]
    pub fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    /// The location of the node where the session was opened.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Fingerprint of the session's present certificate, if its connections use TLS. A session that is opened again has
    /// another one.
    #[must_use]
    pub fn certificate(&self) -> Option<Fingerprint> {
        self.core.bulk.rails().fingerprint()
    }

    /// Appends a command to the outgoing buffer. The worker applies it after everything sent before.
    ///
    /// Never waits for an answer, but may wait for room on the connection. The command leaves within
    /// about 100 µs, or with the next [`Session::flush`] or wait.
    pub fn send(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        fork::check()?;
        self.core.append(command, true)
    }

    /// Like [`Session::send`], but never waits for room. For callers that hold a lock which a transport
    /// thread may need. The number of such commands must have a bound elsewhere, since nothing here
    /// limits them.
    pub fn post(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        fork::check()?;
        self.core.post(command)
    }

    /// [`Session::send`] and [`Session::flush`] in one step, for a command that the caller waits for
    /// next.
    pub fn send_now(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        fork::check()?;
        self.core.append(command, false)?;
        self.core.flush()
    }

    /// Writes the queued commands to the connection, on the calling thread.
    pub fn flush(&self) -> Result<(), WireError> {
        fork::check()?;
        self.core.flush()
    }

    /// Sends a command that carries `request` and waits for its answer.
    ///
    /// # Errors
    /// As [`Session::send`], and [`WireError::Lost`] when the session is lost while waiting. An
    /// answer with a negative status is `Ok`.
    pub fn request(
        &self,
        request: RequestId,
        command: &impl EncodeCommand,
    ) -> Result<Answer, WireError> {
        let slot = Arc::new(Mutex::new(None));
        let filled = Arc::clone(&slot);
        self.request_async(request, command, move |answer| {
            *filled.lock() = Some(answer)
        })?;
        // The end of the session fills the slot first, so the wait's own error adds nothing if the slot
        // is full.
        let waited = self.wait(Change::Request(request), &|| slot.lock().is_some());
        match slot.lock().take() {
            Some(answer) => answer,
            None => Err(waited.err().unwrap_or_else(|| self.gone())),
        }
    }

    /// Like [`Session::request`] without waiting. `then` runs on a transport thread and must be short and
    /// must not block. It runs exactly once if this returns `Ok`, and not at all otherwise.
    pub fn request_async(
        &self,
        request: RequestId,
        command: &impl EncodeCommand,
        then: impl FnOnce(Result<Answer, WireError>) + Send + 'static,
    ) -> Result<(), WireError> {
        fork::check()?;
        if self
            .core
            .requests
            .register(request, Box::new(then))
            .is_err()
        {
            return Err(self.gone());
        }
        match self.core.append(command, true) {
            // If the request could be taken back, `then` is not called and the caller gets the error. If
            // it is gone already, the session's end has called `then`.
            Err(error) if self.core.requests.take(request).is_some() => Err(error),
            _ => Ok(()),
        }
    }

    /// Flushes, then waits until `condition` holds, which the end of `event` makes true. The condition is
    /// checked again when `event` completes (or the `keep` of its upload is dropped). The caller must hold no lock that
    /// [`SessionEvents`] needs: this thread may be the one that calls it.
    pub fn wait_for(&self, event: EventId, condition: &dyn Fn() -> bool) -> Result<(), WireError> {
        self.wait(Change::Event(event), condition)
    }

    /// Like [`Session::wait_for`], for a condition that depends on several events. It is checked after
    /// every completion, which costs more when many threads wait.
    pub fn wait_until(&self, condition: &dyn Fn() -> bool) -> Result<(), WireError> {
        self.wait(Change::Any, condition)
    }

    fn wait(&self, awaits: Change, condition: &dyn Fn() -> bool) -> Result<(), WireError> {
        fork::check()?;
        debug_assert!(
            !super::thread::is_ours(),
            "a transport thread must not wait"
        );
        // If this thread waits for its own upload, it sends the bytes itself and no other thread needs
        // waking.
        let claimed = match awaits {
            Change::Event(event) => self.core.bulk.claim(event),
            _ => None,
        };
        // A failed flush needs no handling here: the wait ends when the session is over.
        let _ = self.core.flush();
        if let Some(claimed) = claimed {
            self.core.bulk.send_claimed(&*self.core, claimed);
        }
        let over = || condition() || self.core.is_over();
        let _waiting = trace::waiting();
        match awaits {
            // A request's caller may hold a lock of its own, which `SessionEvents` might need. So this
            // thread must not read the connection.
            Change::Request(_) => self.core.progress.wait_until(awaits, &over),
            _ => self.core.wait_until(awaits, &over),
        }
        if condition() {
            Ok(())
        } else {
            Err(self.gone())
        }
    }

    /// Makes the threads that wait for `event` check again, when its end becomes visible later than its
    /// completion.
    pub fn tell(&self, event: EventId) {
        if !fork::is_child() {
            self.core.progress.advance(Change::Event(event));
        }
    }

    /// Announces bulk transfers. The bulk connections open in the background once the session has been
    /// quiet for a moment, instead of with the first transfer. Does not wait.
    pub fn expect_transfers(&self) {
        if !fork::is_child() {
            self.core.bulk.expect();
        }
    }

    /// Standing credit for a bulk write of `bytes` bytes, which are then sent together with the command
    /// instead of on request. `None` if the write is too large, or if too many bytes are in flight.
    #[must_use]
    pub fn eager_grant(&self, bytes: u64) -> Option<EagerGrant> {
        self.core.bulk.grant(bytes)
    }

    /// Registers the bytes of the bulk write `event`. Must be called before the command is sent. Without
    /// a grant, the bytes are read once the worker grants credit, after this returns. With a grant of
    /// their size, which the command states as `eager`, they are read from now on. `keep` is kept alive
    /// until all bytes have been read.
    pub fn upload(
        &self,
        event: EventId,
        source: HostRegion,
        keep: Arc<dyn Any + Send + Sync>,
        grant: Option<EagerGrant>,
    ) -> Result<(), WireError> {
        fork::check()?;
        let bulk = &self.core.bulk;
        if bulk.upload(&self.owner(), event, source, keep, grant) {
            Ok(())
        } else {
            Err(self.gone())
        }
    }

    /// Registers the destination of the bulk read `event`. Must be called before the command is sent.
    pub fn download(&self, event: EventId, destination: HostRegion) -> Result<(), WireError> {
        fork::check()?;
        if self.core.bulk.download(&self.owner(), event, destination) {
            Ok(())
        } else {
            Err(self.gone())
        }
    }

    /// Withdraws a [`Session::upload`] or [`Session::download`] whose command was not sent.
    pub fn withdraw(&self, event: EventId) {
        if !fork::is_child() {
            self.core.bulk.withdraw(event);
        }
    }

    /// Relays a transfer's bytes from this session's worker to that of `to`, for workers without a path
    /// to each other. Must be called before either worker can mention the transfer. The relay ends with
    /// [`Session::end_transfer`], or by itself when a worker gives the transfer up or is lost. The other
    /// worker is then told.
    pub fn relay_transfer(
        &self,
        to: &Session,
        transfer: EventId,
        bytes: u64,
    ) -> Result<(), WireError> {
        fork::check()?;
        if relay::begin(&self.owner(), &to.owner(), transfer, bytes) {
            return Ok(());
        }
        let lost = self.core.failure().or(to.core.failure()).cloned();
        Err(lost.unwrap_or(WireError::Forked))
    }

    /// Ends a [relayed](Session::relay_transfer) transfer of this session: its receiver needs no more
    /// bytes. The sender may stop sending.
    pub fn end_transfer(&self, transfer: EventId) {
        if !fork::is_child() {
            relay::end(&*self.core, transfer);
        }
    }

    /// Tells the worker that the other end of a transfer between workers is gone.
    pub fn cancel_transfer(&self, transfer: EventId) {
        if !fork::is_child() {
            self.core
                .bulk
                .send_header(&self.owner(), relay::gone(transfer));
        }
    }

    /// Why the session is lost, or `None`. The value is set just before [`SessionEvents::lost`] is
    /// called; sending may fail earlier. In a child of `fork` every session is lost.
    #[must_use]
    pub fn is_lost(&self) -> Option<WireError> {
        if fork::is_child() {
            return Some(WireError::Forked);
        }
        self.core.loss().cloned()
    }

    /// Starts to read the node's clock, unless that was done before, so that [`Session::clock_offset`] is
    /// known when it is needed. Does not wait. `next` supplies request ids.
    pub fn read_clock(self: &Arc<Self>, next: fn() -> RequestId) {
        if !fork::is_child() {
            let session = Arc::clone(self);
            self.clock.read(&self.gauge, move || {
                let (request, question) = (next(), query::Question::Ping(Ping {}));
                let send = |command: &Command| session.request(request, command);
                clock::ask(request, question, send).map(|(reading, _)| reading)
            });
        }
    }

    /// The offset from the node's host clock, which all its times use, to [`clock::host_ns`]. Requires
    /// [`Session::read_clock`], and waits for it if it is still running. `None` if the session was lost
    /// before.
    #[must_use]
    pub fn clock_offset(&self) -> Option<Offset> {
        self.clock.offset()
    }

    /// The node's clock, for times that are converted later.
    #[must_use]
    pub fn clock(&self) -> Arc<NodeClock> {
        Arc::clone(&self.clock)
    }

    /// The number of the node in the program's trace.
    #[must_use]
    pub fn traced_node(&self) -> u32 {
        trace::node(self.core.address())
    }

    /// The current time of a device on the node's host clock, and the client's own time at about the same
    /// moment, both in nanoseconds. Waits for the node.
    pub fn device_time(
        &self,
        request: RequestId,
        device: DeviceTimer,
    ) -> Result<(u64, u64), WireError> {
        fork::check()?;
        let question = query::Question::DeviceTimer(device);
        let send = |command: &Command| self.request(request, command);
        let asked = clock::ask(request, question, send).ok_or_else(|| self.gone())?;
        let (reading, device) = asked;
        Ok((device, reading.before.midpoint(reading.after)))
    }

    /// Ends the session as a loss would, for this reason. Returns false if it is already lost for another
    /// reason.
    pub(super) fn close(&self, reason: &str) -> bool {
        fork::is_child() || self.core.fail_first(reason.to_owned())
    }

    /// Ends the session as a loss would, because the program has disconnected the server.
    pub(super) fn disconnect(&self) {
        if !fork::is_child() {
            self.core.say_farewell(FAREWELL_LIMIT);
            self.core.disconnect();
        }
    }

    /// Whether the session has no connection at the moment.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.core.is_away()
    }

    /// How often the session was resumed.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.core.resumed()
    }

    /// Reports why the session was lost when that becomes known later, unless the node itself has given a
    /// reason.
    pub(super) fn explain(&self, reason: &str) {
        if !matches!(self.core.failure(), Some(WireError::Ended { .. })) {
            self.core.events.explained(reason);
        }
    }

    /// Whether nothing can be sent any more. [`Session::is_lost`] follows soon.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.core.is_failed()
    }

    fn owner(&self) -> Arc<dyn Owner> {
        self.core.clone()
    }

    fn gone(&self) -> WireError {
        self.core.failure().cloned().unwrap_or(WireError::Forked)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The child of a fork must not touch the parent's sockets or locks. It must not drop state shared
        // with threads that it does not have, or unmap memory where it has other mappings.
        if fork::is_child() {
            std::mem::forget(Arc::clone(&self.core));
        } else {
            self.core.say_farewell(FAREWELL_LIMIT);
            self.core.close();
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Session").field(&self.core).finish()
    }
}

fn start_direct(
    line: Line,
    heartbeat: Arc<Line>,
    granted: Granted,
    address: &str,
    bulk: Bulk,
    events: Arc<dyn SessionEvents>,
) -> io::Result<Arc<Core>> {
    let (carrier, readable) = Direct::new(line);
    let connections = Connections {
        carrier: Box::new(carrier),
        reader: Some(CommandReader::new(readable)?),
        heartbeat,
        granted,
    };
    let core = Arc::new(Core::new(address.to_owned(), connections, bulk, events));
    reader::start(&core)?;
    Ok(core)
}

fn start_grpc(
    line: Line,
    heartbeat: Arc<Line>,
    granted: Granted,
    address: &str,
    bulk: Bulk,
    events: Arc<dyn SessionEvents>,
) -> io::Result<Arc<Core>> {
    let (carrier, served) = Grpc::new(line)?;
    let connections = Connections {
        carrier: Box::new(carrier),
        reader: None,
        heartbeat,
        granted,
    };
    let core = Arc::new(Core::new(address.to_owned(), connections, bulk, events));
    grpc::start(&core, served)?;
    Ok(core)
}
