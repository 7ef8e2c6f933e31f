//! What each OpenCL command reads and writes. This table is the only one.
//!
//! | command | place | region | [`Mode`] |
//! |---|---|---|---|
//! | fill | the queue's site | the filled bytes | `Write` |
//! | write, write rect | the queue's site | bytes, rows | `Write` |
//! | copy, copy rect | see [`Coherence::place_for_copy`] | source / destination | `Read` / `Write` |
//! | read | see [`Coherence::gather`] | the bytes | `Read` |
//! | read rect | the queue's site | rows | `Read` |
//! | map for reading | the client | the mapped bytes | `Read` |
//! | map for writing (and reading) | the client | the mapped bytes | `MapWrite` |
//! | map `WRITE_INVALIDATE_REGION` | the client | the mapped bytes | `MapInvalidate` |
//! | unmap after a map for writing | the queue's site | the mapped bytes | `Upload` |
//! | unmap after a map for reading | – | nothing | – |
//! | migrate | the queue's site | the object | `Read` |
//! | migrate `HOST` | the client | the object | `Read` |
//! | migrate `CONTENT_UNDEFINED` | either | the object | `Discard` |
//! | launch: `__constant`, or buffer `READ_ONLY` | the queue's site | the object | `Read` |
//! | launch: `const` pointer, if the setting allows | the queue's site | the object | `Read` |
//! | launch: any other pointer, buffer `WRITE_ONLY` too | the queue's site | the object | `ReadWrite` |
//! | replay of a command buffer | the queue's site | its commands' regions | its commands'; if different: `ReadWrite` |
//!
//! `WRITE_ONLY` promises that a kernel does not read the buffer. The kernel need not write every byte,
//! and the bytes that it leaves alone must survive, so they must be valid. `HOST_*` flags restrict what
//! the application may enqueue and change nothing here. A sub-buffer is a range of its root: all regions
//! are the root's.
//!
//! Rectangles are tracked exactly, row by row, up to [`Limits::rows`] rows and while the directory has at
//! most [`Limits::pieces`] pieces. A rectangle beyond that has *many rows*. Neither a plan nor a
//! directory may grow with their number:
//!
//! | many rows | at | transferred | recorded in the directory |
//! |---|---|---|---|
//! | read | a site | the whole extent | the extent is valid there |
//! | write, fill, copy's destination | a site | the whole extent, first | the extent is modified there (`ReadWrite`) |
//! | unmap | a site | the same | the same (`UploadRows`); nothing for the client's copy |
//! | map | the client | the rows alone | nothing: the next map transfers them again |
//!
//! So a transfer may bring more than the command reads, and a range recorded as written was valid there
//! as a whole. The client's copy is never filled between the rows: the application may be writing there
//! through another map. If the extent holds lost bytes, many rows are taken one by one after all, because
//! the command needs no byte between them.
//!
//! [`Coherence::place_for_copy`]: super::Coherence::place_for_copy
//! [`Coherence::gather`]: super::Coherence::gather

use causeway_proto::id::MemoryId;
use causeway_proto::region::Region;

use super::place::Span;

/// Granularity limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of bytes of one transfer. Smaller transfers let a chain of readers pipeline.
    pub transfer: u64,
    /// A rectangle with more rows than this has many rows (see the module).
    pub rows: u64,
    /// If a directory has more pieces than this, every rectangle counts as many rows.
    pub pieces: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            transfer: 16 << 20,
            rows: 4096,
            pieces: 1 << 16,
        }
    }
}

/// How a command uses bytes at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Reads the bytes.
    Read,
    /// Reads the bytes, or changes only some of them.
    ReadWrite,
    /// Overwrites every byte without reading.
    Write,
    /// Unmap: the client's bytes replace those at the place. Both copies are valid afterwards.
    Upload,
    /// Unmap of many rows: the client's bytes replace some of those at the place, which must have the
    /// others.
    UploadRows,
    /// Fetches the bytes. After the command completes, the application may change the client's copy; the
    /// unmap reports that it has.
    MapWrite,
    /// Like [`Mode::MapWrite`], without fetching.
    MapInvalidate,
    /// The contents become undefined.
    Discard,
}

