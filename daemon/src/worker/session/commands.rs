//! Everything that a kind of command needs: its operation, its decoding, its native enqueue.
//!
//! All ids are looked up and checked here, in command order. An operation keeps its objects alive, so the
//! command can go to its native queue at any later time. A launch takes its arguments in their current
//! state. An error that the client could not know of becomes the command's status: a broken object, or a
//! region outside of its buffer. A message that no Causeway client sends ends the session.
//!
//! Transfers over bulk connections and replays have more than one native command; [`super::run`] starts them.
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{
    ChangedLaunch, CopyBuffer, Enqueue, FillBuffer, FillImage, Migrate, NdRange, ReadBuffer,
    Region as WireRegion, Replay, WriteBuffer, enqueue, record,
};
use causeway_proto::id::{CommandBufferId, EventId, KernelId, LinkId, MemoryId};
use causeway_proto::limits::{BULK_CHUNK, INLINE_PAYLOAD, MAX_LIST};
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;
use prost::Message;

use super::arguments;
use super::graph::Role;
use super::tables::{Objects, find};
use super::violation::Violation;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::host::Host;
use crate::runtime::kernel::Shape;
use crate::worker::objects::arguments::Arguments;
use crate::worker::objects::command::Kind;
use crate::worker::objects::pace;
use crate::worker::objects::task::{Direction, Expects, Far, Task};
use crate::worker::objects::{Bound, Kernel, Memory, Queue};

/// A command that may run now or later.
pub(crate) struct Submitted {
    pub(crate) task: Task,
    pub(crate) operation: Result<Operation, Status>,
    /// Bytes of memory that the command costs while it is held back.
    pub(crate) bytes: usize,
}

/// The operation of a command.
pub(crate) enum Operation {
    /// A launch, with its arguments as of its place in the stream.
    NdRange {
        kernel: Arc<Kernel>,
        arguments: Arc<Arguments>,
        /// Kept alive until the launch is enqueued.
        _memory: Vec<Arc<Memory>>,
        /// `None` if the launch has no work-items.
        shape: Option<Shape>,
    },
    /// A write whose bytes came with the command.
    Write {
        memory: Arc<Memory>,
        region: Region,
        contents: Bytes,
    },
    /// A read whose bytes are sent in the completion.
    Read { memory: Arc<Memory>, region: Region },
    /// A write whose bytes come over bulk connections.
    BulkWrite { memory: Arc<Memory>, region: Region },
    /// A read whose bytes are sent over bulk connections.
    BulkRead { memory: Arc<Memory>, region: Region },
    /// A read whose bytes are sent to another worker.
    Send { memory: Arc<Memory>, region: Region },
    /// A write whose bytes come from another worker.
    Receive { memory: Arc<Memory>, region: Region },
    /// A copy on the device.
    Copy {
        source: (Arc<Memory>, Region),
        destination: (Arc<Memory>, Region),
    },
    /// A fill.
    Fill {
        memory: Arc<Memory>,
        pattern: Bytes,
        offset: u64,
        size: u64,
    },
    /// A fill with a colour.
    FillImage {
        memory: Arc<Memory>,
        region: Region,
        colour: [u8; 16],
    },
    /// A migration to the queue's device.
    Migrate {
        memory: Vec<Arc<Memory>>,
        flags: u64,
    },
    /// All commands that a command buffer had recorded at this place in the stream.
    Replay {
        commands: Arc<Vec<Arc<Recorded>>>,
        /// Kept alive until the commands are enqueued.
        _memory: Vec<Arc<Memory>>,
    },
    /// A marker, or an operation that touches no byte.
    Marker,
    /// A barrier.
    Barrier,
}

impl Operation {
    /// Whether the operation launches a kernel that may print.
    pub(crate) fn prints(&self) -> bool {
        match self {
            Operation::NdRange { kernel, .. } => kernel.prints,
            Operation::Replay { commands, .. } => {
                let mut operations = commands.iter().filter_map(|of| of.operation.as_ref().ok());
                operations.any(Operation::prints)
            }
            _ => false,
        }
    }

