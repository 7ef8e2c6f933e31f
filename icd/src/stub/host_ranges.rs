//! Which host memory incomplete commands will still write.
//!
//! A read or map writes the application's memory some time after its enqueue; a later write from the
//! same memory must not take its bytes before that (the ordinary halo exchange). Specification: the
//! contents of `ptr` are undefined until the read completes.
//!
//! A write that meets such memory waits at a *gate*: a user event of our own that opens when the last
//! of those commands has ended, however it ended. So the worker asks for the bytes only then, and the
//! failure of a read is not made a failure of a write that the application did not tie to it.
//!
//! Invariant: no edge that can block for ever is invented. A read that may wait for the application
//! itself (an unset user event) holds back only a write that may wait for the application as well.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use causeway_proto::region::Region;
use parking_lot::Mutex;

use super::range_table::RangeTable;
use super::{Context, Event, next_id};
use crate::error::ClResult;

/// The process's table of such ranges.
#[derive(Debug, Default)]
pub struct HostRanges {
    // How many there are: without any, the table is not looked at.
    count: AtomicUsize,
    table: Mutex<RangeTable<Pending>>,
}

#[derive(Debug)]
struct Pending {
    command: Weak<Event>,
    // Held to keep them closed.
    gates: Vec<Arc<Gate>>,
}

/// Opens when it is dropped: when no command that it stands for is left.
#[derive(Debug)]
struct Gate(Arc<Event>);

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A command's word that it will write host memory; ends with [`HostWrite::end`], or when dropped.
#[derive(Debug)]
pub(super) struct HostWrite {
    key: u64,
    addresses: Region,
}

impl HostRanges {
    /// The process's table.
    #[must_use]
    pub fn of_process() -> &'static HostRanges {
        static RANGES: LazyLock<HostRanges> = LazyLock::new(HostRanges::default);
        &RANGES
    }

    /// `command` will write these addresses (a region counted from 0) until the [`HostWrite`] with this
    /// key is dropped.
    fn begin(&self, key: u64, addresses: Region, command: &Arc<Event>) {
        let pending = Pending {
            command: Arc::downgrade(command),
            gates: Vec::new(),
        };
        self.count.fetch_add(1, Ordering::AcqRel);
        self.table.lock().insert(key, addresses, pending);
    }

    fn end(&self, key: u64, addresses: &Region) {
        let pending = self.table.lock().remove(key, addresses);
        if let Some(pending) = pending {
            self.count.fetch_sub(1, Ordering::AcqRel);
            // Opens gates, which sends: not under the lock.
            drop(pending);
        }
    }

    /// What a write from these addresses must wait for before its bytes are taken: an event that
    /// completes once every incomplete command that writes them has ended. `gated`: whether the write
    /// itself may wait for the application.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session of `context` is lost.
    pub fn gate(
        &self,
        addresses: &Region,
        gated: bool,
        context: &Arc<Context>,
    ) -> ClResult<Option<Arc<Event>>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let (mut found, mut found_gated) = (false, false);
        self.meet(addresses, gated, |pending| {
            found = true;
            found_gated |= pending.is_gated();
        });
        if !found {
            return Ok(None);
        }
        // Made without the lock, since this sends; who ended meanwhile need not be waited for.
        let event = Event::gate(context, found_gated)?;
        let gate = Arc::new(Gate(event.clone()));
        self.meet(addresses, gated, |pending| pending.gates.push(gate.clone()));
        Ok(Some(event))
    }

    fn meet(&self, addresses: &Region, gated: bool, mut each: impl FnMut(&mut Pending)) {
        let mut table = self.table.lock();
        for pending in table.overlapping(addresses) {
            if gated || !pending.is_gated() {
                each(pending);
            }
        }
    }
}

impl Pending {
    fn is_gated(&self) -> bool {
        self.command
            .upgrade()
            .is_some_and(|command| command.is_gated())
    }
}

impl HostWrite {
    /// For a command that will write these addresses (a region counted from 0).
    #[must_use]
    pub(super) fn new(addresses: Region) -> HostWrite {
        HostWrite {
            key: next_id(),
            addresses,
        }
    }

    /// What [`HostWrite::new`] made has this command, which is about to be sent. The value itself goes
    /// into the command's finisher, which runs later.
    pub(super) fn beginning(&self) -> impl FnOnce(&Arc<Event>) + use<> {
        let (key, addresses) = (self.key, self.addresses);
        move |command| HostRanges::of_process().begin(key, addresses, command)
    }
}

impl Drop for HostWrite {
    fn drop(&mut self) {
        HostRanges::of_process().end(self.key, &self.addresses);
    }
}
