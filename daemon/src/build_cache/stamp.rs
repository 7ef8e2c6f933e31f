//! Files that decide what a compiler makes: how they were, and whether they still are so.
//!
//! A driver's own libraries are in the key. What it loads only when it compiles is not known before, so an
//! entry names those files, and whoever is about to use the entry looks whether they are still the same.
//!
//! What it is not: it reads no file. Invariant: a file that was written to or replaced has another stamp,
//! by the time of its last change, which no program can set.
#![forbid(unsafe_code)]

use std::io;
use std::os::unix::fs::MetadataExt;

use prost::Message;

/// Files that one entry may name.
pub const MAX_STAMPS: usize = 256;

/// A file as it was.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Stamp {
    /// Where, from the root.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Its inode.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    /// Bytes.
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// When its content changed last: seconds and ns.
    #[prost(sint64, repeated, tag = "4")]
    pub modified: Vec<i64>,
    /// When anything about it changed last, likewise.
    #[prost(sint64, repeated, tag = "5")]
    pub changed: Vec<i64>,
}

impl Stamp {
    /// Of the file that is there now.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(path: &str) -> io::Result<Stamp> {
        let found = std::fs::metadata(path)?;
        Ok(Stamp {
            path: path.to_owned(),
            inode: found.ino(),
            size: found.size(),
            modified: vec![found.mtime(), found.mtime_nsec()],
            changed: vec![found.ctime(), found.ctime_nsec()],
        })
    }

    /// Whether this very file is still there, as it was.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.path.starts_with('/') && Stamp::of(&self.path).is_ok_and(|now| now == *self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_written_replaced_or_removed_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libcompiler.so");
        let text = path.to_str().unwrap();
        let write = |content: &str| std::fs::write(&path, content).unwrap();
        write("one");
        let before = Stamp::of(text).unwrap();
        assert!(before.is_current());
        write("longer");
        assert!(!before.is_current());

        let before = Stamp::of(text).unwrap();
        let new = folder.path().join("new");
        // Of the same size and time: another inode.
        std::fs::write(&new, "longer").unwrap();
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        let file = std::fs::File::options().write(true).open(&new).unwrap();
        file.set_modified(time).unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert!(!before.is_current());

        let before = Stamp::of(text).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!before.is_current());
    }

    #[test]
    fn only_paths_from_the_root_are_looked_at() {
        let here = Stamp::of(".").unwrap();
        assert!(!here.is_current());
    }
}
