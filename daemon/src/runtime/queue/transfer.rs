//! Transfers between host memory and buffers, copies between buffers, fills, and migration. For images see
//! [`super::image`].
//!
//! Invariant: a region is checked against its buffer, and host memory against the region, before the driver
//! sees either.

use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::rect::{Rect, bounded, checked, common_shape};
use super::{Queue, enqueue};
use crate::runtime::buffer::Buffer;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::host::Host;

/// Direction of a transfer between host memory and a memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToDevice,
    ToHost,
}

impl Way {
    /// Returns the host memory from `skip` on. Fails for a transfer into memory that must not be written.
    pub(super) fn bytes(self, host: &mut Host, skip: usize) -> Result<*mut u8, Status> {
        let start = match self {
            Way::ToDevice => host.source().cast_mut(),
            Way::ToHost => host.destination(),
        };
        match start.is_null() {
            true => Err(Status::INVALID_VALUE),
            false => Ok(start.wrapping_add(skip)),
        }
    }
}

/// Maximum size of one fill in bytes. NVIDIA's driver hangs or corrupts data from 2 GiB on.
const FILL_PIECE: u64 = 1 << 30;

impl Queue {
    /// Writes the packed bytes of `source`, from `skip` on, to `region`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region exceeds the buffer or the source is too short.
    pub fn write(
        &self,
        buffer: &Buffer,
        region: &Region,
        source: Host,
        skip: usize,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        self.transfer(Way::ToDevice, (buffer, region), source, skip, wait)
    }

    /// Reads `region` into `target`, packed, from `skip` on.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region exceeds the buffer or the target is too short.
    pub fn read(
        &self,
        buffer: &Buffer,
        region: &Region,
        target: Host,
        skip: usize,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        self.transfer(Way::ToHost, (buffer, region), target, skip, wait)
    }

    fn transfer(
        &self,
        way: Way,
        (memory, region): (&Buffer, &Region),
        mut host: Host,
        skip: usize,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        if let Some(raster) = memory.raster() {
            return self.transfer_image(way, (memory, raster), region, host, skip, wait);
        }
        let rect = checked(memory, region, host.length(), skip)?;
        let bytes = way.bytes(&mut host, skip)?;
        // SAFETY: from `skip` on, the host memory has as many bytes as the region (checked), which lies
        // within the buffer. The event keeps the memory until it ends.
        let event = unsafe {
            match region.is_linear() {
                true => self.transfer_run(way, memory, (rect.origin[0], rect.size[0]), bytes, wait),
                false => self.transfer_rect(way, memory, &rect, bytes, wait),
            }
        }?;
        event.keep(host);
        Ok(event)
    }

    /// Transfers between host memory and contiguous bytes of a buffer, given by offset and length.
    ///
    /// # Safety
    /// The bytes lie within the buffer. The host memory has as many bytes and is kept until the event ends.
    pub(super) unsafe fn transfer_run(
        &self,
        way: Way,
        buffer: &Buffer,
        (offset, length): (usize, usize),
        bytes: *mut u8,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        // SAFETY: the caller guarantees this.
        unsafe {
            match way {
                Way::ToDevice => enqueue!(clEnqueueWriteBuffer(
                    self,
                    wait,
                    buffer.raw,
                    0,
                    offset,
                    length,
                    bytes.cast_const().cast()
                )),
                Way::ToHost => enqueue!(clEnqueueReadBuffer(
                    self,
                    wait,
                    buffer.raw,
                    0,
                    offset,
                    length,
                    bytes.cast()
                )),
            }
        }
    }

