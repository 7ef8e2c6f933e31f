//! The stream below a bulk lane: a TCP connection, with or without TLS, or two rings in memory that both
//! ends share.
//!
//! Senders and receivers see ordered bytes and an end of the stream; `causeway_proto::bulk` defines the
//! bytes' meaning. If client and worker run on one kernel, a lane uses a small ring: two threads copy
//! bytes into it and out of it at the same time. The ring stays in the processor's cache, so the memory
//! traffic is that of one copy.
//!
//! - [`Stream`]: any kind of stream;
//! - [`piece`]: raw memory that a stream sends or receives; `sealed`: the same over TLS;
//! - [`RingPair`]: both rings from one side, with a notifier for each ring that wakes sleeping threads;
//! - [`Resumed`], [`Kept`]: a stream that outlives its connections, and what its sender keeps for that; `window`: the
//!   accounting, pure;
//! - [`offer`], [`accept`]: pass the memory from one process to the other, over a Unix socket on which
//!   the session's secret was proved;
//! - [`DaemonPlace`]: whether two processes can share memory;
//! - [`Pace`]: how fast a lane sends, so that small commands do not wait in the network's queue;
//! - [`PathWatch`]: whether a connection's network path is dead, pure;
//! - [`Packer`], [`Unpacker`]: compression of chunks;
//! - `ring`: arithmetic of positions, pure; `memory`: the mapping.
//!
//! This crate knows no sessions and authenticates nobody. Invariant: whatever the other process writes
//! into the memory, the stream at worst breaks or carries wrong bytes.

mod buffer;
mod handing;
mod memory;
mod notifier;
mod pace;
mod pacer;
mod packing;
mod path;
mod pieces;
mod place;
mod resumed;
mod ring;
mod sealed;
mod shared;
mod stream;
mod window;

pub use buffer::Buffer;
pub use handing::{NotShared, accept, offer};
pub use memory::copy_past_caches;
pub use pace::{Pace, path_of};
pub use pacer::Beside;
pub use packing::{Packed, Packer, Unpacker};
pub use path::{PathReading, PathState, PathWatch};
pub use pieces::piece;
pub use place::DaemonPlace;
pub use resumed::{Condition, Kept, Reservation, Resumed, Stopped};
pub use shared::{Caching, RingPair, carried_bytes};
pub use stream::Stream;
pub use window::Impossible;
