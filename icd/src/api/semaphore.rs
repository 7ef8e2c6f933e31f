//! `cl_khr_semaphore`, version 1.0.0: binary semaphores, each of one device.
//!
//! Handles of other drivers' semaphores (`cl_khr_external_semaphore` and related extensions) are not
//! offered, because they name something in one host's kernel. `clGetSemaphoreHandleForTypeKHR` exists
//! nevertheless, for programs that require its address. Payload lists concern only semaphore types that are
//! not offered, so they are ignored.

use std::ffi::CStr;
use std::sync::Arc;

use cl_headers::types::*;

use super::entry::entry_point;
use super::event::Events;
use super::handle;
use super::info::{Answered, Info, list};
use super::properties::PropertyList;
use crate::error::{ClResult, Status, fail, require};
use crate::stub::{Context, Device, Event, Queue, Semaphore, semaphore};

/// The value of `CL_PLATFORM_SEMAPHORE_TYPES_KHR`, and of `CL_DEVICE_SEMAPHORE_TYPES_KHR` for every device.
pub(super) const TYPES: [cl_semaphore_type_khr; 1] = [CL_SEMAPHORE_TYPE_BINARY_KHR];

/// Returns a function of the extension by name.
pub(super) fn function(name: &CStr) -> Option<*const ()> {
    Some(match name.to_bytes() {
        b"clCreateSemaphoreWithPropertiesKHR" => clCreateSemaphoreWithPropertiesKHR as *const (),
        b"clEnqueueWaitSemaphoresKHR" => clEnqueueWaitSemaphoresKHR as *const (),
        b"clEnqueueSignalSemaphoresKHR" => clEnqueueSignalSemaphoresKHR as *const (),
        b"clGetSemaphoreInfoKHR" => clGetSemaphoreInfoKHR as *const (),
        b"clRetainSemaphoreKHR" => clRetainSemaphoreKHR as *const (),
        b"clReleaseSemaphoreKHR" => clReleaseSemaphoreKHR as *const (),
        b"clGetSemaphoreHandleForTypeKHR" => clGetSemaphoreHandleForTypeKHR as *const (),
        _ => return None,
    })
}

/// Answers the extension's query of `clGetDeviceInfo`. Returns `None` for any other name.
pub(super) fn device_answer(name: cl_device_info, info: Info) -> Option<ClResult<Answered>> {
    (name == CL_DEVICE_SEMAPHORE_TYPES_KHR).then(|| info.give_slice(&TYPES))
}

