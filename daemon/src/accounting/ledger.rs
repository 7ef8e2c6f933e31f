//! The supervisor's side of a page: which slots are taken, and the totals of sessions that have ended.
//!
//! Invariant: a [`LedgerEntry`] is dropped, and begins anew, only after its worker has been reaped, or its host has released the
//! session. A slot therefore has one writer at a time, and is zero when the next session or worker gets it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::busy::{self, DeviceName, DeviceTime};
use super::page::Page;
use super::{Cause, Counter, Figures};

/// The page of one lease's sessions, or of one session.
#[derive(Debug)]
pub struct Ledger {
    page: Page,
    descriptor: OwnedFd,
    state: Mutex<LedgerState>,
}

#[derive(Debug, Default)]
struct LedgerState {
    /// Taken slots, each with the highest figures read so far.
    taken: BTreeMap<usize, Figures>,
    /// Totals of sessions that have ended.
    past: Figures,
}

/// A session's slot, on the supervisor's side; freed when dropped.
#[derive(Debug)]
pub struct LedgerEntry {
    ledger: Arc<Ledger>,
    slot: usize,
}

impl Ledger {
    /// Makes a page with slots for `sessions` simultaneous sessions.
    pub fn new(sessions: u32) -> io::Result<Arc<Ledger>> {
        let (page, descriptor) = Page::make(sessions as usize)?;
        Ok(Arc::new(Ledger {
            page,
            descriptor,
            state: Mutex::default(),
        }))
    }

    /// Takes a slot for one more session; `None` if all slots are taken.
    #[must_use]
    pub fn enter(self: &Arc<Ledger>) -> Option<LedgerEntry> {
        let mut state = self.state.lock();
        // Takes the lowest free slot: each check of a memory limit reads all slots up to the highest one
        // ever used.
        let slot = (0..self.page.slots()).find(|slot| !state.taken.contains_key(slot))?;
        state.taken.insert(slot, Figures::default());
        // Recorded before the worker gets the slot: from its first reservation on, all other sessions must
        // read this slot.
        self.page.note_in_use(slot + 1);
        Some(LedgerEntry {
            ledger: Arc::clone(self),
            slot,
        })
    }

    /// Returns the totals of all sessions, including those that have ended.
    pub fn figures(&self) -> Figures {
        let mut state = self.state.lock();
        let mut sum = state.past;
        for (slot, seen) in &mut state.taken {
            // A worker could decrease its counters. The maximum keeps the totals monotonic.
            *seen = seen.most(Figures::read(self.page.slot(*slot)));
            sum = sum.plus(*seen);
        }
        sum
    }
}

impl LedgerEntry {
    /// Returns the figures of this session.
    pub fn figures(&self) -> Figures {
        let mut state = self.ledger.state.lock();
        let now = Figures::read(self.ledger.page.slot(self.slot));
        let seen = state.taken.entry(self.slot).or_default();
        *seen = seen.most(now);
        *seen
    }

    /// Returns the busy times of this session, by device. A worker could decrease them.
    pub fn busy(&self) -> impl Iterator<Item = (DeviceName, DeviceTime)> + '_ {
        busy::read(self.ledger.page.slot(self.slot))
    }

    /// Returns why the session ended, as its worker recorded; `None` if the worker recorded nothing.
    pub fn ending(&self) -> Option<Cause> {
        let slot = self.ledger.page.slot(self.slot);
        let said = slot[Counter::Ending as usize].load(Ordering::Relaxed);
        Cause::ALL.into_iter().find(|cause| *cause as u64 == said)
    }

    /// Returns the words of the slot.
    pub(super) fn words(&self) -> &[AtomicU64] {
        self.ledger.page.slot(self.slot)
    }

    /// Returns whether commands or builds of the session are in progress, or were when its worker ended.
    pub fn is_busy(&self) -> bool {
        let slot = self.ledger.page.slot(self.slot);
        [Counter::UnderWay, Counter::Building]
            .iter()
            .any(|of| slot[*of as usize].load(Ordering::Relaxed) > 0)
    }

    /// Empties the slot for the next worker of the session. What was counted belongs to the past. The worker before must
    /// have ended.
    pub fn begin_anew(&mut self) {
        let last = self.figures();
        self.clear();
        let mut state = self.ledger.state.lock();
        state.taken.insert(self.slot, Figures::default());
        state.past = state.past.plus(last);
    }

    // The worker has ended, so nothing else writes to the slot. The slot is cleared while it still counts as taken.
    fn clear(&self) {
        for word in self.ledger.page.slot(self.slot) {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Returns the slot's number.
    pub fn number(&self) -> u32 {
        // The number of slots came from a `u32`, so the slot's number fits.
        self.slot as u32
    }

    /// Returns the page's descriptor, which is passed to the worker.
    pub fn page(&self) -> BorrowedFd<'_> {
        self.ledger.descriptor.as_fd()
    }
}

impl Drop for LedgerEntry {
    fn drop(&mut self) {
        let last = self.figures();
        self.clear();
        let mut state = self.ledger.state.lock();
        state.taken.remove(&self.slot);
        state.past = state.past.plus(last);
    }
}
