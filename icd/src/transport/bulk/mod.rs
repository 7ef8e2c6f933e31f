//! Bulk transfers: raw bytes between the application's memory and the worker.
//!
//! A session opens its lanes on a separate thread, so that no enqueue waits for them: ahead of need when
//! transfers are likely and the session is quiet, or with its first bulk transfer. The lanes use shared
//! memory where node and client share a host, and TCP elsewhere. Each lane has a reader and a writer.
//! Writers take chunks from one shared table, up to the credit that the worker has granted. Readers put
//! arriving bytes into the application's memory at once. No byte is copied on the way, except for rows
//! too short to be worth describing to a system call.
//!
//! A write of one chunk is mostly sent before the worker asks for it (`eager`): by the thread that waits
//! for it, or by a lane when the command leaves. The lanes also carry bytes of other sessions, where two
//! workers have no path to each other (`relay`).

mod attempts;
mod digest;
mod eager;
mod lane;
pub mod memory;
pub(super) mod relay;
pub mod rows;
mod table;
pub(super) mod warm;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_lane::Beside;
use causeway_proto::bulk::Header;
use causeway_proto::command::Completion;
use causeway_proto::id::{EventId, SessionId};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub use self::eager::EagerGrant;
use self::eager::StandingCredit;
use self::lane::Lane;
use self::memory::HostRegion;
use self::relay::{Piece, Relay, Relays, Side};
pub(super) use self::table::Received;
use self::table::{Chunk, Keep, TransferTable};
use super::gauge::{Direction, Gauge};
use super::rails::Rails;
use super::socket::{Dialer, RAIL_LIMIT};
use super::thread;
use crate::config::Compression;
use crate::host_clock::host_ns;
use crate::thread::Stack;
use crate::trace;
use crate::trace::record::{Moved, Record};

/// Time limit for a lane to leave the application's memory once its socket is shut. The lane only has to
/// return from a system call, which the shutdown ends.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// Why a rail does not work: its network.
pub(super) const PATH_DEAD: &str = "nothing arrives on this path any more";

/// The session that bulk connections belong to, as they see it.
pub(super) trait Owner: Send + Sync {
    /// Returns the session's bulk side.
    fn bulk(&self) -> &Bulk;

    /// Fails the session; the first reason counts. Does not wait and calls no callback.
    fn fail(&self, reason: String);

    /// Handles that a lane through shared memory has ended, which no other lane replaces. The session ends for the
    /// reason that the node gives. Does not wait and calls no callback.
    fn shared_lane_ended(&self, reason: String);

    /// Wakes the threads that wait for an upload, because its `keep` was dropped. The caller holds no lock.
    fn uploaded(&self, event: EventId);

    /// Reports that bytes of an upload are about to be sent. Once the worker has all of them, a read may overwrite their
    /// memory. The caller may hold the lock of a lane.
    fn sends(&self, event: EventId, source: &HostRegion, offset: u64, length: u64);

    /// Whether the bytes of downloads are digested as they come.
    fn digests(&self) -> bool;

    /// Reports a completion whose bytes are in place, and those of a download. The caller holds no lock.
    fn completed(&self, completion: Completion, received: Option<Received>);

    /// Handles that a completion was passed on, so that nothing is missing of its transfer. The caller holds no lock.
    fn concluded(&self);
}

/// Fails the session if the thread panics that holds the guard. A session without one of its threads would
/// leave its waiting threads blocked.
pub(super) struct Guard<'a>(pub(super) &'a dyn Owner);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(
                "a thread of the client's transport panicked; this is a bug in Causeway".to_owned(),
            );
        }
    }
}

