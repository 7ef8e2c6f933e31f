//! The file of kept figures, of a daemon or of a user's programs.
//!
//! Its name depends on whose figures they are, because a daemon, its user's programs and other machines may share a folder.
//! Invariants: an absent or damaged file counts as empty. A reader sees a whole file, because a writer replaces it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use sha2::{Digest, Sha256};

use crate::table::{Entry, MOST_BYTES, Table};

/// Longest wait for other programs that write the file.
const LOCKED_WITHIN: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Why the file counts as empty, or why it was not written.
#[derive(Debug, thiserror::Error)]
pub enum BadMemory {
    /// The file cannot be read or written.
    #[error("{path}: {error}; correct the permissions, or delete the file", path = path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not one of kept figures.
    #[error("{path} is damaged and counts as empty: {reason}; delete the file", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A new figure has a value that is not possible.
    #[error(
        "the figures of a link are not kept: a name in them is not valid, or longer than 255 bytes"
    )]
    NotValid,
    /// Other programs write the file.
    #[error("{path}: other programs have written the file for too long; measure again", path = .0.display())]
    Busy(PathBuf),
}

/// The file of kept figures. Makes nothing until a figure is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkMemory {
    path: PathBuf,
}

impl LinkMemory {
    /// The file of a node's daemon in this folder.
    #[must_use]
    pub fn of_node(folder: &Path, uuid: &[u8; 16]) -> LinkMemory {
        let uuid = digits(uuid);
        LinkMemory {
            path: folder.join(format!("node-{uuid}.links.toml")),
        }
    }

    /// The file of a node's daemon for the figures of links to other nodes of its device manager.
    #[must_use]
    pub fn of_cluster(folder: &Path, uuid: &[u8; 16]) -> LinkMemory {
        let uuid = digits(uuid);
        LinkMemory {
            path: folder.join(format!("node-{uuid}.cluster.links.toml")),
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
            path: folder.join(format!("machine-{number:08x}.links.toml")),
        }
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kept figures. An absent file has none.
    ///
    /// # Errors
    /// [`BadMemory`]; the file then counts as empty.
    pub fn table(&self) -> Result<Table, BadMemory> {
        let mut text = String::new();
        // Opening a named pipe must not wait.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path);
        let read = match opened {
            // One byte more, so that a file that is too large is found out.
            Ok(file) => file.take(MOST_BYTES as u64 + 1).read_to_string(&mut text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Table::default()),
            Err(error) => Err(error),
        };
        match read {
            Err(error) if error.kind() != io::ErrorKind::InvalidData => Err(self.system(error)),
            Err(error) => Err(self.damaged(&error)),
            Ok(_) => Table::parse(&text).map_err(|error| self.damaged(&error)),
        }
    }

    /// Keeps figures, beside those of other programs. A damaged file is replaced.
    ///
    /// # Errors
    /// [`BadMemory`]; the file is then as it was.
    pub fn keep(&self, entries: Vec<Entry>) -> Result<(), BadMemory> {
        let folder = self.path.parent().unwrap_or(&self.path);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| self.system(error))?;
        let _lock = self.lock(folder)?;
        let mut table = self.table().unwrap_or_default();
        for entry in entries {
            if !table.note(entry) {
                return Err(BadMemory::NotValid);
            }
        }
        // The process's id is in the name for systems that cannot lock a folder.
        let new = self
            .path
            .with_extension(format!("new.{}", std::process::id()));
        let written = write(&new, &table.text()).and_then(|()| fs::rename(&new, &self.path));
        written.map_err(|error| {
            // The system may keep the file; the next writer of this id then replaces it.
            let _ = fs::remove_file(&new);
            self.system(error)
        })
    }

    /// Locks the folder, so that no other program writes the file meanwhile.
    fn lock(&self, folder: &Path) -> Result<Option<File>, BadMemory> {
        let file = File::open(folder).map_err(|error| self.system(error))?;
        let until = Instant::now() + LOCKED_WITHIN;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= until => {
                    return Err(BadMemory::Busy(self.path.clone()));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
                // Some network file systems lock no folders. At worst, a figure of another program is lost.
                Err(_) => return Ok(None),
            }
        }
    }

    fn system(&self, error: io::Error) -> BadMemory {
        BadMemory::System {
            path: self.path.clone(),
            error,
        }
    }

    fn damaged(&self, reason: &dyn std::fmt::Display) -> BadMemory {
        BadMemory::Damaged {
            path: self.path.clone(),
            reason: reason.to_string(),
        }
    }
}

fn digits(uuid: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*uuid))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = match options.open(path) {
        // An earlier process of this id has died.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)
        }
        opened => opened,
    };
    file?.write_all(text.as_bytes())
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
        assert_eq!(memory.table().unwrap(), Table::default(), "an absent file");
        memory.keep(vec![entry("", 1, 1), entry("", 2, 1)]).unwrap();
        memory.keep(vec![entry("", 2, 5)]).unwrap();
        let whens = |table: &Table| table.entries().iter().map(|of| of.when).collect::<Vec<_>>();
        assert_eq!(whens(&memory.table().unwrap()), [1, 5]);
        let mode = fs::metadata(memory.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(memory.path(), [0xff, 0xfe]).unwrap();
        assert!(matches!(memory.table(), Err(BadMemory::Damaged { .. })));
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
        let wrong = Entry {
            peer: String::new(),
            ..entry("", 2, 2)
        };
        let refused = memory.keep(vec![wrong]);
        assert!(matches!(refused, Err(BadMemory::NotValid)), "{refused:?}");
        assert_eq!(memory.table().unwrap().entries().len(), 1);
    }
}
