//! The build cache in the supervisor: who may ask for what, and whose word goes in.
//!
//! A thread of its own owns the directory, because a disk may be slow; it answers workers itself. What is
//! to be learned goes to a task, which has one compiling worker at a time build it (`compiling`): builds for the
//! cache are worth less than anything that a session does. Only one that takes long gets company, so that
//! a compiler that never ends does not keep all others from it.
//!
//! Invariant: an entry goes in only under the key that its compiling worker found, and only for the owner
//! whose session asked; a build that came out wrong is made for the cache again only after a pause, and a few
//! times (`Failures`); no build waits to be learned twice; a worker whose question finds no place is told so at once.

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

/// Questions that wait for the directory; a worker whose question finds no place builds.
const QUESTIONS: usize = 256;
/// Builds that wait to be learned; each holds a file in memory of up to [`Job::MOST`] bytes.
const JOBS: usize = 32;
/// A compiling worker that has not ended by then is slow: another one may start.
const SLOW_AFTER: Duration = Duration::from_secs(15);
/// Compiling workers at a time, all but one of them slow.
const COMPILING: usize = SessionSettings::COMPILING as usize;
/// Builds that are remembered as failed.
const FAILURES: usize = 4096;
/// For a compiling worker that was killed, when the daemon ends.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The way to the cache; ends with the daemon.
#[derive(Clone, Debug)]
pub(super) struct Builds(SyncSender<Request>);

/// What the directory's thread is asked.
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
    /// Nothing came out for the cache.
    Failed(Name),
    /// The driver does not take its entry.
    Refused(Name),
    /// What made its entry is not there any more.
    Outdated(Name),
}

/// A build that a worker has made.
struct Lesson {
    name: Name,
    job: OwnedFd,
}

/// The names of builds that wait to be learned, are being learned, or wait to be kept.
type Names = Arc<Mutex<HashSet<Name>>>;

/// One of them; it is no more when this goes.
struct Learning {
    name: Name,
    among: Names,
}

impl Learning {
    /// `None` for a build that is among them already.
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

/// The task that has builds made for the cache.
pub(super) struct Teacher {
    /// Dropped to end it.
    until: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Teacher {
    /// Ends a compiling worker that is at work.
    pub(super) async fn end(self) {
        drop(self.until);
        // One that does not end in time ends with the daemon.
        let _ = tokio::time::timeout(END_WITHIN, self.task).await;
    }
}

impl Builds {
    /// Opens the directory and starts thread and task; `None` if there is to be no cache, or can be none.
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
                "build cache"
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
            tracing::warn!(folder = %folder.display(), %error, "no build cache");
        }
        opened.ok()
    }

    /// Answers a worker that is about to build.
    pub(super) fn look_up(&self, worker: &Arc<Worker>, ticket: u64, key: Key) {
        let asked = self.ask(Request::LookUp {
            worker: Arc::clone(worker),
            ticket,
            name: name(key),
        });
        if !asked {
            // So that it does not wait for what will not come.
            tell(worker, ticket, None);
        }
    }

    /// A worker has made a build that is not there.
    pub(super) fn learn(&self, key: Key, job: OwnedFd) {
        let name = name(key);
        self.ask(Request::Learn(Lesson { name, job }));
    }

    /// A worker could not use an entry.
    pub(super) fn refused(&self, key: Key) {
        self.ask(Request::Refused(name(key)));
    }

    /// A worker found that an entry's compiler is another one now.
    pub(super) fn outdated(&self, key: Key) {
        self.ask(Request::Outdated(name(key)));
    }

    /// Whether it will be done.
    fn ask(&self, request: Request) -> bool {
        let asked = self.0.try_send(request).is_ok();
        if !asked {
            tracing::debug!("the build cache has too much to do");
        }
        asked
    }
}

/// Answers a question.
fn tell(worker: &Worker, ticket: u64, entry: Option<OwnedFd>) {
    if let Err(error) = worker.send(&ToWorker::Cached { ticket, entry }) {
        // It builds, or has ended.
        tracing::debug!(%error, "the build cache's answer");
    }
}

/// Whose session it is will be known when sessions are authenticated.
fn name(key: Key) -> Name {
    Name {
        owner: Owner::default(),
        key,
    }
}

/// The thread that owns the directory.
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
        tracing::debug!(key = ?name.key, found, hits, misses, "a build is looked for");
        tell(worker, ticket, entry);
    }

    fn pass_on(&mut self, lesson: Lesson) {
        if self.store.has(&lesson.name) || !self.failures.may_try(&lesson.name, Instant::now()) {
            return;
        }
        // Sessions that begin together build the same.
        let Some(learning) = Learning::begin(lesson.name, &self.learning) else {
            return;
        };
        if self.lessons.try_send((lesson, learning)).is_err() {
            tracing::debug!("too many builds wait to be cached");
        }
    }

    fn keep(&mut self, name: Name, bytes: &[u8]) {
        // It may have been refused meanwhile.
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
            // A full disk says so once, not with every build.
            Err(error) if self.complained => tracing::debug!(%error, "a build cannot be cached"),
            Err(error) => {
                tracing::warn!(%error, "a build cannot be cached");
                self.complained = true;
            }
        }
    }
}

/// Has one build after the other made, until the daemon ends.
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

/// Has one build made, and what came out kept.
async fn learn_one(builds: Builds, mut compiling: Compiling, lesson: Lesson, learning: Learning) {
    let Lesson { name, job } = lesson;
    let request = match compiling.compile(job).await {
        Ok((key, bytes)) => {
            if key != name.key {
                // The worker has other drivers loaded than one that is started now, or does not tell
                // the truth. What was built is right for whom it is right.
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
            tracing::debug!(%error, key = ?name.key, "a build is not cached");
            // First, so that what fails is not learned again before that is known.
            builds.ask(Request::Failed(name));
            return;
        }
    };
    builds.ask(request);
}
