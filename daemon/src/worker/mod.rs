//! The worker process: serves exactly one session, then exits.
//!
//! [`service`] owns the sockets and what carries commands and events; [`session`] applies commands and
//! makes events; [`connection`] is what passes between them; [`socket`] is what both need to know of sockets.
//! Two other kinds of worker are short-lived: [`probe`] asks the drivers for the inventory, [`compile`] builds one
//! program for the build cache; [`errand`] is what they have in common.

pub mod compile;
mod confine;
pub mod connection;
mod errand;
pub mod probe;
pub mod service;
pub mod session;
mod socket;
