//! The rectangular forms of reads, writes and copies.
//!
//! Invariant: an overflow in a rectangle's arithmetic is an error.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::command::{Enqueue, RectPlace, Shape, Work};
use crate::error::{ClResult, Code, ensure};
use crate::memory::Memory;
use crate::object::Ref;
use crate::transfer::{Direction, buffer_for};
use crate::{arg, log};

/// One side of a rectangular transfer.
struct Rect {
    offset: usize,
    row_pitch: usize,
    slice_pitch: usize,
    /// Bytes from `offset` to the end of the last row.
    extent: usize,
}

impl Rect {
    /// Checks the pitches and computes where the region lies. An overflow is `CL_INVALID_VALUE`.
    fn new(origin: Shape, region: Shape, row_pitch: usize, slice_pitch: usize) -> ClResult<Self> {
        let row_pitch = if row_pitch == 0 { region[0] } else { row_pitch };
        ensure(row_pitch >= region[0], CL_INVALID_VALUE)?;
        let slice = row_pitch
            .checked_mul(region[1])
            .ok_or(Code(CL_INVALID_VALUE))?;
        let slice_pitch = if slice_pitch == 0 { slice } else { slice_pitch };
        let whole = slice_pitch.is_multiple_of(row_pitch);
        ensure(slice_pitch >= slice && whole, CL_INVALID_VALUE)?;
        let at = |x: usize, y: usize, z: usize| {
            let rows = y.checked_mul(row_pitch)?;
            let slices = z.checked_mul(slice_pitch)?;
            x.checked_add(rows)?.checked_add(slices)
        };
        let offset = at(origin[0], origin[1], origin[2]).ok_or(Code(CL_INVALID_VALUE))?;
        let extent = at(region[0], region[1] - 1, region[2] - 1);
        Ok(Self {
            offset,
            row_pitch,
            slice_pitch,
            extent: extent.ok_or(Code(CL_INVALID_VALUE))?,
        })
    }

    fn place(&self, base: usize, held: Option<Ref<Memory>>) -> RectPlace {
        RectPlace {
            address: base + self.offset,
            row_pitch: self.row_pitch,
            slice_pitch: self.slice_pitch,
            _held: held,
        }
    }

    /// Returns the offset of each row.
    fn rows(&self, region: Shape) -> impl Iterator<Item = usize> {
        let (offset, row_pitch, slice_pitch) = (self.offset, self.row_pitch, self.slice_pitch);
        (0..region[2]).flat_map(move |slice| {
            (0..region[1]).map(move |row| offset + slice * slice_pitch + row * row_pitch)
        })
    }
}