    /// Returns the kind of a command that occupies the device; `None` for transfers with the host, whose bytes
    /// take longer than the device does, and for commands that take no time.
    pub(crate) fn occupies(&self) -> Option<pace::Kind<'_>> {
        match self {
            Operation::NdRange {
                kernel,
                shape: Some(_),
                ..
            } => Some(pace::Kind::Launch(&kernel.cost)),
            Operation::Replay { .. } => Some(pace::Kind::Replay),
            Operation::Copy { source, .. } => Some(pace::Kind::Copy(source.1.packed_length())),
            Operation::Fill { size, .. } => Some(pace::Kind::Copy(*size)),
            Operation::FillImage { region, .. } => Some(pace::Kind::Copy(region.packed_length())),
            _ => None,
        }
    }
}

/// A command buffer: recorded commands, which each replay enqueues anew.
#[derive(Default)]
pub(crate) struct CommandBuffer {
    /// Shared with the replays that were applied meanwhile.
    pub(crate) commands: Mutex<Arc<Vec<Arc<Recorded>>>>,
}

/// A recorded command.
pub(crate) struct Recorded {
    pub(crate) operation: Result<Operation, Status>,
    /// Indices of the earlier commands that this one comes after.
    pub(crate) after: Box<[u32]>,
}

impl Recorded {
    /// The number of objects that the command counts as, against the session's limit.
    pub(crate) fn weight(&self) -> usize {
        1 + self.after.len()
    }

    /// Whether the command reads and writes no memory.
    pub(crate) fn touches_nothing(&self) -> bool {
        let operation = self.operation.as_ref();
        operation.is_ok_and(|of| {
            matches!(
                of,
                Operation::Marker | Operation::NdRange { shape: None, .. }
            )
        })
    }
}

/// A checked enqueue, with its effect on the graph and on the command's end.
pub(crate) struct Prepared {
    pub(crate) operation: Result<Operation, Status>,
    pub(crate) kind: Kind,
    pub(crate) role: Role,
    /// Bytes of memory that the command costs while it is held back.
    pub(crate) bytes: usize,
    /// How the client sends the command's bytes.
    pub(crate) expects: Expects,
    /// The other end of a transfer with another worker, and the length in bytes.
    pub(crate) far: Option<(Far, u64)>,
}

impl Prepared {
    fn plain(operation: Result<Operation, Status>) -> Prepared {
        Prepared {
            operation,
            kind: Kind::Plain,
            role: Role::ORDINARY,
            bytes: 0,
            expects: Expects::Nothing,
            far: None,
        }
    }
}

/// Returns the link that a transfer with another worker names.
pub(crate) fn link_of(enqueue: &Enqueue) -> Option<LinkId> {
    match &enqueue.operation {
        Some(enqueue::Operation::SendRegion(send)) => Some(LinkId(send.link)),
        Some(enqueue::Operation::ReceiveRegion(receive)) => Some(LinkId(receive.link)),
        _ => None,
    }
}

