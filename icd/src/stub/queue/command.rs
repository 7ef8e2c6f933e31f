//! What a command does, before a site is chosen.
//!
//! A new kind of command is a variant of [`NodeCommand`], with its message ([`NodeCommand::encode`]) and the
//! ranges that it reads and writes ([`NodeCommand::accesses`]). In a context of one site the queue sends the
//! message at once (`queue/send.rs`). In a context of several sites the [sequence](crate::stub::distributed)
//! decides where the command runs and which bytes must move first. These two also decide how the bytes of
//! transfers travel. Specification: the enqueue functions.
//!
//! Not here: events and wait lists ([`EventSpec`]). Invariant: all arguments are validated, and all regions
//! lie inside their buffers.

use std::borrow::Cow;
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
use crate::stub::event::{EventSpec, Note};
use crate::stub::kernel::{self, Snapshot};
use crate::stub::queue::encoded::Encoded;
use crate::stub::{Buffer, Event, Site};
use crate::transport::HostRegion;
use crate::transport::inline_reads::InlineRead;

/// What a command does. Regions count from the start of the buffer or sub-buffer that they belong to.
#[derive(Debug)]
pub enum Command {
    /// A command that moves no bytes between host memory and the node.
    Node(NodeCommand),
    /// A read into host memory.
    Read(HostTransfer),
    /// A write from host memory.
    Write(HostTransfer),
    /// The unmap of a map for writing: a write from the client's own copy. Both copies are valid afterwards.
    Unmap(HostTransfer),
    /// A map: makes host memory show the buffer's bytes.
    Map(Map),
    /// A read into memory of the client's. Its end copies the bytes to where the buffer is mapped.
    StagedRead {
        /// The read.
        read: HostTransfer,
        /// The addresses that the end writes, as a region counted from 0.
        to: Region,
    },
    /// A copy within the application's memory. The client makes it when the command ends.
    HostCopy {
        /// The source.
        from: HostRegion,
        /// The destination, of the same length.
        to: HostRegion,
    },
}

/// A command that moves no bytes between host memory and the node. Its message says all that it does.
#[derive(Debug)]
pub enum NodeCommand {
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

    /// Has the bytes of a read come inside of its completion, if they are few. `None`: they come by lanes.
    pub(in crate::stub) fn inline_on(&self, site: &Site) -> Option<InlineRead> {
        let bytes = self.is_small().then(|| self.region.packed_length());
        site.session().inline_reads().take(bytes? as usize)
    }

    /// Returns the access of the command in a context of several sites, made by `kind`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when the region is not inside its root buffer.
    pub(in crate::stub) fn access(
        &self,
        kind: impl FnOnce(MemoryId, Region) -> Access,
    ) -> ClResult<[Access; 1]> {
        let (buffer, region) = in_root(&self.buffer, &self.region)?;
        Ok([kind(buffer, region)])
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
    /// Whether the command writes host memory, so that the application can observe its end without an
    /// event.
    pub(in crate::stub) fn writes_host(&self) -> bool {
        match self {
            Command::Read(_) | Command::StagedRead { .. } | Command::HostCopy { .. } => true,
            Command::Map(map) => map.fetches,
            _ => false,
        }
    }

    /// Returns what the program's trace says of the command.
    pub(in crate::stub) fn note(&self) -> Note {
        let bytes = match self {
            Command::Node(NodeCommand::Launch(launch)) => return launch.kernel().note(),
            Command::Read(transfer)
            | Command::StagedRead { read: transfer, .. }
            | Command::Write(transfer)
            | Command::Unmap(transfer) => Some(transfer.region.packed_length()),
            Command::Map(map) => map.fetches.then(|| map.transfer.region.packed_length()),
            Command::HostCopy { to, .. } => Some(to.length()),
            Command::Node(
                NodeCommand::Copy {
                    source: (_, region),
                    ..
                }
                | NodeCommand::Fill { region, .. }
                | NodeCommand::FillImage { region, .. },
            ) => Some(region.packed_length()),
            Command::Node(_) => None,
        };
        Note { name: None, bytes }
    }
}

impl NodeCommand {
    /// Returns the command's message for a site. Creates buffers on the site that do not exist there yet.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site's session is lost.
    pub(in crate::stub) fn encode(&self, site: &Site) -> ClResult<(Encoded, Commit<'_>)> {
        let operation = match self {
            NodeCommand::Marker | NodeCommand::Nothing => Operation::Marker(Marker {}),
            NodeCommand::Barrier => Operation::Barrier(Barrier {}),
            NodeCommand::Copy {
                source,
                destination,
            } => Operation::CopyBuffer(copy_message(source, destination, site)?),
            NodeCommand::Fill {
                buffer,
                pattern,
                region,
            } => Operation::FillBuffer(fill_message(buffer, pattern, region, site)?),
            NodeCommand::FillImage {
                image,
                colour,
                region,
            } => Operation::FillImage(fill_image_message(image, colour, region, site)?),
            NodeCommand::Migrate { buffers, flags } => {
                let ids = buffers.iter().map(|buffer| Ok(buffer.id_on(site)?.0));
                Operation::Migrate(Migrate {
                    memory: ids.collect::<ClResult<_>>()?,
                    flags: *flags,
                })
            }
            NodeCommand::Launch(launch) => {
                let (launch, commit) = launch.encode(site)?;
                return Ok((launch, Commit::Launch(commit)));
            }
            NodeCommand::Replay(replay) => {
                let (replay, commit) = replay.message(site)?;
                let replay = Encoded::of(&Operation::Replay(replay));
                return Ok((replay, Commit::Replay(commit)));
            }
        };
        Ok((Encoded::of(&operation), Commit::None))
    }

    /// Returns the ranges that the command reads and writes, in a context of several sites.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when a region is not inside its root buffer.
    pub(in crate::stub) fn accesses(&self) -> ClResult<Cow<'_, [Access]>> {
        let accesses = match self {
            NodeCommand::Marker | NodeCommand::Barrier | NodeCommand::Nothing => Vec::new(),
            NodeCommand::Copy {
                source,
                destination,
            } => {
                let source = in_root(&source.0, &source.1)?;
                Access::copy(source, in_root(&destination.0, &destination.1)?).to_vec()
            }
            NodeCommand::Fill { buffer, region, .. }
            | NodeCommand::FillImage {
                image: buffer,
                region,
                ..
            } => {
                let (buffer, region) = in_root(buffer, region)?;
                vec![Access::fill(buffer, region)]
            }
            NodeCommand::Migrate { buffers, flags } => {
                let undefined = flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED != 0;
                // Pipes have no copies that could be valid or invalid, and cannot be migrated.
                let buffers = buffers.iter().filter(|of| of.pipe().is_none());
                let accesses = buffers.map(|buffer| {
                    let (id, whole) = in_root(buffer, &buffer.range(0, buffer.size())?)?;
                    Ok(Access::migrate(id, whole, undefined))
                });
                accesses.collect::<ClResult<_>>()?
            }
            NodeCommand::Launch(launch) => launch.accesses()?,
            // These may be many.
            NodeCommand::Replay(replay) => return Ok(Cow::Borrowed(replay.accesses())),
        };
        Ok(Cow::Owned(accesses))
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