/// Reads three sizes.
///
/// # Safety
/// `triple` is NULL or points to three sizes.
pub(crate) unsafe fn triple(triple: *const size_t) -> ClResult<Shape> {
    ensure(!triple.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: the caller keeps this function's contract.
    Ok(unsafe { triple.cast::<Shape>().read() })
}

/// The arguments that rectangular reads and writes share.
struct HostRect {
    queue: cl_command_queue,
    buffer: cl_mem,
    blocking: cl_bool,
    buffer_origin: *const size_t,
    host_origin: *const size_t,
    region: *const size_t,
    buffer_pitches: [size_t; 2],
    host_pitches: [size_t; 2],
    ptr: usize,
    wait: (cl_uint, *const cl_event, *mut cl_event),
}

impl HostRect {
    /// # Safety
    /// The arguments are those of a call of the application.
    unsafe fn enqueue(self, kind: cl_command_type, direction: Direction) -> ClResult {
        let (count, list, event) = self.wait;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(self.queue, kind, count, list, event) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let buffer = unsafe { buffer_for(&enqueue, self.buffer) }?;
        // SAFETY: the application passes an array as OpenCL requires.
        let region = unsafe { triple(self.region) }?;
        // SAFETY: the application passes an array as OpenCL requires.
        let buffer_origin = unsafe { triple(self.buffer_origin) }?;
        // SAFETY: the application passes an array as OpenCL requires.
        let host_origin = unsafe { triple(self.host_origin) }?;
        ensure(self.ptr != 0 && !region.contains(&0), CL_INVALID_VALUE)?;
        let [row, slice] = self.buffer_pitches;
        let theirs = Rect::new(buffer_origin, region, row, slice)?;
        buffer.ensure_inside(theirs.offset, theirs.extent)?;
        let [row, slice] = self.host_pitches;
        let ours = Rect::new(host_origin, region, row, slice)?;
        let forbidden = buffer.flags & direction.forbidden_by();
        ensure(forbidden == 0, CL_INVALID_OPERATION)?;
        let in_buffer = theirs.place(buffer.address, Some(buffer.hold()));
        let on_host = ours.place(self.ptr, None);
        let note = || {
            let rows = ours.rows(region).map(|offset| {
                // SAFETY: the rows lie in the application's memory, which is valid for this transfer.
                unsafe { arg::list(region[0], (self.ptr + offset) as *const u8) }
            });
            log::digest(rows)
        };
        let work = match direction {
            Direction::Read => Work::copy(in_buffer, on_host, region),
            Direction::Write => {
                log::note("data", note);
                // SAFETY: the application passes as many bytes as OpenCL requires.
                unsafe { Work::write(on_host, in_buffer, region) }
            }
        };
        // SAFETY: the caller keeps the same contract. The application keeps its memory until the command ends.
        unsafe { enqueue.blocking(self.blocking).submit(work) }?;
        if direction == Direction::Read && self.blocking != CL_FALSE {
            log::note("data", note);
        }
        Ok(())
    }
}

/// Tells whether two rectangles of one buffer with equal pitches overlap.
fn overlap(region: Shape, from: &Rect, to: &Rect) -> bool {
    let (first, second) = if from.offset <= to.offset {
        (from, to)
    } else {
        (to, from)
    };
    if first.offset + first.extent <= second.offset {
        return false;
    }
    // Compares every row of one rectangle with every row of the other.
    first.rows(region).any(|row| {
        second
            .rows(region)
            .any(|other| row < other + region[0] && other < row + region[0])
    })
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;

    pub(crate) unsafe fn clEnqueueReadBufferRect(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        buffer_origin: *const size_t,
        host_origin: *const size_t,
        region: *const size_t,
        buffer_row_pitch: size_t,
        buffer_slice_pitch: size_t,
        host_row_pitch: size_t,
        host_slice_pitch: size_t,
        ptr: *mut c_void,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let rect = HostRect {
            queue,
            buffer,
            blocking,
            buffer_origin,
            host_origin,
            region,
            buffer_pitches: [buffer_row_pitch, buffer_slice_pitch],
            host_pitches: [host_row_pitch, host_slice_pitch],
            ptr: ptr.addr(),
            wait: (count, list, event),
        };
        // SAFETY: the caller keeps the same contract.
        unsafe { rect.enqueue(CL_COMMAND_READ_BUFFER_RECT, Direction::Read) }
    }

    pub(crate) unsafe fn clEnqueueWriteBufferRect(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        buffer_origin: *const size_t,
        host_origin: *const size_t,
        region: *const size_t,
        buffer_row_pitch: size_t,
        buffer_slice_pitch: size_t,
        host_row_pitch: size_t,
        host_slice_pitch: size_t,
        ptr: *const c_void,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let rect = HostRect {
            queue,
            buffer,
            blocking,
            buffer_origin,
            host_origin,
            region,
            buffer_pitches: [buffer_row_pitch, buffer_slice_pitch],
            host_pitches: [host_row_pitch, host_slice_pitch],
            ptr: ptr.addr(),
            wait: (count, list, event),
        };
        // SAFETY: the caller keeps the same contract.
        unsafe { rect.enqueue(CL_COMMAND_WRITE_BUFFER_RECT, Direction::Write) }
    }

    pub(crate) unsafe fn clEnqueueCopyBufferRect(
        queue: cl_command_queue,
        from: cl_mem,
        to: cl_mem,
        from_origin: *const size_t,
        to_origin: *const size_t,
        region: *const size_t,
        from_row_pitch: size_t,
        from_slice_pitch: size_t,
        to_row_pitch: size_t,
        to_slice_pitch: size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_COPY_BUFFER_RECT;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let from = unsafe { buffer_for(&enqueue, from) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let to = unsafe { buffer_for(&enqueue, to) }?;
        // SAFETY: the application passes an array as OpenCL requires.
        let region = unsafe { triple(region) }?;
        // SAFETY: the application passes an array as OpenCL requires.
        let from_origin = unsafe { triple(from_origin) }?;
        // SAFETY: the application passes an array as OpenCL requires.
        let to_origin = unsafe { triple(to_origin) }?;
        ensure(!region.contains(&0), CL_INVALID_VALUE)?;
        let source = Rect::new(from_origin, region, from_row_pitch, from_slice_pitch)?;
        let target = Rect::new(to_origin, region, to_row_pitch, to_slice_pitch)?;
        from.ensure_inside(source.offset, source.extent)?;
        to.ensure_inside(target.offset, target.extent)?;
        if from.handle() == to.handle() {
            let same =
                source.row_pitch == target.row_pitch && source.slice_pitch == target.slice_pitch;
            ensure(same, CL_INVALID_VALUE)?;
        }
        if from.root().0 == to.root().0 {
            let in_root = |rect: &Rect, origin: usize| Rect {
                offset: rect.offset + origin,
                ..*rect
            };
            let overlapping = overlap(
                region,
                &in_root(&source, from.origin),
                &in_root(&target, to.origin),
            );
            ensure(!overlapping, CL_MEM_COPY_OVERLAP)?;
        }
        let work = Work::copy(
            source.place(from.address, Some(from.hold())),
            target.place(to.address, Some(to.hold())),
            region,
        );
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.submit(work) }
    }
}
