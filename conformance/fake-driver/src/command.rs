//! Commands: what a queue holds, and how an enqueue hands one over.
//!
//! Not here: when they run (`engine`). Invariant: a command holds every object it names, so that
//! the application may release them at once.

use cl_headers::types::*;

use crate::error::{ClResult, ensure};
use crate::event::{Event, Moment};
use crate::launch::Launch;
use crate::memory::Memory;
use crate::object::{Object, Ref};
use crate::queue::Queue;
use crate::{arg, clock, control, engine};

/// Bytes in rows and slices, somewhere in memory.
pub(crate) struct Place {
    /// Address of the first byte.
    pub(crate) address: usize,
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
    /// Keeps the memory object that the bytes belong to; `None` for the application's memory.
    pub(crate) _held: Option<Ref<Memory>>,
}

impl Place {
    /// Bytes in one piece.
    pub(crate) fn plain(address: usize, held: Option<Ref<Memory>>) -> Self {
        Self {
            address,
            row_pitch: 0,
            slice_pitch: 0,
            _held: held,
        }
    }

    /// Address of a row.
    fn row(&self, row: usize, slice: usize) -> usize {
        self.address + row * self.row_pitch + slice * self.slice_pitch
    }
}

/// Bytes of a row, rows of a slice, slices.
pub(crate) type Shape = [usize; 3];

/// What a command does when it runs.
pub(crate) enum Work {
    Nothing,
    /// Bytes go from one place to another: all reads, writes and copies.
    Copy(Box<(Place, Place, Shape)>),
    /// Bytes that were taken within the enqueue, without gaps, go to a place.
    Put(Box<(Vec<u8>, Place, Shape)>),
    /// A pattern is repeated in every row of a place.
    Fill(Box<(Place, Shape, Vec<u8>)>),
    Launch(Box<Launch>),
}

impl Work {
    pub(crate) fn copy(from: Place, to: Place, shape: Shape) -> Self {
        Self::Copy(Box::new((from, to, shape)))
    }

    /// A write of the application's bytes, which are taken now or later.
    ///
    /// # Safety
    /// `from` is as many bytes of the application's.
    pub(crate) unsafe fn write(from: Place, to: Place, shape: Shape) -> Self {
        if !control::current().early_writes {
            return Self::copy(from, to, shape);
        }
        let mut bytes = Vec::with_capacity(shape.iter().product());
        for_rows(shape, |row, slice| {
            // SAFETY: the function's contract.
            bytes.extend_from_slice(unsafe {
                arg::list(shape[0], from.row(row, slice) as *const u8)
            });
        });
        Self::Put(Box::new((bytes, to, shape)))
    }

    /// What it does while its time passes, before [`Work::run`]; only for commands that take time.
    pub(crate) fn begin(&mut self) {
        if let Self::Launch(launch) = self {
            launch.begin();
        }
    }

    /// How long what it enqueues on the device goes on behind it.
    pub(crate) fn children_ns(&self) -> u64 {
        match self {
            Self::Launch(launch) => launch.children_ns(),
            _ => 0,
        }
    }

    /// Does it; `CL_COMPLETE` or an error.
    pub(crate) fn run(&self) -> cl_int {
        match self {
            Self::Nothing => {}
            Self::Copy(copy) => {
                let (from, to, shape) = &**copy;
                for_rows(*shape, |row, slice| {
                    let source = from.row(row, slice) as *const u8;
                    let target = to.row(row, slice) as *mut u8;
                    // SAFETY: the enqueue has checked the region of a memory object, which the
                    // command holds; the application promised the same for its own memory, until
                    // the command is complete. Rows of one call may touch: `copy`, not
                    // `copy_nonoverlapping`.
                    unsafe { std::ptr::copy(source, target, shape[0]) };
                });
            }
            Self::Put(put) => {
                let (bytes, to, shape) = &**put;
                for_rows(*shape, |row, slice| {
                    let from = &bytes[(slice * shape[1] + row) * shape[0]..][..shape[0]];
                    let target = to.row(row, slice) as *mut u8;
                    // SAFETY: as above.
                    unsafe { target.copy_from(from.as_ptr(), from.len()) };
                });
            }
            Self::Fill(fill) => {
                let (place, shape, pattern) = &**fill;
                for_rows(*shape, |row, slice| {
                    let start = place.row(row, slice) as *mut u8;
                    for at in (0..shape[0]).step_by(pattern.len()) {
                        // SAFETY: as above; the row is a whole number of patterns.
                        unsafe { start.add(at).copy_from(pattern.as_ptr(), pattern.len()) };
                    }
                });
            }
            Self::Launch(launch) => return launch.run(),
        }
        CL_COMPLETE
    }
}

