//! What the owner of the state is told: the only way to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::control::Client;
use causeway_proto::manager::{Heartbeat, ToNode};
use tokio::sync::{mpsc, oneshot, watch};

use super::book::Sight;
use crate::identity::IdentityChange;
use crate::inventory::NodeId;
use crate::lease::{EndReason, Event, Joined, LeaseId, NewRequest, Outcome, Refusal};
use crate::policy::UserName;

/// One thing for the owner to do. Each is handled as a whole before the next is looked at.
pub(crate) enum Input {
    /// A node has said hello.
    Joined(Joined, NodeLink),
    /// A node says something; of an earlier connection of it: nothing.
    FromNode(ConnectionId, NodeId, Event),
    /// A node's connection is over.
    Left(ConnectionId, NodeId),
    /// Somebody asks for devices.
    Request(NewRequest, Client, Watcher),
    /// Nobody listens any more to what becomes of a request.
    RequestLost(LeaseId, WatcherId),
    /// A question about one lease.
    Ask(Ask, oneshot::Sender<Reply<Answer>>),
    /// An administrator's event, of which nothing is told but that it was taken.
    Order(Event, oneshot::Sender<Reply<()>>),
    /// Who is who changes. Leases of a user who is deleted end.
    Identity(Vec<IdentityChange>, oneshot::Sender<Reply<()>>),
    /// Somebody wants to look.
    Read(Box<dyn FnOnce(&Sight<'_>) + Send>),
}

/// An answer, which may be that nothing can be written down at the moment.
pub(crate) type Reply<T> = Result<T, NotWritten>;

/// The store fails: what was asked for has not been done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the device manager cannot write to its store ({0}); nothing is granted until it can. Try again later"
)]
pub(crate) struct NotWritten(pub(crate) Arc<str>);

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
    /// Anything else; never `Leased` or `Reserved`.
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
    pub(crate) _open: oneshot::Sender<()>,
}

/// What a node has moved and run, as of its last heartbeat.
#[derive(Debug, Default)]
pub(crate) struct Load {
    bytes: AtomicU64,
    commands: AtomicU64,
    sessions: AtomicU64,
}

impl Load {
    pub(crate) fn set(&self, beat: &Heartbeat) {
        self.bytes.store(beat.bytes, Ordering::Relaxed);
        self.commands.store(beat.commands, Ordering::Relaxed);
        let sessions = u64::from(beat.sessions);
        self.sessions.store(sessions, Ordering::Relaxed);
    }

    /// Bytes, commands, sessions.
    pub(crate) fn get(&self) -> (u64, u64, u32) {
        (
            self.bytes.load(Ordering::Relaxed),
            self.commands.load(Ordering::Relaxed),
            u32::try_from(self.sessions.load(Ordering::Relaxed)).unwrap_or(u32::MAX),
        )
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
    },
    Granted(causeway_proto::manager::Granted),
    Refused(Refusal),
    NotWritten(NotWritten),
    Ended(EndReason),
    /// Another stream has taken the request over.
    Replaced,
}

/// One stream that is told of a request.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) id: WatcherId,
    pub(crate) user: UserName,
    /// He has time: what cannot be told now can be told later.
    pub(crate) waits: bool,
    news: watch::Sender<News>,
}

impl Watcher {
    pub(crate) fn new(user: UserName, waits: bool) -> (Watcher, watch::Receiver<News>) {
        let (news, heard) = watch::channel(News::None);
        let watcher = Watcher {
            id: WatcherId::fresh(),
            user,
            waits,
            news,
        };
        (watcher, heard)
    }

    pub(crate) fn tell(&self, news: News) {
        self.news.send_replace(news);
    }
}
