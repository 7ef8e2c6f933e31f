//! A file with a user's or a daemon's state: read whole, and replaced whole.
//!
//! The file's format is its owner's. Invariants: nobody but the file's owner can read what is written here. A reader sees a
//! whole file, because a writer replaces it. Nothing is made before something is written.

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};

/// The pause before the lock is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Why a file cannot be used, or was not written.
#[derive(Debug, thiserror::Error)]
pub enum BadState {
    /// The file cannot be read or written.
    #[error("{path}: {error}; correct the permissions, or delete the file", path = path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file has other contents than expected.
    #[error("{path} is damaged and counts as empty: {reason}; delete the file", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Other programs write the file.
    #[error("{path}: other programs have written the file for too long, and it was not changed; try again", path = .0.display())]
    Busy(PathBuf),
}

/// A file with state. Its name has an extension of its own, because new contents are written beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFile {
    path: PathBuf,
}

/// A file that no other program changes meanwhile. Some network file systems lock no folders; then another program's change
/// may be lost.
#[derive(Debug)]
pub struct LockedState<'a> {
    file: &'a StateFile,
    _lock: Option<File>,
}

impl StateFile {
    /// The file at this path.
    #[must_use]
    pub fn at(path: PathBuf) -> StateFile {
        StateFile { path }
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the text, of at most this number of bytes. `None` if there is no file.
    ///
    /// # Errors
    /// [`BadState`]; a file that is too long is damaged.
    pub fn read(&self, most: usize) -> Result<Option<String>, BadState> {
        let mut text = String::new();
        // Opening a named pipe must not wait.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path);
        let read = match opened {
            // One byte more, so that a file that is too long is found out.
            Ok(file) => file.take(most as u64 + 1).read_to_string(&mut text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
        };
        match read {
            Ok(length) if length > most => Err(self.damaged(&"the file is too long")),
            Ok(_) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(self.damaged(&error)),
            Err(error) => Err(self.system(error)),
        }
    }

    /// The error of contents that are not expected.
    #[must_use]
    pub fn damaged(&self, reason: &dyn Display) -> BadState {
        BadState::Damaged {
            path: self.path.clone(),
            reason: reason.to_string(),
        }
    }

    /// Makes the file's folder, and waits at most this time until no other program changes the file.
    ///
    /// # Errors
    /// [`BadState`].
    pub fn lock(&self, within: Duration) -> Result<LockedState<'_>, BadState> {
        let folder = self.path.parent().unwrap_or(&self.path);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| self.system(error))?;
        let opened = File::open(folder).map_err(|error| self.system(error))?;
        let until = Instant::now() + within;
        let locked = loop {
            match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break Some(opened),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= until => {
                    return Err(BadState::Busy(self.path.clone()));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
                Err(_) => break None,
            }
        };
        Ok(LockedState {
            file: self,
            _lock: locked,
        })
    }

    /// Replaces the file of a program that is alone in using it. After a power failure, the file has the old text or the new
    /// one.
    ///
    /// # Errors
    /// [`BadState::System`]; the file is then as it was.
    pub fn replace_durably(&self, text: &str) -> Result<(), BadState> {
        self.replace_with(text, File::sync_all)
    }

    fn replace_with(
        &self,
        text: &str,
        finish: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), BadState> {
        // The process's id is in the name for systems that cannot lock a folder.
        let new = self
            .path
            .with_extension(format!("new.{}", std::process::id()));
        let written = create(&new)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| finish(&file)))
            .and_then(|()| fs::rename(&new, &self.path));
        written.map_err(|error| {
            // The system may keep the file; the next writer of this id then replaces it.
            let _ = fs::remove_file(&new);
            self.system(error)
        })
    }

    fn system(&self, error: io::Error) -> BadState {
        BadState::System {
            path: self.path.clone(),
            error,
        }
    }
}

impl LockedState<'_> {
    /// Replaces the file.
    ///
    /// # Errors
    /// [`BadState::System`]; the file is then as it was.
    pub fn replace(self, text: &str) -> Result<(), BadState> {
        self.file.replace_with(text, |_| Ok(()))
    }
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(path) {
        // An earlier process of this id has died.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const WITHIN: Duration = Duration::from_millis(500);

    fn file(folder: &Path) -> StateFile {
        StateFile::at(folder.join("state/causeway/some.toml"))
    }

    #[test]
    fn a_file_is_replaced_whole_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        assert_eq!(file.read(10).unwrap(), None, "an absent file");
        assert!(!file.path().parent().unwrap().exists());
        // A process of this id has died while it wrote.
        let left = (file.path()).with_extension(format!("new.{}", std::process::id()));
        file.lock(WITHIN).unwrap().replace("one").unwrap();
        fs::write(&left, "half").unwrap();
        file.lock(WITHIN).unwrap().replace("other").unwrap();
        assert_eq!(file.read(10).unwrap().as_deref(), Some("other"));
        file.replace_durably("third").unwrap();
        assert_eq!(file.read(5).unwrap().as_deref(), Some("third"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(file.path()), 0o600);
        assert_eq!(mode(file.path().parent().unwrap()), 0o700);
        let rest = fs::read_dir(file.path().parent().unwrap()).unwrap();
        assert_eq!(rest.count(), 1, "no other file is left");
    }

    #[test]
    fn what_is_no_text_or_too_long_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        file.lock(WITHIN).unwrap().replace("long text").unwrap();
        assert!(matches!(file.read(8), Err(BadState::Damaged { .. })));
        fs::write(file.path(), [0xff, 0xfe]).unwrap();
        assert!(matches!(file.read(8), Err(BadState::Damaged { .. })));
        fs::remove_file(file.path()).unwrap();
        fs::create_dir(file.path()).unwrap();
        assert!(matches!(file.read(8), Err(BadState::System { .. })));
        let refused = file.lock(WITHIN).unwrap().replace("text");
        assert!(
            matches!(refused, Err(BadState::System { .. })),
            "{refused:?}"
        );
        let rest = fs::read_dir(file.path().parent().unwrap()).unwrap();
        assert_eq!(rest.count(), 1, "the new file is removed again");
    }

    #[test]
    fn a_locked_file_is_busy_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        let locked = file.lock(WITHIN).unwrap();
        // Each has the folder open by itself, as processes have.
        let other = file.lock(Duration::ZERO);
        assert!(matches!(other, Err(BadState::Busy(_))), "{other:?}");
        locked.replace("one").unwrap();
        file.lock(Duration::ZERO).unwrap().replace("other").unwrap();
        assert_eq!(file.read(9).unwrap().as_deref(), Some("other"));
    }
}
