//! `causewayd`, the daemon that runs on each node.
//!
//! - [`supervisor`]: listens, admits, passes connections to workers and monitors the workers. It never uses
//!   OpenCL.
//! - [`worker`]: one process per session. `service` receives the session's connections, `session` applies
//!   its commands, `bulk` moves bulk data, `objects` holds the session's objects.
//! - [`runtime`]: the node's own OpenCL; the only module that knows the OpenCL library.
//! - [`accounting`]: counters of sessions, in memory that supervisor and workers share.
//! - [`build_cache`]: cache of built programs.
//! - [`config`]: command line and configuration file, validated.
//! - [`confinement`]: the privileges that a worker process drops; [`driver_files`]: finds the installed
//!   drivers.
//! - [`handover`]: messages between supervisor and worker.
//! - [`sys`]: the few system calls for which no safe wrapper exists.
//!
//! Invariant: dependencies point one way, supervisor | worker: service → session → bulk →
//! objects → runtime.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for those who read the source: this library has no other users than its binary"
)]

pub mod accounting;
pub mod build_cache;
pub mod config;
pub mod confinement;
pub mod driver_files;
mod guarded_io;
pub mod handover;
mod leftovers;
pub mod runtime;
pub mod scratch;
pub mod supervisor;
pub mod sys;
mod takeovers;
pub mod worker;
