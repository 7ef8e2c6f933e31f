//! Pipes: creation and `clGetPipeInfo`. Everything else is in `memory`, as for other memory objects.

use cl_headers::types::*;

use super::entry::entry_point;
use super::handle;
use super::info::Info;
use super::memory::Noun;
use crate::error::{ClResult, fail, require};
use crate::stub::memory::pipe::has_pipes;
use crate::stub::{Buffer, Context, Pipe};

/// Checks the sizes of a pipe.
fn check_size(context: &Context, packet_size: cl_uint, max_packets: cl_uint) -> ClResult {
    let devices = context.devices().iter();
    let largest = devices.map(|device| device.number(CL_DEVICE_PIPE_MAX_PACKET_SIZE));
    let fits = u64::from(packet_size) <= largest.max().unwrap_or(0);
    // clCreatePipe: CL_INVALID_PIPE_SIZE when either size is 0, or packets are larger than any device of
    // the context takes.
    require(
        packet_size > 0 && fits && max_packets > 0,
        CL_INVALID_PIPE_SIZE,
    )
}

#[entry_point]
pub(crate) fn clCreatePipe(
    context: cl_context,
    flags: cl_mem_flags,
    pipe_packet_size: cl_uint,
    pipe_max_packets: cl_uint,
    properties: *const cl_pipe_properties,
) -> ClResult<cl_mem> {
    let context = handle::resolve::<Context>(context)?;
    // clCreatePipe: CL_INVALID_OPERATION when no device of the context has pipes.
    let pipes = context.devices().iter().any(|device| has_pipes(device));
    require(pipes, CL_INVALID_OPERATION)?;
    // clCreatePipe: CL_INVALID_VALUE when flags contains anything but the two that suit a pipe; 0 means
    // both of them.
    let default = CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS;
    require(flags & !default == 0, CL_INVALID_VALUE)?;
    // clCreatePipe: CL_INVALID_VALUE when properties is not NULL.
    require(properties.is_null(), CL_INVALID_VALUE)?;
    check_size(&context, pipe_packet_size, pipe_max_packets)?;
    let flags = if flags == 0 { default } else { flags };
    let pipe = Pipe::new(pipe_packet_size, pipe_max_packets);
    Ok(handle::publish(Buffer::of_pipe(context, flags, pipe)?))
}

#[entry_point]
pub(crate) fn clGetPipeInfo(pipe: cl_mem, param_name: cl_pipe_info, info: Info) -> ClResult {
    let memory = Noun::Pipe.resolve(pipe)?;
    // clGetPipeInfo: CL_INVALID_MEM_OBJECT when the memory object is not a pipe.
    let Some(pipe) = memory.pipe() else {
        return fail(CL_INVALID_MEM_OBJECT);
    };
    match param_name {
        CL_PIPE_PACKET_SIZE => info.give(pipe.packet_size()),
        CL_PIPE_MAX_PACKETS => info.give(pipe.max_packets()),
        // No properties exist yet, so the pipe was created with NULL.
        CL_PIPE_PROPERTIES => info.give_slice::<cl_pipe_properties>(&[]),
        // clGetPipeInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
    .map(drop)
}
