//! Mappings: host pointers into buffers.
//!
//! Invariant: each mapping is unmapped exactly once; the caller ensures this.

use std::ptr::null_mut;

use causeway_proto::region::Region;
use causeway_proto::status::Status;
use opencl_sys::{CL_MAP_READ, CL_MAP_WRITE, cl_event};

use super::rect::bounded;
use super::{Queue, enqueue};
use crate::runtime::buffer::Buffer;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::library::{check, cl};

/// Purpose of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The host reads.
    Read,
    /// The host overwrites all of it.
    Overwrite,
}

impl Queue {
    /// Maps bytes of a buffer. The pointer is valid from the end of the event until the unmapping.
    ///
    /// # Errors
    /// The driver's error. `CL_INVALID_VALUE` if the range exceeds the buffer, or for an image, which a
    /// driver maps with pitches of its own.
    pub(crate) fn map(
        &self,
        buffer: &Buffer,
        range: &Region,
        access: Access,
        wait: &WaitList<'_>,
    ) -> Result<(Event, *mut u8), Status> {
        bounded(buffer, range)?;
        if buffer.raster().is_some() {
            return Err(Status::INVALID_VALUE);
        }
        let length = range.end() - range.offset();
        // The mapping of a rectangle includes its gaps, so CL_MAP_WRITE_INVALIDATE_REGION must not be used.
        // A write mapping fetches the old contents, which costs nothing if the host sees the device's
        // memory.
        let flags = match access {
            Access::Read => CL_MAP_READ,
            Access::Overwrite => CL_MAP_WRITE,
        };
        let mut event: cl_event = null_mut();
        let mut status = 0;
        // SAFETY: the range lies within the buffer.
        let pointer = unsafe {
            cl!(clEnqueueMapBuffer(
                self.raw,
                buffer.raw,
                0,
                flags,
                range.offset() as usize,
                length as usize,
                wait.count(),
                wait.pointer(),
                &raw mut event,
                &raw mut status
            ))
        };
        check(status)?;
        // SAFETY: the driver has just returned the event; the mapped memory belongs to the driver.
        let event = unsafe { Event::adopt(event, self.home()) };
        if pointer.is_null() {
            return Err(Status::OUT_OF_RESOURCES);
        }
        Ok((event, pointer.cast()))
    }

    /// Unmaps a mapping.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// `pointer` came from [`Queue::map`] for this buffer, and nothing uses it any more.
    pub(crate) unsafe fn unmap(
        &self,
        buffer: &Buffer,
        pointer: *mut u8,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        // SAFETY: the caller guarantees this.
        unsafe {
            enqueue!(clEnqueueUnmapMemObject(
                self,
                wait,
                buffer.raw,
                pointer.cast()
            ))
        }
    }
}
