//! The worker process: serves exactly one session, then exits.
//!
//! [`service`] owns the sockets and what carries commands and events; [`session`] applies commands and
//! makes events; [`connection`] is what passes between them.

pub mod connection;
pub mod service;
pub mod session;
