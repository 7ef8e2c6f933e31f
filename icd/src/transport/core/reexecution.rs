//! Executes the session's commands again if the node puts another worker into the place of one that has died.
//!
//! The outbox retains the batches that were applied, and this module the bytes of bulk writes as they are sent, and what the
//! program was given ([`Given`]). The next worker gets all of it in the old order. It never gets a command before everything has come
//! again that the program knew when it appended the command. What comes again is compared and not given again.
//!
//! Two ends: the *protection* ends if the log is full or the session has something that cannot be executed again. The
//! program then goes on as without. The *session* ends if what comes again differs, if the worker has died twice at a
//! command, or if the node's daemon has ended four times during one.
//!
//! Invariant: between the loss of the connections and the next ones, no event batch and no lane of the worker before is
//! handled, so nothing of it arrives late.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_proto::bulk::CHECKPOINT;
use causeway_proto::command::command::Kind;
use causeway_proto::command::enqueue::Operation;
use causeway_proto::command::{self, Command, Completion, Notice};
use causeway_proto::id::{EventId, RequestId};
use causeway_proto::preamble::{REEXECUTES, WANTS_RECORD};
use causeway_proto::region::Region;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use twox_hash::XxHash3_128;

use super::copied::Pending;
use super::resuming::Resume;
use super::{Connected, Core, NotResumed};
use crate::config::{Hold, Survival};
use crate::transport::bulk::Received;
use crate::transport::bulk::memory::HostRegion;
use crate::transport::checkpoints::{Checkpoints, Interval};
use crate::transport::given::{Given, Gives, Item};
use crate::transport::kept::Impossible;
use crate::transport::outbox::{NotReplayed, Replayed};
use crate::transport::replay::{self, Suspects};
use crate::transport::sent_bytes::SentBytes;
use crate::transport::wait::Change;

/// A command at which this many workers have died is not executed again.
const DEATHS: u32 = 2;
/// The same for a build, which does not crash by itself. Most of the time in which commands are executed again may be for
/// builds, so somebody who kills workers meets the same one easily.
const DEATHS_AT_BUILDS: u32 = 4;
/// A command during which this many daemons have ended is not executed again. A daemon's end may have another cause, but a
/// command that takes the whole node down must not do so for ever.
const DAEMONS: u32 = 4;
/// How often a thread looks whether another one has handled its event batch, which takes microseconds.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What a session keeps to execute its commands again.
pub(in crate::transport) struct Reexecution {
    /// Bytes that may be kept.
    limit: usize,
    /// Why the commands cannot be executed again any more.
    ended: OnceLock<String>,
    pub(super) given: Mutex<Given>,
    pub(super) sent: Mutex<SentBytes>,
    deaths: Mutex<Deaths>,
    pub(super) opened: Instant,
    pub(super) checkpoints: Mutex<Checkpoints>,
    pub(super) hold: Hold,
    /// Bytes of the process's memory for checkpoints.
    pub(super) held: u64,
    /// The checkpoint whose bytes come. Locked before the locks of outbox and lanes.
    pub(super) pending: Mutex<Option<Pending>>,
}

/// The deaths of the session's workers.
#[derive(Default)]
struct Deaths {
    /// How many workers have died at a command, by its number.
    at: FxHashMap<u64, u32>,
    /// How many daemons have ended during a command, by its number.
    of_daemons: FxHashMap<u64, u32>,
    /// The incarnation of the present worker; 0: not known.
    present: u64,
}

impl Deaths {
    /// Whether the connections lead to another worker than before. A connection that breaks is no death.
    fn is_another(&mut self, incarnation: u64) -> bool {
        let before = std::mem::replace(&mut self.present, incarnation);
        incarnation == 0 || incarnation != before
    }
}

impl Reexecution {
    pub(super) fn new(survival: Survival) -> Reexecution {
        let Survival {
            mtbf,
            interval,
            hold,
            held,
            ..
        } = survival;
        let limit = usize::try_from(survival.log).unwrap_or(usize::MAX);
        Reexecution {
            limit,
            ended: OnceLock::new(),
            given: Mutex::default(),
            sent: Mutex::new(SentBytes::new(limit)),
            deaths: Mutex::default(),
            opened: Instant::now(),
            checkpoints: Mutex::new(Checkpoints::new(Interval { mtbf, interval })),
            hold,
            held,
            pending: Mutex::default(),
        }
    }

    // Frees what the log does not need any more. Only its lock is let go for that.
    pub(super) fn free(&self) {
        let freed = self.sent.lock().freed();
        drop(freed);
    }
}

