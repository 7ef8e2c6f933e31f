//! How much unfinished work a session may have in the native driver. Pure.
//!
//! A driver serves what it has in an order of its own, often first come, first served. So the work that one session
//! has there delays every launch of its neighbours. A session with neighbours therefore keeps a *window* of
//! unfinished work in the driver, measured in estimated time. The rest waits in the session. A session without
//! neighbours has no window.
//!
//! Invariants: a session without unfinished work always has room, so no session starves. Of several queues each may
//! have one command, up to [`QUEUES`]. Where a command is longer than the window, the queue has one at a time, and the
//! device may wait between two of them until the end of the first is noticed: a second one would delay the neighbour
//! by its whole length.
#![forbid(unsafe_code)]

/// Window of a session whose neighbours are active, in nanoseconds. A neighbour's launch waits for the windows of all
/// others. A shorter window with more neighbours would hold fewer commands than it takes to notice an end, and the
/// device would wait. Where the end of a command is noticed late, the session runs out of work in the driver, and its
/// window grows.
const BESIDE_ACTIVE: u64 = 150_000;
/// The most to which a window grows.
const LARGEST: u64 = 5_000_000;
/// A window consists of this many parts. The end of each part is noticed.
pub(super) const PARTS: u64 = 4;
/// Most commands of a window, because estimates of short commands are inexact.
const COMMANDS: u32 = 1024;
/// Number of native queues of a session that may each have a command, whatever the window is.
const QUEUES: u32 = 16;
/// Shortest estimate, in nanoseconds.
const SHORTEST: u64 = 500;
/// Bytes that a device copies in a nanosecond, coarsely.
const COPIED: u64 = 50;

/// How much unfinished work a session may have in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// Estimated time, in nanoseconds.
    pub(super) time: u64,
    commands: u32,
}

/// Limit of a session whose neighbours are quiet. The first launch of a neighbour waits for these commands, and so
/// does the end of the session, which must not take long in a host.
pub(super) const BESIDE_QUIET: Limit = Limit {
    time: 20_000_000,
    commands: 256,
};

/// Limit of a session whose lease competes for turns: work that the driver has cannot be held back when the turn ends.
pub(super) const IN_TURN: Limit = Limit {
    time: LARGEST,
    commands: COMMANDS,
};

/// Returns the limit on a device that `sessions` sessions have, of which `active` use it, this one included.
/// `None`: the session is alone, and nothing is held back.
pub(super) fn limit(sessions: usize, active: usize) -> Option<Limit> {
    match (sessions, active) {
        (0 | 1, _) => None,
        (_, 0 | 1) => Some(BESIDE_QUIET),
        _ => Some(Limit {
            time: BESIDE_ACTIVE,
            commands: COMMANDS,
        }),
    }
}

impl Limit {
    /// Returns the limit that satisfies both.
    pub(super) fn and(self, other: Limit) -> Limit {
        Limit {
            time: self.time.min(other.time),
            commands: self.commands.min(other.commands),
        }
    }
}

/// Returns the estimated time of the first command of a session, when nothing is known yet.
pub(super) fn unknown(limit: Limit) -> u64 {
    limit.time / PARTS
}

/// Returns the estimated time of a copy or a fill of this many bytes.
pub(super) fn copied(bytes: u64) -> u64 {
    bytes / COPIED + SHORTEST
}

/// The unfinished work of a session on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    commands: u32,
    ahead: u64,
    /// To what the window has grown.
    grown: u64,
}

impl Window {
    /// Returns the session's limit where others have `limit`.
    pub(super) fn limit(&self, limit: Limit) -> Limit {
        Limit {
            time: limit.time.max(self.grown),
            ..limit
        }
    }

    /// Whether a command of this estimated time may go to the driver now. Its queue has `in_queue` unfinished ones.
    pub(super) fn has_room(&self, estimate: u64, limit: Limit, in_queue: u32) -> bool {
        let fits = || {
            let ahead = self.ahead.saturating_add(estimate);
            ahead <= self.limit(limit).time && self.commands < limit.commands
        };
        self.commands == 0 || (in_queue == 0 && self.commands < QUEUES) || fits()
    }

    /// Notes that a command of this estimated time has room now. The window grows if short commands have waited until
    /// the driver had none of the session: their ends were noticed too late.
    pub(super) fn has_waited(&mut self, estimate: u64, limit: Limit) {
        let time = self.limit(limit).time;
        if self.commands == 0 && estimate.saturating_mul(PARTS) <= time {
            self.grown = time.saturating_mul(2).min(LARGEST);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands == 0
    }

    pub(super) fn begin(&mut self, estimate: u64) {
        self.commands = self.commands.saturating_add(1);
        self.ahead = self.ahead.saturating_add(estimate);
    }

    /// Subtracts commands that have ended, with the sum of their estimates.
    pub(super) fn end(&mut self, commands: u32, estimate: u64) {
        self.commands = self.commands.saturating_sub(commands);
        self.ahead = self.ahead.saturating_sub(estimate);
        // The reason may have been a moment of a busy machine.
        self.grown -= self.grown / 256;
    }
}

/// Returns for how long commands that began at `begun` and have ended `now` have had the device, which noticed the
/// end of earlier work of any session at `previous`.
pub(super) fn measured(begun: u64, previous: u64, now: u64) -> u64 {
    now.saturating_sub(begun.max(previous))
}

/// Returns the time of a command that was estimated to take `estimate`. It was one of a group that was estimated to
/// take `expected` in all, and has taken `measured`.
pub(super) fn scaled(estimate: u64, expected: u64, measured: u64) -> u64 {
    let wide = u128::from(estimate) * u128::from(measured) / u128::from(expected.max(1));
    u64::try_from(wide).unwrap_or(u64::MAX).max(SHORTEST)
}

/// Whether the device may have been idle when commands that began at `begun` came. The arguments are those of
/// [`measured`].
pub(super) fn was_idle(begun: u64, previous: u64) -> bool {
    begun >= previous
}

/// Returns a better estimate for a kind of command, of which one has taken `now`. If the device was `idle` before,
/// `now` contains the time in which the end was noticed, and the estimate never grows.
pub(super) fn adjusted(known: Option<u64>, now: u64, idle: bool) -> Option<u64> {
    match (known, idle) {
        (None, true) => None,
        (None, false) => Some(now),
        (Some(known), true) => Some(known.min(now)),
        (Some(known), false) => Some(known - known / 8 + now / 8),
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
