//! The checks of `clSetKernelArg`, by the kind of the argument.

use std::sync::Arc;

use causeway_proto::command::ArgKind;
use cl_headers::types::*;

use crate::api::handle;
use crate::api::info::list;
use crate::api::memory::Noun;
use crate::error::{ClResult, fail, require};
use crate::stub::kernel::Arg;
use crate::stub::{ArgValue, Buffer, Context, Device, DeviceQueue, Image, Sampler};

/// Reads and checks a value, in the order in which the specification lists the errors: values, objects,
/// sizes.
///
/// # Errors
/// `CL_INVALID_ARG_VALUE`, `CL_INVALID_MEM_OBJECT`, `CL_INVALID_SAMPLER`, `CL_INVALID_DEVICE_QUEUE`,
/// `CL_INVALID_ARG_SIZE`.
///
/// # Safety
/// `value` is NULL or points to `size` readable bytes.
pub(in crate::api) unsafe fn read_arg(
    context: &Arc<Context>,
    arg: &Arg,
    size: size_t,
    value: *const c_void,
) -> ClResult<ArgValue> {
    // SAFETY: the caller upholds this function's contract.
    let bytes = unsafe { list(value.cast::<u8>(), size) };
    match arg.kind {
        // Nothing declares this argument; the worker found its kind by trying values. Such trials take an
        // image or a sampler for a plain value.
        ArgKind::Value if arg.declared.is_none() => unknown(context, arg, size, value, bytes),
        ArgKind::Value => {
            // clSetKernelArg: CL_INVALID_ARG_VALUE when arg_value is NULL for an argument that needs a
            // value.
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            plain(context, bytes, arg.size)
        }
        ArgKind::Memory => memory(context, size, handle_in(bytes)),
        ArgKind::Local => {
            // clSetKernelArg: CL_INVALID_ARG_VALUE when arg_value is not NULL for an argument in local
            // memory.
            require(value.is_null(), CL_INVALID_ARG_VALUE)?;
            // clSetKernelArg: CL_INVALID_ARG_SIZE when arg_size is 0 for an argument in local memory.
            require(size > 0, CL_INVALID_ARG_SIZE)?;
            Ok(ArgValue::Local(size as u64))
        }
        ArgKind::Unspecified => unknown(context, arg, size, value, bytes),
        ArgKind::Image => {
            // clSetKernelArg: CL_INVALID_ARG_VALUE when arg_value is NULL for an image.
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            // clSetKernelArg: CL_INVALID_ARG_SIZE when arg_size is not the size of a cl_mem for an image.
            require(size == size_of::<cl_mem>(), CL_INVALID_ARG_SIZE)?;
            image(context, arg, handle_in(bytes))
        }
        ArgKind::Pipe => {
            // clSetKernelArg: CL_INVALID_ARG_VALUE when arg_value is NULL for a pipe.
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            // clSetKernelArg: CL_INVALID_ARG_SIZE when arg_size is not the size of a cl_mem for a pipe.
            require(size == size_of::<cl_mem>(), CL_INVALID_ARG_SIZE)?;
            given(context, Noun::Pipe.resolve(handle_in(bytes))?)
        }
        ArgKind::Sampler => {
            // clSetKernelArg: CL_INVALID_SAMPLER when arg_value is not a valid sampler, and so when it is
            // NULL.
            require(!value.is_null(), CL_INVALID_SAMPLER)?;
            // clSetKernelArg: CL_INVALID_ARG_SIZE when arg_size is not the size of a cl_sampler.
            require(size == size_of::<cl_sampler>(), CL_INVALID_ARG_SIZE)?;
            sampler(context, handle_in(bytes))
        }
        ArgKind::Queue => {
            // clSetKernelArg: CL_INVALID_ARG_VALUE when arg_value is NULL for a device queue.
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            // clSetKernelArg: CL_INVALID_ARG_SIZE when arg_size is not the size of a cl_command_queue.
            require(size == size_of::<cl_command_queue>(), CL_INVALID_ARG_SIZE)?;
            device_queue(context, handle_in(bytes))
        }
    }
}

/// Largest plain argument, in bytes, if the size is not known. Drivers accept more than
/// `CL_DEVICE_MAX_PARAMETER_SIZE` (1 KiB, 4 KiB), but none accepts more than this.
const MOST_BYTES: usize = 64 << 10;

fn plain(context: &Arc<Context>, bytes: &[u8], expected: usize) -> ClResult<ArgValue> {
    let fits = match expected {
        // The node checks a size that the client does not know. Here only a size that no device can accept
        // is refused.
        0 => (1..=MOST_BYTES).contains(&bytes.len()) || is_promised(context, bytes.len()),
        expected => bytes.len() == expected,
    };
    // clSetKernelArg: CL_INVALID_ARG_SIZE when arg_size is not the size of the argument's type.
    require(fits, CL_INVALID_ARG_SIZE)?;
    Ok(ArgValue::Plain(bytes.into()))
}

fn is_promised(context: &Context, size: usize) -> bool {
    let most = |device: &Arc<Device>| device.number(CL_DEVICE_MAX_PARAMETER_SIZE);
    size > 0
        && context
            .devices()
            .iter()
            .any(|device| most(device) >= size as u64)
}

