//! The assignment of a session to a worker, and its encoding.

use std::time::Duration;

use causeway_proto::id::{SessionId, SessionSecret};
use causeway_security::{Secret, SessionCertificate};
use prost::Message;

use crate::config::SessionLimits;

/// Maximum number of leased devices in an assignment.
pub const MAX_LEASED: usize = 64;
/// Maximum length of a user's name in an assignment, in characters. Longer names are truncated, because
/// the worker only logs them.
pub const MAX_USER: usize = 128;

/// A device that a session may use.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Leased {
    /// Index of the platform.
    #[prost(uint32, tag = "1")]
    pub platform: u32,
    /// Index of the device in its platform.
    #[prost(uint32, tag = "2")]
    pub device: u32,
    /// Bytes that may be allocated on the device; 0: the device's own limit.
    #[prost(uint64, tag = "3")]
    pub memory: u64,
    /// Whether the supervisor holds the session's launches on the device back at times.
    #[prost(bool, tag = "4")]
    pub is_timed: bool,
}

/// The session that a worker is to serve, with its limits and settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Id of the session.
    pub id: SessionId,
    /// Secret that each connection of the session must prove to know.
    pub secret: SessionSecret,
    /// Limits of the session.
    pub limits: SessionLimits,
    /// Maximum number of bulk connections.
    pub bulk_connections: u32,
    /// Time limit for the command connection to arrive.
    pub connect_limit: Duration,
    /// Time limit for loading the node's OpenCL.
    pub load_limit: Duration,
    /// Time between heartbeats.
    pub heartbeat_interval: Duration,
    /// Silence after which the client counts as lost.
    pub heartbeat_limit: Duration,
    /// How long the session waits for a client that is away.
    pub away: AwayTimes,
    /// Whether the daemon has a build cache.
    pub build_cache: bool,
    /// Certificate for the session's connections; `None`: no TLS.
    pub certificate: Option<SessionCertificate>,
    /// Devices that the session may use, at most [`MAX_LEASED`]; `None`: all.
    pub leased: Option<Vec<Leased>>,
    /// The session's slot in the accounting page that comes with the assignment.
    pub slot: u32,
    /// Lease and user of the session, for the log.
    pub owner: Owner,
    /// Of a session that was parked: how far its worker before has come.
    pub restores: Option<Restores>,
    /// Whether another worker takes the place of one that dies.
    pub reexecutes: bool,
    /// Most bytes of a checkpoint; 0: the session has none.
    pub checkpoint_bytes: u64,
}

/// How far the worker has come that has parked a session.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Restores {
    /// Number of the last applied command.
    #[prost(uint64, tag = "1")]
    pub applied: u64,
    /// Number of the last event batch. The client has handled all but perhaps this one.
    #[prost(uint64, tag = "2")]
    pub events: u64,
    /// Whether the worker before has died, and the client executes again what follows.
    #[prost(bool, tag = "3")]
    pub reexecutes: bool,
}

/// How long a session waits for a client that is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwayTimes {
    /// Time for the client to come back after its connections were closed. 0: the session ends with its connections.
    pub resume: Duration,
    /// Time for the client to come back after silence.
    pub keep: Duration,
}

impl AwayTimes {
    /// How long a session waits for a program that was probably killed. Its memory is then free within five seconds.
    pub const KILLED: Duration = Duration::from_secs(3);
    /// How long the supervisor waits for a client while the session's process says nothing about it. On a node that is short
    /// of memory, a process may not run for seconds.
    pub const SILENT: Duration = Duration::from_secs(20);

    /// Grants the requested times up to `limit`. A session that does not wait after a close waits after nothing.
    #[must_use]
    pub fn granted(resume: Duration, keep: Duration, limit: Duration) -> AwayTimes {
        match resume.min(limit) {
            Duration::ZERO => AwayTimes::default(),
            resume => AwayTimes {
                resume,
                keep: keep.min(limit),
            },
        }
    }

    /// Returns the longest time that the session waits.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.resume.max(self.keep)
    }
}

/// Lease and user of a session, as far as they are known.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Owner {
    /// The lease, as the log shows it.
    #[prost(string, optional, tag = "1")]
    pub lease: Option<String>,
    /// The lease's user, or the authenticated user.
    #[prost(string, optional, tag = "2")]
    pub user: Option<String>,
}

/// The encoded form of [`Assignment`].
#[derive(Clone, PartialEq, Message)]
pub(super) struct Encoded {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    secret: Vec<u8>,
    #[prost(uint64, tag = "3")]
    objects: u64,
    #[prost(uint64, tag = "4")]
    held_commands: u64,
    #[prost(uint64, tag = "5")]
    held_bytes: u64,
    #[prost(uint64, tag = "6")]
    device_memory: u64,
    #[prost(uint32, tag = "7")]
    bulk_connections: u32,
    #[prost(uint64, tag = "8")]
    connect_limit_ms: u64,
    #[prost(uint64, tag = "9")]
    heartbeat_interval_ms: u64,
    #[prost(uint64, tag = "12")]
    load_limit_ms: u64,
    #[prost(uint64, tag = "11")]
    host_memory: u64,
    #[prost(uint64, tag = "10")]
    heartbeat_limit_ms: u64,
    #[prost(bool, tag = "13")]
    build_cache: bool,
    #[prost(bytes = "vec", tag = "14")]
    certificate: Vec<u8>,
    #[prost(bytes = "vec", tag = "15")]
    key: Vec<u8>,
    #[prost(bool, tag = "16")]
    is_leased: bool,
    #[prost(message, repeated, tag = "17")]
    leased: Vec<Leased>,
    #[prost(uint32, tag = "18")]
    slot: u32,
    #[prost(message, required, tag = "19")]
    owner: Owner,
    #[prost(uint64, tag = "20")]
    resume_ms: u64,
    #[prost(uint64, tag = "21")]
    keep_ms: u64,
    #[prost(message, optional, tag = "22")]
    restores: Option<Restores>,
    #[prost(uint64, tag = "23")]
    checkpoint_bytes: u64,
    #[prost(bool, tag = "24")]
    reexecutes: bool,
}

