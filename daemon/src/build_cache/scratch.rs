//! Where compiling workers' drivers put their files: one folder a daemon, in the cache's directory.
//!
//! A daemon holds a lock on its folder as long as it lives, and removes the folder at its end. One that
//! was killed cannot: whoever opens the same directory next finds the folder without a lock and removes
//! it. What it is not: it holds nothing that is ever read again.
//!
//! Invariant: a folder is removed by the daemon that made it, or after that one's death.
#![forbid(unsafe_code)]

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// Names of daemons' folders begin so; no entry's does.
const PREFIX: &str = "scratch-";
/// Somebody who cleans up can take a new folder for one without a daemon; not as often as this.
const ATTEMPTS: usize = 16;

/// This daemon's folder; goes with its value.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    jobs: AtomicU64,
    _lock: File,
}

impl Scratch {
    /// Makes one in `cache`, and removes those of daemons that are no more.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(cache: &Path) -> io::Result<Scratch> {
        // Drivers get it as a setting, and may look at it from elsewhere.
        let cache = std::path::absolute(cache)?;
        remove_left(&cache)?;
        for _ in 0..ATTEMPTS {
            let path = cache.join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
            DirBuilder::new().mode(0o700).create(&path)?;
            if let Some(lock) = lock(&path)
                && is_at(&lock, &path)
            {
                return Ok(Scratch {
                    path,
                    jobs: AtomicU64::new(0),
                    _lock: lock,
                });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// A folder for one job.
    ///
    /// # Errors
    /// What the system says.
    pub fn job(&self) -> io::Result<Folder> {
        let number = self.jobs.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(number.to_string());
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// For one compiling worker; goes with its value.
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
        remove(&self.0);
    }
}

/// Removes what daemons that are no more have left.
fn remove_left(cache: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(cache)? {
        let entry = entry?;
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        // The lock is held until the folder is gone: who made it this moment sees that it is not its own.
        if ours && let Some(_lock) = lock(&entry.path()) {
            remove(&entry.path());
        }
    }
    Ok(())
}

/// The lock on a folder, if nobody has it.
fn lock(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(folder)
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

    fn count(cache: &Path) -> usize {
        std::fs::read_dir(cache).unwrap().count()
    }

    #[test]
    fn a_folder_goes_with_its_daemon_and_a_job_with_its_end() {
        let cache = tempfile::tempdir().unwrap();
        let one = Scratch::open(cache.path()).unwrap();
        let job = one.job().unwrap();
        std::fs::write(job.path().join("file"), "x").unwrap();
        // Another daemon of the same directory leaves it alone.
        let other = Scratch::open(cache.path()).unwrap();
        assert_eq!(count(cache.path()), 2);
        assert!(job.path().join("file").exists());
        let path = job.path().to_owned();
        drop(job);
        assert!(!path.exists() && path.parent().unwrap().exists());
        drop((one, other));
        assert_eq!(count(cache.path()), 0);
    }

    #[test]
    fn what_a_killed_daemon_left_is_removed() {
        let cache = tempfile::tempdir().unwrap();
        let left = cache.path().join(format!("{PREFIX}0123456789abcdef/7"));
        std::fs::create_dir_all(&left).unwrap();
        std::fs::write(left.join("file"), "x").unwrap();
        // Neither what lies behind a link, nor what has another name.
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("kept"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), cache.path().join(format!("{PREFIX}link")))
            .unwrap();
        std::fs::create_dir(cache.path().join("another")).unwrap();
        let scratch = Scratch::open(cache.path()).unwrap();
        assert!(!left.exists() && !left.parent().unwrap().exists());
        assert!(elsewhere.path().join("kept").exists());
        assert!(cache.path().join("another").exists());
        drop(scratch);
    }
}
