//! The last checkpoint of a worker's session: the one that the worker began with, or one that it has made since.
//!
//! Invariants: only a worker of a session whose commands are executed again may leave one. The contents that it leaves are
//! sealed, so they cannot change or become longer later. At most one checkpoint of a session is kept.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::SealFlags;

use super::super::contents::Contents;
use super::Worker;
use crate::handover::{Assignment, Restores, ToWorker, WorkerFile};

/// A checkpoint that the supervisor keeps.
#[derive(Debug)]
pub(in super::super) struct KeptCheckpoint {
    /// Number of the last command that belongs to it.
    pub(in super::super) applied: u64,
    pub(in super::super) contents: Vec<Contents>,
}

/// The last checkpoint of the worker's session.
#[derive(Debug, Default)]
pub(super) struct CheckpointOfWorker {
    /// Whether the session's commands are executed again if its worker dies.
    reexecutes: AtomicBool,
    /// Most bytes; 0: the session has no checkpoints.
    most: AtomicU64,
    last: Mutex<Option<KeptCheckpoint>>,
}

/// Takes a memory file that a worker has passed. `None` if it is another kind of file, if anybody can change it, or if it is
/// longer than `most`.
fn adopt(file: &WorkerFile, most: u64) -> Option<Contents> {
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK;
    // This comes first: it does not block for any kind of file.
    let is_sealed = rustix::fs::fcntl_get_seals(file).is_ok_and(|of| of.contains(seals));
    let length = is_sealed.then(|| rustix::fs::fstat(file)).transpose();
    let length = u64::try_from(length.ok()??.st_size).ok()?;
    let file = (length <= most).then(|| file.as_fd().try_clone_to_owned())?;
    Some(File::from(file.ok()?).into())
}

impl Worker {
    /// Notes whether the session's commands are executed again if the worker dies, and how many bytes a checkpoint of it may
    /// have.
    pub(in super::super) fn note_assignment(&self, message: &ToWorker) {
        if let ToWorker::Assign { assignment, .. } = message {
            let Assignment {
                reexecutes,
                checkpoint_bytes,
                ..
            } = **assignment;
            self.checkpoint
                .reexecutes
                .store(reexecutes, Ordering::Relaxed);
            self.checkpoint
                .most
                .store(checkpoint_bytes, Ordering::Relaxed);
        }
    }

    /// Whether the session's commands are executed again if the worker dies.
    pub(in super::super) fn reexecutes(&self) -> bool {
        self.checkpoint.reexecutes.load(Ordering::Relaxed)
    }

    /// Keeps a checkpoint in the place of the one before.
    pub(super) fn keep_checkpoint(&self, restores: Restores, contents: &WorkerFile) {
        let most = self.checkpoint.most.load(Ordering::Relaxed);
        match adopt(contents, most).filter(|_| most > 0) {
            Some(contents) => self.begins_at(KeptCheckpoint {
                applied: restores.applied,
                contents: vec![contents],
            }),
            None => tracing::warn!(worker = self.serial, "a worker's checkpoint is refused"),
        }
    }

    /// Keeps the checkpoint at which the worker begins.
    pub(in super::super) fn begins_at(&self, checkpoint: KeptCheckpoint) {
        *self.checkpoint.last.lock() = Some(checkpoint);
    }

    /// Takes the last checkpoint.
    pub(in super::super) fn take_checkpoint(&self) -> Option<KeptCheckpoint> {
        self.checkpoint.last.lock().take()
    }
}
