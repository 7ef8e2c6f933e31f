//! What a command does, before a site is chosen.
//!
//! A new kind of command is a variant here, with its message ([`Command::encode`]) and the ranges that it
//! reads and writes ([`Command::accesses`]). In a context of one site the queue sends the message at once
//! (`queue/send.rs`). In a context of several sites the [sequence](crate::stub::distributed) decides where the
//! command runs and which bytes must move first. Specification: the enqueue functions.
//!
//! Not here: events and wait lists ([`EventSpec`]). Invariant: all arguments are validated, and all regions
//! lie inside their buffers.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{
    Barrier, CopyBuffer, FillBuffer, FillImage, Marker, Migrate, enqueue::Operation,
};
use causeway_proto::id::MemoryId;
use causeway_proto::limits::INLINE_PAYLOAD;
use causeway_proto::region::Region;
use cl_headers::types::CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;

use crate::coherence::{Access, MapKind};
use crate::error::ClResult;
use crate::stub::command_buffer::{self, Replay};
use crate::stub::event::EventSpec;
use crate::stub::kernel::{self, Snapshot};
use crate::stub::queue::encoded::Encoded;
use crate::stub::{Buffer, Event, Site};
use crate::transport::HostRegion;

/// What a command does. Regions count from the start of the buffer or sub-buffer that they belong to.
#[derive(Debug)]
pub enum Command {
    /// Waits for the wait list, or for everything before if the list is empty.
    Marker,
    /// Like `Marker`; in addition, everything enqueued later waits for it.
    Barrier,
    /// Takes its place in the order and waits for its wait list, but does nothing else.
    Nothing,
    /// Copies on the device.
    Copy {
        /// Source buffer and region.
        source: (Arc<Buffer>, Region),
        /// Destination buffer and region, with as many bytes in the same shape.
        destination: (Arc<Buffer>, Region),
    },
    /// Fills a range with a repeated pattern.
    Fill {
        /// The buffer to fill.
        buffer: Arc<Buffer>,
        /// The pattern.
        pattern: Bytes,
        /// The bytes to fill.
        region: Region,
    },
    /// Fills a box of an image with a colour.
    FillImage {
        /// The image to fill.
        image: Arc<Buffer>,
        /// The colour, as `clEnqueueFillImage` takes it.
        colour: [u8; 16],
        /// The region to fill.
        region: Region,
    },
    /// `clEnqueueMigrateMemObjects`.
    Migrate {
        /// The objects to migrate.
        buffers: Vec<Arc<Buffer>>,
        /// `CL_MIGRATE_MEM_OBJECT_*`.
        flags: u64,
    },
    /// A kernel launch.
    Launch(Snapshot),
    /// The commands of a command buffer.
    Replay(Replay),
    /// A read into host memory.
    Read(HostTransfer),
    /// A write from host memory.
    Write(HostTransfer),
    /// The unmap of a map for writing: a write from the client's own copy. Both copies are valid afterwards.
    Unmap(HostTransfer),
    /// A map: makes host memory show the buffer's bytes.
    Map(Map),
    /// A copy within the application's memory. The client makes it when the command ends.
    HostCopy {
        /// The source.
        from: HostRegion,
        /// The destination, of the same length.
        to: HostRegion,
    },
}

/// The bytes of a buffer and of host memory that a command moves.
#[derive(Debug)]
pub struct HostTransfer {
    /// The buffer or sub-buffer.
    pub buffer: Arc<Buffer>,
    /// The bytes of the buffer.
    pub region: Region,
    /// Host memory of the same length.
    pub host: HostRegion,
}

/// The data of [`Command::Map`].
#[derive(Debug)]
pub struct Map {
    /// The mapped bytes as a region of the whole object, and the memory where they are mapped.
    pub transfer: HostTransfer,
    /// What the map is for.
    pub kind: MapKind,
    /// Whether the memory must show the present contents.
    pub fetches: bool,
}

/// A command about to be enqueued.
#[derive(Debug)]
pub struct Enqueue {
    /// What the command does.
    pub command: Command,
    /// What its event is made from.
    pub event: EventSpec,
}

/// A command that was enqueued.
#[derive(Debug)]
pub struct Enqueued {
    /// The event of the command.
    pub event: Arc<Event>,
    /// Whether the bytes of a write were copied out of host memory already.
    pub taken: bool,
}

impl HostTransfer {
    /// Whether the bytes are few enough to travel inside of the command or its completion.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.region.packed_length() <= INLINE_PAYLOAD as u64
    }

    /// Returns the region within the whole object that the buffer is a part of.
    fn in_root(&self) -> ClResult<(MemoryId, Region)> {
        in_root(&self.buffer, &self.region)
    }
}

fn in_root(buffer: &Arc<Buffer>, region: &Region) -> ClResult<(MemoryId, Region)> {
    Ok((buffer.root().id(), buffer.in_root(region)?))
}

/// Lock between encoding a command and appending it to the session. Launches and replays carry differences
/// from what was sent before, so no other one of the same object may come between.
#[must_use]
pub(in crate::stub) enum Commit<'a> {
    /// The command carries no differences.
    None,
    /// Of a launch.
    Launch(kernel::Commit<'a>),
    /// Of a replay.
    Replay(command_buffer::Commit<'a>),
}

impl Commit<'_> {
    /// Records that the command was appended. Without this call it counts as not sent.
    pub(in crate::stub) fn sent(self) {
        match self {
            Commit::None => {}
            Commit::Launch(commit) => commit.sent(),
            Commit::Replay(commit) => commit.sent(),
        }
    }
}

