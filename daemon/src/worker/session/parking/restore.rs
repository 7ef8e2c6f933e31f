//! Puts a session together that was parked; see [`super`].
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use causeway_proto::command::{self, CommandBatch, Recorded, command::Kind};
use causeway_proto::id::{EventId, KernelId};
use causeway_proto::status::Status;

use super::Restoring;
use super::arriving::Arriving;
use super::broken;
use super::file::{self, Described, NotMoved, ParkedState};
use crate::worker::connection::Source;
use crate::worker::objects::command::{Command, Kind as EventKind};
use crate::worker::session::run::Runner;
use crate::worker::session::shared::Shared;
use crate::worker::session::violation::Violation;
use crate::worker::session::{apply, arguments, numbering};

/// Applies a batch of the record; see the module.
pub(in super::super) fn restore(
    shared: &Arc<Shared>,
    batch: &mut CommandBatch,
) -> Result<(), Violation> {
    let mut restoring = shared.parking.restoring.lock();
    let Some(under_way) = &mut *restoring else {
        // The client has sent the record again over another connection.
        batch.commands.clear();
        return Ok(());
    };
    if batch.recorded == 0 {
        return match batch.commands.is_empty() {
            true => Ok(()),
            false => Err(Violation::Malformed(
                "the client sent commands before its record",
            )),
        };
    }
    take_contents(shared, under_way, batch)?;
    let is_end = batch.recorded() == Recorded::Last;
    if batch.commands.is_empty() && !is_end {
        return Ok(());
    }
    if let Some(arriving) = under_way.arriving.take() {
        let (file, applied) = arriving.end()?;
        under_way.from = Source::Files(Arc::new([file]));
        under_way.applied = Some(applied);
    }
    begin_once(shared, under_way);
    numbering::skip_applied(batch, under_way.next);
    if batch.first != under_way.next && !batch.commands.is_empty() {
        return Err(Violation::Gap {
            expected: under_way.next,
            got: batch.first,
        });
    }
    for command in batch.commands.drain(..) {
        create(shared, command)?;
        under_way.next += 1;
    }
    if is_end {
        end(shared, under_way)?;
        *restoring = None;
        shared.parking.is_restoring.store(false, Ordering::Release);
    }
    Ok(())
}

// Takes the bytes of a checkpoint that the client holds.
fn take_contents(
    shared: &Shared,
    under_way: &mut Restoring,
    batch: &CommandBatch,
) -> Result<(), Violation> {
    if let Some(announced) = &batch.restores {
        if !shared.reexecutes {
            return Err(Violation::Malformed(
                "the client sent a checkpoint of a session that has none",
            ));
        }
        // A client that comes back sends all of it again.
        under_way.arriving = Some(Arriving::begin(announced, shared.parking.most)?);
        shared.parking.fills.store(true, Ordering::Release);
    }
    if !batch.contents.is_empty() {
        let arriving = under_way.arriving.as_mut();
        let arriving = arriving.ok_or(Violation::Malformed(
            "the client sent bytes of a checkpoint that it did not announce",
        ))?;
        arriving.take(&batch.contents)?;
    }
    Ok(())
}

// Begins with the first command of the record: in a process of its own, the host's clock goes on from that of the worker
// before.
fn begin_once(shared: &Shared, under_way: &mut Restoring) {
    if std::mem::replace(&mut under_way.has_clock, true) {
        return;
    }
    under_way.begun = Instant::now();
    // Before the first queue, with which a device's clock may be compared with the host's.
    // The sessions of a host have one clock, which each of them began by.
    if let Source::Files(contents) = &under_way.from
        && let Some(first) = contents.first()
        && shared.commons.is_none()
    {
        file::set_clock(first);
    }
}

// Everything is created: fills it.
fn end(shared: &Arc<Shared>, under_way: &Restoring) -> Result<(), Violation> {
    let created = under_way.begun.elapsed();
    match &under_way.from {
        Source::Files(contents) => fill(shared, contents)?,
        Source::Nothing => {}
    }
    if let Some(applied) = under_way.applied {
        shared.outbox.begin_behind(applied);
    }
    let filled = under_way.begun.elapsed() - created;
    tracing::info!(?created, ?filled, "the session goes on in this worker");
    Ok(())
}

