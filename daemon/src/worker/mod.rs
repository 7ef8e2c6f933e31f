//! The worker process: serves exactly one session, then exits.
//!
//! [`service`] owns the sockets and the carriers of commands and events. [`session`] applies commands and
//! makes events. [`connection`] defines what passes between the two. [`socket`] has the socket settings
//! and timed reads that both need.
//!
//! Another kind of worker is short-lived: [`probe`] asks the drivers for the inventory.

mod confine;
pub mod connection;
pub mod probe;
pub mod service;
pub mod session;
mod socket;
