//! Who gets what: the settings of sharing, quotas, and the order of users.
//!
//! - [`Policy`]: what an administrator sets, with the times that the lease machine goes by.
//! - [`Quota`], [`Subject`]: what a user or a group may have.
//! - [`ledger`]: what everyone has and had; [`fairness`]: who comes first; [`queue`]: who waits.
//! - [`UserName`], [`GroupName`], [`Class`]: who asks, and how urgently.
//!
//! What it is not: it knows no units and no leases. Invariant: everything here is a function of its
//! arguments.

pub mod fairness;
pub mod ledger;
pub mod queue;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::inventory::Assignment;
use crate::lease::time::Span;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Box<str>);

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {:?}", stringify!($name), self.0)
            }
        }
    )*};
}

names! {
    /// A user, by the name that the shell has made sure of.
    UserName;
    /// A group of users.
    GroupName;
}

/// How urgent a request is: its user's weight in the fair order while it waits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Whatever is left.
    Low,
    /// The usual.
    #[default]
    Normal,
    /// Before others.
    High,
}

impl Class {
    /// How much of the cluster such a request may have before another of weight 1 comes first.
    #[must_use]
    pub fn weight(self) -> u64 {
        match self {
            Self::Low => 1,
            Self::Normal => 4,
            Self::High => 16,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        })
    }
}

/// Who a quota is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Each user that has no quota of his own.
    EveryUser,
    /// One user.
    User(UserName),
    /// All members of a group together.
    Group(GroupName),
}

/// What a subject may have; `None`: as much as there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quota {
    /// Units at once.
    pub devices: Option<u32>,
    /// Bytes of the units' memory at once.
    pub memory: Option<u64>,
    /// Time of units in the policy's accounting window: one hour of two devices is two hours.
    pub device_time: Option<Span>,
    /// The most urgent class.
    pub class: Option<Class>,
}

/// What an administrator sets for the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Which free unit is taken.
    pub assignment: Assignment,
    /// The longest time limit of a lease, and that of leases whose request names none.
    pub longest_lease: Option<Span>,
    /// The window in which time of units is counted.
    pub accounting_window: Span,
    /// Requests that may wait at a time.
    pub longest_queue: u32,
    /// How many of them may be one user's.
    pub longest_queue_per_user: u32,
    /// Times of the lease machine.
    pub timing: Timing,
}

/// Times of the lease machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// How long nodes may take to acknowledge a grant.
    pub acknowledge: Span,
    /// How long a reservation is kept before it must be confirmed.
    pub reservation: Span,
    /// How long a lease lasts without being renewed; clients renew three times as often.
    pub lease: Span,
    /// How long a lease lasts whose last session has ended; longer than clients take to renew.
    pub grace: Span,
    /// How long a node serves its leases without hearing from the manager. Nodes are told so.
    pub autonomy: Span,
    /// What clocks may differ by in `autonomy`.
    pub margin: Span,
    /// How long a request that does not wait is kept when what it asks for is just being given back.
    pub hand_over: Span,
    /// How long a request waits in the fair order before units are set aside for it.
    pub patience: Span,
    /// How long a waiting request keeps its place when its client is not connected.
    pub place: Span,
    /// How long a node that refused a grant, or did not answer, gets no other.
    pub distrust: Span,
    /// How often a withdrawal is said again that was not acknowledged.
    pub repeat: Span,
    /// How long a new manager waits for the nodes that it knows before it refuses what does not fit.
    pub settle: Span,
    /// How long a request that waits is kept while no known device, free or not, will do: such devices may come yet.
    pub arrival: Span,
    /// How often those who wait are told their position.
    pub position: Span,
    /// How long a lost node is remembered that has no lease and is not being drained; 0: until it is removed.
    pub forget: Span,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            assignment: Assignment::default(),
            longest_lease: None,
            accounting_window: Span::seconds(7 * 24 * 3600),
            longest_queue: 100_000,
            longest_queue_per_user: 1_000,
            timing: Timing::default(),
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            acknowledge: Span::seconds(2),
            reservation: Span::seconds(10),
            lease: Span::seconds(60),
            grace: Span::seconds(30),
            autonomy: Span::seconds(600),
            margin: Span::seconds(60),
            hand_over: Span(700),
            patience: Span::seconds(30),
            place: Span::seconds(30),
            distrust: Span::seconds(5),
            repeat: Span::seconds(5),
            // Longer than daemons pause before they try again.
            settle: Span::seconds(15),
            arrival: Span::seconds(60),
            position: Span::seconds(1),
            forget: Span::seconds(7 * 24 * 3600),
        }
    }
}
