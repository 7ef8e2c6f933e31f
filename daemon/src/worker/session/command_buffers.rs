//! Command buffers: recorded commands, which each replay enqueues anew.
//!
//! For each command, the client lists the earlier commands that it comes after. An in-order native queue
//! ensures that by itself; on an out-of-order queue, events do. A launch has its own argument table, so
//! other launches of its kernel do not change it. A replay may change it, for itself and later replays.
//! Native command buffers are not used: few drivers have them, and this code works for all.
//!
//! This module decides no order and holds nothing back: a replay is one command of the graph. Invariants:
//! a replay runs the commands that were recorded when it was applied. A command buffer does not keep a
//! launch's argument buffers alive. If the driver refuses a replay midway, the replay fails, but the
//! commands enqueued before still run.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{CreateCommandBuffer, Record};
use causeway_proto::id::{CommandBufferId, ContextId};
use causeway_proto::limits::MAX_RECORDED;
use causeway_proto::status::Status;

use super::commands::{CommandBuffer, Recorded, launch_without_event, recorded};
use super::run::Runner;
use super::shared::{Core, Shared};
use super::tables::{add, find};
use super::violation::Violation;
use crate::runtime::event::{Event, WaitList};
use crate::worker::objects::Queue;

/// Applies `CreateCommandBuffer`.
pub(super) fn create(shared: &Arc<Shared>, create: &CreateCommandBuffer) -> Result<(), Violation> {
    let mut core = shared.core.lock();
    find(&core.objects.contexts, ContextId(create.context))?;
    let id = CommandBufferId(create.command_buffer);
    // A command buffer needs no native object, so one above the limit is not refused.
    let _ = core.room(shared)?;
    let empty = CommandBuffer::default();
    add(&mut core.objects.command_buffers, id, empty)
}

/// Applies `Record`.
pub(super) fn record(shared: &Arc<Shared>, record: Record) -> Result<(), Violation> {
    let mut core = shared.core.lock();
    let room = core.room(shared)?;
    let id = CommandBufferId(record.command_buffer);
    let buffer = find(&core.objects.command_buffers, id)?;
    core.version += 1;
    let operation = recorded(record.operation, &core.objects, core.version)?;
    let operation = room.and(operation);
    let mut commands = buffer.commands.lock();
    let place = commands.len();
    if place >= MAX_RECORDED {
        return Err(Violation::Malformed(
            "a command buffer has too many commands",
        ));
    }
    let after = record.after.into_boxed_slice();
    // A command may wait for earlier ones only, so the order of a command buffer has no cycle.
    if after.len() > place || after.iter().any(|&earlier| earlier as usize >= place) {
        return Err(Violation::Malformed(
            "a recorded command waits for a command that its buffer does not have",
        ));
    }
    let recorded = Recorded { operation, after };
    core.objects.recorded += recorded.weight();
    Arc::make_mut(&mut commands).push(Arc::new(recorded));
    Ok(())
}

/// Removes a command buffer that the client has released.
pub(super) fn remove(core: &mut Core, id: CommandBufferId) -> Option<Arc<CommandBuffer>> {
    let gone = core.objects.command_buffers.remove(&id)?;
    let weights = gone.commands.lock().iter().map(|of| of.weight()).sum();
    core.objects.recorded = core.objects.recorded.saturating_sub(weights);
    Some(gone)
}

/// Enqueues the commands of a replay natively, after `waits`. Returns the events of all commands but the
/// last, as far as they have events, and the event of the replay's end.
///
/// # Errors
/// The driver's error.
pub(super) fn enqueue(
    runner: &mut Runner<'_>,
    queue: &Arc<Queue>,
    commands: &[Arc<Recorded>],
    waits: &WaitList<'_>,
) -> Result<(Vec<Event>, Event), Status> {
    if queue.native()?.is_out_of_order() {
        out_of_order(runner, queue, commands, waits)
    } else {
        in_order(runner, queue, commands, waits)
    }
}

// An in-order queue keeps the recorded order, which satisfies every `after` list.
fn in_order(
    runner: &mut Runner<'_>,
    queue: &Arc<Queue>,
    commands: &[Arc<Recorded>],
    waits: &WaitList<'_>,
) -> Result<(Vec<Event>, Event), Status> {
    let native = queue.native()?;
    let nothing = WaitList::new();
    let mut events = Vec::new();
    let runs: Vec<_> = commands.iter().filter(|of| !of.touches_nothing()).collect();
    for (place, command) in runs.iter().enumerate() {
        let operation = command.operation.as_ref().map_err(|status| *status)?;
        let is_last = place + 1 == runs.len();
        // The first command alone needs the wait list; the queue orders the others after it.
        let waits = if place == 0 { waits } else { &nothing };
        let needs_event = is_last || native.is_profiling() || !waits.is_empty();
        let unreported = if needs_event {
            None
        } else {
            launch_without_event(queue, operation)
        };
        match unreported {
            Some(launched) => launched?,
            None => events.push(runner.hand_over(queue, operation, waits)?),
        }
    }
    let end = events.pop().map_or_else(|| native.marker(waits), Ok)?;
    Ok((events, end))
}

fn out_of_order(
    runner: &mut Runner<'_>,
    queue: &Arc<Queue>,
    commands: &[Arc<Recorded>],
    waits: &WaitList<'_>,
) -> Result<(Vec<Event>, Event), Status> {
    let mut events: Vec<Event> = Vec::new();
    // For each command: the index of its event, and whether another command comes after it.
    let mut ends: Vec<(Option<usize>, bool)> = Vec::with_capacity(commands.len());
    for command in commands {
        let operation = command.operation.as_ref().map_err(|status| *status)?;
        let after: Vec<usize> = (command.after.iter())
            .filter_map(|&earlier| ends[earlier as usize].0)
            .collect();
        if after.is_empty() && command.touches_nothing() {
            // The command is omitted, because a marker without a wait list would wait for
            // everything in the queue.
            ends.push((None, true));
            continue;
        }
        let list: WaitList<'_> = after.iter().map(|&at| &events[at]).collect();
        let list = if after.is_empty() { waits } else { &list };
        let event = runner.hand_over(queue, operation, list)?;
        for &earlier in &command.after {
            ends[earlier as usize].1 = true;
        }
        ends.push((Some(events.len()), false));
        events.push(event);
    }
    let native = queue.native()?;
    // The replay ends when the events that no other command follows have ended.
    let open: Vec<usize> = (ends.iter())
        .filter_map(|&(event, followed)| event.filter(|_| !followed))
        .collect();
    let end = match open[..] {
        [only] if only + 1 == events.len() => events.pop(),
        _ => None,
    };
    let end = match end {
        Some(end) => end,
        None if open.is_empty() => native.marker(waits)?,
        None => native.marker(&open.iter().map(|&at| &events[at]).collect())?,
    };
    Ok((events, end))
}
