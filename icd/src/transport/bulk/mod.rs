//! Bulk transfers: raw bytes between the application's memory and the worker.
//!
//! A session opens its lanes when transfers are likely and it is quiet, or with its first bulk transfer, on a
//! thread of their own, so that no enqueue waits for them: through shared memory where node and process share
//! a host, else TCP connections. Each lane has a reader and a writer. Writers pull chunks from one
//! shared table, up to the credit that the worker has granted; readers put what arrives into the
//! application's memory at once. No byte is copied on the way, but for rows too short to be worth a
//! system call's description.
//!
//! A write of one chunk is mostly sent before the worker asks for it (`eager`): by who waits for it, else
//! by a lane when the command leaves.
//!
//! The lanes carry what belongs to other sessions too, where two workers have no path to each other
//! (`relay`).

mod eager;
mod lane;
pub mod memory;
pub(super) mod relay;
pub mod rows;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_lane::Beside;
use causeway_proto::bulk::Header;
use causeway_proto::command::Completion;
use causeway_proto::id::EventId;
use parking_lot::{Condvar, Mutex, MutexGuard};

pub use self::eager::EagerGrant;
use self::eager::StandingCredit;
use self::lane::Lane;
use self::memory::HostRegion;
use self::relay::{Piece, Relay, Relays, Side};
use self::table::{Chunk, Keep, Table};
use super::core::Core;
use super::gauge::Gauge;
use super::socket::Door;
use crate::config::Compression;

/// How long a lane may need to leave the application's memory once its socket is shut: it only has to
/// return from a system call that the shutting ends.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// The bulk side of a session.
pub(super) struct Bulk {
    door: Door,
    lane_count: u32,
    gauge: Arc<Gauge>,
    // What says whether small commands share the link with the lanes.
    beside: Beside,
    // Never more than so many bytes a second, over all lanes.
    most: Option<u64>,
    compression: Compression,
    standing: StandingCredit,
    // There may be bytes that could be sent, of which no lane was told.
    unsent: AtomicBool,
    state: Mutex<State>,
    work: Condvar,
    quiet: Condvar,
    // Transfers are likely to come.
    expected: AtomicBool,
}

#[derive(Default)]
struct State {
    table: Table,
    relays: Relays,
    // Whose turn it is when both have something.
    relays_turn: bool,
    opened: bool,
    // A transfer depends on the lanes; before, they are opened ahead of need only.
    needed: bool,
    lanes: Vec<Arc<Lane>>,
}

/// What is set for a node's bulk connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    /// How many.
    pub(super) connections: u32,
    /// Bytes a second over all of them at most, each way.
    pub(super) pacing: Option<u64>,
    /// Whether chunks are compressed, each way.
    pub(super) compression: Compression,
}

/// Bytes of an upload, for the thread that claimed them, and the lane to send them on.
pub(super) struct Claimed {
    lane: Arc<Lane>,
    chunk: Chunk,
}

/// Something for a lane to send.
enum Item {
    /// About a transfer between workers.
    Word(Header),
    /// The application's bytes.
    Own(Chunk),
    /// Another worker's.
    Relayed(Piece),
}

impl Bulk {
    pub(super) fn new(door: Door, wishes: Wishes, gauge: Arc<Gauge>) -> Bulk {
        let lane_count = wishes.connections;
        Bulk {
            door,
            gauge,
            beside: Beside::default(),
            most: wishes.pacing,
            compression: wishes.compression,
            lane_count: lane_count.clamp(1, causeway_proto::limits::MAX_BULK_CONNECTIONS),
            standing: StandingCredit::default(),
            unsent: AtomicBool::new(false),
            state: Mutex::default(),
            work: Condvar::new(),
            quiet: Condvar::new(),
            expected: AtomicBool::new(false),
        }
    }

    /// Standing credit for an upload of so many bytes, if there is enough.
    pub(super) fn grant(&self, bytes: u64) -> Option<EagerGrant> {
        self.standing.take(bytes)
    }

    /// Registers an upload. False when the session is over. With a grant, [`Bulk::claim`] or [`Bulk::kick`]
    /// must follow its command.
    pub(super) fn upload(
        &self,
        core: &Arc<Core>,
        event: EventId,
        source: HostRegion,
        keep: Keep,
        eager: Option<EagerGrant>,
    ) -> bool {
        self.beside.note_transfer();
        let unsent = eager.is_some();
        let added = |state: &mut State| state.table.add_upload(event, source, keep, eager);
        let added = self.add(core, added);
        if unsent {
            self.unsent.store(true, Ordering::Release);
        }
        added
    }

    /// For the thread that will wait for `event`: its bytes, if it is an upload that can be sent now. To be
    /// given to [`Bulk::send_claimed`].
    pub(super) fn claim(&self, event: EventId) -> Option<Claimed> {
        if !self.unsent.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        let lane = state.lanes.first()?;
        // One that nobody writes to, if there is one.
        let free = state.lanes.iter().find(|lane| !lane.is_busy());
        let lane = Arc::clone(free.unwrap_or(lane));
        let chunk = state.table.claim(event)?;
        if state.table.ready() == 0 {
            self.unsent.store(false, Ordering::Release);
        }
        Some(Claimed { lane, chunk })
    }

