//! Native events, and how we hear of their end.
//!
//! An [`Event`] owns the host memory that its command reads or writes. Invariant: that memory is freed
//! or handed out only after the driver has said that the command ended; an event dropped before
//! leaks it.

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
use super::host::Host;
use super::library::{check, cl};
use super::watch::{self, QueueKey};

/// A native event; released when dropped.
#[derive(Debug)]
pub struct Event {
    raw: cl_event,
    ended: AtomicBool,
    host: Mutex<Option<Host>>,
    home: Home,
}

/// What an event must know of its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    /// The queue, where we look for the ends of its commands ourselves; none where the driver's callbacks are
    /// prompt.
    pub(super) watched: Option<QueueKey>,
    /// The device's clock.
    pub(super) clock: &'static DeviceClock,
    /// Whether kernels enqueue there, and end before what they have enqueued.
    pub(super) enqueues: bool,
}

// SAFETY: OpenCL events may be used from any thread; the rest is Send and Sync by itself.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

/// A command's times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// `CL_PROFILING_COMMAND_QUEUED`.
    pub queued: u64,
    /// `CL_PROFILING_COMMAND_SUBMIT`.
    pub submitted: u64,
    /// `CL_PROFILING_COMMAND_START`.
    pub started: u64,
    /// `CL_PROFILING_COMMAND_END`.
    pub ended: u64,
    /// `CL_PROFILING_COMMAND_COMPLETE`.
    pub completed: u64,
}

impl Times {
    /// Of two commands taken for one.
    #[must_use]
    pub fn around(self, other: Times) -> Times {
        Times {
            queued: self.queued.min(other.queued),
            submitted: self.submitted.min(other.submitted),
            started: self.started.min(other.started),
            ended: self.ended.max(other.ended),
            completed: self.completed.max(other.completed),
        }
    }
}

/// What hears of a command's end.
pub trait Listener: Send + Sync + 'static {
    /// The event it listens to; set before [`listen`] is called.
    fn event(&self) -> Option<&Event>;

    /// The command has ended: 0 or a negative code. Runs on a thread of the driver, or within the call
    /// that registered it; must not call the driver but for profiling times, must not block.
    fn ended(self: Arc<Self>, status: Status);
}

impl Event {
    /// Takes over one reference to `raw` and the memory that its command uses.
    ///
    /// # Safety
    /// `raw` is an event that the driver just returned to us; `host` is all host memory that its
    /// command touches.
    pub(super) unsafe fn adopt(raw: cl_event, host: Option<Host>, home: Home) -> Event {
        Event {
            raw,
            ended: AtomicBool::new(false),
            host: Mutex::new(host),
            home,
        }
    }

    /// Keeps memory that is in use until its command ends.
    pub(super) fn keep(&self, host: Host) {
        *self.host.lock() = Some(host);
    }

