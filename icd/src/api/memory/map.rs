//! `clEnqueueMapBuffer`, `clEnqueueUnmapMemObject`, and what `clEnqueueMapImage` and the SVM maps share
//! with them.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::super::handle;
use super::transfer::{Way, check_host_access};
use super::writable::is_writable;
use super::{Noun, on_queue};
use crate::coherence::MapKind;
use crate::error::{ClResult, require};
use crate::stub::{
    Buffer, Command, Enqueue, Event, EventSpec, HostTransfer, Map, NewMap, NodeCommand, Queue,
    dropping,
};

/// The checked flags of a map.
#[derive(Clone, Copy)]
struct Purpose(cl_map_flags);

impl Purpose {
    /// Checks the flags of a map.
    fn new(flags: cl_map_flags) -> ClResult<Purpose> {
        let shared = CL_MAP_READ | CL_MAP_WRITE;
        let known = flags & !(shared | CL_MAP_WRITE_INVALIDATE_REGION) == 0;
        // CL_MAP_WRITE_INVALIDATE_REGION gives the old contents up, so it excludes the other two flags.
        let alone = flags & CL_MAP_WRITE_INVALIDATE_REGION == 0 || flags & shared == 0;
        // clEnqueueMapBuffer: CL_INVALID_VALUE when map_flags are unknown or mutually exclusive.
        require(known && alone, CL_INVALID_VALUE)?;
        Ok(Purpose(flags))
    }

    fn writes(self) -> bool {
        self.0 & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0
    }

    /// Whether the mapped memory must show the present contents: always, unless the application gives them
    /// up.
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

    /// Checks that the buffer's flags allow the host what the map is for.
    fn check_host_access(self, buffer: &Buffer) -> ClResult {
        // clEnqueueMapBuffer: CL_INVALID_OPERATION when the buffer's CL_MEM_HOST_* flags exclude reading
        // and the map reads.
        if self.0 & CL_MAP_READ != 0 {
            check_host_access(buffer, Way::Read)?;
        }
        // clEnqueueMapBuffer: CL_INVALID_OPERATION when the buffer's CL_MEM_HOST_* flags exclude writing
        // and the map writes.
        if self.writes() {
            check_host_access(buffer, Way::Write)?;
        }
        Ok(())
    }
}

/// Enqueues the map's command. Returns `None` when no command is needed: the map moves nothing, the queue
/// is idle and the application does not ask for the event.
fn enqueue_map(
    queue: &Arc<Queue>,
    buffer: &Arc<Buffer>,
    map: NewMap,
    purpose: Purpose,
    event_type: cl_command_type,
    wait: Vec<Arc<Event>>,
    wants_event: bool,
) -> ClResult<Option<Arc<Event>>> {
    // The first map of the object runs the test, whatever the map is for. During a later one, the
    // application may be writing the byte that the test reads and puts back.
    let takes_bytes = buffer.takes_bytes(is_writable);
    let is_ready = || queue.is_idle() && wait.iter().all(|on| on.status() == 0);
    // What the application has written through another map is newer than the node's bytes, unless a command before this one
    // is to change them. Any pending command counts, because the order does not say which bytes it changes.
    let keeps = map.is_written && is_ready();
    let fetches = purpose.fetches() && takes_bytes && !keeps;
    if !fetches && !wants_event && queue.may_leave_out(&wait) && queue.is_idle() {
        return Ok(None);
    }
    let command = Command::Map(Map {
        transfer: HostTransfer {
            buffer: buffer.root().clone(),
            region: map.region,
            host: map.host,
        },
        kind: purpose.kind(),
        fetches,
    });
    let event = EventSpec {
        event_type,
        wait,
        hold: smallvec![buffer.clone()],
        finisher: dropping(map.place),
        visible: wants_event,
        note: None,
    };
    Ok(Some(queue.enqueue(Enqueue { command, event })?.event))
}

/// The arguments of a map apart from the queue and the memory object.
pub(in crate::api) struct HowToMap {
    pub(in crate::api) blocking: bool,
    pub(in crate::api) flags: cl_map_flags,
    pub(in crate::api) events: Events,
    pub(in crate::api) command: cl_command_type,
}

/// Checks and enqueues a map. For a blocking call, waits until it is complete. Returns the mapped address
/// and the memory object.
pub(in crate::api) fn map(
    command_queue: cl_command_queue,
    memory: (Noun, cl_mem),
    how: &HowToMap,
    region: impl FnOnce(&Buffer) -> ClResult<Region>,
) -> ClResult<(*mut c_void, Arc<Buffer>)> {
    let (queue, [buffer]) = on_queue(command_queue, [memory])?;
    let region = region(&buffer)?;
    let address = map_on(&queue, &buffer, region, how)?;
    Ok((address, buffer))
}

