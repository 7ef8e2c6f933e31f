//! Causeway's OpenCL driver: client-side stubs of every OpenCL object, and the way to the nodes.
//!
//! ```text
//! api → stub → transport      only api knows the C ABI
//! ```
//! - [`api`]: the C entry points, argument checks, codes; the loader's handshake.
//! - [`stub`]: what the application holds: states, ids, what is answered without the network.
//! - [`coherence`]: which copy of a buffer is valid where, what must move first; pure.
//! - [`lease`]: what a device manager gives.
//! - [`transport`]: nodes, sessions, carriers, bulk.
//! - [`config`]: `servers.toml` and the environment.
//!
//! Unconfigured, the library opens no socket, starts no thread and reports no platform.
// `entry_points!` takes its functions one by one.
#![recursion_limit = "512"]
#![deny(unsafe_code)]

pub mod api;
pub mod coherence;
pub mod config;
pub mod error;
pub mod lease;
mod shadow;
mod sigpipe;
mod stderr;
mod stdout;
pub mod stub;
mod thread;
pub mod transport;
