//! The history of a proof: what clients, nodes, an observer and administrators saw, on one clock.
//!
//! Data only; [`super::judge`] judges it. Times are durations since the machine's start. Invariant: a span
//! begins before the event that it contains and ends after it, on the clock of whoever recorded it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) begin: Duration,
    pub(super) end: Duration,
}

impl Span {
    /// The time that both spans have.
    pub(super) fn common(self, other: Span) -> Option<Duration> {
        let (begin, end) = (self.begin.max(other.begin), self.end.min(other.end));
        (begin < end).then(|| end - begin)
    }
}

/// A device, or a share of one: the node's uuid and the device's index, as one text.
pub(super) type Unit = String;
/// A lease's id in hexadecimal digits.
pub(super) type LeaseId = String;

/// One `causeway run`: the request, and the use that it got.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// Names the run, for people.
    pub(super) name: String,
    pub(super) user: String,
    /// The lease, from the grant on.
    pub(super) lease: Option<LeaseId>,
    pub(super) units: Vec<Unit>,
    /// When the client learned of the grant.
    pub(super) granted: Option<Duration>,
    /// From the program's start to its end.
    pub(super) used: Option<Span>,
    /// From each report that the manager is away to the next word of a manager.
    pub(super) away: Vec<Span>,
    /// When and why the lease was over before the program's end.
    pub(super) over: Option<(Duration, String)>,
    /// What the client reported instead of success.
    pub(super) failure: Option<String>,
    /// When the client had given the lease back. `None`: a manager has not confirmed that.
    pub(super) released: Option<Duration>,
}

/// The time for which a node served a lease on one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) unit: Unit,
    pub(super) lease: LeaseId,
    pub(super) user: String,
    pub(super) epoch: u64,
    pub(super) span: Span,
}

/// A lease in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) lease: LeaseId,
    pub(super) user: String,
    /// Whether the lease is over, and only its nodes have not confirmed that yet.
    pub(super) is_ending: bool,
}

/// A manager's answer to an observer: all leases and all waiting requests, in the order of the queue.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) leases: Answer<Vec<Listed>>,
    pub(super) queue: Answer<Vec<LeaseId>>,
}

/// What a manager answered, in which term, and from the call to the answer.
#[derive(Clone, Debug)]
pub(super) struct Answer<T> {
    pub(super) span: Span,
    pub(super) term: u64,
    pub(super) value: T,
}

/// An administrator's order to end a lease.
#[derive(Clone, Debug)]
pub(super) struct Revocation {
    pub(super) lease: LeaseId,
    pub(super) span: Span,
    /// Whether a manager has confirmed it.
    pub(super) is_done: bool,
}

/// A call about one name: its user, tokens and quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Puts the user, in a group of this number.
    PutUser(u32),
    DeleteUser,
    ReadUser,
    /// Creates a token with this label.
    CreateToken(u32),
    RevokeToken(u32),
    ReadTokens,
    /// Sets the quota of devices. 0: none.
    PutQuota(u32),
    ReadQuota,
}

/// The result of an [`Operation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// There is no such user or token.
    Missing,
    User(Option<u32>),
    /// Labels of the tokens.
    Tokens(BTreeSet<u32>),
    Quota(u32),
}

/// An administrator's call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) caller: usize,
    pub(super) operation: Operation,
    /// Ends when the caller gives up, if there is no outcome.
    pub(super) span: Span,
    /// The answer and its term. `None`: the call may have taken effect, or may do so at any time.
    pub(super) outcome: Option<(Outcome, u64)>,
}

/// Everything that was recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) runs: Vec<Run>,
    pub(super) served: Vec<Served>,
    /// In the order of their calls, which did not overlap.
    pub(super) listings: Vec<Listing>,
    pub(super) revocations: Vec<Revocation>,
    pub(super) calls: Vec<Call>,
    /// The most devices that a user may have at the same time.
    pub(super) quotas: BTreeMap<String, usize>,
}

impl History {
    /// When somebody first ordered the end of a lease.
    pub(super) fn revoked(&self, lease: &str) -> Option<Duration> {
        let of = self.revocations.iter().filter(|of| of.lease == lease);
        of.map(|of| of.span.begin).min()
    }

    /// The time for which a run certainly had its lease.
    pub(super) fn use_of(&self, run: &Run) -> Option<Span> {
        let used = run.used?;
        let revoked = run.lease.as_deref().and_then(|lease| self.revoked(lease));
        let over = run.over.as_ref().map(|(at, _)| *at);
        let ends = [Some(used.end), revoked, over];
        let end = ends.into_iter().flatten().min()?;
        (used.begin < end).then_some(Span {
            begin: used.begin,
            end,
        })
    }
}
