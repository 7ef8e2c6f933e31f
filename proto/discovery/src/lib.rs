//! Discovery: what a node announces on its network, and how a client finds it.
//!
//! - [`Announcement`]: what a node says of itself in the TXT record of its service;
//! - [`Collector`]: packets in, found nodes out; pure and bounded;
//! - [`Interfaces`]: which addresses are on-link of this host; pure;
//! - [`Patience`]: how long a client waits for answers; pure;
//! - [`Search`]: one question on all interfaces, and its answers;
//! - [`Browser`]: the nodes of domains by DNS; pure and bounded;
//! - [`browse`]: its questions to the system's DNS servers.
//!
//! Only [`Search`] and [`browse`] have sockets.
//!
//! The protocol is mDNS (RFC 6762) with DNS-SD (RFC 6763). Nothing here is authenticated: an announcement says where to
//! dial, and who answers there proves their identity by TLS.
//!
//! Invariants: what one source says never changes what another source has said. No packet makes the collector exceed its
//! limits or panic.
#![forbid(unsafe_code)]

mod announcement;
mod collector;
mod domain;
mod interfaces;
mod message;
mod patience;
mod resolver;
mod search;

pub use announcement::{Announcement, CaDigest, NodeId, Role, Run, is_of_name};
pub use collector::{ClaimedAddress, Collector, Found, Heard, Limits};
pub use domain::{Answered, Browser, MOST_DOMAINS, Packet};
pub use interfaces::{Interface, Interfaces, is_special};
pub use patience::Patience;
pub use resolver::{NoDomains, browse};
pub use search::{NoSearch, Search, SearchProgress};

/// The type of Causeway's services.
pub const SERVICE: &str = "_causeway._tcp.local.";
/// The port of mDNS.
pub const PORT: u16 = 5353;
