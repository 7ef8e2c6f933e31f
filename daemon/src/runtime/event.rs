//! Native events, and who is to learn of their ends.
//!
//! An [`Event`] owns the host memory that its command reads or writes. Invariant: that memory is freed or
//! handed out only after the driver has reported the command's end. An event that is dropped earlier leaks
//! it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use causeway_proto::status::Status;
use opencl_sys::{
    CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_EVENT_COMMAND_QUEUE,
    CL_PROFILING_COMMAND_COMPLETE, CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_QUEUED,
    CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_SUBMIT, cl_event,
};
use parking_lot::Mutex;

use super::clock::DeviceClock;
pub use super::clock::Times;
use super::host::Host;
use super::library::{check, cl};
use crate::accounting::{Busy, DeviceMeter};

/// A native event; released when dropped.
#[derive(Debug)]
pub struct Event {
    pub(super) raw: cl_event,
    ended: AtomicBool,
    host: Mutex<Option<Host>>,
    pub(super) home: Home,
}

/// The properties of its queue that an event needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    /// The queue if the ends of its commands are found by polling; `None` if the driver's callbacks
    /// are prompt.
    pub(super) watched: Option<WatchedQueue>,
    /// Clock of the device.
    pub(super) clock: &'static DeviceClock,
    /// Whether kernels of the device can enqueue further kernels. Such a kernel may end before those it has
    /// enqueued.
    pub(super) enqueues: bool,
    /// Measures how long the process has the device busy.
    pub(super) meter: &'static DeviceMeter,
}

/// The queue of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WatchedQueue {
    /// Identifies the queue.
    pub(super) key: usize,
    /// Whether its commands end in their order.
    pub(super) in_order: bool,
}

// SAFETY: OpenCL events may be used from any thread; all other fields are Send and Sync.
unsafe impl Send for Event {}
// SAFETY: as for `Send`.
unsafe impl Sync for Event {}

/// Receives the end of a command.
pub trait Listener: Send + Sync + 'static {
    /// Returns the event that it listens to; set before [`listen`](super::listen::listen) is called.
    fn event(&self) -> Option<&Event>;

    /// Returns where the session counts its busy time, from the listener's registration until the command's end.
    fn busy(&self) -> &Busy;

    /// Reports the command's end, with 0 or a negative error code. Runs on a thread of the driver, on the
    /// polling thread, or inside the call that registered the listener. It must not block, and must not
    /// call the driver except for profiling times.
    fn ended(self: Arc<Self>, status: Status);
}

impl Event {
    /// Takes over one reference to `raw`.
    ///
    /// # Safety
    /// The driver has just returned `raw` to the caller. Host memory that the command accesses outlives it:
    /// the caller keeps the memory, or passes it to [`Event::keep`].
    pub(super) unsafe fn adopt(raw: cl_event, home: Home) -> Event {
        Event {
            raw,
            ended: AtomicBool::new(false),
            host: Mutex::default(),
            home,
        }
    }

    /// Whether the command is of the device that this measures.
    pub(super) fn is_of(&self, device: &DeviceMeter) -> bool {
        std::ptr::eq(self.home.meter, device)
    }

    /// Keeps memory alive until the command has ended.
    pub(super) fn keep(&self, host: Host) {
        *self.host.lock() = Some(host);
    }

    /// Returns whether the driver has reported the command's successful end.
    pub fn has_succeeded(&self) -> bool {
        // The driver may report the end later than the worker has found it, but reports a failure as one.
        self.has_ended() && self.failure().is_none()
    }

    /// Returns whether the driver has reported the command's end.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the error code of a command that has failed.
    pub fn failure(&self) -> Option<Status> {
        self.status().filter(|status| *status < 0).map(Status)
    }

    /// Takes the data of a read that has ended. Returns nothing before its end, and for all other commands.
    #[must_use]
    pub fn take_contents(&self) -> Bytes {
        if !self.ended.load(Ordering::Acquire) {
            return Bytes::new();
        }
        let host = self.host.lock().take();
        host.map(Host::into_contents).unwrap_or_default()
    }

    /// Takes the command's host memory if the command has ended.
    #[must_use]
    pub fn take_host(&self) -> Option<Host> {
        match self.ended.load(Ordering::Acquire) {
            true => self.host.lock().take(),
            false => None,
        }
    }

    /// Frees the command's host memory if the command has ended.
    pub fn drop_host(&self) {
        if self.ended.load(Ordering::Acquire) {
            drop(self.host.lock().take());
        }
    }

    /// Returns the profiling times on the node's host clock; `None` if the queue has no profiling or the
    /// command failed.
    pub fn times(&self) -> Option<Times> {
        self.device_times()
            .map(|times| self.home.clock.on_host(times))
    }

