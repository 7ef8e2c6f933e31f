//! What may be given to `clSetKernelArg`, by the kind of the argument.

use std::sync::Arc;

use causeway_proto::command::ArgKind;
use cl_headers::types::*;

use crate::api::handle;
use crate::api::info::list;
use crate::error::{ClResult, fail, require};
use crate::stub::kernel::Arg;
use crate::stub::{ArgValue, Buffer, Context, Sampler};

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
        ArgKind::Value => {
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            plain(bytes, arg.size)
        }
        ArgKind::Memory => memory(context, size, handle_in(bytes)),
        ArgKind::Local => {
            require(value.is_null(), CL_INVALID_ARG_VALUE)?;
            require(size > 0, CL_INVALID_ARG_SIZE)?;
            Ok(ArgValue::Local(size as u64))
        }
        ArgKind::Unspecified => unknown(context, size, value, bytes),
        // Without image support no handle can be an image, nor a sampler.
        ArgKind::Image | ArgKind::Pipe => {
            require(size == size_of::<cl_mem>(), CL_INVALID_ARG_SIZE)?;
            fail(CL_INVALID_MEM_OBJECT)
        }
        ArgKind::Sampler => {
            require(!value.is_null(), CL_INVALID_ARG_VALUE)?;
            require(size == size_of::<cl_sampler>(), CL_INVALID_ARG_SIZE)?;
            handle::resolve::<Sampler>(handle_in(bytes).cast())?;
            fail(CL_INVALID_SAMPLER)
        }
        // Queues on the device are not offered, and a host queue is none.
        ArgKind::Queue => fail(CL_INVALID_DEVICE_QUEUE),
    }
}

fn plain(bytes: &[u8], expected: usize) -> ClResult<ArgValue> {
    // A size that is not known is judged by the node.
    let fits = !bytes.is_empty() && (expected == 0 || bytes.len() == expected);
    require(fits, CL_INVALID_ARG_SIZE)?;
    Ok(ArgValue::Plain(bytes.into()))
}

fn memory(context: &Arc<Context>, size: size_t, raw: *mut c_void) -> ClResult<ArgValue> {
    require(size == size_of::<cl_mem>(), CL_INVALID_ARG_SIZE)?;
    if raw.is_null() {
        return Ok(ArgValue::Memory(None));
    }
    let buffer = handle::resolve::<Buffer>(raw)?;
    require(
        Arc::ptr_eq(buffer.context(), context),
        CL_INVALID_MEM_OBJECT,
    )?;
    Ok(ArgValue::Memory(Some(Arc::downgrade(&buffer))))
}

/// Of a binary about which neither queries nor trials told the kind: what is given decides.
fn unknown(
    context: &Arc<Context>,
    size: size_t,
    value: *const c_void,
    bytes: &[u8],
) -> ClResult<ArgValue> {
    require(size > 0, CL_INVALID_ARG_SIZE)?;
    let raw = handle_in(bytes);
    if value.is_null() && size != size_of::<cl_mem>() {
        Ok(ArgValue::Local(size as u64))
    } else if value.is_null() || handle::resolve::<Buffer>(raw).is_ok() {
        memory(context, size, raw)
    } else {
        plain(bytes, 0)
    }
}

/// The handle that the bytes are; NULL when they are none.
fn handle_in(bytes: &[u8]) -> *mut c_void {
    let address = <[u8; size_of::<usize>()]>::try_from(bytes).map_or(0, usize::from_ne_bytes);
    std::ptr::with_exposed_provenance_mut(address)
}
