//! What a command does, before it is known where: buffers and images instead of ids.
//!
//! In a context of one site it becomes the wire's operation at once; in a distributed one the
//! [sequence](super::distributed) decides where it runs and what must move first. Specification: the
//! enqueue functions. Invariant: everything was checked before; bytes and offsets are inside of their buffers.

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

/// See the module. Regions count from the start of the buffer or sub-buffer that they belong to.
pub enum Work {
    /// Waits for its wait list, or for everything before it.
    Marker,
    /// The same, and everything later comes after it.
    Barrier,
    /// Takes its place in the order and waits for its wait list, nothing else.
    Nothing,
    /// Copies on the device.
    Copy {
        /// From where.
        source: (Arc<Buffer>, Region),
        /// To where; as many bytes in the same shape.
        destination: (Arc<Buffer>, Region),
    },
    /// Repeats a pattern.
    Fill {
        /// Where.
        buffer: Arc<Buffer>,
        /// What.
        pattern: Bytes,
        /// Which bytes.
        region: Region,
    },
    /// Fills a box of an image with a colour.
    FillImage {
        /// Where.
        image: Arc<Buffer>,
        /// As `clEnqueueFillImage` takes it.
        colour: [u8; 16],
        /// Which bytes.
        region: Region,
    },
    /// `clEnqueueMigrateMemObjects`.
    Migrate {
        /// Which objects.
        buffers: Vec<Arc<Buffer>>,
        /// `CL_MIGRATE_MEM_OBJECT_*`.
        flags: u64,
    },
    /// Made for the queue's site already (contexts of one site).
    Ready(Operation),
    /// The same, encoded already: a launch or a write with its bytes.
    Encoded(Encoded),
    /// A launch (distributed contexts).
    Launch(Snapshot),
    /// A read into the application's memory (distributed contexts).
    Read(Read),
    /// A write from the application's memory, or the end of a map for writing (distributed contexts).
    Write(Write),
    /// A map (distributed contexts).
    Map(Map),
    /// A command buffer's commands.
    Replay(Replay),
}

/// An operation in the terms of the wire.
pub(super) enum OnWire {
    /// As its message.
    Message(Operation),
    /// Encoded already.
    Encoded(Encoded),
}

impl OnWire {
    /// What a site of a context without others is told.
    ///
    /// # Errors
    /// As [`Work::on`].
    pub(super) fn of(work: Work, site: &Site) -> ClResult<OnWire> {
        match work {
            Work::Encoded(encoded) => Ok(OnWire::Encoded(encoded)),
            work => work.on(site).map(OnWire::Message),
        }
    }

    /// Whether nothing but its end comes of the command, and that is at once what the wire says.
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

/// See [`Work::Read`].
pub struct Read {
    /// Of what.
    pub buffer: Arc<Buffer>,
    /// Which bytes.
    pub region: Region,
    /// To where.
    pub host: HostRegion,
    /// Says that the memory will be written.
    pub(super) writing: HostWrite,
    /// Let go when the memory is touched no more.
    pub keep: Option<Box<dyn Send>>,
}

/// See [`Work::Write`].
pub struct Write {
    /// Of what.
    pub buffer: Arc<Buffer>,
    /// Which bytes.
    pub region: Region,
    /// From where.
    pub host: HostRegion,
    /// Whether the host's bytes are the client's copy of the buffer: then both are valid afterwards.
    pub unmaps: bool,
    /// Let go when the memory is touched no more.
    pub keep: Option<Box<dyn Send>>,
}

/// See [`Work::Map`].
pub struct Map {
    /// Of what.
    pub buffer: Arc<Buffer>,
    /// Which bytes.
    pub region: Region,
    /// What for.
    pub kind: MapKind,
    /// Let go when the map is there.
    pub keep: Box<dyn Send>,
}

impl Work {
    /// The wire's operation for a site, where the buffers are made if they are not there yet.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site's session is lost.
    ///
    /// # Panics
    /// For what only the sequence of a distributed context can turn into operations.
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
                unreachable!("of a distributed context, whose sequence sends it")
            }
            Work::Encoded(_) => unreachable!("encoded already, for the one site of its context"),
        })
    }

    /// What a command that runs on the node reads and writes, in a context of several sites.
    ///
    /// # Errors
    /// What placing a region in its root buffer says.
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

    /// Whether it is a marker that waits for everything when nothing is in its list, and whether it is
    /// a barrier.
    pub(super) fn synchronises(&self) -> (bool, bool) {
        match self {
            Work::Marker | Work::Ready(Operation::Marker(_)) => (true, false),
            Work::Barrier | Work::Ready(Operation::Barrier(_)) => (true, true),
            _ => (false, false),
        }
    }
}
