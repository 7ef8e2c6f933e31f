//! The keys in etcd, below the prefix, and the values that are not rows.
//!
//! ```text
//! leader                   who leads, and whether that manager serves yet; hangs on the leader's etcd lease
//! step                     the last step of the store: TERM NUMBER [RANDOM]
//! pending                  a step too large for one transaction: stored as a whole, not in its rows yet
//! parts/STEP/NUMBER        the rows of such a step
//! managers/ID              a running manager; hangs on its etcd lease
//! aside                    a leader has stepped aside because its nodes did not reach it; hangs on a lease of minutes
//! before-aside             for how long `aside` lasts; hangs on a lease of four times that
//! rows/TABLE/KEY           the rows of the store
//! ```
//! Invariant: keys of different kinds never begin with each other.

use causeway_proto::metadata::Term;
use serde::{Deserialize, Serialize};

use crate::leadership::{LeaderKey, ManagerId, Reign, Revision};
use crate::store::rows::{META_CLUSTER, META_SCHEMA, META_TERM, Row, Table};

/// Makes keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Keys {
        Keys {
            prefix: prefix.to_owned(),
        }
    }

    fn below(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }

    pub(super) fn leader(&self) -> Vec<u8> {
        self.below("leader")
    }

    pub(super) fn aside(&self) -> Vec<u8> {
        self.below("aside")
    }

    pub(super) fn before_aside(&self) -> Vec<u8> {
        self.below("before-aside")
    }

    pub(super) fn step(&self) -> Vec<u8> {
        self.below("step")
    }

    pub(super) fn pending(&self) -> Vec<u8> {
        self.below("pending")
    }

    /// The beginning of the keys of all parts.
    pub(super) fn all_parts(&self) -> Vec<u8> {
        self.below("parts/")
    }

    /// The beginning of the keys of one step's parts.
    pub(super) fn parts(&self, step: &str) -> Vec<u8> {
        self.below(&format!("parts/{step}/"))
    }

    pub(super) fn part(&self, step: &str, number: usize) -> Vec<u8> {
        // Padded, because etcd orders by bytes.
        self.below(&format!("parts/{step}/{number:06}"))
    }

    pub(super) fn manager(&self, id: ManagerId) -> Vec<u8> {
        self.below(&format!("managers/{:016x}", id.0))
    }

    pub(super) fn managers(&self) -> Vec<u8> {
        self.below("managers/")
    }

    /// The manager by the key of its registration.
    pub(super) fn manager_of(&self, key: &[u8]) -> Option<ManagerId> {
        let id = key.strip_prefix(self.managers().as_slice())?;
        let id = u64::from_str_radix(std::str::from_utf8(id).ok()?, 16).ok()?;
        Some(ManagerId(id))
    }

    /// The beginning of the keys of all rows.
    pub(super) fn rows(&self) -> Vec<u8> {
        self.below("rows/")
    }

    /// The key of a row, from its table and key.
    pub(super) fn row(&self, table: Table, key: &[u8]) -> Vec<u8> {
        let mut whole = self.below(&format!("rows/{}/", table.name()));
        whole.extend_from_slice(key);
        whole
    }

    pub(super) fn schema(&self) -> Vec<u8> {
        self.row(Table::Meta, META_SCHEMA)
    }

    pub(super) fn term(&self) -> Vec<u8> {
        self.row(Table::Meta, META_TERM)
    }

    pub(super) fn cluster(&self) -> Vec<u8> {
        self.row(Table::Meta, META_CLUSTER)
    }

    /// The key and value of a row.
    pub(super) fn row_of(&self, row: Row<'_>) -> KeyRow {
        KeyRow {
            key: self.row(row.table, &row.key),
            value: row.value,
        }
    }

    /// The table and the key of a row. `None`: it is of a table that this version does not know.
    pub(super) fn table_of<'a>(&self, key: &'a [u8]) -> Option<(Table, &'a [u8])> {
        let below = key.strip_prefix(self.rows().as_slice())?;
        let end = below.iter().position(|byte| *byte == b'/')?;
        let named = |table: &Table| table.name().as_bytes() == &below[..end];
        let table = Table::ALL.into_iter().find(named)?;
        Some((table, &below[end + 1..]))
    }
}

/// A row as etcd has it: to put, or to delete (no value).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRow {
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

