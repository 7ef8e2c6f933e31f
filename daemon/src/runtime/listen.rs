//! Registration for the ends of commands: with the driver, or with the thread that polls.
//!
//! Events know nothing of it. Invariant: a listener is notified once.

use std::ffi::c_void;
use std::sync::Arc;

use causeway_proto::status::Status;
use opencl_sys::{CL_COMPLETE, cl_event};

use super::event::{Event, Listener, WatchedQueue, report};
use super::library::{check, cl};
use super::watch;

/// Registers `listener` for the end of its event. It is notified once, possibly before this function
/// returns. If the driver refuses the callback, the end is found by polling.
///
/// # Errors
/// The polling thread cannot be started; the listener is never notified then.
pub fn listen<L: Listener>(listener: &Arc<L>) -> Result<(), Status> {
    let Some(event) = listener.event() else {
        return Err(Status::INVALID_OPERATION);
    };
    // Before the registration, because the end may be noticed inside of it.
    listener.busy().begin(event.home.meter);
    register(listener, event).inspect_err(|_| listener.busy().end(event.home.meter))
}

fn register<L: Listener>(listener: &Arc<L>, event: &Event) -> Result<(), Status> {
    if let Some(queue) = event.home.watched {
        return watch::add(queue, Arc::clone(listener) as Arc<dyn Listener>);
    }
    let user_data = Arc::into_raw(Arc::clone(listener));
    // SAFETY: the event is live; the callback takes over the reference in `user_data`, exactly once.
    let registered = check(unsafe {
        cl!(clSetEventCallback(
            event.raw,
            CL_COMPLETE,
            Some(completed::<L>),
            user_data.cast_mut().cast()
        ))
    });
    registered.or_else(|_| {
        // SAFETY: the registration failed, so this function still owns the reference.
        let listener = unsafe { Arc::from_raw(user_data) };
        let queue = WatchedQueue {
            key: event.queue_key(),
            in_order: false,
        };
        watch::add(queue, listener as Arc<dyn Listener>)
    })
}

unsafe extern "C" fn completed<L: Listener>(_: cl_event, status: i32, user_data: *mut c_void) {
    // SAFETY: `listen` passed this reference to this callback, and the driver calls it once.
    let listener = unsafe { Arc::from_raw(user_data.cast_const().cast::<L>()) };
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        if let Some(event) = listener.event() {
            event.note_end();
        }
        report(listener, Status(status.min(0)));
    }));
    if told.is_err() {
        // A lost completion would make the session hang, and the driver's thread must not unwind. So the process ends.
        std::process::abort();
    }
}