    /// Whether the driver has said that the command ended, and well.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.has_ended() && self.status() == Some(CL_COMPLETE)
    }

    /// Whether the driver has said that the command ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The code with which the command failed, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<Status> {
        self.status().filter(|status| *status < 0).map(Status)
    }

    /// What a finished read brought; empty before its end and for every other command.
    #[must_use]
    pub fn take_contents(&self) -> Bytes {
        if !self.ended.load(Ordering::Acquire) {
            return Bytes::new();
        }
        let host = self.host.lock().take();
        host.map(Host::into_contents).unwrap_or_default()
    }

    /// Frees the command's host memory, if the command has ended.
    pub fn drop_host(&self) {
        if self.ended.load(Ordering::Acquire) {
            drop(self.host.lock().take());
        }
    }

    /// When it went through its states, on the node's host clock; `None` when the queue does not profile or
    /// the command failed.
    #[must_use]
    pub fn times(&self) -> Option<Times> {
        self.device_times()
            .map(|times| self.home.clock.on_host(times))
    }

    /// The same on the device's clock, as the driver gives them.
    pub(super) fn device_times(&self) -> Option<Times> {
        let ask = |name| -> Result<u64, Status> {
            let mut value = 0u64;
            // SAFETY: a live event and room for the 8 bytes of the answer.
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
            // Elsewhere it is the end, and drivers of OpenCL 1.2 do not know it.
            completed: match self.home.enqueues {
                true => ask(CL_PROFILING_COMMAND_COMPLETE).unwrap_or(ended),
                false => ended,
            },
        })
    }

    /// Waits for the command. Blocks.
    ///
    /// # Errors
    /// What the driver says, the command's own failure included.
    pub fn wait(&self) -> Result<(), Status> {
        // SAFETY: a list of one live event.
        let waited = check(unsafe { cl!(clWaitForEvents(1, &raw const self.raw)) });
        if self.status().is_some_and(|s| s <= CL_COMPLETE) {
            self.ended.store(true, Ordering::Release);
        }
        waited
    }

    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`.
    fn status(&self) -> Option<i32> {
        let mut value = 0i32;
        let mut ask = || -> Result<(), Status> {
            // SAFETY: a live event and room for the 4 bytes of the answer.
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

    /// Its queue as a key; its own handle where the driver does not say.
    fn queue_key(&self) -> QueueKey {
        let mut queue: *mut c_void = null_mut();
        let mut ask = || -> Result<(), Status> {
            // SAFETY: a live event and room for the handle of the answer.
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

    /// Whether the driver shows it as ended; no synchronisation point.
    pub(super) fn looks_ended(&self) -> bool {
        // An event that cannot be asked will not answer later either; the wait tells why.
        self.status().is_none_or(|status| status <= CL_COMPLETE)
    }

    /// Waits for what [`Event::looks_ended`] has shown, and says how the command ended.
    pub(super) fn confirm_end(&self) -> Status {
        let waited = self.wait();
        self.ended.store(true, Ordering::Release);
        match (self.status(), waited) {
            (Some(status), _) if status < 0 => Status(status),
            (None, Err(status)) => status,
            _ => Status::SUCCESS,
        }
    }

    fn release(&self) -> Result<(), Status> {
        // SAFETY: we own one reference and give it up here.
        check(unsafe { cl!(clReleaseEvent(self.raw)) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(host) = self.host.get_mut().take() {
            let ended = *self.ended.get_mut() || self.status().is_some_and(|s| s <= CL_COMPLETE);
            if !ended {
                // The driver may still use it.
                std::mem::forget(host);
            }
        }
        let _ = self.release();
    }
}

/// Has `listener` hear of the end of its event, once. It may hear of it before this returns. Where the
/// driver refuses to call back, we look for the end ourselves.
///
/// # Errors
/// Nobody can look; the listener then hears nothing.
pub fn listen<L: Listener>(listener: &Arc<L>) -> Result<(), Status> {
    let Some(event) = listener.event() else {
        return Err(Status::INVALID_OPERATION);
    };
    if let Some(queue) = event.home.watched {
        return watch::add(queue, Arc::clone(listener) as Arc<dyn Listener>);
    }
    let user_data = Arc::into_raw(Arc::clone(listener));
    let register = || -> Result<(), Status> {
        // SAFETY: a live event; the callback takes over the reference in `user_data`, exactly once.
        check(unsafe {
            cl!(clSetEventCallback(
                event.raw,
                CL_COMPLETE,
                Some(completed::<L>),
                user_data.cast_mut().cast()
            ))
        })
    };
    register().or_else(|_| {
        // SAFETY: the registration failed, so the reference is still ours.
        let listener = unsafe { Arc::from_raw(user_data) };
        watch::add(event.queue_key(), listener as Arc<dyn Listener>)
    })
}

unsafe extern "C" fn completed<L: Listener>(_: cl_event, status: i32, user_data: *mut c_void) {
    // SAFETY: `listen` gave this reference to this call, and the driver calls once.
    let listener = unsafe { Arc::from_raw(user_data.cast_const().cast::<L>()) };
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        if let Some(event) = listener.event() {
            event.ended.store(true, Ordering::Release);
        }
        listener.ended(Status(status.min(0)));
    }));
    if told.is_err() {
        // A completion is lost, so the session would hang: end the worker, which serves only this one.
        std::process::abort();
    }
}

/// Events that a command waits for natively.
#[derive(Debug, Default)]
pub struct WaitList<'a> {
    raw: Vec<cl_event>,
    events: PhantomData<&'a Event>,
}

impl<'a> WaitList<'a> {
    /// One that waits for nothing.
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

    /// Whether nothing is waited for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    pub(super) fn count(&self) -> u32 {
        // MAX_LIST bounds every list far below.
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
