//! Parks the session, because the daemon ends, and puts a parked session together again.
//!
//! To park: the client is told to stand, and says when it does. What the worker has begun ends. If a command waits for
//! an event that only the client can end, the client goes on, and the worker tries again. When the client has heard
//! everything, the state and the contents of memory are written ([`file`]).
//!
//! To put together: the client's record creates the objects under their ids. Then arguments, events and contents come
//! from the file. Commands follow only after that.
//!
//! Invariants: a session is parked only if nothing of it is lost by that. No command is applied before the session is
//! whole again.
#![forbid(unsafe_code)]

mod file;

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causeway_proto::command::{self, CommandBatch, Recorded, command::Kind};
use causeway_proto::id::EventId;
use causeway_proto::status::Status;
use parking_lot::{Condvar, Mutex};

use self::file::{NotMoved, State};
use super::run::Runner;
use super::shared::Shared;
use super::tables::Objects;
use super::violation::Violation;
use super::{apply, numbering};
use crate::worker::objects::command::{Command, Kind as EventKind};

/// How often the worker looks whether what it has begun has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Why a session with links, or with sites that exchange data, is never parked.
pub(super) const SITES: &str = "it exchanges data between several nodes or platforms";

/// Whether and how far a session is parked or put together again.
pub(crate) struct Parking {
    /// Why the session is never parked.
    never: OnceLock<&'static str>,
    stands: Mutex<bool>,
    stood: Condvar,
    is_restoring: AtomicBool,
    restoring: Mutex<Option<Restoring>>,
}

struct Restoring {
    contents: Arc<File>,
    /// Number of the next command of the record.
    next: u64,
}

/// The client's side of a session that is parked.
pub(crate) trait Way {
    /// Whether the session ends otherwise.
    fn is_over(&self) -> bool;
    /// The number of the last event batch, if the client has handled it.
    fn heard(&self) -> Option<u64>;
    /// The number of the last event batch.
    fn last(&self) -> u64;
}

/// How the attempt to park a session ends.
pub(crate) enum Outcome {
    /// The session is written. The client has handled all event batches up to this one, and has applied so many commands.
    Parked { applied: u64, events: u64 },
    /// The session cannot be parked, and goes on.
    Never(String),
    /// The session ends otherwise.
    Over,
}

impl Parking {
    /// `contents`: of a session that was parked.
    pub(super) fn new(contents: Option<&Arc<File>>) -> Parking {
        let restoring = contents.map(|contents| Restoring {
            contents: Arc::clone(contents),
            next: 1,
        });
        Parking {
            never: OnceLock::new(),
            stands: Mutex::new(false),
            stood: Condvar::new(),
            is_restoring: AtomicBool::new(restoring.is_some()),
            restoring: Mutex::new(restoring),
        }
    }

    /// Notes why the session is never parked. The first reason counts.
    pub(super) fn never(&self, why: &'static str) {
        let _ = self.never.set(why);
    }

    /// Whether the session is not whole yet.
    pub(super) fn is_restoring(&self) -> bool {
        self.is_restoring.load(Ordering::Acquire)
    }

    /// Handles that the client sends nothing until it is told to go on.
    pub(super) fn client_stands(&self) {
        *self.stands.lock() = true;
        self.stood.notify_all();
    }

    /// Waits until the client stands. Returns false if the session ends before.
    fn wait_until_client_stands(&self, way: &dyn Way) -> bool {
        let mut stands = self.stands.lock();
        while !*stands {
            if way.is_over() {
                return false;
            }
            self.stood.wait_for(&mut stands, LOOK_EVERY * 10);
        }
        true
    }
}

/// Returns why a session with this command is never parked: nobody can read the state of what the command makes, or put
/// it together again.
pub(super) fn prevents(kind: Option<&Kind>) -> Option<&'static str> {
    match kind? {
        Kind::CreateSvm(_) => {
            Some("it has used shared virtual memory, whose addresses the driver chooses")
        }
        Kind::CreatePipe(_) => Some("it has used a pipe, which nobody can read"),
        Kind::CreateDeviceQueue(_) => Some("it has used a device queue, which nobody can read"),
        Kind::CreateCommandBuffer(_) => Some("it has used a command buffer"),
        Kind::AddLink(_) | Kind::CreateMirror(_) | Kind::TellEvent(_) => Some(SITES),
        _ => None,
    }
}

