//! The thread that writes: it may wait for the disk for as long as that takes, and nobody waits for it.
//!
//! A thread of its own, and none of the runtime's, because those are waited for at the end: a disk that does not answer
//! would keep the process. Invariant: the store comes back with every transaction, unless that panicked.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use crate::store::{Store, StoreError, Write};

/// See the module; it ends when this is dropped.
pub(crate) struct Writer {
    jobs: mpsc::Sender<Job>,
}

struct Job {
    store: Box<dyn Store>,
    writes: Vec<Write>,
    written: oneshot::Sender<Written>,
}

/// How a transaction ended, and what was in it.
pub(super) struct Written {
    pub(super) store: Box<dyn Store>,
    pub(super) writes: Vec<Write>,
    pub(super) result: Result<(), StoreError>,
}

impl Writer {
    /// # Errors
    /// The system makes no thread.
    pub(crate) fn start() -> io::Result<Writer> {
        let (jobs, waiting) = mpsc::channel();
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || waiting.into_iter().for_each(Job::run))?;
        Ok(Writer { jobs })
    }

    /// Begins a transaction. Its end is an error if the thread has panicked, in this one or before.
    pub(super) fn write(
        &self,
        store: Box<dyn Store>,
        writes: Vec<Write>,
    ) -> oneshot::Receiver<Written> {
        let (written, ended) = oneshot::channel();
        let job = Job {
            store,
            writes,
            written,
        };
        // A thread that is no more drops the job, and so ends it.
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
        let result = store.apply(&writes);
        // Whoever has stopped waiting wants nothing of it any more.
        drop(written.send(Written {
            store,
            writes,
            result,
        }));
    }
}