/// The bulk side of a session.
pub(super) struct Bulk {
    dialer: Dialer,
    // Number of workers that have taken the place of another. Changed under the state's lock.
    worker_generation: AtomicU64,
    lane_count: u32,
    gauge: Arc<Gauge>,
    // Detects whether small commands share the network link with the lanes.
    beside: Beside,
    // Limit in bytes per second, over all lanes.
    most: Option<u64>,
    compression: Compression,
    // How long a lane may lack a connection while the session has one. Zero if lanes do not outlive their connections.
    resume: Duration,
    standing: StandingCredit,
    // Some bytes could be sent, and no lane has been woken for them.
    unsent: AtomicBool,
    // The flusher must open the lanes.
    must_open: AtomicBool,
    state: Mutex<BulkState>,
    work: Condvar,
    // Wakes the lanes without a connection, which must not take wake-ups from the others.
    reopening: Condvar,
    quiet: Condvar,
    // Transfers are likely to come.
    expected: AtomicBool,
    // The worker may end at any time, which is no error.
    ends: AtomicBool,
    // A lane through shared memory has ended, so the session cannot be resumed.
    shared_lane_ended: AtomicBool,
}

#[derive(Default)]
struct BulkState {
    table: TransferTable,
    relays: Relays,
    // Whether relays go first when both have items.
    relays_turn: bool,
    opened: bool,
    // A transfer depends on the lanes. Until then, failing to open them ahead of need is no error.
    needed: bool,
    // The session has no connections now, and lanes are not opened again.
    away: bool,
    lanes: Vec<Arc<Lane>>,
    // Number of completions that lanes are passing on. Their transfers have left the table.
    concluding: usize,
}

/// Settings of a node's bulk connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkSettings {
    /// Number of connections.
    pub(super) connections: u32,
    /// Limit in bytes per second over all connections, in each direction.
    pub(super) pacing: Option<u64>,
    /// Whether chunks are compressed, in each direction.
    pub(super) compression: Compression,
    /// For how long the session may have no connections; zero: not at all.
    pub(super) resume: Duration,
}

/// Bytes of an upload, for the thread that claimed them, with the lane to send them on.
pub(super) struct Claimed {
    lane: Arc<Lane>,
    chunk: Chunk,
}

/// What a completion has ended.
pub(super) struct EndedTransfer {
    /// The completion, if the application may be told.
    pub(super) completion: Option<Completion>,
    /// The bytes of a download.
    pub(super) received: Option<Received>,
    // Dropping it may send commands.
    _keep: Option<Keep>,
}

/// An item for a lane to send.
enum Item {
    /// A control message about a transfer between workers.
    Header(Header),
    /// Bytes of the application.
    Own(Chunk),
    /// Bytes of another worker.
    Relayed(Piece),
}

impl Bulk {
    /// The session whose transfers these are.
    pub(super) fn session(&self) -> SessionId {
        self.dialer.session
    }

    pub(super) fn new(dialer: Dialer, settings: BulkSettings, gauge: Arc<Gauge>) -> Bulk {
        let lane_count = settings.connections;
        let mut state = BulkState::default();
        if !settings.resume.is_zero() {
            state.table.send_again();
        }
        Bulk {
            dialer,
            worker_generation: AtomicU64::new(0),
            gauge,
            beside: Beside::default(),
            most: settings.pacing,
            compression: settings.compression,
            resume: settings.resume,
            lane_count: lane_count.clamp(1, causeway_proto::limits::MAX_BULK_CONNECTIONS),
            standing: StandingCredit::default(),
            unsent: AtomicBool::new(false),
            must_open: AtomicBool::new(false),
            state: Mutex::new(state),
            work: Condvar::new(),
            reopening: Condvar::new(),
            quiet: Condvar::new(),
            expected: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            shared_lane_ended: AtomicBool::new(false),
        }
    }

    /// Standing credit for an upload of `bytes` bytes, if there is enough.
    pub(super) fn grant(&self, bytes: u64) -> Option<EagerGrant> {
        self.standing.take(bytes)
    }

