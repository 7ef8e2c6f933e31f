//! Commands that move no bytes over the network: `clEnqueueCopyBuffer`, `clEnqueueCopyBufferRect`,
//! `clEnqueueFillBuffer`.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_point;
use super::super::event::{give_event, wait_list};
use super::super::handle;
use super::super::info::list;
use super::rect::{pitches, rectangle, triple};
use super::{Noun, for_queue};
use crate::error::{ClResult, require};
use crate::stub::{Buffer, Command, Enqueue, Event, EventSpec, Hold, Queue};

/// Enqueues a copy or fill. Without bytes (`command` is `None`), enqueues a command that moves nothing.
pub(in crate::api) fn enqueue(
    queue: &Arc<Queue>,
    command: Option<Command>,
    event_type: cl_command_type,
    wait: Vec<Arc<Event>>,
    hold: Hold,
    event: *mut cl_event,
) -> ClResult {
    let spec = EventSpec {
        event_type,
        wait,
        hold,
        finisher: None,
        visible: !event.is_null(),
    };
    let enqueued = queue.enqueue(Enqueue {
        command: command.unwrap_or(Command::Nothing),
        event: spec,
    })?;
    // SAFETY: the specification lets `event` be NULL or writable.
    unsafe { give_event(event, enqueued.event) };
    Ok(())
}

/// The two memory objects of a copy and their regions.
pub(in crate::api) struct Copy {
    pub(in crate::api) from: Arc<Buffer>,
    pub(in crate::api) to: Arc<Buffer>,
    pub(in crate::api) source: Region,
    pub(in crate::api) destination: Region,
}

impl Copy {
    /// Checks that the two regions do not overlap. Sub-buffers of one buffer, and images, follow the same
    /// rule.
    pub(in crate::api) fn checked(
        (from, source): (Arc<Buffer>, Region),
        (to, destination): (Arc<Buffer>, Region),
    ) -> ClResult<Copy> {
        let overlap = from.shares(&source, &to, &destination);
        // clEnqueueCopyBuffer: CL_MEM_COPY_OVERLAP when source and destination share bytes of one buffer.
        require(!overlap, CL_MEM_COPY_OVERLAP)?;
        Ok(Copy {
            from,
            to,
            source,
            destination,
        })
    }

    pub(in crate::api) fn work(&self) -> Option<Command> {
        (self.source.packed_length() > 0).then(|| Command::Copy {
            source: (self.from.clone(), self.source),
            destination: (self.to.clone(), self.destination),
        })
    }

    pub(in crate::api) fn hold(self) -> Hold {
        smallvec![self.from, self.to]
    }
}

/// Checks a copy of a contiguous run of bytes.
///
/// # Errors
/// As `clEnqueueCopyBuffer`, except for the wait list.
pub(in crate::api) fn bytes(
    queue: &Queue,
    (source, destination): (cl_mem, cl_mem),
    (from_offset, to_offset, size): (size_t, size_t, size_t),
) -> ClResult<Copy> {
    let memory = [source, destination].map(|raw| (Noun::Buffer, raw));
    let [from, to] = for_queue(queue, memory)?;
    // clEnqueueCopyBuffer: CL_INVALID_VALUE when either region leaves its buffer.
    let source = from.range(from_offset as u64, size as u64)?;
    let destination = to.range(to_offset as u64, size as u64)?;
    Copy::checked((from, source), (to, destination))
}

/// The arrays and pitches of a rectangular copy.
pub(in crate::api) struct CopyRectangle {
    pub(in crate::api) source_origin: *const size_t,
    pub(in crate::api) destination_origin: *const size_t,
    pub(in crate::api) region: *const size_t,
    pub(in crate::api) source_pitches: (size_t, size_t),
    pub(in crate::api) destination_pitches: (size_t, size_t),
}

impl CopyRectangle {
    /// # Errors
    /// As `clEnqueueCopyBufferRect`, except for the wait list.
    pub(in crate::api) fn copy(
        &self,
        queue: &Queue,
        source: cl_mem,
        destination: cl_mem,
    ) -> ClResult<Copy> {
        let memory = [source, destination].map(|raw| (Noun::Buffer, raw));
        let [from, to] = for_queue(queue, memory)?;
        let (source, destination) = self.regions(&from, &to)?;
        Copy::checked((from, source), (to, destination))
    }

    fn regions(&self, from: &Arc<Buffer>, to: &Arc<Buffer>) -> ClResult<(Region, Region)> {
        // SAFETY: the specification demands that each is NULL or points to three numbers.
        let [source, destination, size] = unsafe {
            [
                triple(self.source_origin)?,
                triple(self.destination_origin)?,
                triple(self.region)?,
            ]
        };
        let widen = |(row, slice): (size_t, size_t)| (row as u64, slice as u64);
        let (source_row, source_slice) = widen(self.source_pitches);
        let (destination_row, destination_slice) = widen(self.destination_pitches);
        let source = rectangle(source, size, source_row, source_slice)?;
        let destination = rectangle(destination, size, destination_row, destination_slice)?;
        // clEnqueueCopyBufferRect: CL_INVALID_VALUE when either region leaves its buffer.
        require(source.end() <= from.size(), CL_INVALID_VALUE)?;
        require(destination.end() <= to.size(), CL_INVALID_VALUE)?;
        // clEnqueueCopyBufferRect: CL_INVALID_VALUE when both buffers are the same and the pitches differ.
        // The specification's sentence names two differences at once. Either of them is refused here,
        // because a rectangle has one shape in one buffer.
        let equal = pitches(size, source_row, source_slice)?
            == pitches(size, destination_row, destination_slice)?;
        require(equal || !Arc::ptr_eq(from, to), CL_INVALID_VALUE)?;
        Ok((source, destination))
    }
}

