//! Busy time: how long a device had commands under way, for each session and for the whole process.
//!
//! A command is under way from the moment at which its end is listened to until that end is noticed. Unobserved
//! commands count with the group whose end is observed. These times are counted for each session and device:
//!
//! - *busy*: the union of these intervals: how long the session had at least one command under way;
//! - *used*: an estimate of how long the device has worked for the session. Commands of several sessions overlap, but
//!   are taken to run one after the other. So the time since the device's previous end belongs to the session whose
//!   command ends now. The part of it in which this session had nothing under way belongs to the sessions that had,
//!   and goes to the next of them that ends a command;
//! - *added*: what the session's ends add to the union of all sessions' intervals. The sum over the sessions of a process
//!   is how long the process had the device busy.
//!
//! The counters lie in the session's slot. Invariant: intervals that are added to one counter are disjoint, because a
//! mark never moves back. Threads that race can shift an end by the time between two of their instructions.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{DEVICES, LedgerSlot, METERS};

/// Words of a slot for each device: a cache line.
pub(super) const WORDS: usize = 8;

/// Index of a word within those of a device.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Word {
    /// The device, as [`DeviceName::word`].
    Name = 0,
    UnderWay = 1,
    Mark = 2,
    Busy = 3,
    Used = 4,
    Added = 5,
    /// Launches that were asked for; see [`super::DeviceTurn`].
    Asked = 6,
    /// How launches are held back, as [`super::Launches`].
    HeldUntil = 7,
}

/// Index of a platform, and of a device in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(pub u32, pub u32);

impl DeviceName {
    // Zero is no device, because unused words are zero.
    fn word(self) -> u64 {
        (u64::from(self.0) << 32 | u64::from(self.1)).wrapping_add(1)
    }

    fn of_word(word: u64) -> Option<DeviceName> {
        let word = word.checked_sub(1)?;
        Some(DeviceName((word >> 32) as u32, word as u32))
    }
}

/// Returns the system's monotonic time in nanoseconds, which is the same in all processes.
pub(super) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Measures the union of intervals.
struct Meter<'a> {
    under_way: &'a AtomicU64,
    /// Up to which time the union is counted, while something is under way.
    mark: &'a AtomicU64,
}

impl Meter<'_> {
    fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) == 0
    }

    /// `now` is the time if the meter was idle.
    fn begin(&self, now: Option<u64>) {
        if let Some(now) = now {
            self.mark.fetch_max(now, Ordering::Relaxed);
        }
        // A reader that sees the interval under way sees the mark, too.
        self.under_way.fetch_add(1, Ordering::Release);
    }

    /// Returns the mark so far. The interval that ends `now` adds the time since then to the union.
    fn end(&self, now: u64) -> u64 {
        let mark = self.mark.fetch_max(now, Ordering::Relaxed);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        mark
    }
}

/// The commands that all sessions of this process have under way on a device.
#[derive(Debug, Default)]
pub struct DeviceMeter {
    /// Index of the device's words in each slot.
    place: usize,
    under_way: AtomicU64,
    mark: AtomicU64,
    /// Time that belongs to sessions whose commands are still under way.
    owed: AtomicU64,
}

impl DeviceMeter {
    /// Makes the meter of the device with this index among all devices of all platforms.
    #[must_use]
    pub fn new(place: usize) -> DeviceMeter {
        DeviceMeter {
            place,
            ..DeviceMeter::default()
        }
    }

    fn meter(&self) -> Meter<'_> {
        Meter {
            under_way: &self.under_way,
            mark: &self.mark,
        }
    }

    /// Returns what a session has used that ends a command `now`. The marks are those before this end.
    fn share(&self, mark: u64, of_session: u64, now: u64) -> u64 {
        let own = now.saturating_sub(mark.max(of_session));
        if of_session > mark {
            let of_others = of_session.min(now) - mark.min(now);
            self.owed.fetch_add(of_others, Ordering::Relaxed);
            return own;
        }
        let most = mark.min(now) - of_session.min(now);
        if most == 0 || self.owed.load(Ordering::Relaxed) == 0 {
            return own;
        }
        let take = |owed: u64| Some(owed - owed.min(most));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let owed = self.owed.fetch_update(set, fetch, take);
        own + owed.map_or(0, |owed| owed.min(most))
    }
}

/// Where a session counts its busy time, on the worker's side.
#[derive(Debug)]
pub struct Busy {
    slot: LedgerSlot,
    devices: usize,
}

