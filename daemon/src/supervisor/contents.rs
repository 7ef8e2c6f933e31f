//! The contents of sessions, in files.
//!
//! [`Contents::write_at`], [`Contents::send_at`] and [`Contents::read_at`] block. Only threads that may block call them,
//! never a thread of the runtime. Threads of the runtime may make all other calls. [`Writer`] writes on other
//! threads, and the last clone of [`Contents`] has its file closed on another one.
//!
//! This module decides nothing about sessions. Invariants: contents that arrive keep a thread only while they are
//! written. All readers of contents have positions of their own.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Bytes that are written at once.
const BATCH: usize = 1 << 20;

/// Does work that may wait for a disk, on another thread.
pub(super) fn later(work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

/// The file with a session's contents. Clones share it. Another thread closes it, which may give back gigabytes.
#[derive(Clone, Debug)]
pub(super) struct Contents(Option<Arc<File>>);

impl From<File> for Contents {
    fn from(file: File) -> Contents {
        Contents(Some(Arc::new(file)))
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        // Only the last clone closes the file.
        if let Some(file) = self.0.take().and_then(Arc::into_inner) {
            later(move || drop(file));
        }
    }
}

impl Contents {
    /// Returns a descriptor for a worker, which begins where the file's last reader or writer by position was.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file()?.try_clone()?.into())
    }

    /// Returns a descriptor for a worker, which reads from the start, and cannot write.
    pub(super) fn at_the_start(&self) -> io::Result<OwnedFd> {
        let number = self.file()?.as_raw_fd();
        // The file may have no name any more.
        Ok(File::open(format!("/proc/self/fd/{number}"))?.into())
    }

    /// How many bytes there are.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    /// Writes bytes at a position. Blocks.
    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file()?.write_all_at(bytes, at)
    }

    /// Sends bytes to a socket that blocks, without a copy. Returns how many. Blocks.
    pub(super) fn send_at(&self, socket: &TcpStream, at: u64, most: usize) -> io::Result<usize> {
        let (file, mut at) = (self.file()?, at);
        loop {
            match rustix::fs::sendfile(socket, file, Some(&mut at), most) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                sent => return Ok(sent?),
            }
        }
    }

    /// Reads up to `most` bytes at a position. Returns fewer only at the end of the file. Blocks.
    pub(super) fn read_at(&self, at: u64, most: usize) -> io::Result<Vec<u8>> {
        let (file, mut bytes, mut done) = (self.file()?, vec![0; most], 0);
        while done < most {
            match file.read_at(&mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    // The file is missing only while it is closed.
    fn file(&self) -> io::Result<&File> {
        self.0.as_deref().ok_or(io::ErrorKind::NotFound.into())
    }
}

/// Writes contents that arrive in pieces. One batch is written while the next one arrives.
pub(super) struct Writer {
    contents: Contents,
    batch: Vec<u8>,
    /// Bytes that were written, or are being written.
    written: u64,
    writing: Option<JoinHandle<io::Result<()>>>,
}

impl Writer {
    /// Begins with the empty file that `make` makes.
    ///
    /// # Errors
    /// There is no such file.
    pub(super) async fn begin(
        make: impl FnOnce() -> io::Result<File> + Send + 'static,
    ) -> io::Result<Writer> {
        let made = tokio::task::spawn_blocking(make).await;
        Ok(Writer {
            contents: made.map_err(io::Error::other)??.into(),
            batch: Vec::new(),
            written: 0,
            writing: None,
        })
    }

    /// Appends bytes. Waits while a batch is full and the one before is being written.
    ///
    /// # Errors
    /// Earlier bytes could not be written.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.batch.extend_from_slice(bytes);
        match self.batch.len() < BATCH {
            true => Ok(()),
            false => self.write_batch().await,
        }
    }

    /// Waits until everything is written. Returns the contents.
    ///
    /// # Errors
    /// Some bytes could not be written.
    pub(super) async fn end(mut self) -> io::Result<Contents> {
        self.write_batch().await?;
        self.wait().await?;
        Ok(self.contents)
    }

    async fn write_batch(&mut self) -> io::Result<()> {
        self.wait().await?;
        let (contents, batch) = (self.contents.clone(), std::mem::take(&mut self.batch));
        let at = self.written;
        self.written += batch.len() as u64;
        self.writing = Some(tokio::task::spawn_blocking(move || {
            contents.write_at(&batch, at)
        }));
        Ok(())
    }

    async fn wait(&mut self) -> io::Result<()> {
        match self.writing.take() {
            Some(writing) => writing.await.map_err(io::Error::other)?,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::io::Read;
    use std::sync::mpsc;

    fn memory() -> io::Result<File> {
        Ok(rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC)?.into())
    }

    /// A runtime with a single thread for work that blocks.
    fn runtime() -> tokio::runtime::Runtime {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.max_blocking_threads(1).build().unwrap()
    }

    #[test]
    fn contents_that_arrive_slowly_keep_no_thread() {
        runtime().block_on(async {
            let mut writers = Vec::new();
            for _ in 0..2 {
                let mut writer = Writer::begin(memory).await.unwrap();
                writer.write(&[7; BATCH]).await.unwrap();
                writer.write(&[8; 3]).await.unwrap();
                writers.push(writer);
            }
            // A transfer that kept the only thread would let this wait forever.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            for writer in writers {
                let contents = writer.end().await.unwrap();
                assert_eq!(contents.read_at(0, BATCH).unwrap(), vec![7; BATCH]);
                assert_eq!(contents.read_at(BATCH as u64, 9).unwrap(), [8; 3]);
            }
        });
    }

    #[test]
    fn the_last_clone_is_closed_on_another_thread() {
        let (mut read, write) = io::pipe().unwrap();
        let (goes_on, waits) = mpsc::channel::<()>();
        runtime().block_on(async {
            let busy = tokio::task::spawn_blocking(move || waits.recv());
            let contents = Contents::from(File::from(OwnedFd::from(write)));
            drop(contents.clone());
            assert!(contents.descriptor().is_ok());
            drop(contents);
            let poll = |timeout: i64| {
                let timeout = rustix::event::Timespec {
                    tv_sec: timeout,
                    tv_nsec: 0,
                };
                let flags = rustix::event::PollFlags::IN;
                let mut polled = [rustix::event::PollFd::new(&read, flags)];
                rustix::event::poll(&mut polled, Some(&timeout)).unwrap()
            };
            assert_eq!(poll(0), 0, "this thread has closed the file");
            goes_on.send(()).unwrap();
            busy.await.unwrap().unwrap();
            assert_eq!(poll(30), 1);
        });
        assert_eq!(read.read(&mut [0]).unwrap(), 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_full_disk_is_reported() {
        let full = || File::options().write(true).open("/dev/full");
        let mut writer = Writer::begin(full).await.unwrap();
        writer.write(b"x").await.unwrap();
        let error = writer.end().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
