//! Settings: command line and configuration file, first in raw form ([`flags`], [`mod@file`]), then
//! validated ([`Settings`]).
//!
//! This module opens no socket and starts nothing. Invariant: [`Settings`] can be used without further
//! checks. An error in the configuration file is reported with file and line.
#![forbid(unsafe_code)]

mod address;
mod build_cache;
mod discovery;
pub mod file;
pub mod flags;
mod managed;
mod sandbox;
mod security;
mod sessions;
mod settings;
mod sharing;
mod size;
mod warm;
mod which;

pub use address::{Advertised, BadAdvertised, parse_advertised};
pub use build_cache::BuildCacheSettings;
pub use file::ConfigFile;
pub use flags::Flags;
pub use managed::{BadManager, ManagerAddress, ManagerSettings, ShareSettings, SoughtManager};
pub use sandbox::{DriverCaches, Groups, SandboxSettings, WorkerUser};
pub use security::{BadSecurity, Security};
pub use sessions::{HolderLimits, SessionLimits, SessionSettings};
pub use settings::{BadSettings, Handshakes, Heartbeat, InventorySettings, Settings};
pub use sharing::{BadTogether, SharingSettings, Together};
pub use warm::{MAX_WARM, WarmDevices};
pub use which::WhichDevice;
