//! One process's session on one node: the face that the upper half sees.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use causeway_proto::clock::Offset;
use causeway_proto::command::{Answer, DeviceTimer, query};
use causeway_proto::id::{EventId, RequestId, SessionId};
use causeway_proto::preamble::Purpose;
use causeway_proto::status::WireError;
use causeway_security::{Fingerprint, Line};
use parking_lot::Mutex;

use super::bulk::memory::HostRegion;
use super::bulk::{Bulk, EagerGrant, Wishes, relay};
use super::carrier::direct::Direct;
use super::carrier::grpc::{self, Grpc};
use super::clock::{self, NodeClock};
use super::core::Core;
use super::encode::EncodeCommand;
use super::gauge::Gauge;
use super::pulse::{self, Rhythm};
use super::reader::{self, Inlet};
use super::socket::Door;
use super::wait::Change;
use super::{SessionEvents, exit, flusher, fork};
use crate::config::Carrier;

/// Where a session's node is, for other nodes.
#[derive(Clone, Debug)]
pub struct Location {
    /// As this process has reached it.
    pub peer: SocketAddr,
    /// Who it is; empty if it never said.
    pub uuid: Bytes,
    /// What people call it.
    pub name: String,
    /// Where it says that other nodes may reach it, `host:port`, the likeliest first.
    pub addresses: Vec<String>,
    /// Of the session's certificate, if its connections are secured.
    pub certificate: Option<Fingerprint>,
}

/// A live (or lost) session. Dropping the last reference ends it.
pub struct Session {
    core: Arc<Core>,
    id: SessionId,
    location: Location,
    clock: NodeClock,
    gauge: Arc<Gauge>,
}

/// What a session is made from.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) door: Door,
    pub(super) carrier: Carrier,
    pub(super) rhythm: Rhythm,
    pub(super) bulk: Wishes,
    pub(super) deadline: Instant,
    pub(super) gauge: Arc<Gauge>,
    pub(super) location: Location,
}

impl Session {
    /// Opens the command and heartbeat connections and starts the threads.
    pub(super) fn open(
        opening: Opening,
        events: Arc<dyn SessionEvents>,
    ) -> Result<Session, WireError> {
        let Opening {
            door,
            carrier,
            rhythm,
            bulk,
            deadline,
            gauge,
            location,
        } = opening;
        let purpose = match carrier {
            Carrier::Direct => Purpose::Commands,
            Carrier::Grpc => Purpose::CommandsGrpc,
        };
        let commands = door.open(purpose, 0, deadline)?;
        let pulse = Arc::new(door.open(Purpose::Pulse, 0, deadline)?);
        let bulk = Bulk::new(door.clone(), bulk, Arc::clone(&gauge));
        let (address, id) = (door.address, door.session);
        let started = match carrier {
            Carrier::Direct => start_direct(commands, address.clone(), &pulse, bulk, events),
            Carrier::Grpc => start_grpc(commands, address.clone(), &pulse, bulk, events),
        };
        let no_thread = |error: io::Error| WireError::Refused {
            address: address.clone(),
            reason: format!("this system starts no more threads: {error}"),
        };
        // From here on the session exists; dropping it ends what has been started.
        let session = Session {
            core: started.map_err(no_thread)?,
            id,
            location,
            clock: NodeClock::default(),
            gauge,
        };
        pulse::start(&session.core, pulse, rhythm).map_err(no_thread)?;
        flusher::start(&session.core).map_err(no_thread)?;
        exit::register(&session.core);
        Ok(session)
    }

    /// Its name, by which other workers of the same client reach this one.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Where its node is.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Appends a command to the outgoing buffer: it will be applied after everything sent before.
    ///
    /// Never waits for an answer; may wait for room on the connection. It leaves within about
    /// 100 µs, or with the next [`Session::flush`] or wait.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Forked`], [`WireError::TooLarge`].
    pub fn send(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        fork::check()?;
        self.core.append(command, true)
    }

