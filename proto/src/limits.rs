//! Fixed limits of the wire, checked before anything is allocated.

/// A command or event batch, encoded, in bytes. A single larger message is refused.
pub const MAX_BATCH: usize = 64 << 20;

/// A writer starts a new batch once one holds this much.
pub const BATCH_TARGET: usize = 1 << 20;

/// A write's or read's bytes ride inside the command or completion up to this size.
pub const INLINE_PAYLOAD: usize = 32 << 10;

/// Initial buffer contents ride along up to this size.
pub const INLINE_CONTENTS: usize = 32 << 10;

/// A bulk chunk's payload.
pub const BULK_CHUNK: usize = 1 << 20;

/// Places in which bytes of one transfer may have come with gaps between them. A sender takes chunks in their
/// order, so only those that are under way at one time can change places.
pub const MAX_SPANS: usize = 256;

/// Bytes of writes that a client may send before it hears of credit, in all; a worker always has room for
/// so many. Each such write is one chunk.
pub const EAGER_BYTES: u64 = 4 << 20;

/// Bulk connections of one session.
pub const MAX_BULK_CONNECTIONS: u32 = 8;

/// Links of one session at a time.
pub const MAX_LINKS: usize = 1024;

/// Addresses under which the other end of a link may be looked for.
pub const MAX_LINK_ADDRESSES: usize = 32;

/// Connections for bulk data of one link; it has one more, for events.
pub const LINK_LANES: u8 = 2;

/// Events in one wait list, devices in one list and the like.
pub const MAX_LIST: usize = 1 << 16;

/// Arguments of one kernel: more than any device takes; bounds what an index can make a worker allocate.
pub const MAX_ARGUMENTS: usize = 1 << 12;

/// Bytes of a kernel's name.
pub const MAX_NAME: usize = 1 << 16;

/// Commands of one command buffer.
pub const MAX_RECORDED: usize = 1 << 16;

/// Commands that a worker holds for one session because something they wait for is open.
pub const MAX_HELD_COMMANDS: usize = 1 << 20;

/// Bytes inside the commands so held.
pub const MAX_HELD_BYTES: usize = 512 << 20;

/// Objects alive in one session.
pub const MAX_OBJECTS: usize = 1 << 22;
