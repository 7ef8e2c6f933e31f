//! Holds a session's launches back while the driver has enough of its work, so that neighbours in its host get their
//! turn.
//!
//! - [`window`]: how much work the driver may have of a session, pure;
//! - this file: what the sessions of a host know of each other ([`Devices`]), a session on a device ([`Pace`]) with
//!   its queues ([`QueuePace`]), and unfinished work ([`Ticket`]).
//!
//! Only the thread that applies a session's commands is held back. Its client then waits for room on the connection,
//! as with a native driver whose queue is full. A session with several devices has one such thread, so a full window on
//! one of them delays the launches on the others. Threads that run what another thread has released are not held
//! back, because transfers of the session need them; their work counts.
//!
//! Where shares have a `time`, the supervisor says which lease has the turn ([`DeviceTurn`]).
//!
//! A session that is alone on its device pays three loads for each launch. Invariant: a session waits here only for
//! ends of its own commands, all of which are in the driver, and for its turn. The supervisor limits each turn by the
//! wall clock, and a hold that it does not renew ends by itself.
#![forbid(unsafe_code)]

mod window;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use causeway_proto::id::{DeviceIndex, PlatformIndex};
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::window::{Limit, Window};
use crate::accounting::{DeviceTurn, Launches};
use crate::runtime::watch::Unmarked;

/// Time in nanoseconds without a command after which a session counts as quiet.
const QUIET: u64 = 10_000_000;
/// How often a session that has no turn looks whether it has one.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// Most kinds of commands of one ticket that are learned from.
const KINDS: usize = 4;

/// A device of the node.
pub(crate) type DeviceKey = (PlatformIndex, DeviceIndex);

/// The devices that the sessions of a host use.
#[derive(Default)]
pub(crate) struct Devices(Mutex<HashMap<DeviceKey, Weak<SharedDevice>>>);

/// A device, as the sessions that have it know of each other.
#[derive(Default)]
struct SharedDevice {
    paces: Mutex<Vec<Weak<Pace>>>,
    /// The number of sessions.
    sessions: AtomicUsize,
    /// Those among them that have used the device lately.
    active: AtomicUsize,
    /// When to look next for sessions that have become quiet.
    look_at: AtomicU64,
    last_end: LastEnd,
}

/// When the latest end of a command was noticed, as of [`now`]. In a cache line of its own, because each end writes it.
#[derive(Default)]
#[repr(align(64))]
struct LastEnd(AtomicU64);

/// The estimated device time of a kind of command, in nanoseconds; 0: unknown.
#[derive(Debug, Default)]
pub(crate) struct Cost(AtomicU64);

/// A session on a device.
pub(crate) struct Pace {
    device: Arc<SharedDevice>,
    /// The session's turns, if its share has a `time`.
    turn: Option<DeviceTurn>,
    /// When the session last began or ended a command.
    used_at: AtomicU64,
    is_active: AtomicBool,
    state: Mutex<PaceState>,
    room: Condvar,
    replays: Arc<Cost>,
    /// The recent mean of all commands.
    mean: Cost,
}

#[derive(Default)]
struct PaceState {
    window: Window,
    waits: bool,
    is_over: bool,
}

/// A session's native queue on a device.
pub(crate) struct QueuePace {
    pace: Arc<Pace>,
    /// Number of unfinished commands. Changed under the lock of the session's state.
    commands: AtomicU32,
}

/// What a command has to wait for.
enum Obstacle {
    /// The window is full. The value is the limit without the window's growth.
    Full(Limit),
    /// Another lease has the turn, for this time unless the supervisor says otherwise.
    NoTurn(Duration),
}

/// The kind of a command that occupies a device.
pub(crate) enum Kind<'a> {
    /// A launch of a kernel with this cost.
    Launch(&'a Arc<Cost>),
    /// A replay of a command buffer.
    Replay,
    /// A copy or a fill of this many bytes on the device.
    Copy(u64),
}

/// Commands of a queue that the driver has and whose ends are noticed together. Their place in the window is
/// free again when this is dropped.
pub(crate) struct Ticket {
    queue: Arc<QueuePace>,
    commands: u32,
    /// The sum of the estimates.
    estimate: u64,
    /// When the first one began.
    begun: u64,
    /// The most that the estimates may add up to.
    part: u64,
    /// Their kinds, each with the estimate of one command. Kinds beyond [`KINDS`] are not learned from.
    kinds: [Option<(Arc<Cost>, u64)>; KINDS],
    /// Whether the time up to the end is that of another device, too.
    waits_elsewhere: bool,
}

