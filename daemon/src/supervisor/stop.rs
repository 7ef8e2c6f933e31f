//! The end of the daemon. It drains, then ends all its processes, and finally reports the end to its device
//! manager.

use std::time::{Duration, Instant};

use causeway_serving::notify;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::announcer::NodeAnnouncer;
use super::managed::Managed;
use super::readiness::Readiness;
use super::workers::Workers;

/// How long a daemon that ends waits for the clients of its last sessions to come back, if it cannot park these. Most of
/// those that do not are programs that were killed behind a tunnel.
const AWAY_WITHIN: Duration = Duration::from_secs(5);
/// Time for workers to leave by themselves before they are killed.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);
/// Time for the device manager to receive the final reports on leases.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// Time for the last sessions' builds to be written to the build cache.
const STORE_WITHIN: Duration = Duration::from_secs(1);
/// Time for the kernel to end killed workers.
const DIE_WITHIN: Duration = Duration::from_secs(2);
/// How often the daemon looks whether it waits for clients that are away.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the service manager is asked for more time.
const NEEDS_EVERY: Duration = Duration::from_secs(5);
/// What the daemon needs after the time for draining: until the next question, and for the end. The last second is for
/// a loaded machine.
const NEEDS_BESIDE: Duration = NEEDS_EVERY
    .saturating_add(LEAVE_WITHIN)
    .saturating_add(DIE_WITHIN)
    .saturating_add(STORE_WITHIN)
    .saturating_add(HEARD_WITHIN)
    .saturating_add(Duration::from_secs(1));

/// Signals that end the daemon. They are registered before anything else starts, so that none is missed.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// For a private daemon: resolves when the process that started it has ended.
    orphaned: Option<oneshot::Receiver<()>>,
}

/// Value of [`Signals::next`] when the process that started a private daemon has ended.
const ORPHANED: &str = "end of standard input";

impl Signals {
    pub(super) fn new(private: bool) -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            orphaned: match private {
                true => Some(end_of_input()?),
                false => None,
            },
        })
    }

    /// Waits for a signal and then drains. No new session opens. Running sessions, including new
    /// connections of them, continue up to `limit`. A second signal ends them at once.
    pub(super) async fn wait_and_drain(
        mut self,
        limit: Duration,
        workers: &Workers,
        managed: Option<&Managed>,
        readiness: &Readiness,
        announcer: Option<&NodeAnnouncer>,
    ) {
        let name = self.next().await;
        notify("STOPPING=1");
        if let Some(announcer) = announcer {
            announcer.end();
        }
        // The manager is informed first, so that it grants no device here for a session that would be
        // refused.
        if let Some(managed) = managed {
            managed.stop();
        }
        workers.drain();
        readiness.look_at_health();
        let sessions = workers.counts().sessions;
        tracing::info!(signal = name, sessions, "shutting down");
        self.drain(name, limit, workers).await;
        // Leases end first: of several reasons for the end of a worker, its client learns the first.
        if let Some(managed) = managed {
            managed.end_all();
        }
        self.end_workers(workers).await;
        workers.store_builds(STORE_WITHIN).await;
        if let Some(announcer) = announcer {
            announcer.ended().await;
        }
        // This comes after the workers' end, because a lease's end is reported when its last worker has
        // been reaped.
        if let Some(managed) = managed {
            managed.leave(HEARD_WITHIN).await;
        }
    }

    /// Parks the sessions, and waits until they are gone or need not be waited for. `name` is the signal's.
    async fn drain(&mut self, name: &str, limit: Duration, workers: &Workers) {
        let parks = async {
            match name {
                // The only client of a private daemon has ended, so no session is worth waiting for.
                ORPHANED => workers.kill_all(),
                _ => workers.park_all().await,
            }
        };
        let gone = async {
            tokio::select! {
                () = workers.no_session() => Drained::Gone,
                () = workers.all_away_for(AWAY_WITHIN) => Drained::Away,
            }
        };
        let drained = drained(parks, gone, late(limit, workers), self.next()).await;
        let sessions = workers.counts().sessions;
        match drained {
            Drained::Gone => {}
            Drained::Away => tracing::info!(
                sessions,
                "the clients of all running sessions are away; their sessions are ended"
            ),
            Drained::Late => tracing::warn!(
                sessions,
                "the drain limit is reached; running sessions are ended"
            ),
            Drained::Told(name) => {
                // The tool that started a private daemon ends at the same signal, which is no fault.
                if name != ORPHANED {
                    tracing::warn!(signal = name, "second signal: running sessions are killed");
                }
                workers.kill_all();
            }
        }
    }

    async fn end_workers(&mut self, workers: &Workers) {
        workers.end_all();
        tokio::select! {
            () = workers.no_worker() => return,
            () = tokio::time::sleep(LEAVE_WITHIN) => {}
            _ = self.next() => {}
        }
        workers.kill_all();
        // A process that the kernel cannot end, because it is inside a driver's system call, gets its
        // parent-death signal when this daemon has exited.
        let _ = tokio::time::timeout(DIE_WITHIN, workers.no_worker()).await;
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = orphaned(&mut self.orphaned) => ORPHANED,
        }
    }
}

