//! Until when this process may act as the leader, readable from every thread.
//!
//! The clock counts while the machine sleeps, too, as etcd's does. A tenure ends before its connections are closed.
//! Invariant: a tenure that has ended does not begin again; the next reign has another one.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

use crate::time::Time;

/// The time of [`Tenure`] and of [`Leadership`](crate::leadership::Leadership): milliseconds since the machine
/// was started.
#[must_use]
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    let milliseconds = now.tv_sec.saturating_mul(1000) + now.tv_nsec / 1_000_000;
    Time(u64::try_from(milliseconds).unwrap_or(0))
}

/// Until when this process may act. Clones share it.
#[derive(Clone, Debug)]
pub struct Tenure {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    /// In milliseconds of [`now`]. 0: it has ended.
    until: AtomicU64,
    stage: watch::Sender<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Lasts,
    /// Nothing is decided, read or sent any more.
    Ended,
    /// Connections are closed.
    Closed,
}

impl Tenure {
    /// For a manager that is the only one.
    #[must_use]
    pub fn unlimited() -> Tenure {
        Tenure { shared: None }
    }

    /// For a leader.
    #[must_use]
    pub fn until(time: Time) -> Tenure {
        let shared = Shared {
            until: AtomicU64::new(time.0),
            stage: watch::channel(Stage::Lasts).0,
        };
        Tenure {
            shared: Some(Arc::new(shared)),
        }
    }

    /// Prolongs the tenure, unless it has ended.
    pub fn prolong(&self, time: Time) {
        if let Some(shared) = &self.shared {
            let later = |until| (until != 0 && time.0 > until).then_some(time.0);
            // Fails if there is nothing to prolong.
            let _ = shared
                .until
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
        }
    }

    /// Ends the tenure. Its connections stay open in silence.
    pub fn end(&self) {
        self.reach(Stage::Ended);
    }

    /// Ends the tenure if it has not ended, and closes its connections.
    pub fn close(&self) {
        self.reach(Stage::Closed);
    }

    fn reach(&self, stage: Stage) {
        if let Some(shared) = &self.shared {
            shared.until.store(0, Ordering::SeqCst);
            shared.stage.send_modify(|now| *now = stage.max(*now));
        }
    }

    /// Whether the process may act now.
    #[must_use]
    pub fn holds(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_none_or(|shared| now().0 < shared.until.load(Ordering::SeqCst))
    }

    /// A future that is ready in each poll after the tenure's end, by the clock too. [`Tenure::end`] wakes its task.
    /// `None`: the tenure has no end.
    pub fn over(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.shared.as_ref()?;
        let tenure = self.clone();
        let ended = {
            let tenure = self.clone();
            async move { tenure.ended().await }
        };
        let mut ended = Box::pin(ended);
        Some(poll_fn(move |cx| match tenure.holds() {
            true => ended.as_mut().poll(cx),
            false => Poll::Ready(()),
        }))
    }

    /// Waits until [`Tenure::end`] was called.
    pub async fn ended(&self) {
        self.reached(Stage::Ended).await;
    }

    /// Waits until [`Tenure::close`] was called.
    pub async fn closed(&self) {
        self.reached(Stage::Closed).await;
    }

    async fn reached(&self, stage: Stage) {
        match &self.shared {
            // The sender is part of what this holds, so the wait ends by the value only.
            Some(shared) => drop(shared.stage.subscribe().wait_for(|now| *now >= stage).await),
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    #[test]
    fn a_tenure_that_has_ended_is_not_prolonged() {
        let tenure = Tenure::until(now().after(Span::seconds(1000)));
        assert!(tenure.holds() && tenure.over().is_some());
        tenure.end();
        tenure.prolong(now().after(Span::seconds(1000)));
        assert!(!tenure.holds());
        assert!(Tenure::unlimited().holds() && Tenure::unlimited().over().is_none());
    }

    #[tokio::test]
    async fn connections_are_closed_later_than_the_tenure_ends() {
        let tenure = Tenure::until(now().after(Span::seconds(1000)));
        tenure.end();
        tenure.ended().await;
        let closed = tokio::time::timeout(std::time::Duration::ZERO, tenure.closed()).await;
        assert!(closed.is_err());
        tenure.close();
        tenure.end();
        tenure.closed().await;
    }

    #[test]
    fn a_tenure_ends_by_itself() {
        let tenure = Tenure::until(now());
        assert!(!tenure.holds());
        tenure.prolong(now().after(Span::seconds(1000)));
        assert!(tenure.holds());
    }
}
