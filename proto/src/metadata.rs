//! Metadata of the calls to a device manager and of its answers: who leads, in which term, in which
//! cluster.
//!
//! This module has the names and the values' text forms; it decides nothing. Invariant: a value that does
//! not parse is treated as absent.

use std::fmt;

/// Metadata of an `UNAVAILABLE` of a standby: where clients reach the leader, as `HOST:PORT`. Absent if the
/// standby knows no leader.
pub const LEADER: &str = "causeway-leader";

/// Metadata of every call, with the highest term that the sender has met, and of every answer, with the
/// term of the leader that answers. A decimal number. An answer of a standby has the highest term that the
/// standby has met.
pub const TERM: &str = "causeway-term";

/// Metadata of every answer of a leader, and of the calls of those who know it: the id of the manager's
/// cluster, as 32 hexadecimal digits.
pub const CLUSTER: &str = "causeway-cluster";

/// Metadata of a node's question whether a manager leads: the node's uuid, as 32 hexadecimal digits. A node adds it only
/// if it does not reach the leader. A standby counts these nodes. Nobody checks the claim.
pub const NODE: &str = "causeway-node";

/// Parses 32 hexadecimal digits, as [`CLUSTER`] and [`NODE`] have them.
#[must_use]
pub fn sixteen_bytes(text: &str) -> Option<[u8; 16]> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(text, 16).ok())??;
    Some(number.to_be_bytes())
}

/// Writes 32 hexadecimal digits, as [`sixteen_bytes`] reads them.
#[must_use]
pub fn hexadecimal(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Number of a leader of a cluster's managers: each leader has a higher term than all before. 0: none
/// is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl Term {
    /// Parses the value of [`TERM`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Term> {
        text.parse().ok().map(Term)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a cluster: random, generated with its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub [u8; 16]);

impl ClusterId {
    /// Reads the bytes of a message's field. `None`: the field is empty or malformed.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<ClusterId> {
        bytes.try_into().ok().map(ClusterId)
    }

    /// Parses the value of [`CLUSTER`].
    #[must_use]
    pub fn parse(text: &str) -> Option<ClusterId> {
        sixteen_bytes(text).map(ClusterId)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hexadecimal(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let cluster = ClusterId(*b"\0\x01cluster of a b");
        assert_eq!(ClusterId::parse(&cluster.to_string()), Some(cluster));
        assert_eq!(ClusterId::from_bytes(&cluster.0), Some(cluster));
        assert_eq!(
            Term::parse(&Term(u64::MAX).to_string()),
            Some(Term(u64::MAX))
        );
    }

    #[test]
    fn malformed_values_are_absent() {
        for text in ["", "-1", "+1x", "18446744073709551616", "1.0"] {
            assert_eq!(Term::parse(text), None, "{text}");
        }
        let long = "0".repeat(33);
        let sign = format!("+{}", "0".repeat(31));
        for text in ["", "0", &long, &sign, &"g".repeat(32)] {
            assert_eq!(ClusterId::parse(text), None, "{text}");
        }
        assert_eq!(ClusterId::from_bytes(&[]), None);
    }
}
