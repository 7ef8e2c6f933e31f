//! Sends one command of the application: chooses where it runs and which bytes must move first.
//!
//! Invariants: the directories learn of every transfer that was sent, whatever fails afterwards, and of no
//! command that was not sent. A command counts as enqueued once a part of it was sent that touches the
//! application's memory. Its event then reports the failure, after that part has ended.

use std::sync::Arc;

use causeway_proto::command::{Barrier, Marker, Migrate, enqueue::Operation};
use cl_headers::types::{CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, CL_MIGRATE_MEM_OBJECT_HOST};
use smallvec::smallvec;

use super::sequence::{Sequence, Way, index};
use super::transfers::Sent;
use super::withheld::Held;
use crate::coherence::{self, Access, Lost, Place, Plan, Wait};
use crate::error::{ClResult, Status};
use crate::stub::command_buffer::Replay;
use crate::stub::host_ranges::HostRanges;
use crate::stub::kernel::Snapshot;
use crate::stub::work::Write;
use crate::stub::{Buffer, Event, Hold, Queue, Site, Work, queue};

/// A command that is being sent.
#[derive(Clone, Copy)]
pub(super) struct Command<'a> {
    /// The queue that the command was enqueued on.
    pub(super) queue: &'a Arc<Queue>,
    /// The event of the command.
    pub(super) event: &'a Arc<Event>,
    /// The application's wait list, without withheld or failed events.
    pub(super) wait: &'a [Arc<Event>],
    /// Whether no incomplete command precedes this one.
    pub(super) is_first: bool,
}

impl Command<'_> {
    /// Returns the site of the command's queue.
    pub(super) fn site(&self) -> &Arc<Site> {
        self.queue.site()
    }

    /// Reports lost bytes to the context's error callback, and returns the status for the call.
    pub(super) fn lost(&self, lost: &Lost) -> Status {
        tracing::warn!("{lost}");
        self.queue.context().notify(&lost.to_string());
        Status::OUT_OF_RESOURCES
    }
}

impl Sequence {
    /// Sends a command, after the transfers that it needs.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the queue's site is lost, `CL_OUT_OF_RESOURCES` when bytes that the
    /// command needs were lost with their site.
    pub(super) fn issue(&mut self, held: Held, is_first: bool) -> ClResult {
        let Held {
            queue,
            event,
            place,
            wait,
            work,
        } = held;
        let has_failed = || wait.iter().any(|on| on.status() < 0);
        let cancel = || {
            // The command reaches no node. Commands that wait for it fail, too.
            event.fail(Status::WAIT_LIST_FAILED);
            Ok(())
        };
        if has_failed() {
            return cancel();
        }
        if self.is_lost(queue.site()) {
            // Checked before the plan, so that no transfers are sent for a command that cannot run.
            return Err(Status::DEVICE_NOT_AVAILABLE);
        }
        self.look_at_routes();
        self.profiling = queue.is_profiling();
        let command = Command {
            queue: &queue,
            event: &event,
            wait: &wait,
            is_first,
        };
        let result = self.send(&command, place, work);
        self.forget_named();
        match result {
            // An event of the wait list may have failed while the command was being sent.
            Err(status) if status == Status::WAIT_LIST_FAILED || has_failed() => cancel(),
            result => result,
        }
    }

    fn send(&mut self, command: &Command<'_>, place: queue::Place, work: Work) -> ClResult {
        match work {
            Work::Marker | Work::Barrier | Work::Nothing => {
                let is_barrier = matches!(work, Work::Barrier);
                self.synchronise(command, is_barrier, place.is_after_all())
            }
            Work::Launch(launch) => self.launch(command, &launch),
            Work::Replay(replay) => self.replay(command, &replay),
            Work::Fill { .. } | Work::FillImage { .. } => {
                let accesses = work.accesses()?;
                self.simple(command, &accesses, work)
            }
            Work::Copy { .. } => {
                let accesses = work.accesses()?;
                self.copy(command, &accesses, work)
            }
            Work::Migrate { buffers, flags } => self.migrate(command, &buffers, flags),
            Work::Read(read) => self.read(command, read),
            Work::Write(write) => self.write(command, write),
            Work::Map(map) => self.map(command, map),
            Work::Ready(_) | Work::Encoded(_) => {
                unreachable!("Ready and Encoded work exists in contexts of one site only")
            }
        }
    }

