//! Transfers between a buffer and host memory: how the bytes travel, and when host memory may be touched.
//!
//! Small transfers travel inside the command or its completion. Larger ones, and those whose bytes are not
//! available yet, use the bulk connections. A map is a read here, and an unmap is a write.
//!
//! Invariant: host memory is read or written only between the enqueue and the end of the command.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{ReadBuffer, WriteBuffer, enqueue::Operation};
use causeway_proto::limits::INLINE_PAYLOAD;
use causeway_proto::region::Region;
use cl_headers::types::{CL_COMMAND_SVM_MEMCPY, CL_COMMAND_UNMAP_MEM_OBJECT};
use smallvec::smallvec;

use super::encoded::Encoded;
use super::event::Finisher;
use super::host_ranges::{HostRanges, HostWrite};
use super::{Buffer, Event, Hold, Queue, Submission, Work, work};
use crate::error::{ClResult, Status};
use crate::transport::HostRegion;

/// A transfer about to be enqueued.
pub struct Transfer {
    /// The buffer or sub-buffer.
    pub buffer: Arc<Buffer>,
    /// The bytes of the buffer.
    pub region: Region,
    /// Host memory of the same length.
    pub host: HostRegion,
    /// `CL_EVENT_COMMAND_TYPE` of the transfer's event.
    pub command: u32,
    /// The wait list.
    pub wait: Vec<Arc<Event>>,
    /// Whether the application asked for the event.
    pub wants_event: bool,
    /// Dropped when the transfer no longer touches host memory.
    pub keep: Option<Box<dyn Send>>,
}

/// An enqueued write.
#[derive(Debug)]
pub struct Written {
    /// The event of the write.
    pub event: Arc<Event>,
    /// Whether the bytes have already been copied out of host memory.
    pub taken: bool,
}

impl Transfer {
    /// Whether the transfer is small enough to travel inside the command or its completion.
    #[must_use]
    pub fn rides_along(&self) -> bool {
        self.region.packed_length() <= INLINE_PAYLOAD as u64
    }

    /// Enqueues a read from the buffer to host memory.
    ///
    /// # Errors
    /// Those of [`Queue::submit`]; host memory is unchanged then.
    pub fn read(mut self, queue: &Arc<Queue>) -> ClResult<Arc<Event>> {
        if queue.context().is_distributed() {
            return self.read_distributed(queue);
        }
        let bulk = !self.rides_along();
        let addresses = self.host.addresses();
        if bulk {
            // The gate delays a bulk read until other commands have finished writing the same memory, so
            // that its bytes arrive last.
            let gate = HostRanges::of_process().gate(&addresses, queue, &self.wait)?;
            self.wait.extend(gate);
        }
        let writing = HostWrite::new(addresses);
        let begin = writing.beginning();
        let (inline, download) = if bulk {
            (None, Some(self.host))
        } else {
            (Some(self.host), None)
        };
        let keep = self.keep;
        let finisher: Finisher = Box::new(move |status, contents| {
            land(inline.as_ref(), status, contents);
            // The order matters: the bytes must be in place before other commands may read or overwrite
            // them.
            drop(writing);
            drop(keep);
        });
        let submission = Submission {
            work: Work::Ready(Operation::ReadBuffer(ReadBuffer {
                buffer: self.buffer.id_on(queue.site())?.0,
                region: Some(self.region.to_wire()),
                bulk,
            })),
            command: self.command,
            wait: self.wait,
            hold: smallvec![self.buffer],
            finisher: Some(finisher),
            visible: true,
        };
        queue.submit(submission, |event| {
            begin(event);
            if let Some(host) = download {
                queue.site().session().download(event.id(), host)?;
            }
            Ok(())
        })
    }

    /// Enqueues a write from host memory to the buffer. The bytes are copied at once if they are few, no
    /// user event of the application can hold the command back, and no incomplete command writes that
    /// memory.
    ///
    /// # Errors
    /// Those of [`Queue::submit`].
    pub fn write(mut self, queue: &Arc<Queue>) -> ClResult<Written> {
        if queue.context().is_distributed() {
            return self.write_distributed(queue);
        }
        let gated = queue.would_gate(&self.wait);
        let gate = HostRanges::of_process().gate(&self.host.addresses(), queue, &self.wait)?;
        let free = !gated && gate.is_none();
        let taken = self.rides_along() && free;
        let session = queue.site().session();
        // With a grant, the bytes may be sent right behind the command, without waiting for credit.
        let grant = (free && !taken).then(|| session.eager_grant(self.region.packed_length()));
        let grant = grant.flatten();
        self.wait.extend(gate);
        let buffer = self.buffer.id_on(queue.site())?;
        let (work, upload) = if taken {
            let write = Encoded::write(buffer, &self.region, |out| self.host.append_to(out));
            (Work::Encoded(write), None)
        } else {
            let operation = Operation::WriteBuffer(WriteBuffer {
                buffer: buffer.0,
                region: Some(self.region.to_wire()),
                contents: Bytes::new(),
                bulk: true,
                eager: grant.is_some(),
            });
            (Work::Ready(operation), Some(self.host))
        };
        let keep = self.keep;
        let finisher = keep.map(|keep| -> Finisher { Box::new(move |_, _| drop(keep)) });
        let submission = Submission {
            work,
            command: self.command,
            wait: self.wait,
            hold: smallvec![self.buffer.clone()],
            finisher,
            visible: self.wants_event,
        };
        let event = queue.submit(submission, |event| {
            if let Some(host) = upload {
                session.upload(event.id(), host, self.buffer, grant)?;
            }
            Ok(())
        })?;
        Ok(Written { event, taken })
    }
}