    /// Registers an upload. Returns false when the session is over. With a grant, [`Bulk::claim`] or
    /// [`Bulk::kick`] must follow the upload's command.
    pub(super) fn upload(
        &self,
        owner: &Arc<dyn Owner>,
        event: EventId,
        source: HostRegion,
        keep: Keep,
        eager: Option<EagerGrant>,
    ) -> bool {
        self.beside.note_transfer();
        let unsent = eager.is_some();
        let mut keep = Some(keep);
        let added = |state: &mut BulkState| state.table.add_upload(event, source, &mut keep, eager);
        let added = self.add(owner, added);
        if unsent {
            self.unsent.store(true, Ordering::Release);
        }
        added
    }

    /// For the thread that will wait for `event`: takes its bytes, if it is an upload that can be sent
    /// now. The caller must pass them to [`Bulk::send_claimed`].
    pub(super) fn claim(&self, event: EventId) -> Option<Claimed> {
        if !self.unsent.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        let mut usable = state.lanes.iter().filter(|lane| lane.is_connected());
        let lane = usable.next()?;
        // Prefers a lane that no thread is writing to.
        let free = |lane: &&Arc<Lane>| !lane.is_busy();
        let lane = if free(&lane) {
            Some(lane)
        } else {
            usable.find(free)
        }
        .unwrap_or(lane);
        let lane = Arc::clone(lane);
        let chunk = state.table.claim(event)?;
        if state.table.ready() == 0 {
            // No other upload waits, so the next `kick` has nothing to do.
            self.unsent.store(false, Ordering::Release);
        }
        Some(Claimed { lane, chunk })
    }

    /// Sends claimed bytes on the calling thread.
    pub(super) fn send_claimed(&self, owner: &dyn Owner, claimed: Claimed) {
        let Claimed { lane, chunk } = claimed;
        lane.send_now(owner, chunk);
    }

    /// Records that a batch of commands has left.
    pub(super) fn note_batch(&self) {
        self.beside.note_batch();
    }

    /// Wakes the lanes for uploads that can be sent and that no thread has claimed.
    pub(super) fn kick(&self) {
        if !self.unsent.load(Ordering::Acquire) || !self.unsent.swap(false, Ordering::AcqRel) {
            return;
        }
        match self.state.lock().table.ready() {
            0 => {}
            1 => drop(self.work.notify_one()),
            _ => drop(self.work.notify_all()),
        }
    }

    /// Registers a download. Returns false when the session is over.
    pub(super) fn download(
        &self,
        owner: &Arc<dyn Owner>,
        event: EventId,
        target: HostRegion,
    ) -> bool {
        self.beside.note_transfer();
        self.add(owner, |state| state.table.add_download(event, target))
    }

    /// Registers memory of the library's own for bytes that the worker sends. The lanes open with [`Bulk::open_if_needed`].
    pub(super) fn fetch(&self, event: EventId, target: Arc<HostRegion>) {
        let mut state = self.state.lock();
        state.needed |= state.table.add_fetch(event, target);
        self.must_open.store(!state.opened, Ordering::Release);
    }

    /// Forgets a fetch whose bytes do not come. A lane that is inside of its memory keeps that.
    pub(super) fn forget_fetch(&self, event: EventId) {
        let (_inside, nothing) = self.state.lock().table.withdraw(event);
        drop(nothing);
    }

    /// Whether lanes must be opened for a fetch. True once.
    pub(super) fn must_open(&self) -> bool {
        self.must_open.load(Ordering::Acquire) && self.must_open.swap(false, Ordering::AcqRel)
    }

    /// Bytes per second of recent large transfers, if there were any.
    pub(super) fn measured_rate(&self) -> Option<u64> {
        Some(self.gauge.bandwidth()).filter(|rate| *rate > 0)
    }

