//! The supervisor's part of the build cache: answers lookups and stores the entries that workers pass.
//!
//! A separate thread owns the directory and answers the workers directly, because a disk may be slow. This
//! module does not look into entries. A hostile worker can store anything, but only for its own user.
//!
//! Invariants: a worker reaches only entries of its session's user. Memory that waits to be stored counts
//! against the user's [`Allowance`], and so does every question. A worker whose lookup exceeds it, or finds
//! the queue full, gets a negative answer at once.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::worker::Worker;
use crate::build_cache::store::Unusable;
use crate::build_cache::{Allowance, MemoryFile, Name, Store};
use crate::config::BuildCacheSettings;
use crate::handover::{ToWorker, WorkerFile};

/// Queue length of requests to the directory's thread. A worker whose lookup does not fit builds by itself.
const QUESTIONS: usize = 256;
/// Pause before the next look for room in the queue, at the daemon's end.
const FULL: Duration = Duration::from_millis(10);
/// Divisor for the part of the cache that one of several users may have.
const SHARE: u64 = 2;

/// Handle to the build cache. The directory's thread ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub(super) struct Builds {
    requests: SyncSender<Request>,
    allowance: Arc<Mutex<Allowance>>,
}

/// Requests to the directory's thread.
enum Request {
    LookUp {
        worker: Arc<Worker>,
        ticket: u64,
        name: Name,
    },
    Store {
        name: Name,
        entry: MemoryFile,
    },
    /// An entry is of no use.
    Remove(Name),
    /// Everything before is to be done.
    Flush(oneshot::Sender<()>),
}

impl Builds {
    /// Opens the directory and starts the thread. `users` says whether sessions belong to different users.
    /// Returns `None` if the cache is disabled or cannot be opened.
    pub(super) fn start(settings: &BuildCacheSettings, users: bool) -> Option<Builds> {
        let folder = settings.folder.as_ref().filter(|_| settings.size > 0)?;
        let share = settings.size / if users { SHARE } else { 1 };
        let open = || -> Result<Builds, Unusable> {
            let store = Store::open(folder, settings.size, share)?;
            tracing::info!(
                folder = %folder.display(),
                entries = store.count(),
                bytes = store.total(),
                "the build cache is open"
            );
            let (requests, received) = sync_channel(QUESTIONS);
            std::thread::Builder::new()
                .name("build-cache".into())
                .spawn(move || Directory::new(store).serve(&received))?;
            let allowance = Arc::new(Mutex::new(Allowance::new(Instant::now())));
            Ok(Builds {
                requests,
                allowance,
            })
        };
        let opened = open();
        if let Err(error) = &opened {
            tracing::warn!(
                folder = %folder.display(),
                %error,
                "the build cache is disabled, because its directory cannot be used; set [build_cache] directory to one \
                 that only the daemon's user may write to"
            );
        }
        opened.ok()
    }

    /// Answers a worker that is about to build, with the entry or with `None`.
    pub(super) fn look_up(&self, worker: &Arc<Worker>, ticket: u64, name: Name) {
        let request = Request::LookUp {
            worker: Arc::clone(worker),
            ticket,
            name,
        };
        if !(self.may_ask(&name) && self.ask(request)) {
            // Without an answer the worker would wait.
            tell(worker, ticket, None);
        }
    }

    /// Stores an entry that a worker has passed.
    pub(super) fn store(&self, name: Name, passed: WorkerFile) {
        let entry = match MemoryFile::adopt(passed) {
            Ok(entry) => entry,
            Err(error) => {
                tracing::debug!(%error, ?name, "a worker passed an invalid build for the cache");
                return;
            }
        };
        // Before the queue, because the memory exists as long as the request waits.
        let now = Instant::now();
        if !self.allowance.lock().take(name.owner, entry.length(), now) {
            tracing::debug!(?name, "a user's builds come too fast; one is not cached");
            return;
        }
        self.ask(Request::Store { name, entry });
    }

