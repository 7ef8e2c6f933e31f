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
//! So does a read into such memory, unless its bytes come inside a completion that waits for the earlier
//! one's: bytes travel on several connections, and those of the earlier must not land last.
//!
//! Invariant: no edge that can block for ever is invented. A read that may wait for the application
//! itself (an unset user event) holds back only what the application put behind it: by an
//! in-order queue, a barrier or a wait list, directly or through others.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use causeway_proto::id::EventId;
use causeway_proto::region::Region;
use parking_lot::Mutex;

use super::range_table::RangeTable;
use super::{Context, Event, Queue, next_id, precedence};
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
    id: EventId,
    command: Weak<Event>,
    // Held to keep them closed.
    gates: Vec<Arc<Gate>>,
    // Let go of when the command has ended.
    followers: Vec<Arc<dyn Follower>>,
}

/// Something that is to happen when commands have ended: by its drop.
pub(super) trait Follower: std::fmt::Debug + Send + Sync {}

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
            id: command.id(),
            command: Arc::downgrade(command),
            gates: Vec::new(),
            followers: Vec::new(),
        };
        self.count.fetch_add(1, Ordering::AcqRel);
        self.table.lock().insert(key, addresses, pending);
    }

    fn end(&self, key: u64, addresses: &Region) {
        let pending = self.table.lock().remove(key, addresses);
        if let Some(pending) = pending {
            self.count.fetch_sub(1, Ordering::AcqRel);
            // Opens gates, which sends, and lets followers act: not under the lock.
            drop(pending);
        }
    }

    /// What a command about to be enqueued on `queue` with this wait list must wait for before it takes the
    /// bytes at these addresses or brings others: an event that completes once the commands that write them
    /// before it have ended.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session of the queue is lost.
    pub fn gate(
        &self,
        addresses: &Region,
        queue: &Arc<Queue>,
        wait: &[Arc<Event>],
    ) -> ClResult<Option<Arc<Event>>> {
        self.gate_behind(addresses, queue.context(), |gated| {
            precedence::retain_before(gated, queue, wait);
        })
    }

    /// The same for a command of a distributed context that is being sent. What the application puts before
    /// it has been sent, so what is still held back is of other contexts, and not waited for. Takes no lock
    /// of a queue.
    ///
    /// # Errors
    /// As [`HostRanges::gate`].
    pub(super) fn gate_of_sent(
        &self,
        addresses: &Region,
        context: &Arc<Context>,
    ) -> ClResult<Option<Arc<Event>>> {
        self.gate_behind(addresses, context, HashSet::clear)
    }

    // `retain` leaves those of the commands which the application may hold back that come before.
    fn gate_behind(
        &self,
        addresses: &Region,
        context: &Arc<Context>,
        retain: impl FnOnce(&mut HashSet<EventId>),
    ) -> ClResult<Option<Arc<Event>>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let mut commands = Vec::new();
        self.meet(addresses, |pending| {
            commands.extend(pending.command.upgrade())
        });
        let (mut gated, mut free) = (HashSet::new(), HashSet::new());
        for command in &commands {
            let found = if command.is_gated() {
                &mut gated
            } else {
                &mut free
            };
            found.insert(command.id());
        }
        retain(&mut gated);
        if free.is_empty() && gated.is_empty() {
            return Ok(None);
        }
        // Made without the lock, since this sends; who ended meanwhile need not be waited for.
        let event = Event::gate(context, !gated.is_empty())?;
        let gate = Arc::new(Gate(event.clone()));
        self.meet(addresses, |pending| {
            if free.contains(&pending.id) || gated.contains(&pending.id) {
                pending.gates.push(gate.clone());
            }
        });
        Ok(Some(event))
    }

    /// What has been sent and will write these bytes: when it has ended, it has written them.
    pub(super) fn writers(&self, addresses: &Region) -> Vec<Weak<Event>> {
        let mut writers = Vec::new();
        if self.count.load(Ordering::Acquire) > 0 {
            self.meet(addresses, |pending| writers.push(pending.command.clone()));
        }
        writers.retain(|writer| writer.upgrade().is_some_and(|writer| !writer.is_gated()));
        writers
    }

    /// Whatever writes these bytes now keeps the follower until its end.
    pub(super) fn follow(&self, addresses: &Region, follower: &Arc<impl Follower + 'static>) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.meet(addresses, |pending| {
                pending.followers.push(follower.clone())
            });
        }
    }

    fn meet(&self, addresses: &Region, each: impl FnMut(&mut Pending)) {
        self.table.lock().overlapping(addresses).for_each(each);
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
