//! State that the threads of one session share.
//!
//! A session ends in two steps. Any thread, also one of the application, may call [`Core::fail`]: it
//! stores the first reason and shuts every socket, nothing more. [`Core::tear_down`] tears the session down.
//! It runs once, on the thread that reads the command connection, after that connection has ended. It
//! waits until no thread touches the application's memory, answers the open requests, and reports the
//! loss. So losses are reported on a transport thread, like everything else.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causeway_proto::command::{Completion, EventBatch};
use causeway_proto::id::{EventId, RequestId};
use causeway_proto::status::WireError;
use causeway_security::Line;

use super::bulk::{Bulk, Guard, Owner, relay};
use super::carrier::Carrier;
use super::encode::EncodeCommand;
use super::events::SessionEvents;
use super::flusher::Flusher;
use super::outbox::{Appended, Outbox};
use super::reader::CommandReader;
use super::requests::Requests;
use super::wait::{Change, Progress};

/// The shared state of a session.
pub(super) struct Core {
    address: String,
    pub(super) outbox: Outbox,
    pub(super) flusher: Flusher,
    pub(super) requests: Requests,
    pub(super) progress: Progress,
    pub(super) bulk: Bulk,
    pub(super) events: Arc<dyn SessionEvents>,
    /// Present if waiting threads read the command connection; `None` if the carrier's own thread does.
    pub(super) reader: Option<CommandReader>,
    carrier: Box<dyn Carrier>,
    heartbeat: Arc<Line>,
    failure: OnceLock<WireError>,
    failed: AtomicBool,
    lost: AtomicBool,
    over: AtomicBool,
    applied: AtomicU64,
}

impl Core {
    pub(super) fn new(
        address: String,
        (carrier, reader): (Box<dyn Carrier>, Option<CommandReader>),
        heartbeat: Arc<Line>,
        bulk: Bulk,
        events: Arc<dyn SessionEvents>,
    ) -> Core {
        Core {
            address,
            outbox: Outbox::new(),
            flusher: Flusher::default(),
            requests: Requests::new(),
            progress: Progress::new(),
            bulk,
            events,
            reader,
            carrier,
            heartbeat,
            failure: OnceLock::new(),
            failed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            over: AtomicBool::new(false),
            applied: AtomicU64::new(0),
        }
    }

    // ---- out -----------------------------------------------------------------

    /// Appends a command, and writes the queue once enough is queued. `wake` wakes the flusher if it
    /// sleeps. Callers that flush next need not wake it; a thread that [waits
    /// next](super::thread::waiting_next) never does.
    pub(super) fn append(&self, command: &impl EncodeCommand, wake: bool) -> Result<(), WireError> {
        // A transport thread must not wait for room: it may be the thread that makes room.
        let may_wait = !super::thread::is_ours();
        let wake = wake && !super::thread::waits_next();
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
                Appended::Full => self.flush()?,
            }
        }
    }

    /// Appends a command on any thread without waiting for room.
    pub(super) fn post(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        self.check()?;
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
        let result = self.outbox.write_with(|batch| {
            self.bulk.note_batch();
            self.carrier.write(batch)
        });
        // Eager bytes may leave once their commands have, unless a waiting thread has claimed them.
        self.bulk.kick();
        self.note_error(result)
    }

    /// At the end of the process: writes the queued commands if that is possible within `patience`.
    pub(super) fn write_last(&self, patience: Duration) {
        if self.is_failed() {
            return;
        }
        let result = self
            .outbox
            .write_within(patience, |batch| self.carrier.write_last(batch, patience));
        let _ = self.note_error(result);
    }

    fn note_error<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.fail(super::socket::plain(error));
        }
        result
    }

    // ---- in ------------------------------------------------------------------

    /// Passes the contents of a batch on. Empties the batch, so that its vectors can be reused.
    ///
    /// # Errors
    /// The reason why the session is over: the batch cannot come from a correct worker, or the worker has
    /// given the reason.
    pub(super) fn handle_batch(&self, batch: &mut EventBatch) -> Result<(), String> {
        if batch.applied > self.outbox.last() {
            return Err(format!(
                "the node reports that it applied command {}, which was not sent",
                batch.applied
            ));
        }
        // Output of `printf` must be shown before the completions of the same batch.
        for text in batch.printed.drain(..) {
            self.events.printed(text);
        }
        for notice in batch.notices.drain(..) {
            self.events.notice(notice);
        }
        for completion in batch.completions.drain(..) {
            // The completion of a bulk transfer may have to wait for its bytes.
            if let Some(completion) = self.bulk.completed(EventId(completion.event), completion) {
                let change = Change::Event(EventId(completion.event));
                self.events.completed(completion);
                self.progress.advance(change);
            }
        }
        for state in batch.links.drain(..) {
            self.events.link_state(state);
        }
        for answer in batch.answers.drain(..) {
            let request = RequestId(answer.request);
            if let Some(receiver) = self.requests.take(request) {
                receiver(Ok(answer));
                self.progress.advance(Change::Request(request));
            }
        }
        self.applied.fetch_max(batch.applied, Ordering::Relaxed);
        batch.applied = 0;
        match std::mem::take(&mut batch.close_reason) {
            none if none.is_empty() => Ok(()),
            close_reason => {
                self.end_with(WireError::Ended {
                    address: self.address.clone(),
                    reason: close_reason.clone(),
                });
                Err(close_reason)
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
        self.carrier.shut_down();
        self.heartbeat.shut_down();
        self.bulk.shut_down();
        self.flusher.wake();
    }

    /// Tears the session down; see the module. `reason` counts if no other thread has given one.
    pub(super) fn tear_down(&self, reason: String) {
        self.fail(reason);
        // Another thread may have set the reason and not yet shut the sockets.
        self.shut_down();
        self.bulk.wait_until_quiet();
        relay::end_all(self);
        if let Some(error) = self.failure.get() {
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
}

impl Owner for Core {
    fn bulk(&self) -> &Bulk {
        &self.bulk
    }

    fn fail(&self, reason: String) {
        Core::fail(self, reason);
    }

    fn uploaded(&self, event: EventId) {
        self.events.uploaded(event);
        self.progress.advance(Change::Event(event));
    }

    fn completed(&self, completion: Completion) {
        let event = EventId(completion.event);
        self.events.completed(completion);
        self.progress.advance(Change::Event(event));
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("address", &self.address)
            .field("failure", &self.failure)
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}
