//! Counters of sessions, in memory that the workers and the supervisor share.
//!
//! A [`Ledger`] is a page with a slot for each session of one lease. Without a device manager, each session
//! has a page of its own. A worker holds its session's [`LedgerSlot`] and adds to it with relaxed atomics. The
//! supervisor reads the slot on demand, and adds its values to the ledger when the worker has been reaped.
//! Counting therefore costs no message, and the figures survive the worker, however it ends.
//!
//! [`DeviceTurn`] says whether a session with a `time` share may launch. [`Busy`] counts how long each device had commands
//! under way.
//!
//! The slots also record how much of each leased device's memory each session holds. This is how a memory
//! limit applies to a lease as a whole ([`LedgerSlot::hold`]).
//!
//! This is no protection against a compromised worker, which can write any value into the page of its own
//! lease. It cannot reach the pages of other leases. Invariants: totals never decrease; the slot of a
//! worker that has ended is zero.
#![deny(unsafe_code)]

mod busy;
mod ledger;
mod page;
mod turn;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use page::{Page, SLOT};

pub use busy::{Busy, DeviceMeter, DeviceName, DeviceTime};
pub use ledger::{Ledger, LedgerEntry};
pub use page::PageError;
pub use turn::{Demand, DeviceTurn, Launches};

/// Number of devices whose memory and busy time a slot records.
pub const DEVICES: usize = crate::handover::MAX_LEASED;

/// Index of a counter in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Commands applied.
    Commands = 0,
    /// Builds, compilations and links that the node's OpenCL ran.
    Builds = 1,
    /// Builds that came from the build cache instead.
    CachedBuilds = 2,
    /// Why the worker ends. This is a [`Cause`], not a count; see [`LedgerSlot::note_ending`].
    Ending = 3,
    /// Connections that failed to prove the session's secret.
    Refused = 4,
    // The next counters lie in another cache line than the commands, because one thread updates the
    // commands all the time.
    /// Bytes of bulk transfers from the client.
    FromClient = 8,
    /// Bytes of bulk transfers to the client.
    ToClient = 9,
    /// Bytes of bulk transfers from other nodes' workers.
    FromNodes = 10,
    /// Bytes of bulk transfers to other nodes' workers.
    ToNodes = 11,
    /// Commands in progress. Goes down, so it is no part of [`Figures`].
    UnderWay = 12,
    /// Builds, compilations and links in progress, as [`Counter::UnderWay`].
    Building = 13,
}

/// Index in a slot at which the devices' memory begins.
const HELD: usize = 16;
/// Index in a slot at which the devices' meters begin ([`busy`]).
const METERS: usize = HELD + DEVICES;
const _: () = assert!(METERS + DEVICES * busy::WORDS == SLOT);

/// Attempts to allocate while concurrent attempts of the lease's other sessions exceed the limit for a
/// moment.
const ATTEMPTS: usize = 64;

/// Reason for which a session ends, as its worker reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Cause {
    /// The client closed the session.
    ClientClosed = 1,
    /// A connection to the client broke, or the client was silent for too long.
    ClientLost = 2,
    /// The client violated the protocol.
    Violation = 3,
    /// The client opened a session and never connected.
    NeverConnected = 4,
    /// The supervisor ended the session.
    ToldToEnd = 5,
    /// An internal error of the worker.
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

/// Values of a session's counters, or their sums over several sessions.
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
    /// Nanoseconds for which commands were under way, summed over the session's devices.
    pub busy: u64,
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
            busy: busy::read(slot)
                .map(|(_, time)| time.busy)
                .fold(0, u64::saturating_add),
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
            busy: each(self.busy, other.busy),
        }
    }

    /// Returns the sums of both.
    #[must_use]
    pub fn plus(self, other: Figures) -> Figures {
        self.combine(other, u64::saturating_add)
    }

    /// Takes the larger value of each counter, so that figures never decrease from one reading to the next.
    fn most(self, other: Figures) -> Figures {
        self.combine(other, u64::max)
    }

    /// Returns the bytes of all bulk connections, in both directions.
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

#[cfg(test)]
impl LedgerSlot {
    /// Makes a slot in a page of its own.
    pub(crate) fn alone() -> LedgerSlot {
        let ledger = Ledger::new(1).unwrap();
        let entry = ledger.enter().unwrap();
        let page = entry.page().try_clone_to_owned().unwrap();
        LedgerSlot::adopt(&page, entry.number()).unwrap()
    }
}

/// A session's slot in a page, on the worker's side.
#[derive(Clone, Debug)]
pub struct LedgerSlot {
    page: Arc<Page>,
    index: usize,
}

impl LedgerSlot {
    /// Maps the page that the supervisor has passed and selects the slot of this number.
    ///
    /// # Errors
    /// [`PageError`] if the page is not sealed, or has no such slot.
    pub fn adopt(page: &OwnedFd, index: u32) -> Result<LedgerSlot, PageError> {
        let page = Page::adopt(page)?;
        let index = index as usize;
        if index >= page.slots() {
            return Err(PageError::NoSlot);
        }
        Ok(LedgerSlot {
            page: Arc::new(page),
            index,
        })
    }

    fn words(&self) -> &[AtomicU64] {
        self.page.slot(self.index)
    }

    /// Returns the words of the meter of a device.
    fn meter(&self, place: usize) -> &[AtomicU64] {
        &self.words()[METERS + place * busy::WORDS..][..busy::WORDS]
    }

    /// Adds `amount` to a counter.
    pub fn add(&self, counter: Counter, amount: u64) {
        self.words()[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds `amount` to what is in progress ([`Counter::UnderWay`], [`Counter::Building`]). Returns the value before.
    pub fn begin(&self, counter: Counter, amount: u64) -> u64 {
        self.words()[counter as usize].fetch_add(amount, Ordering::Relaxed)
    }

    /// Subtracts `amount` from what is in progress.
    pub fn end(&self, counter: Counter, amount: u64) {
        self.words()[counter as usize].fetch_sub(amount, Ordering::Relaxed);
    }

    /// Returns the value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.words()[counter as usize].load(Ordering::Relaxed)
    }

    /// Records why the worker ends.
    pub fn note_ending(&self, why: Cause) {
        self.words()[Counter::Ending as usize].store(why as u64, Ordering::Relaxed);
    }

    /// Reserves `size` bytes of a device's memory, provided that all sessions of the lease together then
    /// hold at most `limit` bytes. `device` is the device's index in the assignment, below [`DEVICES`].
    /// Returns whether the bytes were reserved.
    ///
    /// A session first adds and then reads all slots. If two sessions race for the last bytes, the later
    /// one sees both amounts, so together they never exceed the limit. Both may see too much; both then
    /// undo the addition and retry.
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

    /// Releases bytes that [`LedgerSlot::hold`] reserved.
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
