//! Keeps the process that announces a server running.
//!
//! The process reads strangers' packets; this module reads none. Invariants: a process that ends is started again after
//! a pause, which doubles up to a minute. After [`Announcer::end`] none is started.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::span::pause;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::watch;

use crate::Order;

/// Pauses before a process that has ended is replaced: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a process must run to count as working.
const WORKS_AFTER: Duration = Duration::from_secs(60);
/// Time for the goodbye.
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);

/// Starts the process, which must confine itself and call [`announce`](crate::announce).
pub trait Start: Send + Sync + 'static {
    /// The process; killed when dropped.
    type Process: Running;

    /// Starts the process. `channel` becomes its descriptor 0.
    ///
    /// # Errors
    /// The system's.
    fn start(&self, channel: OwnedFd) -> io::Result<Self::Process>;
}

/// A process that runs.
pub trait Running: Send + 'static {
    /// Waits until the process has ended. Returns how it ended, for the log. Cancel safe.
    fn wait(&mut self) -> impl Future<Output = String> + Send;

    /// Kills and reaps the process.
    fn end(self) -> impl Future<Output = ()> + Send;
}

/// Announces a server. Clones share their state.
pub struct Announcer<S>(Arc<Inner<S>>);

impl<S> Clone for Announcer<S> {
    fn clone(&self) -> Announcer<S> {
        Announcer(Arc::clone(&self.0))
    }
}

struct Inner<S> {
    order: Order,
    starter: S,
    stage: watch::Sender<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not announced yet.
    Before,
    Announced,
    /// The server no longer announces itself; the goodbye is under way.
    Ending,
    /// No process is left.
    Over,
}

impl<S: Start> Announcer<S> {
    /// Makes an announcer that has not begun.
    #[must_use]
    pub fn new(order: Order, starter: S) -> Announcer<S> {
        let (stage, _) = watch::channel(Stage::Before);
        Announcer(Arc::new(Inner {
            order,
            starter,
            stage,
        }))
    }

    /// Begins to announce the server. Does nothing the second time. Needs a tokio runtime.
    pub fn begin(&self) {
        let begins = |stage: &mut Stage| {
            let begins = *stage == Stage::Before;
            if begins {
                *stage = Stage::Announced;
            }
            begins
        };
        if self.0.stage.send_if_modified(begins) {
            let announcer = self.clone();
            tokio::spawn(async move {
                announcer.0.announce().await;
                announcer.0.stage.send_replace(Stage::Over);
            });
        }
    }

    /// Says goodbye. Does not wait.
    pub fn end(&self) {
        self.0.stage.send_if_modified(|stage| {
            let next = match stage {
                Stage::Before => Stage::Over,
                Stage::Announced => Stage::Ending,
                Stage::Ending | Stage::Over => return false,
            };
            *stage = next;
            true
        });
    }

    /// Waits until the process has said goodbye and ended.
    pub async fn ended(&self) {
        let mut stage = self.0.stage.subscribe();
        // The sender lives as long as `self`.
        let _ = stage.wait_for(|stage| *stage == Stage::Over).await;
    }
}

impl<S: Start> Inner<S> {
    /// Keeps a process running until the announcement ends.
    async fn announce(&self) {
        let mut stage = self.stage.subscribe();
        let mut failures = 0;
        loop {
            let started = Instant::now();
            let fault = match self.start().await {
                Ok((mut process, channel)) => tokio::select! {
                    fault = process.wait() => fault,
                    () = is_over(&mut stage) => {
                        drop(channel);
                        let _ = tokio::time::timeout(GOODBYE_WITHIN, process.wait()).await;
                        process.end().await;
                        return;
                    }
                },
                Err(error) => error.to_string(),
            };
            if started.elapsed() >= WORKS_AFTER {
                failures = 0;
            }
            let pause = pause(PAUSES, failures);
            failures += 1;
            if failures == 1 {
                tracing::warn!(
                    fault,
                    "the process that announces this service has ended; it is started again"
                );
            } else {
                tracing::debug!(
                    fault,
                    ?pause,
                    "the process that announces this service has ended again"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = is_over(&mut stage) => return,
            }
        }
    }

    async fn start(&self) -> io::Result<(S::Process, UnixStream)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let process = self.starter.start(theirs.into())?;
        let mut channel = UnixStream::from_std(ours)?;
        let order = self.order.encode().map_err(io::Error::other)?;
        channel.write_all(&order).await?;
        Ok((process, channel))
    }
}

/// Waits until the server no longer announces itself.
async fn is_over(stage: &mut watch::Receiver<Stage>) {
    // The sender lives as long as the announcer.
    let _ = stage.wait_for(|stage| *stage != Stage::Announced).await;
}
