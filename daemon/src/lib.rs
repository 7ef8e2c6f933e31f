//! `causewayd`: what a node runs.
//!
//! - [`supervisor`]: listens, admits, hands connections to workers, watches them. Never touches OpenCL.
//! - [`worker`]: one process per session. `service` receives the session's connections, `session`
//!   applies its commands.
//! - [`runtime`]: the node's own OpenCL; the only module that knows the OpenCL library.
//! - [`bulk`]: bulk bytes between sockets and devices.
//! - [`accounting`]: what sessions use, where supervisor and workers both see it.
//! - [`build_cache`]: programs that were built before.
//! - [`config`]: flags and file, validated.
//! - [`confinement`]: what a worker process is to give up; [`driver_files`]: where the drivers are found.
//! - [`handover`]: what supervisor and worker say to each other.
//! - [`sys`]: the few system calls that nobody wraps safely.
//!
//! Invariant: dependencies point one way, supervisor | worker::service → worker::session → runtime.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for those who read the source: this library has no other users than its binary"
)]

pub mod accounting;
pub mod build_cache;
pub mod bulk;
pub mod config;
pub mod confinement;
pub mod driver_files;
pub mod handover;
mod held;
mod leftovers;
pub mod runtime;
pub mod scratch;
pub mod supervisor;
pub mod sys;
pub mod worker;
