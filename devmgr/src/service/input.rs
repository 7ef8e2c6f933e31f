//! What the owner of the state is told: the only way to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::control::Client;
use causeway_proto::manager::{Heartbeat, NodeShare, ToNode};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::book::Sight;
use crate::identity::{Caller, IdentityChange, NotChanged, NotKnown};
use crate::inventory::NodeId;
use crate::inventory::limits::TooMuch;
use crate::lease::{
    Event, Joined, Lack, LeaseId, MOST_NODES, NewRequest, NotForgotten, Outcome, Refused,
};
use crate::policy::UserName;

/// One thing for the owner to do. Each is handled as a whole before the next is looked at.
pub(crate) enum Input {
    /// A node has said hello. It is refused where it is known to be another account's.
    Joined(Joined, NodeLink, oneshot::Sender<Result<(), NotJoined>>),
    /// A node says something; of an earlier connection of it: nothing.
    FromNode(ConnectionId, NodeId, Event),
    /// A node's connection is over.
    Left(ConnectionId, NodeId),
    /// Somebody asks for devices.
    Request(NewRequest, Client, Watcher),
    /// Somebody asks what he would get if he asked for devices.
    Consider(NewRequest, oneshot::Sender<Result<Vec<NodeShare>, Refused>>),
    /// Nobody listens any more to what becomes of a request.
    RequestLost(LeaseId, WatcherId),
    /// A question about one lease.
    Ask(Ask, oneshot::Sender<Reply<Answer>>),
    /// An administrator's event, of which nothing is told but that it was taken.
    Order(Event, Done),
    /// An administrator has a node forgotten, by force or not.
    Forget(NodeId, bool, Done),
    /// An administrator takes a lease back, or a request; what he gives as the reason may be empty.
    Revoke(LeaseId, Arc<str>, Done),
    /// Who is who is to change, with all that follows from it. Leases of a user who is deleted end.
    Identity(IdentityChange, Done),
    /// Somebody wants to look.
    Read(Box<dyn FnOnce(&Sight<'_>) + Send>),
}

/// Who hears that an order was carried out, or why it was not.
pub(crate) type Done = oneshot::Sender<Result<(), NotDone>>;

/// An order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotDone {
    #[error(transparent)]
    Store(#[from] Unwritten),
    #[error(transparent)]
    Identity(#[from] NotChanged),
    #[error(transparent)]
    Node(#[from] NotForgotten),
}

/// An answer, or what the trouble with the store makes of what was asked.
pub(crate) type Reply<T> = Result<T, Unwritten>;

/// Why the store is of no use at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device manager cannot write to its store ({0})")]
pub(crate) struct Problem(pub(crate) Arc<str>);

/// What becomes of something that cannot be written down now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unwritten {
    /// Nothing: neither now nor later.
    #[error("{0}; this was not done, and nothing is granted until it can. Try again later")]
    NotDone(Problem),
    /// It is decided, and stays so for as long as this process lives.
    #[error(
        "{0}: this is decided, and what it takes away counts from now on; it is written down as soon as that works again, and \
         undone if the device manager ends before"
    )]
    Later(Problem),
    /// Nobody knows.
    #[error("{0}, and ends; whether this was done shows when it has been started again")]
    Lost(Problem),
}

/// A node is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotJoined {
    /// Another account has joined as that node.
    #[error(
        "another account has joined as the node of this uuid: a copied machine needs a `node.seed` of its own; if the node's account has changed, an administrator removes the earlier one with `causeway users remove`"
    )]
    AnothersNode,
    /// One more would be too many.
    #[error(
        "{MOST_NODES} nodes have joined by this account, and none of them can be forgotten: they are connected, drained or leased. An administrator removes those that will not come back with `causeway nodes remove`, or makes another account with `causeway users add --node`"
    )]
    TooMany,
    /// It would bring too much.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    /// Meanwhile it may not.
    #[error("what it has shown lets no node in any more")]
    NoNode,
}

/// What a user wants of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Confirm,
    Renew,
    /// Gives back, or waits no longer.
    Release,
}

/// See [`Input::Ask`].
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) wish: Wish,
    pub(crate) lease: LeaseId,
    pub(crate) user: UserName,
}

impl Ask {
    pub(crate) fn event(&self) -> Event {
        let (lease, user) = (self.lease, self.user.clone());
        match self.wish {
            Wish::Confirm => Event::Confirm { lease, user },
            Wish::Renew => Event::Renew { lease, user },
            Wish::Release => Event::Cancel { lease, user },
        }
    }
}