impl Busy {
    /// Counts in `slot` for these devices, whose meters have the same order. Those after the first [`DEVICES`] are not
    /// counted.
    #[must_use]
    pub fn new(slot: LedgerSlot, devices: impl IntoIterator<Item = DeviceName>) -> Arc<Busy> {
        let mut count = 0;
        for (place, device) in devices.into_iter().take(DEVICES).enumerate() {
            slot.meter(place)[Word::Name as usize].store(device.word(), Ordering::Relaxed);
            count = place + 1;
        }
        Arc::new(Busy {
            slot,
            devices: count,
        })
    }

    /// Notes that a command, or a group that ends as one, is under way on a device.
    pub fn begin(&self, device: &DeviceMeter) {
        self.begin_at(device, now);
    }

    /// Notes the end of what [`Busy::begin`] has noted.
    pub fn end(&self, device: &DeviceMeter) {
        self.end_at(device, now());
    }

    fn begin_at(&self, device: &DeviceMeter, now: impl FnOnce() -> u64) {
        let Some(words) = self.words(device) else {
            return;
        };
        let (of_device, of_session) = (device.meter(), meter(words));
        let (idle, starts) = (of_device.is_idle(), of_session.is_idle());
        let now = (idle || starts).then(now);
        of_device.begin(now.filter(|_| idle));
        of_session.begin(now.filter(|_| starts));
    }

    fn end_at(&self, device: &DeviceMeter, now: u64) {
        let Some(words) = self.words(device) else {
            return;
        };
        // A reader that sees the time sees the mark, too, so it adds no time twice.
        let add = |word: Word, time| words[word as usize].fetch_add(time, Ordering::Release);
        let (mark, of_session) = (device.meter().end(now), meter(words).end(now));
        add(Word::Busy, now.saturating_sub(of_session));
        add(Word::Used, device.share(mark, of_session, now));
        add(Word::Added, now.saturating_sub(mark));
    }

    fn words(&self, device: &DeviceMeter) -> Option<&[AtomicU64]> {
        (device.place < self.devices).then(|| self.slot.meter(device.place))
    }

    /// Returns what this session has counted for a device.
    #[cfg(test)]
    fn of(&self, device: &DeviceMeter) -> DeviceTime {
        let words = self.words(device);
        words.map_or_else(DeviceTime::default, |words| DeviceTime::read(words, now()))
    }
}

fn meter(words: &[AtomicU64]) -> Meter<'_> {
    Meter {
        under_way: &words[Word::UnderWay as usize],
        mark: &words[Word::Mark as usize],
    }
}

/// The busy time of a session on one device, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTime {
    /// How long the session had commands under way, up to now.
    pub busy: u64,
    /// How long the device has worked for the session, by estimate, up to the session's latest end.
    pub used: u64,
    /// What the session has added to the time for which its process had the device busy, up to the session's latest end.
    pub added: u64,
    /// Time since the session's latest end, or since it began to be busy; 0 if nothing is under way. Already part of
    /// `busy`.
    pub waits: u64,
}

impl DeviceTime {
    fn read(words: &[AtomicU64], now: u64) -> DeviceTime {
        let word = |word: Word| words[word as usize].load(Ordering::Acquire);
        // Read before the mark; see `Busy::end_at`.
        let (busy, used, added) = (word(Word::Busy), word(Word::Used), word(Word::Added));
        let waits = match word(Word::UnderWay) {
            0 => 0,
            _ => now.saturating_sub(word(Word::Mark)),
        };
        DeviceTime {
            busy: busy.saturating_add(waits),
            used,
            added,
            waits,
        }
    }
}

/// Reads the busy times in a slot, by device.
pub(super) fn read(slot: &[AtomicU64]) -> impl Iterator<Item = (DeviceName, DeviceTime)> + '_ {
    let now = now();
    slot[METERS..].chunks_exact(WORDS).map_while(move |words| {
        let name = words[Word::Name as usize].load(Ordering::Relaxed);
        Some((DeviceName::of_word(name)?, DeviceTime::read(words, now)))
    })
}

/// Finds the words of a device in a slot, and their place among the devices.
pub(super) fn words_of(slot: &[AtomicU64], device: DeviceName) -> Option<(usize, &[AtomicU64])> {
    let words = slot[METERS..].chunks_exact(WORDS).enumerate();
    let is_it =
        |words: &[AtomicU64]| words[Word::Name as usize].load(Ordering::Relaxed) == device.word();
    words.into_iter().find(|(_, words)| is_it(words))
}

#[cfg(test)]
#[path = "busy_tests.rs"]
mod tests;