/// The arguments of a fill.
pub(in crate::api) struct Fill {
    pub(in crate::api) buffer: cl_mem,
    pub(in crate::api) pattern: *const c_void,
    pub(in crate::api) pattern_size: size_t,
    pub(in crate::api) offset: size_t,
    pub(in crate::api) size: size_t,
}

impl Fill {
    /// Checks the fill. Returns the work, or `None` if there are no bytes, and the buffer.
    ///
    /// # Errors
    /// As `clEnqueueFillBuffer`, except for the wait list.
    ///
    /// # Safety
    /// `pattern` is NULL or points to `pattern_size` bytes.
    pub(in crate::api) unsafe fn work(&self, queue: &Queue) -> ClResult<(Option<Command>, Hold)> {
        let Fill {
            buffer,
            pattern,
            pattern_size,
            offset,
            size,
        } = *self;
        let [buffer] = for_queue(queue, [(Noun::Buffer, buffer)])?;
        check_pattern(pattern.is_null(), pattern_size, offset, size)?;
        // clEnqueueFillBuffer: CL_INVALID_VALUE when the region leaves the buffer.
        let region = buffer.range(offset as u64, size as u64)?;
        // SAFETY: the caller upholds this function's contract.
        Ok(unsafe { filling((buffer, region), pattern, pattern_size) })
    }
}

/// The work of a checked fill, or `None` if there are no bytes, and its memory.
///
/// # Safety
/// `pattern` is NULL or points to `pattern_size` bytes.
pub(in crate::api) unsafe fn filling(
    (buffer, region): (Arc<Buffer>, Region),
    pattern: *const c_void,
    pattern_size: size_t,
) -> (Option<Command>, Hold) {
    // SAFETY: the caller upholds this function's contract. The bytes are copied here.
    let pattern = unsafe { list(pattern.cast::<u8>(), pattern_size) };
    let work = (region.packed_length() > 0).then(|| Command::Fill {
        buffer: buffer.clone(),
        pattern: pattern.to_vec().into(),
        region,
    });
    (work, smallvec![buffer])
}

/// Checks the pattern of a fill, and that offset and size are multiples of its length.
pub(in crate::api) fn check_pattern(
    pattern_is_null: bool,
    length: usize,
    offset: usize,
    size: usize,
) -> ClResult {
    let sound = !pattern_is_null && length.is_power_of_two() && length <= 128;
    // clEnqueueFillBuffer: CL_INVALID_VALUE when the pattern is NULL or its size is not a power of two from
    // 1 to 128.
    require(sound, CL_INVALID_VALUE)?;
    // clEnqueueFillBuffer: CL_INVALID_VALUE when offset or size is not a multiple of the pattern size.
    require(
        offset.is_multiple_of(length) && size.is_multiple_of(length),
        CL_INVALID_VALUE,
    )
}

#[entry_point]
pub(crate) fn clEnqueueCopyBuffer(
    command_queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_offset: size_t,
    dst_offset: size_t,
    size: size_t,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let copy = bytes(
        &queue,
        (src_buffer, dst_buffer),
        (src_offset, dst_offset, size),
    )?;
    // SAFETY: the specification demands NULL or as many handles as the count says.
    let wait = unsafe { wait_list(queue.context(), num_events_in_wait_list, event_wait_list)? };
    enqueue(
        &queue,
        copy.work(),
        CL_COMMAND_COPY_BUFFER,
        wait,
        copy.hold(),
        event,
    )
}

#[entry_point]
pub(crate) fn clEnqueueCopyBufferRect(
    command_queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    src_row_pitch: size_t,
    src_slice_pitch: size_t,
    dst_row_pitch: size_t,
    dst_slice_pitch: size_t,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let rectangle = CopyRectangle {
        source_origin: src_origin,
        destination_origin: dst_origin,
        region,
        source_pitches: (src_row_pitch, src_slice_pitch),
        destination_pitches: (dst_row_pitch, dst_slice_pitch),
    };
    let copy = rectangle.copy(&queue, src_buffer, dst_buffer)?;
    // SAFETY: the specification demands NULL or as many handles as the count says.
    let wait = unsafe { wait_list(queue.context(), num_events_in_wait_list, event_wait_list)? };
    enqueue(
        &queue,
        copy.work(),
        CL_COMMAND_COPY_BUFFER_RECT,
        wait,
        copy.hold(),
        event,
    )
}

#[entry_point]
pub(crate) fn clEnqueueFillBuffer(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    pattern: *const c_void,
    pattern_size: size_t,
    offset: size_t,
    size: size_t,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let fill = Fill {
        buffer,
        pattern,
        pattern_size,
        offset,
        size,
    };
    // SAFETY: the specification demands NULL or `pattern_size` bytes, and NULL or as many handles as
    // the count says.
    let ((work, hold), wait) = unsafe {
        (
            fill.work(&queue)?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )
    };
    enqueue(&queue, work, CL_COMMAND_FILL_BUFFER, wait, hold, event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_powers_of_two_up_to_128_bytes() {
        for length in [1, 2, 4, 8, 16, 32, 64, 128] {
            assert!(check_pattern(false, length, 2 * length, 0).is_ok());
            assert!(check_pattern(true, length, 0, length).is_err());
        }
        for length in [0, 3, 12, 256] {
            assert!(check_pattern(false, length, 0, 0).is_err());
        }
        assert!(check_pattern(false, 4, 2, 4).is_err());
        assert!(check_pattern(false, 4, 4, 6).is_err());
    }
}
