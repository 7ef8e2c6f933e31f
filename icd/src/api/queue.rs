//! Command queues: creation, reference counts, info, flush and finish.

use std::sync::Arc;

use cl_headers::types::*;

use super::entry::entry_points;
use super::handle;
use super::info::{Answered, Info};
use crate::error::{ClResult, fail, require};
use crate::stub::{Context, Device, Queue, timer};

fn create(
    context: cl_context,
    device: cl_device_id,
    list: impl FnOnce(&Device) -> ClResult<(cl_command_queue_properties, Vec<u64>)>,
) -> ClResult<cl_command_queue> {
    let context = handle::resolve::<Context>(context)?;
    let device = handle::resolve::<Device>(device)?;
    require(context.has_device(&device), CL_INVALID_DEVICE)?;
    let (properties, list) = list(&device)?;
    let queue = Queue::new(context, device, properties, list)?;
    timer::prepare(&queue);
    Ok(handle::publish(queue))
}

/// The bits of `CL_QUEUE_PROPERTIES`: unknown ones are wrong, known ones must be the device's.
fn check_bits(device: &Device, bits: cl_command_queue_properties) -> ClResult {
    let host = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
    let on_device = CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;
    require(bits & !(host | on_device) == 0, CL_INVALID_VALUE)?;
    // A default queue is a device queue, a device queue is out of order.
    require(
        bits & CL_QUEUE_ON_DEVICE_DEFAULT == 0 || bits & CL_QUEUE_ON_DEVICE != 0,
        CL_INVALID_VALUE,
    )?;
    let in_order_on_device =
        bits & CL_QUEUE_ON_DEVICE != 0 && bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
    require(!in_order_on_device, CL_INVALID_VALUE)?;
    // Queues on the device are not offered.
    require(bits & on_device == 0, CL_INVALID_QUEUE_PROPERTIES)?;
    let offered = device.number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES);
    require(bits & !offered == 0, CL_INVALID_QUEUE_PROPERTIES)
}

/// Whether a property is a hint that the device takes.
fn is_hint(device: &Device, name: u32) -> bool {
    const HINTS: [(cl_queue_properties, &str); 2] = [
        (CL_QUEUE_PRIORITY_KHR, "cl_khr_priority_hints"),
        (CL_QUEUE_THROTTLE_KHR, "cl_khr_throttle_hints"),
    ];
    let extension = HINTS.iter().find(|(known, _)| *known == u64::from(name));
    extension.is_some_and(|(_, extension)| device.has_extension(extension))
}

/// Reads the property list of `clCreateCommandQueueWithProperties`.
fn read_list(
    device: &Device,
    properties: *const cl_queue_properties,
) -> ClResult<(cl_command_queue_properties, Vec<u64>)> {
    let (mut bits, mut all) = (0, Vec::new());
    if properties.is_null() {
        return Ok((bits, all));
    }
    loop {
        // SAFETY: the list ends with a 0 name, and everything before it has been read as pairs.
        let name = unsafe { properties.add(all.len()).read() };
        if name == 0 {
            all.push(0);
            check_bits(device, bits)?;
            return Ok((bits, all));
        }
        // SAFETY: a name that is not 0 is followed by its value.
        let value = unsafe { properties.add(all.len() + 1).read() };
        match u32::try_from(name) {
            Ok(CL_QUEUE_PROPERTIES) => bits = value,
            // Of device queues only, which are not offered.
            Ok(CL_QUEUE_SIZE) => return fail(CL_INVALID_QUEUE_PROPERTIES),
            Ok(hint) if is_hint(device, hint) => {
                // One of high, medium, low.
                require(matches!(value, 1 | 2 | 4), CL_INVALID_VALUE)?;
            }
            _ => return fail(CL_INVALID_VALUE),
        }
        all.extend([name, value]);
    }
}

entry_points! {
    fn clCreateCommandQueue(
        context: cl_context, device: cl_device_id, properties: cl_command_queue_properties; errcode_ret
    ) -> cl_command_queue {
        create(context, device, |device| {
            let host = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
            require(properties & !host == 0, CL_INVALID_VALUE)?;
            check_bits(device, properties)?;
            Ok((properties, Vec::new()))
        })
    }

    fn clCreateCommandQueueWithProperties(
        context: cl_context, device: cl_device_id, properties: *const cl_queue_properties; errcode_ret
    ) -> cl_command_queue {
        create(context, device, |device| read_list(device, properties))
    }

    fn clSetCommandQueueProperty(
        command_queue: cl_command_queue, _properties: cl_command_queue_properties, _enable: cl_bool,
        _old_properties: *mut cl_command_queue_properties,
    ) {
        // Deprecated by 1.1; drivers of 1.1 and later may refuse to change a queue.
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clSetDefaultDeviceCommandQueue(
        context: cl_context, device: cl_device_id, command_queue: cl_command_queue,
    ) {
        let context = handle::resolve::<Context>(context)?;
        let device = handle::resolve::<Device>(device)?;
        require(context.has_device(&device), CL_INVALID_DEVICE)?;
        let _ = command_queue;
        // No device offers on-device queues.
        fail(CL_INVALID_OPERATION)
    }

    fn clRetainCommandQueue(command_queue: cl_command_queue) {
        handle::retain::<Queue>(command_queue)
    }

    fn clReleaseCommandQueue(command_queue: cl_command_queue) {
        let queue = handle::resolve::<Queue>(command_queue)?;
        handle::release::<Queue>(command_queue)?;
        // An implicit flush; a lost session has nothing to flush.
        let _ = queue.flush();
        Ok(())
    }

    fn clGetCommandQueueInfo(
        command_queue: cl_command_queue, param_name: cl_command_queue_info, param_value_size: size_t,
        param_value: *mut c_void, param_value_size_ret: *mut size_t,
    ) {
        let queue = handle::resolve::<Queue>(command_queue)?;
        // SAFETY: the specification's contract of the three arguments.
        let info = unsafe { Info::new(param_value_size, param_value, param_value_size_ret) };
        answer(command_queue, &queue, param_name, info).map(drop)
    }

    fn clFlush(command_queue: cl_command_queue) {
        handle::resolve::<Queue>(command_queue)?.flush()
    }

    fn clFinish(command_queue: cl_command_queue) {
        handle::resolve::<Queue>(command_queue)?.finish()
    }
}

fn answer(
    raw: cl_command_queue,
    queue: &Arc<Queue>,
    name: cl_command_queue_info,
    info: Info,
) -> ClResult<Answered> {
    match name {
        CL_QUEUE_CONTEXT => info.give(handle::raw_of(queue.context())),
        CL_QUEUE_DEVICE => info.give(handle::raw_of(queue.device())),
        CL_QUEUE_REFERENCE_COUNT => info.give(handle::reference_count::<Queue>(raw)?),
        CL_QUEUE_PROPERTIES => info.give(queue.properties()),
        CL_QUEUE_PROPERTIES_ARRAY => info.give_slice(queue.property_list()),
        // A host queue has no size.
        CL_QUEUE_SIZE => fail(CL_INVALID_COMMAND_QUEUE),
        CL_QUEUE_DEVICE_DEFAULT => info.give(std::ptr::null_mut::<c_void>()),
        _ => fail(CL_INVALID_VALUE),
    }
}
