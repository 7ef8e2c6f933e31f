//! Sends one command of the application: chooses where it runs and which bytes must move first.
//!
//! Invariants: the directories learn of every transfer that was sent, whatever fails afterwards, and of no
//! command that was not sent. A command counts as enqueued once a part of it was sent that touches the
//! application's memory. Its event then reports the failure, after that part has ended.

use std::sync::Arc;

use cl_headers::types::{CL_INVALID_OPERATION, CL_MIGRATE_MEM_OBJECT_HOST};
use smallvec::smallvec;

use super::sequence::{QueuePurpose, Sequence, index};
use super::transfers::Sent;
use super::withheld::WithheldCommand;
use crate::coherence::{self, Access, Lost, Place, Plan, Wait};
use crate::error::{ClResult, Status, fail};
use crate::stub::memory::host_ranges::HostRanges;
use crate::stub::queue::command::{HostTransfer, Map, NodeCommand};
use crate::stub::queue::encoded::Encoded;
use crate::stub::{Buffer, Command, Event, Hold, Queue, Site, queue};

/// A command that is being sent.
#[derive(Clone, Copy)]
pub(super) struct Issue<'a> {
    /// The queue that the command was enqueued on.
    pub(super) queue: &'a Arc<Queue>,
    /// The event of the command.
    pub(super) event: &'a Arc<Event>,
    /// The application's wait list, without withheld or failed events.
    pub(super) wait: &'a [Arc<Event>],
    /// Whether no incomplete command precedes this one.
    pub(super) is_first: bool,
}