/// Nanoseconds since the process first asked.
fn now() -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGUN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Devices {
    /// Adds a session to this device. `turn` if the session's share has a `time`.
    pub(crate) fn pace(&self, device: DeviceKey, turn: Option<DeviceTurn>) -> Arc<Pace> {
        let device = {
            let mut devices = self.0.lock();
            devices.retain(|_, device| device.strong_count() > 0);
            let known = devices.get(&device).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let shared = Arc::default();
                devices.insert(device, Arc::downgrade(&shared));
                shared
            })
        };
        Pace::new(device, turn)
    }
}

impl SharedDevice {
    /// Looks for sessions that have become quiet, at most once in [`QUIET`].
    fn look(&self, now: u64) {
        let at = self.look_at.load(Ordering::Relaxed);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let next = now.saturating_add(QUIET);
        if now < at || (self.look_at.compare_exchange(at, next, set, fetch)).is_err() {
            return;
        }
        self.paces.lock().retain(|pace| {
            let Some(pace) = pace.upgrade() else {
                return false;
            };
            if pace.is_quiet(now) && pace.is_active.swap(false, Ordering::Relaxed) {
                self.active.fetch_sub(1, Ordering::Relaxed);
            }
            true
        });
    }
}

impl Pace {
    fn new(device: Arc<SharedDevice>, turn: Option<DeviceTurn>) -> Arc<Pace> {
        let pace = Arc::new(Pace {
            device,
            turn,
            used_at: AtomicU64::new(0),
            is_active: AtomicBool::new(false),
            state: Mutex::default(),
            room: Condvar::new(),
            replays: Arc::default(),
            mean: Cost::default(),
        });
        pace.device.paces.lock().push(Arc::downgrade(&pace));
        pace.device.sessions.fetch_add(1, Ordering::Relaxed);
        pace
    }

    /// Returns the limit; `None` if nothing is held back.
    fn limit(&self) -> Option<Limit> {
        let sessions = self.device.sessions.load(Ordering::Relaxed);
        let limit = window::limit(sessions, self.device.active.load(Ordering::Relaxed));
        let of_turn = match self.turn.as_ref().map(DeviceTurn::launches) {
            None | Some(Launches::Free) => return limit,
            Some(Launches::BesideQuiet) => window::BESIDE_QUIET,
            Some(Launches::InTurn | Launches::Held(_)) => window::IN_TURN,
        };
        Some(limit.map_or(of_turn, |limit| limit.and(of_turn)))
    }

