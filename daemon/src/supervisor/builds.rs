//! The supervisor's part of the build cache: answers lookups and has new entries built.
//!
//! A separate thread owns the directory and answers the workers directly, because a disk may be slow. New
//! entries are built by a task that runs one compiling worker at a time (`compiling`). A session's own work
//! is more important than the cache. A further compiling worker starts only beside a slow one. A compiler
//! that never ends therefore does not block all other entries.
//!
//! Invariants: an entry is stored only under the key that its compiling worker computed, and only for the
//! owner whose session asked. A build that failed for the cache is retried only after a pause, and only a
//! few times (`Failures`). No build is queued twice. A worker whose lookup finds the queue full gets a
//! negative answer at once.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::compiling::{Compiling, NotCompiled};
use super::process::Processes;
use super::worker::Worker;
use crate::build_cache::store::{Name, Unusable};
use crate::build_cache::{Failures, Key, Owner, Store};
use crate::config::{BuildCacheSettings, SessionSettings};
use crate::handover::ToWorker;

/// Queue length of requests to the directory's thread. A worker whose lookup does not fit builds by itself.
const QUESTIONS: usize = 256;
/// Queue length of builds for the cache. Each holds a memory file of up to [`Job::MOST`] bytes.
const JOBS: usize = 32;
/// A compiling worker that runs for longer is slow, and another one may start beside it.
const SLOW_AFTER: Duration = Duration::from_secs(15);
/// Maximum number of simultaneous compiling workers; all but one of them are slow.
const COMPILING: usize = SessionSettings::COMPILING as usize;
/// Maximum number of failed builds that are remembered.
const FAILURES: usize = 4096;
/// Time limit at the daemon's end for a killed compiling worker to be reaped.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Handle to the build cache. The directory's thread ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub(super) struct Builds(SyncSender<Request>);

/// Requests to the directory's thread.
enum Request {
    LookUp {
        worker: Arc<Worker>,
        ticket: u64,
        name: Name,
    },
    Learn(Lesson),
    Keep {
        name: Name,
        bytes: Vec<u8>,
        learning: Learning,
    },
    /// The compiling worker produced no entry.
    Failed(Name),
    /// The driver rejected the entry.
    Refused(Name),
    /// The compiler that built the entry has changed since.
    Outdated(Name),
}

/// A build that a session's worker has made and that may be added to the cache.
struct Lesson {
    name: Name,
    job: OwnedFd,
}

/// Names of the builds that are queued, being compiled, or waiting to be stored.
type Names = Arc<Mutex<HashSet<Name>>>;

/// Membership in [`Names`]; ends when dropped.
struct Learning {
    name: Name,
    among: Names,
}

impl Learning {
    /// Adds the name. Returns `None` if it is already in the set.
    fn begin(name: Name, among: &Names) -> Option<Learning> {
        let new = among.lock().insert(name);
        new.then(|| Learning {
            name,
            among: Arc::clone(among),
        })
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        self.among.lock().remove(&self.name);
    }
}