fn memory(context: &Arc<Context>, size: size_t, raw: *mut c_void) -> ClResult<ArgValue> {
    // clSetKernelArg: CL_INVALID_ARG_SIZE when arg_size is not the size of a cl_mem for a memory object.
    require(size == size_of::<cl_mem>(), CL_INVALID_ARG_SIZE)?;
    if raw.is_null() {
        return Ok(ArgValue::Memory(None));
    }
    given(context, Noun::Buffer.resolve(raw)?)
}

fn given(context: &Arc<Context>, memory: Arc<Buffer>) -> ClResult<ArgValue> {
    let same = Arc::ptr_eq(memory.context(), context);
    // clSetKernelArg: CL_INVALID_MEM_OBJECT when the memory object is not one of the kernel's context.
    require(same, CL_INVALID_MEM_OBJECT)?;
    Ok(ArgValue::Memory(Some(Arc::downgrade(&memory))))
}

/// Reads an image argument and checks it against its declaration.
fn image(context: &Arc<Context>, arg: &Arg, raw: *mut c_void) -> ClResult<ArgValue> {
    let memory = Noun::Image.resolve(raw)?;
    if let Some(declared) = arg.declared {
        let kind = memory.image().map(Image::kind);
        let suits = declared.image_type.is_none() || declared.image_type == kind;
        // clSetKernelArg: CL_INVALID_MEM_OBJECT when the image is not of the declared type.
        require(suits, CL_INVALID_MEM_OBJECT)?;
        let excluded = match declared.access_qualifier {
            CL_KERNEL_ARG_ACCESS_READ_ONLY => CL_MEM_WRITE_ONLY,
            CL_KERNEL_ARG_ACCESS_WRITE_ONLY => CL_MEM_READ_ONLY,
            CL_KERNEL_ARG_ACCESS_READ_WRITE => CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
            _ => 0,
        };
        // clSetKernelArg: CL_INVALID_ARG_VALUE when the image's flags exclude the declared access.
        require(memory.flags() & excluded == 0, CL_INVALID_ARG_VALUE)?;
    }
    given(context, memory)
}

fn sampler(context: &Arc<Context>, raw: *mut c_void) -> ClResult<ArgValue> {
    let sampler = handle::resolve::<Sampler>(raw.cast())?;
    let same = Arc::ptr_eq(sampler.context(), context);
    // clSetKernelArg: CL_INVALID_SAMPLER when the sampler belongs to another context.
    require(same, CL_INVALID_SAMPLER)?;
    Ok(ArgValue::Sampler(sampler))
}

/// Reads a device queue argument.
fn device_queue(context: &Arc<Context>, raw: cl_command_queue) -> ClResult<ArgValue> {
    // clSetKernelArg: CL_INVALID_DEVICE_QUEUE when the handle is not an on-device queue.
    let queue = handle::resolve::<DeviceQueue>(raw).or(fail(CL_INVALID_DEVICE_QUEUE))?;
    let same = Arc::ptr_eq(queue.context(), context);
    // clSetKernelArg: CL_INVALID_DEVICE_QUEUE when the queue belongs to another context.
    require(same, CL_INVALID_DEVICE_QUEUE)?;
    Ok(ArgValue::Queue(queue))
}

/// Reads an argument of a binary that has no argument information. Bytes that are a valid handle count as
/// that object. Otherwise the result of the worker's trials decides.
fn unknown(
    context: &Arc<Context>,
    arg: &Arg,
    size: size_t,
    value: *const c_void,
    bytes: &[u8],
) -> ClResult<ArgValue> {
    // clSetKernelArg: CL_INVALID_ARG_SIZE when arg_size is 0, which suits no kind of argument.
    require(size > 0, CL_INVALID_ARG_SIZE)?;
    let raw = handle_in(bytes);
    if !value.is_null() {
        if let Ok(found) = handle::resolve::<Buffer>(raw) {
            return given(context, found);
        }
        if handle::resolve::<Sampler>(raw.cast()).is_ok() {
            return sampler(context, raw);
        }
        if handle::resolve::<DeviceQueue>(raw.cast()).is_ok() {
            return device_queue(context, raw);
        }
        return plain(context, bytes, arg.size);
    }
    // clSetKernelArg: CL_INVALID_ARG_VALUE when arg_value is NULL for an argument that the trials found to
    // be a plain value.
    require(arg.kind != ArgKind::Value, CL_INVALID_ARG_VALUE)?;
    // The size tells a NULL memory object from local memory, whose value is NULL too.
    if size == size_of::<cl_mem>() {
        Ok(ArgValue::Memory(None))
    } else {
        Ok(ArgValue::Local(size as u64))
    }
}

/// The handle whose address the bytes are. NULL if they have another size.
fn handle_in(bytes: &[u8]) -> *mut c_void {
    let address = <[u8; size_of::<usize>()]>::try_from(bytes).map_or(0, usize::from_ne_bytes);
    std::ptr::with_exposed_provenance_mut(address)
}
