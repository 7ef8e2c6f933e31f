//! Parks the session; see [`super`].
#![forbid(unsafe_code)]

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::command;

use super::file::{self, ParkedState};
use super::{LOOK_EVERY, Outcome, ParkingClient, broken};
use crate::worker::objects::command::Command;
use crate::worker::session::shared::Shared;

/// Longest time for which a client stands so that a checkpoint can be made. A command may run for hours, or wait for
/// something that the program enqueues later. The client asks again.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(2);

/// Parks the session; see the module. The caller has the turn.
pub(in super::super) fn park(
    shared: &Arc<Shared>,
    contents: &[File],
    client: &dyn ParkingClient,
) -> Outcome {
    match stand_and_write(shared, contents, u64::MAX, client, None) {
        Outcome::Parked { applied, .. } => {
            // Before the client hears that: it dials at once, and would stay with this worker.
            client.note_parked();
            // The client need not hear this.
            shared.outbox.parking(command::Parking::Done);
            Outcome::Parked {
                applied,
                events: client.last(),
            }
        }
        other => other,
    }
}

/// Makes a checkpoint of at most `most` bytes; see the module. The client stands afterwards, if the checkpoint is made.
/// [`Outcome::Over`]: the session ends, or something of it goes on for too long. The caller has the turn.
pub(in super::super) fn checkpoint(
    shared: &Arc<Shared>,
    contents: &[File],
    most: u64,
    client: &dyn ParkingClient,
) -> Outcome {
    let until = Instant::now() + CHECKPOINT_PATIENCE;
    stand_and_write(shared, contents, most, client, Some(until))
}

// Has the client stand, and writes the session when it is quiet, which is not waited for longer than `until`.
fn stand_and_write(
    shared: &Arc<Shared>,
    contents: &[File],
    most: u64,
    client: &dyn ParkingClient,
    until: Option<Instant>,
) -> Outcome {
    let is_late = || until.is_some_and(|until| Instant::now() >= until);
    loop {
        if let Some(why) = why_never(shared) {
            return Outcome::Never(why);
        }
        // While the client must end an event, it has to go on.
        while shared.core.lock().graph.waits_for_client() {
            if client.is_over() || is_late() {
                return Outcome::Over;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let begun = Instant::now();
        *shared.parking.stands.lock() = false;
        shared.outbox.parking(command::Parking::Stand);
        if !shared.parking.wait_until_client_stands(client) {
            return Outcome::Over;
        }
        let stood = begun.elapsed();
        match wait_until_quiet(shared, client, &is_late) {
            Some(true) => {}
            Some(false) => {
                shared.outbox.parking(command::Parking::GoOn);
                if is_late() {
                    return Outcome::Over;
                }
                continue;
            }
            None => return Outcome::Over,
        }
        let quiet = begun.elapsed() - stood;
        return match why_never(shared).map_or_else(|| write(shared, contents, most), Err) {
            Ok(applied) => {
                let written = begun.elapsed() - stood - quiet;
                tracing::debug!(
                    ?stood,
                    ?quiet,
                    ?written,
                    "the session's contents are written"
                );
                Outcome::Parked {
                    applied,
                    events: client.last(),
                }
            }
            Err(why) => {
                shared.outbox.parking(command::Parking::GoOn);
                Outcome::Never(why)
            }
        };
    }
}

// Waits until what the worker has begun has ended, and the client has heard so. `Some(false)`: a command waits for the
// client, or this takes too long. `None`: the session ends otherwise.
fn wait_until_quiet(
    shared: &Shared,
    client: &dyn ParkingClient,
    is_late: &dyn Fn() -> bool,
) -> Option<bool> {
    loop {
        {
            let core = shared.core.lock();
            if core.graph.waits_for_client() || is_late() {
                return Some(false);
            }
            let mut events = core.graph.each();
            let has_ended =
                |event: &Arc<Command>| event.is_user_event() || event.status().is_some();
            if core.graph.held() == 0
                && events.all(has_ended)
                && shared.outbox.is_quiet()
                && shared.builder.is_idle()
                && client.heard().is_some()
            {
                return Some(true);
            }
        }
        if client.is_over() {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn write(shared: &Shared, contents: &[File], most: u64) -> Result<u64, String> {
    let state = state_of(shared)?;
    let bytes: u64 = state.1.iter().map(file::Part::size).sum();
    let too_long = |bytes: u64| {
        let limit = "`held` below [survival] in daemon.toml";
        let why = format!("it takes at least {bytes} bytes, and may have {most} ({limit})");
        if bytes > most { Err(why) } else { Ok(()) }
    };
    // Before anything is written: memory without its digests and the state.
    too_long(bytes)?;
    let io = |error: std::io::Error| error.to_string();
    file::write(contents, state.0, &state.1).map_err(|error| error.to_string())?;
    // The supervisor measures the file of a checkpoint, too.
    let lengths = contents.iter().map(|file| Ok(file.metadata()?.len()));
    too_long(lengths.sum::<std::io::Result<u64>>().map_err(io)?)?;
    Ok(shared.outbox.last_applied())
}

fn why_never(shared: &Shared) -> Option<String> {
    if let Some(why) = shared.parking.never.get() {
        return Some((*why).to_owned());
    }
    let core = shared.core.lock();
    let objects = &core.objects;
    if objects
        .programs
        .values()
        .any(|program| program.has_variables())
    {
        let why = "a program may have variables of its own, which nobody can read";
        return Some(why.to_owned());
    }
    broken(objects).map(|what| format!("{what}, so it cannot be made again"))
}

// Returns what the session consists of beside its record, and the memory whose contents belong to it.
fn state_of(shared: &Shared) -> Result<(ParkedState, Vec<file::Part>), String> {
    let core = shared.core.lock();
    let mut state = ParkedState {
        newest_event: core.newest_event().map_or(0, |event| event.0),
        host_ns: crate::runtime::clock::host_ns(),
        wall_ns: crate::runtime::clock::wall_ns(),
        ..ParkedState::default()
    };
    for event in core.graph.each() {
        match event.status() {
            None => state.open_events.push(event.id().0),
            Some(status) if status.is_error() => {
                state.failed_events.push(file::FailedEvent {
                    event: event.id().0,
                    status: status.0,
                });
            }
            Some(_) => {}
        }
    }
    let objects = &core.objects;
    let names = file::names(objects);
    for (id, kernel) in &objects.kernels {
        let args = kernel.arguments.lock().to_wire(&names);
        let args =
            args.map_err(|_| "a kernel argument is an object that was released".to_owned())?;
        state.kernels.push(command::NdRange {
            kernel: id.0,
            args,
            ..command::NdRange::default()
        });
    }
    let parts = file::parts(objects);
    state.memory = parts.iter().map(file::Part::described).collect();
    Ok((state, parts))
}
