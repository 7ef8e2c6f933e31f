//! Command buffers: commands that are kept, and enqueued anew by each replay.
//!
//! The client says of each which of the earlier ones it comes after; an in-order native queue sees to that by itself,
//! an out-of-order one by the commands' events. A launch has an argument table of its own, so neither the kernel's
//! other launches nor those of other command buffers change it; a replay may, for itself and those after it. The native queues' own command buffers are not
//! used: few drivers have them, and this is the same on all.
//!
//! What it is not: it decides no order, and holds nothing back: a replay is one command of the graph. Invariants: a
//! replay runs what was recorded when it was applied; a command buffer keeps no buffer alive that is only an argument
//! of a launch. A replay that the driver refuses midway has failed; what was enqueued of it before runs.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{
    ChangedLaunch, CreateCommandBuffer, NdRange, Record, Replay, record,
};
use causeway_proto::id::{CommandBufferId, ContextId, KernelId};
use causeway_proto::limits::MAX_RECORDED;
use causeway_proto::status::Status;
use parking_lot::Mutex;
use prost::Message;

use super::arguments::Arguments;
use super::command::Kind;
use super::enqueue::{Operation, Prepared, copy_buffer, fill_buffer, fill_image, shape_of};
use super::objects::{Objects, Queue, add, find};
use super::run::{Runner, launch_untold};
use super::{Core, Shared, Violation};
use crate::runtime::event::{Event, WaitList};

/// See the module.
#[derive(Default)]
pub(crate) struct CommandBuffer {
    // Shared with the replays that were applied meanwhile.
    commands: Mutex<Arc<Vec<Arc<Recorded>>>>,
}

/// A command that was recorded.
pub(crate) struct Recorded {
    operation: Result<Operation, Status>,
    // Places of earlier ones that it comes after.
    after: Box<[u32]>,
}

impl Recorded {
    // What it counts for among the session's objects.
    fn weight(&self) -> usize {
        1 + self.after.len()
    }

    fn touches_nothing(&self) -> bool {
        let operation = self.operation.as_ref();
        operation.is_ok_and(|of| {
            matches!(
                of,
                Operation::Marker | Operation::NdRange { shape: None, .. }
            )
        })
    }
}

/// `CreateCommandBuffer`.
pub(super) fn create(shared: &Arc<Shared>, create: &CreateCommandBuffer) -> Result<(), Violation> {
    let mut core = shared.core.lock();
    find(&core.objects.contexts, ContextId(create.context))?;
    let id = CommandBufferId(create.command_buffer);
    // The driver has nothing of it.
    let _ = core.room(shared)?;
    let empty = CommandBuffer::default();
    add(&mut core.objects.command_buffers, id, empty)
}

/// `Record`.
pub(super) fn record(shared: &Arc<Shared>, record: Record) -> Result<(), Violation> {
    let mut core = shared.core.lock();
    let room = core.room(shared)?;
    let id = CommandBufferId(record.command_buffer);
    let buffer = find(&core.objects.command_buffers, id)?;
    core.version += 1;
    let operation = operation_of(record.operation, &core.objects, core.version)?;
    let operation = room.and(operation);
    let mut commands = buffer.commands.lock();
    let place = commands.len();
    if place >= MAX_RECORDED {
        return Err(Violation::Malformed(
            "a command buffer of too many commands",
        ));
    }
    let after = record.after.into_boxed_slice();
    if after.len() > place || after.iter().any(|&earlier| earlier as usize >= place) {
        return Err(Violation::Malformed(
            "a recorded command comes after one that is not there",
        ));
    }
    let recorded = Recorded { operation, after };
    core.objects.recorded += recorded.weight();
    Arc::make_mut(&mut commands).push(Arc::new(recorded));
    Ok(())
}

fn operation_of(
    operation: Option<record::Operation>,
    objects: &Objects,
    version: u64,
) -> Result<Result<Operation, Status>, Violation> {
    use record::Operation as Wire;
    Ok(match operation {
        Some(Wire::NdRange(launch)) => whole(&launch, Arguments::default(), objects, version)?,
        Some(Wire::CopyBuffer(copy)) => copy_buffer(&copy, objects)?.operation,
        Some(Wire::FillBuffer(fill)) => fill_buffer(fill, objects)?.operation,
        Some(Wire::FillImage(fill)) => fill_image(&fill, objects)?.operation,
        Some(Wire::Marker(_)) => Ok(Operation::Marker),
        None => return Err(Violation::Malformed("a recorded command of no known kind")),
    })
}

