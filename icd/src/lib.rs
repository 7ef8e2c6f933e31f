//! Causeway's OpenCL driver: a stub on the client for every OpenCL object, and the connections to the
//! nodes.
//!
//! ```text
//! api → stub → transport      only api knows the C ABI
//! ```
//! - [`api`]: the C entry points, argument checks and error codes, and the loader's handshake.
//! - [`stub`]: the objects behind the application's handles: their states and ids, and all answers that
//!   need no network.
//! - [`coherence`]: which copy of a buffer is valid on which site, and what must be transferred first;
//!   pure.
//! - [`lease`]: leases of devices from a device manager.
//! - [`transport`]: nodes, sessions, connections and bulk transfers.
//! - [`config`]: `servers.toml` and the environment.
//! - [`trace`]: the recorder of a program's timeline, to which all others report.
//!
//! Without configuration the library opens no socket, starts no thread and reports no platform.
#![deny(unsafe_code)]

pub mod api;
pub mod coherence;
pub mod config;
pub mod error;
mod fork;
mod host_clock;
pub mod lease;
mod shadow;
mod sigpipe;
mod stderr;
mod stdout;
pub mod stub;
mod thread;
pub mod trace;
pub mod transport;