impl KeyRow {
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// The value of `leader`.
#[derive(Serialize, Deserialize)]
struct LeaderValue {
    manager: ManagerIdValue,
    address: String,
    term: u64,
    /// Whether the leader serves. Earlier versions do not say so, and serve soon.
    #[serde(default = "yes")]
    serves: bool,
}

fn yes() -> bool {
    true
}

/// In hexadecimal, because JSON's numbers have 53 bits in some programs.
type ManagerIdValue = String;

pub(super) fn leader_value(manager: ManagerId, address: &str, term: Term, serves: bool) -> Vec<u8> {
    let value = LeaderValue {
        manager: format!("{:016x}", manager.0),
        address: address.to_owned(),
        term: term.0,
        serves,
    };
    serde_json::to_vec(&value).expect("the value has string keys and no way to fail")
}

/// The leader by the key's value and create revision. A value that cannot be read is somebody's, too: of
/// a later version, or put by hand.
pub(super) fn leader_of(value: &[u8], create_revision: i64) -> LeaderKey {
    let read = serde_json::from_slice::<LeaderValue>(value).ok();
    let manager = |of: &LeaderValue| u64::from_str_radix(&of.manager, 16).ok();
    LeaderKey {
        manager: ManagerId(read.as_ref().and_then(manager).unwrap_or(0)),
        reign: Reign {
            term: Term(read.as_ref().map_or(0, |of| of.term)),
            revision: Revision(create_revision),
        },
        serves: read.as_ref().is_none_or(|of| of.serves),
        address: read.map(|of| of.address).unwrap_or_default(),
    }
}

/// The value of `step` at the beginning of a term.
pub(super) fn first_step(term: Term) -> Vec<u8> {
    format!("{term} 0").into_bytes()
}

/// The value of `aside`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AsideValue {
    /// The term of the leader that has stepped aside.
    pub(super) term: u64,
    /// The manager that most nodes reach, which shall lead next.
    pub(super) chosen: ManagerIdValue,
}

impl AsideValue {
    pub(super) fn new(term: Term, chosen: ManagerId) -> AsideValue {
        AsideValue {
            term: term.0,
            chosen: format!("{:016x}", chosen.0),
        }
    }

    /// Whether this manager leaves the lead to the chosen one, if nobody has led since `term`.
    pub(super) fn yields(&self, term: Term, manager: ManagerId) -> bool {
        self.term == term.0 && *self != AsideValue::new(term, manager)
    }
}

/// The value of `running` managers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Where clients reach the manager.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// The newest schema that it knows.
    pub schema: u32,
    /// Since when it leads or stands by, by its host's clock in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Why it cannot lead. Empty: it can.
    #[serde(default)]
    pub problem: String,
    /// The URL of its dashboard. Empty: it has none that others reach.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dashboard: String,
    /// Nodes that it has turned away lately, because another manager leads.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turned_away: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_its_key() {
        let keys = Keys::new("/causeway/");
        for (table, key) in [
            (Table::Leases, &b"a/b\0\xFF"[..]),
            (Table::Meta, b""),
            (Table::Users, b"ann"),
        ] {
            assert_eq!(keys.table_of(&keys.row(table, key)), Some((table, key)));
        }
        assert_eq!(keys.table_of(b"/causeway/rows/later/x"), None);
        assert_eq!(keys.table_of(b"/causeway/leader"), None);
    }

    #[test]
    fn only_others_than_the_chosen_manager_yield_and_only_until_somebody_has_led() {
        let keys = Keys::new("/causeway/");
        let chosen = keys.manager_of(&keys.manager(ManagerId(7))).unwrap();
        let aside = AsideValue::new(Term(3), chosen);
        assert!(!aside.yields(Term(3), ManagerId(7)));
        assert!(aside.yields(Term(3), ManagerId(8)));
        assert!(!aside.yields(Term(4), ManagerId(8)));
    }

    #[test]
    fn a_leader_is_read_as_it_was_written() {
        let value = leader_value(ManagerId(7), "m1:7078", Term(3), false);
        let leader = leader_of(&value, 12);
        assert!(!leader.serves);
        let of_earlier_version = br#"{"manager":"7","address":"m1:7078","term":3}"#;
        assert!(leader_of(of_earlier_version, 12).serves);
        assert_eq!(
            (leader.manager, &*leader.address),
            (ManagerId(7), "m1:7078")
        );
        assert_eq!(
            (leader.reign.term, leader.reign.revision),
            (Term(3), Revision(12))
        );
        assert_eq!(leader_of(b"by hand", 5).reign.revision, Revision(5));
    }
}
