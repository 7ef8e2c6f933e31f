//! Fixed limits of the wire protocol. They are checked before memory is allocated.

use std::time::Duration;

/// Maximum size of an encoded batch of commands or events, in bytes. A single larger message is refused.
pub const MAX_BATCH: usize = 64 << 20;

/// A writer starts a new batch once one has this size.
pub const BATCH_TARGET: usize = 1 << 20;

/// Up to this size, the bytes of a write or read are inside of the command or completion. They are copied
/// more often than on a bulk connection, and other commands wait behind them. Measured with PoCL on two
/// cores and a limit of 1 MiB: a read of 1 MiB took 3 times as long, and 16 non-blocking writes of 256 KiB
/// held the caller for 1.5 ms instead of 30 µs. On 1 Gbit/s, a read of 4 bytes beside writes of 1 MiB took
/// 23 ms instead of 0.14 ms.
pub const INLINE_PAYLOAD: usize = 32 << 10;

/// Up to this size, initial contents are inside of the command that creates a buffer.
pub const INLINE_CONTENTS: usize = 32 << 10;

/// Maximum number of bytes in one bulk chunk.
pub const BULK_CHUNK: usize = 1 << 20;

/// Maximum number of separate ranges in which bytes of one transfer may have arrived. A sender takes
/// chunks in order, so only chunks that are in flight together can overtake each other.
pub const MAX_SPANS: usize = 256;

/// Total number of bytes of writes that a client may send before it receives credit. A worker always has
/// room for them. Each such write is one chunk.
pub const EAGER_BYTES: u64 = 4 << 20;

/// Maximum number of bulk connections of one session.
pub const MAX_BULK_CONNECTIONS: u32 = 8;

/// Longest time for which a node keeps a connection waiting whose session is parked or changes its process, before the node
/// refuses it. Attempts of clients take longer, or a client would not hear why it waits.
pub const PARKED_HOLD: Duration = Duration::from_secs(1);

/// Maximum number of links of one session at a time.
pub const MAX_LINKS: usize = 1024;

/// Maximum number of addresses for the other end of a link.
pub const MAX_LINK_ADDRESSES: usize = 32;

/// Number of connections for bulk data of one link. The link has one more for events.
pub const LINK_LANES: u8 = 2;

/// Maximum number of events in one wait list, of devices in one list, and the like.
pub const MAX_LIST: usize = 1 << 16;

/// Maximum number of arguments of one kernel, more than any device supports. Bounds the memory that an
/// argument index can make a worker allocate.
pub const MAX_ARGUMENTS: usize = 1 << 12;

/// Maximum length of a kernel's name in bytes.
pub const MAX_NAME: usize = 1 << 16;

/// Maximum number of commands in one command buffer.
pub const MAX_RECORDED: usize = 1 << 16;

/// Maximum number of commands that a worker holds back for one session, because events they wait for are
/// open.
pub const MAX_HELD_COMMANDS: usize = 1 << 20;

/// Maximum number of bytes inside of these commands.
pub const MAX_HELD_BYTES: usize = 512 << 20;

/// Maximum number of live objects in one session.
pub const MAX_OBJECTS: usize = 1 << 22;
