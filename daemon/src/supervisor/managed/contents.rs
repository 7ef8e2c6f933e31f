//! Writes the contents of sessions that arrive from another node, on a thread that may wait for a disk.
//!
//! This module decides nothing about sessions. Invariant: no call here blocks a thread of the runtime, and at most
//! [`QUEUED`] pieces wait in memory.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Pieces of contents that wait for the disk.
const QUEUED: usize = 32;

enum Order {
    /// The contents of the next session follow.
    Begin,
    Write(Bytes),
}

/// The thread's orders, and its result: a file for each session.
pub(super) struct Writer {
    orders: mpsc::Sender<Order>,
    task: JoinHandle<io::Result<Vec<File>>>,
}

impl Writer {
    /// Starts a thread that makes each file with `make`.
    pub(super) fn start(make: impl Fn() -> io::Result<File> + Send + 'static) -> Writer {
        let (orders, received) = mpsc::channel(QUEUED);
        let task = tokio::task::spawn_blocking(move || write(received, make));
        Writer { orders, task }
    }

    /// Begins the contents of the next session.
    ///
    /// # Errors
    /// An earlier order has failed.
    pub(super) async fn begin(&mut self) -> io::Result<()> {
        self.order(Order::Begin).await
    }

    /// Appends to the contents of the session that was begun last. Waits while too many pieces wait.
    ///
    /// # Errors
    /// An earlier order has failed.
    pub(super) async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.order(Order::Write(bytes)).await
    }

    /// Waits until everything is written. Returns the files of the sessions, in their order.
    ///
    /// # Errors
    /// An order has failed.
    pub(super) async fn end(self) -> io::Result<Vec<File>> {
        drop(self.orders);
        self.task.await.map_err(io::Error::other)?
    }

    async fn order(&mut self, order: Order) -> io::Result<()> {
        if self.orders.send(order).await.is_ok() {
            return Ok(());
        }
        // The thread ends early only with an error.
        let ended = (&mut self.task).await.map_err(io::Error::other)?;
        Err(ended
            .err()
            .unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()))
    }
}

fn write(
    mut orders: mpsc::Receiver<Order>,
    make: impl Fn() -> io::Result<File>,
) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    while let Some(order) = orders.blocking_recv() {
        match (order, files.last_mut()) {
            (Order::Begin, _) => files.push(make()?),
            (Order::Write(bytes), Some(file)) => file.write_all(&bytes)?,
            (Order::Write(_), None) => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    // A pipe stands for a disk that takes nothing for a while.
    #[tokio::test(flavor = "current_thread")]
    async fn a_disk_that_takes_nothing_stops_nobody_else() {
        const BYTES: usize = 1 << 20;
        let (mut read, write) = io::pipe().unwrap();
        let disk = File::from(OwnedFd::from(write));
        let mut writer = Writer::start(move || disk.try_clone());
        writer.begin().await.unwrap();
        writer.write(vec![7; BYTES].into()).await.unwrap();
        // On this runtime's only thread, which a blocking write would keep from coming here.
        let reading = tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; BYTES];
            read.read_exact(&mut bytes).map(|()| bytes)
        });
        assert_eq!(writer.end().await.unwrap().len(), 1);
        assert_eq!(reading.await.unwrap().unwrap(), vec![7; BYTES]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_full_disk_is_reported_by_a_later_order() {
        let mut writer = Writer::start(|| File::options().write(true).open("/dev/full"));
        writer.begin().await.unwrap();
        let error = loop {
            if let Err(error) = writer.write(Bytes::from_static(b"x")).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