/// Looks up and checks everything that an enqueue names, except the link ([`link_of`]). `version` is new
/// with every call.
pub(crate) fn prepare(
    enqueue: &mut Enqueue,
    queue: &Queue,
    objects: &Objects,
    version: u64,
) -> Result<Prepared, Violation> {
    if enqueue.wait.len() > MAX_LIST {
        return Err(Violation::Malformed("a wait list is too long"));
    }
    let alone = enqueue.wait.is_empty();
    let Some(operation) = enqueue.operation.take() else {
        return Err(Violation::Malformed("an enqueue has no operation"));
    };
    let mut prepared = match operation {
        enqueue::Operation::NdRange(launch) => nd_range(&launch, objects, version)?,
        enqueue::Operation::WriteBuffer(write) => write_buffer(write, objects)?,
        enqueue::Operation::ReadBuffer(read) => read_buffer(&read, objects)?,
        enqueue::Operation::CopyBuffer(copy) => copy_buffer(&copy, objects)?,
        enqueue::Operation::FillBuffer(fill) => fill_buffer(fill, objects)?,
        enqueue::Operation::FillImage(fill) => fill_image(&fill, objects)?,
        enqueue::Operation::Migrate(migrate) => migration(&migrate, objects)?,
        enqueue::Operation::SendRegion(send) => {
            let far = far(send.link, send.transfer, Direction::Send);
            with_peer(far, send.buffer, send.region.as_ref(), objects)?
        }
        enqueue::Operation::ReceiveRegion(receive) => {
            let far = far(receive.link, enqueue.event, Direction::Receive);
            with_peer(far, receive.buffer, receive.region.as_ref(), objects)?
        }
        enqueue::Operation::Replay(message) => replay(&message, objects, version)?,
        enqueue::Operation::Marker(_) => Prepared {
            role: Role {
                after_all: alone,
                before_all: false,
            },
            ..Prepared::plain(Ok(Operation::Marker))
        },
        enqueue::Operation::Barrier(_) => Prepared {
            role: Role {
                after_all: alone,
                before_all: true,
            },
            ..Prepared::plain(Ok(Operation::Barrier))
        },
    };
    if let Err(status) = queue.native() {
        prepared.operation = Err(status);
    }
    Ok(prepared)
}

fn nd_range(launch: &NdRange, objects: &Objects, version: u64) -> Result<Prepared, Violation> {
    let kernel = find(&objects.kernels, KernelId(launch.kernel))?;
    let arguments = {
        let mut table = kernel.arguments.lock();
        if !launch.args.is_empty() {
            // `make_mut` copies the table only while a held launch still shares its earlier state.
            arguments::change(Arc::make_mut(&mut table), &launch.args, objects, version)?;
        }
        if let Some(reaches) = &launch.reaches {
            arguments::reach(Arc::make_mut(&mut table), reaches, objects, version)?;
        }
        Arc::clone(&table)
    };
    let shape = shape_of(launch)?;
    let held = match kernel.native.as_ref().map(drop) {
        Ok(()) => arguments.hold(),
        Err(status) => Err(*status),
    };
    Ok(Prepared::plain(held.map(|memory| Operation::NdRange {
        kernel,
        arguments,
        _memory: memory,
        shape,
    })))
}

/// Returns the sizes of a launch; `None` if it has no work-items.
fn shape_of(launch: &NdRange) -> Result<Option<Shape>, Violation> {
    if launch.global.is_empty() {
        return Ok(None);
    }
    let shape = Shape::new(&launch.global, &launch.offset, &launch.local).ok_or(
        Violation::Malformed("a launch has invalid dimensions or sizes"),
    )?;
    Ok((!shape.is_empty()).then_some(shape))
}

/// Decodes a region of a memory object. A broken object, or a region outside of it, is a status.
fn region_of(
    memory: &Memory,
    wire: Option<&WireRegion>,
) -> Result<Result<Region, Status>, Violation> {
    let wire = wire.ok_or(Violation::Malformed("a transfer has no region"))?;
    let region = Region::from_wire(wire)
        .map_err(|_| Violation::Malformed("a transfer's region overflows"))?;
    Ok(match memory.native() {
        Err(status) => Err(status),
        Ok(buffer) if region.end() > buffer.size() => Err(Status::INVALID_VALUE),
        Ok(_) => Ok(region),
    })
}

