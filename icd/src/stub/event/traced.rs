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
use crate::trace;
use crate::trace::record::{Ended, Enqueued, Moment, Record, TracePlace};
use crate::transport::clock::NodeClock;

/// What a trace says of a command besides its kind and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The kernel's name; `None` for other commands.
    pub name: Option<Cow<'static, str>>,
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
        place: TracePlace::Queue(queue.id().0),
        name: name.unwrap_or(Cow::Borrowed(kind(command))),
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
        place: TracePlace::Transfers(site.session().traced_node()),
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
        let ended = |times: Option<[Moment; 5]>| Ended {
            event: self.id.0,
            status: status.0.min(0),
            at: times.map_or_else(host_ns, |[.., completed]| completed),
            times,
        };
        let Some(times) = self.traced_times(status, state) else {
            return trace::report(Record::Ended(ended(None)));
        };
        match times.known(Duration::ZERO) {
            Some(known) => trace::report(Record::Ended(ended(known))),
            None => trace::ended_late(ended(None), Box::new(move |of| times.known(of))),
        }
    }

    // As `Event::times`, and for internal and unobserved commands too.
    fn traced_times(&self, status: Status, state: &EventState) -> Option<TracedTimes> {
        let told = state.times.filter(|_| !status.is_error())?;
        let site = self.site()?;
        let starts = state.starts.iter().map(|start| {
            let clock = start.site.as_ref().map(|site| site.session().clock());
            (clock, start.ns)
        });
        Some(TracedTimes {
            queued: (self.queue.is_some() || self.unobserved).then_some(self.queued_ns),
            told,
            clock: site.session().clock(),
            starts: starts.collect(),
        })
    }
}

// What the times of a command are made of.
struct TracedTimes {
    queued: Option<u64>,
    told: [u64; 5],
    clock: Arc<NodeClock>,
    // Starts of parts, each with the clock of its node; `None` for the client's own.
    starts: Vec<(Option<Arc<NodeClock>>, u64)>,
}

impl TracedTimes {
    // Waits no longer than `patience` for the clocks. `None` if one is not known by then.
    fn known(&self, patience: Duration) -> Option<Option<[Moment; 5]>> {
        let Some(offset) = self.clock.offset_within(patience)? else {
            return Some(None);
        };
        let mut first: Option<u64> = None;
        for (clock, ns) in &self.starts {
            let here = match clock {
                Some(clock) => clock
                    .offset_within(patience)?
                    .map(|offset| offset.apply(*ns)),
                None => Some(*ns),
            };
            first = [first, here].into_iter().flatten().min();
        }
        let queued = self.queued.unwrap_or_else(|| offset.apply(self.told[0]));
        Some(Some(timer::moments(queued, self.told, offset, first)))
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
