//! Pipes: an absent optional feature of OpenCL 3.0 (`CL_DEVICE_PIPE_SUPPORT` is false).

use cl_headers::types::*;

use super::entry::entry_points;
use super::handle;
use crate::error::fail;
use crate::stub::{Buffer, Context};

entry_points! {
    fn clCreatePipe(context: cl_context, _flags: cl_mem_flags, _pipe_packet_size: cl_uint, _pipe_max_packets: cl_uint, _properties: *const cl_pipe_properties; errcode_ret) -> cl_mem {
        handle::resolve::<Context>(context)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clGetPipeInfo(pipe: cl_mem, _param_name: cl_pipe_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) {
        handle::resolve::<Buffer>(pipe)?;
        fail(CL_INVALID_MEM_OBJECT)
    }
}
