//! Inputs of the owner: the only way to its state.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use causeway_proto::control::{Client, DeviceUse};
use causeway_proto::manager::{Heartbeat, HostLoad, NodeShare, ToNode};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::book::Sight;
use super::link_place::LinkPlace;
use crate::identity::{Caller, IdentityChange, NotChanged, NotKnown};
use crate::inventory::limits::TooMuch;
use crate::inventory::{DeviceId, NodeId};
use crate::lease::{
    Event, Joined, LeaseId, MOST_NODES, NewRequest, NotForgotten, Outcome, Reasons, Refused,
    Shortfall,
};
use crate::policy::UserName;

/// One input. The owner handles each as a whole before the next.
pub(crate) enum Input {
    /// A node has sent its hello. It is rejected if the node belongs to another account.
    Joined(Joined, NodeLink, oneshot::Sender<Result<(), NotJoined>>),
    /// A node's message. Ignored if it comes from an earlier connection of the node.
    FromNode(ConnectionId, NodeId, Event),
    /// A node's connection has ended.
    Left(ConnectionId, NodeId),
    /// A request for devices.
    Request(NewRequest, Client, Watcher),
    /// A question what a request would get.
    Consider(NewRequest, oneshot::Sender<Result<Vec<NodeShare>, Refused>>),
    /// The stream of a request has closed.
    RequestLost(LeaseId, WatcherId),
    /// A user's call about one lease.
    Ask(Ask, oneshot::Sender<Reply<Answer>>),
    /// An administrator's event, which is answered when it is accepted.
    Order(Event, Done),
    /// An administrator forgets a node, with force or without.
    Forget(NodeId, bool, Done),
    /// An administrator revokes a lease or request. The reason may be empty.
    Revoke(LeaseId, Arc<str>, Done),
    /// Changes users or tokens, with all consequences. Leases of a deleted user end.
    Identity(IdentityChange, Done),
    /// Somebody has met a higher term: finds out whether this manager still leads.
    ConfirmLead(LeadQuestion),
    /// Runs a closure on the owner's state.
    Read(Box<dyn FnOnce(&Sight<'_>) + Send>),
}

/// Receives whether an order was carried out, or why not.
pub(crate) type Done = oneshot::Sender<Result<(), ChangeError>>;

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error(transparent)]
    Store(#[from] Unwritten),
    #[error(transparent)]
    Identity(#[from] NotChanged),
    #[error(transparent)]
    Node(#[from] NotForgotten),
}

/// An answer, or why the failing store prevents one.
pub(crate) type Reply<T> = Result<T, Unwritten>;

/// Why the store cannot be used at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device manager cannot write to its store ({0})")]
pub(crate) struct Problem(pub(crate) Arc<str>);

/// Why a change is not made while the store fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unwritten {
    /// The change has no effect, now or later.
    #[error("{0}; nothing was changed. Try again later")]
    Refused(Problem),
    /// The failure became known while the request was being written. The request is withdrawn, but its write
    /// may be late.
    #[error("{0}; no further devices were granted. Try again later")]
    NotGranted(Problem),
    /// The failure became known while the change was being written. A late or failed write may have reached
    /// the disk.
    #[error("{0}; the outcome of the change is unknown. Check later whether it was made")]
    Unconfirmed(Problem),
}

/// Whether the owner is being asked if this manager still leads. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeadDoubt(Arc<AtomicBool>);

impl LeadDoubt {
    /// The question, unless one is under way.
    pub(crate) fn question(&self) -> Option<LeadQuestion> {
        let is_asked = self.0.swap(true, Ordering::SeqCst);
        (!is_asked).then(|| LeadQuestion(self.clone()))
    }
}

/// A question that is under way until it is dropped.
#[derive(Debug)]
pub(crate) struct LeadQuestion(LeadDoubt);

impl Drop for LeadQuestion {
    fn drop(&mut self) {
        let LeadDoubt(is_asked) = &self.0;
        is_asked.store(false, Ordering::SeqCst);
    }
}

/// Why a node is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotJoined {
    /// Another account has joined as this node.
    #[error(
        "another account has joined as the node of this uuid: a copied machine needs a `node-*.seed` of its own; if the node's account has changed, an administrator removes the earlier one with `causeway users remove`"
    )]
    AnothersNode,
    /// The account has too many nodes.
    #[error(
        "{MOST_NODES} nodes have joined by this account, and none of them can be forgotten: they are connected, drained or leased. An administrator removes those that will not come back with `causeway nodes remove`, or makes another account with `causeway users add --node`"
    )]
    TooMany,
    /// The node, or its account, would have too many devices.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    /// The node's account is no longer allowed to join.
    #[error("the node's credentials are no longer valid")]
    NoNode,
    /// Too much waits for the failing store.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

