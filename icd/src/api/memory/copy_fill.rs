//! Commands that move no bytes over the network: `clEnqueueCopyBuffer`, `clEnqueueCopyBufferRect`,
//! `clEnqueueFillBuffer`.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::super::handle;
use super::super::info::list;
use super::rect::Rectangles;
use super::{Noun, for_queue};
use crate::error::{ClResult, require};
use crate::stub::{Buffer, Command, Enqueue, EventSpec, Hold, NodeCommand, Queue};

/// The command of a copy or fill, or `None` if there are no bytes, and its memory.
pub(in crate::api) type Work = (Option<NodeCommand>, Hold);

/// Enqueues a copy or fill. Without bytes, enqueues a command that moves nothing.
pub(in crate::api) fn enqueue(
    queue: &Arc<Queue>,
    (command, hold): Work,
    event_type: cl_command_type,
    events: Events,
) -> ClResult {
    let event = EventSpec {
        event_type,
        wait: events.wait_list(queue.context())?,
        hold,
        finisher: None,
        visible: events.wants_event(),
        note: None,
    };
    let command = Command::Node(command.unwrap_or(NodeCommand::Nothing));
    events.give(queue.enqueue(Enqueue { command, event })?.event);
    Ok(())
}

/// The work of a checked copy.
pub(in crate::api) fn copying(
    source: (Arc<Buffer>, Region),
    destination: (Arc<Buffer>, Region),
) -> Work {
    let hold = smallvec![source.0.clone(), destination.0.clone()];
    let work = (source.1.packed_length() > 0).then_some(NodeCommand::Copy {
        source,
        destination,
    });
    (work, hold)
}

/// Checks that the two regions do not overlap. Sub-buffers of one buffer, and images, follow the same rule.
pub(in crate::api) fn check_overlap(
    (from, source): (&Arc<Buffer>, &Region),
    (to, destination): (&Arc<Buffer>, &Region),
) -> ClResult {
    let overlap = from.shares(source, to, destination);
    // clEnqueueCopyBuffer: CL_MEM_COPY_OVERLAP when source and destination share bytes of one buffer.
    require(!overlap, CL_MEM_COPY_OVERLAP)
}

/// Checks a copy of a contiguous run of bytes.
///
/// # Errors
/// As `clEnqueueCopyBuffer`, except for the wait list.
pub(in crate::api) fn bytes(
    queue: &Queue,
    buffers: [cl_mem; 2],
    (from_offset, to_offset, size): (size_t, size_t, size_t),
) -> ClResult<Work> {
    let [from, to] = for_queue(queue, buffers.map(|raw| (Noun::Buffer, raw)))?;
    // clEnqueueCopyBuffer: CL_INVALID_VALUE when either region leaves its buffer.
    let source = from.range(from_offset as u64, size as u64)?;
    let destination = to.range(to_offset as u64, size as u64)?;
    check_overlap((&from, &source), (&to, &destination))?;
    Ok(copying((from, source), (to, destination)))
}

/// Checks a rectangular copy.
///
/// # Errors
/// As `clEnqueueCopyBufferRect`, except for the wait list.
pub(in crate::api) fn rectangles(
    queue: &Queue,
    buffers: [cl_mem; 2],
    given: &Rectangles,
) -> ClResult<Work> {
    let [from, to] = for_queue(queue, buffers.map(|raw| (Noun::Buffer, raw)))?;
    let ([source, destination], same_pitches) = given.read()?;
    // clEnqueueCopyBufferRect: CL_INVALID_VALUE when either region leaves its buffer.
    require(source.end() <= from.size(), CL_INVALID_VALUE)?;
    require(destination.end() <= to.size(), CL_INVALID_VALUE)?;
    // clEnqueueCopyBufferRect: CL_INVALID_VALUE when both buffers are the same and the pitches differ. The
    // specification's sentence names two differences at once. Either of them is refused here, because a
    // rectangle has one shape in one buffer.
    require(same_pitches || !Arc::ptr_eq(&from, &to), CL_INVALID_VALUE)?;
    check_overlap((&from, &source), (&to, &destination))?;
    Ok(copying((from, source), (to, destination)))
}

/// Checks a fill.
///
/// # Errors
/// As `clEnqueueFillBuffer`, except for the wait list.
///
/// # Safety
/// `pattern` is NULL or points to `pattern_size` bytes.
pub(in crate::api) unsafe fn fill(
    queue: &Queue,
    buffer: cl_mem,
    (pattern, pattern_size): (*const c_void, size_t),
    (offset, size): (size_t, size_t),
) -> ClResult<Work> {
    let [buffer] = for_queue(queue, [(Noun::Buffer, buffer)])?;
    check_pattern(pattern.is_null(), pattern_size, offset, size)?;
    // clEnqueueFillBuffer: CL_INVALID_VALUE when the region leaves the buffer.
    let region = buffer.range(offset as u64, size as u64)?;
    // SAFETY: the caller upholds this function's contract.
    Ok(unsafe { filling((buffer, region), pattern, pattern_size) })
}

/// The work of a checked fill.
///
/// # Safety
/// `pattern` is NULL or points to `pattern_size` bytes.
pub(in crate::api) unsafe fn filling(
    (buffer, region): (Arc<Buffer>, Region),
    pattern: *const c_void,
    pattern_size: size_t,
) -> Work {
    // SAFETY: the caller upholds this function's contract. The bytes are copied here.
    let pattern = unsafe { list(pattern.cast::<u8>(), pattern_size) };
    let work = (region.packed_length() > 0).then(|| NodeCommand::Fill {
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
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let offsets = (src_offset, dst_offset, size);
    let work = bytes(&queue, [src_buffer, dst_buffer], offsets)?;
    enqueue(&queue, work, CL_COMMAND_COPY_BUFFER, events)
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
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let given = Rectangles {
        origins: [src_origin, dst_origin],
        region,
        pitches: [
            (src_row_pitch, src_slice_pitch),
            (dst_row_pitch, dst_slice_pitch),
        ],
    };
    let work = rectangles(&queue, [src_buffer, dst_buffer], &given)?;
    enqueue(&queue, work, CL_COMMAND_COPY_BUFFER_RECT, events)
}

#[entry_point]
pub(crate) fn clEnqueueFillBuffer(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    pattern: *const c_void,
    pattern_size: size_t,
    offset: size_t,
    size: size_t,
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    // SAFETY: the specification demands NULL or `pattern_size` bytes.
    let work = unsafe { fill(&queue, buffer, (pattern, pattern_size), (offset, size))? };
    enqueue(&queue, work, CL_COMMAND_FILL_BUFFER, events)
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
