//! The state of files that influence a compiler, and whether they are unchanged.
//!
//! The key covers a driver's own libraries. Files that the driver loads only when it compiles are not known
//! before the build. An entry therefore names them, and each user of the entry checks that they are
//! unchanged.
//!
//! This module reads no file contents. Invariant: a file that was modified or replaced has another stamp,
//! because no program can set the time of a file's last status change.
#![forbid(unsafe_code)]

use std::io;
use std::os::unix::fs::MetadataExt;

use prost::Message;

/// Maximum number of files that an entry may name.
pub const MAX_STAMPS: usize = 256;

/// The recorded state of a file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Stamp {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Inode number.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    /// Size in bytes.
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// Time of the last change of the content (mtime): seconds and nanoseconds.
    #[prost(sint64, repeated, tag = "4")]
    pub modified: Vec<i64>,
    /// Time of the last status change (ctime): seconds and nanoseconds.
    #[prost(sint64, repeated, tag = "5")]
    pub changed: Vec<i64>,
}

impl Stamp {
    /// Records the current state of a file.
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

    /// Returns whether the same file is still there and unchanged.
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
        // Size and mtime are the same, but the inode differs.
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
