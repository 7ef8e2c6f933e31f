//! The thread that writes to the store. It may wait for the disk; nothing waits for the thread.
//!
//! The thread is not one of the runtime's, because the runtime waits for its threads at the end. A disk
//! that does not answer would keep the process alive. Invariant: the store comes back with every
//! transaction, unless that panicked.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::store::{Store, StoreError, Write};

/// Starts transactions on the thread. The thread ends when the writer is dropped.
pub(crate) struct Writer {
    jobs: mpsc::Sender<Job>,
}

struct Job {
    store: Box<dyn Store>,
    writes: Vec<Write>,
    written: oneshot::Sender<TransactionResult>,
}

/// The result of a transaction, with its changes.
pub(super) struct TransactionResult {
    pub(super) store: Box<dyn Store>,
    pub(super) writes: Vec<Write>,
    pub(super) result: Result<(), StoreError>,
    /// How long the store took.
    pub(super) took: Duration,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub(crate) fn start() -> io::Result<Writer> {
        let (jobs, waiting) = mpsc::channel();
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || waiting.into_iter().for_each(Job::run))?;
        Ok(Writer { jobs })
    }

    /// Begins a transaction. The receiver gets an error if the thread panics in this transaction, or has
    /// panicked before.
    pub(super) fn write(
        &self,
        store: Box<dyn Store>,
        writes: Vec<Write>,
    ) -> oneshot::Receiver<TransactionResult> {
        let (written, ended) = oneshot::channel();
        let job = Job {
            store,
            writes,
            written,
        };
        // If the thread has ended, the job is dropped, and the receiver gets an error.
        drop(self.jobs.send(job));
        ended
    }
}

impl Job {
    fn run(self) {
        let Job {
            mut store,
            writes,
            written,
        } = self;
        let begun = Instant::now();
        let result = store.apply(&writes);
        let took = begun.elapsed();
        // The receiver may be gone; then the result is not needed.
        drop(written.send(TransactionResult {
            store,
            writes,
            result,
            took,
        }));
    }
}
