//! `cl_khr_command_buffer`, version 0.9.8: creation, end of recording, enqueue and info. [`record`] has its
//! commands, [`mutable`] has `cl_khr_command_buffer_mutable_dispatch`, version 0.9.5.
//!
//! Causeway implements both itself for every device (`stub/command_buffer`), whatever the node's driver
//! offers. A command buffer may always be enqueued again, and changed, while an earlier enqueue runs.
//!
//! Debian's headers are of version 0.9.0. There the functions that record have no `properties`, which came
//! with 0.9.5, and the function that changes launches takes a list of structures.

mod mutable;
mod record;

use std::ffi::CStr;
use std::sync::Arc;

use cl_headers::types::*;

use self::mutable::*;
use self::record::*;
use super::entry::entry_point;
use super::event::Events;
use super::handle;
use super::info::{Answered, Info, list};
use crate::error::{ClResult, fail, require};
use crate::stub::{CommandBuffer, Device, Phase, Properties, Queue};

/// Returns a function of the extensions by name.
pub(super) fn function(name: &CStr) -> Option<*const ()> {
    Some(match name.to_bytes() {
        b"clCreateCommandBufferKHR" => clCreateCommandBufferKHR as *const (),
        b"clRetainCommandBufferKHR" => clRetainCommandBufferKHR as *const (),
        b"clReleaseCommandBufferKHR" => clReleaseCommandBufferKHR as *const (),
        b"clFinalizeCommandBufferKHR" => clFinalizeCommandBufferKHR as *const (),
        b"clEnqueueCommandBufferKHR" => clEnqueueCommandBufferKHR as *const (),
        b"clGetCommandBufferInfoKHR" => clGetCommandBufferInfoKHR as *const (),
        b"clCommandBarrierWithWaitListKHR" => clCommandBarrierWithWaitListKHR as *const (),
        b"clCommandCopyBufferKHR" => clCommandCopyBufferKHR as *const (),
        b"clCommandCopyBufferRectKHR" => clCommandCopyBufferRectKHR as *const (),
        b"clCommandCopyBufferToImageKHR" => clCommandCopyBufferToImageKHR as *const (),
        b"clCommandCopyImageKHR" => clCommandCopyImageKHR as *const (),
        b"clCommandCopyImageToBufferKHR" => clCommandCopyImageToBufferKHR as *const (),
        b"clCommandFillBufferKHR" => clCommandFillBufferKHR as *const (),
        b"clCommandFillImageKHR" => clCommandFillImageKHR as *const (),
        b"clCommandNDRangeKernelKHR" => clCommandNDRangeKernelKHR as *const (),
        b"clCommandSVMMemcpyKHR" => clCommandSVMMemcpyKHR as *const (),
        b"clCommandSVMMemFillKHR" => clCommandSVMMemFillKHR as *const (),
        b"clUpdateMutableCommandsKHR" => clUpdateMutableCommandsKHR as *const (),
        b"clGetMutableCommandInfoKHR" => clGetMutableCommandInfoKHR as *const (),
        _ => return None,
    })
}

/// Answers the extensions' queries of `clGetDeviceInfo`. Returns `None` for any other name.
pub(super) fn device_answer(
    device: &Device,
    name: cl_device_info,
    info: Info,
) -> Option<ClResult<Answered>> {
    Some(match name {
        CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR => info.give(
            CL_COMMAND_BUFFER_CAPABILITY_KERNEL_PRINTF_KHR
                | CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR,
        ),
        // Every queue of the device supports command buffers, so the answer is what its queues can have.
        CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR => {
            info.give(device.number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES))
        }
        CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR => info.give(0u64),
        CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR => info.give(capabilities(device)),
        _ => return None,
    })
}

/// Reads a property list: pairs of name and value, with the 0 that ends it. Empty for NULL. `known` checks
/// a name and its value.
///
/// # Errors
/// `CL_INVALID_VALUE` for a name that appears twice, and the errors of `known`.
///
/// # Safety
/// `properties` is NULL or ends with a name of 0.
unsafe fn read_properties(
    properties: *const cl_properties,
    known: impl Fn(cl_properties, u64) -> ClResult,
) -> ClResult<Vec<cl_properties>> {
    let mut all: Vec<cl_properties> = Vec::new();
    if properties.is_null() {
        return Ok(all);
    }
    loop {
        // SAFETY: the list ends with a name of 0, and everything before it has been read as pairs.
        let name = unsafe { properties.add(all.len()).read() };
        if name == 0 {
            all.push(0);
            return Ok(all);
        }
        // clCreateCommandBufferKHR, clCommandNDRangeKernelKHR: CL_INVALID_VALUE when a property name
        // appears twice.
        let fresh = value_of(&all, name).is_none();
        require(fresh, CL_INVALID_VALUE)?;
        // SAFETY: a name other than 0 is followed by its value.
        let value = unsafe { properties.add(all.len() + 1).read() };
        known(name, value)?;
        all.extend([name, value]);
    }
}

/// The value of a name in a list of [`read_properties`].
fn value_of(list: &[cl_properties], name: cl_properties) -> Option<u64> {
    let mut pairs = list.chunks_exact(2);
    pairs.find_map(|pair| (pair[0] == name).then_some(pair[1]))
}