/// Parks the session; see the module.
pub(super) fn park(shared: &Arc<Shared>, contents: &File, way: &dyn Way) -> Outcome {
    loop {
        if let Some(why) = why_never(shared) {
            return Outcome::Never(why);
        }
        // While the client must end an event, it has to go on.
        while shared.core.lock().graph.waits_for_client() {
            if way.is_over() {
                return Outcome::Over;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        *shared.parking.stands.lock() = false;
        shared.outbox.parking(command::Parking::Stand);
        if !shared.parking.wait_until_client_stands(way) {
            return Outcome::Over;
        }
        match wait_until_quiet(shared, way) {
            Some(true) => {}
            Some(false) => {
                shared.outbox.parking(command::Parking::GoOn);
                continue;
            }
            None => return Outcome::Over,
        }
        return match why_never(shared).map_or_else(|| write(shared, contents), Err) {
            Ok(applied) => finish(shared, applied, way),
            Err(why) => {
                shared.outbox.parking(command::Parking::GoOn);
                Outcome::Never(why)
            }
        };
    }
}

// Waits until what the worker has begun has ended, and the client has heard so. `Some(false)`: a command waits for the
// client. `None`: the session ends otherwise.
fn wait_until_quiet(shared: &Shared, way: &dyn Way) -> Option<bool> {
    loop {
        {
            let core = shared.core.lock();
            if core.graph.waits_for_client() {
                return Some(false);
            }
            let mut events = core.graph.each();
            let has_ended =
                |event: &Arc<Command>| event.is_user_event() || event.status().is_some();
            if core.graph.held() == 0
                && events.all(has_ended)
                && shared.outbox.is_quiet()
                && shared.builder.is_idle()
                && way.heard().is_some()
            {
                return Some(true);
            }
        }
        if way.is_over() {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn write(shared: &Shared, contents: &File) -> Result<u64, String> {
    let state = state_of(shared)?;
    file::write(contents, &state.0, &state.1).map_err(|error| error.to_string())?;
    Ok(shared.outbox.last_applied())
}

// Tells the client that the session is parked. It need not hear that.
fn finish(shared: &Shared, applied: u64, way: &dyn Way) -> Outcome {
    shared.outbox.parking(command::Parking::Done);
    Outcome::Parked {
        applied,
        events: way.last(),
    }
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
        let why = "a program has variables of its own, which nobody can read";
        return Some(why.to_owned());
    }
    broken(objects).map(|what| format!("{what}, so it cannot be made again"))
}

// Describes an object that could not be made.
fn broken(objects: &Objects) -> Option<String> {
    let contexts = objects
        .contexts
        .iter()
        .map(|(id, of)| (id.0, "context", of.native().err()));
    let queues = objects
        .queues
        .iter()
        .map(|(id, of)| (id.0, "command queue", of.native().err()));
    let memory = objects
        .memory
        .iter()
        .map(|(id, of)| (id.0, "memory object", of.native().err()));
    let status = |native: Option<&Status>| native.copied();
    let kernels = objects.kernels.iter();
    let kernels = kernels.map(|(id, of)| (id.0, "kernel", status(of.native.as_ref().err())));
    let samplers = objects.samplers.iter();
    let samplers = samplers.map(|(id, of)| (id.0, "sampler", status(of.native.as_ref().err())));
    let sub_devices = objects.sub_devices.iter();
    let sub_devices = sub_devices.map(|((_, id), of)| {
        (
            u64::from(id.0),
            "sub-device",
            status(of.native.as_ref().err()),
        )
    });
    let mut all = contexts
        .chain(queues)
        .chain(memory)
        .chain(kernels)
        .chain(samplers)
        .chain(sub_devices);
    let (id, noun, status) = all.find_map(|(id, noun, status)| Some((id, noun, status?)))?;
    Some(format!("the node could not create {noun} {id}: {status}"))
}

// Returns what the session consists of beside its record, and the memory whose contents belong to it.
fn state_of(shared: &Shared) -> Result<(State, Vec<file::Part>), String> {
    let core = shared.core.lock();
    let mut state = State {
        newest_event: core.newest_event().map_or(0, |event| event.0),
        host_ns: crate::runtime::clock::host_ns(),
        ..State::default()
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

/// Applies a batch of the record; see the module.
pub(super) fn restore(shared: &Arc<Shared>, batch: &mut CommandBatch) -> Result<(), Violation> {
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
    if batch.recorded() == Recorded::Last {
        fill(shared, &under_way.contents)?;
        *restoring = None;
        shared.parking.is_restoring.store(false, Ordering::Release);
        tracing::info!("the session that was parked goes on");
    }
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
fn fill(shared: &Arc<Shared>, contents: &File) -> Result<(), Violation> {
    let lost = |what: String| Violation::NotRestored(what);
    if let Some(what) = broken(&shared.core.lock().objects) {
        return Err(lost(what));
    }
    let mut reader = file::Reader::open(contents).map_err(|error| lost(error.to_string()))?;
    for memory in &reader.state.memory.clone() {
        let found = shared
            .core
            .lock()
            .objects
            .memory
            .get(&memory.id())
            .map(Arc::clone);
        let found = found.ok_or_else(|| lost(NotMoved::Record.to_string()))?;
        reader
            .fill(&found, memory)
            .map_err(|error| lost(error.to_string()))?;
    }
    let state = reader.finish().map_err(|error| lost(error.to_string()))?;
    crate::runtime::clock::not_before(state.host_ns);
    add_events(shared, &state)?;
    let mut core = shared.core.lock();
    core.version += 1;
    let version = core.version;
    for launch in &state.kernels {
        let kernel = core
            .objects
            .kernels
            .get(&causeway_proto::id::KernelId(launch.kernel));
        let kernel = kernel.ok_or_else(|| lost(NotMoved::Record.to_string()))?;
        let mut arguments = kernel.arguments.lock();
        let arguments = Arc::make_mut(&mut arguments);
        super::arguments::change(arguments, &launch.args, &core.objects, version)?;
    }
    Ok(())
}

// Adds the events that the client may still name.
fn add_events(shared: &Arc<Shared>, state: &State) -> Result<(), Violation> {
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
