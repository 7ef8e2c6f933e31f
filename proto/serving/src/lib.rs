//! The parts that the two servers, `causewayd` and `causeway-devmgr`, have in common.
//!
//! - [`ConfigFile`]: a TOML file, with the line number of each error;
//! - [`parse_listen`], [`is_loopback`]: addresses to listen on;
//! - [`admission`]: limits, in total and for each peer or user: connections, sessions, memory;
//! - [`gate`]: limits for unauthenticated connections: number, messages, time;
//! - [`logging`]: filter and format of the log;
//! - [`watch_certificate`]: a warning before the server's certificate expires;
//! - [`notify`]: readiness, for systemd;
//! - [`refusal`]: the last message to a peer that uses TLS where there is none, or does not use it where it
//!   is required;
//! - [`watched`], [`exposition`], [`counts`]: `/healthz` and `/metrics`;
//! - [`pages`]: pages and streams for browsers;
//! - [`services`]: the gRPC services of a port, with health and reflection;
//! - [`settings`]: the flags and tables that both servers have.
//!
//! This crate has no service of Causeway's own and knows none of its messages. Invariant: the two servers
//! use the same code, with different arguments only.
#![forbid(unsafe_code)]

mod address;
pub mod admission;
mod certificate;
pub mod counts;
mod descriptors;
pub mod exposition;
mod file;
pub mod gate;
mod http_socket;
pub mod logging;
mod notify;
pub mod pages;
mod patient;
pub mod refusal;
pub mod services;
pub mod settings;
pub mod watched;

pub use address::{BadAddress, is_loopback, listening_cure, parse_listen};
pub use certificate::watch_certificate;
pub use descriptors::raise_descriptors;
pub use file::{BadFile, ConfigFile};
pub use logging::complain;
pub use notify::notify;
