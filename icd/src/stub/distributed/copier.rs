//! Copies inside the client: the part of a read that comes from the client's own copy of a buffer.
//!
//! Small copies run on the thread where the last event before them ends. Larger ones run on one thread for
//! the whole process, which exists only while there is work.
//!
//! Not here: decisions about bytes (`coherence`). Invariants: every copy is made, by the thread or, if no
//! thread can be started, by the caller. No lock is held while bytes are copied.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::stub::Event;
use crate::stub::memory::host_ranges::{Follower, HostRanges};
use crate::thread::{self, Stack};
use crate::transport::{self, HostRegion};

/// Smaller copies are made at once, in bytes: they take little longer than waking a thread.
const MANY: u64 = 1 << 20;

/// Copies from the client's own copy to the application's memory when the last reference is dropped. At
/// that point nothing precedes the command any more, and no bytes are still arriving in the client's copy.
#[derive(Debug)]
pub(super) struct Copier(Option<Copying>);

impl Copier {
    /// Makes a copier from each first region to the second. `done` is the gate that opens after the copies.
    pub(super) fn new(copies: Vec<(HostRegion, HostRegion)>, done: Arc<Event>) -> Copier {
        Copier(Some(Copying { copies, done }))
    }

    /// Registers the copier with everything that it must follow: writes to the source ranges, and the
    /// events `after`.
    pub(super) fn begin<'a>(self, after: impl Iterator<Item = &'a Arc<Event>>) {
        let copier = Arc::new(self);
        for (from, _) in copier.0.iter().flat_map(|copying| &copying.copies) {
            HostRanges::of_process().follow(&from.addresses(), &copier);
        }
        for event in after {
            event.followed_by(copier.clone());
        }
    }
}

impl Follower for Copier {}

impl Drop for Copier {
    fn drop(&mut self) {
        let Some(copying) = self.0.take() else { return };
        let bytes: u64 = copying.copies.iter().map(|(_, to)| to.length()).sum();
        if bytes >= MANY {
            // The current thread holds the locks of an enqueue, or reads a socket, so it must not copy
            // much.
            THREAD.give(copying, |work| {
                // As a transport thread it never waits for room on a connection, because it serves all
                // sessions.
                let work = || transport::as_transport_thread(work);
                thread::spawn("cw-copy", Stack::Small, work)
            });
        }
    }
    // A small copy runs here, when `copying` is dropped.
}

/// Makes its copies when dropped, on the current thread.
#[derive(Debug)]
struct Copying {
    copies: Vec<(HostRegion, HostRegion)>,
    // Opened after the copies; then others may overwrite the client's copy.
    done: Arc<Event>,
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.done.starts_here();
        for (from, to) in &self.copies {
            let _ = to.copy_from(from);
        }
        self.done.open();
    }
}

impl Job for Copying {
    fn run(self) {
        let context = self.done.context().clone();
        drop(self);
        // Threads that wait for the read have flushed before the gate was opened.
        let _ = context.flush();
    }
}

// A child of `fork` never gets here: its calls return before they take a lock.
static THREAD: Worker<Copying> = Worker::new();

/// Work for a [`Worker`]. A job that is dropped without `run` is still done.
trait Job: Send + 'static {
    fn run(self);
}

/// Runs jobs in order, on one thread at most.
struct Worker<J>(Mutex<Jobs<J>>);

struct Jobs<J> {
    waiting: VecDeque<J>,
    // True while one thread takes jobs; that thread resets the flag when there are no more.
    is_running: bool,
}

impl<J: Job> Worker<J> {
    const fn new() -> Worker<J> {
        Worker(Mutex::new(Jobs {
            waiting: VecDeque::new(),
            is_running: false,
        }))
    }

    /// Queues `job`. If no thread is running, calls `start`, which returns whether it could start one.
    fn give(&'static self, job: J, start: impl FnOnce(Box<dyn FnOnce() + Send>) -> bool) {
        let is_first = {
            let mut jobs = self.0.lock();
            jobs.waiting.push_back(job);
            !std::mem::replace(&mut jobs.is_running, true)
        };
        if is_first && !start(Box::new(|| self.work(J::run))) {
            // No thread could be started, so the jobs are done here.
            self.work(drop);
        }
    }

    fn work(&self, each: impl Fn(J)) {
        while let Some(job) = self.next() {
            each(job);
        }
    }

    fn next(&self) -> Option<J> {
        let mut jobs = self.0.lock();
        let next = jobs.waiting.pop_front();
        jobs.is_running = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    // Reports its start, waits for permission, and reports its number when dropped.
    struct Numbered {
        number: u32,
        begun: Sender<u32>,
        may_end: Option<Receiver<()>>,
        done: Sender<u32>,
    }

    impl Job for Numbered {
        fn run(self) {
            self.begun.send(self.number).unwrap();
            if let Some(may_end) = &self.may_end {
                may_end.recv_timeout(PATIENCE).unwrap();
            }
        }
    }

    impl Drop for Numbered {
        fn drop(&mut self) {
            self.done.send(self.number).unwrap();
        }
    }

    #[test]
    fn one_thread_does_what_comes_while_it_is_at_work_and_then_ends() {
        static WORKER: Worker<Numbered> = Worker::new();
        let ((begun, has_begun), (done, is_done)) = (channel(), channel());
        let (go, may_end) = channel();
        let job = |number, may_end| Numbered {
            number,
            begun: begun.clone(),
            may_end,
            done: done.clone(),
        };
        let (sender, threads) = channel();
        WORKER.give(job(1, Some(may_end)), |work| {
            sender.send(std::thread::spawn(work)).is_ok()
        });
        assert_eq!(has_begun.recv_timeout(PATIENCE), Ok(1));
        for number in 2..10 {
            WORKER.give(job(number, None), |_| panic!("a second thread"));
        }
        go.send(()).unwrap();
        for number in 1..10 {
            assert_eq!(is_done.recv_timeout(PATIENCE), Ok(number));
        }
        threads.recv().unwrap().join().unwrap();
        assert!(!WORKER.0.lock().is_running);
    }

    #[test]
    fn without_a_thread_it_is_done_by_who_asks() {
        static WORKER: Worker<Numbered> = Worker::new();
        let ((begun, has_begun), (done, is_done)) = (channel(), channel());
        for number in [1, 2] {
            let job = Numbered {
                number,
                begun: begun.clone(),
                may_end: None,
                done: done.clone(),
            };
            WORKER.give(job, |_| false);
            assert_eq!(is_done.try_recv(), Ok(number));
        }
        assert!(has_begun.try_recv().is_err());
        assert!(!WORKER.0.lock().is_running);
    }
}