/// What is said to an [`Ask`].
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The lease as it is, signed anew.
    Granted(causeway_proto::manager::Granted),
    /// The lease is over; why.
    Over(String),
    /// Anything else; never `Leased`, `Reserved` or `Ended`.
    Other(Outcome),
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $name(u64);

        impl $name {
            /// One that there has not been in this process.
            pub(crate) fn fresh() -> Self {
                static NEXT: AtomicU64 = AtomicU64::new(1);
                Self(NEXT.fetch_add(1, Ordering::Relaxed))
            }
        }
    )*};
}

numbers! {
    /// One connection of a node.
    ConnectionId;
    /// One stream that is told of a request.
    WatcherId;
}

/// The way to a connected node. Its reader ends when this is dropped.
#[derive(Debug)]
pub(crate) struct NodeLink {
    pub(crate) connection: ConnectionId,
    /// Bounded: who does not read is cut off, and nobody waits for him.
    pub(crate) outbound: mpsc::Sender<ToNode>,
    pub(crate) load: Arc<Load>,
    /// With whose account it joined.
    pub(crate) caller: Caller,
    /// Everybody who can reach the node can use it.
    pub(crate) is_insecure: bool,
    /// Nothing is sent before its welcome: what was decided before that was for an earlier connection.
    pub(crate) is_welcomed: bool,
    pub(crate) _open: oneshot::Sender<()>,
}

/// What was moved and run, and how many sessions are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) bytes: u64,
    pub(crate) commands: u64,
    pub(crate) sessions: u32,
}

impl Use {
    pub(crate) fn plus(self, other: Use) -> Use {
        Use {
            bytes: self.bytes.saturating_add(other.bytes),
            commands: self.commands.saturating_add(other.commands),
            sessions: self.sessions.saturating_add(other.sessions),
        }
    }
}

/// What a node and its leases have used, as of its last heartbeat.
#[derive(Debug, Default)]
pub(crate) struct Load(Mutex<(Use, HashMap<LeaseId, Use>)>);

impl Load {
    /// Leases that nobody can name are left out.
    pub(crate) fn set(&self, beat: &Heartbeat) {
        let whole = Use {
            bytes: beat.bytes,
            commands: beat.commands,
            sessions: beat.sessions,
        };
        let leases = beat.leases.iter().filter_map(|of| {
            let lease = LeaseId(of.lease_id[..].try_into().ok()?);
            let used = Use {
                bytes: of.bytes,
                commands: of.commands,
                sessions: of.sessions,
            };
            Some((lease, used))
        });
        *self.0.lock() = (whole, leases.collect());
    }

    /// Of the node.
    pub(crate) fn whole(&self) -> Use {
        self.0.lock().0
    }

    /// Of a lease on it.
    pub(crate) fn of(&self, lease: &LeaseId) -> Use {
        self.0.lock().1.get(lease).copied().unwrap_or_default()
    }
}

/// How a request stands, as its stream is told. Later news replace earlier ones that nobody has read yet.
#[derive(Clone, Debug, Default)]
pub(crate) enum News {
    /// Nothing to tell yet.
    #[default]
    None,
    Waiting {
        position: u32,
        of: u32,
        lack: Option<Lack>,
    },
    Granted(causeway_proto::manager::Granted),
    Refused(Refused),
    NotWritten(Unwritten),
    /// What he has shown who asked counts no more.
    NotKnown(NotKnown),
    /// Why.
    Ended(String),
    /// Another stream has taken the request over.
    Replaced,
}

/// One stream that is told of a request.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) id: WatcherId,
    pub(crate) caller: Caller,
    /// He has time: what cannot be told now can be told later.
    pub(crate) waits: bool,
    news: watch::Sender<News>,
}

impl Watcher {
    pub(crate) fn new(caller: Caller, waits: bool) -> (Watcher, watch::Receiver<News>) {
        let (news, heard) = watch::channel(News::None);
        let watcher = Watcher {
            id: WatcherId::fresh(),
            caller,
            waits,
            news,
        };
        (watcher, heard)
    }

    pub(crate) fn tell(&self, news: News) {
        self.news.send_replace(news);
    }

    /// Nobody listens any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.news.is_closed()
    }
}
