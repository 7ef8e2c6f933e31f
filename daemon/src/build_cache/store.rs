//! The directory of entries. Its size is limited, and so is each owner's part of it ([`Index`]).
//!
//! An entry counts with the blocks of the disk that it takes. So very short entries cannot become so many
//! that the directory is slow.
//!
//! An entry is written to a temporary file and renamed. A crash therefore leaves no partial entry, and a
//! process that has an entry open can still read it after its eviction. A file's modification time is the
//! time of its last use, so the order survives restarts. Several daemons may share a directory: before an
//! insertion, the directory's own modification time shows whether another daemon has changed it.
//!
//! Nothing is synced to disk. After a power failure, a damaged entry has a wrong checksum.
//!
//! Invariant: only files whose names match the format of entries are read and counted. Links and files of
//! more than [`MAX_ENTRY`] bytes are never read. Entries of earlier formats are removed. All other files in
//! the directory are left alone.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, futimens, openat,
    renameat, statat, unlinkat,
};

use super::entry::MAX_ENTRY;
use super::index::Index;
use super::key::Name;

const TEMPORARY: &str = "new-";
/// Age in seconds at which a temporary file counts as left behind by a crash. Writing one takes far less.
const LEFT_BEHIND: i64 = 3600;
/// Size of a block of the disk in bytes, as most file systems have it.
const BLOCK: u64 = 4096;

/// Reasons for which the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The system's error.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The directory belongs to another user, or other users may write to it.
    #[error(
        "the directory belongs to another user, or other users may write to it; choose one that only the daemon's user \
         may write to"
    )]
    Shared,
}

/// An open directory of entries.
#[derive(Debug)]
pub struct Store {
    folder: File,
    index: Index,
    // The directory's modification time after the latest change by this process.
    seen: Option<(i64, i64)>,
}

