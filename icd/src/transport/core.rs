//! What the threads of one session share.
//!
//! A session ends in two steps. [`Core::fail`] may be called by any thread, the application's too: it
//! notes the first reason and shuts every socket, nothing more. [`Core::bury`] runs once, on the
//! thread that reads the commands' connection, when that has ended: it waits until nobody touches the
//! application's memory, answers the open requests, and tells the upper half. So the upper half hears
//! of a loss on a transport thread, like of everything else.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causeway_proto::command::EventBatch;
use causeway_proto::id::{EventId, RequestId};
use causeway_proto::status::WireError;
use causeway_security::Line;

use super::bulk::{Bulk, relay};
use super::carrier::Carrier;
use super::encode::EncodeCommand;
use super::events::SessionEvents;
use super::flusher::Flusher;
use super::outbox::{Appended, Outbox};
use super::reader::Inlet;
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
    /// Where the commands' connection is read by who waits; none where the carrier's thread does.
    pub(super) inlet: Option<Inlet>,
    carrier: Box<dyn Carrier>,
    pulse: Arc<Line>,
    failure: OnceLock<WireError>,
    failed: AtomicBool,
    lost: AtomicBool,
    over: AtomicBool,
    applied: AtomicU64,
}

impl Core {
    pub(super) fn new(
        address: String,
        (carrier, inlet): (Box<dyn Carrier>, Option<Inlet>),
        pulse: Arc<Line>,
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
            inlet,
            carrier,
            pulse,
            failure: OnceLock::new(),
            failed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            over: AtomicBool::new(false),
            applied: AtomicU64::new(0),
        }
    }

    // ---- out -----------------------------------------------------------------

    /// Appends a command; writes when enough is queued. `wake`: let the flusher know if it sleeps; not
    /// needed by who flushes next, as a thread [that waits next](super::thread::waiting_next) does.
    pub(super) fn append(&self, command: &impl EncodeCommand, wake: bool) -> Result<(), WireError> {
        // A transport thread only appends: it may be the one that makes room.
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
                // Told only to who may wait.
                Appended::Full => self.flush()?,
            }
        }
    }

    /// Appends a command on any thread without ever waiting for room.
    pub(super) fn post(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        self.check()?;
        self.outbox.append(command, false, true)?;
        self.flusher.wake();
        Ok(())
    }

    /// Writes what is queued, on the calling thread; on a transport thread it is left to the flusher.
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

    /// Writes what is queued and says whether there was any. An error has failed the session.
    pub(super) fn write_out(&self) -> io::Result<bool> {
        let result = self.outbox.write_with(|batch| {
            self.bulk.note_batch();
            self.carrier.write(batch)
        });
        self.bulk.kick();
        self.note_error(result)
    }

    /// For the process's end: writes if that is possible soon.
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

    /// Hands on what a batch brought. Empties it, so that its vectors can be used again.
    ///
    /// # Errors
    /// Why the session is over: no worker of ours can have sent it, or the worker says so.
    pub(super) fn handle_batch(&self, batch: &mut EventBatch) -> Result<(), String> {
        if batch.applied > self.outbox.last() {
            return Err(format!(
                "the node has applied command {}, which was not sent",
                batch.applied
            ));
        }
        for text in batch.printed.drain(..) {
            self.events.printed(text);
        }
        for notice in batch.notices.drain(..) {
            self.events.notice(notice);
        }
        for completion in batch.completions.drain(..) {
            // A bulk transfer's completion may have to wait for its bytes.
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
        match std::mem::take(&mut batch.farewell) {
            none if none.is_empty() => Ok(()),
            farewell => Err(farewell),
        }
    }

    /// Waits until `condition` holds, which `awaits` makes true. The caller holds no lock that the upper
    /// half wants when it hears of something: this thread may be the one that tells it.
    pub(super) fn wait_until(&self, awaits: Change, condition: &dyn Fn() -> bool) {
        match &self.inlet {
            Some(inlet) => inlet.wait_until(self, awaits, condition),
            None => self.progress.wait_until(awaits, condition),
        }
    }

    // ---- end -----------------------------------------------------------------

    /// Whether the session has failed. It may not be buried yet.
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Why it is lost, as soon as the upper half is being told: who registers something with the
    /// upper half and then sees `None` here knows that it will be found when that happens.
    pub(super) fn loss(&self) -> Option<&WireError> {
        if self.lost.load(Ordering::SeqCst) {
            self.failure.get()
        } else {
            None
        }
    }

    /// Whether the session is over: the upper half has been told.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Why it failed.
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

    /// Ends the session; the first reason counts. Does not wait and calls nobody.
    pub(super) fn fail(&self, reason: String) {
        self.fail_first(reason);
    }

    /// The same; says whether this reason is the first.
    pub(super) fn fail_first(&self, reason: String) -> bool {
        let error = WireError::Lost {
            address: self.address.clone(),
            reason,
        };
        if self.failure.set(error).is_err() {
            return false;
        }
        self.failed.store(true, Ordering::SeqCst);
        self.shut_down();
        true
    }

    /// Ends the session if the calling thread panics before it is dropped: a session with a thread
    /// missing would hang those who wait in it.
    pub(super) fn guard(&self) -> Guard<'_> {
        Guard(self)
    }

    fn shut_down(&self) {
        self.carrier.shut_down();
        self.pulse.shut_down();
        self.bulk.shut_down();
        self.flusher.wake();
    }

    /// The funeral; see the module. `reason` counts if no other thread has given one.
    pub(super) fn bury(&self, reason: String) {
        self.fail(reason);
        // Between the first reason and the shutting of the sockets another thread may be at work still.
        self.shut_down();
        self.bulk.wait_until_quiet();
        relay::end_all(self);
        if let Some(error) = self.failure.get() {
            for receiver in self.requests.close() {
                receiver(Err(error.clone()));
            }
            self.lost.store(true, Ordering::SeqCst);
            self.events.lost(error);
        }
        self.over.store(true, Ordering::SeqCst);
        self.progress.advance(Change::Any);
    }
}

/// See [`Core::guard`].
pub(super) struct Guard<'a>(&'a Core);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a transport thread panicked".to_owned());
        }
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
