//! The worker process: serves exactly one session, then exits.
//!
//! [`service`] owns the sockets and the carriers of commands and events. [`session`] applies commands and
//! makes events. [`connection`] defines what passes between the two. [`socket`] has the socket settings
//! and timed reads that both need.
//!
//! Two other kinds of worker are short-lived: [`probe`] asks the drivers for the inventory, and
//! [`compile`] builds one program for the build cache. [`errand`] is their common part.

pub mod compile;
mod confine;
pub mod connection;
mod errand;
pub mod probe;
pub mod service;
pub mod session;
mod socket;
