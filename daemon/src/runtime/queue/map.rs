//! Mappings: host pointers into buffers.
//!
//! Invariant: a pointer is given back by exactly one unmapping; who maps sees to it.

use std::ptr::null_mut;

use causeway_proto::region::Region;
use causeway_proto::status::Status;
use opencl_sys::{CL_MAP_READ, CL_MAP_WRITE, cl_event};

use super::rect::bounded;
use super::{INVALID_VALUE, Queue};
use crate::runtime::buffer::Buffer;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::library::{check, cl};

/// What a mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The host reads.
    Read,
    /// The host overwrites all of it.
    Overwrite,
    /// Both.
    ReadWrite,
}

impl Queue {
    /// Maps bytes of a buffer. The pointer may be used once the event has ended, until the unmapping.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_VALUE` when the range leaves the buffer, or it is an image, which a driver maps
    /// with pitches of its own.
    pub(crate) fn map(
        &self,
        buffer: &Buffer,
        range: &Region,
        access: Access,
        wait: &WaitList<'_>,
    ) -> Result<(Event, *mut u8), Status> {
        bounded(buffer, range)?;
        if buffer.raster().is_some() {
            return Err(INVALID_VALUE);
        }
        let length = range.end() - range.offset();
        self.map_range(
            buffer,
            range.offset() as usize,
            length as usize,
            access,
            wait,
            false,
        )
    }

    pub(in crate::runtime) fn map_blocking(
        &self,
        buffer: &Buffer,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<*mut u8, Status> {
        self.map_range(buffer, offset, length, access, &WaitList::default(), true)
            .map(|(_, pointer)| pointer)
    }

    fn map_range(
        &self,
        buffer: &Buffer,
        offset: usize,
        length: usize,
        access: Access,
        wait: &WaitList<'_>,
        blocking: bool,
    ) -> Result<(Event, *mut u8), Status> {
        // A rectangle's mapping covers the gaps too, so it must never invalidate: write maps fetch,
        // which costs nothing where the host sees the device's memory.
        let flags = match access {
            Access::Read => CL_MAP_READ,
            Access::Overwrite => CL_MAP_WRITE,
            Access::ReadWrite => CL_MAP_READ | CL_MAP_WRITE,
        };
        let mut event: cl_event = null_mut();
        let mut status = 0;
        // SAFETY: the range lies within the buffer.
        let pointer = unsafe {
            cl!(clEnqueueMapBuffer(
                self.raw,
                buffer.raw,
                u32::from(blocking),
                flags,
                offset,
                length,
                wait.count(),
                wait.pointer(),
                &raw mut event,
                &raw mut status
            ))
        };
        check(status)?;
        // SAFETY: the driver just gave the event; the mapping is the driver's memory, not ours.
        let event = unsafe { Event::adopt(event, None, self.home()) };
        if pointer.is_null() {
            return Err(Status::OUT_OF_RESOURCES);
        }
        Ok((event, pointer.cast()))
    }

    /// Gives a mapping back.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// `pointer` came from [`Queue::map`] for this buffer, and is used by nobody any more.
    pub(crate) unsafe fn unmap(
        &self,
        buffer: &Buffer,
        pointer: *mut u8,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let mut event: cl_event = null_mut();
        // SAFETY: the caller's promise.
        check(unsafe {
            cl!(clEnqueueUnmapMemObject(
                self.raw,
                buffer.raw,
                pointer.cast(),
                wait.count(),
                wait.pointer(),
                &raw mut event
            ))
        })?;
        // SAFETY: the driver just gave the event; no host memory of ours is concerned.
        Ok(unsafe { Event::adopt(event, None, self.home()) })
    }
}
