//! Files that the tool creates: keys, certificates, tokens.
//!
//! Invariant: no file is overwritten. A secret file is readable by its owner only, from the beginning. A
//! file that was not written completely is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Mode of a file that only its owner can read.
pub(crate) const SECRET: u32 = 0o600;
/// Mode of a file that everyone can read.
pub(crate) const PUBLIC: u32 = 0o644;

/// A new file. It is removed on drop unless it was written.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    file: File,
    is_written: bool,
}

impl NewFile {
    /// Creates an empty file.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub(crate) fn create(path: PathBuf, mode: u32) -> Result<NewFile, Failure> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path);
        match file {
            Ok(file) => Ok(NewFile {
                path,
                file,
                is_written: false,
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Failure::new(
                format!("{} exists, and is not overwritten", path.display()),
            )
            .cure("move the file away, or choose another path")),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    /// Writes the contents durably, and keeps the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(mut self, bytes: &[u8]) -> Result<PathBuf, Failure> {
        let written = self.file.write_all(bytes);
        let written = written.and_then(|()| self.file.sync_all());
        written.map_err(|error| failed(&self.path, &error))?;
        self.is_written = true;
        Ok(self.path.clone())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_written {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_there_stays_and_what_was_not_written_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        drop(NewFile::create(path.clone(), SECRET).unwrap());
        assert!(!path.exists());
        let file = NewFile::create(path.clone(), SECRET).unwrap();
        assert_eq!(file.write(b"one").unwrap(), path);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, SECRET);
        let failure = NewFile::create(path.clone(), PUBLIC).unwrap_err();
        assert!(failure.to_string().contains("not overwritten"), "{failure}");
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }
}
