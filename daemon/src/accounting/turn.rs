//! Turns on a device whose shares have a `time`: what a worker asks for, and until when the supervisor holds its
//! launches back.
//!
//! Both use the session's words for the device. Invariant: no turn is withheld for longer than the supervisor says anew,
//! so a supervisor that stops holds no launch back for ever.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::busy::{DeviceName, Word, now, words_of};
use super::{LedgerEntry, LedgerSlot};

/// Bit of [`Word::Asked`] that says that launches are held back. The other bits count launches.
const WAITS: u64 = 1;
const LAUNCH: u64 = 2;

/// The session's turns on one device, on the worker's side.
#[derive(Debug)]
pub struct DeviceTurn {
    slot: LedgerSlot,
    place: usize,
}

/// How launches on a device are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    /// Not at all: no other lease has sessions on the device.
    Free,
    /// The session may launch. Other leases have sessions, which are quiet.
    BesideQuiet,
    /// The session may launch, but other leases want the device too, or the lease's part is strict.
    InTurn,
    /// The session may launch nothing for this time, unless the supervisor says otherwise.
    Held(Duration),
}

/// Value of [`Word::HeldUntil`] for [`Launches::BesideQuiet`]; 0 stands for [`Launches::Free`]. Times are greater.
const BESIDE_QUIET: u64 = 1;
/// Value for [`Launches::InTurn`].
const IN_TURN: u64 = 2;

/// What a session wants on one device, on the supervisor's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// A count that grows with each launch.
    pub asked: u64,
    /// Whether launches are held back now.
    pub waits: bool,
    /// Whether commands are under way.
    pub is_under_way: bool,
    /// The session's part of the device's busy time, in nanoseconds.
    pub used: u64,
}

impl DeviceTurn {
    /// Returns the turns of the session with this slot, for a device in whose order [`super::Busy`] counts.
    #[must_use]
    pub fn of(slot: &LedgerSlot, device: DeviceName) -> Option<DeviceTurn> {
        let (place, words) = words_of(slot.words(), device)?;
        // Until the supervisor has looked, the lease may be a strict one.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = words[Word::HeldUntil as usize].compare_exchange(0, IN_TURN, set, fetch);
        Some(DeviceTurn {
            slot: slot.clone(),
            place,
        })
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        &self.slot.meter(self.place)[word as usize]
    }

    /// Counts a launch.
    pub fn ask(&self) {
        self.word(Word::Asked).fetch_add(LAUNCH, Ordering::Relaxed);
    }

    /// Notes whether launches are held back.
    pub fn set_waits(&self, waits: bool) {
        let asked = self.word(Word::Asked);
        match waits {
            true => asked.fetch_or(WAITS, Ordering::Relaxed),
            false => asked.fetch_and(!WAITS, Ordering::Relaxed),
        };
    }

    /// Returns how launches are held back. [`Launches::Free`] costs no look at the clock.
    #[must_use]
    pub fn launches(&self) -> Launches {
        match self.word(Word::HeldUntil).load(Ordering::Relaxed) {
            0 => Launches::Free,
            BESIDE_QUIET => Launches::BesideQuiet,
            IN_TURN => Launches::InTurn,
            until => match until.checked_sub(now()) {
                None | Some(0) => Launches::InTurn,
                Some(rest) => Launches::Held(Duration::from_nanos(rest)),
            },
        }
    }
}

impl LedgerEntry {
    /// Returns what the session wants on a device; `None` if its worker does not count for it yet.
    pub fn demand(&self, device: DeviceName) -> Option<Demand> {
        let (_, words) = words_of(self.words(), device)?;
        let word = |word: Word| words[word as usize].load(Ordering::Relaxed);
        let asked = word(Word::Asked);
        Some(Demand {
            asked: asked / LAUNCH,
            waits: asked & WAITS != 0,
            is_under_way: word(Word::UnderWay) > 0,
            used: word(Word::Used),
        })
    }

    /// Says how the session is to hold its launches on a device back.
    pub fn set_launches(&self, device: DeviceName, launches: Launches) {
        let Some((_, words)) = words_of(self.words(), device) else {
            return;
        };
        let until = match launches {
            Launches::Free => 0,
            Launches::BesideQuiet => BESIDE_QUIET,
            Launches::InTurn => IN_TURN,
            Launches::Held(time) => {
                let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                now().saturating_add(time)
            }
        };
        words[Word::HeldUntil as usize].store(until, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::{Busy, Ledger};

    #[test]
    fn the_supervisor_sees_demand_and_holds_back_for_a_time() {
        let ledger = Ledger::new(1).unwrap();
        let entry = ledger.enter().unwrap();
        let page = entry.page().try_clone_to_owned().unwrap();
        let slot = LedgerSlot::adopt(&page, entry.number()).unwrap();
        let device = DeviceName(1, 2);
        assert_eq!(entry.demand(device), None);
        assert!(DeviceTurn::of(&slot, device).is_none());
        let _busy = Busy::new(slot.clone(), [DeviceName(0, 0), device]);
        let turn = DeviceTurn::of(&slot, device).unwrap();
        assert_eq!(entry.demand(device), Some(Demand::default()));
        turn.ask();
        turn.set_waits(true);
        turn.ask();
        let demand = entry.demand(device).unwrap();
        assert!(demand.asked == 2 && demand.waits);
        turn.set_waits(false);
        assert!(!entry.demand(device).unwrap().waits);
        assert_eq!(turn.launches(), Launches::InTurn);
        entry.set_launches(device, Launches::Held(Duration::from_secs(60)));
        assert!(matches!(turn.launches(), Launches::Held(time) if time > Duration::from_secs(50)));
        for said in [Launches::Free, Launches::BesideQuiet, Launches::InTurn] {
            entry.set_launches(device, said);
            assert_eq!(turn.launches(), said);
        }
        // A hold ends by itself, because the supervisor may not come back.
        entry.set_launches(device, Launches::Held(Duration::from_nanos(1)));
        while turn.launches() != Launches::InTurn {}
        assert_eq!(entry.demand(DeviceName(1, 3)), None);
    }
}
