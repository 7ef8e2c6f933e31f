//! Commands: the entries of a queue, and how an enqueue submits one.
//!
//! The `engine` decides when they run. Invariant: a command keeps every object that it names alive, so
//! the application may release them at once.

use cl_headers::types::*;

use crate::error::{ClResult, ensure};
use crate::event::{Event, Moment};
use crate::launch::Launch;
use crate::memory::Memory;
use crate::object::{Object, Ref};
use crate::queue::Queue;
use crate::{arg, clock, control, engine};

/// Bytes in rows and slices, anywhere in memory.
pub(crate) struct RectPlace {
    /// Address of the first byte.
    pub(crate) address: usize,
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
    /// Keeps the memory object of the bytes alive; `None` for the application's memory.
    pub(crate) _held: Option<Ref<Memory>>,
}

impl RectPlace {
    /// Makes a place of contiguous bytes.
    pub(crate) fn plain(address: usize, held: Option<Ref<Memory>>) -> Self {
        Self {
            address,
            row_pitch: 0,
            slice_pitch: 0,
            _held: held,
        }
    }

    /// Returns the address of a row.
    fn row(&self, row: usize, slice: usize) -> usize {
        self.address + row * self.row_pitch + slice * self.slice_pitch
    }
}

/// Bytes of a row, rows of a slice, slices.
pub(crate) type Shape = [usize; 3];

/// The effect of a command.
pub(crate) enum Work {
    Nothing,
    /// Copies bytes from one place to another: all reads, writes and copies.
    Copy(Box<(RectPlace, RectPlace, Shape)>),
    /// Copies bytes, which were taken within the enqueue and have no gaps, to a place.
    Put(Box<(Vec<u8>, RectPlace, Shape)>),
    /// Repeats a pattern in every row of a place.
    Fill(Box<(RectPlace, Shape, Vec<u8>)>),
    Launch(Box<Launch>),
}

impl Work {
    pub(crate) fn copy(from: RectPlace, to: RectPlace, shape: Shape) -> Self {
        Self::Copy(Box::new((from, to, shape)))
    }

    /// Makes a write of the application's bytes. These are taken now or later, as configured.
    ///
    /// # Safety
    /// `from` has as many bytes of the application.
    pub(crate) unsafe fn write(from: RectPlace, to: RectPlace, shape: Shape) -> Self {
        if !control::current().early_writes {
            return Self::copy(from, to, shape);
        }
        let mut bytes = Vec::with_capacity(shape.iter().product());
        for_rows(shape, |row, slice| {
            // SAFETY: the caller keeps this function's contract.
            bytes.extend_from_slice(unsafe {
                arg::list(shape[0], from.row(row, slice) as *const u8)
            });
        });
        Self::Put(Box::new((bytes, to, shape)))
    }

    /// Does the work that takes place during the command's time, before [`Work::run`]. Only
    /// for commands that take time.
    pub(crate) fn begin(&mut self) {
        if let Self::Launch(launch) = self {
            launch.begin();
        }
    }

    /// Returns how long the work that this command enqueues on the device takes afterwards.
    pub(crate) fn children_ns(&self) -> u64 {
        match self {
            Self::Launch(launch) => launch.children_ns(),
            _ => 0,
        }
    }

    /// Runs the work. Returns `CL_COMPLETE` or an error.
    pub(crate) fn run(&self) -> cl_int {
        match self {
            Self::Nothing => {}
            Self::Copy(copy) => {
                let (from, to, shape) = &**copy;
                for_rows(*shape, |row, slice| {
                    let source = from.row(row, slice) as *const u8;
                    let target = to.row(row, slice) as *mut u8;
                    // SAFETY: the enqueue has checked the region of a memory object, which the command
                    // keeps alive. The application keeps its own memory until the command is complete.
                    // Rows of one call may overlap, so this is `copy`, not `copy_nonoverlapping`.
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
                    if let [byte] = pattern[..] {
                        // SAFETY: as above.
                        unsafe { start.write_bytes(byte, shape[0]) };
                        return;
                    }
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

/// The order of a command within its queue, beyond the queue's own order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    Plain,
    /// Runs after all earlier commands.
    Marker,
    /// Runs after its wait list, or after all earlier commands if that is empty. Later commands run after it.
    Barrier,
}

/// The time that a command takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    None,
    /// Nanoseconds, during which the device runs nothing else.
    Takes(u64),
    /// The command never ends.
    Never,
}

/// A command in a queue.
pub(crate) struct Command {
    pub(crate) work: Work,
    pub(crate) event: Option<Ref<Event>>,
    pub(crate) waits: Box<[Ref<Event>]>,
    pub(crate) rank: Rank,
    pub(crate) time: Time,
    /// Order of the enqueues in all queues; set by the engine.
    pub(crate) number: u64,
    /// Time of the enqueue, if it can be queried.
    pub(crate) queued_ns: u64,
    /// Time at which a started command will end; only for commands that take time.
    pub(crate) ends_ns: Option<u64>,
    /// The command has ended, and only has to be removed.
    pub(crate) ended: bool,
}

impl Command {
    /// Returns the state of the wait list: `None` if it has not ended, else `CL_COMPLETE` or
    /// the error to end with.
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

/// The common part of all enqueues.
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
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let queue = unsafe { Object::<Queue>::borrow_host(queue) }?;
        // SAFETY: the application passes a list as OpenCL requires.
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

    /// Puts the command into the queue. A blocking call waits for its end.
    ///
    /// # Safety
    /// `event` is NULL or writable, and the memory of `work` is as the application's call requires.
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
                number: 0,
                ends_ns: None,
                ended: false,
            },
        );
        if let Some(handle) = shared {
            // SAFETY: `event` is writable by this function's contract.
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

/// Checks that two regions of one object do not overlap.
pub(crate) fn ensure_apart(from: (usize, usize), to: (usize, usize)) -> ClResult {
    let (from, from_end) = (from.0, from.0 + from.1);
    let (to, to_end) = (to.0, to.0 + to.1);
    ensure(from_end <= to || to_end <= from, CL_MEM_COPY_OVERLAP)
}