/// A user's operation on one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseCall {
    Confirm,
    Renew,
    /// Releases the lease, or cancels the request.
    Release,
}

/// The operation of [`Input::Ask`].
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) call: LeaseCall,
    pub(crate) lease: LeaseId,
    pub(crate) user: UserName,
}

impl Ask {
    pub(crate) fn event(&self) -> Event {
        let (lease, user) = (self.lease, self.user.clone());
        match self.call {
            LeaseCall::Confirm => Event::Confirm { lease, user },
            LeaseCall::Renew => Event::Renew { lease, user },
            LeaseCall::Release => Event::Release { lease, user },
        }
    }
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The lease's current state, with a new signature.
    Granted(causeway_proto::manager::Granted),
    /// The lease is over, with the reason.
    Over(String),
    /// Any other outcome; never `Leased`, `Reserved` or `Ended`.
    Other(Outcome),
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $name(u64);

        impl $name {
            /// A number that this process has not used before.
            pub(crate) fn fresh() -> Self {
                static NEXT: AtomicU64 = AtomicU64::new(1);
                Self(NEXT.fetch_add(1, Ordering::Relaxed))
            }
        }
    )*};
}

numbers! {
    /// Number of a node's connection.
    ConnectionId;
    /// Number of a stream that reports on a request.
    WatcherId;
}

/// The link to a connected node. The task that reads the connection ends when the link is dropped.
#[derive(Debug)]
pub(crate) struct NodeLink {
    pub(crate) connection: ConnectionId,
    /// Bounded: a node that does not read is disconnected, and nothing waits for it.
    pub(crate) outbound: mpsc::Sender<ToNode>,
    pub(crate) load: Arc<Load>,
    /// The account under which the node has joined.
    pub(crate) caller: Caller,
    /// Whether everyone who can reach the node can use it.
    pub(crate) is_insecure: bool,
    pub(crate) place: LinkPlace,
    /// Nothing is sent before the welcome: earlier decisions were for an earlier connection.
    pub(crate) is_welcomed: bool,
    pub(crate) _open: oneshot::Sender<()>,
}

/// Bytes transferred, commands run, open sessions and busy time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) bytes: u64,
    pub(crate) commands: u64,
    pub(crate) sessions: u32,
    /// The sessions whose connections are broken.
    pub(crate) away: u32,
    /// Nanoseconds for which commands were under way.
    pub(crate) busy_ns: u64,
}

impl Use {
    pub(crate) fn plus(self, other: Use) -> Use {
        Use {
            bytes: self.bytes.saturating_add(other.bytes),
            commands: self.commands.saturating_add(other.commands),
            sessions: self.sessions.saturating_add(other.sessions),
            away: self.away.saturating_add(other.away),
            busy_ns: self.busy_ns.saturating_add(other.busy_ns),
        }
    }
}

/// The use of a node and of its leases, as of the last heartbeat.
#[derive(Debug, Default)]
pub(crate) struct Load(Mutex<LoadState>);

#[derive(Debug, Default)]
struct LoadState {
    whole: Use,
    leases: HashMap<LeaseId, Use>,
    devices: HashMap<DeviceId, DeviceUse>,
    hosts: Vec<HostLoad>,
}

/// Most devices and hosts of a heartbeat that are kept.
const MOST_USES: usize = 1024;

impl Load {
    /// Sets all values from a heartbeat. Leases with malformed ids are skipped.
    pub(crate) fn set(&self, beat: &Heartbeat) {
        let whole = Use {
            bytes: beat.bytes,
            commands: beat.commands,
            sessions: beat.sessions,
            away: beat.away,
            busy_ns: beat
                .devices
                .iter()
                .map(|of| of.busy_ns)
                .fold(0, u64::saturating_add),
        };
        let leases = beat.leases.iter().filter_map(|of| {
            let lease = LeaseId(of.lease_id[..].try_into().ok()?);
            let used = Use {
                bytes: of.bytes,
                commands: of.commands,
                sessions: of.sessions,
                away: of.away,
                busy_ns: of.busy_ns,
            };
            Some((lease, used))
        });
        let devices = beat.devices.iter().take(MOST_USES).map(|of| {
            let (platform, device) = (of.platform, of.device);
            (DeviceId { platform, device }, *of)
        });
        let hosts = beat.hosts.iter().take(MOST_USES);
        *self.0.lock() = LoadState {
            whole,
            leases: leases.collect(),
            devices: devices.collect(),
            hosts: hosts.cloned().collect(),
        };
    }

