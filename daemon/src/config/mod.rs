//! Settings: flags and file, raw first ([`flags`], [`mod@file`]), then validated ([`Settings`]).
//!
//! What it is not: it opens no socket and starts nothing. Invariant: a [`Settings`] can be acted upon
//! without a further check; what was wrong was named with file and line.
#![forbid(unsafe_code)]

mod address;
mod build_cache;
pub mod file;
pub mod flags;
mod managed;
mod number;
mod sandbox;
mod security;
mod sessions;
mod settings;

pub use address::{Advertised, BadAdvertised, parse_advertised};
pub use build_cache::BuildCacheSettings;
pub use file::ConfigFile;
pub use flags::Flags;
pub use managed::{BadManager, ManagerAddress, ManagerSettings, ShareSettings, SharedWhich};
pub use sandbox::{DriverCaches, Groups, SandboxSettings, WorkerUser};
pub use security::{BadSecurity, Security};
pub use sessions::{HolderLimits, SessionLimits, SessionSettings};
pub use settings::{BadSettings, Handshakes, Heartbeat, InventorySettings, Settings};