impl Mode {
    /// Whether the bytes must be valid at the place before the command.
    #[must_use]
    pub fn needs_bytes(self) -> bool {
        matches!(
            self,
            Mode::Read | Mode::ReadWrite | Mode::MapWrite | Mode::UploadRows
        )
    }

    /// Whether the command, or the application after it, changes bytes at the place.
    #[must_use]
    pub fn overwrites(self) -> bool {
        !matches!(self, Mode::Read | Mode::Discard)
    }

    // Combines two modes with which one command uses the same bytes.
    pub(super) fn and(self, other: Mode) -> Mode {
        if self == other {
            self
        } else if self == Mode::Discard {
            other
        } else if other == Mode::Discard {
            self
        } else {
            // The modes differ for arguments of one launch (reads and read-writes), and for commands of
            // one replay that run one after the other.
            Mode::ReadWrite
        }
    }
}

/// One use of a root buffer by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The root buffer.
    pub buffer: MemoryId,
    /// The bytes, in the root buffer.
    pub region: Region,
    /// How the command uses the bytes.
    pub mode: Mode,
}

/// The flags of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// `CL_MAP_READ` alone.
    Read,
    /// With `CL_MAP_WRITE`.
    Write,
    /// `CL_MAP_WRITE_INVALIDATE_REGION`.
    WriteInvalidate,
}

/// Facts about a kernel's pointer argument and its buffer that decide its [`Mode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ArgumentKind {
    /// The parameter is `__constant`.
    pub constant: bool,
    /// The parameter is a pointer to `const`.
    pub pointer_to_const: bool,
    /// The buffer was created with `CL_MEM_READ_ONLY`.
    pub read_only: bool,
}

impl Access {
    /// `clEnqueueFillBuffer`.
    #[must_use]
    pub fn fill(buffer: MemoryId, region: Region) -> Access {
        Access::new(buffer, region, Mode::Write)
    }

    /// `clEnqueueWriteBuffer`, `clEnqueueWriteBufferRect`.
    #[must_use]
    pub fn write(buffer: MemoryId, region: Region) -> Access {
        Access::new(buffer, region, Mode::Write)
    }

    /// `clEnqueueReadBuffer`, `clEnqueueReadBufferRect`.
    #[must_use]
    pub fn read(buffer: MemoryId, region: Region) -> Access {
        Access::new(buffer, region, Mode::Read)
    }

    /// `clEnqueueCopyBuffer`, `clEnqueueCopyBufferRect`.
    #[must_use]
    pub fn copy(source: (MemoryId, Region), destination: (MemoryId, Region)) -> [Access; 2] {
        [
            Access::new(source.0, source.1, Mode::Read),
            Access::new(destination.0, destination.1, Mode::Write),
        ]
    }

    /// `clEnqueueMapBuffer`. The command runs at the client.
    #[must_use]
    pub fn map(buffer: MemoryId, region: Region, kind: MapKind) -> Access {
        let mode = match kind {
            MapKind::Read => Mode::Read,
            MapKind::Write => Mode::MapWrite,
            MapKind::WriteInvalidate => Mode::MapInvalidate,
        };
        Access::new(buffer, region, mode)
    }

    /// `clEnqueueUnmapMemObject` after a map for writing.
    #[must_use]
    pub fn unmap(buffer: MemoryId, region: Region) -> Access {
        Access::new(buffer, region, Mode::Upload)
    }

    /// `clEnqueueMigrateMemObjects`. With `CL_MIGRATE_MEM_OBJECT_HOST` the command runs at the client.
    #[must_use]
    pub fn migrate(buffer: MemoryId, region: Region, content_undefined: bool) -> Access {
        let mode = if content_undefined {
            Mode::Discard
        } else {
            Mode::Read
        };
        Access::new(buffer, region, mode)
    }

