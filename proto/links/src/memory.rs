//! The file of kept figures, of a daemon or of a user's programs.
//!
//! Its name depends on whose figures they are, because a daemon, its user's programs and other machines may share a folder.
//! Invariants: an absent or damaged file counts as empty. A reader sees a whole file, because a writer replaces it.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use causeway_security::{BadState, StateFile};
use sha2::{Digest, Sha256};

use crate::table::{LinkEntry, LinkTable, MOST_BYTES};

/// Longest wait for other programs that write the file.
const LOCKED_WITHIN: Duration = Duration::from_millis(500);

/// Why the file counts as empty, or why it was not written.
#[derive(Debug, thiserror::Error)]
pub enum BadMemory {
    /// The file cannot be used.
    #[error("{0}")]
    File(#[from] BadState),
    /// A new figure has a value that is not possible.
    #[error(
        "the figures of a link are not kept: a name in them is not valid, or longer than 255 bytes"
    )]
    NotValid,
}

/// The file of kept figures. Makes nothing until a figure is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkMemory {
    file: StateFile,
}

impl LinkMemory {
    /// The file of a node's daemon in this folder.
    #[must_use]
    pub fn of_node(folder: &Path, uuid: &[u8; 16]) -> LinkMemory {
        let uuid = digits(uuid);
        LinkMemory {
            file: StateFile::at(folder.join(format!("node-{uuid}.links.toml"))),
        }
    }

    /// The file of a node's daemon for the figures of links to other nodes of its device manager.
    #[must_use]
    pub fn of_cluster(folder: &Path, uuid: &[u8; 16]) -> LinkMemory {
        let uuid = digits(uuid);
        LinkMemory {
            file: StateFile::at(folder.join(format!("node-{uuid}.cluster.links.toml"))),
        }
    }

    /// The file of a user's programs on this machine, in this folder.
    #[must_use]
    pub fn of_programs(folder: &Path) -> LinkMemory {
        // Machines without an id have one file.
        let machine = fs::read("/etc/machine-id").unwrap_or_default();
        LinkMemory::of_machine(folder, &machine)
    }

    fn of_machine(folder: &Path, machine: &[u8]) -> LinkMemory {
        let digest = Sha256::new()
            .chain_update(b"causeway links 1\0")
            .chain_update(machine)
            .finalize();
        let number = u32::from_be_bytes(std::array::from_fn(|i| digest[i]));
        LinkMemory {
            file: StateFile::at(folder.join(format!("machine-{number:08x}.links.toml"))),
        }
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The kept figures. An absent file has none.
    ///
    /// # Errors
    /// [`BadMemory`]; the file then counts as empty.
    pub fn table(&self) -> Result<LinkTable, BadMemory> {
        let Some(text) = self.file.read(MOST_BYTES)? else {
            return Ok(LinkTable::default());
        };
        Ok(LinkTable::parse(&text).map_err(|error| self.file.damaged(&error))?)
    }

    /// Keeps figures, beside those of other programs. A damaged file is replaced.
    ///
    /// # Errors
    /// [`BadMemory`]; the file is then as it was.
    pub fn keep(&self, entries: Vec<LinkEntry>) -> Result<(), BadMemory> {
        let locked = self.file.lock(LOCKED_WITHIN)?;
        let mut table = self.table().unwrap_or_default();
        for entry in entries {
            if !table.note(entry) {
                return Err(BadMemory::NotValid);
            }
        }
        Ok(locked.replace(&table.text())?)
    }
}

/// The present, as [`LinkEntry::when`] tells it.
#[must_use]
pub fn seconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

fn digits(uuid: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*uuid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::entry;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn figures_are_kept_and_a_damaged_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let memory = LinkMemory::of_programs(&folder.path().join("state/causeway"));
        assert_eq!(
            memory.table().unwrap(),
            LinkTable::default(),
            "an absent file"
        );
        memory.keep(vec![entry("", 1, 1), entry("", 2, 1)]).unwrap();
        memory.keep(vec![entry("", 2, 5)]).unwrap();
        let whens =
            |table: &LinkTable| table.entries().iter().map(|of| of.when).collect::<Vec<_>>();
        assert_eq!(whens(&memory.table().unwrap()), [1, 5]);
        let mode = fs::metadata(memory.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(memory.path(), [0xff, 0xfe]).unwrap();
        let damaged = memory.table();
        assert!(
            matches!(damaged, Err(BadMemory::File(BadState::Damaged { .. }))),
            "{damaged:?}"
        );
        memory.keep(vec![entry("", 3, 9)]).unwrap();
        assert_eq!(whens(&memory.table().unwrap()), [9]);
    }

    #[test]
    fn nodes_programs_and_machines_have_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let memories = [
            LinkMemory::of_node(folder.path(), &[1; 16]),
            LinkMemory::of_node(folder.path(), &[2; 16]),
            LinkMemory::of_machine(folder.path(), b"one"),
            LinkMemory::of_machine(folder.path(), b"other"),
        ];
        for (when, memory) in (1..).zip(&memories) {
            memory.keep(vec![entry("", 7, when)]).unwrap();
        }
        for (when, memory) in (1..).zip(&memories) {
            assert_eq!(memory.table().unwrap().entries()[0].when, when);
        }
    }

    #[test]
    fn one_wrong_figure_keeps_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let memory = LinkMemory::of_programs(folder.path());
        memory.keep(vec![entry("", 1, 1)]).unwrap();
        let wrong = LinkEntry {
            peer: String::new(),
            ..entry("", 2, 2)
        };
        let refused = memory.keep(vec![wrong]);
        assert!(matches!(refused, Err(BadMemory::NotValid)), "{refused:?}");
        assert_eq!(memory.table().unwrap().entries().len(), 1);
    }
}
