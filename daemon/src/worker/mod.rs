//! The worker process: serves exactly one session, then exits.
//!
//! [`service`] owns the sockets and what carries commands and events; [`session`] applies commands and
//! makes events; [`connection`] is what passes between them; [`socket`] is what both need to know of sockets. [`probe`] is the other, short-lived kind
//! of worker: it asks the drivers for the inventory.

mod confine;
pub mod connection;
pub mod probe;
pub mod service;
pub mod session;
mod socket;
