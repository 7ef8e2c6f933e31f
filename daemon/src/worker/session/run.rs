//! Enqueues commands natively, and runs the commands that become runnable by that.
//!
//! The thread that makes a command runnable runs it: the thread that reads commands, or a bulk thread
//! after a transfer's last piece. Commands released by another worker's message run on a dedicated thread
//! ([`super::mirrors`]). A driver's callback never runs commands: the end of a native command releases
//! none, because the native queue already holds its successors. After a run, every native queue that was
//! used is flushed. So no command waits for a flush that the program has already made.
//!
//! Invariant: no lock of the session is held during a native enqueue, except that of the launched kernel.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_proto::id::{EventId, LinkId};
use causeway_proto::status::Status;

use parking_lot::MutexGuard;

use super::command_buffers;
use super::commands::{Operation, Submitted, enqueue, launch_without_event};
use super::graph::FreedCommand;
use super::shared::{Core, Shared};
use crate::runtime::event::{Event, WaitList};
use crate::runtime::queue as native;
use crate::worker::bulk::Reports;
use crate::worker::objects::command::{Command, native_waits, watch};
use crate::worker::objects::console::SessionOver;
use crate::worker::objects::pace::Ticket;
use crate::worker::objects::task::Task;
use crate::worker::objects::{Queue, unobserved};

/// Runs commands and remembers which queues to flush.
pub(crate) struct Runner<'a> {
    shared: &'a Arc<Shared>,
    freed: VecDeque<FreedCommand<Submitted>>,
    touched: Vec<Arc<Queue>>,
    // Number of completions announced to the outbox whose commands are not in progress yet.
    expected: usize,
    // Whether the session's launches may be held back on this thread.
    is_batch: bool,
}

/// The result of starting a task.
enum Started {
    /// The task is in its native queue.
    Enqueued(Event),
    /// The task is in its native queue, and the bulk engine gets its end.
    Watched,
    /// The bulk engine has the task, and will report when it is enqueued.
    ByBulk,
}

