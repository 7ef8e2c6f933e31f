//! Events, including user events: status, times, callbacks.
//!
//! The `engine` completes them. Invariant: a status only ever falls. A callback is called
//! exactly once, never under a lock.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use cl_headers::types::*;
use parking_lot::Mutex;

use crate::context::Context;
use crate::error::{ClResult, ensure, fail};
use crate::object::{Object, Ref, body};
use crate::queue::Queue;
use crate::{engine, tag};

/// The owner of an event.
pub(crate) enum Owner {
    /// A command of this queue.
    Queue(Ref<Queue>),
    /// The application: a user event.
    Context(Ref<Context>),
}

/// A point in a command's life, used as an index of its times.
#[derive(Clone, Copy)]
pub(crate) enum Moment {
    Queued,
    Submitted,
    Started,
    Ended,
    /// The end of everything that the command enqueued on its device.
    Completed,
}

/// A callback that waits for its status.
pub(crate) struct Callback {
    wanted: cl_int,
    function: unsafe extern "C" fn(cl_event, cl_int, *mut c_void),
    user_data: usize,
}

/// A callback to call now.
pub(crate) struct Due {
    event: Ref<Event>,
    callback: Callback,
    status: cl_int,
}

impl Due {
    /// Calls the callback.
    pub(crate) fn call(self) {
        self.event.lend();
        // SAFETY: the application registered this function, and it is called once with these arguments.
        unsafe {
            (self.callback.function)(
                self.event.handle(),
                self.status,
                self.callback.user_data as *mut c_void,
            );
        }
        // A failure means that the application released the event too often, which is its own mistake.
        let _ = self.event.release();
    }
}

/// The body of an event.
pub(crate) struct Event {
    owner: Owner,
    kind: cl_command_type,
    status: AtomicI32,
    /// Times on the host's clock, by [`Moment`]; 0 means not yet.
    times: [AtomicU64; 5],
    callbacks: Mutex<Vec<Callback>>,
}

body!(Event, tag::EVENT, CL_INVALID_EVENT);

impl Event {
    pub(crate) fn of_command(queue: Ref<Queue>, kind: cl_command_type) -> Ref<Self> {
        Self::new(Owner::Queue(queue), kind, CL_QUEUED)
    }

