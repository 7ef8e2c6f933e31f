//! Settings of sharing, quotas, and the order in which users are served.
//!
//! - [`Policy`]: the administrator's settings, with the times that the lease manager uses.
//! - [`Quota`], [`Subject`]: limits of a user or group.
//! - [`ledger`]: what each subject uses and has used; [`fairness`]: the order of users; [`queue`]:
//!   waiting requests.
//! - [`UserName`], [`GroupName`], [`Class`]: the user of a request, and its urgency.
//!
//! This module knows neither units nor leases. Invariant: everything here is a function of its arguments.

pub mod fairness;
pub mod ledger;
pub mod queue;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::inventory::Assignment;
use crate::time::Span;

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
    /// A user's name, as the service has authenticated it.
    UserName;
    /// A group of users.
    GroupName;
}

/// The priority class of a request: its user's weight in the fair order while it waits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Low priority: served with what others leave.
    Low,
    /// The default.
    #[default]
    Normal,
    /// High priority: served before others.
    High,
}

impl Class {
    /// The weight of the class. A user of weight `n` may use `n` times the share of a user of weight 1
    /// before that user is served first.
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

/// The user or group that a quota applies to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Each user who has no quota of their own.
    EveryUser,
    /// One user.
    User(UserName),
    /// All members of a group together.
    Group(GroupName),
}

/// A subject's limits. `None`: unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quota {
    /// Number of units at once.
    pub devices: Option<u32>,
    /// Bytes of the units' memory at once.
    pub memory: Option<u64>,
    /// Unit time in the policy's accounting window: one hour of two devices is two hours.
    pub device_time: Option<Span>,
    /// The highest priority class allowed.
    pub class: Option<Class>,
}

/// An administrator's settings for the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Which of several free units is chosen.
    pub assignment: Assignment,
    /// The longest time limit of a lease, and the limit of leases whose request names none.
    pub longest_lease: Option<Span>,
    /// The window in which unit time is counted.
    pub accounting_window: Span,
    /// Maximum number of waiting requests.
    pub longest_queue: u32,
    /// Maximum number of waiting requests of one user.
    pub longest_queue_per_user: u32,
    /// Times of the lease manager.
    pub timing: Timing,
}

/// Times of the lease manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// How long nodes may take to acknowledge a grant.
    pub acknowledge: Span,
    /// How long a reservation is kept before it must be confirmed.
    pub reservation: Span,
    /// How long a lease lasts without being renewed. Clients renew three times as often.
    pub lease: Span,
    /// How long a lease lasts after its last session has ended. Longer than the interval at which clients
    /// renew.
    pub grace: Span,
    /// How long a node serves its leases without contact to the manager. Sent to nodes in each grant.
    pub autonomy: Span,
    /// Longest time for which nodes keep a lease's sessions while their connections are broken. Such a session keeps its
    /// lease. Sent to nodes in each grant.
    pub resume: Span,
    /// How far clocks may differ over `autonomy`.
    pub margin: Span,
    /// How long a request that does not wait is kept while the units that it needs are being released.
    pub hand_over: Span,
    /// How long a request waits in the fair order before units are set aside for it.
    pub patience: Span,
    /// How long a waiting request keeps its place while its client is disconnected.
    pub place: Span,
    /// How long a node gets no grant after it refused one or did not answer.
    pub distrust: Span,
    /// Interval at which an unacknowledged withdrawal is sent again.
    pub repeat: Span,
    /// How long a new manager waits for the known nodes before it refuses requests that do not fit. Meanwhile quotas of
    /// units leave no room.
    pub settle: Span,
    /// How long a waiting request is kept while no known device fits it, free or in use: such devices may
    /// still join.
    pub arrival: Span,
    /// Interval at which waiting clients are told their position.
    pub position: Span,
    /// How long a lost node is remembered if it has no lease and is not being drained. 0: until an
    /// administrator removes it.
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

impl Timing {
    /// How long after its loss a node may still serve its leases, at most.
    #[must_use]
    pub fn fenced_after(&self) -> Span {
        Span(self.autonomy.0.saturating_add(self.margin.0))
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
            resume: Span::seconds(60),
            margin: Span::seconds(60),
            hand_over: Span(700),
            patience: Span::seconds(30),
            place: Span::seconds(30),
            distrust: Span::seconds(5),
            repeat: Span::seconds(5),
            // Longer than the pause of daemons between two attempts to connect.
            settle: Span::seconds(15),
            arrival: Span::seconds(60),
            position: Span::seconds(1),
            forget: Span::seconds(7 * 24 * 3600),
        }
    }
}
