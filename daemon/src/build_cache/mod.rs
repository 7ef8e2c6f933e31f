//! The build cache: programs that this daemon has built before, as the drivers' own binaries. Three kinds
//! of process take part:
//!
//! - A **worker** asks its supervisor for the entry of a [`Key`] before it builds ([`client`]), and loads
//!   the driver's binary from it. After a build of its own it sends the supervisor a [`Job`]: the input of
//!   the build, not its result.
//! - The **compiling worker** (`worker::compile`), a process for one job, repeats the build. It returns the
//!   result under the key that it computes itself. It has never run a kernel.
//! - The **supervisor** alone accesses the directory ([`store`]). It loads no driver, and checks only the
//!   length and checksum of entries ([`entry`]).
//!
//! Threat: a kernel may take over its worker, and other sessions run what the cache contains. Therefore no
//! worker's message becomes the content or the name of an entry. A compromised worker can only have its own
//! jobs built, or have entries removed. A compromised *compiler* can only spoil the entry of its own source
//! text. Entry names contain an [`Owner`], to keep tenants apart; currently all sessions have the same one.
//! The directory has mode 0700. Its content is still treated as hostile: sizes are limited, checksums
//! verified, and a driver's refusal leads to a normal build. The sandbox keeps workers away from the
//! directory; without it only separate users do, and the daemon warns.
//!
//! Builds are repeated because drivers return binaries late and slowly. PoCL compiles each kernel once more
//! for it (0.15 s each), under a program lock that the session's own calls need as well.
//!
//! Files that a driver loads only when it compiles are not in the key. The compiling worker names them in
//! the entry. Users of the entry check whether they are unchanged ([`stamp`]), and have outdated entries
//! removed.
//!
//! This module has no processes, no OpenCL and no wire format. Invariant: an entry is used only by a
//! process that computes the same key, which means the same drivers, device, text and options. The files
//! that the entry names must be unchanged, too.
#![forbid(unsafe_code)]

pub mod client;
pub mod entry;
pub mod failures;
pub mod index;
pub mod key;
pub mod pocl;
pub mod repeatable;
pub mod stamp;
pub mod store;

pub use client::Client;
pub use entry::{Broken, Entry};
pub use failures::Failures;
pub use key::{Identity, Key, Owner};
pub use repeatable::Job;
pub use stamp::Stamp;
pub use store::Store;

/// Maximum length of a cached program's source text, in bytes. Longer programs are built each time.
pub const MAX_TEXT: usize = 4 << 20;
/// Maximum length of a cached build's options, in bytes.
pub const MAX_OPTIONS: usize = 64 << 10;