/// Why the daemon waits for its sessions no longer.
#[derive(Debug, PartialEq, Eq)]
enum Drained {
    Gone,
    Away,
    Late,
    /// Another signal.
    Told(&'static str),
}

/// The time for draining. It does not run while the client of a session that is being parked is away and may come back:
/// nothing can be parked without the client. Pure: the caller has the clock. Invariant: all waiting for clients together
/// takes no longer than the longest time for which one of them may be away. The service manager is asked for more time from
/// the first such wait on, to the end: each question replaces the answer before.
struct DrainTime {
    left: Duration,
    waited: Duration,
    /// The time since the service manager was asked for more; `None` before.
    since_asked: Option<Duration>,
}

impl DrainTime {
    fn new(limit: Duration) -> DrainTime {
        DrainTime {
            left: limit,
            waited: Duration::ZERO,
            since_asked: None,
        }
    }

    /// Counts time that has `passed`. `awaited`: of the sessions that are being parked, whether one is waited for, and the
    /// longest time for which one may be away. Returns the time to ask the service manager for, if that is due.
    fn count(
        &mut self,
        passed: Duration,
        (is_awaited, longest): (bool, Duration),
    ) -> Option<Duration> {
        let runs = !is_awaited || self.waited >= longest;
        match runs {
            true => self.left = self.left.saturating_sub(passed),
            false => self.waited += passed,
        }
        let since = self.since_asked.map(|since| since + passed);
        let is_due = since.map_or(!runs, |since| since >= NEEDS_EVERY);
        self.since_asked = if is_due { Some(Duration::ZERO) } else { since };
        is_due.then(|| self.left + NEEDS_BESIDE)
    }
}

/// Resolves when the time for draining is over.
async fn late(limit: Duration, workers: &Workers) {
    let (mut time, mut last) = (DrainTime::new(limit), Instant::now());
    while !time.left.is_zero() {
        tokio::time::sleep(LOOK_EVERY.min(time.left)).await;
        let now = Instant::now();
        let needs = time.count(now - last, workers.awaited(now));
        last = now;
        if let Some(needs) = needs {
            notify(&format!("EXTEND_TIMEOUT_USEC={}", needs.as_micros()));
        }
    }
}

/// Parks the sessions, and waits until they are gone. Neither the time for draining nor a signal waits for the parking,
/// which waits for a disk.
async fn drained(
    parks: impl Future<Output = ()>,
    gone: impl Future<Output = Drained>,
    late: impl Future<Output = ()>,
    told: impl Future<Output = &'static str>,
) -> Drained {
    let drained = async {
        parks.await;
        gone.await
    };
    tokio::select! {
        drained = drained => drained,
        () = late => Drained::Late,
        name = told => Drained::Told(name),
    }
}

/// Resolves at most once.
async fn orphaned(end: &mut Option<oneshot::Receiver<()>>) {
    match end {
        Some(receiver) => {
            // This fails only if the watching thread has failed. The parent's end can then no longer be
            // detected.
            let _ = receiver.await;
            *end = None;
        }
        None => std::future::pending().await,
    }
}

/// Returns a receiver that resolves when standard input ends. The kernel closes its other end when the
/// process that holds it ends, in whatever way.
fn end_of_input() -> std::io::Result<oneshot::Receiver<()>> {
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new()
        .name("parent".to_owned())
        .spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            // Nobody receives this if the daemon is ending for another reason.
            let _ = tell.send(());
        })?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    // A parking that never ends stands for a disk that hangs.
    #[tokio::test]
    async fn a_disk_that_hangs_does_not_keep_the_daemon() {
        let late = drained(pending(), pending(), ready(()), pending()).await;
        assert_eq!(late, Drained::Late);
        let told = drained(pending(), pending(), pending(), ready("SIGINT")).await;
        assert_eq!(told, Drained::Told("SIGINT"));
        let parks = async { tokio::task::yield_now().await };
        let gone = drained(parks, ready(Drained::Gone), pending(), pending()).await;
        assert_eq!(gone, Drained::Gone);
    }

    #[test]
    fn the_time_for_draining_stands_while_a_client_may_come_back_and_not_for_longer() {
        let seconds = Duration::from_secs;
        let (here, away) = ((false, seconds(60)), (true, seconds(60)));
        let mut time = DrainTime::new(seconds(30));
        let mut left_after = |passed, awaited| {
            time.count(seconds(passed), awaited);
            time.left
        };
        assert_eq!(left_after(10, here), seconds(20));
        assert_eq!(left_after(40, away), seconds(20));
        // Another break. All of them together have as much time as one may take.
        assert_eq!(left_after(5, here), seconds(15));
        assert_eq!(left_after(20, away), seconds(15));
        assert_eq!(left_after(20, away), Duration::ZERO);
    }

    #[test]
    fn the_service_manager_is_asked_for_time_until_the_end() {
        let seconds = Duration::from_secs;
        let (here, away) = ((false, seconds(60)), (true, seconds(60)));
        let mut time = DrainTime::new(seconds(30));
        // Without a wait, the service manager knows the time.
        assert_eq!(time.count(seconds(10), here), None);
        assert_eq!(
            time.count(seconds(1), away),
            Some(seconds(20) + NEEDS_BESIDE)
        );
        assert_eq!(time.count(seconds(4), away), None);
        assert_eq!(
            time.count(seconds(1), away),
            Some(seconds(20) + NEEDS_BESIDE)
        );
        // The client is back, or has ended. The rest of the time and the end follow.
        assert_eq!(time.count(seconds(4), here), None);
        assert_eq!(
            time.count(seconds(1), here),
            Some(seconds(15) + NEEDS_BESIDE)
        );
        assert_eq!(time.count(seconds(15), here), Some(NEEDS_BESIDE));
    }
}