    /// Plans what a command needs to run at `place`.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` for bytes that are lost.
    pub(super) fn plan(
        &self,
        command: &Command<'_>,
        place: Place,
        accesses: &[Access],
    ) -> ClResult<Plan> {
        let queue = command.queue;
        // Only commands on the application's queue end in that queue's order.
        let in_own_order = place == Place::Site(index(command.site())) && queue.is_in_order();
        let planned = coherence::Command {
            place,
            in_order: in_own_order.then(|| queue.id()),
            after: &[],
            accesses,
        };
        let plan = self.coherence.plan(&planned, &self.is_done());
        plan.map_err(|lost| command.lost(&lost))
    }

    /// Sends a plan's transfers, and records them in the directories.
    pub(super) fn begin(&mut self, plan: &Plan) -> Sent {
        let sent = self.send_transfers(plan);
        let (coherence, is_done) = self.split();
        coherence.commit_transfers(plan, &sent.events, &is_done);
        sent
    }

    /// Records in the directories that the plan's command was sent.
    pub(super) fn commit(&mut self, plan: &Plan, event: &Arc<Event>) {
        let (coherence, is_done) = self.split();
        coherence.commit_command(plan, event.id(), &is_done);
    }

    /// Sends a command to its queue's site, after the transfers that it needs. `send` gets the command's
    /// wait list.
    ///
    /// # Errors
    /// Those of [`Sequence::issue`].
    pub(super) fn at_site(
        &mut self,
        command: &Command<'_>,
        accesses: &[Access],
        send: impl FnOnce(&mut Sequence, Vec<u64>) -> ClResult,
    ) -> ClResult {
        let site = command.site();
        let plan = self.plan(command, Place::Site(index(site)), accesses)?;
        // From here on the directories know the transfers, even if the command itself fails below.
        let sent = self.begin(&plan);
        command.event.needs(&sent.received);
        let events = command.wait.iter().chain(&sent.received);
        let wait = self.list(events, plan.waits(), site)?;
        send(self, wait)?;
        self.commit(&plan, command.event);
        Ok(())
    }

    fn simple(&mut self, command: &Command<'_>, accesses: &[Access], work: Work) -> ClResult {
        let (site, queue) = (command.site(), command.queue.id());
        self.at_site(command, accesses, |sequence, wait| {
            let operation = work.on(site)?;
            sequence.enqueue(site, queue, command.event, wait, operation)
        })
    }

    fn synchronise(
        &mut self,
        command: &Command<'_>,
        is_barrier: bool,
        after_all: bool,
    ) -> ClResult {
        let site = command.site();
        let mut wait = self.list(command.wait, [], site)?;
        if !after_all {
            wait = self.not_empty(wait, site)?;
        }
        let operation = if is_barrier {
            Operation::Barrier(Barrier {})
        } else {
            Operation::Marker(Marker {})
        };
        self.enqueue(site, command.queue.id(), command.event, wait, operation)
    }

    fn launch(&mut self, command: &Command<'_>, launch: &Snapshot) -> ClResult {
        let accesses = launch.accesses()?;
        let (site, queue) = (command.site(), command.queue.id());
        self.at_site(command, &accesses, |sequence, wait| {
            let (operation, commit) = launch.operation(site)?;
            sequence.enqueue(site, queue, command.event, wait, operation)?;
            // Only now does the site know the arguments; a launch that was not sent must repeat them.
            commit.sent();
            Ok(())
        })
    }

    fn replay(&mut self, command: &Command<'_>, replay: &Replay) -> ClResult {
        let (site, queue) = (command.site(), command.queue.id());
        self.at_site(command, replay.accesses(), |sequence, wait| {
            let (operation, commit) = replay.operation(site)?;
            sequence.enqueue(site, queue, command.event, wait, operation)?;
            commit.sent();
            Ok(())
        })
    }

    fn write(&mut self, command: &Command<'_>, write: Write) -> ClResult {
        let Write {
            buffer,
            region,
            host,
            unmaps,
            keep,
        } = write;
        let site = command.site();
        // Commands that still write that host memory come first.
        let context = command.queue.context();
        let gate = HostRanges::of_process().gate_of_sent(&host.addresses(), context)?;
        let (id, root) = (buffer.root().id(), buffer.in_root(&region)?);
        let access = if unmaps {
            Access::unmap(id, root)
        } else {
            Access::write(id, root)
        };
        command.event.set_finisher(Box::new(move |_, _| drop(keep)));
        self.at_site(command, &[access], |sequence, wait| {
            let target = (site, command.queue.id(), command.event);
            sequence.write_on(target, (&buffer, region), host, gate, wait)
        })
    }

