//! What each OpenCL command reads and writes: the one table.
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
//! | unmap of what was mapped for writing | the queue's site | those bytes | `Upload` |
//! | unmap of what was mapped for reading | – | nothing | – |
//! | migrate | the queue's site | the object | `Read` |
//! | migrate `HOST` | the client | the object | `Read` |
//! | migrate `CONTENT_UNDEFINED` | either | the object | `Discard` |
//! | launch: `__constant`, or buffer `READ_ONLY` | the queue's site | the object | `Read` |
//! | launch: `const` pointer, if the setting allows | the queue's site | the object | `Read` |
//! | launch: any other pointer, buffer `WRITE_ONLY` too | the queue's site | the object | `ReadWrite` |
//! | replay of a command buffer | the queue's site | those of its commands | theirs; different ones: `ReadWrite` |
//!
//! `WRITE_ONLY` promises that a kernel does not look, not that it writes every byte; what it leaves
//! alone must be there afterwards, so the bytes are needed. `HOST_*` flags say what the application may
//! enqueue; they change nothing here. A sub-buffer is a range of its root: regions are the root's.
//!
//! Rectangles are exact row by row up to [`Limits::rows`] (and as long as the directory is not already
//! cut into [`Limits::pieces`]). Beyond, rows are *many*, and neither a plan nor a directory may grow with
//! them:
//!
//! | many rows | at | what moves | what the directory notes |
//! |---|---|---|---|
//! | read | a site | the whole extent | the extent is valid there |
//! | write, fill, copy's destination | a site | the whole extent, then the rows are written | the extent is modified there (`ReadWrite`) |
//! | unmap | a site | the same | the same (`UploadRows`); nothing of the client's copy |
//! | map | the client | the rows alone | nothing: the rows move again for the next map |
//!
//! So what is fetched may be more than what is read, and a range that is noted as written was valid there
//! as a whole. The client's copy is never filled beside the rows: the application may be writing there,
//! through another map. Where the extent holds bytes that are lost, many rows are taken one by one all the
//! same, since the command needs none of what lies between.
//!
//! [`Coherence::place_for_copy`]: super::Coherence::place_for_copy
//! [`Coherence::gather`]: super::Coherence::gather

use causeway_proto::id::MemoryId;
use causeway_proto::region::Region;

use super::place::Span;

/// How finely things are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one transfer at most: a chain of readers pipelines.
    pub transfer: u64,
    /// More rows than these are many rows (see the module).
    pub rows: u64,
    /// In a directory of more pieces, every rectangle is one of many rows.
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
    /// Looks at them.
    Read,
    /// Looks at them or leaves some as they are, and changes others.
    ReadWrite,
    /// Changes every one without looking.
    Write,
    /// Unmap: the client's bytes replace those at the place; both copies are valid then.
    Upload,
    /// Unmap of many rows: the client's bytes replace some of those at the place, which needs the others.
    UploadRows,
    /// Fetches them, and the application may change the client's copy once the command is complete; the
    /// unmap says that it has.
    MapWrite,
    /// The same without fetching.
    MapInvalidate,
    /// Nobody wants what is there.
    Discard,
}

impl Mode {
    /// Whether the bytes must be valid at the place.
    #[must_use]
    pub fn needs_bytes(self) -> bool {
        matches!(
            self,
            Mode::Read | Mode::ReadWrite | Mode::MapWrite | Mode::UploadRows
        )
    }

    /// Whether bytes at the place change, by the command or by the application after it.
    #[must_use]
    pub fn overwrites(self) -> bool {
        !matches!(self, Mode::Read | Mode::Discard)
    }

    // What one command does that does both to the same bytes.
    pub(super) fn and(self, other: Mode) -> Mode {
        if self == other {
            self
        } else if self == Mode::Discard {
            other
        } else if other == Mode::Discard {
            self
        } else {
            // Different uses of one byte by one command: arguments of a launch, which are reads and read-writes, and
            // what a replay's commands do one after the other.
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
    /// How.
    pub mode: Mode,
}

/// How a map was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// `CL_MAP_READ` alone.
    Read,
    /// With `CL_MAP_WRITE`.
    Write,
    /// `CL_MAP_WRITE_INVALIDATE_REGION`.
    WriteInvalidate,
}

/// What is known of a kernel's pointer argument and its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ArgumentKind {
    /// The parameter is `__constant`.
    pub constant: bool,
    /// The parameter is a pointer to `const`.
    pub pointer_to_const: bool,
    /// The buffer was made with `CL_MEM_READ_ONLY`.
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

    /// `clEnqueueMapBuffer`; runs at the client.
    #[must_use]
    pub fn map(buffer: MemoryId, region: Region, kind: MapKind) -> Access {
        let mode = match kind {
            MapKind::Read => Mode::Read,
            MapKind::Write => Mode::MapWrite,
            MapKind::WriteInvalidate => Mode::MapInvalidate,
        };
        Access::new(buffer, region, mode)
    }

    /// `clEnqueueUnmapMemObject` of what was mapped for writing.
    #[must_use]
    pub fn unmap(buffer: MemoryId, region: Region) -> Access {
        Access::new(buffer, region, Mode::Upload)
    }

    /// `clEnqueueMigrateMemObjects`; at the client with `CL_MIGRATE_MEM_OBJECT_HOST`.
    #[must_use]
    pub fn migrate(buffer: MemoryId, region: Region, content_undefined: bool) -> Access {
        let mode = if content_undefined {
            Mode::Discard
        } else {
            Mode::Read
        };
        Access::new(buffer, region, mode)
    }

    /// A buffer argument of a launch. `const_is_read` is the setting that believes `const` pointers.
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

    /// Whether it has more than `limit` rows.
    pub(super) fn has_many_rows(&self, limit: u64) -> bool {
        let [_, rows, slices] = self.region.size();
        !self.region.is_linear() && rows.saturating_mul(slices) > limit
    }

    /// Hands out the spans that this access touches at a site and how; up to
    /// `limit` rows one by one.
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
                // What lies between is wanted.
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
        // What lies between the rows must stay as it is.
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
