//! Command queues: creation, reference counts, info, flush and finish.

use std::sync::Arc;

use causeway_proto::limits::MAX_LIST;
use cl_headers::types::*;

use super::entry::entry_point;
use super::handle;
use super::info::{Answered, Info};
use crate::error::{ClResult, fail, require};
use crate::stub::queue::device_queue::{DeviceQueueSpec, has_replaceable_default, properties_on};
use crate::stub::{Context, Device, DeviceQueue, Queue, device::timer};

/// The contents of a property list.
#[derive(Default)]
struct Wanted {
    /// The bits of `CL_QUEUE_PROPERTIES`.
    bits: cl_command_queue_properties,
    /// `CL_QUEUE_SIZE`, if it is in the list.
    size: Option<u32>,
    /// The list with its final 0. Empty where the application gave none.
    list: Vec<u64>,
}

fn create(
    context: cl_context,
    device: cl_device_id,
    wanted: impl FnOnce(&Device) -> ClResult<Wanted>,
) -> ClResult<cl_command_queue> {
    let context = handle::resolve::<Context>(context)?;
    let device = handle::resolve::<Device>(device)?;
    // clCreateCommandQueue*: CL_INVALID_DEVICE when the device is not one of the context.
    require(context.has_device(&device), CL_INVALID_DEVICE)?;
    let wanted = wanted(&device)?;
    if wanted.bits & CL_QUEUE_ON_DEVICE != 0 {
        return create_on_device(context, device, wanted);
    }
    let queue = Queue::new(context, device, wanted.bits, wanted.list)?;
    // Starts the read of the node's clock now, so that a later profiling query rarely waits for it.
    timer::prepare(&queue);
    Ok(handle::publish(queue))
}

/// Creates an on-device queue. A second default queue of a device is not created:
/// clCreateCommandQueueWithProperties then returns the existing one and increments its reference count.
fn create_on_device(
    context: Arc<Context>,
    device: Arc<Device>,
    wanted: Wanted,
) -> ClResult<cl_command_queue> {
    if wanted.bits & CL_QUEUE_ON_DEVICE_DEFAULT != 0
        && let Some(there) = default_queue(&context, &device)
        && handle::retain::<DeviceQueue>(there).is_ok()
    {
        return Ok(there);
    }
    let spec = DeviceQueueSpec {
        properties: wanted.bits,
        property_list: wanted.list,
        size: wanted.size,
    };
    Ok(handle::publish(DeviceQueue::new(context, device, spec)?))
}

/// The handle of a device's default queue, as long as the application has a reference to it.
fn default_queue(context: &Context, device: &Arc<Device>) -> Option<cl_command_queue> {
    let raw = handle::raw_of(&DeviceQueue::default_of(context, device)?);
    // A kernel argument may keep the stub alive after the application's last reference.
    handle::resolve::<DeviceQueue>(raw).is_ok().then_some(raw)
}

/// Checks the bits of `CL_QUEUE_PROPERTIES`: they must be known, fit together, and be offered by the
/// device.
fn check_bits(device: &Device, bits: cl_command_queue_properties) -> ClResult {
    let host = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
    let on_device = CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;
    // clCreateCommandQueueWithProperties: CL_INVALID_VALUE when the properties contain unknown bits.
    require(bits & !(host | on_device) == 0, CL_INVALID_VALUE)?;
    // clCreateCommandQueueWithProperties: CL_INVALID_VALUE when CL_QUEUE_ON_DEVICE_DEFAULT is set without
    // CL_QUEUE_ON_DEVICE.
    require(
        bits & CL_QUEUE_ON_DEVICE_DEFAULT == 0 || bits & CL_QUEUE_ON_DEVICE != 0,
        CL_INVALID_VALUE,
    )?;
    let in_order_on_device =
        bits & CL_QUEUE_ON_DEVICE != 0 && bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
    // clCreateCommandQueueWithProperties: CL_INVALID_VALUE when an on-device queue is not out of order.
    require(!in_order_on_device, CL_INVALID_VALUE)?;
    if bits & CL_QUEUE_ON_DEVICE == 0 {
        let offered = device.number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES);
        // clCreateCommandQueueWithProperties: CL_INVALID_QUEUE_PROPERTIES when the bits are valid but the
        // device lacks them.
        return require(bits & !offered == 0, CL_INVALID_QUEUE_PROPERTIES);
    }
    // clCreateCommandQueueWithProperties: CL_INVALID_QUEUE_PROPERTIES when an on-device queue asks for bits
    // that the device lacks. `offered` has no bits where the device has no on-device queues.
    let offered = properties_on(device);
    require(
        bits & !(offered | on_device) == 0,
        CL_INVALID_QUEUE_PROPERTIES,
    )
}