/// Reads the property list of `clCreateSemaphoreWithPropertiesKHR`. Returns the list as given, and the
/// device that it names.
///
/// # Safety
/// `properties` is NULL or ends with a name of 0. A list of devices in it ends with its own 0.
unsafe fn read_properties(
    context: &Context,
    properties: *const cl_semaphore_properties_khr,
) -> ClResult<(Vec<cl_semaphore_properties_khr>, Arc<Device>)> {
    // clCreateSemaphoreWithPropertiesKHR: CL_INVALID_VALUE when sema_props is NULL.
    require(!properties.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: the caller upholds this function's contract. Of a list of devices, at most two words are
    // read.
    let mut list = unsafe { PropertyList::new(properties) };
    let (mut has_type, mut device) = (false, None);
    while let Some(name) = list.name() {
        // clCreateSemaphoreWithPropertiesKHR: CL_INVALID_PROPERTY when a name appears twice.
        require(!list.is_repeated(), CL_INVALID_PROPERTY)?;
        match u32::try_from(name) {
            Ok(CL_SEMAPHORE_TYPE_KHR) => {
                let binary = list.value() == u64::from(CL_SEMAPHORE_TYPE_BINARY_KHR);
                // clCreateSemaphoreWithPropertiesKHR: CL_INVALID_PROPERTY when the type is not supported.
                require(binary, CL_INVALID_PROPERTY)?;
                has_type = true;
            }
            // clCreateSemaphoreWithPropertiesKHR: CL_INVALID_DEVICE when the list does not name exactly one
            // device of the context.
            Ok(CL_SEMAPHORE_DEVICE_HANDLE_LIST_KHR) => {
                let raw = std::ptr::with_exposed_provenance_mut(list.value() as usize);
                let named = handle::resolve::<Device>(raw)?;
                let is_one = list.value() == u64::from(CL_SEMAPHORE_DEVICE_HANDLE_LIST_END_KHR);
                require(is_one && context.has_device(&named), CL_INVALID_DEVICE)?;
                device = Some(named);
            }
            // clCreateSemaphoreWithPropertiesKHR: CL_INVALID_PROPERTY when a name is not supported.
            _ => return fail(CL_INVALID_PROPERTY),
        }
    }
    // clCreateSemaphoreWithPropertiesKHR: CL_INVALID_VALUE when the semaphore's type is missing.
    require(has_type, CL_INVALID_VALUE)?;
    // clCreateSemaphoreWithPropertiesKHR: CL_INVALID_PROPERTY when the context has several devices and the
    // list names none.
    let device = match (device, context.devices()) {
        (Some(device), _) => device,
        (None, [only]) => only.clone(),
        (None, _) => return fail(CL_INVALID_PROPERTY),
    };
    Ok((list.read(), device))
}

/// The function that enqueues one of the two commands.
type Enqueue = fn(&Arc<Queue>, &[Arc<Semaphore>], Vec<Arc<Event>>) -> ClResult<Arc<Event>>;

fn enqueue(
    command_queue: cl_command_queue,
    (num_sema_objects, sema_objects): (cl_uint, *const cl_semaphore_khr),
    events: Events,
    enqueue: Enqueue,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    // clEnqueueWaitSemaphoresKHR: CL_INVALID_VALUE when num_sema_objects is 0 or sema_objects is NULL.
    require(
        num_sema_objects > 0 && !sema_objects.is_null(),
        CL_INVALID_VALUE,
    )?;
    // SAFETY: not NULL, and the specification demands `num_sema_objects` handles.
    let handles = unsafe { list(sema_objects, num_sema_objects as usize) };
    let mut semaphores: Vec<Arc<Semaphore>> = Vec::with_capacity(handles.len());
    for &raw in handles {
        // clEnqueueWaitSemaphoresKHR: CL_INVALID_SEMAPHORE_KHR when an element is not a valid semaphore.
        let semaphore = handle::resolve::<Semaphore>(raw)?;
        // A semaphore that appears twice is signalled or waited for once.
        if !semaphores
            .iter()
            .any(|known| Arc::ptr_eq(known, &semaphore))
        {
            semaphores.push(semaphore);
        }
    }
    let mut all = semaphores.iter();
    let same = all.all(|semaphore| Arc::ptr_eq(semaphore.context(), queue.context()));
    // clEnqueueWaitSemaphoresKHR: CL_INVALID_CONTEXT when a semaphore belongs to another context than the
    // queue.
    require(same, CL_INVALID_CONTEXT)?;
    // clEnqueueWaitSemaphoresKHR: CL_INVALID_COMMAND_QUEUE when a semaphore was created for another device
    // than the queue's.
    let mut all = semaphores.iter();
    let right = all.all(|semaphore| Arc::ptr_eq(semaphore.device(), queue.device()));
    require(right, CL_INVALID_COMMAND_QUEUE)?;
    let wait = events.wait_list(queue.context())?;
    // clEnqueueWaitSemaphoresKHR: CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST when an event of the wait
    // list has already failed.
    if wait.iter().any(|on| on.status() < 0) {
        return Err(Status::WAIT_LIST_FAILED);
    }
    events.give(enqueue(&queue, &semaphores, wait)?);
    Ok(())
}

#[entry_point]
pub(crate) fn clCreateSemaphoreWithPropertiesKHR(
    context: cl_context,
    sema_props: *const cl_semaphore_properties_khr,
) -> ClResult<cl_semaphore_khr> {
    let context = handle::resolve::<Context>(context)?;
    // SAFETY: the specification demands NULL or a list of pairs that a name of 0 ends.
    let (properties, device) = unsafe { read_properties(&context, sema_props)? };
    Ok(handle::publish(Semaphore::new(context, device, properties)))
}

#[entry_point]
pub(crate) fn clEnqueueWaitSemaphoresKHR(
    command_queue: cl_command_queue,
    num_sema_objects: cl_uint,
    sema_objects: *const cl_semaphore_khr,
    _sema_payload_list: *const cl_semaphore_payload_khr,
    events: Events,
) -> ClResult {
    let semaphores = (num_sema_objects, sema_objects);
    enqueue(command_queue, semaphores, events, semaphore::wait_for)
}

#[entry_point]
pub(crate) fn clEnqueueSignalSemaphoresKHR(
    command_queue: cl_command_queue,
    num_sema_objects: cl_uint,
    sema_objects: *const cl_semaphore_khr,
    _sema_payload_list: *const cl_semaphore_payload_khr,
    events: Events,
) -> ClResult {
    let semaphores = (num_sema_objects, sema_objects);
    enqueue(command_queue, semaphores, events, semaphore::signal)
}

#[entry_point]
pub(crate) fn clRetainSemaphoreKHR(sema_object: cl_semaphore_khr) -> ClResult {
    handle::retain::<Semaphore>(sema_object)
}

#[entry_point]
pub(crate) fn clReleaseSemaphoreKHR(sema_object: cl_semaphore_khr) -> ClResult {
    handle::release::<Semaphore>(sema_object)
}

#[entry_point]
pub(crate) fn clGetSemaphoreHandleForTypeKHR(
    sema_object: cl_semaphore_khr,
    device: cl_device_id,
    _handle_type: cl_external_semaphore_handle_type_khr,
    _handle_size: size_t,
    _handle_ptr: *mut c_void,
    _handle_size_ret: *mut size_t,
) -> ClResult {
    let semaphore = handle::resolve::<Semaphore>(sema_object)?;
    let device = handle::resolve::<Device>(device)?;
    // clGetSemaphoreHandleForTypeKHR: CL_INVALID_DEVICE when the semaphore was created for another
    // device.
    require(Arc::ptr_eq(semaphore.device(), &device), CL_INVALID_DEVICE)?;
    // clGetSemaphoreHandleForTypeKHR: CL_INVALID_VALUE when the semaphore was created without this
    // handle type; no handle type is offered at creation.
    fail(CL_INVALID_VALUE)
}

#[entry_point]
pub(crate) fn clGetSemaphoreInfoKHR(
    sema_object: cl_semaphore_khr,
    param_name: cl_semaphore_info_khr,
    info: Info,
) -> ClResult {
    let stub = handle::resolve::<Semaphore>(sema_object)?;
    answer(sema_object, &stub, param_name, info).map(drop)
}

fn answer(
    raw: cl_semaphore_khr,
    semaphore: &Semaphore,
    name: cl_semaphore_info_khr,
    info: Info,
) -> ClResult<Answered> {
    match name {
        CL_SEMAPHORE_CONTEXT_KHR => info.give(handle::raw_of(semaphore.context())),
        CL_SEMAPHORE_REFERENCE_COUNT_KHR => info.give(handle::reference_count::<Semaphore>(raw)?),
        CL_SEMAPHORE_PROPERTIES_KHR => info.give_slice(semaphore.properties()),
        CL_SEMAPHORE_TYPE_KHR => info.give(CL_SEMAPHORE_TYPE_BINARY_KHR),
        CL_SEMAPHORE_DEVICE_HANDLE_LIST_KHR => info.give(handle::raw_of(semaphore.device())),
        CL_SEMAPHORE_PAYLOAD_KHR => {
            info.give(cl_semaphore_payload_khr::from(semaphore.is_signalled()))
        }
        // clGetSemaphoreInfoKHR: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}
