//! What sessions use, where their workers count it and the supervisor sees it: memory that both have mapped.
//!
//! A [`Ledger`] is a page with a slot for each session of one lease (without a device manager: of one session). A
//! worker has its session's [`Slot`] and adds to it with relaxed atomics; the supervisor reads it when somebody asks,
//! and takes what is there into the ledger when the worker has been reaped. So counting costs no message, and what a
//! worker counted outlives it, however it ends.
//!
//! The slots also have what each session holds of each leased device's memory, which is how a limit holds for a
//! lease as a whole ([`Slot::hold`]).
//!
//! What it is not: it is no protection from a worker that somebody has taken over, which can write what it likes into
//! the page of its own lease; others' pages it does not have. Invariants: totals never become less; the slot of a
//! worker that is gone is empty.
#![deny(unsafe_code)]

mod ledger;
mod page;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use page::{Page, SLOT};

pub use ledger::{Entry, Ledger};
pub use page::Unfit;

/// Devices of which a slot counts memory.
pub const DEVICES: usize = crate::handover::MAX_LEASED;

/// What a worker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Commands applied.
    Commands = 0,
    /// Builds that were asked of the node's OpenCL: built, compiled or linked.
    Builds = 1,
    /// Builds that came from the build cache instead.
    CachedBuilds = 2,
    /// Why the worker ends: not a count, see [`Slot::note_ending`].
    Ending = 3,
    /// Connections that did not prove what they had to.
    Refused = 4,
    // The next ones are in another cache line than the commands, which one thread counts all the time.
    /// Bytes of bulk transfers from the client.
    FromClient = 8,
    /// To the client.
    ToClient = 9,
    /// From other nodes' workers.
    FromNodes = 10,
    /// To them.
    ToNodes = 11,
}

/// Where in a slot the devices' memory begins.
const HELD: usize = 16;
const _: () = assert!(HELD + DEVICES <= SLOT);

/// How often an allocation is tried that others of the lease are in the way of for a moment.
const ATTEMPTS: usize = 64;

/// Why a session's worker says that it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Cause {
    /// The client closed the session.
    ClientClosed = 1,
    /// A connection to the client broke, or it was silent for too long.
    ClientLost = 2,
    /// The client broke the protocol.
    Violation = 3,
    /// The client opened a session and did not come.
    NeverConnected = 4,
    /// The supervisor ended it.
    ToldToEnd = 5,
    /// Something here is broken.
    Broken = 6,
}

impl Cause {
    const ALL: [Cause; 6] = [
        Cause::ClientClosed,
        Cause::ClientLost,
        Cause::Violation,
        Cause::NeverConnected,
        Cause::ToldToEnd,
        Cause::Broken,
    ];
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// [`Counter::Commands`].
    pub commands: u64,
    /// [`Counter::Builds`].
    pub builds: u64,
    /// [`Counter::CachedBuilds`].
    pub cached_builds: u64,
    /// [`Counter::Refused`].
    pub refused: u64,
    /// [`Counter::FromClient`].
    pub from_client: u64,
    /// [`Counter::ToClient`].
    pub to_client: u64,
    /// [`Counter::FromNodes`].
    pub from_nodes: u64,
    /// [`Counter::ToNodes`].
    pub to_nodes: u64,
}

impl Figures {
    fn read(slot: &[AtomicU64]) -> Figures {
        let of = |counter: Counter| slot[counter as usize].load(Ordering::Relaxed);
        Figures {
            commands: of(Counter::Commands),
            builds: of(Counter::Builds),
            cached_builds: of(Counter::CachedBuilds),
            refused: of(Counter::Refused),
            from_client: of(Counter::FromClient),
            to_client: of(Counter::ToClient),
            from_nodes: of(Counter::FromNodes),
            to_nodes: of(Counter::ToNodes),
        }
    }

    fn combine(self, other: Figures, each: impl Fn(u64, u64) -> u64) -> Figures {
        Figures {
            commands: each(self.commands, other.commands),
            builds: each(self.builds, other.builds),
            cached_builds: each(self.cached_builds, other.cached_builds),
            refused: each(self.refused, other.refused),
            from_client: each(self.from_client, other.from_client),
            to_client: each(self.to_client, other.to_client),
            from_nodes: each(self.from_nodes, other.from_nodes),
            to_nodes: each(self.to_nodes, other.to_nodes),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Figures) -> Figures {
        self.combine(other, u64::saturating_add)
    }

    /// Of each the larger: what is read twice must not seem to become less.
    fn most(self, other: Figures) -> Figures {
        self.combine(other, u64::max)
    }

    /// Bytes over bulk connections, both ways.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        [
            self.from_client,
            self.to_client,
            self.from_nodes,
            self.to_nodes,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// A session's place in a page, in its worker.
#[derive(Clone, Debug)]
pub struct Slot {
    page: Arc<Page>,
    index: usize,
}

impl Slot {
    /// The slot of this number in the page that the supervisor has passed.
    ///
    /// # Errors
    /// [`Unfit`].
    pub fn adopt(page: &OwnedFd, index: u32) -> Result<Slot, Unfit> {
        let page = Page::adopt(page)?;
        let index = index as usize;
        if index >= page.slots() {
            return Err(Unfit::NoSlot);
        }
        Ok(Slot {
            page: Arc::new(page),
            index,
        })
    }

    fn words(&self) -> &[AtomicU64] {
        self.page.slot(self.index)
    }

    /// Counts.
    pub fn add(&self, counter: Counter, amount: u64) {
        self.words()[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Leaves word of why the worker ends.
    pub fn note_ending(&self, why: Cause) {
        self.words()[Counter::Ending as usize].store(why as u64, Ordering::Relaxed);
    }

    /// Takes so many bytes of a device's memory, if all sessions of the lease together then have no more than
    /// `limit` of it. `device`: its place in the assignment, below [`DEVICES`].
    ///
    /// A session adds first and then looks at all slots, so of two that take the last piece at once the later sees
    /// both: together they never have too much. Both may see too much, and then both go back and try again.
    #[must_use]
    pub fn hold(&self, device: usize, size: u64, limit: u64) -> bool {
        let own = &self.words()[HELD + device];
        for _ in 0..ATTEMPTS {
            let held = self.held_by_all(device);
            if held.checked_add(size).is_none_or(|sum| sum > limit) {
                return false;
            }
            own.fetch_add(size, Ordering::SeqCst);
            if self.held_by_all(device) <= limit {
                return true;
            }
            own.fetch_sub(size, Ordering::SeqCst);
            std::thread::yield_now();
        }
        false
    }

    /// Gives back what was [held](Slot::hold).
    pub fn give_back(&self, device: usize, size: u64) {
        self.words()[HELD + device].fetch_sub(size, Ordering::SeqCst);
    }

    fn held_by_all(&self, device: usize) -> u64 {
        let slots = (0..self.page.in_use()).map(|index| self.page.slot(index));
        slots
            .map(|slot| slot[HELD + device].load(Ordering::SeqCst))
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests;
