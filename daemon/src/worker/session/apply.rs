//! Applies commands, in their order, on the thread that reads them.
//!
//! Objects are made natively right here. Slow operations, such as builds and other compilation, go to the
//! builder. Invariant: a command that no Causeway client sends ends the session. Every other failure
//! becomes the status of an event, an answer or a notice.
#![forbid(unsafe_code)]

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use causeway_proto::command::{
    Command as WireCommand, CreateContext, CreateKernel, CreateQueue, Enqueue, Notice, ObjectKind,
    Release, SetUserEventStatus, UnloadCompiler, command,
};
use causeway_proto::id::{
    CommandBufferId, ContextId, DeviceIndex, EventId, KernelId, MemoryId, PlatformIndex, ProgramId,
    QueueId, SamplerId,
};
use causeway_proto::limits::{MAX_LIST, MAX_NAME};
use causeway_proto::status::Status;
use parking_lot::{Mutex, MutexGuard};

use super::commands::{Prepared, Submitted, link_of, prepare};
use super::graph::{Order, Role};
use super::run::{Runner, takes_turns};
use super::shared::{Core, Shared};
use super::sub_devices::Found as Named;
use super::tables::{add, find};
use super::violation::Violation;
use super::{command_buffers, device_queues, memory, parking, sub_devices};
use crate::runtime::context::Context as NativeContext;
use crate::runtime::node::Platform;
use crate::runtime::queue::Queue as NativeQueue;
use crate::worker::objects::command::{Command, Kind};
use crate::worker::objects::commons::Alive;
use crate::worker::objects::pace::QueuePace;
use crate::worker::objects::task::{Expects, Task};
use crate::worker::objects::unobserved::Unobserved;
use crate::worker::objects::warm;
use crate::worker::objects::{Bound, Context, InHost, Kernel, Queue};

/// Applies one command. `followed` means that the next command follows it in the same queue,
/// and both are unobserved.
// Small commands pay for each copy of a command on its way.
#[inline(always)]
pub(crate) fn apply(
    shared: &Arc<Shared>,
    command: WireCommand,
    followed: bool,
    runner: &mut Runner<'_>,
) -> Result<(), Violation> {
    use command::Kind as Wire;
    if let Some(why) = parking::prevents(command.kind.as_ref()) {
        shared.parking.never(why);
    }
    match command.kind {
        Some(Wire::Enqueue(enqueue)) => self::enqueue(shared, enqueue, followed, runner),
        Some(Wire::Release(release)) => self::release(shared, release),
        Some(Wire::CreateContext(create)) => create_context(shared, &create),
        Some(Wire::CreateSubDevices(create)) => sub_devices::create(shared, &create),
        Some(Wire::ReleaseSubDevice(release)) => sub_devices::release(shared, &release),
        Some(Wire::CreateQueue(create)) => create_queue(shared, &create),
        Some(Wire::CreateDeviceQueue(create)) => device_queues::create(shared, &create),
        Some(Wire::SetDefaultDeviceQueue(set)) => device_queues::set_default(shared, &set),
        Some(Wire::CreateBuffer(create)) => memory::create_buffer(shared, &create),
        Some(Wire::CreatePipe(create)) => memory::create_pipe(shared, &create),
        Some(Wire::CreateSvm(create)) => memory::create_svm(shared, &create),
        Some(Wire::CreateSubBuffer(create)) => memory::create_sub_buffer(shared, &create),
        Some(Wire::CreateImage(create)) => memory::create_image(shared, &create),
        Some(Wire::CreateSampler(create)) => memory::create_sampler(shared, &create),
        Some(Wire::CreateCommandBuffer(create)) => command_buffers::create(shared, &create),
        Some(Wire::Record(record)) => command_buffers::record(shared, record),
        Some(Wire::CreateProgram(create)) => super::program::create::create(shared, create),
        Some(Wire::BuildProgram(build)) => super::program::build::build(shared, build),
        Some(Wire::CompileProgram(compile)) => super::program::build::compile(shared, compile),
        Some(Wire::LinkProgram(link)) => super::program::build::link(shared, link),
        Some(Wire::CreateKernel(create)) => create_kernel(shared, &create),
        Some(Wire::CreateUserEvent(create)) => {
            let id = EventId(create.event);
            let event = Command::new(id, Kind::User, false, &shared.outbox);
            let mut core = shared.core.lock();
            // A user event needs no native object, so one above the limit is not refused.
            let _ = core.room(shared)?;
            Ok(core.add_user_event(&event)?)
        }
        Some(Wire::SetUserEventStatus(set)) => set_user_event_status(shared, set, runner),
        Some(Wire::Query(query)) => super::query::answer(shared, query),
        Some(Wire::UnloadCompiler(unload)) => unload_compiler(shared, unload),
        Some(Wire::AddLink(add)) => super::links::add(&shared.links, add),
        Some(Wire::DialLink(dial)) => super::links::dial(&shared.links, &dial),
        Some(Wire::RouteViaClient(route)) => super::links::route_via_client(&shared.links, &route),
        Some(Wire::DropLink(drop)) => super::links::drop_link(&shared.links, &drop),
        Some(Wire::CreateMirror(create)) => super::mirrors::create(shared, &create),
        Some(Wire::TellEvent(tell)) => super::mirrors::tell(shared, &tell),
        None => Err(Violation::Malformed(
            "the client sent a command of an unknown kind; check that client and node have the same version",
        )),
    }
}

