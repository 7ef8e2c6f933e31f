//! State that the threads of one session share.
//!
//! A session ends in two steps. Any thread, also one of the application, may call [`Core::fail`]: it
//! stores the first reason and shuts every socket, nothing more. [`Core::tear_down`] tears the session down.
//! It runs once, on the thread that reads the command connection, after that connection has ended. It
//! waits until no thread touches the application's memory, answers the open requests, and reports the
//! loss. So losses are reported on a transport thread, like everything else.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causeway_proto::command::{Completion, EventBatch, Parking};
use causeway_proto::id::{EventId, RequestId};
use causeway_proto::status::WireError;
use causeway_security::Line;
use parking_lot::Mutex;

use self::reexecution::Reexecution;
use self::resuming::Resume;
use super::bulk::Received;
use super::bulk::memory::HostRegion;
use super::bulk::{Bulk, Guard, Owner, relay};
use super::carrier::Carrier;
use super::encode::EncodeCommand;
use super::events::SessionEvents;
use super::flusher::Flusher;
use super::granted::Granted;
use super::outbox::{Appended, Outbox};
use super::reader::CommandReader;
use super::report::{Reported, Tool};
use super::requests::Requests;
use super::wait::{Change, Progress};
use crate::config::Hold;
use crate::trace;

mod acknowledging;
mod copied;
mod reexecution;
mod resuming;

pub(super) use self::resuming::{Break, Connected, NotResumed};

/// Why a parked session has no connection.
const PARKED: &str =
    "the node has parked the session, because its daemon ends or the lease moves to another node";

/// The shared state of a session.
pub(super) struct Core {
    address: String,
    pub(super) outbox: Outbox,
    pub(super) flusher: Flusher,
    pub(super) requests: Requests,
    pub(super) progress: Progress,
    pub(super) bulk: Bulk,
    pub(super) events: Arc<dyn SessionEvents>,
    /// The tool that learns of breaks and of the loss.
    pub(super) tool: Tool,
    /// Present if waiting threads read the command connection; `None` if the carrier's own thread does.
    pub(super) reader: Option<CommandReader>,
    carrier: Box<dyn Carrier>,
    /// How long the node keeps the session without connections.
    pub(super) granted: Granted,
    // Present if the session outlives its connections.
    resume: Option<Resume>,
    // Present if the session may outlive its worker.
    reexecution: Option<Reexecution>,
    heartbeat: Mutex<Arc<Line>>,
    failure: OnceLock<WireError>,
    failed: AtomicBool,
    /// Whether this side closes the session, because nothing uses it any more.
    closes: AtomicBool,
    lost: AtomicBool,
    over: AtomicBool,
}

/// The connections of a new session.
pub(super) struct Connections {
    pub(super) carrier: Box<dyn Carrier>,
    /// Present if waiting threads read the command connection.
    pub(super) reader: Option<CommandReader>,
    pub(super) heartbeat: Arc<Line>,
    /// How long the session outlives them.
    pub(super) granted: Granted,
}

