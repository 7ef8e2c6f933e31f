//! Pipes: memory objects with packets that kernels put in and take out.
//!
//! Invariant: a pipe never has more packets than its maximum, and each has the pipe's packet size.

use std::collections::VecDeque;
use std::ffi::c_void;

use cl_headers::types::*;
use parking_lot::Mutex;

use crate::context::Context;
use crate::error::{ClResult, ensure, fail};
use crate::memory::{Memory, create_pipe};
use crate::object::Object;

/// The largest packet, in bytes.
pub(crate) const MAX_PACKET: usize = 1024;
/// Maximum number of pipe arguments of a kernel.
pub(crate) const MAX_ARGUMENTS: cl_uint = 16;

/// The pipe data of a memory object.
pub(crate) struct Pipe {
    packet_size: cl_uint,
    max_packets: cl_uint,
    packets: Mutex<VecDeque<Box<[u8]>>>,
}

impl Pipe {
    /// Returns the size of all packets, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.packet_size as usize * self.max_packets as usize
    }

    /// `write_pipe` of a number. The number is lost if the pipe is full, or its packets have another size.
    pub(crate) fn put(&self, number: u32) {
        let mut packets = self.packets.lock();
        if self.packet_size == 4 && packets.len() < self.max_packets as usize {
            packets.push_back(number.to_ne_bytes().into());
        }
    }

    /// `read_pipe` of a number; `None` if the pipe is empty.
    pub(crate) fn take(&self) -> Option<u32> {
        let packet = self.packets.lock().pop_front()?;
        Some(u32::from_ne_bytes((*packet).try_into().ok()?))
    }
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use super::*;
    use crate::info::{Info, reply};

    pub(crate) unsafe fn clCreatePipe(
        context: cl_context,
        flags: cl_mem_flags,
        packet_size: cl_uint,
        max_packets: cl_uint,
        properties: *const cl_pipe_properties,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        let able = context.devices.iter().any(|device| device.settings.pipes);
        ensure(able, CL_INVALID_OPERATION)?;
        let default = CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS;
        ensure(flags & !default == 0, CL_INVALID_VALUE)?;
        ensure(properties.is_null(), CL_INVALID_VALUE)?;
        let fits = (1..=MAX_PACKET).contains(&(packet_size as usize)) && max_packets > 0;
        ensure(fits, CL_INVALID_PIPE_SIZE)?;
        let flags = if flags == 0 { default } else { flags };
        let pipe = Pipe {
            packet_size,
            max_packets,
            packets: Mutex::default(),
        };
        create_pipe(context, flags, pipe)
    }

    pub(crate) unsafe fn clGetPipeInfo(
        pipe: cl_mem,
        name: cl_pipe_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let memory = unsafe { Object::<Memory>::borrow(pipe) }?;
        let Some(pipe) = &memory.pipe else {
            return fail(CL_INVALID_MEM_OBJECT);
        };
        let answer = match name {
            CL_PIPE_PACKET_SIZE => Info::uint(pipe.packet_size),
            CL_PIPE_MAX_PACKETS => Info::uint(pipe.max_packets),
            CL_PIPE_PROPERTIES => Info::ulongs(&[]),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }
}