/// Checks `CL_QUEUE_SIZE`: it belongs to on-device queues only and has a largest value.
fn check_size(device: &Device, wanted: &Wanted) -> ClResult {
    let Some(size) = wanted.size else {
        return Ok(());
    };
    let most = device.number(CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE);
    // clCreateCommandQueueWithProperties: CL_INVALID_QUEUE_PROPERTIES when CL_QUEUE_SIZE comes without
    // CL_QUEUE_ON_DEVICE or exceeds CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE.
    require(
        wanted.bits & CL_QUEUE_ON_DEVICE != 0 && u64::from(size) <= most,
        CL_INVALID_QUEUE_PROPERTIES,
    )
}

/// Whether a property is a hint whose extension the device has.
fn is_hint(device: &Device, name: u32) -> bool {
    const HINTS: [(cl_queue_properties, &str); 2] = [
        (CL_QUEUE_PRIORITY_KHR, "cl_khr_priority_hints"),
        (CL_QUEUE_THROTTLE_KHR, "cl_khr_throttle_hints"),
    ];
    let extension = HINTS.iter().find(|(known, _)| *known == u64::from(name));
    extension.is_some_and(|(_, extension)| device.has_extension(extension))
}

/// Reads the property list of `clCreateCommandQueueWithProperties`.
fn read_list(device: &Device, properties: *const cl_queue_properties) -> ClResult<Wanted> {
    let mut wanted = Wanted::default();
    if properties.is_null() {
        return Ok(wanted);
    }
    let all = &mut wanted.list;
    loop {
        // SAFETY: the list ends with a name of 0, and everything before it has been read as pairs.
        let name = unsafe { properties.add(all.len()).read() };
        if name == 0 {
            all.push(0);
            check_bits(device, wanted.bits)?;
            check_size(device, &wanted)?;
            return Ok(wanted);
        }
        // SAFETY: a name other than 0 is followed by its value.
        let value = unsafe { properties.add(all.len() + 1).read() };
        match u32::try_from(name) {
            Ok(CL_QUEUE_PROPERTIES) => wanted.bits = value,
            Ok(CL_QUEUE_SIZE) => wanted.size = Some(u32::try_from(value).unwrap_or(u32::MAX)),
            Ok(hint) if is_hint(device, hint) => {
                // cl_khr_priority_hints, cl_khr_throttle_hints: CL_INVALID_VALUE when the hint is not one
                // of high, medium and low.
                require(matches!(value, 1 | 2 | 4), CL_INVALID_VALUE)?;
            }
            // clCreateCommandQueueWithProperties: CL_INVALID_VALUE when a property name is not valid.
            _ => return fail(CL_INVALID_VALUE),
        }
        all.extend([name, value]);
        // This is no rule of the specification: a worker refuses a longer list, and so many hints have no
        // meaning.
        require(all.len() <= MAX_LIST, CL_OUT_OF_HOST_MEMORY)?;
    }
}

#[entry_point]
pub(crate) fn clCreateCommandQueue(
    context: cl_context,
    device: cl_device_id,
    properties: cl_command_queue_properties,
) -> ClResult<cl_command_queue> {
    create(context, device, |device| {
        let host = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
        // clCreateCommandQueue: CL_INVALID_VALUE when properties contains anything but the two bits of
        // host queues.
        require(properties & !host == 0, CL_INVALID_VALUE)?;
        check_bits(device, properties)?;
        Ok(Wanted {
            bits: properties,
            ..Wanted::default()
        })
    })
}

#[entry_point]
pub(crate) fn clCreateCommandQueueWithProperties(
    context: cl_context,
    device: cl_device_id,
    properties: *const cl_queue_properties,
) -> ClResult<cl_command_queue> {
    create(context, device, |device| read_list(device, properties))
}

#[entry_point]
pub(crate) fn clSetCommandQueueProperty(
    command_queue: cl_command_queue,
    _properties: cl_command_queue_properties,
    _enable: cl_bool,
    _old_properties: *mut cl_command_queue_properties,
) -> ClResult {
    // clSetCommandQueueProperty: CL_INVALID_OPERATION when the implementation cannot change a queue;
    // this function is deprecated since 1.1.
    if handle::resolve::<DeviceQueue>(command_queue).is_err() {
        handle::resolve::<Queue>(command_queue)?;
    }
    fail(CL_INVALID_OPERATION)
}

