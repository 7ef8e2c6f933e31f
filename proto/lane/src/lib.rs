//! The stream under a bulk lane: a TCP connection, in the clear or with TLS, or two rings in memory that both ends
//! share.
//!
//! Who sends on a lane and who receives from it sees bytes in order, and an end; what the bytes mean is
//! `causeway_proto::bulk`'s business. Where client and worker run under one kernel a lane's bytes are
//! copied into a small ring and out of it again, by two threads at the same time; the ring stays in the
//! processor's cache, so memory sees as much traffic as with one copy.
//!
//! - [`Stream`]: any kind;
//! - [`send_sealed`], [`receive_sealed`]: raw memory over TLS;
//! - [`Shared`]: the rings' two ends, with a bell for each ring that wakes who sleeps;
//! - [`offer`], [`accept`]: how the memory gets from one process to the other, over a Unix socket on
//!   which the session's secret was proved;
//! - [`Place`]: whether two processes can find each other so;
//! - [`Pace`]: how fast a lane sends, so that small commands beside it do not wait in the link's queue;
//! - [`Packer`], [`Unpacker`]: chunks compressed and back;
//! - `ring`: what positions mean, pure; `memory`: the mapping; only there and at system calls is `unsafe`.
//!
//! What it is not: it knows no session and proves nothing. Invariant: the other process may do with the
//! memory what it likes; then the stream breaks or carries nonsense, and nothing else happens here.

mod bell;
mod buffer;
mod handing;
mod memory;
mod pace;
mod pacer;
mod packing;
mod place;
mod ring;
mod sealed;
mod shared;
mod stream;

pub use buffer::Buffer;
pub use handing::{NotShared, accept, offer};
pub use pace::Pace;
pub use pacer::Beside;
pub use packing::{Packer, Unpacker};
pub use place::Place;
pub use sealed::{receive_sealed, send_sealed};
pub use shared::{Caching, Shared, carried_bytes};
pub use stream::Stream;