    /// Notes that the session uses the device.
    fn uses(&self, now: u64) {
        self.used_at.store(now, Ordering::Relaxed);
        if !self.is_active.load(Ordering::Relaxed) && !self.is_active.swap(true, Ordering::Relaxed)
        {
            self.device.active.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_quiet(&self, now: u64) -> bool {
        let state = self.state.lock();
        let used_at = self.used_at.load(Ordering::Relaxed);
        now.saturating_sub(used_at) >= QUIET && !state.waits && state.window.is_empty()
    }

    fn tell_waits(&self, waits: bool) {
        if let Some(turn) = &self.turn {
            turn.set_waits(waits);
        }
    }

    /// Ends the session's wait and all further ones, because the session ends.
    pub(crate) fn leave(&self) {
        self.state.lock().is_over = true;
        self.room.notify_all();
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        if *self.is_active.get_mut() {
            self.device.active.fetch_sub(1, Ordering::Relaxed);
        }
        self.device.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl QueuePace {
    /// Adds a queue of the session.
    pub(crate) fn new(pace: Arc<Pace>) -> Arc<QueuePace> {
        Arc::new(QueuePace {
            pace,
            commands: AtomicU32::new(0),
        })
    }

    /// Takes room for a command. With `flush`, waits until the session has room, and first calls `flush`, which has
    /// the driver begin everything that the session has enqueued, and report the ends. Returns `None` if nothing
    /// is measured, because the session is alone.
    pub(crate) fn enter(
        self: &Arc<QueuePace>,
        kind: &Kind<'_>,
        flush: Option<impl FnOnce()>,
    ) -> Option<Ticket> {
        let pace = &self.pace;
        if let Some(turn) = &pace.turn {
            turn.ask();
        }
        pace.limit()?;
        let begun = now();
        pace.uses(begun);
        pace.device.look(begun);
        let limit = pace.limit()?;
        let (cost, estimate) = self.estimate(kind, limit);
        let mut state = pace.state.lock();
        if let Some(flush) = flush
            && self.obstacle(&state, estimate).is_some()
        {
            drop(state);
            flush();
            state = pace.state.lock();
            self.wait(&mut state, estimate);
        }
        state.window.begin(estimate);
        self.commands.fetch_add(1, Ordering::Relaxed);
        let part = state.window.limit(limit).time / window::PARTS;
        drop(state);
        Some(Ticket {
            queue: Arc::clone(self),
            commands: 1,
            estimate,
            begun: now(),
            part,
            kinds: [
                cost.map(|cost| (Arc::clone(cost), estimate)),
                None,
                None,
                None,
            ],
            waits_elsewhere: false,
        })
    }

    /// Returns the estimated time of a command, and where to learn its real time.
    fn estimate<'a>(&'a self, kind: &'a Kind<'_>, limit: Limit) -> (Option<&'a Arc<Cost>>, u64) {
        let cost = match kind {
            Kind::Launch(cost) => *cost,
            Kind::Replay => &self.pace.replays,
            Kind::Copy(bytes) => return (None, window::copied(*bytes)),
        };
        let mean = || self.pace.mean.known();
        let known = cost.known().or_else(mean);
        let estimate = known.unwrap_or_else(|| window::unknown(limit));
        (Some(cost), estimate)
    }

    fn wait(&self, state: &mut MutexGuard<'_, PaceState>, estimate: u64) {
        let _unmarked = Unmarked::begin();
        let pace = &self.pace;
        state.waits = true;
        pace.tell_waits(true);
        while let Some(obstacle) = self.obstacle(state, estimate) {
            match obstacle {
                Obstacle::Full(limit) => {
                    pace.room.wait(state);
                    if self.has_room(state, estimate, limit) {
                        state.window.has_waited(estimate, limit);
                    }
                }
                Obstacle::NoTurn(time) => {
                    pace.room.wait_for(state, time.min(LOOK_EVERY));
                }
            }
        }
        state.waits = false;
        pace.tell_waits(false);
    }

    /// Returns what a command of this estimated time has to wait for.
    fn obstacle(&self, state: &PaceState, estimate: u64) -> Option<Obstacle> {
        if state.is_over {
            return None;
        }
        if let Some(turn) = &self.pace.turn
            && let Launches::Held(time) = turn.launches()
        {
            return Some(Obstacle::NoTurn(time));
        }
        let limit = self.pace.limit()?;
        (!self.has_room(state, estimate, limit)).then_some(Obstacle::Full(limit))
    }

    fn has_room(&self, state: &PaceState, estimate: u64, limit: Limit) -> bool {
        let in_queue = self.commands.load(Ordering::Relaxed);
        state.window.has_room(estimate, limit, in_queue)
    }

    fn give_back(&self, commands: u32, estimate: u64) {
        let mut state = self.pace.state.lock();
        state.window.end(commands, estimate);
        self.commands.fetch_sub(commands, Ordering::Relaxed);
        if state.waits {
            self.pace.room.notify_all();
        }
    }
}

impl Cost {
    fn known(&self) -> Option<u64> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            known => Some(known),
        }
    }

    fn learn(&self, now: u64, idle: bool) {
        if let Some(better) = window::adjusted(self.known(), now, idle) {
            self.0.store(better, Ordering::Relaxed);
        }
    }
}

impl Ticket {
    /// Whether the ends should be noticed before further commands are added: they fill a part of the window.
    pub(crate) fn is_full(&self) -> bool {
        self.estimate >= self.part
    }

    /// Notes that a command waits for one of another device in the driver, so its time is not known.
    pub(crate) fn waits_elsewhere(&mut self) {
        self.waits_elsewhere = true;
    }

    /// Adds commands whose ends are noticed together with these.
    pub(crate) fn add(&mut self, mut other: Ticket) {
        self.commands += other.commands;
        self.estimate = self.estimate.saturating_add(other.estimate);
        self.begun = self.begun.min(other.begun);
        self.waits_elsewhere |= other.waits_elsewhere;
        for (kind, estimate) in std::mem::take(&mut other.kinds).into_iter().flatten() {
            let is_it = |of: &Option<(Arc<Cost>, u64)>| {
                of.as_ref().is_none_or(|(of, _)| Arc::ptr_eq(of, &kind))
            };
            if let Some(place) = self.kinds.iter_mut().find(|of| is_it(of)) {
                *place = Some((kind, estimate));
            }
        }
        // Only `self` gives their room back.
        (other.commands, other.estimate) = (0, 0);
    }

    /// Notes that the commands have ended, and learns from that.
    pub(crate) fn end(self) {
        let now = now();
        let pace = &self.queue.pace;
        pace.used_at.store(now, Ordering::Relaxed);
        let previous = pace.device.last_end.0.swap(now, Ordering::Relaxed);
        if self.waits_elsewhere {
            return;
        }
        let measured = window::measured(self.begun, previous, now);
        let idle = window::was_idle(self.begun, previous);
        for (cost, estimate) in self.kinds.iter().flatten() {
            cost.learn(window::scaled(*estimate, self.estimate, measured), idle);
        }
        if self.kinds[0].is_some() {
            let mean = window::scaled(1, u64::from(self.commands), measured);
            pace.mean.learn(mean, idle);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.commands > 0 {
            self.queue.give_back(self.commands, self.estimate);
        }
    }
}

#[cfg(test)]
mod tests;
