//! The memory file in which a worker passes an entry to its supervisor.
//!
//! This module does not look at the entry. Invariant: the supervisor reads only sealed memory of at most
//! [`MAX_ENTRY`] bytes. Its content is fixed, and reading it cannot block. Reading any other kind of file
//! might block forever.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags};

use super::entry::MAX_ENTRY;
use crate::handover::WorkerFile;

const SEALS: SealFlags = SealFlags::WRITE
    .union(SealFlags::GROW)
    .union(SealFlags::SHRINK)
    .union(SealFlags::SEAL);

/// Makes a sealed memory file.
pub fn of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("build", flags)?);
    file.write_all(bytes)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file.into())
}

/// A memory file of a worker, which is sealed and not too long.
#[derive(Debug)]
pub struct MemoryFile {
    file: WorkerFile,
    length: usize,
}

impl MemoryFile {
    /// Takes a descriptor that a worker has passed.
    ///
    /// # Errors
    /// `InvalidData` if it is another kind of file, or too long.
    pub fn adopt(file: WorkerFile) -> io::Result<MemoryFile> {
        // This comes first: it does not block for any kind of file.
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let length = usize::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(usize::MAX);
        match length <= MAX_ENTRY {
            true => Ok(MemoryFile { file, length }),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns the length of the content in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Reads the content.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.length];
        let file = File::from(self.file.as_fd().try_clone_to_owned()?);
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{fcntl_add_seals, memfd_create};

    fn memory(length: usize, seals: SealFlags) -> WorkerFile {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("entry", flags).unwrap());
        file.set_len(length as u64).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        OwnedFd::from(file).into()
    }

    #[test]
    fn only_sealed_memory_of_an_entrys_length_is_read() {
        let adopted = MemoryFile::adopt(of(b"text").unwrap().into()).unwrap();
        assert_eq!(
            (adopted.length(), adopted.read().unwrap()),
            (4, b"text".to_vec())
        );
        assert!(MemoryFile::adopt(memory(MAX_ENTRY, SEALS)).is_ok());
        assert!(MemoryFile::adopt(memory(MAX_ENTRY + 1, SEALS)).is_err());
        let writable = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        assert!(MemoryFile::adopt(memory(4, writable)).is_err());
        assert!(MemoryFile::adopt(OwnedFd::from(tempfile::tempfile().unwrap()).into()).is_err());
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(MemoryFile::adopt(OwnedFd::from(end).into()).is_err());
    }
}