impl Transfer {
    fn read_distributed(self, queue: &Arc<Queue>) -> ClResult<Arc<Event>> {
        let work = Work::Read(work::Read {
            buffer: self.buffer.clone(),
            region: self.region,
            writing: HostWrite::new(self.host.addresses()),
            host: self.host,
            keep: self.keep,
        });
        let submission = Submission {
            work,
            command: self.command,
            wait: self.wait,
            hold: smallvec![self.buffer],
            finisher: None,
            visible: true,
        };
        queue.submit(submission, |_| Ok(()))
    }

    fn write_distributed(self, queue: &Arc<Queue>) -> ClResult<Written> {
        let work = Work::Write(work::Write {
            buffer: self.buffer.clone(),
            region: self.region,
            host: self.host,
            unmaps: self.command == CL_COMMAND_UNMAP_MEM_OBJECT,
            keep: self.keep,
        });
        let submission = Submission {
            work,
            command: self.command,
            wait: self.wait,
            hold: smallvec![self.buffer],
            finisher: None,
            visible: self.wants_event,
        };
        let event = queue.submit(submission, |_| Ok(()))?;
        Ok(Written {
            event,
            taken: false,
        })
    }
}

/// Copies the bytes that came inside a completion to host memory.
pub(super) fn land(host: Option<&HostRegion>, status: Status, contents: &[u8]) {
    if let Some(host) = host
        && !status.is_error()
        && !host.copy_in(contents)
    {
        tracing::error!(
            "the node returned {} bytes for a read of {} bytes (protocol error); the read's memory is unchanged",
            contents.len(),
            host.length()
        );
    }
}

/// Enqueues a command that moves no bytes. The command takes its place in the order, waits for its wait
/// list, and ends.
///
/// # Errors
/// Those of [`Queue::submit`].
pub fn nothing(
    queue: &Arc<Queue>,
    command: u32,
    wait: Vec<Arc<Event>>,
    hold: Hold,
    keep: Option<Box<dyn Send>>,
    wants_event: bool,
) -> ClResult<Arc<Event>> {
    let finisher = keep.map(|keep| -> Finisher { Box::new(move |_, _| drop(keep)) });
    nothing_but((queue, command), wait, hold, finisher, wants_event, |_| {})
}

/// Like [`nothing`], but `finisher` runs at the end, and `begin` gets the event before anything is sent.
///
/// # Errors
/// Those of [`Queue::submit`].
pub(super) fn nothing_but(
    (queue, command): (&Arc<Queue>, u32),
    mut wait: Vec<Arc<Event>>,
    hold: Hold,
    finisher: Option<Finisher>,
    visible: bool,
    begin: impl FnOnce(&Arc<Event>),
) -> ClResult<Arc<Event>> {
    if !queue.is_in_order() && wait.is_empty() && !queue.context().is_distributed() {
        // A marker without a wait list would wait for everything before it. An event that has already ended
        // avoids that.
        let done = Event::gate(queue.context(), false)?;
        done.open();
        wait.push(done);
    }
    let submission = Submission {
        work: Work::Nothing,
        command,
        wait,
        hold,
        finisher,
        visible,
    };
    queue.submit(submission, |event| {
        begin(event);
        Ok(())
    })
}

/// Enqueues a copy within the application's memory. The client makes the copy when the command ends. Not
/// for distributed contexts.
///
/// # Errors
/// Those of [`Queue::submit`].
pub fn copy_on_host(
    queue: &Arc<Queue>,
    from: HostRegion,
    to: HostRegion,
    mut wait: Vec<Arc<Event>>,
) -> ClResult<Arc<Event>> {
    let ranges = HostRanges::of_process();
    // The copy waits for incomplete commands that still write either range.
    for addresses in [from.addresses(), to.addresses()] {
        let gate = ranges.gate(&addresses, queue, &wait)?;
        wait.extend(gate);
    }
    let writing = HostWrite::new(to.addresses());
    let begin = writing.beginning();
    let finisher: Finisher = Box::new(move |status, _| {
        if !status.is_error() && !to.copy_from(&from) {
            tracing::error!(
                "internal error: SVM copy between ranges of different lengths; nothing was copied"
            );
        }
        drop(writing);
    });
    let what = (queue, CL_COMMAND_SVM_MEMCPY);
    nothing_but(what, wait, Hold::new(), Some(finisher), true, begin)
}