impl<'a> Runner<'a> {
    /// Makes a runner for this thread.
    pub(crate) fn new(shared: &'a Arc<Shared>) -> Runner<'a> {
        Runner {
            shared,
            freed: VecDeque::new(),
            touched: Vec::new(),
            expected: 0,
            is_batch: false,
        }
    }

    /// Makes a runner for a batch. The outbox then expects as many completions until the runner ends.
    pub(crate) fn of_batch(shared: &'a Arc<Shared>, commands: usize) -> Runner<'a> {
        shared.outbox.begin(commands);
        let mut runner = Runner::new(shared);
        runner.expected = commands;
        runner.is_batch = true;
        runner
    }

    /// Starts a command that may run, then everything that this releases.
    pub(crate) fn run(&mut self, submitted: Submitted) {
        self.start(submitted);
        self.follow();
    }

    /// Runs commands that another thread has released, then everything that this releases.
    pub(crate) fn take(&mut self, freed: VecDeque<FreedCommand<Submitted>>) {
        self.freed.extend(freed);
        self.follow();
    }

    /// Handles that the client has ended a user event or mirror.
    pub(crate) fn ended(&mut self, event: &Command, status: Status) {
        {
            let mut core = self.shared.core.lock();
            core.graph.end(event.id(), status, &mut self.freed);
            core.forget_if_well(event.id(), status);
        }
        self.follow();
    }

    /// Handles that a bulk transfer's last native piece is enqueued.
    pub(crate) fn passed(&mut self, command: &Command) {
        self.pass(command);
        self.follow();
    }

    fn pass(&mut self, command: &Command) {
        self.shared
            .core
            .lock()
            .graph
            .passed(command.id(), &mut self.freed);
    }

    /// Handles that a command ended without success.
    pub(crate) fn failed(&mut self, command: &Command) {
        self.shared
            .core
            .lock()
            .graph
            .failed(command.id(), &mut self.freed);
        self.follow();
    }

    /// Gives up a command that was just held back, because a limit is exceeded.
    pub(crate) fn give_up(&mut self, mut core: MutexGuard<'_, Core>, command: &Arc<Command>) {
        let held = core.graph.failed(command.id(), &mut self.freed);
        drop(core);
        if let Some(Submitted { task, .. }) = held {
            self.shared.bulk.give_up(&task, Status::OUT_OF_HOST_MEMORY);
        }
        command.finish(
            Status::OUT_OF_HOST_MEMORY,
            "too many commands wait for events in this session".into(),
        );
        self.follow();
    }

    /// Has `queue` flushed when this runner ends.
    pub(crate) fn touch(&mut self, queue: &Arc<Queue>) {
        if !self.touched.iter().any(|q| Arc::ptr_eq(q, queue)) {
            self.touched.push(Arc::clone(queue));
        }
    }

    /// Starts an unobserved command without waits, in a queue where nothing is before it. `followed`
    /// means that another such command is likely to follow in this batch.
    pub(crate) fn run_unobserved(
        &mut self,
        id: EventId,
        queue: &Arc<Queue>,
        operation: Result<Operation, Status>,
        followed: bool,
    ) {
        let ticket = self.take_room(queue, &operation);
        let is_measured = ticket.is_some();
        self.touch(queue);
        // The last command of a group needs an event, because its callback reports the group.
        let is_last = queue.unobserved.is_nearly_full(ticket);
        let unreported = followed && !is_last && !queue.unobserved.is_timed();
        let enqueued = operation.and_then(|operation| {
            match unreported
                .then(|| launch_without_event(queue, &operation))
                .flatten()
            {
                Some(launched) => launched.map(|()| None),
                None => (self.hand_over(queue, &operation, &WaitList::new())).map(Some),
            }
        });
        match enqueued {
            Ok(event) => {
                if queue.unobserved.add(&self.shared.outbox, id, event) {
                    self.cover(queue);
                    if is_measured && let Ok(native) = queue.native() {
                        let _ = native.flush();
                    }
                }
            }
            Err(status) => self
                .shared
                .outbox
                .complete(unobserved::ended(id, status), None),
        }
    }

    // Starts listening for the ends of the unobserved commands in this queue.
    fn cover(&mut self, queue: &Queue) {
        let marker = || queue.native()?.marker(&WaitList::new());
        if let Some(group) = queue.unobserved.close(&self.shared.outbox, marker) {
            self.shared.outbox.begin(1);
            watch(&group);
        }
    }

    fn follow(&mut self) {
        while let Some(command) = self.freed.pop_front() {
            match command {
                FreedCommand::Run(_, submitted) => {
                    self.shared.let_go(&submitted);
                    self.start(submitted);
                }
                FreedCommand::Cancel(_, submitted) => {
                    self.shared.let_go(&submitted);
                    let task = submitted.task;
                    self.shared.bulk.give_up(&task, Status::WAIT_LIST_FAILED);
                    task.command.finish(Status::WAIT_LIST_FAILED, String::new());
                }
            }
        }
    }

    fn start(&mut self, submitted: Submitted) {
        let task = &submitted.task;
        let command = &task.command;
        let mut ticket = self.take_room(&task.queue, &submitted.operation);
        if let Some(ticket) = &mut ticket
            && waits_elsewhere(task)
        {
            ticket.waits_elsewhere();
        }
        // After the wait for room, so that no other session waits for the console meanwhile.
        let turn = self.take_turn(&submitted);
        self.touch(&task.queue);
        match turn.and_then(|()| self.enqueue(&submitted)) {
            Ok(Started::Enqueued(event)) => {
                command.enqueued(event);
                if let Some(ticket) = ticket {
                    command.keep(ticket);
                }
                // Such a command must not report the unobserved commands before it. A command with waits
                // may fail before they have ended, and a kernel may run long after them.
                let is_long = matches!(
                    submitted.operation,
                    Ok(Operation::NdRange { .. } | Operation::Replay { .. })
                );
                if task.waits.is_empty()
                    && !is_long
                    && let Some(earlier) = task.queue.unobserved.take()
                {
                    command.comes_after(earlier);
                }
                self.watch_command(command);
                self.pass(command);
            }
            Ok(Started::Watched) => self.pass(command),
            Ok(Started::ByBulk) => {}
            Err(status) => {
                self.shared.bulk.give_up(task, status);
                command.finish(status, String::new());
                self.shared
                    .core
                    .lock()
                    .graph
                    .failed(command.id(), &mut self.freed);
            }
        }
    }

    /// Waits until the driver may have one more command of the session, if the session has neighbours.
    fn take_room(
        &mut self,
        queue: &Queue,
        operation: &Result<Operation, Status>,
    ) -> Option<Ticket> {
        let pace = queue.pace.as_ref()?;
        let kind = operation.as_ref().ok()?.occupies()?;
        let waits = self.is_batch;
        pace.enter(&kind, waits.then_some(|| self.flush()))
    }

    /// In a host, waits until this session's commands may print, if this one may. The turn ends with the command.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` if the session ends meanwhile.
    fn take_turn(&mut self, submitted: &Submitted) -> Result<(), Status> {
        if !takes_turns(self.shared, &submitted.operation) {
            return Ok(());
        }
        let shared = self.shared;
        let Some(seat) = shared.outbox.printed().seat() else {
            return Ok(());
        };
        let turn = seat.enter(|| self.flush());
        let turn = turn.map_err(|SessionOver| Status::DEVICE_NOT_AVAILABLE)?;
        submitted.task.command.prints(turn);
        Ok(())
    }

    fn enqueue(&mut self, submitted: &Submitted) -> Result<Started, Status> {
        let task = &submitted.task;
        let waits = native_waits(&task.waits)?;
        match submitted.operation.as_ref().map_err(|s| *s)? {
            Operation::BulkWrite { memory, region } => {
                if let Some(event) = self.shared.bulk.write(task, memory, *region, &waits)? {
                    return Ok(Started::Enqueued(event));
                }
            }
            Operation::BulkRead { memory, region } => {
                let whole = self.shared.bulk.read(task, memory, *region, &waits)?;
                if whole {
                    return Ok(Started::Watched);
                }
            }
            Operation::Send { memory, region } => {
                // Nothing is left to send, but the command keeps its place in the queue.
                if !self.shared.bulk.send(task, memory, *region, &waits)? {
                    return enqueue(&task.queue, &Operation::Marker, &waits).map(Started::Enqueued);
                }
            }
            Operation::Receive { memory, region } => {
                self.shared.bulk.receive(task, memory, *region, &waits)?;
            }
            Operation::Replay { commands, .. } => {
                let (parts, end) = command_buffers::enqueue(self, &task.queue, commands, &waits)?;
                task.command.consists_of(parts);
                return Ok(Started::Enqueued(end));
            }
            operation => {
                let enqueued = self.hand_over(&task.queue, operation, &waits);
                return enqueued.map(Started::Enqueued);
            }
        }
        Ok(Started::ByBulk)
    }

    /// As [`enqueue`]. A copy that the driver wrongly refuses is made through host memory.
    pub(super) fn hand_over(
        &mut self,
        queue: &Arc<Queue>,
        operation: &Operation,
        waits: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let enqueued = enqueue(queue, operation, waits);
        let Operation::Copy {
            source,
            destination,
        } = operation
        else {
            return enqueued;
        };
        let (from, to) = (source.0.native()?, destination.0.native()?);
        match enqueued {
            Err(refusal) if native::Queue::may_go_by_host(refusal, from, to) => {
                // This blocks until the events that it waits for have ended, in any queue, so
                // flush all of them first.
                self.flush();
                self.touch(queue);
                (queue.native()?).copy_by_host((from, &source.1), (to, &destination.1), waits)
            }
            enqueued => enqueued,
        }
    }

    /// Has the command notified of its native end, and the outbox expect its completion.
    pub(crate) fn watch_command(&mut self, command: &Arc<Command>) {
        match self.expected.checked_sub(1) {
            Some(rest) => self.expected = rest,
            None => self.shared.outbox.begin(1),
        }
        watch(command);
    }

    /// Flushes every queue that was used.
    pub(crate) fn flush(&mut self) {
        for queue in std::mem::take(&mut self.touched) {
            self.cover(&queue);
            if let Ok(native) = queue.native() {
                let _ = native.flush();
            }
        }
    }
}

/// Whether the driver lets the task wait for an unfinished command of another device.
fn waits_elsewhere(task: &Task) -> bool {
    let unfinished = |wait: &&Arc<Command>| wait.status().is_none();
    let mut waits = task.waits.iter().filter(unfinished);
    waits.any(|wait| (wait.native()).is_some_and(|event| !task.queue.has_device_of(event)))
}

/// Whether the operation may only run in its session's turn at the console of a host.
pub(super) fn takes_turns(shared: &Shared, operation: &Result<Operation, Status>) -> bool {
    shared.outbox.printed().seat().is_some() && operation.as_ref().is_ok_and(Operation::prints)
}

impl Reports for Shared {
    fn passed(self: Arc<Self>, queue: &Arc<Queue>, command: &Command) {
        let mut runner = Runner::new(&self);
        runner.touch(queue);
        runner.passed(command);
    }

    fn failed(self: Arc<Self>, command: &Command) {
        Runner::new(&self).failed(command);
    }

    fn lane_lost(self: Arc<Self>, link: LinkId, incarnation: u64, lane: u8, connection: u64) {
        self.links.lane_lost(link, incarnation, lane, connection);
    }

    fn violated(self: Arc<Self>, what: String) {
        self.outbox.violated(what);
    }

    fn lane_broke(self: Arc<Self>, link: LinkId, incarnation: u64, reason: String) {
        self.links.lane_broke(link, incarnation, reason);
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.flush();
        self.shared.outbox.end(self.expected);
        self.shared.outbox.flush();
    }
}