fn write_buffer(write: WriteBuffer, objects: &Objects) -> Result<Prepared, Violation> {
    let memory = find(&objects.memory, MemoryId(write.buffer))?;
    let region = region_of(&memory, write.region.as_ref())?;
    if write.bulk {
        let expects = if write.eager {
            Expects::Eagerly
        } else {
            Expects::ByCredit
        };
        let length = region.map(|region| region.packed_length());
        // A shorter write carries its bytes in the command. So the number of eager writes
        // within the credit stays small.
        let is_chunk = |length| length > INLINE_PAYLOAD as u64 && length <= BULK_CHUNK as u64;
        if write.eager && length.is_ok_and(|length| !is_chunk(length)) {
            return Err(Violation::Malformed(
                "an eager write has too few bytes, or more than one chunk",
            ));
        }
        let operation = region.map(|region| match region.packed_length() {
            0 => Operation::Marker,
            _ => Operation::BulkWrite { memory, region },
        });
        return Ok(Prepared {
            kind: Kind::Bulk,
            expects,
            ..Prepared::plain(operation)
        });
    }
    let contents = write.contents;
    let bytes = contents.len();
    let operation = match region {
        Ok(region) if region.packed_length() != bytes as u64 => {
            return Err(Violation::Malformed(
                "a write's contents do not fit its region",
            ));
        }
        Ok(_) if bytes == 0 => Ok(Operation::Marker),
        Ok(region) => Ok(Operation::Write {
            memory,
            region,
            contents,
        }),
        Err(status) => Err(status),
    };
    Ok(Prepared {
        bytes,
        ..Prepared::plain(operation)
    })
}

fn read_buffer(read: &ReadBuffer, objects: &Objects) -> Result<Prepared, Violation> {
    let memory = find(&objects.memory, MemoryId(read.buffer))?;
    let region = region_of(&memory, read.region.as_ref())?;
    let length = region.map_or(0, |r| r.packed_length());
    if !read.bulk && length > INLINE_PAYLOAD as u64 {
        return Err(Violation::Malformed(
            "a read is too large for its completion message",
        ));
    }
    let operation = region.map(|region| match (length, read.bulk) {
        (0, _) => Operation::Marker,
        (_, true) => Operation::BulkRead { memory, region },
        (_, false) => Operation::Read { memory, region },
    });
    Ok(Prepared {
        kind: if read.bulk { Kind::Bulk } else { Kind::Read },
        ..Prepared::plain(operation)
    })
}

fn far(link: u64, transfer: u64, direction: Direction) -> Far {
    Far {
        transfer: EventId(transfer),
        direction,
        link: LinkId(link),
    }
}

fn with_peer(
    far: Far,
    buffer: u64,
    region: Option<&WireRegion>,
    objects: &Objects,
) -> Result<Prepared, Violation> {
    let memory = find(&objects.memory, MemoryId(buffer))?;
    let region = region_of(&memory, region)?;
    let length = region.map_or(0, |region| region.packed_length());
    let operation = region.map(|region| match (length, far.direction) {
        (0, _) => Operation::Marker,
        (_, Direction::Send) => Operation::Send { memory, region },
        (_, Direction::Receive) => Operation::Receive { memory, region },
    });
    Ok(Prepared {
        kind: Kind::Bulk,
        // No messages are exchanged about a transfer without bytes.
        far: (length > 0 || operation.is_err()).then_some((far, length)),
        ..Prepared::plain(operation)
    })
}

fn copy_buffer(copy: &CopyBuffer, objects: &Objects) -> Result<Prepared, Violation> {
    let source = find(&objects.memory, MemoryId(copy.source))?;
    let destination = find(&objects.memory, MemoryId(copy.destination))?;
    let from = region_of(&source, copy.source_region.as_ref())?;
    let to = region_of(&destination, copy.destination_region.as_ref())?;
    let operation = from.and_then(|from| {
        let to = to?;
        if from.packed_length() == 0 && to.packed_length() == 0 {
            return Ok(Operation::Marker);
        }
        Ok(Operation::Copy {
            source: (source, from),
            destination: (destination, to),
        })
    });
    Ok(Prepared::plain(operation))
}