#[inline(always)]
fn enqueue(
    shared: &Arc<Shared>,
    mut enqueue: Enqueue,
    followed: bool,
    runner: &mut Runner<'_>,
) -> Result<(), Violation> {
    let id = EventId(enqueue.event);
    if let Some(link) = link_of(&enqueue) {
        shared.parking.never(parking::SITES);
        super::links::open_path(&shared.links, link)?;
    }
    let mut core = shared.core.lock();
    let queue = find(&core.objects.queues, QueueId(enqueue.queue))?;
    core.version += 1;
    let prepared = prepare(&mut enqueue, &queue, &core.objects, core.version)?;
    let unobserved = enqueue.unobserved && enqueue.wait.is_empty() && prepared.kind == Kind::Plain;
    if unobserved && core.graph.is_clear(queue.id) && !takes_turns(shared, &prepared.operation) {
        // The client never names an unobserved command again, so the graph need not keep it.
        let room = core.room(shared);
        drop(core);
        let room = room.unwrap_or(Err(Status::OUT_OF_HOST_MEMORY));
        let operation = room.and(prepared.operation);
        runner.run_unobserved(id, &queue, operation, followed);
        return Ok(());
    }
    let waits = waited_for(&core, &enqueue.wait)?;
    let expects = prepared.expects;
    let profiling = queue.native().is_ok_and(NativeQueue::is_profiling);
    let command = Command::new(id, prepared.kind, profiling, &shared.outbox);
    // Announced before the check for room: if that fails, `renounce` can discard the bytes when they come.
    if expects == Expects::Eagerly && !shared.bulk.announce(id) {
        return Err(Violation::Taken(format!("the bytes of {id:?}")));
    }
    if let Err(full) = core.room(shared)? {
        core.add_user_event(&command)?;
        core.graph.failed(id, &mut VecDeque::new());
        if unobserved {
            // The client never names an unobserved command again.
            core.graph.release(id);
        }
        drop(core);
        finish_refused(shared, &command, &prepared, full);
        return Ok(());
    }
    if let Some((far, length)) = &prepared.far
        && !shared.bulk.register(far, *length)
    {
        return Err(Violation::Taken(format!("transfer {:?}", far.transfer)));
    }
    let submitted = Submitted {
        task: Task {
            command,
            queue,
            waits,
            expects,
            far: prepared.far.map(|(far, _)| far),
        },
        operation: prepared.operation,
        bytes: prepared.bytes,
    };
    submit(shared, core, submitted, prepared.role, unobserved, runner)
}

/// Gives a command to the graph. Runs the command at once if the graph allows it.
fn submit(
    shared: &Shared,
    mut core: MutexGuard<'_, Core>,
    submitted: Submitted,
    role: Role,
    unobserved: bool,
    runner: &mut Runner<'_>,
) -> Result<(), Violation> {
    let (command, bytes) = (Arc::clone(&submitted.task.command), submitted.bytes);
    let queue = submitted.task.queue.id;
    let waits: Vec<EventId> = submitted.task.waits.iter().map(|w| w.id()).collect();
    let run = core.submit(Arc::clone(&command), queue, &waits, role, submitted)?;
    if unobserved {
        // The client never names it again. The command is in progress, so the graph keeps it
        // until it has ended.
        core.graph.release(command.id());
    }
    if let Some(submitted) = run {
        drop(core);
        runner.run(submitted);
        return Ok(());
    }
    core.held_bytes += bytes;
    // Over the limit, the newest command fails, so that commands already accepted still run.
    let full = core.graph.held() > shared.limits.held_commands
        || core.held_bytes > shared.limits.held_bytes;
    if full {
        core.held_bytes -= bytes;
        runner.give_up(core, &command);
    }
    Ok(())
}

