//! The build cache in the supervisor: who may ask for what, and whose word goes in.
//!
//! A thread of its own owns the directory, because a disk may be slow; it answers workers itself. What is
//! to be learned goes to a task, which has one compiling worker at a time build it: builds for the cache
//! are worth less than anything that a session does.
//!
//! Invariant: an entry goes in only under the key that its compiling worker found, and only for the owner
//! whose session asked; a build that came out wrong once is not made for the cache again; no build waits
//! to be learned twice.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::process::{self, Role};
use super::worker::Worker;
use crate::build_cache::scratch::Folder;
use crate::build_cache::store::{Name, Unusable};
use crate::build_cache::{Broken, Job, Key, Owner, Scratch, Store, entry, pocl};
use crate::config::BuildCacheSettings;
use crate::handover::ToWorker;
use causeway_serving::logging::Logging;

/// Questions that wait for the directory; a worker whose question finds no place builds.
const QUESTIONS: usize = 256;
/// Builds that wait to be learned; each holds a file in memory of up to [`Job::MOST`] bytes.
const JOBS: usize = 32;
/// For a compiling worker.
const COMPILE_WITHIN: Duration = Duration::from_secs(300);
/// Builds that are remembered as not to be learned.
const AVOIDED: usize = 4096;
/// For a compiling worker that was killed, and the removal of its files, when the daemon ends.
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
    /// Its entry is of no use, or there will never be one.
    Avoid(Name),
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
    /// Ends a compiling worker that is at work, and removes its files.
    pub(super) async fn end(self) {
        drop(self.until);
        // What cannot be removed in time is removed by the next daemon.
        let _ = tokio::time::timeout(END_WITHIN, self.task).await;
    }
}