fn length_of(region: Option<&command::Region>) -> Result<u64, String> {
    let region = region.ok_or("a transfer has no region")?;
    let region = Region::from_wire(region).map_err(|error| error.to_string())?;
    Ok(region.packed_length())
}

/// Returns why a session with this command is never executed again.
fn prevents(kind: &Kind) -> Option<&'static str> {
    match kind {
        Kind::CreateSvm(_) => {
            Some("the program uses shared virtual memory, whose addresses the driver chooses")
        }
        Kind::CreatePipe(_) => Some("the program uses a pipe"),
        Kind::CreateDeviceQueue(_) => Some("the program uses a device queue"),
        Kind::CreateCommandBuffer(_) => Some("the program uses a command buffer"),
        Kind::AddLink(_) | Kind::CreateMirror(_) | Kind::TellEvent(_) => {
            Some("a context has devices of several nodes or platforms")
        }
        _ => None,
    }
}

impl Core {
    // Present while the commands can be executed again.
    pub(super) fn again(&self) -> Option<&Reexecution> {
        let again = self.reexecution.as_ref();
        again.filter(|again| again.ended.get().is_none())
    }

    /// Whether any worker with equal devices can execute the commands again: from the first one on, or from a checkpoint
    /// that the program holds.
    pub(in crate::transport) fn begins_anywhere(&self) -> bool {
        let outbox = &self.outbox;
        self.again().is_some() && (outbox.last_cut() == 0 || outbox.holds_contents())
    }

    /// Whether equal devices may take the place of the node's if the session's lease loses these.
    pub(in crate::transport) fn may_be_replaced(&self) -> bool {
        self.granted.may_be_replaced && self.begins_anywhere()
    }

    /// Adds to the reason of a loss why the commands cannot be executed again elsewhere, if the program has asked for that.
    pub(in crate::transport) fn explain_lost_node(&self, reason: String) -> String {
        let Some(again) = &self.reexecution else {
            return reason;
        };
        let why = match again.ended.get() {
            Some(why) => format!("the program's commands cannot be executed again: {why}"),
            None if self.may_be_replaced() => "no equal devices were found in time (the device manager \
                says how long the program waits, unless `restart` is set in servers.toml)"
                .to_owned(),
            None if self.begins_anywhere() => return reason,
            None => "the last checkpoint was on that node; `hold = \"client\"` below [survival] in servers.toml has the \
                program hold checkpoints"
                .to_owned(),
        };
        format!("{reason}; {why}")
    }

    /// Looks at a command that is about to be appended.
    pub(super) fn look_at(&self, kind: Option<&Kind>) {
        if self.again().is_some()
            && let Some(why) = kind.and_then(prevents)
        {
            self.end_protection(why);
        }
    }

    /// Ends the protection; the first reason counts.
    pub(super) fn end_protection(&self, why: &str) {
        let Some(again) = self.again() else { return };
        if again.ended.set(why.to_owned()).is_err() {
            return;
        }
        self.outbox.lets_go();
        self.hold_back(false);
        // Nobody would send the rest again. `go_on_again` looks, too: one of both sees what the other has done, because
        // both lock the kept batches.
        if self.outbox.replays() {
            self.fail(self.not_again().to_string());
            return;
        }
        // Much memory, which is freed without the lock.
        let _sent = std::mem::replace(&mut *again.sent.lock(), SentBytes::closed());
        *again.given.lock() = Given::default();
        tracing::warn!(
            address = self.address,
            "the program's commands are not executed again if the node's process of the session dies: {why}"
        );
    }

    // Ends the protection if too much is kept.
    pub(super) fn look_at_log(&self) {
        let Some(again) = self.again().filter(|_| !self.outbox.replays()) else {
            return;
        };
        let bytes = self.kept_bytes(again);
        if bytes < again.limit / 4 * 3 {
            return;
        }
        let mut checkpoints = again.checkpoints.lock();
        if checkpoints.is_due(again.opened.elapsed(), bytes, again.limit) {
            self.outbox.ask_for_checkpoint();
            self.flusher.wake();
        }
        if checkpoints.comes() {
            // Under the lock, so that the checkpoint has not come meanwhile.
            self.hold_back(bytes > again.limit);
            drop(checkpoints);
            // As above, for the end of the protection.
            if self.again().is_none() {
                self.hold_back(false);
            }
            return;
        }
        // While the worker makes a checkpoint, a little more comes.
        let most = match checkpoints.is_asked() {
            true => again.limit / 4 * 5,
            false => again.limit,
        };
        let why = match checkpoints.is_refused() {
            true => {
                "the log of its commands is full (`log` in servers.toml), and the node makes no checkpoints of the session \
                 (its log says why)"
            }
            false => {
                "the log of its commands is full (`log` in servers.toml), and the node can make no checkpoint now"
            }
        };
        drop(checkpoints);
        if bytes > most {
            self.end_protection(why);
        }
    }