/// Reads the property list of `clCreateCommandBufferKHR`.
///
/// # Safety
/// As [`read_properties`].
unsafe fn creation_properties(
    properties: *const cl_command_buffer_properties_khr,
) -> ClResult<Properties> {
    let known = |name, value| {
        let bits = match name {
            CL_COMMAND_BUFFER_FLAGS_KHR => {
                CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR | CL_COMMAND_BUFFER_MUTABLE_KHR
            }
            CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR => ASSERTS,
            _ => 0,
        };
        // clCreateCommandBufferKHR: CL_INVALID_VALUE when a property name or its value is not supported.
        require(bits != 0 && value & !bits == 0, CL_INVALID_VALUE)
    };
    // SAFETY: the caller upholds this function's contract.
    let list = unsafe { read_properties(properties, known)? };
    let value = |name| value_of(&list, name).unwrap_or(0);
    Ok(Properties {
        flags: value(CL_COMMAND_BUFFER_FLAGS_KHR),
        asserts: value(CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR),
        list,
    })
}

#[entry_point]
pub(crate) fn clCreateCommandBufferKHR(
    num_queues: cl_uint,
    queues: *const cl_command_queue,
    properties: *const cl_command_buffer_properties_khr,
) -> ClResult<cl_command_buffer_khr> {
    // clCreateCommandBufferKHR: CL_INVALID_VALUE when queues is NULL or num_queues is not 1; more need
    // cl_khr_command_buffer_multi_device.
    require(num_queues == 1 && !queues.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, and of one handle.
    let queue = handle::resolve::<Queue>(unsafe { queues.read() })?;
    // SAFETY: the specification demands NULL or a list of pairs that a name of 0 ends.
    let properties = unsafe { creation_properties(properties)? };
    Ok(handle::publish(CommandBuffer::new(queue, properties)?))
}

#[entry_point]
pub(crate) fn clRetainCommandBufferKHR(command_buffer: cl_command_buffer_khr) -> ClResult {
    handle::retain::<CommandBuffer>(command_buffer)
}

#[entry_point]
pub(crate) fn clReleaseCommandBufferKHR(command_buffer: cl_command_buffer_khr) -> ClResult {
    handle::release::<CommandBuffer>(command_buffer)
}

#[entry_point]
pub(crate) fn clFinalizeCommandBufferKHR(command_buffer: cl_command_buffer_khr) -> ClResult {
    handle::resolve::<CommandBuffer>(command_buffer)?.finalize()
}

#[entry_point]
pub(crate) fn clEnqueueCommandBufferKHR(
    num_queues: cl_uint,
    queues: *mut cl_command_queue,
    command_buffer: cl_command_buffer_khr,
    events: Events,
) -> ClResult {
    let stub = handle::resolve::<CommandBuffer>(command_buffer)?;
    // clEnqueueCommandBufferKHR: CL_INVALID_OPERATION when the command buffer is not executable.
    require(stub.phase() == Phase::Executable, CL_INVALID_OPERATION)?;
    // clEnqueueCommandBufferKHR: CL_INVALID_VALUE when queues and num_queues contradict each other, or
    // name more queues than the command buffer has.
    require(
        queues.is_null() == (num_queues == 0) && num_queues <= 1,
        CL_INVALID_VALUE,
    )?;
    // SAFETY: NULL or of `num_queues` handles.
    let queue = match unsafe { list(queues.cast_const(), num_queues as usize) } {
        [] => stub.queue().clone(),
        [other, ..] => substitute(&stub, *other)?,
    };
    let wait = events.wait_list(queue.context())?;
    let enqueued = stub.enqueue(&queue, wait, events.wants_event())?;
    events.give(enqueued);
    Ok(())
}

#[entry_point]
pub(crate) fn clGetCommandBufferInfoKHR(
    command_buffer: cl_command_buffer_khr,
    param_name: cl_command_buffer_info_khr,
    info: Info,
) -> ClResult {
    let stub = handle::resolve::<CommandBuffer>(command_buffer)?;
    answer(command_buffer, &stub, param_name, info).map(drop)
}

/// Resolves the queue that replaces the one for which the commands were recorded. It must be of the same
/// device.
fn substitute(command_buffer: &CommandBuffer, other: cl_command_queue) -> ClResult<Arc<Queue>> {
    let own = command_buffer.queue();
    let other = handle::resolve::<Queue>(other)?;
    // clEnqueueCommandBufferKHR: CL_INVALID_CONTEXT when the queue belongs to another context than the
    // command buffer.
    require(
        Arc::ptr_eq(own.context(), other.context()),
        CL_INVALID_CONTEXT,
    )?;
    // clEnqueueCommandBufferKHR: CL_INCOMPATIBLE_COMMAND_QUEUE_KHR when the queue is of another device than
    // the recorded one.
    require(
        Arc::ptr_eq(own.device(), other.device()),
        CL_INCOMPATIBLE_COMMAND_QUEUE_KHR,
    )?;
    Ok(other)
}

fn answer(
    raw: cl_command_buffer_khr,
    command_buffer: &CommandBuffer,
    name: cl_command_buffer_info_khr,
    info: Info,
) -> ClResult<Answered> {
    let queue = command_buffer.queue();
    match name {
        CL_COMMAND_BUFFER_NUM_QUEUES_KHR => info.give(1u32),
        CL_COMMAND_BUFFER_QUEUES_KHR => info.give(handle::raw_of(queue)),
        CL_COMMAND_BUFFER_REFERENCE_COUNT_KHR => {
            info.give(handle::reference_count::<CommandBuffer>(raw)?)
        }
        CL_COMMAND_BUFFER_STATE_KHR => info.give(match command_buffer.phase() {
            Phase::Recording => CL_COMMAND_BUFFER_STATE_RECORDING_KHR,
            Phase::Finalized => CL_COMMAND_BUFFER_STATE_FINALIZED_KHR,
            Phase::Executable => CL_COMMAND_BUFFER_STATE_EXECUTABLE_KHR,
        }),
        CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR => {
            info.give_slice(&command_buffer.properties().list)
        }
        CL_COMMAND_BUFFER_CONTEXT_KHR => info.give(handle::raw_of(queue.context())),
        // clGetCommandBufferInfoKHR: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}