    /// A buffer argument of a launch. `const_is_read` is the setting that trusts pointers to `const` to
    /// be read only.
    #[must_use]
    pub fn argument(
        buffer: MemoryId,
        region: Region,
        kind: ArgumentKind,
        const_is_read: bool,
    ) -> Access {
        let believed = kind.pointer_to_const && const_is_read;
        let mode = if kind.constant || kind.read_only || believed {
            Mode::Read
        } else {
            Mode::ReadWrite
        };
        Access::new(buffer, region, mode)
    }

    fn new(buffer: MemoryId, region: Region, mode: Mode) -> Access {
        Access {
            buffer,
            region,
            mode,
        }
    }

    /// Whether the region is a rectangle of more than `limit` rows.
    pub(super) fn has_many_rows(&self, limit: u64) -> bool {
        let [_, rows, slices] = self.region.size();
        !self.region.is_linear() && rows.saturating_mul(slices) > limit
    }

    /// Calls `each` for every span that this access touches at a site, with its mode. Up to `limit` rows
    /// are passed one by one, more as one extent.
    pub(super) fn for_each_span(&self, limit: u64, mut each: impl FnMut(Span, Mode)) {
        if self.region.packed_length() == 0 {
            return;
        }
        if self.has_many_rows(limit) {
            let of_extent = match self.mode {
                Mode::Read => Mode::Read,
                Mode::Upload | Mode::UploadRows => Mode::UploadRows,
                Mode::Write | Mode::ReadWrite | Mode::MapWrite | Mode::MapInvalidate => {
                    Mode::ReadWrite
                }
                // Discarding the whole extent would lose the bytes between the rows.
                Mode::Discard => return,
            };
            return each(Span::enclosing(&self.region), of_extent);
        }
        for row in self.region.segments(0, u64::MAX) {
            each(Span::of(&row), self.mode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: MemoryId = MemoryId(1);

    fn spans(access: Access, limit: u64) -> Vec<(Span, Mode)> {
        let mut spans = Vec::new();
        access.for_each_span(limit, |span, mode| spans.push((span, mode)));
        spans
    }

    #[test]
    fn only_what_promises_to_look_is_a_read() {
        let region = Region::linear(0, 8).unwrap();
        let mode = |constant, pointer_to_const, read_only, believed| {
            let kind = ArgumentKind {
                constant,
                pointer_to_const,
                read_only,
            };
            Access::argument(BUFFER, region, kind, believed).mode
        };
        assert_eq!(mode(false, false, false, true), Mode::ReadWrite);
        assert_eq!(mode(true, false, false, false), Mode::Read);
        assert_eq!(mode(false, false, true, false), Mode::Read);
        assert_eq!(mode(false, true, false, true), Mode::Read);
        assert_eq!(mode(false, true, false, false), Mode::ReadWrite);
    }

    #[test]
    fn few_rows_are_exact_and_many_are_their_extent() {
        let region = Region::rect(4, [2, 3, 1], 8, 24).unwrap();
        let row = |at| (Span::new(at, at + 2), Mode::Write);
        let write = Access::write(BUFFER, region);
        assert_eq!(spans(write, 3), [row(4), row(12), row(20)]);
        // The bytes between the rows must stay as they are.
        let extent = Span::new(4, 22);
        assert_eq!(spans(write, 2), [(extent, Mode::ReadWrite)]);
        let unmap = Access::unmap(BUFFER, region);
        assert_eq!(spans(unmap, 2), [(extent, Mode::UploadRows)]);
        let read = Access::read(BUFFER, region);
        assert_eq!(spans(read, 2), [(extent, Mode::Read)]);
        let discard = Access::migrate(BUFFER, region, true);
        assert_eq!(spans(discard, 2), []);
    }

    #[test]
    fn no_bytes_are_no_access() {
        let nothing = Region::linear(5, 0).unwrap();
        assert!(spans(Access::fill(BUFFER, nothing), 10).is_empty());
    }
}
