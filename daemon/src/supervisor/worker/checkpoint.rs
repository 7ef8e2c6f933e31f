//! The last checkpoint that a worker has made of its session.
//!
//! Invariants: only a worker of a session whose commands are executed again may leave one. Its contents are sealed, so
//! they cannot change or become longer later.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{SealFlags, SeekFrom};

use super::Worker;
use crate::handover::{Restores, WorkerFile};

/// The checkpoint that a worker has made.
#[derive(Debug, Default)]
pub(super) struct CheckpointOfWorker {
    /// Most bytes; 0: the session has no checkpoints.
    most: AtomicU64,
    last: Mutex<Option<(u64, SealedFile)>>,
}

/// A memory file of a worker that nobody can change.
#[derive(Debug)]
pub(in super::super) struct SealedFile(WorkerFile);

impl SealedFile {
    /// Takes a descriptor that a worker has passed. `None` if it is another kind of file, or longer than `most`.
    fn adopt(file: WorkerFile, most: u64) -> Option<SealedFile> {
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK;
        // This comes first: it does not block for any kind of file.
        let is_sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|of| of.contains(seals));
        let length = is_sealed.then(|| rustix::fs::fstat(&file)).transpose();
        let length = u64::try_from(length.ok()??.st_size).ok()?;
        (length <= most).then_some(SealedFile(file))
    }

    /// Returns a descriptor for the next worker, which reads from the start. Only one worker reads at a time.
    pub(in super::super) fn at_the_start(&self) -> io::Result<OwnedFd> {
        rustix::fs::seek(&self.0, SeekFrom::Start(0))?;
        self.0.as_fd().try_clone_to_owned()
    }
}

impl Worker {
    /// Sets how many bytes a checkpoint of the session may have.
    pub(in super::super) fn checkpoints(&self, most: u64) {
        self.checkpoint.most.store(most, Ordering::Relaxed);
    }

    /// Keeps a checkpoint in the place of the one before.
    pub(super) fn keep_checkpoint(&self, restores: Restores, contents: WorkerFile) {
        let most = self.checkpoint.most.load(Ordering::Relaxed);
        match SealedFile::adopt(contents, most).filter(|_| most > 0) {
            Some(contents) => *self.checkpoint.last.lock() = Some((restores.applied, contents)),
            None => tracing::warn!(worker = self.serial, "a worker's checkpoint is refused"),
        }
    }

    /// Takes the last checkpoint, with the number of the last command that belongs to it.
    pub(in super::super) fn take_checkpoint(&self) -> Option<(u64, SealedFile)> {
        self.checkpoint.last.lock().take()
    }
}