    /// Removes an entry that a worker could not use.
    pub(super) fn remove(&self, name: Name) {
        if self.may_ask(&name) {
            self.ask(Request::Remove(name));
        }
    }

    /// Waits until the entries that workers have passed are stored, `limit` at most.
    pub(super) async fn flush(&self, limit: Duration) {
        let flushed = async {
            let (done, is_done) = oneshot::channel();
            let mut request = Request::Flush(done);
            while let Err(TrySendError::Full(again)) = self.requests.try_send(request) {
                request = again;
                tokio::time::sleep(FULL).await;
            }
            // This fails only if the directory's thread has failed.
            let _ = is_done.await;
        };
        if tokio::time::timeout(limit, flushed).await.is_err() {
            tracing::warn!(
                "the build cache's disk is slow; some builds of the last sessions are not cached"
            );
        }
    }

    /// Takes a question out of the user's allowance. Returns whether that was possible.
    fn may_ask(&self, name: &Name) -> bool {
        let may = self.allowance.lock().ask(name.owner, Instant::now());
        if !may {
            tracing::debug!(
                ?name,
                "a user asks the build cache too much; a request is dropped"
            );
        }
        may
    }

    /// Queues a request for the directory's thread. Returns whether there was room.
    fn ask(&self, request: Request) -> bool {
        let asked = self.requests.try_send(request).is_ok();
        if !asked {
            tracing::debug!("the build cache's queue is full; a request is dropped");
        }
        asked
    }
}

/// Sends the answer to a lookup.
fn tell(worker: &Worker, ticket: u64, entry: Option<OwnedFd>) {
    if let Err(error) = worker.send(&ToWorker::Cached { ticket, entry }) {
        // The worker then builds by itself, or it has ended.
        tracing::debug!(%error, "a build cache's answer cannot be sent to a worker");
    }
}

/// The state of the thread that owns the directory.
struct Directory {
    store: Store,
    hits: u64,
    misses: u64,
    complained: bool,
}

impl Directory {
    fn new(store: Store) -> Directory {
        Directory {
            store,
            hits: 0,
            misses: 0,
            complained: false,
        }
    }

    fn serve(mut self, received: &Receiver<Request>) {
        while let Ok(request) = received.recv() {
            match request {
                Request::LookUp {
                    worker,
                    ticket,
                    name,
                } => self.look_up(&worker, ticket, &name),
                Request::Store { name, entry } => self.keep(name, &entry),
                Request::Remove(name) => self.store.remove(&name),
                // Nobody waits any more if the limit has passed.
                Request::Flush(done) => drop(done.send(())),
            }
        }
    }

    fn look_up(&mut self, worker: &Worker, ticket: u64, name: &Name) {
        let entry = self.store.get(name).map(OwnedFd::from);
        let found = entry.is_some();
        *(if found {
            &mut self.hits
        } else {
            &mut self.misses
        }) += 1;
        let (hits, misses) = (self.hits, self.misses);
        tracing::debug!(key = ?name.key, found, hits, misses, "build cache lookup");
        tell(worker, ticket, entry);
    }

