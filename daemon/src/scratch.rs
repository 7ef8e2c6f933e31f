//! Folders for worker processes: one for each, in one of the daemon's.
//!
//! A daemon holds a lock on its folder as long as it lives, and removes the folder at its end. One that
//! was killed cannot: whoever opens the same directory next finds the folder without a lock and removes
//! it, and ends the processes that are left of those that it was for. What it is not: but for who they are, nothing in it
//! is ever read again.
//!
//! Invariant: a folder is removed by the daemon that made it, or after that one's death by one of the same
//! user.
#![forbid(unsafe_code)]

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::leftovers;

/// Names of daemons' folders begin so.
const PREFIX: &str = "causewayd-";
/// Somebody who cleans up can take a new folder for one without a daemon; not as often as this.
const ATTEMPTS: usize = 16;
/// Workers of other users pass through it to their own; nobody lists it.
const SHARED: u32 = 0o711;
const OWN: u32 = 0o700;

/// This daemon's folder; goes with its value.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    last: AtomicU64,
    _lock: File,
}

impl Scratch {
    /// Makes one in `parent`, and removes those of daemons that are no more.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(parent: &Path) -> io::Result<Scratch> {
        // Drivers get it as a setting, and may look at it from elsewhere.
        let parent = std::path::absolute(parent)?;
        remove_left(&parent)?;
        for _ in 0..ATTEMPTS {
            let path = parent.join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
            // A name that is there already, whoever made it, is an error.
            DirBuilder::new().mode(SHARED).create(&path)?;
            if let Some(lock) = lock(&path)
                && is_at(&lock, &path)
            {
                // Whatever the umask left of it.
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

    /// A folder for one process.
    ///
    /// # Errors
    /// What the system says.
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

/// For one process; goes with its value.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Where it is, from the root.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // There is none where no process was started.
        let _ = std::fs::remove_file(leftovers::record_beside(&self.0));
        remove(&self.0);
    }
}

/// Ends the processes of daemons that are no more, and removes their folders.
fn remove_left(parent: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?;
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        // The lock is held until the folder is gone: who made it this moment sees that it is not its own.
        if ours && let Some(_lock) = lock(&entry.path()) {
            leftovers::end_groups(&entry.path());
            remove(&entry.path());
        }
    }
    Ok(())
}

/// The lock on a folder of this user's, if nobody has it.
fn lock(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    // Where everybody may make folders, one of such a name may be anybody's.
    let own = folder.metadata().ok()?.uid() == rustix::process::geteuid().as_raw();
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    own.then_some(folder)
}

/// Whether the path leads to this very folder.
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
            tracing::debug!(%error, folder = %folder.display(), "not removed");
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
        // Another daemon of the same directory leaves it alone.
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
        // Neither what lies behind a link, nor what has another name.
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