    /// Returns the profiling times on the device's clock, as the driver reports them.
    pub(super) fn device_times(&self) -> Option<Times> {
        let ask = |name| -> Result<u64, Status> {
            let mut value = 0u64;
            // SAFETY: the event is live, and `value` has room for the 8 bytes of the answer.
            check(unsafe {
                cl!(clGetEventProfilingInfo(
                    self.raw,
                    name,
                    8,
                    (&raw mut value).cast(),
                    null_mut()
                ))
            })?;
            Ok(value)
        };
        let ended = ask(CL_PROFILING_COMMAND_END).ok()?;
        Some(Times {
            queued: ask(CL_PROFILING_COMMAND_QUEUED).ok()?,
            submitted: ask(CL_PROFILING_COMMAND_SUBMIT).ok()?,
            started: ask(CL_PROFILING_COMMAND_START).ok()?,
            ended,
            // Otherwise it equals the end, and drivers of OpenCL 1.2 do not support the query.
            completed: match self.home.enqueues {
                true => ask(CL_PROFILING_COMMAND_COMPLETE).unwrap_or(ended),
                false => ended,
            },
        })
    }

    /// Waits for the command. Blocks.
    ///
    /// # Errors
    /// The driver's error, including a failure of the command itself.
    pub fn wait(&self) -> Result<(), Status> {
        // SAFETY: the list contains one live event.
        let waited = check(unsafe { cl!(clWaitForEvents(1, &raw const self.raw)) });
        if self.status().is_some_and(|s| s <= CL_COMPLETE) {
            self.note_end();
        }
        waited
    }

    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`.
    fn status(&self) -> Option<i32> {
        let mut value = 0i32;
        let mut ask = || -> Result<(), Status> {
            // SAFETY: the event is live, and `value` has room for the 4 bytes of the answer.
            check(unsafe {
                cl!(clGetEventInfo(
                    self.raw,
                    CL_EVENT_COMMAND_EXECUTION_STATUS,
                    4,
                    (&raw mut value).cast(),
                    null_mut()
                ))
            })
        };
        ask().ok().map(|()| value)
    }

    /// Returns a key for the event's queue; the event's own handle if the driver does not report the queue.
    pub(super) fn queue_key(&self) -> usize {
        let mut queue: *mut c_void = null_mut();
        let mut ask = || -> Result<(), Status> {
            // SAFETY: the event is live, and `queue` has room for the handle.
            check(unsafe {
                cl!(clGetEventInfo(
                    self.raw,
                    CL_EVENT_COMMAND_QUEUE,
                    size_of::<*mut c_void>(),
                    (&raw mut queue).cast(),
                    null_mut()
                ))
            })
        };
        let asked = ask();
        if asked.is_ok() && !queue.is_null() {
            queue.addr()
        } else {
            self.raw.addr()
        }
    }

    /// Returns whether the driver reports the command as ended. This query is not a synchronization point.
    pub fn looks_ended(&self) -> bool {
        // If the query fails, it will also fail later. The event then counts as ended, and the wait returns
        // the reason.
        self.status().is_none_or(|status| status <= CL_COMPLETE)
    }

    /// Waits for a command that [`Event::looks_ended`] has reported, as a synchronization point. Returns
    /// the command's status.
    pub fn confirm_end(&self) -> Status {
        let waited = self.wait();
        self.note_end();
        match (self.status(), waited) {
            (Some(status), _) if status < 0 => Status(status),
            (None, Err(status)) => status,
            _ => Status::SUCCESS,
        }
    }

    /// Records that the driver has reported the command's end.
    pub(super) fn note_end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Records the end of a command whose queue has been finished since, though the driver may report the event's
    /// end later. Returns the command's status.
    pub(super) fn end_of_finished(&self) -> Status {
        self.note_end();
        self.failure().unwrap_or(Status::SUCCESS)
    }

    fn release(&self) -> Result<(), Status> {
        // SAFETY: this object owns one reference and gives it up here.
        check(unsafe { cl!(clReleaseEvent(self.raw)) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(host) = self.host.get_mut().take() {
            let ended = *self.ended.get_mut() || self.status().is_some_and(|s| s <= CL_COMPLETE);
            if !ended {
                // The driver may still use the memory, so it is leaked.
                std::mem::forget(host);
            }
        }
        let _ = self.release();
    }
}

/// Notifies a listener of the end of its event.
pub(super) fn report<L: Listener + ?Sized>(listener: Arc<L>, status: Status) {
    if let Some(event) = listener.event() {
        listener.busy().end(event.home.meter);
    }
    listener.ended(status);
}

/// Wait list of a native command.
#[derive(Debug, Default)]
pub struct WaitList<'a> {
    raw: Vec<cl_event>,
    events: PhantomData<&'a Event>,
}

impl<'a> WaitList<'a> {
    /// Makes an empty wait list.
    #[must_use]
    pub const fn new() -> WaitList<'a> {
        WaitList {
            raw: Vec::new(),
            events: PhantomData,
        }
    }

    /// Adds an event.
    pub fn push(&mut self, event: &'a Event) {
        self.raw.push(event.raw);
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    pub(super) fn count(&self) -> u32 {
        // `MAX_LIST` limits all lists to far less.
        u32::try_from(self.raw.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn pointer(&self) -> *const cl_event {
        if self.raw.is_empty() {
            null()
        } else {
            self.raw.as_ptr()
        }
    }
}

impl<'a> FromIterator<&'a Event> for WaitList<'a> {
    fn from_iter<I: IntoIterator<Item = &'a Event>>(events: I) -> WaitList<'a> {
        WaitList {
            raw: events.into_iter().map(|e| e.raw).collect(),
            events: PhantomData,
        }
    }
}