impl Command {
    /// Returns the command's message for a site. Creates buffers on the site that do not exist there yet.
    /// The bytes of transfers travel on bulk connections; `queue/send.rs` encodes those that travel inside of
    /// the message.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site's session is lost.
    pub(in crate::stub) fn encode(&self, site: &Site) -> ClResult<(Encoded, Commit<'_>)> {
        let operation = match self {
            // The client does the rest when the marker ends.
            Command::Marker | Command::Nothing | Command::Map(_) | Command::HostCopy { .. } => {
                Operation::Marker(Marker {})
            }
            Command::Barrier => Operation::Barrier(Barrier {}),
            Command::Copy {
                source,
                destination,
            } => Operation::CopyBuffer(copy_message(source, destination, site)?),
            Command::Fill {
                buffer,
                pattern,
                region,
            } => Operation::FillBuffer(fill_message(buffer, pattern, region, site)?),
            Command::FillImage {
                image,
                colour,
                region,
            } => Operation::FillImage(fill_image_message(image, colour, region, site)?),
            Command::Migrate { buffers, flags } => {
                let ids = buffers.iter().map(|buffer| Ok(buffer.id_on(site)?.0));
                Operation::Migrate(Migrate {
                    memory: ids.collect::<ClResult<_>>()?,
                    flags: *flags,
                })
            }
            Command::Launch(launch) => {
                let (launch, commit) = launch.encode(site)?;
                return Ok((launch, Commit::Launch(commit)));
            }
            Command::Replay(replay) => {
                let (replay, commit) = replay.message(site)?;
                let replay = Encoded::of(&Operation::Replay(replay));
                return Ok((replay, Commit::Replay(commit)));
            }
            Command::Read(HostTransfer { buffer, region, .. }) => {
                return Ok((
                    Encoded::read(buffer.id_on(site)?, region, true),
                    Commit::None,
                ));
            }
            Command::Write(HostTransfer { buffer, region, .. })
            | Command::Unmap(HostTransfer { buffer, region, .. }) => {
                let write = Encoded::bulk_write(buffer.id_on(site)?, region, false);
                return Ok((write, Commit::None));
            }
        };
        Ok((Encoded::of(&operation), Commit::None))
    }

    /// Returns the ranges that the command reads and writes, in a context of several sites.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when a region is not inside its root buffer.
    pub(in crate::stub) fn accesses(&self) -> ClResult<Vec<Access>> {
        let accesses = match self {
            Command::Marker | Command::Barrier | Command::Nothing | Command::HostCopy { .. } => {
                Vec::new()
            }
            Command::Copy {
                source,
                destination,
            } => {
                let source = in_root(&source.0, &source.1)?;
                Access::copy(source, in_root(&destination.0, &destination.1)?).to_vec()
            }
            Command::Fill { buffer, region, .. }
            | Command::FillImage {
                image: buffer,
                region,
                ..
            } => {
                let (buffer, region) = in_root(buffer, region)?;
                vec![Access::fill(buffer, region)]
            }
            Command::Migrate { buffers, flags } => {
                let undefined = flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED != 0;
                // Pipes have no copies that could be valid or invalid, and cannot be migrated.
                let buffers = buffers.iter().filter(|of| of.pipe().is_none());
                let accesses = buffers.map(|buffer| {
                    let (id, whole) = in_root(buffer, &buffer.range(0, buffer.size())?)?;
                    Ok(Access::migrate(id, whole, undefined))
                });
                accesses.collect::<ClResult<_>>()?
            }
            Command::Launch(launch) => launch.accesses()?,
            Command::Replay(replay) => replay.accesses().to_vec(),
            Command::Read(read) => {
                let (buffer, region) = read.in_root()?;
                vec![Access::read(buffer, region)]
            }
            Command::Write(write) => {
                let (buffer, region) = write.in_root()?;
                vec![Access::write(buffer, region)]
            }
            Command::Unmap(unmap) => {
                let (buffer, region) = unmap.in_root()?;
                vec![Access::unmap(buffer, region)]
            }
            Command::Map(map) => {
                let (buffer, region) = map.transfer.in_root()?;
                vec![Access::map(buffer, region, map.kind)]
            }
        };
        Ok(accesses)
    }

    /// Whether the command writes host memory, so that the application can observe its end without an
    /// event.
    pub(in crate::stub) fn writes_host(&self) -> bool {
        match self {
            Command::Read(_) | Command::HostCopy { .. } => true,
            Command::Map(map) => map.fetches,
            _ => false,
        }
    }
}

/// The message of a copy on a site.
pub(in crate::stub) fn copy_message(
    source: &(Arc<Buffer>, Region),
    destination: &(Arc<Buffer>, Region),
    site: &Site,
) -> ClResult<CopyBuffer> {
    Ok(CopyBuffer {
        source: source.0.id_on(site)?.0,
        destination: destination.0.id_on(site)?.0,
        source_region: Some(source.1.to_wire()),
        destination_region: Some(destination.1.to_wire()),
    })
}

/// The message of a fill on a site.
pub(in crate::stub) fn fill_message(
    buffer: &Arc<Buffer>,
    pattern: &Bytes,
    region: &Region,
    site: &Site,
) -> ClResult<FillBuffer> {
    Ok(FillBuffer {
        buffer: buffer.id_on(site)?.0,
        pattern: pattern.clone(),
        offset: region.offset(),
        size: region.packed_length(),
    })
}

/// The message of an image's fill on a site.
pub(in crate::stub) fn fill_image_message(
    image: &Arc<Buffer>,
    colour: &[u8; 16],
    region: &Region,
    site: &Site,
) -> ClResult<FillImage> {
    Ok(FillImage {
        image: image.id_on(site)?.0,
        region: Some(region.to_wire()),
        colour: colour.to_vec().into(),
    })
}