/// A launch with an argument table of its own, which keeps no memory alive: `arguments` with what has changed.
///
/// # Errors
/// [`Violation`] for what no client of ours says.
pub(super) fn whole(
    launch: &NdRange,
    mut arguments: Arguments,
    objects: &Objects,
    version: u64,
) -> Result<Result<Operation, Status>, Violation> {
    let kernel = find(&objects.kernels, KernelId(launch.kernel))?;
    arguments.change(&launch.args, objects, version)?;
    if let Some(reaches) = &launch.reaches {
        arguments.reach(reaches, objects, version)?;
    }
    let shape = shape_of(launch)?;
    let native = kernel.native.as_ref().map(drop).map_err(|status| *status);
    Ok(native.map(|()| Operation::NdRange {
        kernel,
        arguments: Arc::new(arguments),
        _memory: Vec::new(),
        shape,
    }))
}

/// The client will not name it again.
pub(super) fn remove(core: &mut Core, id: CommandBufferId) -> Option<Arc<CommandBuffer>> {
    let gone = core.objects.command_buffers.remove(&id)?;
    let weights = gone.commands.lock().iter().map(|of| of.weight()).sum();
    core.objects.recorded = core.objects.recorded.saturating_sub(weights);
    Some(gone)
}

/// What a `Replay` does at this place in the stream. `version` is new with every call.
///
/// # Errors
/// [`Violation`] for what no client of ours says.
pub(super) fn replay(
    replay: &Replay,
    objects: &Objects,
    version: u64,
) -> Result<Prepared, Violation> {
    let id = CommandBufferId(replay.command_buffer);
    let buffer = find(&objects.command_buffers, id)?;
    let (commands, bytes) = {
        let mut commands = buffer.commands.lock();
        let bytes = change(&mut commands, &replay.changed, objects, version)?;
        (Arc::clone(&commands), bytes)
    };
    let hold = || -> Result<_, Status> {
        let mut memory = Vec::new();
        for command in &*commands {
            let operation = command.operation.as_ref().map_err(|status| *status)?;
            if let Operation::NdRange { arguments, .. } = operation {
                arguments.hold_in(&mut memory)?;
            }
        }
        Ok(memory)
    };
    let operation = hold().map(|memory| Operation::Replay {
        commands: Arc::clone(&commands),
        _memory: memory,
    });
    Ok(Prepared {
        kind: Kind::Replay,
        bytes,
        ..Prepared::plain(operation)
    })
}

// Changes launches for this replay and those after it: those applied before have the list as it was. What a command so
// keeps in memory, bytes.
fn change(
    commands: &mut Arc<Vec<Arc<Recorded>>>,
    changed: &[ChangedLaunch],
    objects: &Objects,
    version: u64,
) -> Result<usize, Violation> {
    if changed.is_empty() {
        return Ok(0);
    }
    let mut bytes = size_of_val(&commands[..]);
    if changed.len() > commands.len() {
        return Err(Violation::Malformed("more launches change than there are"));
    }
    let commands = Arc::make_mut(commands);
    for change in changed {
        let before = commands.get_mut(change.place as usize);
        let (Some(before), Some(launch)) = (before, &change.launch) else {
            return Err(Violation::Malformed("a change of what was not recorded"));
        };
        let arguments = match &before.operation {
            Ok(Operation::NdRange { arguments, .. }) => Arguments::clone(arguments),
            // Its kernel is broken, and stays so.
            Err(_) => Arguments::default(),
            Ok(_) => return Err(Violation::Malformed("a change of what is no launch")),
        };
        *before = Arc::new(Recorded {
            operation: whole(launch, arguments, objects, version)?,
            after: before.after.clone(),
        });
        bytes += launch.encoded_len();
    }
    Ok(bytes)
}

/// Hands the commands of a replay to a native queue, behind `waits`: the events of all but the last, as far as they
/// have some, and that of its end.
///
/// # Errors
/// What the driver says.
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

// The queue puts them into the order in which they were recorded, which none of their own contradicts.
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
        let waits = if place == 0 { waits } else { &nothing };
        let needs_event = is_last || native.is_profiling() || !waits.is_empty();
        let untold = if needs_event {
            None
        } else {
            launch_untold(queue, operation)
        };
        match untold {
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
    // By the commands' places: where their events are, and whether another one comes after them.
    let mut ends: Vec<(Option<usize>, bool)> = Vec::with_capacity(commands.len());
    for command in commands {
        let operation = command.operation.as_ref().map_err(|status| *status)?;
        let after: Vec<usize> = (command.after.iter())
            .filter_map(|&earlier| ends[earlier as usize].0)
            .collect();
        if after.is_empty() && command.touches_nothing() {
            // A marker without a list would come after everything in the queue.
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