/// Handle to the task that has builds made for the cache.
pub(super) struct Teacher {
    /// Dropping the sender ends the task.
    until: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Teacher {
    /// Ends the task, and kills the compiling workers that are running.
    pub(super) async fn end(self) {
        drop(self.until);
        // A compiling worker that does not end in time is killed by the kernel when the daemon ends.
        let _ = tokio::time::timeout(END_WITHIN, self.task).await;
    }
}

impl Builds {
    /// Opens the directory and starts the thread and the task. Returns `None` if the cache is disabled or
    /// cannot be opened.
    pub(super) fn start(
        settings: &BuildCacheSettings,
        host_memory: u64,
        processes: &Processes,
    ) -> Option<(Builds, Teacher)> {
        let folder = settings.folder.as_ref().filter(|_| settings.size > 0)?;
        let open = || -> Result<(Builds, Teacher), Unusable> {
            let store = Store::open(folder, settings.size)?;
            tracing::info!(
                folder = %folder.display(),
                entries = store.len(),
                bytes = store.total(),
                "the build cache is open"
            );
            let (ask, asked) = sync_channel(QUESTIONS);
            let (teach, lessons) = mpsc::channel(JOBS);
            std::thread::Builder::new()
                .name("build-cache".into())
                .spawn(move || Directory::new(store, teach).serve(&asked))?;
            let builds = Builds(ask);
            let (until, ended) = watch::channel(());
            let compiling = Compiling::new(host_memory, processes.clone(), ended);
            let task = tokio::spawn(learn(builds.clone(), lessons, compiling));
            Ok((builds, Teacher { until, task }))
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
    pub(super) fn look_up(&self, worker: &Arc<Worker>, ticket: u64, key: Key) {
        let asked = self.ask(Request::LookUp {
            worker: Arc::clone(worker),
            ticket,
            name: name(key),
        });
        if !asked {
            // Without an answer the worker would wait.
            tell(worker, ticket, None);
        }
    }

    /// Offers a build that is missing from the cache to be compiled for it.
    pub(super) fn learn(&self, key: Key, job: OwnedFd) {
        let name = name(key);
        self.ask(Request::Learn(Lesson { name, job }));
    }

    /// Removes an entry that a worker could not use.
    pub(super) fn refused(&self, key: Key) {
        self.ask(Request::Refused(name(key)));
    }

    /// Removes an entry whose compiler has changed, as a worker found.
    pub(super) fn outdated(&self, key: Key) {
        self.ask(Request::Outdated(name(key)));
    }

    /// Queues a request for the directory's thread. Returns whether there was room.
    fn ask(&self, request: Request) -> bool {
        let asked = self.0.try_send(request).is_ok();
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

/// All sessions share the default owner: entries are not kept apart by user.
fn name(key: Key) -> Name {
    Name {
        owner: Owner::default(),
        key,
    }
}

/// The state of the thread that owns the directory.
struct Directory {
    store: Store,
    lessons: mpsc::Sender<(Lesson, Learning)>,
    learning: Names,
    failures: Failures<Name>,
    hits: u64,
    misses: u64,
    complained: bool,
}

impl Directory {
    fn new(store: Store, lessons: mpsc::Sender<(Lesson, Learning)>) -> Directory {
        Directory {
            store,
            lessons,
            learning: Names::default(),
            failures: Failures::new(FAILURES),
            hits: 0,
            misses: 0,
            complained: false,
        }
    }

    fn serve(mut self, asked: &Receiver<Request>) {
        while let Ok(request) = asked.recv() {
            match request {
                Request::LookUp {
                    worker,
                    ticket,
                    name,
                } => self.look_up(&worker, ticket, &name),
                Request::Learn(lesson) => self.pass_on(lesson),
                Request::Keep {
                    name,
                    bytes,
                    learning,
                } => {
                    self.keep(name, &bytes);
                    drop(learning);
                }
                Request::Failed(name) => self.failures.fail(name, Instant::now()),
                Request::Refused(name) => {
                    self.store.remove(&name);
                    self.failures.fail(name, Instant::now());
                }
                Request::Outdated(name) => {
                    self.store.remove(&name);
                    self.failures.outdate(name, Instant::now());
                }
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

    fn pass_on(&mut self, lesson: Lesson) {
        if self.store.has(&lesson.name) || !self.failures.may_try(&lesson.name, Instant::now()) {
            return;
        }
        // Sessions that start together often build the same program, so the name may be queued already.
        let Some(learning) = Learning::begin(lesson.name, &self.learning) else {
            return;
        };
        if self.lessons.try_send((lesson, learning)).is_err() {
            tracing::debug!("the queue of builds for the cache is full; a build is not cached");
        }
    }

    fn keep(&mut self, name: Name, bytes: &[u8]) {
        // The entry may have been rejected while it was compiled.
        if !self.failures.may_try(&name, Instant::now()) {
            return;
        }
        match self.store.put(name, bytes) {
            Ok(()) => {
                let total = self.store.total();
                tracing::debug!(key = ?name.key, bytes = bytes.len(), total, "a build is cached");
                self.complained = false;
                self.failures.succeed(&name);
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

/// Has builds compiled until the daemon ends: one at a time, and more beside slow ones.
async fn learn(
    builds: Builds,
    mut lessons: mpsc::Receiver<(Lesson, Learning)>,
    compiling: Compiling,
) {
    let mut ended = compiling.ended();
    let mut running = JoinSet::new();
    loop {
        let next = tokio::select! {
            biased;
            _ = ended.changed() => break,
            next = lessons.recv() => next,
        };
        let Some((lesson, learning)) = next else {
            break;
        };
        running.spawn(learn_one(
            builds.clone(),
            compiling.clone(),
            lesson,
            learning,
        ));
        let turn = async {
            let _ = tokio::time::timeout(SLOW_AFTER, running.join_next()).await;
            while running.len() >= COMPILING {
                running.join_next().await;
            }
        };
        tokio::select! {
            biased;
            _ = ended.changed() => break,
            () = turn => {}
        }
    }
    while running.join_next().await.is_some() {}
}

/// Has one build compiled, and its result stored.
async fn learn_one(builds: Builds, mut compiling: Compiling, lesson: Lesson, learning: Learning) {
    let Lesson { name, job } = lesson;
    let request = match compiling.compile(job).await {
        Ok((key, bytes)) => {
            if key != name.key {
                // The asking worker loaded other drivers than a new process does, or it reported a wrong
                // key. The result is stored under the key that the compiling worker computed, so it is
                // correct for workers with that key.
                builds.ask(Request::Failed(name));
            }
            let owner = name.owner;
            let name = Name { owner, key };
            Request::Keep {
                name,
                bytes,
                learning,
            }
        }
        Err(NotCompiled::Ended) => return,
        Err(error) => {
            tracing::debug!(%error, key = ?name.key, "a build for the cache failed");
            // The failure is recorded before `learning` is dropped. Otherwise the same build could be
            // queued again before its failure is known.
            builds.ask(Request::Failed(name));
            return;
        }
    };
    builds.ask(request);
}
