//! What clients may have: sessions, and each session's share of the node.

use std::time::Duration;

use causeway_proto::limits;
use toml::Spanned;

use super::file::ConfigFile;
use super::flags::Flags;
use super::number::{at_most, out_of_range, ranged};
use super::settings::BadSettings;

/// What clients may have.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// Sessions at once; at least 1.
    pub limit: u32,
    /// Workers kept ready.
    pub spare_workers: u32,
    /// For running sessions after SIGTERM.
    pub drain_limit: Duration,
    /// From opening a session to its command connection.
    pub connect_limit: Duration,
    /// A session's share of the node.
    pub limits: SessionLimits,
    /// A user's, and an address'.
    pub holders: HolderLimits,
    /// Bulk connections of one session.
    pub bulk_connections: u32,
}

impl SessionSettings {
    /// Processes at once that compile for the build cache.
    pub const COMPILING: u32 = 3;
    /// Those that were killed and are inside a driver that does not let go.
    const STUCK: u32 = 4;

    /// Worker processes at once, of all kinds: one lists the devices, some compile, and spare ones whose
    /// drivers have changed end while others start.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.limit + 2 * self.spare_workers + 1 + Self::COMPILING + Self::STUCK
    }
}

/// What one address and one user may have at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderLimits {
    /// Sessions from one address other than this machine's own; at least 1.
    pub per_address: u32,
    /// Sessions of one user, where users are known; at least 1.
    pub per_user: u32,
    /// Host memory of all sessions, each counted with the most that it may have, bytes; 0: no limit.
    pub host_memory_in_all: u64,
    /// The same of one user's sessions.
    pub host_memory_per_user: u64,
}

impl HolderLimits {
    /// Whether there is a limit on memory.
    #[must_use]
    pub fn limits_memory(&self) -> bool {
        self.host_memory_in_all > 0 || self.host_memory_per_user > 0
    }
}

/// What one session may take of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Objects alive at once.
    pub objects: usize,
    /// Commands held at once because something they wait for is open.
    pub held_commands: usize,
    /// Bytes inside the commands so held.
    pub held_bytes: usize,
    /// Device memory in all, bytes; 0: the device's own limit.
    pub device_memory: u64,
    /// Host memory of the session's process in all, bytes, buffers of CPU devices included; 0: no limit.
    pub host_memory: u64,
}

/// What flags and file say together; flags win.
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

/// Unless it is said otherwise, one leaves a quarter of the sessions to others.
fn holders(file: &ConfigFile, limit: u32) -> Result<HolderLimits, BadSettings> {
    let table = &file.table.sessions;
    let most = limit - limit / 4;
    let memory = |bytes: &Option<Spanned<u64>>| match bytes {
        Some(bytes) if *bytes.get_ref() > 0 && table.host_memory.unwrap_or(0) == 0 => {
            let message = "it takes a limit on one session's memory, host_memory";
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