    fn kept_bytes(&self, again: &Reexecution) -> usize {
        self.outbox.retained_bytes() + again.given.lock().bytes() + again.sent.lock().bytes()
    }

    /// Asks for a checkpoint if the interval is over. Frees memory of the log that was not needed for some time.
    pub(in crate::transport) fn look_at_time(&self) {
        let Some(again) = self.again().filter(|_| !self.outbox.replays()) else {
            return;
        };
        let now = again.opened.elapsed();
        again.sent.lock().look(now);
        again.free();
        let bytes = self.kept_bytes(again);
        if again.checkpoints.lock().is_due(now, bytes, again.limit) {
            self.outbox.ask_for_checkpoint();
            self.flusher.wake();
        }
    }

    /// Handles that a checkpoint is whole. Returns false if the worker cannot have made it.
    pub(super) fn cut(&self) -> bool {
        let Some(again) = self.again() else {
            // The protection has ended since.
            return true;
        };
        let is_cut = self.outbox.cut();
        if is_cut {
            // What is open was enqueued behind the cut, and some of its bytes may have left before their command.
            self.bulk
                .with_uploads(|is_open| again.sent.lock().keep(is_open));
            again.free();
            again.given.lock().cut();
            again.checkpoints.lock().made(again.opened.elapsed());
        }
        is_cut
    }

    /// Handles that no checkpoint can be made of the session.
    pub(super) fn note_no_checkpoint(&self) {
        if let Some(again) = self.again() {
            again.checkpoints.lock().refused();
        }
    }

    // ---- what the node gives ---------------------------------------------------

    /// The part of a printed text that is to be shown.
    pub(super) fn new_text(&self, text: Bytes) -> Option<Bytes> {
        match self.again() {
            Some(again) => again.given.lock().handle_text(text),
            None => self.may_deliver().then_some(text),
        }
    }

    /// Whether what comes is the program's although the commands are not executed again any more: nothing of it came
    /// before.
    fn may_deliver(&self) -> bool {
        !self.outbox.replays()
    }

    /// Whether a notice is to be passed on.
    pub(super) fn is_new_notice(&self, notice: &Notice) -> bool {
        let Some(again) = self.again() else {
            return self.may_deliver();
        };
        again.given.lock().is_new_notice(notice)
    }

    /// Notes an answer.
    pub(super) fn note_answer(&self, request: RequestId) {
        if let Some(again) = self.again() {
            let mut given = again.given.lock();
            given.handle(Item::Answer(request.0), 0, None, self.outbox.last() + 1);
        }
    }

    /// Copies bytes of an upload that are about to be sent.
    pub(super) fn note_sent(&self, event: EventId, source: &HostRegion, offset: u64, length: u64) {
        let Some(again) = self.again() else { return };
        let place = again.sent.lock().place(event, source.length());
        // Before the copy touches memory that takes the place of this.
        again.free();
        match place {
            // Without the lock, so that lanes copy at the same time.
            Some(place) => place.copy(source, offset, length),
            None => self.end_protection("there is no memory for the log of its commands"),
        }
        self.look_at_log();
    }

    /// Passes the end of a command on, if the program does not know it. `received`: the bytes of a bulk read.
    pub(super) fn deliver(&self, completion: Completion, received: Option<Received>) {
        let event = EventId(completion.event);
        if let Some(again) = &self.reexecution {
            if event == CHECKPOINT {
                return self.checkpoint_has_come(again, completion.status);
            }
            if !self.is_new_end(&completion, received.as_ref()) {
                return;
            }
        }
        self.events.completed(completion);
        self.progress.advance(Change::Event(event));
    }