/// Ends a command for which the session has no room, and discards the bytes that belong to it.
fn finish_refused(shared: &Shared, command: &Arc<Command>, prepared: &Prepared, full: Status) {
    if let Some((far, _)) = &prepared.far {
        shared.bulk.refuse(far, full);
    }
    if prepared.expects == Expects::Eagerly {
        shared.bulk.renounce(command.id());
    }
    command.finish(
        full,
        "the session has too many objects; release some, or raise `[sessions] objects` on the node"
            .into(),
    );
}

fn waited_for(core: &Core, wait: &[u64]) -> Result<Vec<Arc<Command>>, Violation> {
    let events = wait.iter().map(|id| core.named(EventId(*id)));
    events.filter_map(Result::transpose).collect()
}

fn set_user_event_status(
    shared: &Arc<Shared>,
    set: SetUserEventStatus,
    runner: &mut Runner<'_>,
) -> Result<(), Violation> {
    let (id, status) = (EventId(set.event), Status(set.status));
    let found = {
        let core = shared.core.lock();
        let known = core.graph.known(id).map(Arc::clone);
        known.map_or_else(|| core.named(id), |known| Ok(Some(known)))?
    };
    let Some(event) = found else {
        // The event is a mirror that another worker's message has already ended.
        return Ok(());
    };
    if !event.is_user_event() || set.status > 0 {
        return Err(Violation::Malformed(
            "the client set a status of an event that takes none: not a user event, or a positive status",
        ));
    }
    // A mirror may have been ended by another worker first; a user event may be set only once.
    let Some(told) = event.close(status) else {
        return if event.is_mirror() {
            Ok(())
        } else {
            Err(Violation::Malformed("the client set a user event twice"))
        };
    };
    for tell in told {
        tell.say(status);
    }
    runner.ended(&event, status);
    Ok(())
}

fn release(shared: &Arc<Shared>, release: Release) -> Result<(), Violation> {
    let id = release.id;
    let mut guard = shared.core.lock();
    let core = &mut *guard;
    let objects = &mut core.objects;
    let gone = match ObjectKind::try_from(release.object) {
        Ok(ObjectKind::Event) => any(core.graph.release(EventId(id))),
        Ok(ObjectKind::Context) => any(objects.contexts.remove(&ContextId(id))),
        Ok(ObjectKind::Queue) => {
            core.graph.release_queue(QueueId(id));
            any(objects.queues.remove(&QueueId(id)))
        }
        Ok(ObjectKind::DeviceQueue) => {
            Some(Arc::new(device_queues::remove(core, QueueId(id))) as _)
        }
        Ok(ObjectKind::Memory) => any(objects.memory.remove(&MemoryId(id))),
        Ok(ObjectKind::Program) => any(objects.programs.remove(&ProgramId(id))),
        Ok(ObjectKind::Kernel) => any(objects.kernels.remove(&KernelId(id))),
        Ok(ObjectKind::Sampler) => any(objects.samplers.remove(&SamplerId(id))),
        Ok(ObjectKind::CommandBuffer) => any(command_buffers::remove(core, CommandBufferId(id))),
        _ => {
            return Err(Violation::Malformed(
                "the client released an object of an unknown kind",
            ));
        }
    };
    // Dropped after the lock is released, because the drop may call the driver.
    drop(guard);
    drop(gone);
    Ok(())
}

/// An object of any type.
fn any<T: Send + Sync + 'static>(object: Option<Arc<T>>) -> Option<Arc<dyn Send + Sync>> {
    object.map(|object| object as _)
}