    fn new(owner: Owner, kind: cl_command_type, status: cl_int) -> Ref<Self> {
        Ref::new(Self {
            owner,
            kind,
            status: AtomicI32::new(status),
            times: [const { AtomicU64::new(0) }; 5],
            callbacks: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn status(&self) -> cl_int {
        self.status.load(Ordering::Acquire)
    }

    /// Whether the event is complete or failed.
    pub(crate) fn ended(&self) -> bool {
        self.status() <= CL_COMPLETE
    }

    pub(crate) fn context(&self) -> &Ref<Context> {
        match &self.owner {
            Owner::Queue(queue) => &queue.context,
            Owner::Context(context) => context,
        }
    }

    pub(crate) fn stamp(&self, moment: Moment, host_ns: u64) {
        self.times[moment as usize].store(host_ns, Ordering::Relaxed);
    }

    /// Stores the end of the command, and `children_ns` later that of the work it enqueued.
    pub(crate) fn stamp_end(&self, host_ns: u64, children_ns: u64) {
        self.stamp(Moment::Ended, host_ns);
        self.stamp(Moment::Completed, host_ns + children_ns);
    }

    fn time(&self, moment: Moment) -> u64 {
        self.times[moment as usize].load(Ordering::Relaxed)
    }
}

impl Object<Event> {
    /// Lowers the status. Passes the callbacks that waited for it to `due`.
    pub(crate) fn advance(&self, status: cl_int, due: &mut Vec<Due>) {
        self.status.store(status, Ordering::Release);
        let mut callbacks = self.callbacks.lock();
        if callbacks.is_empty() {
            return;
        }
        for callback in callbacks.extract_if(.., |callback| status <= callback.wanted) {
            due.push(Due {
                event: self.hold(),
                status: told(status, callback.wanted),
                callback,
            });
        }
    }

    /// Ends a user event and notifies the engine.
    fn set_user_status(&self, status: cl_int) -> ClResult {
        ensure(matches!(self.owner, Owner::Context(_)), CL_INVALID_EVENT)?;
        ensure(status <= CL_COMPLETE, CL_INVALID_VALUE)?;
        self.status
            .compare_exchange(CL_SUBMITTED, status, Ordering::AcqRel, Ordering::Relaxed)
            .or_else(|_| fail(CL_INVALID_OPERATION))?;
        let mut due = Vec::new();
        self.advance(status, &mut due);
        engine::user_event_ended(due);
        Ok(())
    }

    fn add_callback(&self, callback: Callback) {
        let mut callbacks = self.callbacks.lock();
        let status = self.status();
        if status > callback.wanted {
            callbacks.push(callback);
            return;
        }
        drop(callbacks);
        engine::call_soon(Due {
            event: self.hold(),
            status: told(status, callback.wanted),
            callback,
        });
    }
}

/// Returns the status for a callback: the one that it waited for, or the error.
fn told(status: cl_int, wanted: cl_int) -> cl_int {
    if status < 0 { status } else { wanted }
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use super::*;
    use crate::arg;
    use crate::info::{Info, reply};

    pub(crate) unsafe fn clCreateUserEvent(
        context: cl_context,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_event> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        let owner = Owner::Context(context.hold());
        Ok(Event::new(owner, CL_COMMAND_USER, CL_SUBMITTED).publish())
    }

    pub(crate) unsafe fn clSetUserEventStatus(event: cl_event, status: cl_int) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Event>::borrow(event) }?.set_user_status(status)
    }

    pub(crate) unsafe fn clSetEventCallback(
        event: cl_event,
        wanted: cl_int,
        pfn_notify: EventCallback,
        user_data: *mut c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let event = unsafe { Object::<Event>::borrow(event) }?;
        let Some(function) = pfn_notify else {
            return fail(CL_INVALID_VALUE);
        };
        let known = [CL_SUBMITTED, CL_RUNNING, CL_COMPLETE].contains(&wanted);
        ensure(known, CL_INVALID_VALUE)?;
        event.add_callback(Callback {
            wanted,
            function,
            user_data: user_data as usize,
        });
        Ok(())
    }

    pub(crate) unsafe fn clWaitForEvents(count: cl_uint, list: *const cl_event) -> ClResult {
        ensure(count > 0 && !list.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the application passes a list as OpenCL requires.
        let events = unsafe { arg::objects::<Event>(count, list) }?;
        let mut contexts = events.iter().map(|event| event.context().handle());
        let first = contexts.next();
        ensure(
            contexts.all(|other| Some(other) == first),
            CL_INVALID_CONTEXT,
        )?;
        let mut good = true;
        for event in events {
            engine::wait(event);
            good &= event.status() == CL_COMPLETE;
        }
        ensure(good, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    }

    pub(crate) unsafe fn clRetainEvent(event: cl_event) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Event>::borrow(event) }?.retain();
        Ok(())
    }

    pub(crate) unsafe fn clReleaseEvent(event: cl_event) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Event>::borrow(event) }?.release()
    }

    pub(crate) unsafe fn clGetEventInfo(
        event: cl_event,
        name: cl_event_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let event = unsafe { Object::<Event>::borrow(event) }?;
        let queue = match &event.owner {
            Owner::Queue(queue) => queue.handle(),
            Owner::Context(_) => std::ptr::null_mut(),
        };
        let answer = match name {
            CL_EVENT_COMMAND_QUEUE => Info::handle(queue),
            CL_EVENT_COMMAND_TYPE => Info::uint(event.kind),
            CL_EVENT_COMMAND_EXECUTION_STATUS => Info::int(event.status()),
            CL_EVENT_REFERENCE_COUNT => Info::uint(event.references()),
            CL_EVENT_CONTEXT => Info::handle(event.context().handle()),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }

    pub(crate) unsafe fn clGetEventProfilingInfo(
        event: cl_event,
        name: cl_profiling_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let event = unsafe { Object::<Event>::borrow(event) }?;
        let moment = match name {
            CL_PROFILING_COMMAND_QUEUED => Moment::Queued,
            CL_PROFILING_COMMAND_SUBMIT => Moment::Submitted,
            CL_PROFILING_COMMAND_START => Moment::Started,
            CL_PROFILING_COMMAND_END => Moment::Ended,
            CL_PROFILING_COMMAND_COMPLETE => Moment::Completed,
            _ => return fail(CL_INVALID_VALUE),
        };
        let Owner::Queue(queue) = &event.owner else {
            return fail(CL_PROFILING_INFO_NOT_AVAILABLE);
        };
        let available = queue.profiling() && event.status() == CL_COMPLETE;
        ensure(available, CL_PROFILING_INFO_NOT_AVAILABLE)?;
        let answer = Info::ulong(queue.device.clock(event.time(moment)));
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }
}
