//! Turns an `Enqueue` message into a task that can go to a native queue at any later time.
//!
//! All ids are looked up and checked here, in command order. The task keeps its objects alive. A launch
//! takes its arguments in their current state. An error that the client could not know of becomes the
//! task's status: a broken object, or a region outside of its buffer. A message that no Causeway client
//! sends ends the session.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{
    CopyBuffer, Enqueue, FillBuffer, FillImage, Migrate, NdRange, ReadBuffer, Region as WireRegion,
    WriteBuffer, enqueue,
};
use causeway_proto::id::{EventId, KernelId, LinkId, MemoryId};
use causeway_proto::limits::{BULK_CHUNK, INLINE_PAYLOAD, MAX_LIST};
use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::graph::Role;
use super::tables::{Objects, find};
use super::violation::Violation;
use super::{arguments, command_buffers};
use crate::runtime::kernel::Shape;
use crate::worker::objects::command::Kind;
use crate::worker::objects::task::{Direction, Expects, Far, Operation};
use crate::worker::objects::{Memory, Queue};

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
    pub(super) fn plain(operation: Result<Operation, Status>) -> Prepared {
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
///
/// # Errors
/// [`Violation`] for a message that no Causeway client sends.
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
        enqueue::Operation::Replay(replay) => command_buffers::replay(&replay, objects, version)?,
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
pub(super) fn shape_of(launch: &NdRange) -> Result<Option<Shape>, Violation> {
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

pub(super) fn copy_buffer(copy: &CopyBuffer, objects: &Objects) -> Result<Prepared, Violation> {
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

pub(super) fn fill_buffer(fill: FillBuffer, objects: &Objects) -> Result<Prepared, Violation> {
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

pub(super) fn fill_image(fill: &FillImage, objects: &Objects) -> Result<Prepared, Violation> {
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