#[entry_point]
pub(crate) fn clSetDefaultDeviceCommandQueue(
    context: cl_context,
    device: cl_device_id,
    command_queue: cl_command_queue,
) -> ClResult {
    let context = handle::resolve::<Context>(context)?;
    let device = handle::resolve::<Device>(device)?;
    // clSetDefaultDeviceCommandQueue: CL_INVALID_DEVICE when the device is not one of the context.
    require(context.has_device(&device), CL_INVALID_DEVICE)?;
    // clSetDefaultDeviceCommandQueue: CL_INVALID_OPERATION when the device's default queue cannot be
    // replaced.
    require(has_replaceable_default(&device), CL_INVALID_OPERATION)?;
    // clSetDefaultDeviceCommandQueue: CL_INVALID_COMMAND_QUEUE when the queue is not an on-device queue
    // of this device.
    let queue = handle::resolve::<DeviceQueue>(command_queue)?;
    let own = Arc::ptr_eq(queue.context(), &context) && Arc::ptr_eq(queue.device(), &device);
    require(own, CL_INVALID_COMMAND_QUEUE)?;
    queue.make_default()
}

#[entry_point]
pub(crate) fn clRetainCommandQueue(command_queue: cl_command_queue) -> ClResult {
    handle::retain::<Queue>(command_queue).or_else(|_| handle::retain::<DeviceQueue>(command_queue))
}

#[entry_point]
pub(crate) fn clReleaseCommandQueue(command_queue: cl_command_queue) -> ClResult {
    let Ok(queue) = handle::resolve::<Queue>(command_queue) else {
        return handle::release::<DeviceQueue>(command_queue);
    };
    handle::release::<Queue>(command_queue)?;
    // clReleaseCommandQueue implies a flush. In a lost session there is nothing to flush, so the result
    // is ignored.
    let _ = queue.flush();
    Ok(())
}

#[entry_point]
pub(crate) fn clGetCommandQueueInfo(
    command_queue: cl_command_queue,
    param_name: cl_command_queue_info,
    info: Info,
) -> ClResult {
    if let Ok(queue) = handle::resolve::<DeviceQueue>(command_queue) {
        return answer_on_device(command_queue, &queue, param_name, info).map(drop);
    }
    let queue = handle::resolve::<Queue>(command_queue)?;
    answer(command_queue, &queue, param_name, info).map(drop)
}

#[entry_point]
pub(crate) fn clFlush(command_queue: cl_command_queue) -> ClResult {
    handle::resolve::<Queue>(command_queue)?.flush()
}

#[entry_point]
pub(crate) fn clFinish(command_queue: cl_command_queue) -> ClResult {
    handle::resolve::<Queue>(command_queue)?.finish()
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
        // clGetCommandQueueInfo: CL_INVALID_COMMAND_QUEUE for CL_QUEUE_SIZE of a host queue, which has no
        // size.
        CL_QUEUE_SIZE => fail(CL_INVALID_COMMAND_QUEUE),
        CL_QUEUE_DEVICE_DEFAULT => {
            let default = default_queue(queue.context(), queue.device());
            info.give(default.unwrap_or(std::ptr::null_mut()))
        }
        // clGetCommandQueueInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}

fn answer_on_device(
    raw: cl_command_queue,
    queue: &Arc<DeviceQueue>,
    name: cl_command_queue_info,
    info: Info,
) -> ClResult<Answered> {
    match name {
        CL_QUEUE_CONTEXT => info.give(handle::raw_of(queue.context())),
        CL_QUEUE_DEVICE => info.give(handle::raw_of(queue.device())),
        CL_QUEUE_REFERENCE_COUNT => info.give(handle::reference_count::<DeviceQueue>(raw)?),
        CL_QUEUE_PROPERTIES => info.give(queue.properties()),
        CL_QUEUE_PROPERTIES_ARRAY => info.give_slice(queue.property_list()),
        CL_QUEUE_SIZE => info.give(queue.size()),
        CL_QUEUE_DEVICE_DEFAULT => {
            let default = default_queue(queue.context(), queue.device());
            info.give(default.unwrap_or(std::ptr::null_mut()))
        }
        // clGetCommandQueueInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}