    fn migrate(&mut self, command: &Command<'_>, buffers: &[Arc<Buffer>], flags: u64) -> ClResult {
        let undefined = flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED != 0;
        // Pipes cannot be migrated.
        let buffers: Vec<_> = buffers.iter().filter(|of| of.pipe().is_none()).collect();
        if buffers.is_empty() {
            return self.synchronise(command, false, false);
        }
        let accesses = buffers.iter().map(|buffer| {
            let whole = buffer.in_root(&buffer.range(0, buffer.size())?)?;
            Ok(Access::migrate(buffer.root().id(), whole, undefined))
        });
        let accesses = accesses.collect::<ClResult<Vec<_>>>()?;
        if flags & CL_MIGRATE_MEM_OBJECT_HOST != 0 {
            return self.at_client(command, &accesses);
        }
        let site = command.site();
        command.event.consists_of(&[]);
        self.at_site(command, &accesses, |sequence, wait| {
            let ids = buffers.iter().map(|buffer| Ok(buffer.id_on(site)?.0));
            let operation = Operation::Migrate(Migrate {
                memory: ids.collect::<ClResult<_>>()?,
                flags,
            });
            sequence.enqueue(site, command.queue.id(), command.event, wait, operation)
        })
    }

    // Copies at the site where the fewest bytes have to move. If that is not the queue's own site, two
    // markers on the queue enclose the copy.
    fn copy(&mut self, command: &Command<'_>, accesses: &[Access], work: Work) -> ClResult {
        let own = index(command.site());
        let chosen = self.coherence.place_for_copy(accesses, own);
        if chosen == own {
            return self.simple(command, accesses, work);
        }
        let site = self.site(chosen);
        let plan = self.plan(command, Place::Site(chosen), accesses)?;
        let start = self.start_marker(command)?;
        let sent = self.begin(&plan);
        let hold = match &work {
            Work::Copy {
                source,
                destination,
            } => smallvec![source.0.clone(), destination.0.clone()],
            _ => Hold::new(),
        };
        let part = Event::of_part(command.queue.context(), &site, hold);
        let events = start.iter().chain(&sent.received);
        let result = self.list(events, plan.waits(), &site).and_then(|wait| {
            let queue = self.own_queue(&site, Way::In)?;
            let operation = work.on(&site)?;
            self.enqueue(&site, queue, &part, wait, operation)
        });
        part.needs(&sent.received);
        if result.is_ok() {
            self.commit(&plan, &part);
        }
        let part = self.check(part, result);
        self.end(command, start.as_ref(), &[part], &[]);
        Ok(())
    }

    /// Sends the marker that the command's parts on other sites must follow. `None` when nothing precedes
    /// the command, so that the parts may begin at once.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the queue's site is lost.
    pub(super) fn start_marker(&mut self, command: &Command<'_>) -> ClResult<Option<Arc<Event>>> {
        if command.is_first {
            return Ok(None);
        }
        let site = command.site();
        let start = Event::of_part(command.queue.context(), site, Hold::new());
        let wait = self.list(command.wait, [], site)?;
        let wait = self.not_empty(wait, site)?;
        let operation = Operation::Marker(Marker {});
        self.enqueue(site, command.queue.id(), &start, wait, operation)?;
        Ok(Some(start))
    }

    /// Ends a command that consists of `parts`: sends the marker that follows them and all `waits`. Parts
    /// that were sent cannot be undone, so an error here becomes the failure of an enqueued command.
    pub(super) fn end(
        &mut self,
        command: &Command<'_>,
        start: Option<&Arc<Event>>,
        parts: &[Arc<Event>],
        waits: &[Wait],
    ) {
        command.event.consists_of(parts);
        if let Err(status) = self.end_marker(command, start, parts, waits) {
            command.event.fail(status);
        }
    }

    /// Sends the command as a marker that follows its parts and all else that the command waits for.
    ///
    /// # Errors
    /// Those of [`Sequence::issue`].
    pub(super) fn end_marker(
        &mut self,
        command: &Command<'_>,
        start: Option<&Arc<Event>>,
        parts: &[Arc<Event>],
        waits: &[Wait],
    ) -> ClResult {
        let site = command.site();
        let events = parts.iter().chain(start).chain(command.wait);
        let wait = self.list(events, waits, site)?;
        let wait = self.not_empty(wait, site)?;
        let operation = Operation::Marker(Marker {});
        self.enqueue(site, command.queue.id(), command.event, wait, operation)
    }
}
