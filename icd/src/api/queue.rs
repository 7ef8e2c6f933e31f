//! Command queues: creation, reference counts, info, flush and finish.

use std::sync::Arc;

use causeway_proto::limits::MAX_LIST;
use cl_headers::types::*;

use super::entry::entry_points;
use super::handle;
use super::info::{Answered, Info};
use crate::error::{ClResult, fail, require};
use crate::stub::device_queue::{DeviceQueueSpec, has_replaceable_default, properties_on};
use crate::stub::{Context, Device, DeviceQueue, Queue, timer};

/// What a property list asks for.
#[derive(Default)]
struct Wanted {
    /// The bits of `CL_QUEUE_PROPERTIES`.
    bits: cl_command_queue_properties,
    /// `CL_QUEUE_SIZE`, if it is in the list.
    size: Option<u32>,
    /// The list with its 0; empty for none.
    list: Vec<u64>,
}

fn create(
    context: cl_context,
    device: cl_device_id,
    wanted: impl FnOnce(&Device) -> ClResult<Wanted>,
) -> ClResult<cl_command_queue> {
    let context = handle::resolve::<Context>(context)?;
    let device = handle::resolve::<Device>(device)?;
    require(context.has_device(&device), CL_INVALID_DEVICE)?;
    let wanted = wanted(&device)?;
    if wanted.bits & CL_QUEUE_ON_DEVICE != 0 {
        return create_on_device(context, device, wanted);
    }
    let queue = Queue::new(context, device, wanted.bits, wanted.list)?;
    timer::prepare(&queue);
    Ok(handle::publish(queue))
}

/// "If a default device queue has already been created [… the call] will return the default device queue that has
/// already been created and increment its retain count by 1."
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

/// The handle of a device's default queue, as long as the application holds that.
fn default_queue(context: &Context, device: &Arc<Device>) -> Option<cl_command_queue> {
    let raw = handle::raw_of(&DeviceQueue::default_of(context, device)?);
    // A kernel's argument may still keep it.
    handle::resolve::<DeviceQueue>(raw).is_ok().then_some(raw)
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
    if bits & CL_QUEUE_ON_DEVICE == 0 {
        let offered = device.number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES);
        return require(bits & !offered == 0, CL_INVALID_QUEUE_PROPERTIES);
    }
    // No bits where there are no device queues; elsewhere out of order is among them.
    let offered = properties_on(device);
    require(
        bits & !(offered | on_device) == 0,
        CL_INVALID_QUEUE_PROPERTIES,
    )
}

/// "[CL_QUEUE_SIZE] can only be specified if CL_QUEUE_ON_DEVICE is set in CL_QUEUE_PROPERTIES. This must be a value ≤
/// CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE."
fn check_size(device: &Device, wanted: &Wanted) -> ClResult {
    let Some(size) = wanted.size else {
        return Ok(());
    };
    let most = device.number(CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE);
    require(
        wanted.bits & CL_QUEUE_ON_DEVICE != 0 && u64::from(size) <= most,
        CL_INVALID_QUEUE_PROPERTIES,
    )
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
fn read_list(device: &Device, properties: *const cl_queue_properties) -> ClResult<Wanted> {
    let mut wanted = Wanted::default();
    if properties.is_null() {
        return Ok(wanted);
    }
    let all = &mut wanted.list;
    loop {
        // SAFETY: the list ends with a 0 name, and everything before it has been read as pairs.
        let name = unsafe { properties.add(all.len()).read() };
        if name == 0 {
            all.push(0);
            check_bits(device, wanted.bits)?;
            check_size(device, &wanted)?;
            return Ok(wanted);
        }
        // SAFETY: a name that is not 0 is followed by its value.
        let value = unsafe { properties.add(all.len() + 1).read() };
        match u32::try_from(name) {
            Ok(CL_QUEUE_PROPERTIES) => wanted.bits = value,
            Ok(CL_QUEUE_SIZE) => wanted.size = Some(u32::try_from(value).unwrap_or(u32::MAX)),
            Ok(hint) if is_hint(device, hint) => {
                // One of high, medium, low.
                require(matches!(value, 1 | 2 | 4), CL_INVALID_VALUE)?;
            }
            _ => return fail(CL_INVALID_VALUE),
        }
        all.extend([name, value]);
        // As long a list of hints as this has no meaning, and a worker takes none.
        require(all.len() <= MAX_LIST, CL_OUT_OF_HOST_MEMORY)?;
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
            Ok(Wanted { bits: properties, ..Wanted::default() })
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
        if handle::resolve::<DeviceQueue>(command_queue).is_err() {
            handle::resolve::<Queue>(command_queue)?;
        }
        fail(CL_INVALID_OPERATION)
    }

    fn clSetDefaultDeviceCommandQueue(
        context: cl_context, device: cl_device_id, command_queue: cl_command_queue,
    ) {
        let context = handle::resolve::<Context>(context)?;
        let device = handle::resolve::<Device>(device)?;
        require(context.has_device(&device), CL_INVALID_DEVICE)?;
        // "CL_INVALID_OPERATION if device does not support a replaceable default on-device queue."
        require(has_replaceable_default(&device), CL_INVALID_OPERATION)?;
        // "CL_INVALID_COMMAND_QUEUE if command_queue is not a valid command-queue for device."
        let queue = handle::resolve::<DeviceQueue>(command_queue)?;
        let own = Arc::ptr_eq(queue.context(), &context) && Arc::ptr_eq(queue.device(), &device);
        require(own, CL_INVALID_COMMAND_QUEUE)?;
        queue.make_default()
    }

    fn clRetainCommandQueue(command_queue: cl_command_queue) {
        handle::retain::<Queue>(command_queue)
            .or_else(|_| handle::retain::<DeviceQueue>(command_queue))
    }

    fn clReleaseCommandQueue(command_queue: cl_command_queue) {
        let Ok(queue) = handle::resolve::<Queue>(command_queue) else {
            return handle::release::<DeviceQueue>(command_queue);
        };
        handle::release::<Queue>(command_queue)?;
        // An implicit flush; a lost session has nothing to flush.
        let _ = queue.flush();
        Ok(())
    }

    fn clGetCommandQueueInfo(
        command_queue: cl_command_queue, param_name: cl_command_queue_info, param_value_size: size_t,
        param_value: *mut c_void, param_value_size_ret: *mut size_t,
    ) {
        // SAFETY: the specification's contract of the three arguments.
        let info = unsafe { Info::new(param_value_size, param_value, param_value_size_ret) };
        if let Ok(queue) = handle::resolve::<DeviceQueue>(command_queue) {
            return answer_on_device(command_queue, &queue, param_name, info).map(drop);
        }
        let queue = handle::resolve::<Queue>(command_queue)?;
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
        CL_QUEUE_DEVICE_DEFAULT => {
            let default = default_queue(queue.context(), queue.device());
            info.give(default.unwrap_or(std::ptr::null_mut()))
        }
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
        _ => fail(CL_INVALID_VALUE),
    }
}
