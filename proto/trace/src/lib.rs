//! Timelines: from records of what a program did to a file in Perfetto's format.
//!
//! ```text
//! records ─► timeline (tracks and slices) ─► ring (packets at places of a file) ─► read ─► Chrome's JSON
//! ```
//! - [`record`]: what the library reports;
//! - [`timeline`]: makes slices, and gives what runs at the same time different tracks;
//! - [`ring`]: encodes slices into a file of bounded size, in which the newest replace the oldest;
//! - [`mod@format`]: the messages of Perfetto's format, as far as they are written here;
//! - [`read`]: reads such a file again, for [`json`] and for tests.
//!
//! Not here: threads, clocks and files. Invariant: each state of the file, also between two writes, is a
//! sequence of whole packets.
#![forbid(unsafe_code)]

pub mod format;
pub mod json;
mod lanes;
pub mod read;
pub mod record;
pub mod ring;
pub mod timeline;