fn fill_buffer(fill: FillBuffer, objects: &Objects) -> Result<Prepared, Violation> {
    let memory = find(&objects.memory, MemoryId(fill.buffer))?;
    let operation = memory.native().map(drop).map(|()| match fill.size {
        0 => Operation::Marker,
        size => Operation::Fill {
            memory: Arc::clone(&memory),
            pattern: fill.pattern,
            offset: fill.offset,
            size,
        },
    });
    Ok(Prepared::plain(operation))
}

fn fill_image(fill: &FillImage, objects: &Objects) -> Result<Prepared, Violation> {
    let memory = find(&objects.memory, MemoryId(fill.image))?;
    let region = region_of(&memory, fill.region.as_ref())?;
    let colour = <[u8; 16]>::try_from(&fill.colour[..])
        .map_err(|_| Violation::Malformed("a fill colour has the wrong size"))?;
    Ok(Prepared::plain(region.map(|region| Operation::FillImage {
        memory,
        region,
        colour,
    })))
}

fn migration(migrate: &Migrate, objects: &Objects) -> Result<Prepared, Violation> {
    if migrate.memory.is_empty() || migrate.memory.len() > MAX_LIST {
        return Err(Violation::Malformed(
            "a migration's list is empty or too long",
        ));
    }
    let memory = migrate
        .memory
        .iter()
        .map(|id| find(&objects.memory, MemoryId(*id)))
        .collect::<Result<Vec<_>, _>>()?;
    let broken = memory.iter().find_map(|m| m.native().err());
    let operation = match broken {
        Some(status) => Err(status),
        None => Ok(Operation::Migrate {
            memory,
            flags: migrate.flags,
        }),
    };
    Ok(Prepared::plain(operation))
}

/// Looks up and checks everything that a recorded command names. `version` is new with every call.
pub(super) fn recorded(
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
        None => {
            return Err(Violation::Malformed(
                "a recorded command has an unknown kind",
            ));
        }
    })
}