impl Builds {
    /// Opens the directory and starts thread and task; `None` if there is to be no cache, or can be none.
    pub(super) fn start(
        settings: &BuildCacheSettings,
        host_memory: u64,
        logging: &Logging,
    ) -> Option<(Builds, Teacher)> {
        let folder = settings.folder.as_ref().filter(|_| settings.size > 0)?;
        let open = || -> Result<(Builds, Teacher), Unusable> {
            let store = Store::open(folder, settings.size)?;
            let scratch = Scratch::open(folder)?;
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
            let compiling = Compiling {
                scratch: Arc::new(scratch),
                host_memory,
                logging: logging.clone(),
                ended,
            };
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
        self.ask(Request::LookUp {
            worker: Arc::clone(worker),
            ticket,
            name: name(key),
        });
    }

    /// A worker has made a build that is not there.
    pub(super) fn learn(&self, key: Key, job: OwnedFd) {
        let name = name(key);
        self.ask(Request::Learn(Lesson { name, job }));
    }

    /// A worker could not use an entry.
    pub(super) fn refused(&self, key: Key) {
        self.ask(Request::Avoid(name(key)));
    }

    fn ask(&self, request: Request) {
        if self.0.try_send(request).is_err() {
            tracing::debug!("the build cache has too much to do");
        }
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
    avoided: HashSet<Name>,
    avoided_since: VecDeque<Name>,
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
            avoided: HashSet::new(),
            avoided_since: VecDeque::new(),
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
                Request::Avoid(name) => self.avoid(name),
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
        if let Err(error) = worker.send(&ToWorker::Cached { ticket, entry }) {
            // It builds, or has ended.
            tracing::debug!(%error, "the build cache's answer");
        }
    }

    fn pass_on(&mut self, lesson: Lesson) {
        if self.store.has(&lesson.name) || self.avoided.contains(&lesson.name) {
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
        if self.avoided.contains(&name) {
            return;
        }
        match self.store.put(name, bytes) {
            Ok(()) => {
                let total = self.store.total();
                tracing::debug!(key = ?name.key, bytes = bytes.len(), total, "a build is cached");
                self.complained = false;
            }
            // A full disk says so once, not with every build.
            Err(error) if self.complained => tracing::debug!(%error, "a build cannot be cached"),
            Err(error) => {
                tracing::warn!(%error, "a build cannot be cached");
                self.complained = true;
            }
        }
    }

    fn avoid(&mut self, name: Name) {
        self.store.remove(&name);
        if self.avoided.insert(name) {
            self.avoided_since.push_back(name);
        }
        if self.avoided.len() > AVOIDED
            && let Some(oldest) = self.avoided_since.pop_front()
        {
            self.avoided.remove(&oldest);
        }
    }
}

/// What it takes to compile.
struct Compiling {
    scratch: Arc<Scratch>,
    host_memory: u64,
    logging: Logging,
    /// Closed when the daemon ends.
    ended: watch::Receiver<()>,
}

/// Has one build after the other made, until the daemon ends.
async fn learn(
    builds: Builds,
    mut lessons: mpsc::Receiver<(Lesson, Learning)>,
    mut compiling: Compiling,
) {
    loop {
        let next = tokio::select! {
            biased;
            _ = compiling.ended.changed() => break,
            next = lessons.recv() => next,
        };
        let Some((Lesson { name, job }, learning)) = next else {
            break;
        };
        let request = match compiling.compile(job).await {
            Ok((key, bytes)) => {
                if key != name.key {
                    // The worker has other drivers loaded than one that is started now, or does not tell
                    // the truth. What was built is right for whom it is right.
                    builds.ask(Request::Avoid(name));
                }
                let owner = name.owner;
                let name = Name { owner, key };
                Request::Keep {
                    name,
                    bytes,
                    learning,
                }
            }
            Err(NotCompiled::Ended) => break,
            Err(error) => {
                tracing::debug!(%error, key = ?name.key, "a build is not cached");
                Request::Avoid(name)
            }
        };
        builds.ask(request);
    }
    // Its folder goes beside the loop: a disk may be slow.
    let _ = aside(move || {
        drop(compiling);
        Ok(())
    })
    .await;
}

/// There is nothing to keep of a build.
#[derive(Debug, thiserror::Error)]
enum NotCompiled {
    #[error("it took more than {} s", COMPILE_WITHIN.as_secs())]
    TooSlow,
    #[error("the daemon ends")]
    Ended,
    #[error("the compiling worker ended with {0}")]
    Failed(String),
    #[error("the compiling worker has nothing to keep")]
    Nothing,
    #[error("the compiling worker gave {0}")]
    Broken(#[from] Broken),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Compiling {
    /// Builds a job in a process of its own: the entry, and its key.
    async fn compile(&mut self, job: OwnedFd) -> Result<(Key, Vec<u8>), NotCompiled> {
        let scratch = Arc::clone(&self.scratch);
        let (job, folder) = aside(move || Ok((read(job)?, scratch.job()?))).await?;
        let compiled = self.compile_in(&folder, &job).await;
        // Checked beside the loop as well: an entry may be long.
        aside(move || {
            drop(folder);
            Ok(())
        })
        .await?;
        let bytes = compiled?;
        if bytes.is_empty() {
            return Err(NotCompiled::Nothing);
        }
        let (key, bytes) = aside(move || Ok((entry::key_of(&bytes), bytes))).await?;
        Ok((key?, bytes))
    }

    async fn compile_in(&mut self, folder: &Folder, job: &[u8]) -> Result<Vec<u8>, NotCompiled> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let usual = pocl::folder(&|name| std::env::var_os(name));
        let variables = [
            (pocl::FOLDER, folder.path().as_os_str()),
            (pocl::USUAL, &usual),
        ];
        let mut child =
            process::start_with(Role::Compiler, theirs.into(), &self.logging, &variables)?;
        let host_memory = self.host_memory;
        let talk = async {
            let mut ours = UnixStream::from_std(ours)?;
            ours.write_all(&host_memory.to_le_bytes()).await?;
            ours.write_all(job).await?;
            ours.shutdown().await?;
            let mut bytes = Vec::new();
            let most = entry::MAX_ENTRY as u64 + 1;
            ours.take(most).read_to_end(&mut bytes).await?;
            Ok((bytes, child.wait().await?))
        };
        let talked: Result<(Vec<u8>, ExitStatus), NotCompiled> = tokio::select! {
            talked = tokio::time::timeout(COMPILE_WITHIN, talk) => {
                talked.unwrap_or(Err(NotCompiled::TooSlow))
            }
            _ = self.ended.changed() => Err(NotCompiled::Ended),
        };
        if talked.is_err() {
            process::kill(&child);
            // Reaped here, so that nothing is left behind.
            let _ = child.wait().await;
        }
        let (bytes, status) = talked?;
        if status.success() {
            Ok(bytes)
        } else {
            Err(NotCompiled::Failed(process::describe(status)))
        }
    }
}

/// Does what may wait for a disk beside the supervisor's one thread.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reads a worker's job: no more than a job has, and from a file alone, because reading anything else may
/// never end.
fn read(job: OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(job);
    let found = file.metadata()?;
    if !found.is_file() || found.len() > Job::MOST as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; found.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