    /// Transfers between packed host memory and rows of a buffer.
    ///
    /// # Safety
    /// As for [`Queue::transfer_run`].
    unsafe fn transfer_rect(
        &self,
        way: Way,
        buffer: &Buffer,
        rect: &Rect,
        bytes: *mut u8,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        // SAFETY: the caller guarantees the pointers; the host side is packed.
        unsafe {
            match way {
                Way::ToDevice => enqueue!(clEnqueueWriteBufferRect(
                    self,
                    wait,
                    buffer.raw,
                    0,
                    rect.origin.as_ptr(),
                    [0usize; 3].as_ptr(),
                    rect.size.as_ptr(),
                    rect.row_pitch,
                    rect.slice_pitch,
                    rect.size[0],
                    rect.size[0] * rect.size[1],
                    bytes.cast_const().cast()
                )),
                Way::ToHost => enqueue!(clEnqueueReadBufferRect(
                    self,
                    wait,
                    buffer.raw,
                    0,
                    rect.origin.as_ptr(),
                    [0usize; 3].as_ptr(),
                    rect.size.as_ptr(),
                    rect.row_pitch,
                    rect.slice_pitch,
                    rect.size[0],
                    rect.size[0] * rect.size[1],
                    bytes.cast()
                )),
            }
        }
    }

    /// Copies between regions of one shape (see [`common_shape`]). If the driver wrongly refuses a copy,
    /// [`Queue::copy_by_host`] can do it.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` for regions that exceed their buffers or differ in shape.
    pub fn copy(
        &self,
        (source, from): (&Buffer, &Region),
        (destination, to): (&Buffer, &Region),
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        bounded(source, from)?;
        bounded(destination, to)?;
        if source.raster().is_some() || destination.raster().is_some() {
            return self.copy_image((source, from), (destination, to), wait);
        }
        let (a, b) = common_shape(from, to).ok_or(Status::INVALID_VALUE)?;
        if from.is_linear() && to.is_linear() {
            // SAFETY: both ranges lie within their buffers.
            unsafe {
                enqueue!(clEnqueueCopyBuffer(
                    self,
                    wait,
                    source.raw,
                    destination.raw,
                    a.origin[0],
                    b.origin[0],
                    a.size[0]
                ))
            }
        } else {
            // SAFETY: both rectangles lie within their buffers.
            unsafe {
                enqueue!(clEnqueueCopyBufferRect(
                    self,
                    wait,
                    source.raw,
                    destination.raw,
                    a.origin.as_ptr(),
                    b.origin.as_ptr(),
                    a.size.as_ptr(),
                    a.row_pitch,
                    a.slice_pitch,
                    b.row_pitch,
                    b.slice_pitch
                ))
            }
        }
    }

    /// Fills `size` bytes from `offset`, in pieces that every driver can handle.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the range exceeds the buffer.
    pub fn fill(
        &self,
        buffer: &Buffer,
        pattern: &[u8],
        offset: u64,
        size: u64,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let region = Region::linear(offset, size).map_err(|_| Status::INVALID_VALUE)?;
        bounded(buffer, &region)?;
        if buffer.raster().is_some() {
            return Err(Status::INVALID_VALUE);
        }
        if !pattern.len().is_power_of_two() || pattern.len() > 128 {
            return Err(Status::INVALID_VALUE);
        }
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < size {
            let length = FILL_PIECE.min(size - done);
            pieces.push(self.fill_piece(buffer, pattern, offset + done, length, wait)?);
            done += length;
        }
        // In an in-order queue the last piece ends after all others. Otherwise a marker waits for all of
        // them.
        match pieces.pop() {
            Some(last) if pieces.is_empty() || !self.out_of_order => Ok(last),
            Some(last) => self.marker(&pieces.iter().chain([&last]).collect()),
            None => self.marker(wait),
        }
    }

    fn fill_piece(
        &self,
        buffer: &Buffer,
        pattern: &[u8],
        offset: u64,
        size: u64,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        // SAFETY: the driver copies the pattern before it returns; the range lies within the buffer.
        unsafe {
            enqueue!(clEnqueueFillBuffer(
                self,
                wait,
                buffer.raw,
                pattern.as_ptr().cast(),
                pattern.len(),
                offset as usize,
                size as usize
            ))
        }
    }

    /// `clEnqueueMigrateMemObjects`.
    pub fn migrate(
        &self,
        buffers: &[&Buffer],
        flags: u64,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let list: Vec<_> = buffers.iter().map(|b| b.raw).collect();
        let count = u32::try_from(list.len()).map_err(|_| Status::INVALID_VALUE)?;
        // SAFETY: the list contains `count` live buffers.
        unsafe {
            enqueue!(clEnqueueMigrateMemObjects(
                self,
                wait,
                count,
                list.as_ptr(),
                flags
            ))
        }
    }
}