fn create_context(shared: &Arc<Shared>, create: &CreateContext) -> Result<(), Violation> {
    if create.devices.is_empty() || create.devices.len() > MAX_LIST {
        return Err(Violation::Malformed(
            "a context's list of devices is empty or too long",
        ));
    }
    let index = PlatformIndex(create.platform);
    let platform = shared
        .node
        .platform(index)
        .ok_or_else(|| Violation::Unknown(format!("{index:?}")))?;
    let found = create
        .devices
        .iter()
        .map(|device| {
            let device = DeviceIndex(*device);
            let found = sub_devices::find(shared, index, device).map(|found| (device, found));
            found.ok_or_else(|| Violation::Unknown(format!("{device:?}")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let id = ContextId(create.context);
    let usable = found.iter().try_for_each(|(_, of)| of.status);
    let usable = shared.room()?.and(usable);
    let made = usable.and_then(|()| native_context(shared, index, platform, id, &found));
    let (native, in_host) = match made {
        Ok((native, in_host)) => (Ok(native), in_host),
        Err(status) => (Err(status), InHost::default()),
    };
    shared.tell_broken(ObjectKind::Context, id.0, native.as_ref().err(), id);
    // Sub-devices use their root device's memory, so that device's account is charged.
    let roots: BTreeSet<DeviceIndex> = found.iter().map(|(_, of)| of.root).collect();
    let accounts = shared.share.accounts(index, roots.into_iter());
    let devices = found.iter().map(|(index, of)| (*index, of.device));
    let devices = devices.collect();
    let parts = found.into_iter().filter_map(|(_, of)| of.part).collect();
    let context = Context::new(id, devices, native, accounts, parts, in_host);
    let mut core = shared.core.lock();
    add(&mut core.objects.contexts, id, context)?;
    if shared.commons.is_some()
        && let Some(added) = core.objects.contexts.get(&id)
    {
        let mut contexts = shared.contexts.lock();
        contexts.retain(|context| context.strong_count() > 0);
        contexts.push(Arc::downgrade(added));
    }
    Ok(())
}

/// Returns a native context: in a host, the one of the other sessions with the same devices; otherwise one that
/// was made before the session, or a new one. Sub-devices are a session's own, and so are contexts with them. A
/// device whose kernels enqueue kernels has a default queue in each context, so sessions do not share that.
fn native_context(
    shared: &Arc<Shared>,
    index_of_platform: PlatformIndex,
    platform: &Platform,
    id: ContextId,
    found: &[(DeviceIndex, Named)],
) -> Result<(Arc<NativeContext>, InHost), Status> {
    // Weak, because a driver never forgets its listener.
    let outbox = Arc::downgrade(&shared.outbox);
    let listener = Box::new(move |text: &str| {
        if let Some(outbox) = outbox.upgrade() {
            outbox.notice(Notice {
                object: ObjectKind::Context.into(),
                id: id.0,
                status: 0,
                message: text.to_owned(),
                context: id.0,
            });
        }
    });
    let natives = found.iter().map(|(_, of)| of.device).collect();
    let make = |listener| NativeContext::new(platform, natives, listener);
    let devices = found.iter().map(|(device, _)| *device).collect();
    let kind = (index_of_platform, devices);
    let has_parts = found.iter().any(|(_, of)| of.part.is_some());
    let enqueues = found.iter().any(|(_, of)| of.device.enqueues_kernels());
    let commons = shared.commons.as_deref();
    let (native, listening) = match commons {
        _ if has_parts => (Arc::new(make(listener)?), None),
        Some(commons) if !enqueues => {
            let works =
                |native: &NativeContext| found.iter().all(|(_, of)| warm::works(native, of.device));
            let found = commons.contexts.get(kind, listener, works, make);
            let (native, listening) =
                found.inspect_err(|status| super::neighbours::note_no_context(shared, *status))?;
            (native, Some(listening))
        }
        _ => match shared.warm.take(&kind) {
            Some(warm) => (warm.native, Some(warm.listeners.add(listener))),
            None => (Arc::new(make(listener)?), None),
        },
    };
    if commons.is_none() {
        shared.warm.give_up();
    }
    let pace = |(index, of): &(DeviceIndex, Named)| {
        Some((*index, shared.pace((index_of_platform, of.root))?))
    };
    let in_host = InHost {
        paces: found.iter().filter_map(pace).collect(),
        _listening: listening,
        clears: shared.reexecutes || commons.is_some_and(|commons| commons.clears),
        _alive: commons.map_or_else(Alive::default, |_| shared.alive.clone()),
    };
    Ok((native, in_host))
}

fn create_queue(shared: &Arc<Shared>, create: &CreateQueue) -> Result<(), Violation> {
    let (id, index) = (QueueId(create.queue), DeviceIndex(create.device));
    if create.properties.len() > MAX_LIST || !create.properties.len().is_multiple_of(2) {
        return Err(Violation::Malformed(
            "a queue's properties are not pairs of name and value",
        ));
    }
    let context = shared.context(create.context)?;
    let device = context
        .device(index)
        .ok_or_else(|| Violation::Unknown(format!("{index:?} in a context")))?;
    let native = (shared.room()?.and(context.native()))
        .and_then(|native| NativeQueue::new(native, device, &create.properties));
    // A queue that the driver refuses is kept too: the client may name it, and its commands fail with this
    // code.
    shared.tell_broken(ObjectKind::Queue, id.0, native.as_ref().err(), context.id);
    let order = if native.as_ref().is_ok_and(NativeQueue::is_out_of_order) {
        Order::OutOfOrder
    } else {
        Order::InOrder
    };
    let pace = context.pace(index).map(QueuePace::new);
    let queue = Queue {
        id,
        context,
        device: index,
        native,
        unobserved: Unobserved::new(create.traced),
        pace,
    };
    let mut core = shared.core.lock();
    add(&mut core.objects.queues, id, queue)?;
    core.graph.add_queue(id, order);
    Ok(())
}

fn create_kernel(shared: &Arc<Shared>, create: &CreateKernel) -> Result<(), Violation> {
    if create.name.len() > MAX_NAME {
        return Err(Violation::Malformed("a kernel's name is too long"));
    }
    let id = KernelId(create.kernel);
    let program = find(
        &shared.core.lock().objects.programs,
        ProgramId(create.program),
    )?;
    let room = shared.room()?;
    let native = room
        .and_then(|()| program.settled())
        .and_then(|native| native.kernel(&create.name));
    let context = Arc::clone(&program.context);
    let prints = program.prints();
    let cost = match &native {
        Ok(_) => program.cost(&create.name),
        Err(_) => Arc::default(),
    };
    shared.tell_broken(ObjectKind::Kernel, id.0, native.as_ref().err(), context.id);
    let kernel = Kernel {
        context,
        arguments: Mutex::default(),
        native: native.map(|kernel| {
            Mutex::new(Bound {
                kernel,
                set: Vec::new(),
                reaches: 0,
            })
        }),
        prints,
        cost,
    };
    add(&mut shared.core.lock().objects.kernels, id, kernel)
}

fn unload_compiler(shared: &Arc<Shared>, unload: UnloadCompiler) -> Result<(), Violation> {
    let index = PlatformIndex(unload.platform);
    if shared.node.platform(index).is_none() || !shared.share.allows_platform(index) {
        return Err(Violation::Unknown(format!("{index:?}")));
    }
    if shared.commons.is_some() {
        // The compiler is in use by other sessions, and this is only a hint.
        return Ok(());
    }
    let node = Arc::clone(&shared.node);
    // This is only a hint, so the builder applies it when no build runs.
    shared.builder.unload(move || {
        if let Some(platform) = node.platform(index) {
            let _ = platform.unload_compiler();
        }
    });
    Ok(())
}

impl Shared {
    /// Finds a context that the client names.
    pub(crate) fn context(&self, id: u64) -> Result<Arc<Context>, Violation> {
        find(&self.core.lock().objects.contexts, ContextId(id))
    }

    /// Sends the client a notice if an object could not be made.
    pub(crate) fn tell_broken(
        &self,
        object: ObjectKind,
        id: u64,
        status: Option<&Status>,
        context: ContextId,
    ) {
        let Some(status) = status else { return };
        self.outbox.notice(Notice {
            object: object.into(),
            id,
            status: status.0,
            message: format!("the node could not create {} {id}: {status}", noun(object)),
            context: context.0,
        });
    }
}

fn noun(object: ObjectKind) -> &'static str {
    match object {
        ObjectKind::Context => "context",
        ObjectKind::Queue => "command queue",
        ObjectKind::Memory => "memory object",
        ObjectKind::Program => "program",
        ObjectKind::Kernel => "kernel",
        ObjectKind::Event => "event",
        ObjectKind::Sampler => "sampler",
        ObjectKind::CommandBuffer => "command buffer",
        ObjectKind::DeviceQueue => "device queue",
        ObjectKind::Unspecified => "object",
    }
}