impl Core {
    pub(super) fn new(
        address: String,
        connections: Connections,
        bulk: Bulk,
        events: Arc<dyn SessionEvents>,
    ) -> Core {
        let mut outbox = Outbox::new(connections.granted.resumes());
        if trace::is_on() {
            outbox.trace_as(trace::node(&address));
        }
        if connections.granted.parks() {
            outbox.records();
        }
        if let Some(survival) = connections.granted.reexecutes {
            outbox.records();
            outbox.retains();
            if survival.hold != Hold::Node {
                outbox.may_hold();
            }
        }
        Core {
            tool: Tool::of_process(&address, bulk.session()),
            address,
            outbox,
            flusher: Flusher::default(),
            requests: Requests::new(),
            progress: Progress::new(),
            bulk,
            events,
            reader: connections.reader,
            carrier: connections.carrier,
            granted: connections.granted,
            resume: connections.granted.resumes().then(|| Resume {
                socket: Mutex::new(super::socket::inode(&connections.heartbeat)),
                ..Resume::default()
            }),
            reexecution: connections.granted.reexecutes.map(Reexecution::new),
            heartbeat: Mutex::new(connections.heartbeat),
            failure: OnceLock::new(),
            failed: AtomicBool::new(false),
            closes: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// The address of the session's node.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    // ---- out -----------------------------------------------------------------

    /// Appends a command, and writes the queue once enough is queued. `wake` wakes the flusher if it
    /// sleeps. Callers that flush next need not wake it; a thread that [waits
    /// next](super::thread::waiting_next) never does.
    pub(super) fn append(&self, command: &impl EncodeCommand, wake: bool) -> Result<(), WireError> {
        // A transport thread must not wait for room: it may be the thread that makes room.
        let may_wait = !super::thread::is_ours();
        let wake = wake && !super::thread::waits_next();
        self.look_at(command.for_record());
        loop {
            self.check()?;
            match self.outbox.append(command, may_wait, wake)? {
                Appended::Queued => return Ok(()),
                Appended::WakeFlusher => {
                    self.flusher.wake();
                    return Ok(());
                }
                Appended::Write => return self.flush(),
                // `Full` is returned only if this thread may wait.
                Appended::Full => {
                    self.flush()?;
                    self.outbox.wait_until_open(|| !self.is_failed());
                }
            }
        }
    }

    /// Appends a command on any thread without waiting for room.
    pub(super) fn post(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        self.check()?;
        self.look_at(command.for_record());
        self.outbox.append(command, false, true)?;
        self.flusher.wake();
        Ok(())
    }

    /// Writes the queued commands on the calling thread. A transport thread leaves that to the flusher.
    pub(super) fn flush(&self) -> Result<(), WireError> {
        self.check()?;
        if super::thread::is_ours() {
            self.flusher.wake();
            return Ok(());
        }
        match self.write_out() {
            Ok(_) => Ok(()),
            Err(_) => self.check(),
        }
    }

    /// Writes the queued commands and returns whether there were any. An error fails the session.
    pub(super) fn write_out(&self) -> io::Result<bool> {
        let mut generation = 0;
        let result = self.outbox.write_with(|batch| {
            generation = self.generation();
            self.bulk.note_batch();
            self.carrier.write(batch)
        });
        // Eager bytes may leave once their commands have, unless a waiting thread has claimed them.
        self.bulk.kick();
        self.note_error(generation, result)
    }

    /// At the end of the process: writes the queued commands if that is possible within `patience`.
    pub(super) fn write_last(&self, patience: Duration) {
        if self.is_failed() {
            return;
        }
        let generation = self.generation();
        let result = self
            .outbox
            .write_within(patience, |batch| self.carrier.write_last(batch, patience));
        let _ = self.note_error(generation, result);
    }

    /// At the end of the session: writes the queued commands and tells the worker that nothing follows, if that is
    /// possible within `patience`. Otherwise the worker keeps the session for a while.
    pub(super) fn say_farewell(&self, patience: Duration) {
        if self.resume.is_none() || self.is_failed() || self.is_away() {
            return;
        }
        let write = |batch: &mut [u8]| self.carrier.write_last(batch, patience);
        if let Err(error) = self.outbox.write_farewell(patience, write) {
            tracing::debug!(%error, "the node was not told that its session ends");
        }
    }

    // The error of a session that can be resumed is no error of its callers.
    fn note_error(&self, generation: u64, result: io::Result<bool>) -> io::Result<bool> {
        match result {
            Err(error) if self.break_off(generation, super::socket::plain(&error)) => Ok(false),
            result => result,
        }
    }

    // ---- in ------------------------------------------------------------------

    /// Passes the contents of a batch on that came over the connection of this generation. Empties the batch, so that its
    /// vectors can be reused.
    ///
    /// # Errors
    /// The reason why the session is over: the batch cannot come from a correct worker, or the worker has
    /// given the reason.
    pub(super) fn handle_batch(
        &self,
        generation: u64,
        batch: &mut EventBatch,
    ) -> Result<(), String> {
        if !self.is_next(generation, batch.number)? {
            *batch = EventBatch::default();
            return Ok(());
        }
        if batch.applied > self.outbox.last() {
            return Err(format!(
                "the node reports that it applied command {}, which was not sent",
                batch.applied
            ));
        }
        self.pass_on(batch);
        self.outbox.applied(batch.applied);
        self.look_at_log();
        if self.outbox.replays() {
            self.flusher.wake();
        }
        (batch.applied, batch.number) = (0, 0);
        let copied = std::mem::take(&mut batch.checkpoint_bytes);
        let parks = self.handle_parking(std::mem::take(&mut batch.parking), copied)?;
        if let Some(resume) = &self.resume {
            resume.acknowledging.lock().window.end();
        }
        if parks {
            self.acknowledge();
            self.flusher.wake();
        } else {
            self.acknowledge_if_it_stands();
        }
        match std::mem::take(&mut batch.close_reason) {
            none if none.is_empty() => Ok(()),
            // The node says elsewhere whether the session may go on at other devices.
            close_reason if self.may_be_replaced() => {
                self.break_off(generation, close_reason);
                Ok(())
            }
            close_reason => {
                self.end_with(WireError::Ended {
                    address: self.address.clone(),
                    reason: close_reason.clone(),
                });
                Err(close_reason)
            }
        }
    }

    // Passes texts, notices, completions, states of links and answers on to those who wait for them.
    fn pass_on(&self, batch: &mut EventBatch) {
        // Output of `printf` must be shown before the completions of the same batch.
        for text in batch
            .printed
            .drain(..)
            .filter_map(|text| self.new_text(text))
        {
            self.events.printed(text);
        }
        for notice in batch.notices.drain(..) {
            if self.is_new_notice(&notice) {
                self.events.notice(notice);
            }
        }
        for completion in batch.completions.drain(..) {
            let event = EventId(completion.event);
            // The completion of a bulk transfer may have to wait for its bytes.
            let ended = self.bulk.completed(event, completion);
            if let Some(completion) = ended.completion {
                self.deliver(completion, ended.received);
            }
        }
        for state in batch.links.drain(..) {
            self.events.link_state(state);
        }
        for answer in batch.answers.drain(..) {
            let request = RequestId(answer.request);
            self.note_answer(request);
            if let Some(receiver) = self.requests.take(request) {
                receiver(Ok(answer));
                self.progress.advance(Change::Request(request));
            }
        }
    }

    // Handles how far the worker is with parking the session. Returns whether the worker has said anything. `copied`: the
    // length of a checkpoint that the worker has copied.
    fn handle_parking(&self, parking: i32, copied: u64) -> Result<bool, String> {
        match Parking::try_from(parking) {
            Ok(Parking::No) => return Ok(false),
            Ok(Parking::Stand) if self.outbox.stand() => {
                if let Some(resume) = &self.resume {
                    *resume.anew_with.lock() = None;
                }
                self.bulk.expect_end(true);
            }
            Ok(Parking::GoOn) => {
                self.bulk.expect_end(false);
                self.outbox.go_on();
            }
            Ok(Parking::Checkpoint) if self.cut() => {
                self.bulk.expect_end(false);
                self.outbox.go_on();
            }
            Ok(Parking::Unable) => {
                self.note_no_checkpoint();
                self.bulk.expect_end(false);
                self.outbox.go_on();
            }
            Ok(Parking::Copied) => self.decide_holder(copied)?,
            Ok(Parking::Checkpoint) => {
                return Err("the node has made a checkpoint of another state".to_owned());
            }
            Ok(Parking::Done) if self.outbox.stands() => {
                drop(self.abandon_checkpoint());
                self.break_off(self.generation(), PARKED.to_owned());
            }
            Ok(Parking::Stand | Parking::Done) | Err(_) => {
                return Err("the node parks a session that cannot be parked".to_owned());
            }
        }
        Ok(true)
    }

    /// Whether the daemon ends and may be started anew, or the session moves to another node.
    pub(super) fn may_restart(&self) -> bool {
        // Otherwise it stands for a checkpoint.
        self.granted.parks() && self.outbox.stands()
    }

    // Whether the batch with this number was not handled before. Events that both sides have are sent again after
    // a break.
    fn is_next(&self, generation: u64, number: u64) -> Result<bool, String> {
        match &self.resume {
            None => Ok(true),
            Some(resume) => {
                let mut acknowledging = resume.acknowledging.lock();
                acknowledging.window.is_next(generation, number)
            }
        }
    }

    /// Waits until `condition` holds, which `awaits` makes true. The caller must hold no lock that
    /// [`SessionEvents`] needs: this thread may be the one that calls it.
    pub(super) fn wait_until(&self, awaits: Change, condition: &dyn Fn() -> bool) {
        match &self.reader {
            Some(reader) => reader.wait_until(self, awaits, condition),
            None => self.progress.wait_until(awaits, condition),
        }
    }

    // ---- end -----------------------------------------------------------------

    /// Whether the session has failed. Its teardown may still be pending.
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Why the session is lost; set before the loss is reported to [`SessionEvents::lost`]. A caller that
    /// registers an object there and then sees `None` here knows that the report will include it.
    pub(super) fn loss(&self) -> Option<&WireError> {
        if self.lost.load(Ordering::SeqCst) {
            self.failure.get()
        } else {
            None
        }
    }

    /// Whether the session is over and the loss has been reported.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(super) fn failure(&self) -> Option<&WireError> {
        if self.is_failed() {
            self.failure.get()
        } else {
            None
        }
    }

    fn check(&self) -> Result<(), WireError> {
        match self.failure() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Fails the session; the first reason counts. Does not wait and calls no callback.
    pub(super) fn fail(&self, reason: String) {
        self.fail_first(reason);
    }

    /// Like [`Core::fail`]; returns whether this reason is the first.
    pub(super) fn fail_first(&self, reason: String) -> bool {
        self.end_with(WireError::Lost {
            address: self.address.clone(),
            reason,
        })
    }

    /// Ends the session for a reason that the node has given. If the session is already lost without a reason of
    /// the node, reports this one.
    pub(super) fn told(&self, reason: String) {
        let ended = WireError::Ended {
            address: self.address.clone(),
            reason: reason.clone(),
        };
        if !self.end_with(ended) && matches!(self.failure.get(), Some(WireError::Lost { .. })) {
            self.events.explained(&reason);
        }
    }

    /// Ends the session, because nothing uses it any more.
    pub(super) fn close(&self) {
        self.closes.store(true, Ordering::SeqCst);
        self.fail("the session was closed".to_owned());
    }

    /// Ends the session, because the program has disconnected the server.
    pub(super) fn disconnect(&self) {
        self.end_with(WireError::Disconnected {
            address: self.address.clone(),
        });
    }

    // Returns whether this error is the session's first.
    fn end_with(&self, error: WireError) -> bool {
        if self.failure.set(error).is_err() {
            return false;
        }
        // `failure` is set before `failed`, so whoever sees `failed` finds the reason.
        self.failed.store(true, Ordering::SeqCst);
        self.shut_down();
        true
    }

    /// Returns a guard that fails the session if the calling thread panics. A session without one of its
    /// threads would leave its waiting threads blocked.
    pub(super) fn guard(&self) -> Guard<'_> {
        Guard(self)
    }

    fn shut_down(&self) {
        self.outbox.close();
        self.carrier.shut_down();
        self.heartbeat.lock().shut_down();
        self.bulk.shut_down();
        self.flusher.wake();
        if let Some(reader) = &self.reader {
            reader.wake();
        }
    }

    /// Tears the session down; see the module. `reason` counts if no other thread has given one.
    pub(super) fn tear_down(&self, reason: String) {
        self.fail(reason);
        // Another thread may have set the reason and not yet shut the sockets.
        self.shut_down();
        self.bulk.wait_until_quiet();
        relay::end_all(self);
        if let Some(error) = self.failure.get() {
            self.report_loss(error);
            for receiver in self.requests.close() {
                receiver(Err(error.clone()));
            }
            // `lost` is set before the report, as `loss` promises; `over` after it, so waits end with all
            // results in place.
            self.lost.store(true, Ordering::SeqCst);
            self.events.lost(error);
        }
        self.over.store(true, Ordering::SeqCst);
        self.progress.advance(Change::Any);
    }

    // Tells the tool that the session is lost, unless the program or this library has ended it.
    fn report_loss(&self, error: &WireError) {
        let (WireError::Lost { reason, .. } | WireError::Ended { reason, .. }) = error else {
            return;
        };
        if self.closes.load(Ordering::SeqCst) || super::is_ending() {
            return;
        }
        let away = self.the_break().map(|broken| broken.since.elapsed());
        self.tool.report(Reported::Lost {
            reason: reason.clone(),
            away: away.unwrap_or_default(),
        });
    }
}

impl Owner for Core {
    fn bulk(&self) -> &Bulk {
        &self.bulk
    }

    fn fail(&self, reason: String) {
        Core::fail(self, reason);
    }

    fn shared_lane_ended(&self, reason: String) {
        if self.resume.is_none() {
            return Core::fail(self, reason);
        }
        // Before the generation is read: `go_on` looks at this after it has set the next generation.
        self.bulk.note_shared_lane_ended();
        self.break_off(self.generation(), reason);
    }

    fn uploaded(&self, event: EventId) {
        self.progress.advance(Change::Event(event));
    }

    fn sends(&self, event: EventId, source: &HostRegion, offset: u64, length: u64) {
        self.note_sent(event, source, offset, length);
    }

    fn digests(&self) -> bool {
        self.again().is_some()
    }

    fn completed(&self, completion: Completion, received: Option<Received>) {
        self.deliver(completion, received);
    }

    fn concluded(&self) {
        self.acknowledge_if_it_stands();
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("address", &self.address)
            .field("failure", &self.failure)
            .field("is_away", &self.is_away())
            .finish_non_exhaustive()
    }
}