    fn keep(&mut self, name: Name, entry: &MemoryFile) {
        // Sessions that start together often build the same program.
        if self.store.has(&name) {
            return;
        }
        let kept = entry.read().and_then(|bytes| self.store.put(name, &bytes));
        match kept {
            Ok(()) => {
                let (bytes, total) = (entry.length(), self.store.total());
                tracing::debug!(key = ?name.key, bytes, total, "a build is cached");
                self.complained = false;
            }
            // A persistent fault such as a full disk is logged as a warning once, not for every build.
            Err(error) if self.complained => {
                tracing::debug!(%error, "a build cannot be stored in the build cache")
            }
            Err(error) => {
                tracing::warn!(%error, "a build cannot be stored in the build cache");
                self.complained = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_cache::{Key, Owner, memory_file};
    use std::future::poll_fn;
    use std::path::Path;
    use std::pin::pin;
    use std::task::Poll;
    use std::time::Duration;

    fn name(user: &str, n: u16) -> Name {
        let [high, low] = n.to_be_bytes();
        let mut key = [0; 32];
        (key[0], key[1]) = (high, low);
        Name {
            owner: Owner::of(Some(user)),
            key: Key(key),
        }
    }

    fn is_there(folder: &Path, name: &Name) -> bool {
        folder.join(name.file()).exists()
    }

    /// Stores until the entry is there. Requests are dropped while the queue is full.
    fn store(builds: &Builds, folder: &Path, name: Name) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_there(folder, &name) {
            builds.store(name, memory_file::of(b"entry").unwrap().into());
            assert!(Instant::now() < until, "the entry is not stored");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_flood_of_one_users_entries_costs_no_other_users() {
        let folder = tempfile::tempdir().unwrap();
        let settings = BuildCacheSettings {
            folder: Some(folder.path().to_owned()),
            size: 16 << 12,
        };
        let builds = Builds::start(&settings, true).unwrap();
        for n in 0..4 {
            store(&builds, folder.path(), name("bob", n));
        }
        for n in 0..4096 {
            builds.store(name("ann", n), memory_file::of(&[7; 9]).unwrap().into());
        }
        // A request behind the flood.
        store(&builds, folder.path(), name("bob", 4));
        assert!((0..5).all(|n| is_there(folder.path(), &name("bob", n))));
        let left = (0..4096).filter(|n| is_there(folder.path(), &name("ann", *n)));
        assert_eq!(left.count(), 8, "half of the cache");
        // User `ann` cannot remove entries of user `bob`, because their names never agree.
        builds.remove(name("ann", 0));
        builds.store(
            name("ann", 0),
            OwnedFd::from(tempfile::tempfile().unwrap()).into(),
        );
        store(&builds, folder.path(), name("bob", 5));
        assert!(is_there(folder.path(), &name("bob", 0)));
    }

    /// Returns a handle whose queue no thread serves yet.
    fn unserved() -> (Builds, Receiver<Request>) {
        let (requests, received) = sync_channel(QUESTIONS);
        let allowance = Arc::new(Mutex::new(Allowance::new(Instant::now())));
        let builds = Builds {
            requests,
            allowance,
        };
        (builds, received)
    }

    /// Passes this number of entries of one user.
    fn pass(builds: &Builds, count: usize) {
        for n in 0..count as u16 {
            builds.store(name("ann", n), memory_file::of(&[7; 9]).unwrap().into());
        }
    }

    #[tokio::test]
    async fn a_flush_waits_for_everything_that_was_passed() {
        // The queue has one place left for the flush, or none.
        for count in [QUESTIONS - 1, QUESTIONS] {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(folder.path(), 1 << 30, 1 << 30).unwrap();
            let (builds, received) = unserved();
            pass(&builds, count);
            let mut flushed = pin!(builds.flush(Duration::from_secs(60)));
            let waits = poll_fn(|context| {
                let polled = flushed.as_mut().poll(context);
                Poll::Ready(polled.is_pending())
            });
            assert!(waits.await, "the flush of {count} entries does not wait");
            let there = || {
                let names = (0..count as u16).map(|n| name("ann", n));
                names.filter(|name| is_there(folder.path(), name)).count()
            };
            assert_eq!(there(), 0);
            std::thread::spawn(move || Directory::new(store).serve(&received));
            flushed.await;
            assert_eq!(there(), count);
        }
    }

    #[tokio::test]
    async fn a_flush_ends_at_its_limit_and_without_the_directorys_thread() {
        for count in [0, QUESTIONS] {
            let (builds, received) = unserved();
            pass(&builds, count);
            // Returns although nothing serves the queue.
            builds.flush(Duration::from_millis(1)).await;
            drop(received);
            let flushed = builds.flush(Duration::from_secs(3600));
            let ended = tokio::time::timeout(Duration::from_secs(60), flushed).await;
            assert!(ended.is_ok(), "the flush waits for a thread that is gone");
        }
    }
}
