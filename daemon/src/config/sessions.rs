//! Settings of sessions: their number, and the limits of each.

use std::time::Duration;

use causeway_proto::limits;
use causeway_proto::settings::Within;
use causeway_serving::BadFile;
use toml::Spanned;

use super::file::ConfigFile;
use super::flags::Flags;

/// Default size of a session's checkpoint, in bytes.
const CHECKPOINT_BYTES: u64 = 8 << 30;

/// Limits on sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// Maximum number of simultaneous sessions; at least 1.
    pub limit: u32,
    /// Number of spare workers.
    pub spare_workers: u32,
    /// Time that running sessions may continue after SIGTERM.
    pub drain_limit: Duration,
    /// Longest time for which a session waits for a client that is away. 0: sessions end with their connections.
    pub resume_limit: Duration,
    /// Time between the opening of a session and its command connection.
    pub connect_limit: Duration,
    /// Limits of each session.
    pub limits: SessionLimits,
    /// Limits of each user and each address.
    pub holders: HolderLimits,
    /// Maximum number of bulk connections of one session.
    pub bulk_connections: u32,
    /// Maximum size of a session's checkpoint in bytes; 0: no checkpoints.
    pub checkpoint_bytes: u64,
}

impl SessionSettings {
    /// Returns the maximum number of simultaneous worker processes of all kinds. One lists the devices, one measures a
    /// link, and `others` deal with announcements.
    /// Spare workers count twice, because those with outdated drivers may still be ending while others
    /// start.
    pub fn processes(&self, others: u32) -> u32 {
        self.limit + 2 * self.spare_workers + 2 + others
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
    /// Memory for checkpoints of one user's sessions together in bytes, counted in the same way; 0: no limit.
    pub checkpoints_per_user: u64,
}

impl HolderLimits {
    /// Returns whether there is a limit on memory.
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
pub(super) fn sessions(flags: &Flags, file: &ConfigFile) -> Result<SessionSettings, BadFile> {
    let table = &file.table.sessions;
    let limit = flags.session_limit.or(table.limit).map_or(64, Within::get);
    let spare_workers = flags.spare_workers.or(table.spare_workers);
    let drain_limit = flags.drain_limit.or(table.drain_limit);
    let resume_limit = flags.resume_limit.or(table.resume_limit);
    let seconds = |number: u32| Duration::from_secs(u64::from(number));
    Ok(SessionSettings {
        limit,
        spare_workers: spare_workers.map_or(1, Within::get),
        drain_limit: seconds(drain_limit.map_or(30, Within::get)),
        resume_limit: seconds(resume_limit.map_or(600, Within::get)),
        connect_limit: seconds(table.connect_limit.map_or(10, Within::get)),
        limits: SessionLimits {
            objects: table.objects.map_or(limits::MAX_OBJECTS, Within::get),
            held_commands: table
                .held_commands
                .map_or(limits::MAX_HELD_COMMANDS, Within::get),
            held_bytes: table.held_bytes.map_or(limits::MAX_HELD_BYTES, Within::get),
            device_memory: table.device_memory.unwrap_or(0),
            host_memory: table.host_memory.unwrap_or(0),
        },
        holders: holders(file, limit)?,
        bulk_connections: table
            .bulk_connections
            .map_or(limits::MAX_BULK_CONNECTIONS, Within::get),
        checkpoint_bytes: checkpoint_bytes(file),
    })
}

fn checkpoint_bytes(file: &ConfigFile) -> u64 {
    file.table.survival.held.map_or(CHECKPOINT_BYTES, |of| of.0)
}

/// Returns the memory for the checkpoints of one user's sessions.
fn checkpoints_per_user(file: &ConfigFile) -> Result<u64, BadFile> {
    let Some(size) = &file.table.survival.held_per_user else {
        return Ok(0);
    };
    let (bytes, of_one) = (size.get_ref().0, checkpoint_bytes(file));
    if bytes > 0 && bytes < of_one {
        // Each session counts with its own limit, so none would have checkpoints.
        let message = format!(
            "[survival] held_per_user is less than held, the limit of one session, which is {of_one} bytes; set held to \
             at most held_per_user"
        );
        return Err(file.wrong(size, &message));
    }
    Ok(bytes)
}

/// Returns the limits per address and user. By default, each leaves a quarter of the sessions to others.
fn holders(file: &ConfigFile, limit: u32) -> Result<HolderLimits, BadFile> {
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
        per_address: table.per_address.map_or(most, Within::get),
        per_user: table.per_user.map_or(most, Within::get),
        host_memory_in_all: memory(&table.host_memory_in_all)?,
        host_memory_per_user: memory(&table.host_memory_per_user)?,
        checkpoints_per_user: checkpoints_per_user(file)?,
    })
}