impl Assignment {
    /// Encodes the assignment. The bytes contain the session's secret.
    pub fn to_bytes(&self) -> Vec<u8> {
        Encoded::from(self).encode_to_vec()
    }

    /// Decodes an encoded assignment; `None` if it is invalid.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Assignment> {
        Encoded::decode(bytes).ok()?.assignment()
    }
}

#[cfg(test)]
impl Assignment {
    /// Returns an assignment for a test.
    pub(crate) fn of_test(id: SessionId) -> Assignment {
        Assignment {
            id,
            secret: SessionSecret([2; 32]),
            limits: SessionLimits {
                objects: 1,
                held_commands: 1,
                held_bytes: 1,
                device_memory: 0,
                host_memory: 0,
            },
            bulk_connections: 2,
            connect_limit: Duration::from_secs(10),
            load_limit: Duration::from_secs(60),
            heartbeat_interval: Duration::from_millis(500),
            heartbeat_limit: Duration::from_secs(4),
            away: AwayTimes::default(),
            build_cache: false,
            certificate: None,
            leased: None,
            slot: 0,
            owner: Owner::default(),
            restores: None,
            reexecutes: false,
            checkpoint_bytes: 0,
        }
    }
}

impl From<&Assignment> for Encoded {
    fn from(from: &Assignment) -> Encoded {
        let milliseconds = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        Encoded {
            id: from.id.0.to_vec(),
            secret: from.secret.0.to_vec(),
            objects: from.limits.objects as u64,
            held_commands: from.limits.held_commands as u64,
            held_bytes: from.limits.held_bytes as u64,
            device_memory: from.limits.device_memory,
            host_memory: from.limits.host_memory,
            bulk_connections: from.bulk_connections,
            load_limit_ms: milliseconds(from.load_limit),
            connect_limit_ms: milliseconds(from.connect_limit),
            heartbeat_interval_ms: milliseconds(from.heartbeat_interval),
            heartbeat_limit_ms: milliseconds(from.heartbeat_limit),
            resume_ms: milliseconds(from.away.resume),
            keep_ms: milliseconds(from.away.keep),
            build_cache: from.build_cache,
            certificate: from
                .certificate
                .as_ref()
                .map_or_else(Vec::new, |of| of.certificate.clone()),
            key: from
                .certificate
                .as_ref()
                .map_or_else(Vec::new, |of| of.key.reveal().to_vec()),
            is_leased: from.leased.is_some(),
            leased: from.leased.clone().unwrap_or_default(),
            slot: from.slot,
            owner: Owner {
                lease: from.owner.lease.clone(),
                user: short(from.owner.user.as_deref()),
            },
            restores: from.restores,
            reexecutes: from.reexecutes,
            checkpoint_bytes: from.checkpoint_bytes,
        }
    }
}

fn short(user: Option<&str>) -> Option<String> {
    user.map(|user| user.chars().take(MAX_USER).collect())
}

impl Encoded {
    /// Decodes the assignment; `None` if it is invalid.
    pub(super) fn assignment(&self) -> Option<Assignment> {
        Some(Assignment {
            id: SessionId(self.id.as_slice().try_into().ok()?),
            secret: SessionSecret(self.secret.as_slice().try_into().ok()?),
            limits: SessionLimits {
                objects: usize::try_from(self.objects).ok()?,
                held_commands: usize::try_from(self.held_commands).ok()?,
                held_bytes: usize::try_from(self.held_bytes).ok()?,
                device_memory: self.device_memory,
                host_memory: self.host_memory,
            },
            bulk_connections: self.bulk_connections,
            load_limit: Duration::from_millis(self.load_limit_ms),
            connect_limit: Duration::from_millis(self.connect_limit_ms),
            heartbeat_interval: Duration::from_millis(self.heartbeat_interval_ms),
            heartbeat_limit: Duration::from_millis(self.heartbeat_limit_ms),
            away: AwayTimes {
                resume: Duration::from_millis(self.resume_ms),
                keep: Duration::from_millis(self.keep_ms),
            },
            build_cache: self.build_cache,
            certificate: (!self.certificate.is_empty()).then(|| SessionCertificate {
                certificate: self.certificate.clone(),
                key: Secret::new(self.key.clone()),
            }),
            // An empty list means a lease without devices. Only the flag distinguishes it from no lease.
            leased: self.is_leased.then(|| self.leased.clone()),
            slot: self.slot,
            owner: self.owner.clone(),
            restores: self.restores,
            reexecutes: self.reexecutes,
            checkpoint_bytes: self.checkpoint_bytes,
        })
    }
}