impl Store {
    /// Opens `folder` for at most `limit` bytes, of which one owner may have `share`. Makes the folder if it
    /// does not exist.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn open(folder: &Path, limit: u64, share: u64) -> Result<Store, Unusable> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder =
            File::from(rustix::fs::open(folder, flags, Mode::empty()).map_err(io::Error::from)?);
        let found = folder.metadata()?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(Unusable::Shared);
        }
        rustix::fs::fchmod(&folder, Mode::RWXU).map_err(io::Error::from)?;
        let mut store = Store {
            folder,
            index: Index::new(limit, share),
            seen: None,
        };
        store.look()?;
        Ok(store)
    }

    /// Returns the total size of all entries in bytes, in whole blocks.
    pub fn total(&self) -> u64 {
        self.index.total()
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.index.count()
    }

    /// Returns whether an entry exists, according to the index.
    #[must_use]
    pub fn has(&self, name: &Name) -> bool {
        self.index.has(name)
    }

    /// Opens an entry for reading and marks it as the most recently used one.
    pub fn get(&mut self, name: &Name) -> Option<File> {
        let Ok(file) = self.open_entry(name) else {
            self.index.forget(name);
            return None;
        };
        self.index.touch(name);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        // If this fails, the order is less accurate after a restart.
        let _ = futimens(
            &file,
            &Timestamps {
                last_access: now,
                last_modification: now,
            },
        );
        Some(file)
    }

    fn open_entry(&self, name: &Name) -> io::Result<File> {
        // NONBLOCK, because the file may be a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(openat(&self.folder, name.file(), flags, Mode::empty())?);
        let found = file.metadata()?;
        if found.is_file() && found.len() <= MAX_ENTRY as u64 {
            Ok(file)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    /// Stores an entry, and replaces one of the same name. Evicts other entries if necessary. An entry that
    /// is larger than its owner's share is ignored.
    ///
    /// # Errors
    /// The system's error, for example that the disk is full. No entry was changed then.
    pub fn put(&mut self, name: Name, bytes: &[u8]) -> io::Result<()> {
        let size = on_disk(bytes.len() as u64);
        if !self.index.fits(size) {
            return Ok(());
        }
        if self.stamp() != self.seen {
            self.look()?;
        }
        // Random, because another daemon may write to the same directory, in a container with its own pids.
        let temporary = format!("{TEMPORARY}{:032x}", rand::random::<u128>());
        let placed = self.write(&temporary, bytes).and_then(|()| {
            Ok(renameat(
                &self.folder,
                &temporary,
                &self.folder,
                name.file(),
            )?)
        });
        if placed.is_err() {
            let _ = unlinkat(&self.folder, &temporary, AtFlags::empty());
        }
        placed?;
        for evicted in self.index.insert(name, size) {
            self.unlink(&evicted.file());
        }
        self.seen = self.stamp();
        Ok(())
    }

    fn write(&self, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(openat(&self.folder, temporary, flags, mode)?);
        file.write_all(bytes)
    }

    /// Removes an entry.
    pub fn remove(&mut self, name: &Name) {
        self.index.forget(name);
        self.unlink(&name.file());
        self.seen = self.stamp();
    }

    fn unlink(&self, file: &str) {
        // Another daemon may have removed the file already.
        let _ = unlinkat(&self.folder, file, AtFlags::empty());
    }

    /// Returns the modification time of the directory.
    fn stamp(&self) -> Option<(i64, i64)> {
        let found = self.folder.metadata().ok()?;
        Some((found.mtime(), found.mtime_nsec()))
    }

    /// Rebuilds the index from the directory. Removes abandoned temporary files, invalid entries, entries of
    /// earlier formats and entries beyond the limits.
    fn look(&mut self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            let Ok(text) = entry.file_name().to_str() else {
                continue;
            };
            let Ok(stat) = statat(&self.folder, text, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if text.starts_with(TEMPORARY) {
                if is_left_behind(&stat) {
                    self.unlink(text);
                }
            } else if Name::is_former(text) {
                self.unlink(text);
            } else if let Some(name) = Name::parse(text) {
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
                    || stat.st_size > MAX_ENTRY as i64
                {
                    self.unlink(text);
                } else {
                    let used = (stat.st_mtime, stat.st_mtime_nsec);
                    let size = on_disk(u64::try_from(stat.st_size).unwrap_or(0));
                    found.push((used, name, size));
                }
            }
        }
        // Sorted by last use, so that the insertions below restore the order.
        found.sort_unstable();
        self.index.clear();
        for (_, name, size) in found {
            for evicted in self.index.insert(name, size) {
                self.unlink(&evicted.file());
            }
        }
        self.seen = self.stamp();
        Ok(())
    }
}

/// Returns the bytes that a file of this length takes on the disk.
fn on_disk(length: u64) -> u64 {
    length.max(1).next_multiple_of(BLOCK)
}

fn is_left_behind(stat: &Stat) -> bool {
    let now = std::time::SystemTime::now();
    let seconds = now
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mtime.saturating_add(LEFT_BEHIND) < seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_cache::key::{KEY, Key, Owner};
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    fn name(n: u8) -> Name {
        Name {
            owner: Owner::of(None),
            key: Key([n; KEY]),
        }
    }

    /// Opens a store of this number of blocks for one user.
    fn open(folder: &Path, blocks: u64) -> Store {
        Store::open(folder, blocks * BLOCK, blocks * BLOCK).unwrap()
    }

    fn read(store: &mut Store, n: u8) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        store.get(&name(n))?.read_to_end(&mut bytes).unwrap();
        Some(bytes)
    }

    #[test]
    fn entries_outlive_the_store_and_keep_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a/builds");
        let mut store = open(&place, 3);
        let mode = std::fs::metadata(&place).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for n in 1..=3 {
            store.put(name(n), &[n; 10]).unwrap();
            // The times are as after a day of use.
            let file = File::open(place.join(name(n).file())).unwrap();
            let long_ago = SystemTime::now() - Duration::from_secs(1000 - u64::from(n));
            file.set_modified(long_ago).unwrap();
        }
        assert_eq!(read(&mut store, 1), Some(vec![1; 10]));
        drop(store);
        let mut store = open(&place, 3);
        store.put(name(4), &[4; 10]).unwrap();
        assert_eq!(read(&mut store, 2), None, "the one used least recently");
        assert_eq!(read(&mut store, 1), Some(vec![1; 10]));
        assert_eq!((store.count(), store.total()), (3, 3 * BLOCK));
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 3);
        // A smaller limit is applied when the store is opened.
        assert_eq!(open(&place, 1).count(), 1);
    }

    #[test]
    fn an_owner_has_a_share_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let of = |user: &str, n: u8| Name {
            owner: Owner::of(Some(user)),
            ..name(n)
        };
        let mut store = Store::open(folder.path(), 4 * BLOCK, 2 * BLOCK).unwrap();
        store.put(of("ann", 1), &[1; 10]).unwrap();
        for n in 1..=9 {
            store.put(of("bob", n), &[n; 10]).unwrap();
        }
        assert!(store.get(&of("ann", 1)).is_some(), "ann's entry stays");
        assert!(store.get(&of("ann", 9)).is_none(), "bob's are not ann's");
        assert_eq!(store.count(), 3);
        store
            .put(of("bob", 1), &[0; 2 * BLOCK as usize + 1])
            .unwrap();
        assert!(!store.has(&of("bob", 1)), "an entry beyond the share");
        drop(store);
        let store = Store::open(folder.path(), 4 * BLOCK, BLOCK).unwrap();
        assert!(store.has(&of("ann", 1)) && store.has(&of("bob", 9)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_open_stays_readable_and_what_is_too_large_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), 1);
        store.put(name(1), &[1; 8]).unwrap();
        let mut open = store.get(&name(1)).unwrap();
        store.put(name(2), &[2; 8]).unwrap();
        assert!(!store.has(&name(1)) && store.has(&name(2)));
        let mut bytes = Vec::new();
        open.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [1; 8]);
        store.put(name(3), &[3; BLOCK as usize + 1]).unwrap();
        assert!(store.has(&name(2)) && !store.has(&name(3)));
    }

    #[test]
    fn two_daemons_share_a_folder_and_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = open(folder.path(), 2);
        let mut other = open(folder.path(), 2);
        one.put(name(1), &[1; 10]).unwrap();
        one.put(name(2), &[2; 10]).unwrap();
        assert_eq!(read(&mut other, 1), Some(vec![1; 10]));
        other.put(name(3), &[3; 10]).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        other.remove(&name(3));
        assert_eq!(read(&mut one, 3), None);
    }

    #[test]
    fn links_pipes_and_strangers_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |n: u8| folder.path().join(name(n).file());
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        let mut store = open(folder.path(), 100);
        std::os::unix::fs::symlink(&secret, at(1)).unwrap();
        rustix::fs::mkfifoat(&store.folder, name(2).file(), Mode::RWXU).unwrap();
        File::create(at(3)).unwrap().set_len(1 << 40).unwrap();
        for n in 1..=3 {
            assert!(store.get(&name(n)).is_none(), "{n}");
        }
        let store = open(folder.path(), 100);
        assert_eq!(store.count(), 0);
        assert!(secret.exists() && !at(1).exists() && !at(2).exists() && !at(3).exists());
    }

    #[test]
    fn entries_of_earlier_formats_go() {
        let folder = tempfile::tempdir().unwrap();
        let former = folder.path().join(format!("{:016x}-{}", 0, Key([1; KEY])));
        std::fs::write(&former, "x").unwrap();
        assert_eq!(open(folder.path(), 9).count(), 0);
        assert!(!former.exists());
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("open");
        std::fs::create_dir(&place).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Store::open(&place, 1, 1), Err(Unusable::Shared)));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(Store::open(&link, 1, 1).is_err());
    }
}
