//! The worker process: serves exactly one session, then exits.
//!
//! - [`objects`]: the session's objects and commands, and how their ends reach the client;
//! - [`bulk`]: moves bulk data between sockets and devices;
//! - [`session`]: applies commands and makes events;
//! - [`service`]: owns the sockets and the carriers of commands and events.
//!
//! Each of the four may use those before it, and none after it. [`connection`] defines what passes between
//! the last two. [`socket`] has the socket settings and timed reads that both need. [`threads`] starts
//! threads, and aborts.
//!
//! Other processes serve no session: [`probe`] asks the drivers for the inventory, [`measure`] finds out what a process
//! takes of a card by itself, [`cards`] reads the use of cards, [`announce`] announces the node, [`find`] looks for the
//! device manager, and [`link_end`] measures a link.

pub mod announce;
pub(crate) mod bulk;
pub mod cards;
mod confine;
pub mod connection;
pub mod find;
pub mod link_end;
pub mod measure;
pub(crate) mod objects;
pub mod probe;
pub mod service;
pub mod session;
mod socket;
mod threads;
