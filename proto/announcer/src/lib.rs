//! Announces a node or a manager on its networks by mDNS, by a process of its own.
//!
//! - [`AnnounceSettings`]: the checked settings;
//! - [`Order`]: what the process announces, and where;
//! - [`Announcer`]: keeps the process running, in the server;
//! - [`announce`]: what the process does once it is confined.
//!
//! How the process is started and confined is the server's part. Invariants: the server itself reads no multicast packet.
//! Everyone on the network reads an announcement, so it names no users and no devices.
#![forbid(unsafe_code)]

mod keeper;
mod order;
mod process;
mod settings;

pub use keeper::{Announcer, Running, Start};
pub use order::{BadOrder, Order};
pub use process::{NotAnnounced, announce};
pub use settings::{AnnounceSettings, BadAnnounce, host_name};