    /// Sends what was claimed, on the calling thread.
    pub(super) fn send_claimed(&self, core: &Core, claimed: Claimed) {
        let Claimed { lane, chunk } = claimed;
        lane.send_now(core, chunk);
    }

    /// A batch of commands has left.
    pub(super) fn note_batch(&self) {
        self.beside.note_batch();
    }

    /// Tells the lanes of uploads that can be sent and that nobody has claimed.
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

    /// Registers a download. False when the session is over.
    pub(super) fn download(&self, core: &Arc<Core>, event: EventId, target: HostRegion) -> bool {
        self.beside.note_transfer();
        self.add(core, |state| state.table.add_download(event, target))
    }

    // Opens the lanes when `add`, which says whether it has, is the first that has something for them.
    fn add(&self, core: &Arc<Core>, add: impl FnOnce(&mut State) -> bool) -> bool {
        let mut state = self.state.lock();
        let added = add(&mut state);
        state.needed |= added;
        let first = added && !std::mem::replace(&mut state.opened, true);
        drop(state);
        if first {
            lane::open_all(core, false);
        }
        added
    }

    /// Transfers are likely to come: the lanes are opened when there is time for it. Opening them takes
    /// round trips and threads at both ends, which the first transfer would wait for.
    pub(super) fn expect(&self) {
        self.expected.store(true, Ordering::Relaxed);
    }

    /// Whether lanes are expected that nobody has begun to open.
    pub(super) fn is_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed) && !self.state.lock().opened
    }

    /// Whether there is a transfer that is not over.
    pub(super) fn is_moving(&self) -> bool {
        self.state.lock().table.has_transfers()
    }

    /// Opens the lanes ahead of need, if that was [expected](Bulk::expect).
    pub(super) fn prepare(&self, core: &Arc<Core>) {
        if !self.expected.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let first = !state.table.is_closed() && !std::mem::replace(&mut state.opened, true);
        drop(state);
        if first {
            lane::open_all(core, true);
        }
    }

    // The lanes could not be opened: whether the session can do without, because nothing needs them yet. If
    // there is none at all, the first transfer tries again.
    fn spare_lane(&self, lane: u32) -> bool {
        let mut state = self.state.lock();
        if state.needed {
            return false;
        }
        state.opened = lane > 0;
        true
    }

    /// Forgets a transfer whose command was not sent after all. Sending may have failed behind part of
    /// it; then a lane may be in its memory, and this waits until it has left. Short: only a session
    /// that has failed fails so, and that shuts the lanes' sockets.
    pub(super) fn withdraw(&self, event: EventId) {
        let mut state = self.state.lock();
        let (inside, keep) = state.table.withdraw(event);
        if inside {
            self.wait_while_touched(&mut state);
        }
        drop(state);
        // Letting go may send: not under the lock.
        drop(keep);
    }

    /// A completion has come: gives it back if the application may hear of it now.
    pub(super) fn completed(&self, event: EventId, completion: Completion) -> Option<Completion> {
        let outcome = {
            let mut state = self.state.lock();
            if !state.opened {
                return Some(completion);
            }
            state.table.handle_completion(event, completion)
        };
        outcome.completion
    }

    // ---- between workers -----------------------------------------------------------

    /// This session's worker is that side of a transfer between workers. False when the session is over.
    fn add_relay(&self, core: &Arc<Core>, side: Side, relay: &Arc<Relay>) -> bool {
        self.add(core, |state| {
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

    /// Says something to the worker, on some lane, if the session lives.
    pub(super) fn say(&self, core: &Arc<Core>, word: Header) {
        let said = self.add(core, |state| {
            !state.table.is_closed() && state.relays.say(word)
        });
        if said {
            self.work.notify_one();
        } else {
            // If it has failed before, that reason stays.
            core.fail("it takes nothing from its bulk connections".to_owned());
        }
    }

    /// Queues another worker's bytes, if the session lives.
    fn pass_on(&self, piece: Piece) {
        let mut state = self.state.lock();
        if !state.table.is_closed() {
            state.relays.pass_on(piece);
            drop(state);
            self.work.notify_one();
        }
    }

    // ---- the end -------------------------------------------------------------------

    /// Shuts the lanes; nothing begins any more. May be called again.
    pub(super) fn shut_down(&self) {
        let mut state = self.state.lock();
        state.table.close();
        for lane in &state.lanes {
            lane.stream().shut_down();
        }
        self.work.notify_all();
    }

    /// After [`Bulk::shut_down`]: waits until no lane is in the application's memory.
    pub(super) fn wait_until_quiet(&self) {
        self.wait_while_touched(&mut self.state.lock());
    }

    fn wait_while_touched(&self, state: &mut MutexGuard<'_, State>) {
        let touched = |state: &mut State| !state.table.is_quiet();
        if self
            .quiet
            .wait_while_for(state, touched, LEAVE_LIMIT)
            .timed_out()
        {
            tracing::error!(
                address = self.door.address,
                "a bulk lane does not leave the application's memory"
            );
        }
    }
}

impl State {
    // Words first; own bytes and others' take turns.
    fn next_item(&mut self) -> Option<Item> {
        if let Some(word) = self.relays.next_word() {
            return Some(Item::Word(word));
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