    // Calls `add`, which returns whether it added an item. Opens the lanes with the first item.
    fn add(&self, owner: &Arc<dyn Owner>, add: impl FnOnce(&mut BulkState) -> bool) -> bool {
        let mut state = self.state.lock();
        let added = add(&mut state);
        state.needed |= added;
        let opens = self.note_opened(&mut state, added);
        // If opening fails, it fails the session, which locks the state again.
        drop(state);
        if let Some(generation) = opens {
            lane::open_all(owner, false, generation);
        }
        added
    }

    /// Announces transfers: the lanes are opened when there is time for it. Opening them takes round
    /// trips and threads at both ends, for which the first transfer would have to wait.
    pub(super) fn expect(&self) {
        self.expected.store(true, Ordering::Relaxed);
    }

    /// Whether lanes are expected and nothing has begun to open them.
    pub(super) fn is_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed) && !self.state.lock().opened
    }

    /// Whether a transfer is in progress.
    pub(super) fn is_moving(&self) -> bool {
        self.state.lock().table.has_transfers()
    }

    /// Opens the lanes ahead of need, if that was [expected](Bulk::expect).
    pub(super) fn prepare(&self, owner: &Arc<dyn Owner>) {
        if !self.expected.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let is_open = !state.table.is_closed();
        let opens = self.note_opened(&mut state, is_open);
        drop(state);
        if let Some(generation) = opens {
            lane::open_all(owner, true, generation);
        }
    }

    // If lanes are wanted, notes that they are being opened. Returns their generation; `None` if nothing is to be opened.
    // Another worker may take the place of the present one as soon as the lock is free. Its lanes are opened separately.
    fn note_opened(&self, state: &mut BulkState, wants_lanes: bool) -> Option<u64> {
        let opens = wants_lanes && !std::mem::replace(&mut state.opened, true);
        opens.then(|| self.worker_generation())
    }

    // Called when a lane of this generation could not be opened. Returns whether the session can continue without it,
    // because no transfer needs the lanes yet. If no lane is open, the first transfer tries again.
    fn spare_lane(&self, lane: u32, generation: u64) -> bool {
        let mut state = self.state.lock();
        // These lanes ended with their worker, and say nothing of those to the next one.
        if self.worker_generation() != generation {
            return true;
        }
        if state.needed {
            return false;
        }
        state.opened = lane > 0;
        true
    }

    /// Forgets a transfer whose command was not sent. If sending failed halfway, a lane may still access
    /// its memory, and this waits until it has left. The wait is short: only a failed session fails like
    /// this, and its sockets are shut.
    pub(super) fn withdraw(&self, event: EventId) {
        let mut state = self.state.lock();
        let (inside, keep) = state.table.withdraw(event);
        if inside {
            self.wait_while_touched(&mut state);
        }
        drop(state);
        // Dropping `keep` may send commands, so the lock must be released first.
        drop(keep);
    }

    /// Processes a completion. Returns what the application may be told now.
    pub(super) fn completed(&self, event: EventId, completion: Completion) -> EndedTransfer {
        let outcome = (self.state.lock().table).handle_completion(event, completion);
        EndedTransfer {
            completion: outcome.completion,
            received: outcome.received,
            _keep: outcome.uploaded,
        }
    }

    // ---- the program's trace ---------------------------------------------------------

    // The moment at which a chunk begins to cross, if the program is traced.
    fn begin_traced(&self) -> Option<u64> {
        trace::is_on().then(host_ns)
    }

    // Reports a chunk that has crossed.
    fn trace(&self, begun: Option<u64>, event: EventId, bytes: u64, way: Direction) {
        let Some(begun) = begun else { return };
        trace::report(Record::Moved(Moved {
            node: trace::node(&self.dialer.address),
            event: event.0,
            is_out: way == Direction::Out,
            bytes,
            span: [begun, host_ns()],
        }));
    }

    // ---- between workers -----------------------------------------------------------

    /// Registers this session's worker as one side of a transfer between workers. Returns false when the
    /// session is over.
    fn add_relay(&self, owner: &Arc<dyn Owner>, side: Side, relay: &Arc<Relay>) -> bool {
        self.add(owner, |state| {
            let open = !state.table.is_closed();
            if open {
                state.relays.add(side, relay);
            }
            open
        })
    }

    fn relay_of(&self, transfer: EventId) -> Option<(Side, Arc<Relay>)> {
        self.state.lock().relays.of(transfer)
    }

    fn take_relays(&self) -> Vec<(Side, Arc<Relay>)> {
        self.state.lock().relays.take_all()
    }

    fn forget_relay(&self, transfer: EventId) {
        let forgotten = self.state.lock().relays.forget(transfer);
        drop(forgotten);
    }

    /// Sends a control message to the worker on any lane, if the session is not over.
    pub(super) fn send_header(&self, owner: &Arc<dyn Owner>, word: Header) {
        self.send_header_of(owner, None, word);
    }

    /// As [`Bulk::send_header`], with the acknowledgement of a lane. It is dropped if the lane has ended with its worker,
    /// because the lane's positions mean nothing to the next worker.
    fn send_header_of(&self, owner: &Arc<dyn Owner>, lane: Option<&Lane>, word: Header) {
        let mut is_late = false;
        let said = self.add(owner, |state| {
            // Lanes are retired under this lock.
            is_late = lane.is_some_and(Lane::is_retired);
            !is_late && !state.table.is_closed() && state.relays.send_header(word)
        });
        if said {
            self.work.notify_one();
        } else if !is_late {
            // If the session has failed before, its first reason stays.
            owner.fail("the node reads nothing from its bulk connections".to_owned());
        }
    }

    /// Queues another worker's bytes, if the session is not over.
    fn pass_on(&self, piece: Piece) {
        let mut state = self.state.lock();
        if !state.table.is_closed() {
            state.relays.pass_on(piece);
            drop(state);
            self.work.notify_one();
        }
    }

    // ---- breaks --------------------------------------------------------------------

    /// Breaks the connections of all lanes that can be resumed, because the session has no connection to its node.
    /// They are opened again after [`Bulk::alive`].
    pub(super) fn away(&self) {
        let lanes = {
            let mut state = self.state.lock();
            state.away = true;
            state.lanes.clone()
        };
        for lane in lanes {
            lane.break_off();
        }
    }

    /// Sets whether the worker may end at any time, because its daemon ends. A lane that ends is then no error.
    pub(super) fn expect_end(&self, ends: bool) {
        self.ends.store(ends, Ordering::Release);
    }

    /// Records that a lane through shared memory has ended.
    pub(super) fn note_shared_lane_ended(&self) {
        self.shared_lane_ended.store(true, Ordering::Release);
    }

    /// Whether a lane through shared memory has ended.
    pub(super) fn has_shared_lane_ended(&self) -> bool {
        self.shared_lane_ended.load(Ordering::Acquire)
    }

    /// Whether bytes of transfers are missing whose commands have ended.
    pub(super) fn awaits_bytes(&self) -> bool {
        let state = self.state.lock();
        state.table.awaits_bytes() || state.concluding > 0
    }

    /// Calls `act` with a function that tells which uploads are open. None begins or ends meanwhile.
    pub(super) fn with_uploads(&self, act: impl FnOnce(&dyn Fn(EventId) -> bool)) {
        let state = self.state.lock();
        act(&|event| state.table.has_upload(event));
    }

    /// Ends all lanes, because another worker has taken the place of the one before. Lanes open again with
    /// [`Bulk::open_if_needed`] or the next transfer. Returns whether bytes are missing that nobody has any more.
    pub(super) fn begin_anew(&self) -> bool {
        let mut state = self.state.lock();
        self.end_lanes(&mut state);
        state.table.begin_anew();
        state.opened = false;
        self.unsent
            .store(state.table.ready() > 0, Ordering::Release);
        state.table.awaits_bytes()
    }

    // Ends the lanes to a worker that has ended, and waits until they have left the application's memory. While this lets
    // go of the lock, nobody opens lanes to the next worker: they would carry on with the transfers of this one. The caller
    // says when lanes may open.
    fn end_lanes(&self, state: &mut MutexGuard<'_, BulkState>) {
        self.worker_generation.fetch_add(1, Ordering::AcqRel);
        state.opened = true;
        for lane in state.lanes.drain(..) {
            lane.retire();
        }
        // Acknowledgements of these lanes. A session with relays keeps its worker.
        state.relays.forget_headers();
        self.work.notify_all();
        self.reopening.notify_all();
        // The lanes have left the connection, so they leave the memory too.
        self.wait_while_touched(state);
        self.expect_end(false);
    }

    /// As [`Bulk::begin_anew`], if that worker gets all commands again.
    ///
    /// `sent`: the bytes of an upload that were all sent. Its memory may have other bytes by now.
    pub(super) fn begin_again(&self, sent: impl Fn(EventId) -> Option<Arc<HostRegion>>) {
        let mut state = self.state.lock();
        self.end_lanes(&mut state);
        self.wait_while_concluding(&mut state);
        // The lanes of the worker before have ended with it.
        self.shared_lane_ended.store(false, Ordering::Release);
        state.table.begin_again(sent);
        state.opened = false;
        self.unsent
            .store(state.table.ready() > 0, Ordering::Release);
    }

    /// Before a write is sent again: registers its bytes `sent`, unless the transfer is still open. Returns whether it is.
    pub(super) fn upload_again(
        &self,
        event: EventId,
        sent: impl FnOnce() -> Option<Arc<HostRegion>>,
    ) -> Option<bool> {
        let mut state = self.state.lock();
        if state.table.has_upload(event) {
            return Some(true);
        }
        let sent = sent()?;
        state.needed = true;
        state.table.add_again(event, sent);
        Some(false)
    }

    /// Before a read is sent again: registers memory of the library's own for its bytes, unless the transfer is still
    /// open. Returns false if there are too many bytes.
    pub(super) fn download_again(&self, event: EventId, length: u64) -> bool {
        let mut state = self.state.lock();
        if state.table.has_download(event) {
            return true;
        }
        let Some(aside) = HostRegion::zeroed(length) else {
            return false;
        };
        state.needed = true;
        state.table.add_download(event, aside)
    }

    /// The generation of the lanes, which grows when another worker takes the place of the one before. That worker
    /// accepts no lane of an earlier generation, whose positions mean nothing to it.
    pub(super) fn worker_generation(&self) -> u64 {
        self.worker_generation.load(Ordering::Acquire)
    }

    /// After [`Bulk::begin_anew`]: opens the lanes if transfers wait for them.
    pub(super) fn open_if_needed(&self, owner: &Arc<dyn Owner>) {
        let mut state = self.state.lock();
        let has_transfers = state.table.has_transfers();
        let opens = self.note_opened(&mut state, has_transfers);
        drop(state);
        if let Some(generation) = opens {
            lane::open_all(owner, false, generation);
        }
    }

    /// Whether lanes outlive their connections.
    fn resumes(&self) -> bool {
        !self.resume.is_zero()
    }

    /// Lets the lanes open again.
    pub(super) fn alive(&self) {
        self.state.lock().away = false;
        self.reopening.notify_all();
    }

    /// Waits for `pause`, and then until the session is not away. Returns false when the session is over.
    fn wait_to_open(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.state.lock();
        while !state.table.is_closed() {
            if state.away {
                self.reopening.wait(&mut state);
            } else if Instant::now() >= until
                || self.reopening.wait_until(&mut state, until).timed_out()
            {
                return !state.table.is_closed();
            }
        }
        false
    }

    /// The rails of the session.
    pub(super) fn rails(&self) -> &Rails {
        &self.dialer.rails
    }

    /// Looks whether the rails of the lanes work, and moves the lanes off a dead rail. Does not wait. Does nothing if
    /// the server has one rail.
    pub(super) fn look_at_rails(&self, owner: &Arc<dyn Owner>, now: Instant) {
        if !self.rails().are_several() {
            return;
        }
        let (lanes, is_moving) = {
            let state = self.state.lock();
            (state.lanes.clone(), state.table.has_transfers())
        };
        for lane in lanes {
            if lane.is_path_dead(now, is_moving) && self.rails().note_dead(lane.rail(), PATH_DEAD) {
                lane.break_off();
            }
        }
        if let Some(rail) = self.rails().due(now) {
            let owner = Arc::clone(owner);
            let try_it = move || owner.bulk().try_rail(rail);
            if let Err(error) = thread::spawn("cw-rail", Stack::Small, try_it) {
                tracing::debug!(%error, "cannot start a thread to try an address again");
            }
        }
    }

    // Tries a dead rail. If it works, the lanes are dealt anew.
    fn try_rail(&self, rail: usize) {
        if !(self.dialer).leads_to_worker(rail, 0, Instant::now() + RAIL_LIMIT) {
            return;
        }
        self.rails().note_works(rail);
        let lanes = self.state.lock().lanes.clone();
        let moves = |lane: &&Arc<Lane>| self.rails().of_lane(lane.number()) != lane.rail();
        for lane in lanes.iter().filter(moves) {
            lane.break_off();
        }
    }

    fn lane(&self, number: u8) -> Option<Arc<Lane>> {
        let state = self.state.lock();
        let found = state.lanes.iter().find(|lane| lane.number() == number);
        found.cloned()
    }

    // ---- the end -------------------------------------------------------------------

    /// Shuts the lanes down; nothing starts any more. May be called again.
    pub(super) fn shut_down(&self) {
        let mut state = self.state.lock();
        state.table.close();
        for lane in &state.lanes {
            lane.stream().shut_down();
        }
        self.work.notify_all();
        self.reopening.notify_all();
    }

    /// After [`Bulk::shut_down`]: waits until no lane accesses the application's memory, and lets go of what uploads kept.
    pub(super) fn wait_until_quiet(&self) {
        let mut state = self.state.lock();
        self.wait_while_touched(&mut state);
        let kept = state.table.let_go();
        drop(state);
        // Dropping them may send commands, so the lock must be released first.
        drop(kept);
    }

    // Waits until the lanes have passed on what the worker before has completed.
    fn wait_while_concluding(&self, state: &mut MutexGuard<'_, BulkState>) {
        let concluding = |state: &mut BulkState| state.concluding > 0;
        let waited = (self.quiet).wait_while_for(state, concluding, LEAVE_LIMIT);
        if waited.timed_out() {
            tracing::error!(
                address = self.dialer.address,
                "a bulk lane still passes on the end of a transfer after the time limit"
            );
        }
    }

    fn wait_while_touched(&self, state: &mut MutexGuard<'_, BulkState>) {
        let touched = |state: &mut BulkState| !state.table.is_quiet();
        if self
            .quiet
            .wait_while_for(state, touched, LEAVE_LIMIT)
            .timed_out()
        {
            tracing::error!(
                address = self.dialer.address,
                "a bulk lane still uses the application's memory after the time limit"
            );
        }
    }
}

impl BulkState {
    // Control messages go first; own bytes and relayed bytes alternate.
    fn next_item(&mut self) -> Option<Item> {
        if let Some(word) = self.relays.next_word() {
            return Some(Item::Header(word));
        }
        self.relays_turn = !self.relays_turn;
        if self.relays_turn
            && let Some(piece) = self.relays.next_piece()
        {
            return Some(Item::Relayed(piece));
        }
        let own = self.table.next_chunk().map(Item::Own);
        own.or_else(|| self.relays.next_piece().map(Item::Relayed))
    }
}
