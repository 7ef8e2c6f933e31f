//! `clEnqueueMapBuffer`, `clEnqueueUnmapMemObject`.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_points;
use super::super::event::{give_event, wait_list};
use super::super::handle;
use super::transfer::{Way, check_host_access};
use super::{host_region, on_queue};
use crate::coherence::MapKind;
use crate::error::{ClResult, fail, require};
use crate::stub::{Buffer, Event, Map, NewMap, Queue, Submission, Transfer, Work, nothing};

/// What a map is for.
#[derive(Clone, Copy)]
struct Purpose(cl_map_flags);

impl Purpose {
    /// "CL_INVALID_VALUE if […] values specified in map_flags are not valid."
    fn new(flags: cl_map_flags) -> ClResult<Purpose> {
        let shared = CL_MAP_READ | CL_MAP_WRITE;
        let known = flags & !(shared | CL_MAP_WRITE_INVALIDATE_REGION) == 0;
        // Invalidating promises nothing of what was there, so it goes with neither of the others.
        let alone = flags & CL_MAP_WRITE_INVALIDATE_REGION == 0 || flags & shared == 0;
        require(known && alone, CL_INVALID_VALUE)?;
        Ok(Purpose(flags))
    }

    fn writes(self) -> bool {
        self.0 & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0
    }

    /// Whether the application is promised the present contents: always, unless it gives them up.
    fn fetches(self) -> bool {
        self.0 & CL_MAP_WRITE_INVALIDATE_REGION == 0
    }

    fn kind(self) -> MapKind {
        match (self.writes(), self.fetches()) {
            (true, true) => MapKind::Write,
            (true, false) => MapKind::WriteInvalidate,
            (false, _) => MapKind::Read,
        }
    }

    /// "CL_INVALID_OPERATION if buffer has been created with CL_MEM_HOST_WRITE_ONLY or
    /// CL_MEM_HOST_NO_ACCESS and CL_MAP_READ is set in map_flags or […] CL_MEM_HOST_READ_ONLY or
    /// CL_MEM_HOST_NO_ACCESS and CL_MAP_WRITE or CL_MAP_WRITE_INVALIDATE_REGION is set in map_flags."
    fn check_host_access(self, buffer: &Buffer) -> ClResult {
        if self.0 & CL_MAP_READ != 0 {
            check_host_access(buffer, Way::Read)?;
        }
        if self.writes() {
            check_host_access(buffer, Way::Write)?;
        }
        Ok(())
    }
}

/// Enqueues the map's command.
fn enqueue_map(
    queue: &Arc<Queue>,
    buffer: &Arc<Buffer>,
    region: Region,
    map: NewMap,
    purpose: Purpose,
    wait: Vec<Arc<Event>>,
    wants_event: bool,
) -> ClResult<Arc<Event>> {
    if queue.context().is_distributed() {
        let work = Work::Map(Map {
            buffer: buffer.clone(),
            region,
            kind: purpose.kind(),
            keep: Box::new(map.place),
        });
        let submission = Submission {
            work,
            command: CL_COMMAND_MAP_BUFFER,
            wait,
            hold: smallvec![buffer.clone()],
            finisher: None,
            visible: true,
        };
        return queue.submit(submission, |_| Ok(()));
    }
    let keep: Option<Box<dyn Send>> = Some(Box::new(map.place));
    if !purpose.fetches() {
        let hold = smallvec![buffer.clone()];
        return nothing(queue, CL_COMMAND_MAP_BUFFER, wait, hold, keep, wants_event);
    }
    let bytes = Region::linear(0, region.packed_length()).or(fail(CL_INVALID_VALUE))?;
    // SAFETY: the shadow (or the memory that the application gave for the buffer's life) is there for
    // these bytes as long as the buffer, which the command holds.
    let host = unsafe { host_region(map.address, bytes) }?;
    let transfer = Transfer {
        buffer: buffer.clone(),
        region,
        host,
        command: CL_COMMAND_MAP_BUFFER,
        wait,
        wants_event,
        keep,
    };
    transfer.read(queue)
}