    fn is_new_end(&self, completion: &Completion, received: Option<&Received>) -> bool {
        let Some(again) = self.again() else {
            return self.may_deliver();
        };
        let digest = match received {
            Some(bytes) if completion.status >= 0 => match bytes.digest {
                Some(digest) => Some(digest),
                None => {
                    self.end_protection("the node sends the bytes of reads in unknown pieces");
                    return self.may_deliver();
                }
            },
            _ if !completion.contents.is_empty() => {
                Some(XxHash3_128::oneshot(&completion.contents))
            }
            _ => None,
        };
        let gives = {
            // Locked first, so that items get in in the order of the commands that may depend on them.
            let mut given = again.given.lock();
            let (item, next) = (Item::End(completion.event), self.outbox.last() + 1);
            given.handle(item, completion.status, digest, next)
        };
        if self.outbox.replays() {
            self.flusher.wake();
        }
        match gives {
            Gives::First => return true,
            Gives::Again => {}
            Gives::Different => {
                let what = (self.outbox)
                    .with_written(|kept| replay::describe(kept.written(), completion.event))
                    .flatten();
                let what = what.unwrap_or_else(|| "a command".to_owned());
                self.fail(format!(
                    "the node's process of the session died, and {what} gave another result when it was executed again; \
                     the program has seen the first one"
                ));
            }
        }
        false
    }

    // ---- another worker ----------------------------------------------------------