    /// The same, but never waits for room: for who holds a lock that a transport thread may want. Only for
    /// commands that something bounds, since there is no other bound here.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn post(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        fork::check()?;
        self.core.post(command)
    }

    /// [`Session::send`] and [`Session::flush`] in one; for a command that is waited for next.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn send_now(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        fork::check()?;
        self.core.append(command, false)?;
        self.core.flush()
    }

    /// Writes what is queued to the connection, on the calling thread.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Forked`].
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
        // The slot is filled before the session is over, so the wait's own error tells nothing more.
        let waited = self.wait(Change::Request(request), &|| slot.lock().is_some());
        match slot.lock().take() {
            Some(answer) => answer,
            None => Err(waited.err().unwrap_or_else(|| self.gone())),
        }
    }

    /// The same without waiting: `then` runs on a transport thread (short, not blocking), exactly
    /// once if this returns `Ok`, and not at all otherwise.
    ///
    /// # Errors
    /// As [`Session::send`].
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
            // Taken back: `then` is not called. Already taken: the session's end has called it.
            Err(error) if self.core.requests.take(request).is_some() => Err(error),
            _ => Ok(()),
        }
    }

    /// Flushes, then waits until `condition` holds, which the end of `event` makes true. It is looked
    /// at again when `event` completes (or its upload is sent), and after every [`Session::nudge`]. The
    /// caller holds no lock that [`SessionEvents`] wants: it may be told what comes on this very thread.
    ///
    /// # Errors
    /// [`WireError::Lost`] when the session is lost and `condition` still does not hold;
    /// [`WireError::Forked`].
    pub fn wait_for(&self, event: EventId, condition: &dyn Fn() -> bool) -> Result<(), WireError> {
        self.wait(Change::Event(event), condition)
    }

    /// The same for a condition of several events: looked at after each that completes, which costs
    /// more when many threads wait.
    ///
    /// # Errors
    /// As [`Session::wait_for`].
    pub fn wait_until(&self, condition: &dyn Fn() -> bool) -> Result<(), WireError> {
        self.wait(Change::Any, condition)
    }

    fn wait(&self, awaits: Change, condition: &dyn Fn() -> bool) -> Result<(), WireError> {
        fork::check()?;
        debug_assert!(
            !super::thread::is_ours(),
            "a transport thread must not wait"
        );
        // What this thread waits for it sends itself: no other need be woken for that.
        let claimed = match awaits {
            Change::Event(event) => self.core.bulk.claim(event),
            _ => None,
        };
        // A failure shows in the wait: it ends when the session is over.
        let _ = self.core.flush();
        if let Some(claimed) = claimed {
            self.core.bulk.send_claimed(&self.core, claimed);
        }
        let over = || condition() || self.core.is_over();
        match awaits {
            // Who asks may hold a lock of its own meanwhile.
            Change::Request(_) => self.core.progress.wait_until(awaits, &over),
            _ => self.core.wait_until(awaits, &over),
        }
        if condition() {
            Ok(())
        } else {
            Err(self.gone())
        }
    }

    /// Makes everyone who waits look at its condition again; for changes that did not come
    /// through this session (a user event, another node).
    pub fn nudge(&self) {
        if !fork::is_child() {
            self.core.progress.advance(Change::Any);
        }
    }

    /// Makes who waits for `event` look again: its end is visible only now, later than its completion.
    pub fn tell(&self, event: EventId) {
        if !fork::is_child() {
            self.core.progress.advance(Change::Event(event));
        }
    }

    /// Transfers over the bulk connections are likely to come: these are opened in the background when the
    /// session has been quiet for a moment, instead of with the first transfer. Waits for nothing.
    pub fn expect_transfers(&self) {
        if !fork::is_child() {
            self.core.bulk.expect();
        }
    }

    /// Standing credit for a bulk write of so many bytes, which then are sent with the command instead of
    /// being asked for; `None` when they are too many, or too many are under way.
    #[must_use]
    pub fn eager_grant(&self, bytes: u64) -> Option<EagerGrant> {
        self.core.bulk.grant(bytes)
    }

    /// Registers the bytes of the bulk write `event`. Call before the command is sent. They are read
    /// once the worker grants credit, after this returns; with a grant of their size, which the command
    /// tells as `eager`, from now on. `keep` is held until they all are.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Forked`].
    pub fn upload(
        &self,
        event: EventId,
        source: HostRegion,
        keep: Arc<dyn Any + Send + Sync>,
        grant: Option<EagerGrant>,
    ) -> Result<(), WireError> {
        fork::check()?;
        let bulk = &self.core.bulk;
        if bulk.upload(&self.core, event, source, keep, grant) {
            Ok(())
        } else {
            Err(self.gone())
        }
    }

    /// Registers where the bytes of the bulk read `event` go. Call before the command is sent.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Forked`].
    pub fn download(&self, event: EventId, destination: HostRegion) -> Result<(), WireError> {
        fork::check()?;
        if self.core.bulk.download(&self.core, event, destination) {
            Ok(())
        } else {
            Err(self.gone())
        }
    }

    /// Takes an [`Session::upload`] or [`Session::download`] back, when its command was not sent.
    pub fn withdraw(&self, event: EventId) {
        if !fork::is_child() {
            self.core.bulk.withdraw(event);
        }
    }

    /// Passes a transfer's bytes on from this session's worker to that of `to`, which have no path to each
    /// other. To be called before either can speak of it here; ends with [`Session::end_transfer`], or by
    /// itself when one of the workers gives the transfer up or is lost, of which the other hears.
    ///
    /// # Errors
    /// [`WireError::Lost`] when either session is; [`WireError::Forked`].
    pub fn relay_transfer(
        &self,
        to: &Session,
        transfer: EventId,
        bytes: u64,
    ) -> Result<(), WireError> {
        fork::check()?;
        if relay::begin(&self.core, &to.core, transfer, bytes) {
            return Ok(());
        }
        let lost = self.core.failure().or(to.core.failure()).cloned();
        Err(lost.unwrap_or(WireError::Forked))
    }

    /// A [relayed](Session::relay_transfer) transfer of this session is over for its receiver. If the sender
    /// has not sent everything, it need not any more.
    pub fn end_transfer(&self, transfer: EventId) {
        if !fork::is_child() {
            relay::end(&self.core, transfer);
        }
    }

    /// Tells the worker that the other end of a transfer between workers is no more.
    pub fn cancel_transfer(&self, transfer: EventId) {
        if !fork::is_child() {
            self.core.bulk.say(&self.core, relay::gone(transfer));
        }
    }

    /// Why the session is lost, if it is: from just before [`SessionEvents::lost`] is called. Sending
    /// may fail earlier. In a child of `fork` every session is lost.
    #[must_use]
    pub fn is_lost(&self) -> Option<WireError> {
        if fork::is_child() {
            return Some(WireError::Forked);
        }
        self.core.loss().cloned()
    }

    /// Begins to read the node's clock, if nobody has, so that [`Session::clock_offset`] is known when it is
    /// wanted. Waits for nothing. `next` gives ids for the questions.
    pub fn read_clock(self: &Arc<Self>, next: fn() -> RequestId) {
        if !fork::is_child() {
            self.clock.read(self, &self.gauge, next);
        }
    }

    /// From the node's host clock, which all its times are on, to [`clock::host_ns`]; after
    /// [`Session::read_clock`]. Waits for it if it is being read. `None` when the session was lost before.
    #[must_use]
    pub fn clock_offset(&self) -> Option<Offset> {
        self.clock.offset()
    }

    /// A device's time now, on the node's host clock, and our own at about the same moment. Waits for the node.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Forked`].
    pub fn device_time(
        &self,
        request: RequestId,
        device: DeviceTimer,
    ) -> Result<(u64, u64), WireError> {
        fork::check()?;
        let question = query::Question::DeviceTimer(device);
        let asked = clock::ask(self, request, question).ok_or_else(|| self.gone())?;
        let (reading, device) = asked;
        Ok((device, reading.before.midpoint(reading.after)))
    }

    pub(super) fn clock(&self) -> &NodeClock {
        &self.clock
    }

    /// Ends it as a loss would, for this reason. False: it is lost already, for another.
    pub(super) fn close(&self, reason: &str) -> bool {
        fork::is_child() || self.core.fail_first(reason.to_owned())
    }

    /// Tells why it was lost, which has become known later; unless the node has said the same.
    pub(super) fn explain(&self, reason: &str) {
        let said = self.core.failure().map(WireError::to_string);
        if !said.is_some_and(|said| said.contains(reason)) {
            self.core.events.explained(reason);
        }
    }

    /// Whether nothing can be sent any more; [`Session::is_lost`] follows soon.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.core.is_failed()
    }

    fn gone(&self) -> WireError {
        self.core.failure().cloned().unwrap_or(WireError::Forked)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The child of a fork must leave the parent's sockets alone, and its locks too; nor may it drop
        // what is shared with threads that it does not have, or mapped where it has something else.
        if fork::is_child() {
            std::mem::forget(Arc::clone(&self.core));
        } else {
            self.core.fail("the session was closed".to_owned());
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
    address: String,
    pulse: &Arc<Line>,
    bulk: Bulk,
    events: Arc<dyn SessionEvents>,
) -> io::Result<Arc<Core>> {
    let (socket, tls) = line.into_parts();
    let (records, opener) = tls.unzip();
    let socket = Arc::new(socket);
    let inlet = Inlet::new(Arc::clone(&socket), opener)?;
    let halves = (Box::new(Direct::new(socket, records)) as _, Some(inlet));
    let core = Arc::new(Core::new(address, halves, Arc::clone(pulse), bulk, events));
    reader::start(&core)?;
    Ok(core)
}

fn start_grpc(
    line: Line,
    address: String,
    pulse: &Arc<Line>,
    bulk: Bulk,
    events: Arc<dyn SessionEvents>,
) -> io::Result<Arc<Core>> {
    let (carrier, incoming) = Grpc::new(line)?;
    let core = Arc::new(Core::new(
        address,
        (Box::new(carrier), None),
        Arc::clone(pulse),
        bulk,
        events,
    ));
    grpc::start(&core, incoming)?;
    Ok(core)
}
