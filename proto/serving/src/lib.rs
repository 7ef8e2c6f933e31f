//! What the two servers, `causewayd` and `causeway-devmgr`, do alike around their real work.
//!
//! - [`ConfigFile`]: a TOML file whose mistakes are named with their line;
//! - [`parse_listen`], [`is_loopback`]: addresses to listen on;
//! - [`admission`]: how much at once, in all and of one: connections of a peer, sessions of a user;
//! - [`door`]: what strangers may cost until they are let in: connections, messages, time;
//! - [`logging`]: what is logged and how;
//! - [`watch_certificate`]: a warning before the server's certificate is over;
//! - [`notify`]: readiness, for systemd;
//! - [`refusal`]: the last word to a peer that speaks TLS where there is none, or none where there is;
//! - [`watched`], [`exposition`]: `/healthz` and `/metrics`;
//! - [`services`]: a port's gRPC services, with health and reflection.
//!
//! What it is not: it has no service of ours and knows none of our messages. Invariant: nothing here differs between the two
//! but by an argument.
#![forbid(unsafe_code)]

mod address;
pub mod admission;
mod certificate;
mod descriptors;
pub mod door;
pub mod exposition;
mod file;
pub mod logging;
mod notify;
pub mod refusal;
pub mod services;
pub mod watched;

pub use address::{BadAddress, is_loopback, parse_listen};
pub use certificate::watch_certificate;
pub use descriptors::raise_descriptors;
pub use file::{BadFile, ConfigFile};
pub use logging::complain;
pub use notify::notify;