    /// Handles no event batch any more that comes over the present connection, which is broken. Does nothing if the next
    /// connection leads to the same worker, which sends again what was not handled.
    pub(super) fn stop_handling(&self, resume: &Resume) {
        // The client of a session that is parked stands. The next worker does not have the batch that says so.
        if self.again().is_none() && !self.outbox.stands() {
            return;
        }
        let next = resume.generation.load(Ordering::Acquire) + 1;
        while !self.is_failed() {
            let mut acknowledging = resume.acknowledging.lock();
            if acknowledging.window.is_idle() {
                acknowledging.window.skip_before(next);
                return;
            }
            drop(acknowledging);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// As [`Core::go_on`], with a worker in the place of one that has died.
    pub(super) fn go_on_again(
        &self,
        resume: &Resume,
        connected: Connected,
    ) -> Result<usize, NotResumed> {
        let cut = connected.position & !(WANTS_RECORD | REEXECUTES);
        let again = self.again().ok_or_else(|| self.not_again())?;
        let generation = resume.generation.load(Ordering::Acquire) + 1;
        self.stop_handling(resume);
        resume
            .acknowledging
            .lock()
            .window
            .begin_behind(connected.told);
        self.replace_heartbeat(resume, connected.heartbeat, connected.told);
        // Declared before the writer, so that its memory is freed without that lock.
        let _abandoned;
        // The outbox is closed, so after the last writer nobody writes before it is opened again.
        let writer = self.outbox.writer();
        _abandoned = self.abandon_checkpoint();
        // The connection may have broken before this worker was whole. Its lanes stay, with what they have carried.
        if !resume.is_anew_with(connected.incarnation) {
            self.begin_transfers_again(again);
            *resume.anew_with.lock() = Some(connected.incarnation);
        }
        self.replace_commands(resume, connected.commands, generation)?;
        let away = self.lock_unbroken(resume, generation)?;
        let is_another = again.deaths.lock().is_another(connected.incarnation);
        if is_another {
            self.note_death(again, connected.is_reopened)?;
        }
        self.check_cut(cut)?;
        self.outbox.reopen_again(writer);
        // See `end_protection`.
        if self.again().is_none() {
            return Err(self.not_again().into());
        }
        again.given.lock().begin_again();
        again.checkpoints.lock().begin_again();
        self.come_back(resume, away);
        tracing::warn!(
            address = self.address,
            "the node's process of the session died; another one executes the program's commands again"
        );
        Ok(self.outbox.retained_bytes())
    }

    // Compares the node's last checkpoint with that of the log.
    fn check_cut(&self, cut: u64) -> Result<(), Impossible> {
        // A checkpoint that the program holds counts, whatever the node has.
        if self.outbox.holds_contents() || self.outbox.last_cut() == cut {
            return Ok(());
        }
        // The worker before may have died before it could say that its last checkpoint is whole.
        match self.outbox.stands() && self.cut() && self.outbox.last_cut() == cut {
            true => Ok(()),
            false => Err(Impossible::NotRestored),
        }
    }

    /// Handles that the next worker begins with what was written when the session was parked, behind `position` commands.
    /// The node keeps that as a checkpoint. If the program holds one, the log behind that goes on.
    ///
    /// # Errors
    /// The worker before has applied something else.
    pub(super) fn begin_behind_park(&self, position: u64) -> Result<(), Impossible> {
        let Some(again) = self.again().filter(|_| self.outbox.stands()) else {
            return Ok(());
        };
        // The question may have been lost with the worker before.
        again.checkpoints.lock().begin_again();
        if self.outbox.holds_contents() {
            return Ok(());
        }
        self.outbox.skip_to(position)?;
        match self.cut() && self.outbox.last_cut() == position {
            true => Ok(()),
            false => Err(Impossible::NotRestored),
        }
    }

    // Begins all transfers anew. A write whose bytes were all sent takes the copied ones: a read may have overwritten its
    // memory since.
    fn begin_transfers_again(&self, again: &Reexecution) {
        (self.bulk).begin_again(|event| again.sent.lock().whole(event));
        // The others are sent again from the start.
        again.sent.lock().keep_whole();
        again.free();
    }

    fn not_again(&self) -> Impossible {
        let why = self
            .reexecution
            .as_ref()
            .and_then(|again| again.ended.get());
        Impossible::NotAgain(
            why.cloned()
                .unwrap_or_else(|| "this was not asked for".to_owned()),
        )
    }

    // Counts the death of the worker at the commands that it was executing. A worker that ends with its daemon dies at no
    // command.
    fn note_death(&self, again: &Reexecution, is_daemons: bool) -> Result<(), Impossible> {
        let given = again.given.lock();
        let looked = (self.outbox).with_written(|kept| Suspects::of(kept.written(), &given));
        drop(given);
        let damaged = |error: prost::DecodeError| Impossible::NotAgain(error.to_string());
        let running = looked
            .transpose()
            .map_err(damaged)?
            .unwrap_or_default()
            .running();
        let mut deaths = again.deaths.lock();
        for suspect in running {
            let (counts, most) = match (is_daemons, suspect.is_build) {
                (true, _) => (&mut deaths.of_daemons, DAEMONS),
                (false, true) => (&mut deaths.at, DEATHS_AT_BUILDS),
                (false, false) => (&mut deaths.at, DEATHS),
            };
            let count = counts.entry(suspect.number).or_default();
            *count += 1;
            if *count >= most {
                let what = suspect.what;
                return Err(Impossible::NotAgain(match is_daemons {
                    true => format!(
                        "the node's daemon ended {most} times during {what}, which is not executed once more"
                    ),
                    false => {
                        format!("it died {most} times at {what}, which is not executed once more")
                    }
                }));
            }
        }
        Ok(())
    }

    /// Sends commands of the worker before again, as far as possible now.
    pub(in crate::transport) fn replay(&self) {
        let Some(again) = self.again() else { return };
        let generation = self.generation();
        let replayed = self.outbox.replay(
            || again.given.lock().allowed(),
            |command| self.prepare(again, command),
            |batch| {
                self.bulk.note_batch();
                self.carrier.write(batch)
            },
        );
        match replayed {
            Ok(Replayed::Waits) => {}
            Ok(Replayed::All) => {
                tracing::info!(
                    address = self.address,
                    "the program's commands were executed again"
                );
            }
            Err(NotReplayed::Io(error)) => {
                self.break_off(generation, crate::transport::socket::plain(&error));
            }
            Err(NotReplayed::Command(why)) => self.fail(self.not_again_because(&why)),
        }
    }

    fn not_again_because(&self, why: &str) -> String {
        Impossible::NotAgain(why.to_owned()).to_string()
    }

    // Registers the transfer of a command that is about to be sent again.
    fn prepare(&self, again: &Reexecution, command: &mut Command) -> Result<(), String> {
        let Some(Kind::Enqueue(enqueue)) = &mut command.kind else {
            return Ok(());
        };
        let event = EventId(enqueue.event);
        match &mut enqueue.operation {
            Some(Operation::WriteBuffer(write)) if write.bulk => {
                let length = length_of(write.region.as_ref())?;
                let status = again.given.lock().status(Item::End(event.0));
                let has_failed = status.is_some_and(|status| status < 0);
                let sent = || {
                    let whole = again.sent.lock().whole(event);
                    // A write that has failed may have sent nothing. Then its bytes do not matter.
                    let zeros = || has_failed.then(|| HostRegion::zeroed(length)).flatten();
                    whole.or_else(|| zeros().map(Arc::new))
                };
                let is_open = (self.bulk.upload_again(event, sent))
                    .ok_or("the bytes of a write are not there any more")?;
                // One that has ended has no standing credit any more.
                write.eager &= is_open;
                Ok(())
            }
            Some(Operation::ReadBuffer(read)) if read.bulk => {
                let length = length_of(read.region.as_ref())?;
                match self.bulk.download_again(event, length) {
                    true => Ok(()),
                    false => Err("the bytes of a read do not fit into memory".to_owned()),
                }
            }
            _ => Ok(()),
        }
    }
}
