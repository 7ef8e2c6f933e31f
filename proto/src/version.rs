//! The version of the wire protocol, with one line of history each.
//!
//! The number is in the first message of every conversation. A mismatch is refused there, with a message
//! that names the side to upgrade.

/// A version of the wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum WireVersion {
    /// 2026-11: the first.
    V1 = 1,
    /// 2026-11: contexts of several nodes, with links between workers and mirrors of events.
    V2 = 2,
    /// 2026-11: writes of one chunk that need no credit.
    V3 = 3,
    /// 2026-11: commands whose end is not observed.
    V4 = 4,
    /// 2026-11: the maker of shared memory confirms the lane last.
    V5 = 5,
    /// 2026-11: a client limits its worker's rate on a bulk connection, and chunks may be compressed.
    V6 = 6,
    /// 2026-11: images and samplers.
    V7 = 7,
    /// 2026-11: specialisation constants and sub-group queries.
    V8 = 8,
    /// 2026-11: sub-devices.
    V9 = 9,
    /// 2026-11: shared virtual memory.
    V10 = 10,
    /// 2026-11: command buffers.
    V11 = 11,
    /// 2026-11: changed launches of command buffers, and suggested work-group sizes.
    V12 = 12,
    /// 2026-11: a node tells its device manager that it is stopping.
    V13 = 13,
    /// 2026-11: pipes and device queues.
    V14 = 14,
    /// 2026-11: a node tells its device manager that everybody can use it.
    V15 = 15,
    /// 2026-11: build options and header names in any encoding.
    V16 = 16,
    /// 2026-11: the holder of a lease learns which nodes' devices it has lost; calls to nodes name the
    /// lease in a header.
    V17 = 17,
    /// 2026-11: connections do not show the id of their session.
    V18 = 18,
    /// 2026-11: sessions outlive their connections. Proofs carry positions, event batches have numbers, receivers
    /// acknowledge, and workers answer pings on lanes. A daemon that ends parks sessions, and the next one gets their
    /// records.
    V19 = 19,
    /// 2026-11: calls to and answers of a device manager carry its term and its cluster. Leases move to another node,
    /// which takes over their parked sessions. A session's commands may be executed again by another worker.
    V20 = 20,
    /// 2026-11: a client names the worker for which its command connection is. A lease whose move has failed stays.
    V21 = 21,
    /// 2026-11: a session that was lost with its node's daemon is opened again under its id.
    V22 = 22,
    /// 2026-11: the contents of a session that moves are sent before its ticket.
    V23 = 23,
    /// 2026-11: the contents of a large session that moves are sent over connections of their own. A node reports times of
    /// all commands of a traced queue.
    V24 = 24,
    /// 2026-11: a client may hold the checkpoints of its session.
    V25 = 25,
    /// 2026-11: a session whose commands are executed again stays so in the daemon that takes it back from its files.
    V26 = 26,
}

impl WireVersion {
    /// The version of this build.
    pub const CURRENT: WireVersion = WireVersion::V26;

    /// The version's number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

/// The peer uses another version.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error(
    "the other side uses wire version {theirs}, this side {}; upgrade {}",
    WireVersion::CURRENT.number(),
    if *theirs < u32::from(WireVersion::CURRENT.number()) { "the other side" } else { "this side" }
)]
pub struct VersionMismatch {
    /// The number that the peer named.
    pub theirs: u32,
}

/// Checks that the peer's version is this build's version.
///
/// # Errors
/// [`VersionMismatch`], which names the side to upgrade.
pub fn check(theirs: u32) -> Result<(), VersionMismatch> {
    if theirs == u32::from(WireVersion::CURRENT.number()) {
        Ok(())
    } else {
        Err(VersionMismatch { theirs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_names_the_side_to_upgrade() {
        let current = u32::from(WireVersion::CURRENT.number());
        assert!(check(current).is_ok());
        assert!(
            check(1)
                .unwrap_err()
                .to_string()
                .contains("upgrade the other side")
        );
        assert!(
            check(current + 1)
                .unwrap_err()
                .to_string()
                .contains("upgrade this side")
        );
    }
}
