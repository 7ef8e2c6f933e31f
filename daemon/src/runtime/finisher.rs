//! Finds the ends of commands with `clFinish`, where the driver reports the ends of events late.
//!
//! NVIDIA's driver reports the end of an event only after all kernels of the context that began before have ended,
//! also those of other queues. Polls, `clWaitForEvents` and callbacks are all late. `clFinish` of the queue is not.
//! Measured with driver 580.159 on an H100: beside kernels of 1.35 ms in another queue, launch + `clFinish` of an empty
//! kernel takes 15 µs, and launch + the end of the event 1.33 ms.
//!
//! So [`watch`](super::watch) has a thread of this module finish a queue whose oldest event seems late. This makes sense
//! only where several sessions share a context. Each queue has its own thread, because `clFinish` blocks. The thread
//! starts at need, and ends when the queue has needed no finish for a while.
//!
//! Invariant: a thread has a reference to its queue, so the queue is alive in each call.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::library::{check, cl};

/// Time for which a thread polls for its next request before it sleeps.
const AWAKE: Duration = Duration::from_micros(300);

/// Time without a request after which a thread ends, so that other queues get one.
const IDLE: Duration = Duration::from_secs(1);

/// One `clFinish`.
#[derive(Debug, Default)]
pub(super) struct Finish(AtomicU8);

const DONE: u8 = 1;
const FAILED: u8 = 2;

impl Finish {
    /// Notes that the call has returned.
    pub(super) fn end(&self, succeeded: bool) {
        let outcome = if succeeded { DONE } else { FAILED };
        self.0.store(outcome, Ordering::Release);
    }

    /// Whether the call has returned: `Some(true)` if all commands that were enqueued before it have ended.
    pub(super) fn outcome(&self) -> Option<bool> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            outcome => Some(outcome == DONE),
        }
    }
}

/// The queues that may be finished, with the channels to their threads.
type Queues = HashMap<usize, Option<Sender<Arc<Finish>>>>;

static QUEUES: LazyLock<Mutex<Queues>> = LazyLock::new(Mutex::default);
/// Number of threads.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Allows that a queue is finished, until dropped. Dropped before the queue is released.
#[derive(Debug)]
pub(super) struct Finishable(usize);

impl Finishable {
    pub(super) fn new(queue: *mut c_void) -> Finishable {
        let key = queue.expose_provenance();
        QUEUES.lock().insert(key, None);
        Finishable(key)
    }
}

impl Drop for Finishable {
    fn drop(&mut self) {
        // The thread ends with its channel.
        QUEUES.lock().remove(&self.0);
    }
}

/// Has the queue's thread finish the queue. `None` if the queue must not be finished, or no thread is to be had.
pub(super) fn begin(key: usize) -> Option<Arc<Finish>> {
    let mut queues = QUEUES.lock();
    let channel = queues.get_mut(&key)?;
    if channel.is_none() {
        *channel = Some(start(key).ok()?);
    }
    let finish = Arc::new(Finish::default());
    channel.as_ref()?.send(Arc::clone(&finish)).ok()?;
    Some(finish)
}

// Starts the queue's thread. The caller holds the lock of `QUEUES`, in which the queue is, so the queue is alive.
fn start(key: usize) -> Result<Sender<Arc<Finish>>, Status> {
    // The threads poll for their requests, so some processors are left to others.
    let most = std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2);
    if THREADS.load(Ordering::Relaxed) >= most {
        return Err(Status::OUT_OF_RESOURCES);
    }
    let queue = with_exposed_provenance_mut::<c_void>(key);
    // SAFETY: the queue is alive.
    check(unsafe { cl!(clRetainCommandQueue(queue)) })?;
    let (sender, requests) = channel();
    THREADS.fetch_add(1, Ordering::Relaxed);
    let started = std::thread::Builder::new()
        .name("finisher".to_owned())
        .spawn(move || {
            serve(key, &requests);
            let _ = release(key);
            THREADS.fetch_sub(1, Ordering::Relaxed);
        });
    match started {
        Ok(_) => Ok(sender),
        Err(_) => {
            THREADS.fetch_sub(1, Ordering::Relaxed);
            release(key)?;
            Err(Status::OUT_OF_RESOURCES)
        }
    }
}

fn serve(key: usize, requests: &Receiver<Arc<Finish>>) {
    while let Some(finish) = next(key, requests, IDLE) {
        finish.end(finish_queue(key).is_ok());
    }
}

// The next request; `None` when the queue is no longer to be finished, or has had no request for this time. The next one
// then starts a thread again.
fn next(key: usize, requests: &Receiver<Arc<Finish>>, idle: Duration) -> Option<Arc<Finish>> {
    let since = Instant::now();
    while since.elapsed() < AWAKE {
        match requests.try_recv() {
            Ok(finish) => return Some(finish),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    match requests.recv_timeout(idle) {
        Ok(finish) => Some(finish),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            let mut queues = QUEUES.lock();
            // Requests are sent under the lock, so none is lost.
            let late = requests.try_recv().ok();
            if late.is_none()
                && let Some(channel) = queues.get_mut(&key)
            {
                *channel = None;
            }
            late
        }
    }
}

fn finish_queue(key: usize) -> Result<(), Status> {
    let queue = with_exposed_provenance_mut::<c_void>(key);
    // SAFETY: the thread has a reference to the queue.
    check(unsafe { cl!(clFinish(queue)) })
}

fn release(key: usize) -> Result<(), Status> {
    let queue = with_exposed_provenance_mut::<c_void>(key);
    // SAFETY: gives up the reference that `start` took.
    check(unsafe { cl!(clReleaseCommandQueue(queue)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_ends_when_its_queue_needs_no_finish_and_leaves_no_request() {
        // No queue has this address, and none is touched here.
        const KEY: usize = 1;
        let (sender, requests) = channel();
        QUEUES.lock().insert(KEY, Some(sender));
        let finish = begin(KEY).unwrap();
        let next = |idle| next(KEY, &requests, idle);
        assert!(next(Duration::MAX).is_some_and(|of| Arc::ptr_eq(&of, &finish)));
        assert!(next(Duration::ZERO).is_none());
        assert!(QUEUES.lock().remove(&KEY).is_some_and(|of| of.is_none()));
    }
}
