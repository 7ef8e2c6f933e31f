//! The work of a command, in terms of buffers and images, before a site is chosen.
//!
//! In a context of one site, the work becomes a wire operation at once. In a distributed context, the
//! [sequence](super::distributed) decides where it runs and which bytes must move first. Specification: the
//! enqueue functions. Invariant: all arguments are validated, and all regions lie inside their buffers.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{
    Barrier, CopyBuffer, FillBuffer, FillImage, Marker, Migrate, enqueue::Operation,
};
use causeway_proto::region::Region;

use super::command_buffer::Replay;
use super::encoded::Encoded;
use super::host_ranges::HostWrite;
use super::kernel::Snapshot;
use super::{Buffer, Site};
use crate::coherence::{Access, MapKind};
use crate::error::ClResult;
use crate::transport::HostRegion;

/// The work of a command. Regions count from the start of the buffer or sub-buffer that they belong to.
pub enum Work {
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
    /// An operation that was already made for the queue's site (contexts of one site).
    Ready(Operation),
    /// An operation that is encoded already: a launch, or a write with its bytes (contexts of one site).
    Encoded(Encoded),
    /// A kernel launch (distributed contexts).
    Launch(Snapshot),
    /// A read into the application's memory (distributed contexts).
    Read(Read),
    /// A write from the application's memory, or the unmap of a map for writing (distributed contexts).
    Write(Write),
    /// A map (distributed contexts).
    Map(Map),
    /// The commands of a command buffer.
    Replay(Replay),
}

/// An operation as it is sent.
pub(super) enum OnWire {
    /// A protobuf message.
    Message(Operation),
    /// An operation that is encoded already.
    Encoded(Encoded),
}

impl OnWire {
    /// Converts the work to the operation for the only site of a context.
    ///
    /// # Errors
    /// Those of [`Work::on`].
    pub(super) fn of(work: Work, site: &Site) -> ClResult<OnWire> {
        match work {
            Work::Encoded(encoded) => Ok(OnWire::Encoded(encoded)),
            work => work.on(site).map(OnWire::Message),
        }
    }

    /// Whether the command has no effect on the client but its end, and the completion alone reports that
    /// end.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            OnWire::Encoded(_) => true,
            OnWire::Message(operation) => match operation {
                Operation::NdRange(_)
                | Operation::CopyBuffer(_)
                | Operation::FillBuffer(_)
                | Operation::FillImage(_)
                | Operation::Migrate(_)
                | Operation::Marker(_)
                | Operation::Barrier(_) => true,
                Operation::WriteBuffer(write) => !write.bulk,
                Operation::ReadBuffer(_)
                | Operation::Replay(_)
                | Operation::SendRegion(_)
                | Operation::ReceiveRegion(_) => false,
            },
        }
    }
}

/// The data of [`Work::Read`].
pub struct Read {
    /// The buffer to read.
    pub buffer: Arc<Buffer>,
    /// The bytes to read.
    pub region: Region,
    /// The destination in host memory.
    pub host: HostRegion,
    /// Announces the write to host memory, for the ordering of transfers.
    pub(super) writing: HostWrite,
    /// Dropped when the command no longer touches host memory.
    pub keep: Option<Box<dyn Send>>,
}

/// The data of [`Work::Write`].
pub struct Write {
    /// The buffer to write.
    pub buffer: Arc<Buffer>,
    /// The bytes to write.
    pub region: Region,
    /// The source in host memory.
    pub host: HostRegion,
    /// Whether the source is the client's own copy of the buffer, as for an unmap. Both copies are valid
    /// afterwards.
    pub unmaps: bool,
    /// Dropped when the command no longer touches host memory.
    pub keep: Option<Box<dyn Send>>,
}

/// The data of [`Work::Map`].
pub struct Map {
    /// The buffer to map.
    pub buffer: Arc<Buffer>,
    /// The bytes to map.
    pub region: Region,
    /// Whether the map is for reading or writing.
    pub kind: MapKind,
    /// Dropped when the map is complete.
    pub keep: Box<dyn Send>,
}

impl Work {
    /// Converts the work to the wire's operation for a site. Creates buffers on the site that do not exist
    /// there yet.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site's session is lost.
    ///
    /// # Panics
    /// For work that only the sequence of a distributed context can convert, and for encoded operations.
    pub(super) fn on(self, site: &Site) -> ClResult<Operation> {
        Ok(match self {
            Work::Marker | Work::Nothing => Operation::Marker(Marker {}),
            Work::Barrier => Operation::Barrier(Barrier {}),
            Work::Copy {
                source,
                destination,
            } => Operation::CopyBuffer(CopyBuffer {
                source: source.0.id_on(site)?.0,
                destination: destination.0.id_on(site)?.0,
                source_region: Some(source.1.to_wire()),
                destination_region: Some(destination.1.to_wire()),
            }),
            Work::Fill {
                buffer,
                pattern,
                region,
            } => Operation::FillBuffer(FillBuffer {
                buffer: buffer.id_on(site)?.0,
                pattern,
                offset: region.offset(),
                size: region.packed_length(),
            }),
            Work::FillImage {
                image,
                colour,
                region,
            } => Operation::FillImage(FillImage {
                image: image.id_on(site)?.0,
                region: Some(region.to_wire()),
                colour: colour.to_vec().into(),
            }),
            Work::Migrate { buffers, flags } => {
                let ids = buffers.iter().map(|buffer| Ok(buffer.id_on(site)?.0));
                Operation::Migrate(Migrate {
                    memory: ids.collect::<ClResult<_>>()?,
                    flags,
                })
            }
            Work::Ready(operation) => operation,
            Work::Launch(_) | Work::Replay(_) | Work::Read(_) | Work::Write(_) | Work::Map(_) => {
                unreachable!("only the sequence of a distributed context sends this work")
            }
            Work::Encoded(_) => unreachable!("encoded work has no message; OnWire::of handles it"),
        })
    }

    /// Returns the ranges that a command on the node reads and writes, in a context of several sites.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when a region is not inside its root buffer.
    pub(super) fn accesses(&self) -> ClResult<Vec<Access>> {
        let of = |buffer: &Arc<Buffer>, region: &Region| -> ClResult<_> {
            Ok((buffer.root().id(), buffer.in_root(region)?))
        };
        Ok(match self {
            Work::Copy {
                source,
                destination,
            } => {
                let source = of(&source.0, &source.1)?;
                Access::copy(source, of(&destination.0, &destination.1)?).to_vec()
            }
            Work::Fill { buffer, region, .. }
            | Work::FillImage {
                image: buffer,
                region,
                ..
            } => {
                let (buffer, region) = of(buffer, region)?;
                vec![Access::fill(buffer, region)]
            }
            _ => Vec::new(),
        })
    }

    /// Returns two flags: whether the work is a marker or barrier, and whether it is a barrier.
    pub(super) fn synchronises(&self) -> (bool, bool) {
        match self {
            Work::Marker | Work::Ready(Operation::Marker(_)) => (true, false),
            Work::Barrier | Work::Ready(Operation::Barrier(_)) => (true, true),
            _ => (false, false),
        }
    }
}
