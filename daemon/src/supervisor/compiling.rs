//! Compiling workers, seen from the supervisor: one process builds one program for the build cache.
//!
//! What it is not: it neither says what is to be built nor keeps what comes out (`builds`). Invariants: a compiling
//! worker that takes too long, or is at work when the daemon ends, is killed with all that it started; no
//! driver that does not let go of a killed one keeps the others from being made, unless that happens again and
//! again; what a session's worker has passed is read without waiting for it.

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
use crate::build_cache::job::JOB_SEALS;
use crate::build_cache::{Broken, Job, Key, entry};

/// For a compiling worker.
const COMPILE_WITHIN: Duration = Duration::from_secs(300);
/// For a killed one to be gone. It may be inside a driver that does not return.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// So many that are not gone, and none is started any more.
const STUCK: usize = 4;

/// What it takes to compile.
#[derive(Clone)]
pub(super) struct Compiling {
    host_memory: u64,
    processes: Processes,
    /// Killed, and not gone.
    stuck: Arc<AtomicUsize>,
    /// Closed when the daemon ends.
    ended: watch::Receiver<()>,
}

/// There is nothing to keep of a build.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotCompiled {
    #[error("it took more than {} s", COMPILE_WITHIN.as_secs())]
    TooSlow,
    #[error("the daemon ends")]
    Ended,
    #[error("earlier compiling workers were killed and are not gone")]
    Stuck,
    #[error("the compiling worker ended with {0}")]
    Failed(String),
    #[error("the compiling worker has nothing to keep")]
    Nothing,
    #[error("the compiling worker gave {0}")]
    Broken(#[from] Broken),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Compiling {
    /// Compiles with so many bytes of memory a worker, until `ended` is closed.
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

    /// Closed when the daemon ends.
    pub(super) fn ended(&self) -> watch::Receiver<()> {
        self.ended.clone()
    }

    /// Builds a job in a process of its own: the entry, and its key.
    pub(super) async fn compile(&mut self, job: OwnedFd) -> Result<(Key, Vec<u8>), NotCompiled> {
        if self.stuck.load(Ordering::Relaxed) >= STUCK {
            return Err(NotCompiled::Stuck);
        }
        let job = aside(move || read(job)).await?;
        let bytes = self.build(&job).await?;
        if bytes.is_empty() {
            return Err(NotCompiled::Nothing);
        }
        // Checked beside the loop as well: an entry may be long.
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
            ours.shutdown().await?;
            let mut bytes = Vec::new();
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

    /// Kills one and reaps it, if need be later: nobody else does.
    async fn end(&self, mut process: Process) {
        process.kill();
        if tokio::time::timeout(GONE_WITHIN, process.wait())
            .await
            .is_ok()
        {
            return;
        }
        tracing::warn!("a compiling worker was killed and is not gone");
        let stuck = Arc::clone(&self.stuck);
        stuck.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let _ = process.wait().await;
            stuck.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Does what may wait for a disk beside the supervisor's one thread.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reads a worker's job: no more than a job has, and from sealed memory alone, because reading anything else may
/// never end.
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
