//! What the program's trace learns of commands.
//!
//! A command is reported when its event is made, which is before anything is sent, and when its end becomes visible.
//! Its times are those of `clGetEventProfilingInfo`. Nothing here is called without a trace.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::id::EventId;
use cl_headers::types::*;

use super::{Event, EventState};
use crate::error::Status;
use crate::host_clock::host_ns;
use crate::stub::device::timer;
use crate::stub::{Queue, Site};
use crate::trace::record::{Ended, Enqueued, Place, Record};
use crate::trace::{self, Times};

/// What a trace says of a command besides its kind and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The kernel's name; `None` for other commands.
    pub name: Option<String>,
    /// The number of bytes that the command moves or writes.
    pub bytes: Option<u64>,
}

/// Reports a command of the application.
pub(super) fn enqueued(
    event: EventId,
    queue: &Queue,
    command: u32,
    note: Option<Box<Note>>,
    waits: &[Arc<Event>],
) {
    let (name, bytes) = note.map_or((None, None), |note| (note.name, note.bytes));
    trace::report(Record::Enqueued(Enqueued {
        event: event.0,
        place: Place::Queue(queue.id().0),
        name: name.map_or(Cow::Borrowed(kind(command)), Cow::Owned),
        bytes,
        waits: waits.iter().map(|on| on.id().0).collect(),
        thread: trace::thread_in_call(),
    }));
}

/// Reports a transfer, at this site, that commands of the application need.
pub(in crate::stub) fn transfer_enqueued(
    event: &Event,
    site: &Site,
    name: Cow<'static, str>,
    bytes: u64,
) {
    trace::report(Record::Enqueued(Enqueued {
        event: event.id().0,
        place: Place::Transfers(site.session().traced_node()),
        name,
        bytes: Some(bytes),
        waits: Vec::new(),
        thread: trace::thread_in_call(),
    }));
}

impl Event {
    pub(super) fn trace_discarded(&self) {
        let event = self.id.0;
        trace::report(Record::Discarded { event });
    }

    // The caller has locked the state.
    pub(super) fn trace_end(&self, status: Status, state: &EventState) {
        let ended = Ended {
            event: self.id.0,
            status: status.0.min(0),
            at: host_ns(),
            times: None,
        };
        trace::ended(ended, self.traced_times(status, state));
    }

    // As `Event::times`, without waiting, and for internal commands too.
    fn traced_times(&self, status: Status, state: &EventState) -> Times {
        let told = state.times.filter(|_| !status.is_error());
        let (Some(told), Some(site)) = (told, self.site()) else {
            return Box::new(|_| Some(None));
        };
        let clock = site.session().clock();
        let starts = state.starts.iter().map(|start| {
            let clock = start.site.as_ref().map(|site| site.session().clock());
            (clock, start.ns)
        });
        let starts: Vec<_> = starts.collect();
        let queued = self.queue.as_ref().map(|_| self.queued_ns);
        Box::new(move |patience: Duration| {
            let Some(offset) = clock.offset_within(patience)? else {
                return Some(None);
            };
            let mut first: Option<u64> = None;
            for (clock, ns) in &starts {
                let here = match clock {
                    Some(clock) => clock
                        .offset_within(patience)?
                        .map(|offset| offset.apply(*ns)),
                    None => Some(*ns),
                };
                first = [first, here].into_iter().flatten().min();
            }
            let queued = queued.unwrap_or_else(|| offset.apply(told[0]));
            Some(Some(timer::moments(queued, told, offset, first)))
        })
    }
}

// The kind of a command, for people.
fn kind(command: u32) -> &'static str {
    match command {
        CL_COMMAND_NDRANGE_KERNEL => "kernel",
        CL_COMMAND_TASK => "task",
        CL_COMMAND_READ_BUFFER => "read buffer",
        CL_COMMAND_WRITE_BUFFER => "write buffer",
        CL_COMMAND_COPY_BUFFER => "copy buffer",
        CL_COMMAND_READ_IMAGE => "read image",
        CL_COMMAND_WRITE_IMAGE => "write image",
        CL_COMMAND_COPY_IMAGE => "copy image",
        CL_COMMAND_COPY_IMAGE_TO_BUFFER => "copy image to buffer",
        CL_COMMAND_COPY_BUFFER_TO_IMAGE => "copy buffer to image",
        CL_COMMAND_MAP_BUFFER => "map buffer",
        CL_COMMAND_MAP_IMAGE => "map image",
        CL_COMMAND_UNMAP_MEM_OBJECT => "unmap",
        CL_COMMAND_MARKER => "marker",
        CL_COMMAND_BARRIER => "barrier",
        CL_COMMAND_READ_BUFFER_RECT => "read rectangle",
        CL_COMMAND_WRITE_BUFFER_RECT => "write rectangle",
        CL_COMMAND_COPY_BUFFER_RECT => "copy rectangle",
        CL_COMMAND_MIGRATE_MEM_OBJECTS => "migrate",
        CL_COMMAND_FILL_BUFFER => "fill buffer",
        CL_COMMAND_FILL_IMAGE => "fill image",
        CL_COMMAND_SVM_FREE => "free SVM",
        CL_COMMAND_SVM_MEMCPY => "copy SVM",
        CL_COMMAND_SVM_MEMFILL => "fill SVM",
        CL_COMMAND_SVM_MAP => "map SVM",
        CL_COMMAND_SVM_UNMAP => "unmap SVM",
        CL_COMMAND_SVM_MIGRATE_MEM => "migrate SVM",
        CL_COMMAND_COMMAND_BUFFER_KHR => "command buffer",
        CL_COMMAND_SEMAPHORE_WAIT_KHR => "semaphore wait",
        CL_COMMAND_SEMAPHORE_SIGNAL_KHR => "semaphore signal",
        _ => "command",
    }
}
