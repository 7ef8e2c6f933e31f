//! Compiling workers, on the supervisor's side: one process builds one program for the build cache.
//!
//! This module neither chooses what is built nor stores the result (`builds`). Invariants: a compiling
//! worker that takes too long, or that runs when the daemon ends, is killed together with all processes
//! that it started. A killed worker that does not end because of its driver does not block further builds,
//! until there are [`STUCK`] of them. Data that a session's worker has passed is read without waiting for
//! that worker.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::process::{self, Process, Processes, Role};
use crate::build_cache::repeatable::JOB_SEALS;
use crate::build_cache::{Broken, Job, Key, entry};

/// Time limit for one compiling worker.
const COMPILE_WITHIN: Duration = Duration::from_secs(300);
/// Time limit for a killed compiling worker to end. It may be inside a driver that does not return.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Number of killed compiling workers that have not ended, from which no further one is started.
const STUCK: usize = 4;

/// Starts compiling workers.
#[derive(Clone)]
pub(super) struct Compiling {
    host_memory: u64,
    processes: Processes,
    /// Number of compiling workers that were killed and have not ended.
    stuck: Arc<AtomicUsize>,
    /// Closed when the daemon ends.
    ended: watch::Receiver<()>,
}

/// Reasons for which a build yields no cache entry.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotCompiled {
    #[error("the compiling worker took more than {} s", COMPILE_WITHIN.as_secs())]
    TooSlow,
    #[error("the daemon is stopping")]
    Ended,
    #[error("too many killed compiling workers have not ended")]
    Stuck,
    #[error("the compiling worker ended with {0}")]
    Failed(String),
    #[error("the compiling worker produced no entry")]
    Nothing,
    #[error("the compiling worker produced an invalid entry: {0}")]
    Broken(#[from] Broken),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Compiling {
    /// Makes a starter of compiling workers that may each use `host_memory` bytes. Builds are cancelled
    /// when `ended` closes.
    pub(super) fn new(
        host_memory: u64,
        processes: Processes,
        ended: watch::Receiver<()>,
    ) -> Compiling {
        Compiling {
            host_memory,
            processes,
            stuck: Arc::default(),
            ended,
        }
    }

    /// Returns a receiver that closes when the daemon ends.
    pub(super) fn ended(&self) -> watch::Receiver<()> {
        self.ended.clone()
    }

    /// Builds a job in a separate process. Returns the key and the bytes of the entry.
    pub(super) async fn compile(&mut self, job: OwnedFd) -> Result<(Key, Vec<u8>), NotCompiled> {
        if self.stuck.load(Ordering::Relaxed) >= STUCK {
            return Err(NotCompiled::Stuck);
        }
        let job = aside(move || read(job)).await?;
        let bytes = self.build(&job).await?;
        if bytes.is_empty() {
            return Err(NotCompiled::Nothing);
        }
        // The check runs on another thread as well, because an entry may be long.
        let (key, bytes) = aside(move || Ok((entry::key_of(&bytes), bytes))).await?;
        Ok((key?, bytes))
    }

    async fn build(&mut self, job: &[u8]) -> Result<Vec<u8>, NotCompiled> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut process = self.processes.start(Role::Compiler, theirs.into())?;
        let host_memory = self.host_memory;
        let talk = async {
            let mut ours = UnixStream::from_std(ours)?;
            ours.write_all(&host_memory.to_le_bytes()).await?;
            ours.write_all(job).await?;
            // The end of the input tells the worker that the job is complete.
            ours.shutdown().await?;
            let mut bytes = Vec::new();
            // One byte more than allowed is read, so that an entry that is too long is recognized.
            let most = entry::MAX_ENTRY as u64 + 1;
            ours.take(most).read_to_end(&mut bytes).await?;
            Ok((bytes, process.wait().await?))
        };
        let talked: Result<(Vec<u8>, ExitStatus), NotCompiled> = tokio::select! {
            talked = tokio::time::timeout(COMPILE_WITHIN, talk) => {
                talked.unwrap_or(Err(NotCompiled::TooSlow))
            }
            _ = self.ended.changed() => Err(NotCompiled::Ended),
        };
        if talked.is_err() {
            self.end(process).await;
        }
        let (bytes, status) = talked?;
        if status.success() {
            Ok(bytes)
        } else {
            Err(NotCompiled::Failed(process::describe(status)))
        }
    }

    /// Kills a process and reaps it. If it does not end soon, a background task reaps it later.
    async fn end(&self, mut process: Process) {
        process.kill();
        if tokio::time::timeout(GONE_WITHIN, process.wait())
            .await
            .is_ok()
        {
            return;
        }
        tracing::warn!("a compiling worker was killed and has not ended; a driver may hang");
        let stuck = Arc::clone(&self.stuck);
        stuck.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let _ = process.wait().await;
            stuck.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Runs work that may wait for a disk on another thread than the supervisor's only one.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reads a worker's job. Accepts only sealed memory of at most [`Job::MOST`] bytes, because a read from any
/// other kind of file might block forever.
fn read(job: OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(job);
    if !rustix::fs::fcntl_get_seals(&file)?.contains(JOB_SEALS) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let found = file.metadata()?;
    if found.len() > Job::MOST as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; found.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::io::Write;

    fn job(bytes: &[u8], seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("job", flags).unwrap());
        file.write_all(bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file.into()
    }

    #[test]
    fn only_sealed_memory_of_a_jobs_length_is_read() {
        assert_eq!(read(job(b"text", JOB_SEALS)).unwrap(), b"text");
        assert!(read(job(b"text", SealFlags::WRITE | SealFlags::SEAL)).is_err());
        assert!(read(job(&vec![0; Job::MOST + 1], JOB_SEALS)).is_err());
        assert!(read(tempfile::tempfile().unwrap().into()).is_err());
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(read(end.into()).is_err());
    }
}
