//! The one thread on which the application's callbacks run.
//!
//! Never the thread that reads a socket, never one that holds a lock: a callback may take its time,
//! enqueue, set user events or release its own event. Order is the order of [`run`]. The thread starts
//! with the first callback and lives as long as the process.

use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

type Job = Box<dyn FnOnce() + Send>;

static JOBS: LazyLock<Sender<Job>> = LazyLock::new(|| {
    let (sender, jobs) = channel::<Job>();
    crate::thread::spawn(
        "cw-callbacks",
        crate::thread::Stack::Application,
        move || {
            for job in jobs {
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a callback panicked");
                }
            }
        },
    );
    sender
});

/// Queues a call of the application's code.
pub fn run(job: impl FnOnce() + Send + 'static) {
    // The receiver lives in a thread that never ends; in a fork's child nobody listens, and the job
    // is dropped with its process.
    let _ = JOBS.send(Box::new(job));
}