fn for_rows(shape: Shape, mut each: impl FnMut(usize, usize)) {
    for slice in 0..shape[2] {
        for row in 0..shape[1] {
            each(row, slice);
        }
    }
}

/// How a command stands to the others of its queue, beyond the queue's own order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    Plain,
    /// Comes after all earlier ones.
    Marker,
    /// Comes after its wait list, or all earlier ones if that is empty; later ones come after it.
    Barrier,
}

/// How long a command takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    None,
    /// Nanoseconds, on the device alone.
    Takes(u64),
    /// It never ends.
    Never,
}

/// A command on its way.
pub(crate) struct Command {
    pub(crate) work: Work,
    pub(crate) event: Option<Ref<Event>>,
    pub(crate) waits: Box<[Ref<Event>]>,
    pub(crate) rank: Rank,
    pub(crate) time: Time,
    /// When it was enqueued, if anybody will ask.
    pub(crate) queued_ns: u64,
    /// When it will end, once it has started; only for commands that take time.
    pub(crate) ends_ns: Option<u64>,
    /// It has ended, and only has to be removed.
    pub(crate) ended: bool,
}

impl Command {
    /// What the wait list says: `None` to wait on, else complete or the error to end with.
    pub(crate) fn dependencies(&self) -> Option<cl_int> {
        let mut outcome = CL_COMPLETE;
        for event in &self.waits {
            match event.status() {
                CL_COMPLETE => {}
                status if status < 0 => outcome = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                _ => return None,
            }
        }
        Some(outcome)
    }
}

/// An enqueue: what is the same for all of them.
pub(crate) struct Enqueue<'a> {
    pub(crate) queue: &'a Object<Queue>,
    pub(crate) kind: cl_command_type,
    pub(crate) waits: Box<[Ref<Event>]>,
    pub(crate) event: *mut cl_event,
    pub(crate) blocking: bool,
    pub(crate) rank: Rank,
    pub(crate) time: Time,
}

impl<'a> Enqueue<'a> {
    /// Checks queue and wait list.
    ///
    /// # Safety
    /// The arguments are those of a call to an `clEnqueue…` function.
    pub(crate) unsafe fn begin(
        queue: cl_command_queue,
        kind: cl_command_type,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<Self> {
        // SAFETY: the application's handle.
        let queue = unsafe { Object::<Queue>::borrow_host(queue) }?;
        // SAFETY: the application's list.
        let waits = unsafe { arg::wait_list(queue.context.handle(), count, list) }?;
        Ok(Self {
            queue,
            kind,
            waits,
            event,
            blocking: false,
            rank: Rank::Plain,
            time: Time::None,
        })
    }

    pub(crate) fn blocking(mut self, blocking: cl_bool) -> Self {
        self.blocking = blocking != CL_FALSE;
        self
    }

    /// Puts the command into the queue; for a blocking one, waits for its end.
    ///
    /// # Safety
    /// `event` is NULL or writable, and the work is as the application's call promised.
    pub(crate) unsafe fn submit(self, work: Work) -> ClResult {
        let queue = self.queue;
        let wanted = !self.event.is_null() || self.blocking;
        let event = wanted.then(|| Event::of_command(queue.hold(), self.kind));
        let timed = queue.profiling() || self.time != Time::None;
        let queued_ns = if timed { clock::host_ns() } else { 0 };
        if let Some(event) = &event {
            event.stamp(Moment::Queued, queued_ns);
        }
        let shared = event
            .as_ref()
            .filter(|_| !self.event.is_null())
            .map(Ref::share);
        let waiting = self.blocking.then(|| event.clone()).flatten();
        engine::enqueue(
            queue,
            Command {
                work,
                event,
                waits: self.waits,
                rank: self.rank,
                time: self.time,
                queued_ns,
                ends_ns: None,
                ended: false,
            },
        );
        if let Some(handle) = shared {
            // SAFETY: writable, as the contract says.
            unsafe { self.event.write(handle) };
        }
        let Some(event) = waiting else { return Ok(()) };
        engine::wait(&event);
        let status = event.status();
        if status < 0 {
            return crate::error::fail(status);
        }
        Ok(())
    }
}

/// Regions of two places that lie in one object.
pub(crate) fn ensure_apart(from: (usize, usize), to: (usize, usize)) -> ClResult {
    let (from, from_end) = (from.0, from.0 + from.1);
    let (to, to_end) = (to.0, to.0 + to.1);
    ensure(from_end <= to || to_end <= from, CL_MEM_COPY_OVERLAP)
}
