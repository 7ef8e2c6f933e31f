//! Scratch folders for worker processes: one per process, inside one folder per daemon.
//!
//! A daemon holds a lock on its folder as long as it lives, and removes the folder when it ends. A daemon
//! that was killed leaves its folder behind. The next daemon that opens the same directory finds the folder
//! without a lock. It ends the processes that the records there name, and removes the folder. Apart from
//! these records, no content of such a folder is ever read again.
//!
//! Invariant: a folder is removed by the daemon that made it, or after that daemon's death by a daemon of
//! the same user.
#![forbid(unsafe_code)]

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::leftovers;

/// Prefix of the names of daemons' folders.
const PREFIX: &str = "causewayd-";
/// Attempts to make a folder. A daemon that cleans up can remove a new folder before its lock is taken, but
/// not this often in a row.
const ATTEMPTS: usize = 16;
/// Mode of the daemon's folder: workers that run as other users can pass through it to their own folder,
/// but cannot list it.
const SHARED: u32 = 0o711;
const OWN: u32 = 0o700;

/// The folder of this daemon; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    last: AtomicU64,
    _lock: File,
}

impl Scratch {
    /// Makes a folder in `parent` and removes the folders of daemons that have ended.
    pub fn open(parent: &Path) -> io::Result<Scratch> {
        // Drivers get this path as a setting and may use it from another working directory.
        let parent = std::path::absolute(parent)?;
        remove_left(&parent)?;
        for _ in 0..ATTEMPTS {
            let path = parent.join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
            // `create` fails if the name already exists, whoever made it.
            DirBuilder::new().mode(SHARED).create(&path)?;
            // Another daemon may have taken the new folder for an abandoned one and removed it before it
            // was locked.
            if let Some(lock) = lock(&path)
                && is_at(&lock, &path)
            {
                // The umask may have removed bits from the mode.
                rustix::fs::fchmod(&lock, Mode::from_raw_mode(SHARED))?;
                return Ok(Scratch {
                    path,
                    last: AtomicU64::new(0),
                    _lock: lock,
                });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Makes a folder for one process.
    pub fn folder(&self) -> io::Result<Folder> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(number.to_string());
        DirBuilder::new().mode(OWN).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// The folder of one process; removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Returns the absolute path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // No record exists if no process was started.
        let _ = std::fs::remove_file(leftovers::record_beside(&self.0));
        remove(&self.0);
    }
}

/// Ends the remaining processes of daemons that have ended, and removes their folders.
fn remove_left(parent: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?;
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        // The lock is held until the folder is gone. A daemon that made this folder just now then sees that
        // the path no longer leads to its folder.
        if ours && let Some(_lock) = lock(&entry.path()) {
            leftovers::end_groups(&entry.path());
            remove(&entry.path());
        }
    }
    Ok(())
}

/// Locks a folder that belongs to this user. Returns `None` if another process holds the lock.
fn lock(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    // In a directory such as `/tmp` another user may have made a folder with this prefix.
    let own = folder.metadata().ok()?.uid() == rustix::process::geteuid().as_raw();
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    own.then_some(folder)
}

/// Returns whether `path` still leads to this open folder.
fn is_at(folder: &File, path: &Path) -> bool {
    let same = || -> io::Result<bool> {
        let (open, there) = (folder.metadata()?, std::fs::symlink_metadata(path)?);
        Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
    };
    same().unwrap_or(false)
}

fn remove(folder: &Path) {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(%error, folder = %folder.display(), "a worker's folder cannot be removed");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(parent: &Path) -> usize {
        std::fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn a_folder_goes_with_its_daemon_and_a_process_with_its_end() {
        let parent = tempfile::tempdir().unwrap();
        let one = Scratch::open(parent.path()).unwrap();
        let own = one.folder().unwrap();
        std::fs::write(own.path().join("file"), "x").unwrap();
        // Another daemon with the same directory leaves the folder alone.
        let other = Scratch::open(parent.path()).unwrap();
        assert_eq!(count(parent.path()), 2);
        assert!(own.path().join("file").exists());
        let path = own.path().to_owned();
        drop(own);
        assert!(!path.exists() && path.parent().unwrap().exists());
        drop((one, other));
        assert_eq!(count(parent.path()), 0);
    }

    #[test]
    fn what_a_killed_daemon_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}0123456789abcdef/7"));
        std::fs::create_dir_all(&left).unwrap();
        std::fs::write(left.join("file"), "x").unwrap();
        // Does not follow a symbolic link, and leaves other names alone.
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("kept"), "x").unwrap();
        std::os::unix::fs::symlink(
            elsewhere.path(),
            parent.path().join(format!("{PREFIX}link")),
        )
        .unwrap();
        std::fs::create_dir(parent.path().join("another")).unwrap();
        let scratch = Scratch::open(parent.path()).unwrap();
        assert!(!left.exists() && !left.parent().unwrap().exists());
        assert!(elsewhere.path().join("kept").exists());
        assert!(parent.path().join("another").exists());
        drop(scratch);
    }
}