#[allow(clippy::too_many_arguments, reason = "as many as the C function has")]
fn map(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking: bool,
    flags: cl_map_flags,
    (offset, size): (size_t, size_t),
    (count, events): (cl_uint, *const cl_event),
    event: *mut cl_event,
) -> ClResult<*mut c_void> {
    let (queue, [buffer]) = on_queue(command_queue, [buffer])?;
    let region = buffer.range(offset as u64, size as u64)?;
    // "CL_INVALID_VALUE if […] size is 0."
    require(size > 0, CL_INVALID_VALUE)?;
    let purpose = Purpose::new(flags)?;
    // SAFETY: the specification's contract of a wait list.
    let wait = unsafe { wait_list(queue.context(), count, events)? };
    purpose.check_host_access(&buffer)?;
    let map = buffer.map(offset as u64, size as u64, purpose.writes())?;
    let (key, address) = (map.key(), map.address);
    let wants_event = !event.is_null();
    let enqueued = enqueue_map(&queue, &buffer, region, map, purpose, wait, wants_event);
    let stub = enqueued.inspect_err(|_| buffer.cancel_map(key))?;
    buffer.mapped_by(key, &stub);
    if blocking {
        stub.outcome().inspect_err(|_| buffer.cancel_map(key))?;
    }
    // SAFETY: the specification lets `event` be NULL or writable.
    unsafe { give_event(event, stub) };
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

fn unmap(
    command_queue: cl_command_queue,
    memobj: cl_mem,
    address: usize,
    (count, events): (cl_uint, *const cl_event),
    event: *mut cl_event,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let buffer = handle::resolve::<Buffer>(memobj)?;
    require(
        Arc::ptr_eq(queue.context(), buffer.context()),
        CL_INVALID_CONTEXT,
    )?;
    // "CL_INVALID_VALUE if mapped_ptr is not a valid pointer returned by [a map] for memobj."
    require(buffer.is_mapped_at(address), CL_INVALID_VALUE)?;
    // SAFETY: the specification's contract of a wait list.
    let mut wait = unsafe { wait_list(queue.context(), count, events)? };
    let unmap = buffer.unmap(address)?;
    // What is not mapped yet cannot be unmapped before.
    wait.extend(unmap.mapped_by);
    let keep: Option<Box<dyn Send>> = Some(Box::new(unmap.place));
    let (command, wants_event) = (CL_COMMAND_UNMAP_MEM_OBJECT, !event.is_null());
    let stub = match unmap.upload {
        None => {
            let hold = smallvec![buffer];
            nothing(&queue, command, wait, hold, keep, wants_event)?
        }
        Some(upload) => {
            let bytes = Region::linear(0, upload.length).or(fail(CL_INVALID_VALUE))?;
            // SAFETY: as in `enqueue_map`; the application leaves the bytes alone from this call on.
            let host = unsafe { host_region(upload.address, bytes) }?;
            let transfer = Transfer {
                region: buffer.range(upload.offset, upload.length)?,
                buffer,
                host,
                command,
                wait,
                wants_event,
                keep,
            };
            transfer.write(&queue)?.event
        }
    };
    // SAFETY: the specification lets `event` be NULL or writable.
    unsafe { give_event(event, stub) };
    Ok(())
}

entry_points! {
    fn clEnqueueMapBuffer(
        command_queue: cl_command_queue, buffer: cl_mem, blocking_map: cl_bool,
        map_flags: cl_map_flags, offset: size_t, size: size_t, num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event, event: *mut cl_event; errcode_ret
    ) -> *mut c_void {
        let wait = (num_events_in_wait_list, event_wait_list);
        let blocking = blocking_map != CL_FALSE;
        map(command_queue, buffer, blocking, map_flags, (offset, size), wait, event)
    }

    fn clEnqueueUnmapMemObject(
        command_queue: cl_command_queue, memobj: cl_mem, mapped_ptr: *mut c_void,
        num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event, event: *mut cl_event,
    ) {
        let wait = (num_events_in_wait_list, event_wait_list);
        unmap(command_queue, memobj, mapped_ptr.expose_provenance(), wait, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_flags_are_valid_and_invalidating_stands_alone() {
        for good in [
            CL_MAP_READ,
            CL_MAP_WRITE,
            CL_MAP_READ | CL_MAP_WRITE,
            CL_MAP_WRITE_INVALIDATE_REGION,
        ] {
            assert!(Purpose::new(good).is_ok());
        }
        for bad in [
            CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION,
            CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION,
            1 << 3,
        ] {
            assert!(Purpose::new(bad).is_err());
        }
    }

    #[test]
    fn a_map_for_writing_fetches_unless_it_invalidates() {
        let of = |flags| Purpose::new(flags).unwrap();
        assert!(of(CL_MAP_WRITE).fetches() && of(CL_MAP_WRITE).writes());
        assert!(of(CL_MAP_READ).fetches() && !of(CL_MAP_READ).writes());
        let invalidating = of(CL_MAP_WRITE_INVALIDATE_REGION);
        assert!(!invalidating.fetches() && invalidating.writes());
    }
}
