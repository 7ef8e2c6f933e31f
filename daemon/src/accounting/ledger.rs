//! A page in the supervisor: which slots are taken, and what those counted that are gone.
//!
//! Invariant: an [`Entry`] is dropped when its worker has been reaped, so a slot has one writer, and is empty when
//! it gets the next.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::page::Page;
use super::{Cause, Counter, Figures};

/// The page of a lease's sessions, or of one session.
#[derive(Debug)]
pub struct Ledger {
    page: Page,
    descriptor: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Taken slots, with the most that was read of each.
    taken: BTreeMap<usize, Figures>,
    /// Of sessions that are no more.
    past: Figures,
}

/// A session's slot, in the supervisor; given back when dropped.
#[derive(Debug)]
pub struct Entry {
    ledger: Arc<Ledger>,
    slot: usize,
}

impl Ledger {
    /// For so many sessions at once.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(sessions: u32) -> io::Result<Arc<Ledger>> {
        let (page, descriptor) = Page::make(sessions as usize)?;
        Ok(Arc::new(Ledger {
            page,
            descriptor,
            state: Mutex::default(),
        }))
    }

    /// A slot for one more session; `None`: there is none left.
    #[must_use]
    pub fn enter(self: &Arc<Ledger>) -> Option<Entry> {
        let mut state = self.state.lock();
        // The lowest, so that few are looked at where memory is limited.
        let slot = (0..self.page.slots()).find(|slot| !state.taken.contains_key(slot))?;
        state.taken.insert(slot, Figures::default());
        self.page.note_in_use(slot + 1);
        Some(Entry {
            ledger: Arc::clone(self),
            slot,
        })
    }

    /// What all its sessions have counted, those that are no more too.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut state = self.state.lock();
        let mut sum = state.past;
        for (slot, seen) in &mut state.taken {
            *seen = seen.most(Figures::read(self.page.slot(*slot)));
            sum = sum.plus(*seen);
        }
        sum
    }
}

impl Entry {
    /// What the session has counted.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut state = self.ledger.state.lock();
        let now = Figures::read(self.ledger.page.slot(self.slot));
        let seen = state.taken.entry(self.slot).or_default();
        *seen = seen.most(now);
        *seen
    }

    /// Why it ended, as its worker said; `None`: it did not come to say so.
    #[must_use]
    pub fn ending(&self) -> Option<Cause> {
        let slot = self.ledger.page.slot(self.slot);
        let said = slot[Counter::Ending as usize].load(Ordering::Relaxed);
        Cause::ALL.into_iter().find(|cause| *cause as u64 == said)
    }

    /// The slot's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        // As many as were asked for, which was a number of this type.
        self.slot as u32
    }

    /// The page, to be passed to the worker.
    #[must_use]
    pub fn page(&self) -> BorrowedFd<'_> {
        self.ledger.descriptor.as_fd()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let last = self.figures();
        for word in self.ledger.page.slot(self.slot) {
            word.store(0, Ordering::SeqCst);
        }
        let mut state = self.ledger.state.lock();
        state.taken.remove(&self.slot);
        state.past = state.past.plus(last);
    }
}
