//! Pipes: memory objects of which the host sees no byte.

use std::ptr::null;

use causeway_proto::status::Status;

use super::buffer::{Buffer, KERNEL_ACCESS};
use super::context::Context;
use super::library::{check, cl};

impl Buffer {
    /// `clCreatePipe`: packets of `packet_size` bytes, of which there are `max_packets` at a time.
    ///
    /// # Errors
    /// What the driver says.
    pub fn pipe(
        context: &Context,
        flags: u64,
        packet_size: u32,
        max_packets: u32,
    ) -> Result<Buffer, Status> {
        let mut status = 0;
        // SAFETY: a live context; properties are NULL, as the specification demands.
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
            // So that no region is inside.
            size: 0,
            raster: None,
            svm: None,
        })
    }
}
