//! Command queues and everything that is enqueued.
//!
//! Every enqueue here is non-blocking and gives an [`Event`], which owns the host memory concerned.
//! Regions are checked against the buffer before the driver sees them. Invariant: no native user event
//! exists, so nothing in a native queue ever waits for the application.

use std::ptr::{null, null_mut};

use causeway_proto::region::Region;
use causeway_proto::status::Status;
use opencl_sys::{
    CL_MAP_READ, CL_MAP_WRITE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE,
    CL_QUEUE_PROPERTIES, cl_command_queue, cl_event,
};

use super::buffer::Buffer;
use super::context::Context;
use super::event::{Event, WaitList};
use super::host::Host;
use super::kernel::{Kernel, Shape};
use super::library::{check, cl};
use super::node::Device;
use super::watch::QueueKey;

const INVALID_VALUE: Status = Status(-30);
/// Fills are cut here: NVIDIA's driver hangs or corrupts from 2 GiB on.
const FILL_PIECE: u64 = 1 << 30;

/// A native command queue; released when dropped.
#[derive(Debug)]
pub struct Queue {
    raw: cl_command_queue,
    device: Device,
    out_of_order: bool,
    profiling: bool,
}

// SAFETY: OpenCL queues may be used from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

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

/// Non-zero sizes of an enqueued piece of a buffer: the form that rectangles take natively.
struct Rect {
    origin: [usize; 3],
    size: [usize; 3],
    row_pitch: usize,
    slice_pitch: usize,
}

impl Queue {
    /// Creates a queue; `properties` are names and values without the closing 0.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Context, device: Device, properties: &[u64]) -> Result<Queue, Status> {
        context.owns(device)?;
        let bits = properties
            .chunks_exact(2)
            .find(|pair| pair[0] == u64::from(CL_QUEUE_PROPERTIES))
            .map_or(0, |pair| pair[1]);
        let mut status = 0;
        let raw = if device.is_modern() {
            let list: Vec<u64> = properties.iter().copied().chain([0]).collect();
            // SAFETY: the list ends in 0.
            unsafe {
                cl!(clCreateCommandQueueWithProperties(
                    context.raw,
                    device.raw,
                    list.as_ptr(),
                    &raw mut status
                ))
            }
        } else {
            // SAFETY: a live context and a device of it.
            unsafe {
                cl!(clCreateCommandQueue(
                    context.raw,
                    device.raw,
                    bits,
                    &raw mut status
                ))
            }
        };
        check(status)?;
        Ok(Queue {
            raw,
            device,
            out_of_order: bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0,
            profiling: bits & CL_QUEUE_PROFILING_ENABLE != 0,
        })
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Whether its commands may pass each other.
    #[must_use]
    pub fn is_out_of_order(&self) -> bool {
        self.out_of_order
    }

    /// Whether its events have times.
    #[must_use]
    pub fn is_profiling(&self) -> bool {
        self.profiling
    }

    // Under which key its events are watched; none where the driver's callbacks are prompt.
    fn watched(&self) -> Option<QueueKey> {
        self.device.calls_back_late().then(|| self.raw.addr())
    }

