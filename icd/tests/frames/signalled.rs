//! Semaphores for tests, by the functions of `cl_khr_semaphore`; on top of `opencl`.

use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use crate::frames::opencl::*;

/// The functions of the extension.
pub struct Functions {
    pub create: clCreateSemaphoreWithPropertiesKHR_fn,
    pub wait: clEnqueueWaitSemaphoresKHR_fn,
    pub signal: clEnqueueSignalSemaphoresKHR_fn,
    pub info: clGetSemaphoreInfoKHR_fn,
    pub retain: clRetainSemaphoreKHR_fn,
    pub release: clReleaseSemaphoreKHR_fn,
}

pub fn functions() -> &'static Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Functions {
        create: function(c"clCreateSemaphoreWithPropertiesKHR"),
        wait: function(c"clEnqueueWaitSemaphoresKHR"),
        signal: function(c"clEnqueueSignalSemaphoresKHR"),
        info: function(c"clGetSemaphoreInfoKHR"),
        retain: function(c"clRetainSemaphoreKHR"),
        release: function(c"clReleaseSemaphoreKHR"),
    })
}

/// Calls a function of the extension.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let function = crate::frames::signalled::functions().$name.expect("an address");
        // SAFETY: the test gives what the specification asks for, or what it must refuse.
        unsafe { function($($argument),*) }
    }};
}

pub(crate) use call;

pub const TYPE: u64 = CL_SEMAPHORE_TYPE_KHR as u64;
pub const BINARY: u64 = CL_SEMAPHORE_TYPE_BINARY_KHR as u64;
pub const DEVICES: u64 = CL_SEMAPHORE_DEVICE_HANDLE_LIST_KHR as u64;

/// Makes a semaphore with these properties, or NULL.
pub fn create(context: cl_context, properties: Option<&[u64]>) -> Result<cl_semaphore_khr, cl_int> {
    let properties = properties.map_or(null(), <[u64]>::as_ptr);
    let mut code = 77;
    let made = call!(create(context, properties, &raw mut code));
    assert_eq!(made.is_null(), code != CL_SUCCESS);
    if code == CL_SUCCESS {
        Ok(made)
    } else {
        Err(code)
    }
}

/// Makes a semaphore for a context of one device.
pub fn semaphore(context: cl_context) -> cl_semaphore_khr {
    create(context, Some(&[TYPE, BINARY, 0])).expect("a semaphore")
}

/// Makes a semaphore for one device of a context.
pub fn semaphore_of(context: cl_context, device: cl_device_id) -> cl_semaphore_khr {
    let device = device.expose_provenance() as u64;
    create(context, Some(&[TYPE, BINARY, DEVICES, device, 0, 0])).expect("a semaphore")
}

fn list_of<T>(list: &[T]) -> (cl_uint, *const T) {
    let at = if list.is_empty() {
        null()
    } else {
        list.as_ptr()
    };
    (list.len() as cl_uint, at)
}

/// Enqueues a signal. Returns the event.
pub fn try_signal(
    queue: cl_command_queue,
    semaphores: &[cl_semaphore_khr],
    wait: &[cl_event],
) -> Result<cl_event, cl_int> {
    let ((count, list), (events, wait)) = (list_of(semaphores), list_of(wait));
    let mut event = null_mut();
    let code = call!(signal(
        queue,
        count,
        list,
        null(),
        events,
        wait,
        &raw mut event
    ));
    assert_eq!(event.is_null(), code != CL_SUCCESS);
    if code == CL_SUCCESS {
        Ok(event)
    } else {
        Err(code)
    }
}

/// Enqueues a wait. Returns the event.
pub fn try_wait(
    queue: cl_command_queue,
    semaphores: &[cl_semaphore_khr],
    wait: &[cl_event],
) -> Result<cl_event, cl_int> {
    let ((count, list), (events, list_of_events)) = (list_of(semaphores), list_of(wait));
    let mut event = null_mut();
    let at = &raw mut event;
    let code = call!(wait(queue, count, list, null(), events, list_of_events, at));
    assert_eq!(event.is_null(), code != CL_SUCCESS);
    if code == CL_SUCCESS {
        Ok(event)
    } else {
        Err(code)
    }
}

pub fn signal(queue: cl_command_queue, semaphore: cl_semaphore_khr, wait: &[cl_event]) -> cl_event {
    try_signal(queue, &[semaphore], wait).expect("a signal")
}

pub fn wait(queue: cl_command_queue, semaphore: cl_semaphore_khr, wait: &[cl_event]) -> cl_event {
    try_wait(queue, &[semaphore], wait).expect("a wait")
}

/// Returns an info answer of one number or handle.
pub fn info<T: Copy>(semaphore: cl_semaphore_khr, name: cl_semaphore_info_khr, mut value: T) -> T {
    let (room, to, mut size) = (size_of::<T>(), (&raw mut value).cast(), 0);
    assert_eq!(
        call!(info(semaphore, name, room, to, &raw mut size)),
        CL_SUCCESS
    );
    assert_eq!(size, room);
    value
}

/// The semaphore's payload: 1 if it is signalled.
pub fn payload(semaphore: cl_semaphore_khr) -> u64 {
    info(semaphore, CL_SEMAPHORE_PAYLOAD_KHR, 77u64)
}

pub fn let_go(semaphore: cl_semaphore_khr) {
    assert_eq!(call!(release(semaphore)), CL_SUCCESS);
}
