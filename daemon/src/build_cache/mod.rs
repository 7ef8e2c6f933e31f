//! The build cache: programs that this daemon has built before, as the drivers' own binaries.
//!
//! Who does what, because who may write what is the whole question:
//! - A **worker** that is to build a program from source asks its supervisor for the entry of a [`Key`]
//!   ([`client`]), and loads the driver's binary from it. After a build that had to be made it sends the
//!   supervisor a [`Job`]: what was built, not what came out.
//! - The **compiling worker** (`worker::compile`), a process for one job, builds the same again and says
//!   what came out, under the key that it finds itself. It has never run a kernel.
//! - The **supervisor** alone touches the directory ([`store`]); it loads no driver and reads entries only
//!   as far as their length and checksum ([`entry`]).
//!
//! The threat: a kernel may break out of its driver and take its worker over, and what a cache holds is
//! run by other sessions. So nothing that a worker says becomes the content of an entry, and none gets a
//! name that a worker chose: a worker that was taken over can have its own jobs built, no more, or have an
//! entry forgotten. What breaks the *compiler* can spoil the entry of its own text alone, which harms who
//! sends that text anyway. An entry's name has an [`Owner`], so that tenants can be kept apart (who may
//! ask for an entry learns that somebody has built that text); today all sessions have the same one.
//! The directory is the daemon's own (0700, no links followed); what lies there is nevertheless read as
//! hostile: limits before allocation, a checksum, and a driver's refusal is a build, not an error.
//! Workers cannot reach the directory themselves: it is outside of their sandbox (`worker::confine`), and they
//! get entries as open files. Where the sandbox is off, or the kernel has no Landlock, only users of their own
//! keep them away; the daemon says so.
//!
//! Why a second build: drivers give binaries away late and dearly. PoCL compiles every kernel once more
//! for it (0.15 s each), under a lock of the program that the session's own calls need as well.
//!
//! What a driver loads only when it compiles is in no key. So the compiling worker looks once more after its
//! build, and names those files in the entry; whoever has the entry looks whether they are as they were
//! ([`stamp`]), and has it removed as outdated if they are not.
//!
//! Here: what all three share, and no process, no OpenCL, no wire. Invariant: an entry is used only by
//! a process for which its key is the same one, so with the same drivers, device, text and options, and as long as
//! the files that it names are those that made it.
#![forbid(unsafe_code)]

pub mod client;
pub mod entry;
pub mod failures;
pub mod index;
pub mod job;
pub mod key;
pub mod pocl;
pub mod stamp;
pub mod store;

pub use client::Client;
pub use entry::{Broken, Entry};
pub use failures::Failures;
pub use job::Job;
pub use key::{Identity, Key, Owner};
pub use stamp::Stamp;
pub use store::Store;

/// Bytes of a program's text that is looked for in the cache; a longer one is built each time.
pub const MAX_TEXT: usize = 4 << 20;
/// Bytes of the options, likewise.
pub const MAX_OPTIONS: usize = 64 << 10;