    /// Use of the whole node.
    pub(crate) fn whole(&self) -> Use {
        self.0.lock().whole
    }

    /// Use of one lease on the node.
    pub(crate) fn of(&self, lease: &LeaseId) -> Use {
        let state = self.0.lock();
        state.leases.get(lease).copied().unwrap_or_default()
    }

    /// Use of a device of the node.
    pub(crate) fn of_device(&self, device: DeviceId) -> Option<DeviceUse> {
        self.0.lock().devices.get(&device).copied()
    }

    /// The node's processes that serve several sessions.
    pub(crate) fn hosts(&self) -> Vec<HostLoad> {
        self.0.lock().hosts.clone()
    }
}

/// A request's state for its stream. A new value replaces an earlier one that is not read yet.
#[derive(Clone, Debug, Default)]
pub(crate) enum News {
    /// Nothing to report yet.
    #[default]
    None,
    Waiting {
        position: u32,
        of: u32,
        shortfall: Option<Shortfall>,
        reasons: Option<Box<Reasons>>,
    },
    Granted(causeway_proto::manager::Granted),
    Refused(Refused),
    NotWritten(Unwritten),
    /// The caller's credentials are no longer valid.
    NotKnown(NotKnown),
    /// The lease or request has ended, with the reason.
    Ended(String),
    /// Another stream has taken over the request.
    Replaced,
}

impl News {
    /// Takes over the reasons of the report that this one replaces, which may not have been read. A report without
    /// reasons means that they have not changed.
    fn keep_reasons(&mut self, replaced: &mut News) {
        if let News::Waiting { reasons, .. } = self
            && reasons.is_none()
            && let News::Waiting {
                reasons: earlier, ..
            } = replaced
        {
            *reasons = earlier.take();
        }
    }

    /// Drops reasons that the stream has told already. Later reports keep them, because they may not have been read.
    pub(crate) fn drop_told_reasons(&mut self, told: &mut Option<Box<Reasons>>) {
        if let News::Waiting { reasons, .. } = self
            && reasons.is_some()
        {
            match reasons == told {
                true => *reasons = None,
                false => told.clone_from(reasons),
            }
        }
    }
}

/// A stream that reports on a request.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) id: WatcherId,
    pub(crate) caller: Caller,
    /// Whether the client waits in the queue. Then it waits for a failing store too.
    pub(crate) waits: bool,
    /// When the request was made. `None`: its client was told of the lease.
    pub(crate) asked: Option<Instant>,
    news: watch::Sender<News>,
}

impl Watcher {
    pub(crate) fn new(caller: Caller, waits: bool) -> (Watcher, watch::Receiver<News>) {
        let (news, heard) = watch::channel(News::None);
        let watcher = Watcher {
            id: WatcherId::fresh(),
            caller,
            waits,
            asked: Some(Instant::now()),
            news,
        };
        (watcher, heard)
    }

    pub(crate) fn tell(&self, mut news: News) {
        self.news.send_modify(|now| {
            news.keep_reasons(now);
            *now = news;
        });
    }

    /// Whether the stream is closed.
    pub(crate) fn is_gone(&self) -> bool {
        self.news.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Shown;

    #[test]
    fn reasons_that_were_not_read_stay_with_the_next_report_and_are_told_once() {
        let caller = Caller {
            user: "ann".into(),
            groups: Vec::new(),
            admin: false,
            node: false,
            shown: Shown::Word,
            until: None,
        };
        let (watcher, mut heard) = Watcher::new(caller, true);
        let report = |position, reasons: Option<Reasons>| News::Waiting {
            position,
            of: 3,
            shortfall: None,
            reasons: reasons.map(Box::new),
        };
        let mut told = None;
        let mut hear = || {
            let mut news = heard.borrow_and_update().clone();
            news.drop_told_reasons(&mut told);
            match news {
                News::Waiting {
                    position, reasons, ..
                } => (position, reasons.is_some()),
                other => panic!("{other:?}"),
            }
        };
        watcher.tell(report(3, Some(Reasons::default())));
        watcher.tell(report(2, None));
        assert_eq!(hear(), (2, true));
        watcher.tell(report(1, None));
        assert_eq!(hear(), (1, false));
    }
}
