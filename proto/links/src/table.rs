//! The figures that are kept of links: a table of bounded size and age, and its text.
//!
//! Pure: times come in as seconds since 1970. Invariants: there is one entry for each user, peer and IP address of the peer.
//! A user whose entries are many loses their own oldest one first, so nobody displaces another user's figures. A figure that
//! [`is_old`] is shown, and not used.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figures::{Measured, RoundTrip};

/// Most entries of a table.
pub const MOST_ENTRIES: usize = 4096;
/// Most bytes of a table's text.
pub const MOST_BYTES: usize = 1 << 20;
/// Most bytes of a name in an entry.
const MOST_NAME: usize = 255;
/// Age at which a figure is old, in seconds.
const OLD_AFTER: u64 = 30 * 86_400;
/// By how many seconds a host's clock may be before this one.
const CLOCKS_DIFFER: u64 = 600;

/// Figures of one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEntry {
    /// The other end's uuid, as 32 hexadecimal digits.
    pub peer: String,
    /// Its name, for people.
    pub name: String,
    /// The user who has measured; empty: anyone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// This end's address.
    pub from: IpAddr,
    /// The other end's address.
    pub to: SocketAddr,
    /// Shortest round trip in nanoseconds.
    pub least_ns: u64,
    /// Median of the round trips in nanoseconds.
    pub median_ns: u64,
    /// Number of lost probes, out of [`PROBES`](crate::PROBES).
    pub lost: u32,
    /// Bytes per second to the other end.
    pub outward: u64,
    /// Bytes per second from the other end.
    pub inward: u64,
    /// Milliseconds of each direction's stream.
    pub stream_ms: u32,
    /// Whether the streams were encrypted.
    pub tls: bool,
    /// When it was measured, in seconds since 1970.
    pub when: u64,
}

impl LinkEntry {
    /// An entry for a link between these addresses, without user, name, time and figures.
    #[must_use]
    pub fn unmeasured(peer: String, from: IpAddr, to: SocketAddr) -> LinkEntry {
        LinkEntry {
            peer,
            name: String::new(),
            user: String::new(),
            from,
            to,
            least_ns: 0,
            median_ns: 0,
            lost: 0,
            outward: 0,
            inward: 0,
            stream_ms: 0,
            tls: false,
            when: 0,
        }
    }

    /// Whether the figures are too old to be used.
    #[must_use]
    pub fn is_old(&self, now: u64) -> bool {
        is_old(self.when, now)
    }

    /// Sets the figures.
    #[must_use]
    pub fn with(self, measured: &Measured) -> LinkEntry {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        LinkEntry {
            least_ns: ns(measured.round_trip.least),
            median_ns: ns(measured.round_trip.median),
            lost: measured.round_trip.lost,
            outward: measured.outward,
            inward: measured.inward,
            ..self
        }
    }

    /// The figures.
    #[must_use]
    pub fn measured(&self) -> Measured {
        Measured {
            round_trip: RoundTrip {
                least: Duration::from_nanos(self.least_ns),
                median: Duration::from_nanos(self.median_ns),
                lost: self.lost,
            },
            outward: self.outward,
            inward: self.inward,
        }
    }

    /// Of two entries with one key, the newer counts.
    fn key(&self) -> (&str, &str, IpAddr) {
        (&self.user, &self.peer, self.to.ip())
    }

    fn is_valid(&self) -> bool {
        let is_name = |name: &str| name.len() <= MOST_NAME && !name.chars().any(char::is_control);
        self.peer.len() == 32
            && self.peer.bytes().all(|byte| byte.is_ascii_hexdigit())
            && is_name(&self.name)
            && is_name(&self.user)
    }
}

/// Whether figures of this time are too old to be used. Figures of the future are: a clock was wrong, so their age is not
/// known.
#[must_use]
pub fn is_old(when: u64, now: u64) -> bool {
    now.saturating_sub(when) >= OLD_AFTER || when > now.saturating_add(CLOCKS_DIFFER)
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    #[serde(default, rename = "link")]
    links: Vec<LinkEntry>,
}

