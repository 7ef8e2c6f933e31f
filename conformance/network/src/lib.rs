//! A network of several hosts on one machine, for tests and benchmarks. Daemons and clients run on separate
//! hosts, with the rates, delays, losses and cuts of a real network. Counters show what crossed each link.
//!
//! ```no_run
//! use std::time::Duration;
//! use causeway_network::{Network, Rate, Shape};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let network = match Network::builder()
//!     .hosts(3)
//!     .rate(Rate::gbit(1))
//!     .link(1, 2, Shape::delayed(Duration::from_millis(10)))
//!     .build()
//! {
//!     Err(error) if error.is_unavailable() => return Ok(eprintln!("skipped: {error}")),
//!     network => network?,
//! };
//! let address = network.host(1).address();
//! let before = network.traffic()?;
//! let mut daemon = network.host(1).command("causewayd").spawn()?;
//! let status = network.host(0).command("clinfo").env("CAUSEWAY_SERVERS", address.to_string()).status()?;
//! assert_eq!(network.traffic()?.since(&before).between(1, 2), 0);
//! network.link(0, 1).cut()?;
//! # daemon.kill()?; daemon.wait()?;
//! # Ok(()) }
//! ```
//!
//! Start reading at [`network`](Network). `builder` makes the cables, `firewall` cuts and counts,
//! `emulator` delays and loses packets, and `leftovers` cleans up after crashes.
//!
//! The crate knows nothing of Causeway: a network has hosts, not nodes. Invariants: this machine's own
//! network is never changed. Nothing of a network outlives the process that built it. If that process was
//! killed, processes on its hosts may remain; [`clean`] ends those.

mod builder;
mod emulator;
mod error;
mod firewall;
mod host;
mod leftovers;
mod link;
mod namespace;
mod network;
mod shape;
mod tools;
mod traffic;
pub mod units;

pub use builder::{Builder, MOST_HOSTS};
pub use emulator::Fate;
pub use error::{Error, Result};
pub use host::{Host, VARIABLE, command_on};
pub use leftovers::{Leftover, clean};
pub use link::Link;
pub use network::Network;
pub use shape::Shape;
pub use traffic::{Interface, Traffic};
pub use units::Rate;