    /// `clFlush`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn flush(&self) -> Result<(), Status> {
        // SAFETY: a live queue.
        check(unsafe { cl!(clFlush(self.raw)) })
    }

    /// `clFinish`. Blocks.
    ///
    /// # Errors
    /// What the driver says.
    pub fn finish(&self) -> Result<(), Status> {
        // SAFETY: a live queue.
        check(unsafe { cl!(clFinish(self.raw)) })
    }

    /// Writes the packed bytes of `source`, from `skip` on, to `region`.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_VALUE` when the region leaves the buffer or the source is short.
    pub fn write(
        &self,
        buffer: &Buffer,
        region: &Region,
        source: Host,
        skip: usize,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let rect = checked(buffer, region, source.length(), skip)?;
        // SAFETY: `skip` lies within the source (checked).
        let from = unsafe { source.source().add(skip) }.cast();
        let mut event: cl_event = null_mut();
        let status = if region.is_linear() {
            // SAFETY: the source holds the region's bytes and stays until the event ends (Event).
            unsafe {
                cl!(clEnqueueWriteBuffer(
                    self.raw,
                    buffer.raw,
                    0,
                    rect.origin[0],
                    rect.size[0],
                    from,
                    wait.count(),
                    wait.pointer(),
                    &raw mut event
                ))
            }
        } else {
            // SAFETY: as above; the host side is packed.
            unsafe {
                cl!(clEnqueueWriteBufferRect(
                    self.raw,
                    buffer.raw,
                    0,
                    rect.origin.as_ptr(),
                    [0usize; 3].as_ptr(),
                    rect.size.as_ptr(),
                    rect.row_pitch,
                    rect.slice_pitch,
                    rect.size[0],
                    rect.size[0] * rect.size[1],
                    from,
                    wait.count(),
                    wait.pointer(),
                    &raw mut event
                ))
            }
        };
        check(status)?;
        // SAFETY: the driver just gave the event, and its command reads `source` alone.
        Ok(unsafe { Event::adopt(event, Some(source), self.watched()) })
    }

    /// Reads `region`, packed, into `target` from `skip` on.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_VALUE` when the region leaves the buffer or the target is short.
    pub fn read(
        &self,
        buffer: &Buffer,
        region: &Region,
        mut target: Host,
        skip: usize,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let rect = checked(buffer, region, target.length(), skip)?;
        let destination = target.destination();
        if destination.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: `skip` lies within the target (checked).
        let to = unsafe { destination.add(skip) }.cast();
        let mut event: cl_event = null_mut();
        let status = if region.is_linear() {
            // SAFETY: the target has room for the region's bytes and stays until the event ends (Event).
            unsafe {
                cl!(clEnqueueReadBuffer(
                    self.raw,
                    buffer.raw,
                    0,
                    rect.origin[0],
                    rect.size[0],
                    to,
                    wait.count(),
                    wait.pointer(),
                    &raw mut event
                ))
            }
        } else {
            // SAFETY: as above; the host side is packed.
            unsafe {
                cl!(clEnqueueReadBufferRect(
                    self.raw,
                    buffer.raw,
                    0,
                    rect.origin.as_ptr(),
                    [0usize; 3].as_ptr(),
                    rect.size.as_ptr(),
                    rect.row_pitch,
                    rect.slice_pitch,
                    rect.size[0],
                    rect.size[0] * rect.size[1],
                    to,
                    wait.count(),
                    wait.pointer(),
                    &raw mut event
                ))
            }
        };
        check(status)?;
        // SAFETY: the driver just gave the event, and its command writes `target` alone.
        Ok(unsafe { Event::adopt(event, Some(target), self.watched()) })
    }

    /// Copies between regions of one shape (see [`common_shape`]).
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_VALUE` for regions that leave their buffers or differ in shape.
    pub fn copy(
        &self,
        (source, from): (&Buffer, &Region),
        (destination, to): (&Buffer, &Region),
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        bounded(source, from)?;
        bounded(destination, to)?;
        let (a, b) = common_shape(from, to).ok_or(INVALID_VALUE)?;
        let mut event: cl_event = null_mut();
        let status = if from.is_linear() && to.is_linear() {
            // SAFETY: both ranges lie within their buffers.
            unsafe {
                cl!(clEnqueueCopyBuffer(
                    self.raw,
                    source.raw,
                    destination.raw,
                    a.origin[0],
                    b.origin[0],
                    a.size[0],
                    wait.count(),
                    wait.pointer(),
                    &raw mut event
                ))
            }
        } else {
            // SAFETY: both rectangles lie within their buffers.
            unsafe {
                cl!(clEnqueueCopyBufferRect(
                    self.raw,
                    source.raw,
                    destination.raw,
                    a.origin.as_ptr(),
                    b.origin.as_ptr(),
                    a.size.as_ptr(),
                    a.row_pitch,
                    a.slice_pitch,
                    b.row_pitch,
                    b.slice_pitch,
                    wait.count(),
                    wait.pointer(),
                    &raw mut event
                ))
            }
        };
        check(status)?;
        // SAFETY: the driver just gave the event; no host memory is concerned.
        Ok(unsafe { Event::adopt(event, None, self.watched()) })
    }

    /// Fills `size` bytes from `offset`, in pieces that every driver can take.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_VALUE` when the range leaves the buffer.
    pub fn fill(
        &self,
        buffer: &Buffer,
        pattern: &[u8],
        offset: u64,
        size: u64,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let region = Region::linear(offset, size).map_err(|_| INVALID_VALUE)?;
        bounded(buffer, &region)?;
        if !pattern.len().is_power_of_two() || pattern.len() > 128 {
            return Err(INVALID_VALUE);
        }
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < size {
            let length = FILL_PIECE.min(size - done);
            pieces.push(self.fill_piece(buffer, pattern, offset + done, length, wait)?);
            done += length;
        }
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
        let mut event: cl_event = null_mut();
        // SAFETY: the driver copies the pattern before it returns; the range lies within the buffer.
        check(unsafe {
            cl!(clEnqueueFillBuffer(
                self.raw,
                buffer.raw,
                pattern.as_ptr().cast(),
                pattern.len(),
                offset as usize,
                size as usize,
                wait.count(),
                wait.pointer(),
                &raw mut event
            ))
        })?;
        // SAFETY: the driver just gave the event; no host memory is concerned.
        Ok(unsafe { Event::adopt(event, None, self.watched()) })
    }

    /// Launches `kernel` with the arguments set on it; the caller holds it exclusively.
    ///
    /// # Errors
    /// What the driver says.
    pub fn nd_range(
        &self,
        kernel: &mut Kernel,
        shape: &Shape,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let optional = |list: &Option<[usize; 3]>| list.as_ref().map_or(null(), |l| l.as_ptr());
        let mut event: cl_event = null_mut();
        // SAFETY: the lists hold three numbers, `dimensions` is at most 3.
        check(unsafe {
            cl!(clEnqueueNDRangeKernel(
                self.raw,
                kernel.raw,
                shape.dimensions(),
                optional(&shape.offset),
                shape.global.as_ptr(),
                optional(&shape.local),
                wait.count(),
                wait.pointer(),
                &raw mut event
            ))
        })?;
        // SAFETY: the driver just gave the event; no host memory is concerned.
        Ok(unsafe { Event::adopt(event, None, self.watched()) })
    }

    /// `clEnqueueMigrateMemObjects`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn migrate(
        &self,
        buffers: &[&Buffer],
        flags: u64,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let list: Vec<_> = buffers.iter().map(|b| b.raw).collect();
        let count = u32::try_from(list.len()).map_err(|_| INVALID_VALUE)?;
        let mut event: cl_event = null_mut();
        // SAFETY: a list of `count` live buffers.
        check(unsafe {
            cl!(clEnqueueMigrateMemObjects(
                self.raw,
                count,
                list.as_ptr(),
                flags,
                wait.count(),
                wait.pointer(),
                &raw mut event
            ))
        })?;
        // SAFETY: the driver just gave the event; no host memory is concerned.
        Ok(unsafe { Event::adopt(event, None, self.watched()) })
    }

    /// Completes when the wait list, or with none everything before it in the queue, did.
    ///
    /// # Errors
    /// What the driver says.
    pub fn marker(&self, wait: &WaitList<'_>) -> Result<Event, Status> {
        let mut event: cl_event = null_mut();
        // SAFETY: live objects only.
        check(unsafe {
            cl!(clEnqueueMarkerWithWaitList(
                self.raw,
                wait.count(),
                wait.pointer(),
                &raw mut event
            ))
        })?;
        // SAFETY: the driver just gave the event; no host memory is concerned.
        Ok(unsafe { Event::adopt(event, None, self.watched()) })
    }

    /// A marker that later commands of the queue come after.
    ///
    /// # Errors
    /// What the driver says.
    pub fn barrier(&self, wait: &WaitList<'_>) -> Result<Event, Status> {
        let mut event: cl_event = null_mut();
        // SAFETY: live objects only.
        check(unsafe {
            cl!(clEnqueueBarrierWithWaitList(
                self.raw,
                wait.count(),
                wait.pointer(),
                &raw mut event
            ))
        })?;
        // SAFETY: the driver just gave the event; no host memory is concerned.
        Ok(unsafe { Event::adopt(event, None, self.watched()) })
    }

    /// Maps bytes of a buffer. The pointer may be used once the event has ended, until the unmapping.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_VALUE` when the range leaves the buffer.
    pub(crate) fn map(
        &self,
        buffer: &Buffer,
        range: &Region,
        access: Access,
        wait: &WaitList<'_>,
    ) -> Result<(Event, *mut u8), Status> {
        bounded(buffer, range)?;
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

    pub(super) fn map_blocking(
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
        let event = unsafe { Event::adopt(event, None, self.watched()) };
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
        Ok(unsafe { Event::adopt(event, None, self.watched()) })
    }

    fn release(&self) -> Result<(), Status> {
        // SAFETY: we own one reference and give it up here.
        check(unsafe { cl!(clReleaseCommandQueue(self.raw)) })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

fn bounded(buffer: &Buffer, region: &Region) -> Result<(), Status> {
    if region.end() <= buffer.size() && region.packed_length() > 0 {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

fn checked(buffer: &Buffer, region: &Region, host: usize, skip: usize) -> Result<Rect, Status> {
    bounded(buffer, region)?;
    let needed = u64::try_from(skip)
        .ok()
        .and_then(|s| s.checked_add(region.packed_length()));
    if needed.is_none_or(|needed| needed > host as u64) {
        return Err(INVALID_VALUE);
    }
    Ok(Rect::of(region))
}

impl Rect {
    // Lossless: the region lies within a buffer, whose size is a `size_t`.
    fn of(region: &Region) -> Rect {
        Rect::shaped(
            region,
            region.size(),
            region.row_pitch(),
            region.slice_pitch(),
        )
    }

    fn shaped(region: &Region, size: [u64; 3], row_pitch: u64, slice_pitch: u64) -> Rect {
        Rect {
            origin: origin(region.offset(), size, row_pitch, slice_pitch),
            size: size.map(|n| n as usize),
            row_pitch: row_pitch as usize,
            slice_pitch: slice_pitch as usize,
        }
    }
}

/// The offset as slice, row and byte where the rectangle then stays within its rows and slices, as an
/// application would have given it; else the plain offset.
fn origin(offset: u64, size: [u64; 3], row_pitch: u64, slice_pitch: u64) -> [usize; 3] {
    let plain = [offset as usize, 0, 0];
    if size[1] == 1 && size[2] == 1 || row_pitch == 0 || slice_pitch == 0 {
        return plain;
    }
    let (z, within) = (offset / slice_pitch, offset % slice_pitch);
    let (y, x) = (within / row_pitch, within % row_pitch);
    let rows = slice_pitch / row_pitch;
    if x + size[0] > row_pitch || (size[2] > 1 && y + size[1] > rows) {
        return plain;
    }
    [x as usize, y as usize, z as usize]
}

/// Two regions of equal extent in one shape. A region whose gaps are 0 arrives joined into fewer,
/// longer rows; the finer of the two shapes is right for both.
fn common_shape(a: &Region, b: &Region) -> Option<(Rect, Rect)> {
    if a.packed_length() != b.packed_length() {
        return None;
    }
    let finer = if a.size()[0] <= b.size()[0] { a } else { b };
    Some((in_shape(a, finer.size())?, in_shape(b, finer.size())?))
}

fn in_shape(region: &Region, shape: [u64; 3]) -> Option<Rect> {
    let (size, [row, rows, _]) = (region.size(), shape);
    let (row_pitch, slice_pitch) = if size == shape {
        (region.row_pitch(), region.slice_pitch())
    } else if region.is_linear() {
        (row, row * rows)
    } else if size[0] == row * rows && size[1] == shape[2] && size[2] == 1 {
        // Tight rows, gaps between slices: each joined row is a slice.
        (row, region.row_pitch())
    } else {
        return None;
    };
    Some(Rect::shaped(region, shape, row_pitch, slice_pitch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(rect: &Rect) -> Vec<usize> {
        let start =
            rect.origin[0] + rect.origin[1] * rect.row_pitch + rect.origin[2] * rect.slice_pitch;
        (0..rect.size[2])
            .flat_map(|s| (0..rect.size[1]).map(move |r| (s, r)))
            .flat_map(|(s, r)| {
                (0..rect.size[0])
                    .map(move |b| start + s * rect.slice_pitch + r * rect.row_pitch + b)
            })
            .collect()
    }

    fn packed(region: &Region) -> Vec<usize> {
        region
            .segments(0, u64::MAX)
            .flat_map(|s| s.offset as usize..(s.offset + s.length) as usize)
            .collect()
    }

    proptest! {
        #[test]
        fn two_regions_of_one_extent_meet_in_one_shape(
            size in [1u64..6, 1u64..5, 1u64..4], offsets in [0u64..40, 0u64..40],
            row_gaps in [0u64..3, 0u64..3], slice_gaps in [0u64..3, 0u64..3],
        ) {
            let region = |i: usize| {
                let row = size[0] + row_gaps[i];
                Region::rect(offsets[i], size, row, row * (size[1] + slice_gaps[i])).unwrap()
            };
            let (a, b) = (region(0), region(1));
            let (x, y) = common_shape(&a, &b).unwrap();
            prop_assert_eq!(x.size, y.size);
            prop_assert_eq!(bytes(&x), packed(&a));
            prop_assert_eq!(bytes(&y), packed(&b));
        }
    }
}