impl Issue<'_> {
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
    pub(super) fn issue(&mut self, held: WithheldCommand, is_first: bool) -> ClResult {
        let WithheldCommand {
            queue,
            event,
            place,
            wait,
            command,
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
        self.profiling = queue.records_times();
        let issue = Issue {
            queue: &queue,
            event: &event,
            wait: &wait,
            is_first,
        };
        let result = self.send(&issue, place, command);
        self.forget_named();
        match result {
            // An event of the wait list may have failed while the command was being sent.
            Err(status) if status == Status::WAIT_LIST_FAILED || has_failed() => cancel(),
            result => result,
        }
    }

    fn send(&mut self, issue: &Issue<'_>, place: queue::OrderClass, command: Command) -> ClResult {
        match command {
            Command::Node(command) => self.send_node_command(issue, place, &command),
            Command::Read(read) => self.read(issue, &read.access(Access::read)?, read),
            Command::Write(write) => self.write(issue, &write.access(Access::write)?, write),
            Command::Unmap(unmap) => self.write(issue, &unmap.access(Access::unmap)?, unmap),
            Command::Map(Map { transfer, kind, .. }) => {
                let access = transfer.access(|buffer, region| Access::map(buffer, region, kind))?;
                self.at_client(issue, &access)
            }
            // Contexts of several sites have no shared virtual memory, which these belong to.
            Command::StagedRead { .. } | Command::HostCopy { .. } => fail(CL_INVALID_OPERATION),
        }
    }

    fn send_node_command(
        &mut self,
        issue: &Issue<'_>,
        place: queue::OrderClass,
        command: &NodeCommand,
    ) -> ClResult {
        let accesses = command.accesses()?;
        match command {
            NodeCommand::Marker | NodeCommand::Barrier | NodeCommand::Nothing => {
                self.synchronise(issue, command, place.is_after_all())
            }
            NodeCommand::Copy {
                source: (from, _),
                destination: (to, _),
            } => {
                let hold = smallvec![from.clone(), to.clone()];
                self.copy(issue, &accesses, command, hold)
            }
            NodeCommand::Migrate { buffers, flags } => {
                self.migrate(issue, &accesses, buffers, *flags)
            }
            _ => self.simple(issue, &accesses, command),
        }
    }

    /// Plans what a command needs to run at `place`.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` for bytes that are lost.
    pub(super) fn plan(
        &self,
        issue: &Issue<'_>,
        place: Place,
        accesses: &[Access],
    ) -> ClResult<Plan> {
        let queue = issue.queue;
        // Only commands on the application's queue end in that queue's order.
        let in_own_order = place == Place::Site(index(issue.site())) && queue.is_in_order();
        let planned = coherence::Command {
            place,
            in_order: in_own_order.then(|| queue.id()),
            after: &[],
            accesses,
        };
        let plan = self.coherence.plan(&planned, &self.is_done());
        plan.map_err(|lost| issue.lost(&lost))
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
        issue: &Issue<'_>,
        accesses: &[Access],
        send: impl FnOnce(&mut Sequence, Vec<u64>) -> ClResult,
    ) -> ClResult {
        let site = issue.site();
        let plan = self.plan(issue, Place::Site(index(site)), accesses)?;
        // From here on the directories know the transfers, even if the command itself fails below.
        let sent = self.begin(&plan);
        issue.event.needs(&sent.received);
        let events = issue.wait.iter().chain(&sent.received);
        let wait = self.list(events, plan.waits(), site)?;
        send(self, wait)?;
        self.commit(&plan, issue.event);
        Ok(())
    }

    fn simple(
        &mut self,
        issue: &Issue<'_>,
        accesses: &[Access],
        command: &NodeCommand,
    ) -> ClResult {
        let (site, queue) = (issue.site(), issue.queue.id());
        self.at_site(issue, accesses, |sequence, wait| {
            let (operation, commit) = command.encode(site)?;
            sequence.enqueue(site, queue, issue.event, wait, &operation)?;
            // Only now does the site know the arguments; a command that was not sent must repeat them.
            commit.sent();
            Ok(())
        })
    }

    fn synchronise(
        &mut self,
        issue: &Issue<'_>,
        command: &NodeCommand,
        after_all: bool,
    ) -> ClResult {
        let site = issue.site();
        let mut wait = self.list(issue.wait, [], site)?;
        if !after_all {
            wait = self.not_empty(wait, site)?;
        }
        let (operation, _) = command.encode(site)?;
        self.enqueue(site, issue.queue.id(), issue.event, wait, &operation)
    }

    fn write(&mut self, issue: &Issue<'_>, accesses: &[Access], write: HostTransfer) -> ClResult {
        let site = issue.site();
        // Commands that still write that host memory come first.
        let context = issue.queue.context();
        let gate = HostRanges::of_process().gate_of_sent(&write.host.addresses(), context)?;
        self.at_site(issue, accesses, |sequence, wait| {
            let target = (site, issue.queue.id(), issue.event);
            sequence.write_on(target, write, gate, wait)
        })
    }

    fn migrate(
        &mut self,
        issue: &Issue<'_>,
        accesses: &[Access],
        buffers: &[Arc<Buffer>],
        flags: u64,
    ) -> ClResult {
        // Pipes, which cannot be migrated, have no accesses.
        if accesses.is_empty() {
            return self.synchronise(issue, &NodeCommand::Nothing, false);
        }
        if flags & CL_MIGRATE_MEM_OBJECT_HOST != 0 {
            // The program may be writing what it has mapped, and nothing must arrive over that. To migrate less changes no
            // contents.
            let mut free: Vec<Access> = accesses.to_vec();
            for buffer in buffers.iter().filter(|of| of.is_mapped_for_writing()) {
                free.retain(|access| access.buffer != buffer.root().id());
            }
            return match free.is_empty() {
                true => self.synchronise(issue, &NodeCommand::Nothing, false),
                false => self.at_client(issue, &free),
            };
        }
        issue.event.consists_of(&[]);
        // Pipes may not exist on this site.
        let buffers = buffers.iter().filter(|of| of.pipe().is_none());
        let buffers = buffers.cloned().collect();
        self.simple(issue, accesses, &NodeCommand::Migrate { buffers, flags })
    }

    // Copies at the site where the fewest bytes have to move. If that is not the queue's own site, two
    // markers on the queue enclose the copy.
    fn copy(
        &mut self,
        issue: &Issue<'_>,
        accesses: &[Access],
        command: &NodeCommand,
        hold: Hold,
    ) -> ClResult {
        let own = index(issue.site());
        let chosen = self.coherence.place_for_copy(accesses, own);
        if chosen == own {
            return self.simple(issue, accesses, command);
        }
        let site = self.site(chosen);
        let plan = self.plan(issue, Place::Site(chosen), accesses)?;
        let start = self.start_marker(issue)?;
        let sent = self.begin(&plan);
        let part = Event::of_part(issue.queue.context(), &site, hold);
        let events = start.iter().chain(&sent.received);
        let result = self.list(events, plan.waits(), &site).and_then(|wait| {
            let queue = self.own_queue(&site, QueuePurpose::In)?;
            let (operation, _) = command.encode(&site)?;
            self.enqueue(&site, queue, &part, wait, &operation)
        });
        part.needs(&sent.received);
        if result.is_ok() {
            self.commit(&plan, &part);
        }
        let part = self.check(part, result);
        self.end(issue, start.as_ref(), &[part], &[]);
        Ok(())
    }

    /// Sends the marker that the command's parts on other sites must follow. `None` when nothing precedes
    /// the command, so that the parts may begin at once.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the queue's site is lost.
    pub(super) fn start_marker(&mut self, issue: &Issue<'_>) -> ClResult<Option<Arc<Event>>> {
        if issue.is_first {
            return Ok(None);
        }
        let site = issue.site();
        let start = Event::of_part(issue.queue.context(), site, Hold::new());
        let wait = self.list(issue.wait, [], site)?;
        let wait = self.not_empty(wait, site)?;
        self.enqueue(site, issue.queue.id(), &start, wait, &Encoded::marker())?;
        Ok(Some(start))
    }

    /// Ends a command that consists of `parts`: sends the marker that follows them and all `waits`. Parts
    /// that were sent cannot be undone, so an error here becomes the failure of an enqueued command.
    pub(super) fn end(
        &mut self,
        issue: &Issue<'_>,
        start: Option<&Arc<Event>>,
        parts: &[Arc<Event>],
        waits: &[Wait],
    ) {
        issue.event.consists_of(parts);
        if let Err(status) = self.end_marker(issue, start, parts, waits) {
            issue.event.fail(status);
        }
    }

    /// Sends the command as a marker that follows its parts and all else that the command waits for.
    ///
    /// # Errors
    /// Those of [`Sequence::issue`].
    pub(super) fn end_marker(
        &mut self,
        issue: &Issue<'_>,
        start: Option<&Arc<Event>>,
        parts: &[Arc<Event>],
        waits: &[Wait],
    ) -> ClResult {
        let site = issue.site();
        let events = parts.iter().chain(start).chain(issue.wait);
        let wait = self.list(events, waits, site)?;
        let wait = self.not_empty(wait, site)?;
        self.enqueue(
            site,
            issue.queue.id(),
            issue.event,
            wait,
            &Encoded::marker(),
        )
    }
}
