//! Settings of sessions: their number, and the limits of each.

use std::time::Duration;

use causeway_proto::limits;
use toml::Spanned;

use super::file::ConfigFile;
use super::flags::Flags;
use super::number::{at_most, out_of_range, ranged};
use super::settings::BadSettings;

/// Limits on sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// Maximum number of simultaneous sessions; at least 1.
    pub limit: u32,
    /// Number of spare workers.
    pub spare_workers: u32,
    /// Time that running sessions may continue after SIGTERM.
    pub drain_limit: Duration,
    /// Time between the opening of a session and its command connection.
    pub connect_limit: Duration,
    /// Limits of each session.
    pub limits: SessionLimits,
    /// Limits of each user and each address.
    pub holders: HolderLimits,
    /// Maximum number of bulk connections of one session.
    pub bulk_connections: u32,
}

impl SessionSettings {
    /// Returns the maximum number of simultaneous worker processes of all kinds. One lists the devices.
    /// Spare workers count twice, because those with outdated drivers may still be ending while others
    /// start.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.limit + 2 * self.spare_workers + 1
    }
}

/// Limits for each address and each user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderLimits {
    /// Maximum number of sessions from one address; at least 1. Loopback has no limit.
    pub per_address: u32,
    /// Maximum number of sessions of one authenticated user; at least 1.
    pub per_user: u32,
    /// Host memory of all sessions together in bytes, each counted with its own limit; 0: no limit.
    pub host_memory_in_all: u64,
    /// Host memory of one user's sessions together in bytes, counted in the same way; 0: no limit.
    pub host_memory_per_user: u64,
}

impl HolderLimits {
    /// Returns whether there is a limit on memory.
    #[must_use]
    pub fn limits_memory(&self) -> bool {
        self.host_memory_in_all > 0 || self.host_memory_per_user > 0
    }
}

/// Limits of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Maximum number of live objects.
    pub objects: usize,
    /// Maximum number of commands that wait in the worker because an event in their wait lists is pending.
    pub held_commands: usize,
    /// Maximum total size of these commands, in bytes.
    pub held_bytes: usize,
    /// Device memory in bytes; 0: the device's own limit.
    pub device_memory: u64,
    /// Host memory of the session's process in bytes, including buffers of CPU devices; 0: no limit.
    pub host_memory: u64,
}

/// Combines flags and file; flags take precedence.
pub(super) fn sessions(flags: &Flags, file: &ConfigFile) -> Result<SessionSettings, BadSettings> {
    let table = &file.table.sessions;
    let flag = |flag: &'static str, value: Option<u32>, range: (u32, u32)| match value {
        Some(n) if n < range.0 || n > range.1 => Err(BadSettings::Flag {
            flag,
            problem: out_of_range(&n, range),
        }),
        other => Ok(other),
    };
    let limit = flag("--session-limit", flags.session_limit, (1, 65_536))?;
    let spare = flag("--spare-workers", flags.spare_workers, (0, 64))?;
    let drain = flag("--drain-limit", flags.drain_limit, (0, 86_400))?;
    let from_file = (
        ranged(file, table.limit.as_ref(), (1, 65_536), 64)?,
        ranged(file, table.spare_workers.as_ref(), (0, 64), 1)?,
        ranged(file, table.drain_limit.as_ref(), (0, 86_400), 30)?,
    );
    let limit = limit.unwrap_or(from_file.0);
    Ok(SessionSettings {
        limit,
        holders: holders(file, limit)?,
        spare_workers: spare.unwrap_or(from_file.1),
        drain_limit: Duration::from_secs(u64::from(drain.unwrap_or(from_file.2))),
        connect_limit: Duration::from_secs(u64::from(ranged(
            file,
            table.connect_limit.as_ref(),
            (1, 600),
            10,
        )?)),
        limits: SessionLimits {
            objects: at_most(file, table.objects.as_ref(), limits::MAX_OBJECTS)?,
            held_commands: at_most(
                file,
                table.held_commands.as_ref(),
                limits::MAX_HELD_COMMANDS,
            )?,
            held_bytes: at_most(file, table.held_bytes.as_ref(), limits::MAX_HELD_BYTES)?,
            device_memory: table.device_memory.unwrap_or(0),
            host_memory: table.host_memory.unwrap_or(0),
        },
        bulk_connections: ranged(
            file,
            table.bulk_connections.as_ref(),
            (1, limits::MAX_BULK_CONNECTIONS),
            limits::MAX_BULK_CONNECTIONS,
        )?,
    })
}

/// Returns the limits per address and user. By default, each leaves a quarter of the sessions to others.
fn holders(file: &ConfigFile, limit: u32) -> Result<HolderLimits, BadSettings> {
    let table = &file.table.sessions;
    let most = limit - limit / 4;
    // A memory limit over several sessions needs one per session, because each session counts with its own
    // limit.
    let memory = |bytes: &Option<Spanned<u64>>| match bytes {
        Some(bytes) if *bytes.get_ref() > 0 && table.host_memory.unwrap_or(0) == 0 => {
            let message = "this limit requires [sessions] host_memory, the limit of one session; set that, too";
            Err(file.wrong(bytes, &message))
        }
        bytes => Ok(bytes.as_ref().map_or(0, |bytes| *bytes.get_ref())),
    };
    Ok(HolderLimits {
        per_address: ranged(file, table.per_address.as_ref(), (1, 65_536), most)?,
        per_user: ranged(file, table.per_user.as_ref(), (1, 65_536), most)?,
        host_memory_in_all: memory(&table.host_memory_in_all)?,
        host_memory_per_user: memory(&table.host_memory_per_user)?,
    })
}