/// Makes a launch with its own argument table: `arguments` with the launch's changes. The
/// table keeps no memory alive.
pub(super) fn whole(
    launch: &NdRange,
    mut arguments: Arguments,
    objects: &Objects,
    version: u64,
) -> Result<Result<Operation, Status>, Violation> {
    let kernel = find(&objects.kernels, KernelId(launch.kernel))?;
    arguments::change(&mut arguments, &launch.args, objects, version)?;
    if let Some(reaches) = &launch.reaches {
        arguments::reach(&mut arguments, reaches, objects, version)?;
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

/// Prepares a `Replay` as of this point of the stream. `version` is new with every call.
fn replay(replay: &Replay, objects: &Objects, version: u64) -> Result<Prepared, Violation> {
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

// Changes launches for this replay and later ones. Replays applied before keep the old list. Returns the
// bytes of memory that this costs.
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
        return Err(Violation::Malformed(
            "a change names more launches than the command buffer has",
        ));
    }
    let commands = Arc::make_mut(commands);
    for change in changed {
        let before = commands.get_mut(change.place as usize);
        let (Some(before), Some(launch)) = (before, &change.launch) else {
            return Err(Violation::Malformed(
                "a change names a command that was not recorded",
            ));
        };
        let arguments = match &before.operation {
            Ok(Operation::NdRange { arguments, .. }) => Arguments::clone(arguments),
            // The launch's kernel is broken, and stays so.
            Err(_) => Arguments::default(),
            Ok(_) => {
                return Err(Violation::Malformed(
                    "a change names a command that is not a launch",
                ));
            }
        };
        *before = Arc::new(Recorded {
            operation: whole(launch, arguments, objects, version)?,
            after: before.after.clone(),
        });
        bytes += launch.encoded_len();
    }
    Ok(bytes)
}

/// Launches without an event, on queues where events are expensive. `None` for any other operation or queue.
pub(super) fn launch_without_event(
    queue: &Queue,
    operation: &Operation,
) -> Option<Result<(), Status>> {
    let Operation::NdRange {
        kernel,
        arguments,
        shape: Some(shape),
        ..
    } = operation
    else {
        return None;
    };
    let native = queue.native().ok().filter(|native| native.is_watched())?;
    Some(bound(kernel).and_then(|bound| {
        let mut bound = bound.lock();
        arguments.bind(&mut bound)?;
        native.nd_range_without_event(&mut bound.kernel, shape)
    }))
}

/// Returns the local size that the driver would choose for a launch.
///
/// # Errors
/// The driver's error; `CL_INVALID_GLOBAL_WORK_SIZE` for a launch without work-items.
pub(super) fn suggested_local_size(
    queue: &Queue,
    operation: &Operation,
) -> Result<Vec<usize>, Status> {
    let Operation::NdRange {
        kernel,
        arguments,
        shape: Some(shape),
        ..
    } = operation
    else {
        return Err(Status::INVALID_GLOBAL_WORK_SIZE);
    };
    let _held = arguments.hold()?;
    let mut bound = bound(kernel)?.lock();
    arguments.bind(&mut bound)?;
    queue
        .native()?
        .suggested_local_size(&mut bound.kernel, shape)
}

/// Enqueues an operation natively, except for a bulk transfer or a replay.
pub(super) fn enqueue(
    queue: &Queue,
    operation: &Operation,
    waits: &WaitList<'_>,
) -> Result<Event, Status> {
    let native = queue.native()?;
    match operation {
        Operation::NdRange {
            kernel,
            arguments,
            _memory: _,
            shape: Some(shape),
        } => {
            let bound = bound(kernel)?;
            let mut bound = bound.lock();
            arguments.bind(&mut bound)?;
            native.nd_range(&mut bound.kernel, shape, waits)
        }
        Operation::Write {
            memory,
            region,
            contents,
        } => {
            let source = source(queue, contents);
            native.write(memory.native()?, region, source, 0, waits)
        }
        Operation::Read { memory, region } => {
            let target = target(queue, region.packed_length() as usize);
            native.read(memory.native()?, region, target, 0, waits)
        }
        Operation::Copy {
            source,
            destination,
        } => native.copy(
            (source.0.native()?, &source.1),
            (destination.0.native()?, &destination.1),
            waits,
        ),
        Operation::Fill {
            memory,
            pattern,
            offset,
            size,
        } => native.fill(memory.native()?, pattern, *offset, *size, waits),
        Operation::FillImage {
            memory,
            region,
            colour,
        } => native.fill_image(memory.native()?, region, *colour, waits),
        Operation::Migrate { memory, flags } => {
            let buffers = memory.iter().map(|m| m.native());
            native.migrate(&buffers.collect::<Result<Vec<_>, _>>()?, *flags, waits)
        }
        Operation::Marker | Operation::NdRange { shape: None, .. } => native.marker(waits),
        Operation::Barrier => native.barrier(waits),
        Operation::BulkWrite { .. }
        | Operation::BulkRead { .. }
        | Operation::Send { .. }
        | Operation::Receive { .. }
        | Operation::Replay { .. } => Err(Status::INVALID_OPERATION),
    }
}

/// The memory that a write comes from: pinned if the queue has room.
fn source(queue: &Queue, contents: &Bytes) -> Host {
    match queue.stage(contents.len()) {
        Some(part) => Host::pinned_copy(part, contents),
        None => Host::Source(contents.clone()),
    }
}

/// The memory that a read goes to: pinned if the queue has room.
fn target(queue: &Queue, length: usize) -> Host {
    match queue.stage(length) {
        Some(part) => Host::Pinned(part),
        None => Host::target(length),
    }
}

fn bound(kernel: &Kernel) -> Result<&Mutex<Bound>, Status> {
    kernel.native.as_ref().map_err(|s| *s)
}