/// The text is not one of a table.
#[derive(Debug, thiserror::Error)]
pub enum BadTable {
    /// The text is not TOML of the right form.
    #[error("{0}")]
    Unreadable(String),
    /// The table is too large, or a value of it is not possible.
    #[error("an entry is not valid, or there are too many")]
    Invalid,
}

impl LinkTable {
    /// The entries, ordered by user, peer and address.
    #[must_use]
    pub fn entries(&self) -> &[LinkEntry] {
        &self.links
    }

    /// Takes an entry, in place of an earlier one of the same user, peer and IP address of the peer. Returns false, and changes
    /// nothing, if a value of the entry is not possible.
    #[must_use]
    pub fn note(&mut self, entry: LinkEntry) -> bool {
        if !entry.is_valid() {
            return false;
        }
        self.links.retain(|of| of.key() != entry.key());
        self.links.push(entry);
        while self.links.len() > MOST_ENTRIES {
            self.drop_one();
        }
        self.links.sort_by(|one, other| one.key().cmp(&other.key()));
        true
    }

    /// Drops the oldest entry of the user who has most.
    fn drop_one(&mut self) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for of in &self.links {
            *counts.entry(&of.user).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let of_largest =
            (self.links.iter().enumerate()).filter(|(_, of)| counts[&*of.user] == most);
        let oldest = of_largest.min_by_key(|(_, of)| of.when);
        if let Some(at) = oldest.map(|(at, _)| at) {
            self.links.remove(at);
        }
    }

    /// The text, of [`MOST_BYTES`] at most: entries go until it fits.
    #[must_use]
    pub fn text(&mut self) -> String {
        loop {
            // An entry has strings and numbers only, which always have a text; numbers above i64 do not.
            let text = toml::to_string(&self.limited()).unwrap_or_default();
            if text.len() <= MOST_BYTES {
                return text;
            }
            for _ in 0..1 + self.links.len() / 16 {
                self.drop_one();
            }
        }
    }

    /// The table with numbers that TOML can write.
    fn limited(&self) -> LinkTable {
        let most = i64::MAX.unsigned_abs();
        let limited = self.links.iter().map(|of| LinkEntry {
            least_ns: of.least_ns.min(most),
            median_ns: of.median_ns.min(most),
            outward: of.outward.min(most),
            inward: of.inward.min(most),
            when: of.when.min(most),
            ..of.clone()
        });
        LinkTable {
            links: limited.collect(),
        }
    }

