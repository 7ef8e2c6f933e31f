//! What may be given to `clSetKernelArg`, by the kind of the argument.

use std::sync::Arc;

use causeway_proto::command::ArgKind;
use cl_headers::types::*;

use crate::api::handle;
use crate::api::info::list;
use crate::api::memory::Noun;
use crate::error::{ClResult, fail, require};
use crate::stub::kernel::Arg;
use crate::stub::{ArgValue, Buffer, Context, Device, DeviceQueue, Image, Sampler};

/// Reads and checks a value; values, then objects, then sizes, as the specification lists the errors.
///
/// # Errors
/// `CL_INVALID_ARG_VALUE`, `CL_INVALID_MEM_OBJECT`, `CL_INVALID_SAMPLER`, `CL_INVALID_DEVICE_QUEUE`,
/// `CL_INVALID_ARG_SIZE`.
///
/// # Safety
/// `value` is NULL or leads to `size` readable bytes.
pub(in crate::api) unsafe fn read_arg(
    context: &Arc<Context>,
    arg: &Arg,
    size: size_t,
    value: *const c_void,
) -> ClResult<ArgValue> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { list(value.cast::<u8>(), size) };
    match arg.kind {
        // What no query told is found by trials, to which an image or a sampler looks like a value.
        ArgKind::Value if arg.declared.is_none() => unknown(context, arg, size, value, bytes),
        ArgKind::Value => {
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            plain(context, bytes, arg.size)
        }
        ArgKind::Memory => memory(context, size, handle_in(bytes)),
        ArgKind::Local => {
            require(value.is_null(), CL_INVALID_ARG_VALUE)?;
            require(size > 0, CL_INVALID_ARG_SIZE)?;
            Ok(ArgValue::Local(size as u64))
        }
        ArgKind::Unspecified => unknown(context, arg, size, value, bytes),
        ArgKind::Image => {
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            require(size == size_of::<cl_mem>(), CL_INVALID_ARG_SIZE)?;
            image(context, arg, handle_in(bytes))
        }
        ArgKind::Pipe => {
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            require(size == size_of::<cl_mem>(), CL_INVALID_ARG_SIZE)?;
            given(context, Noun::Pipe.resolve(handle_in(bytes))?)
        }
        // "CL_INVALID_SAMPLER for an argument declared to be of type sampler_t when the specified arg_value is not a
        // valid sampler object."
        ArgKind::Sampler => {
            require(!value.is_null(), CL_INVALID_SAMPLER)?;
            require(size == size_of::<cl_sampler>(), CL_INVALID_ARG_SIZE)?;
            sampler(context, handle_in(bytes))
        }
        ArgKind::Queue => {
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            require(size == size_of::<cl_command_queue>(), CL_INVALID_ARG_SIZE)?;
            device_queue(context, handle_in(bytes))
        }
    }
}

/// Drivers take more than `CL_DEVICE_MAX_PARAMETER_SIZE` says (1 KiB, 4 KiB), but none more than this.
const MOST_BYTES: usize = 64 << 10;

fn plain(context: &Arc<Context>, bytes: &[u8], expected: usize) -> ClResult<ArgValue> {
    let fits = match expected {
        // A size that is not known is judged by the node; here only whether any device could take it.
        0 => (1..=MOST_BYTES).contains(&bytes.len()) || is_promised(context, bytes.len()),
        expected => bytes.len() == expected,
    };
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
    require(size == size_of::<cl_mem>(), CL_INVALID_ARG_SIZE)?;
    if raw.is_null() {
        return Ok(ArgValue::Memory(None));
    }
    given(context, Noun::Buffer.resolve(raw)?)
}

fn given(context: &Arc<Context>, memory: Arc<Buffer>) -> ClResult<ArgValue> {
    let same = Arc::ptr_eq(memory.context(), context);
    require(same, CL_INVALID_MEM_OBJECT)?;
    Ok(ArgValue::Memory(Some(Arc::downgrade(&memory))))
}

/// "CL_INVALID_MEM_OBJECT for an argument declared to be [an image] when the specified arg_value is not a valid memory
/// object" of that type. "CL_INVALID_ARG_VALUE if the argument is an image declared with the read_only qualifier and
/// arg_value refers to an image object created with cl_mem_flags of CL_MEM_WRITE or if the image argument is declared
/// with the write_only qualifier and arg_value refers to an image object created with cl_mem_flags of CL_MEM_READ."
fn image(context: &Arc<Context>, arg: &Arg, raw: *mut c_void) -> ClResult<ArgValue> {
    let memory = Noun::Image.resolve(raw)?;
    if let Some(declared) = arg.declared {
        let kind = memory.image().map(Image::kind);
        let suits = declared.image_type.is_none() || declared.image_type == kind;
        require(suits, CL_INVALID_MEM_OBJECT)?;
        let excluded = match declared.access_qualifier {
            CL_KERNEL_ARG_ACCESS_READ_ONLY => CL_MEM_WRITE_ONLY,
            CL_KERNEL_ARG_ACCESS_WRITE_ONLY => CL_MEM_READ_ONLY,
            CL_KERNEL_ARG_ACCESS_READ_WRITE => CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
            _ => 0,
        };
        require(memory.flags() & excluded == 0, CL_INVALID_ARG_VALUE)?;
    }
    given(context, memory)
}

fn sampler(context: &Arc<Context>, raw: *mut c_void) -> ClResult<ArgValue> {
    let sampler = handle::resolve::<Sampler>(raw.cast())?;
    let same = Arc::ptr_eq(sampler.context(), context);
    require(same, CL_INVALID_SAMPLER)?;
    Ok(ArgValue::Sampler(sampler))
}

/// "CL_INVALID_DEVICE_QUEUE for an argument declared to be of type queue_t when the specified arg_value is not a valid
/// device queue object."
fn device_queue(context: &Arc<Context>, raw: cl_command_queue) -> ClResult<ArgValue> {
    let queue = handle::resolve::<DeviceQueue>(raw).or(fail(CL_INVALID_DEVICE_QUEUE))?;
    let same = Arc::ptr_eq(queue.context(), context);
    require(same, CL_INVALID_DEVICE_QUEUE)?;
    Ok(ArgValue::Queue(queue))
}

/// Of a binary whose arguments no query tells: an object that is given is meant; else trials have told what they can.
fn unknown(
    context: &Arc<Context>,
    arg: &Arg,
    size: size_t,
    value: *const c_void,
    bytes: &[u8],
) -> ClResult<ArgValue> {
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
    require(arg.kind != ArgKind::Value, CL_INVALID_ARG_VALUE)?;
    if size == size_of::<cl_mem>() {
        Ok(ArgValue::Memory(None))
    } else {
        Ok(ArgValue::Local(size as u64))
    }
}

/// The handle that the bytes are; NULL when they are none.
fn handle_in(bytes: &[u8]) -> *mut c_void {
    let address = <[u8; size_of::<usize>()]>::try_from(bytes).map_or(0, usize::from_ne_bytes);
    std::ptr::with_exposed_provenance_mut(address)
}