/// As `map`, for a queue and buffer that the caller has resolved and checked already.
pub(in crate::api) fn map_on(
    queue: &Arc<Queue>,
    buffer: &Arc<Buffer>,
    region: Region,
    how: &HowToMap,
) -> ClResult<*mut c_void> {
    let purpose = Purpose::new(how.flags)?;
    let wait = how.events.wait_list(queue.context())?;
    purpose.check_host_access(buffer)?;
    let map = buffer.map(&region, purpose.writes())?;
    let (key, address) = (map.key(), map.address());
    let wants_event = how.events.wants_event();
    let enqueue = || enqueue_map(queue, buffer, map, purpose, how.command, wait, wants_event);
    // The caller waits next anyway, so it sends the outbox itself and no other thread is woken for that.
    let enqueued = if how.blocking {
        queue.before_waiting(enqueue)
    } else {
        enqueue()
    };
    // A map that fails is taken back: the application never gets its pointer and so never unmaps it.
    let enqueued = enqueued.inspect_err(|_| buffer.cancel_map(key))?;
    buffer.mapped_by(key, enqueued.as_ref());
    if let Some(stub) = enqueued {
        if how.blocking {
            stub.outcome().inspect_err(|_| buffer.cancel_map(key))?;
        }
        how.events.give(stub);
    }
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

/// Checks and enqueues an unmap of a buffer that the caller has resolved and checked already.
pub(in crate::api) fn unmap_on(
    queue: &Arc<Queue>,
    buffer: &Arc<Buffer>,
    address: usize,
    events: Events,
    event_type: cl_command_type,
) -> ClResult {
    // clEnqueueUnmapMemObject: CL_INVALID_VALUE when mapped_ptr was not returned by a map of this object.
    require(buffer.is_mapped_at(address), CL_INVALID_VALUE)?;
    let mut wait = events.wait_list(queue.context())?;
    let unmap = buffer.unmap(address)?;
    // The unmap runs after its map, even if another queue runs the map.
    wait.extend(unmap.mapped_by);
    // Commands in progress may still read the mapped bytes. So the place is freed at once only while the
    // queue is idle.
    if unmap.upload.is_none()
        && !events.wants_event()
        && queue.may_leave_out(&wait)
        && queue.is_idle()
    {
        return Ok(());
    }
    let moves = unmap.upload.is_some();
    let command = match unmap.upload {
        None => Command::Node(NodeCommand::Nothing),
        // The specification forbids the application to touch the bytes from this call on.
        Some(upload) => Command::Unmap(HostTransfer {
            buffer: buffer.root().clone(),
            region: upload.region,
            host: upload.host,
        }),
    };
    let spec = EventSpec {
        event_type,
        wait,
        hold: smallvec![buffer.clone()],
        finisher: dropping(unmap.place),
        visible: events.wants_event(),
        note: None,
    };
    let unmapped = queue.enqueue(Enqueue {
        command,
        event: spec,
    })?;
    // The bytes are still in the application's memory: the last release of the object waits for this
    // command.
    if moves && !unmapped.taken {
        buffer.unmapped_by(&unmapped.event);
    }
    events.give(unmapped.event);
    Ok(())
}

#[entry_point]
pub(crate) fn clEnqueueMapBuffer(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_map: cl_bool,
    map_flags: cl_map_flags,
    offset: size_t,
    size: size_t,
    events: Events,
) -> ClResult<*mut c_void> {
    let how = HowToMap {
        blocking: blocking_map != CL_FALSE,
        flags: map_flags,
        events,
        command: CL_COMMAND_MAP_BUFFER,
    };
    let (address, _) = map(command_queue, (Noun::Buffer, buffer), &how, |buffer| {
        // clEnqueueMapBuffer: CL_INVALID_VALUE when the region leaves the buffer.
        let region = buffer.range(offset as u64, size as u64)?;
        // clEnqueueMapBuffer: CL_INVALID_VALUE when the size is 0.
        require(size > 0, CL_INVALID_VALUE)?;
        Ok(region)
    })?;
    Ok(address)
}

#[entry_point]
pub(crate) fn clEnqueueUnmapMemObject(
    command_queue: cl_command_queue,
    memobj: cl_mem,
    mapped_ptr: *mut c_void,
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let buffer = handle::resolve::<Buffer>(memobj)?;
    // clEnqueueUnmapMemObject: CL_INVALID_CONTEXT when queue and memory object belong to different
    // contexts.
    require(
        Arc::ptr_eq(queue.context(), buffer.context()),
        CL_INVALID_CONTEXT,
    )?;
    let address = mapped_ptr.expose_provenance();
    unmap_on(
        &queue,
        &buffer,
        address,
        events,
        CL_COMMAND_UNMAP_MEM_OBJECT,
    )
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
