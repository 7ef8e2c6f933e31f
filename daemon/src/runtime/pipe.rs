//! Pipes: memory objects whose content the host cannot access.

use std::ptr::null;

use causeway_proto::status::Status;

use super::buffer::{Buffer, KERNEL_ACCESS};
use super::context::Context;
use super::library::{check, cl};

impl Buffer {
    /// `clCreatePipe`, for up to `max_packets` packets of `packet_size` bytes.
    pub fn pipe(
        context: &Context,
        flags: u64,
        packet_size: u32,
        max_packets: u32,
    ) -> Result<Buffer, Status> {
        let mut status = 0;
        // SAFETY: the context is live; the properties are NULL, as the specification requires.
        let raw = unsafe {
            cl!(clCreatePipe(
                context.raw,
                flags & KERNEL_ACCESS,
                packet_size,
                max_packets,
                null(),
                &raw mut status
            ))
        };
        check(status)?;
        Ok(Buffer {
            raw,
            // With size 0, every transfer fails the check of its region.
            size: 0,
            raster: None,
            svm: None,
        })
    }
}