    /// Reads a text.
    ///
    /// # Errors
    /// An error says where the text is wrong; the table then counts as empty.
    pub fn parse(text: &str) -> Result<LinkTable, BadTable> {
        if text.len() > MOST_BYTES {
            return Err(BadTable::Invalid);
        }
        let table: LinkTable = toml::from_str(text)
            .map_err(|error| BadTable::Unreadable(error.message().to_owned()))?;
        let mut keys = std::collections::HashSet::new();
        let is_right = table.links.len() <= MOST_ENTRIES
            && (table.links.iter()).all(|of| of.is_valid() && keys.insert(of.key()));
        is_right.then(|| table.clone()).ok_or(BadTable::Invalid)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn entry(user: &str, peer: u128, when: u64) -> LinkEntry {
        let (from, to) = ([10, 0, 0, 1].into(), "[fe80::2]:7079".parse().unwrap());
        LinkEntry {
            name: format!("gpu{peer}.lab"),
            user: user.to_owned(),
            least_ns: 200_000,
            median_ns: 210_000,
            outward: 125_000_000,
            inward: 124_000_000,
            stream_ms: 500,
            tls: true,
            when,
            ..LinkEntry::unmeasured(format!("{peer:032x}"), from, to)
        }
    }

    /// The newest entry of a user for a peer.
    fn newest<'a>(table: &'a LinkTable, user: &str, peer: u128) -> Option<&'a LinkEntry> {
        let peer = format!("{peer:032x}");
        let of_peer = table.entries().iter();
        let of_peer = of_peer.filter(|of| of.user == user && of.peer == peer);
        of_peer.max_by_key(|of| of.when)
    }

    #[test]
    fn a_figure_is_replaced_and_becomes_old() {
        let mut table = LinkTable::default();
        assert!(table.note(entry("", 1, 1_000)));
        assert!(table.note(entry("", 1, 2_000)));
        assert_eq!(table.entries().len(), 1);
        let of = newest(&table, "", 1).unwrap();
        assert!(!of.is_old(2_000 + OLD_AFTER - 1) && of.is_old(2_000 + OLD_AFTER));
        assert!(!of.is_old(2_000 - CLOCKS_DIFFER), "clocks differ");
        assert!(of.is_old(1_999 - CLOCKS_DIFFER), "its age is not known");
        assert_eq!(newest(&table, "alice", 1), None);
    }

    #[test]
    fn each_address_of_a_peer_has_its_figure() {
        let at = |address: &str, when| LinkEntry {
            to: address.parse().unwrap(),
            ..entry("", 1, when)
        };
        let mut table = LinkTable::default();
        for entry in [at("10.0.0.2:7079", 5), at("10.1.0.2:7079", 4)] {
            assert!(table.note(entry));
        }
        // Ports of one address are not told apart. Tunnels that begin at one address share an entry.
        assert!(table.note(at("10.1.0.2:9999", 9)));
        let whens: Vec<u64> = table.entries().iter().map(|of| of.when).collect();
        assert_eq!(whens, [5, 9]);
        assert_eq!(newest(&table, "", 1).unwrap().when, 9);
        let text = table.text();
        assert_eq!(LinkTable::parse(&text).unwrap(), table);
    }

    #[test]
    fn a_user_with_many_entries_displaces_nobody() {
        let mut table = LinkTable::default();
        assert!(table.note(entry("alice", 7, 1)));
        for peer in 0..MOST_ENTRIES as u128 + 5 {
            assert!(table.note(entry("mallory", peer, 100 + peer as u64)));
        }
        assert_eq!(table.entries().len(), MOST_ENTRIES);
        assert!(newest(&table, "alice", 7).is_some());
        assert!(newest(&table, "mallory", 5).is_none());
        let text = table.text();
        assert!(text.len() <= MOST_BYTES, "{}", text.len());
        assert_eq!(LinkTable::parse(&text).unwrap(), table);
        assert!(newest(&table, "alice", 7).is_some());
    }

    #[test]
    fn wrong_values_are_refused() {
        let mut table = LinkTable::default();
        for wrong in [
            LinkEntry {
                peer: "x".repeat(32),
                ..entry("", 1, 1)
            },
            LinkEntry {
                peer: "ab".to_owned(),
                ..entry("", 1, 1)
            },
            LinkEntry {
                name: "a\nb".to_owned(),
                ..entry("", 1, 1)
            },
            LinkEntry {
                user: "u".repeat(256),
                ..entry("", 1, 1)
            },
        ] {
            assert!(!table.note(wrong));
        }
        assert_eq!(table, LinkTable::default());
        let twice = LinkTable {
            links: vec![entry("", 1, 1), entry("", 1, 2)],
        };
        assert!(LinkTable::parse(&toml::to_string(&twice).unwrap()).is_err());
        assert!(LinkTable::parse("[[link]]\npeer = 3").is_err());
        assert!(LinkTable::parse(&"#".repeat(MOST_BYTES + 1)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_table_or_is_refused(text: String) {
            let _ = LinkTable::parse(&text);
        }

        #[test]
        fn what_is_written_is_read(
            entries in prop::collection::vec(("[a-z'\"\\\\é]{0,9}", 0_u128..20, any::<u64>(), any::<u64>()), 0..40)
        ) {
            let mut table = LinkTable::default();
            for (user, peer, when, rate) in entries {
                let noted = LinkEntry { outward: rate >> 1, ..entry(&user, peer, when >> 1) };
                prop_assert!(table.note(noted));
            }
            let text = table.text();
            prop_assert_eq!(LinkTable::parse(&text).unwrap(), table);
        }
    }
}
