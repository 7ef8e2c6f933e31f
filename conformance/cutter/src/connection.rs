//! One forwarded connection.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use causeway_proto::preamble::MAGIC;

use crate::{Cut, socket};

/// For so long, a connection may be one of a session that is not open yet.
const OPENING: Duration = Duration::from_secs(5);
/// A connection that has passed more bytes belongs to an open session. A TLS handshake and the proofs are fewer.
const OPENING_BYTES: i64 = 8 << 10;

/// The use of a connection, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Calls of the control service, or anything else without a preamble.
    Control,
    /// Commands and events of a session, over either carrier.
    Commands,
    /// A lane for bulk data of a session.
    Lane,
    /// Heartbeats of a session.
    Heartbeat,
    /// Between two nodes.
    Link,
}

impl Purpose {
    /// All purposes, in the order of their numbers in a preamble.
    pub const ALL: [Purpose; 5] = [
        Purpose::Control,
        Purpose::Commands,
        Purpose::Lane,
        Purpose::Heartbeat,
        Purpose::Link,
    ];

    pub(crate) fn number(self) -> usize {
        self as usize
    }

    pub(crate) fn of(first: &[u8]) -> Self {
        if !first.starts_with(&MAGIC) {
            return Self::Control;
        }
        match first.get(6) {
            Some(1 | 2) => Self::Commands,
            Some(3) => Self::Lane,
            Some(4) => Self::Heartbeat,
            Some(5) => Self::Link,
            _ => Self::Control,
        }
    }
}

/// Both sockets of a connection, and what is left of its bytes.
pub(crate) struct Connection {
    pub(crate) near: OwnedFd,
    pub(crate) far: OwnedFd,
    pub(crate) purpose: Purpose,
    begun: Instant,
    left: AtomicI64,
    passed: AtomicI64,
    is_cut: AtomicBool,
    /// The connection is silent, and is cut at this time.
    silent_until: OnceLock<Instant>,
}

impl Connection {
    pub(crate) fn new(near: OwnedFd, far: OwnedFd, purpose: Purpose, left: i64) -> Arc<Self> {
        Arc::new(Self {
            near,
            far,
            purpose,
            begun: Instant::now(),
            left: AtomicI64::new(left),
            passed: AtomicI64::new(0),
            is_cut: AtomicBool::new(false),
            silent_until: OnceLock::new(),
        })
    }

    /// Takes up to this number of bytes from what may still pass, in either direction.
    pub(crate) fn take(&self, count: usize) -> usize {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.passed.fetch_add(count, Ordering::SeqCst);
        let before = self.left.fetch_sub(count, Ordering::SeqCst);
        usize::try_from(before.clamp(0, count)).unwrap_or(0)
    }

    /// Cuts the connection. False if it is cut already.
    pub(crate) fn cut(&self, how: Cut) -> bool {
        if self.is_cut.swap(true, Ordering::SeqCst) {
            return false;
        }
        socket::cut(&self.near, how);
        socket::cut(&self.far, how);
        true
    }

    /// Whether the connection's session may not be open yet. Such a session cannot be resumed.
    pub(crate) fn is_opening(&self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.begun);
        age < OPENING && self.passed.load(Ordering::SeqCst) <= OPENING_BYTES
    }

    /// Lets no byte pass any more. The connection is cut at `end`.
    pub(crate) fn silence(&self, end: Instant) {
        let _ = self.silent_until.set(end);
    }

    /// Whether no byte may pass. Cuts the connection if its silence is over.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        let end = self.silent_until.get();
        if end.is_some_and(|end| *end <= now) {
            self.cut(Cut::Reset);
        }
        end.is_some()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_opens_within_some_seconds_or_bytes() {
        let end = || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let connection = Connection::new(end(), end(), Purpose::Commands, i64::MAX);
        let now = Instant::now();
        connection.take(3000);
        assert!(connection.is_opening(now));
        assert!(!connection.is_opening(now + OPENING));
        connection.take(6000);
        assert!(!connection.is_opening(now));
    }

    #[test]
    fn purposes_follow_from_first_bytes() {
        assert_eq!(Purpose::of(b"PRI * HTTP/2.0"), Purpose::Control);
        assert_eq!(Purpose::of(b"CSWY\x13\x00\x02\x00"), Purpose::Commands);
        assert_eq!(Purpose::of(b"CSWY\x13\x00\x05\x00"), Purpose::Link);
        assert_eq!(Purpose::of(b"CSWY"), Purpose::Control);
    }
}