fn create(shared: &Arc<Shared>, command: command::Command) -> Result<(), Violation> {
    let is_recorded = matches!(
        command.kind,
        Some(
            Kind::CreateContext(_)
                | Kind::CreateQueue(_)
                | Kind::CreateBuffer(_)
                | Kind::CreateSubBuffer(_)
                | Kind::CreateImage(_)
                | Kind::CreateSampler(_)
                | Kind::CreateSubDevices(_)
                | Kind::CreateProgram(_)
                | Kind::BuildProgram(_)
                | Kind::CompileProgram(_)
                | Kind::LinkProgram(_)
                | Kind::CreateKernel(_)
                | Kind::Release(_)
        )
    );
    if !is_recorded {
        return Err(Violation::Malformed(
            "the client's record has a command that belongs into none",
        ));
    }
    apply::apply(shared, command, false, &mut Runner::new(shared))?;
    // What follows may need the build.
    shared.builder.wait_until_idle();
    Ok(())
}

// Fills the created objects with what the worker before has written.
fn fill(shared: &Arc<Shared>, contents: &[File]) -> Result<(), Violation> {
    let lost = |what: String| Violation::NotRestored(what);
    if let Some(what) = broken(&shared.core.lock().objects) {
        return Err(lost(what));
    }
    let (first, further) = contents
        .split_first()
        .ok_or_else(|| lost(NotMoved::Damaged.to_string()))?;
    let mut reader = file::Reader::open(first).map_err(|error| lost(error.to_string()))?;
    let memory = {
        let core = shared.core.lock();
        let ids = reader.state.memory.iter().map(Described::id);
        let found = ids.map(|id| core.objects.memory.get(&id).map(Arc::clone));
        found.collect::<Option<Vec<_>>>()
    };
    let memory = memory.ok_or_else(|| lost(NotMoved::Record.to_string()))?;
    // In a host, the supervisor sees by this which session may have ended the process.
    shared.outbox.begin(1);
    let filled = reader.fill(&memory, further);
    shared.outbox.end(1);
    filled.map_err(|error| lost(error.to_string()))?;
    let state = reader.finish().map_err(|error| lost(error.to_string()))?;
    clear_rest(shared, &state).map_err(|error| lost(error.to_string()))?;
    add_events(shared, &state)?;
    let mut core = shared.core.lock();
    core.version += 1;
    let version = core.version;
    for launch in &state.kernels {
        let kernel = core.objects.kernels.get(&KernelId(launch.kernel));
        let kernel = kernel.ok_or_else(|| lost(NotMoved::Record.to_string()))?;
        let mut arguments = kernel.arguments.lock();
        let arguments = Arc::make_mut(&mut arguments);
        arguments::change(arguments, &launch.args, &core.objects, version)?;
    }
    Ok(())
}

// Clears what has got no contents, as new memory is cleared.
fn clear_rest(shared: &Shared, state: &ParkedState) -> Result<(), NotMoved> {
    shared.parking.fills.store(false, Ordering::Release);
    let filled: HashSet<_> = state.memory.iter().map(Described::id).collect();
    let parts = file::parts(&shared.core.lock().objects);
    let mut rest = parts.iter().filter(|of| !filled.contains(&of.id()));
    rest.try_for_each(file::Part::clear)
}

// Adds the events that the client may still name.
fn add_events(shared: &Arc<Shared>, state: &ParkedState) -> Result<(), Violation> {
    let mut core = shared.core.lock();
    core.begin_behind((state.newest_event > 0).then_some(EventId(state.newest_event)));
    let failed = state
        .failed_events
        .iter()
        .map(|of| (of.event, Some(Status(of.status))));
    let open = state.open_events.iter().map(|event| (*event, None));
    for (event, status) in failed.chain(open) {
        let event = Command::new(EventId(event), EventKind::User, false, &shared.outbox);
        core.add_user_event(&event)?;
        if let Some(status) = status {
            // The client knows the end.
            let _ = event.close(status);
            core.graph.failed(event.id(), &mut Default::default());
        }
    }
    Ok(())
}
