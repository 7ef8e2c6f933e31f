//! The build cache: programs that this daemon has built before, as the drivers' own binaries. Two kinds of
//! process take part:
//!
//! - A **worker** asks its supervisor for the entry of a [`Key`] before it builds ([`client`]), and loads
//!   the driver's binary from it. After a build of its own it takes the binary from the driver, and passes
//!   a [`CachedBuild`] to the supervisor.
//! - The **supervisor** alone accesses the directory ([`store`]). It loads no driver, and does not look
//!   into entries.
//!
//! Threat: a kernel may take over its worker, and then decides what that worker stores. Therefore every
//! entry belongs to a user ([`Owner`]), whom the supervisor knows from the session. A worker can only
//! reach entries of its own user: get, store and remove them. So within one user, a session may run what
//! another session of that user has built. No user runs what another user has built. One user can neither
//! store too fast ([`allowance`]) nor have more than a share of the cache ([`index`]).
//!
//! The directory has mode 0700. Its content is still treated as hostile: sizes are limited, checksums
//! verified, and a driver's refusal leads to a normal build. The sandbox keeps workers away from the
//! directory; without it only separate users do, and the daemon warns.
//!
//! Files that a driver loads only when it compiles are not in the key. The entry names them. Users of the
//! entry check whether they are unchanged ([`stamp`]), and have outdated entries removed.
//!
//! This module has no processes, no OpenCL and no wire format. Invariant: an entry is used only by a
//! process that computes the same key, which means the same drivers, device, text and options. The files
//! that the entry names must be unchanged, too.
#![forbid(unsafe_code)]

pub mod allowance;
pub mod client;
pub mod entry;
pub mod index;
pub mod key;
pub mod memory_file;
pub mod pocl;
pub mod repeatable;
pub mod stamp;
pub mod store;

pub use allowance::Allowance;
pub use client::Client;
pub use entry::{Broken, CachedBuild};
pub use key::{Identity, Key, Name, Owner};
pub use memory_file::MemoryFile;
pub use stamp::Stamp;
pub use store::Store;

/// Maximum length of a cached program's source text, in bytes. Longer programs are built each time.
pub const MAX_TEXT: usize = 4 << 20;
/// Maximum length of a cached build's options, in bytes.
pub const MAX_OPTIONS: usize = 64 << 10;
