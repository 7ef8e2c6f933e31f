//! Why requests wait, for listings.
//!
//! The manager bases no decision on these reasons. Invariant: they consist of numbers and the request's own
//! conditions. They name no node, user, group or lease, so that any user may read them.

use std::fmt;

use super::shortfall::Shortfall;
use crate::policy::ledger::InTheWay;
use crate::policy::queue::QueuePlace;
use crate::time::{Span, Time, Wall};

/// Why a request waits. Several reasons may hold at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reasons {
    /// The client is disconnected; its place is kept for this time.
    pub(super) away: Option<Span>,
    /// Even free, the devices of open nodes would not suffice.
    pub(super) lacks: Option<Shortfall>,
    /// A quota leaves no room until the manager, which has just started, knows what nodes serve.
    pub(super) unsettled: bool,
    /// A quota leaves no room. `None` inside: the quota is not known any more.
    pub(super) quota: Option<Option<InTheWay>>,
    /// Number of earlier requests of the same user, which come first.
    pub(super) own: usize,
    /// Number of users whose requests come first by the fair order.
    pub(super) ahead: usize,
    pub(super) aside: Aside,
    /// In what time the request is served at the latest.
    pub(super) latest: Option<Span>,
}

/// Devices that are set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Aside {
    #[default]
    Nothing,
    /// For the request: so many of so many are free, and all of them after this time at the latest.
    Own {
        ready: usize,
        of: usize,
        within: Option<Span>,
    },
    /// For an older request.
    Older { of: usize },
}

/// The head of the queue, which no free units sufficed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Head {
    pub(super) place: QueuePlace,
    /// When it is served at the latest.
    pub(super) by: Option<Time>,
}

/// The head of the queue, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadView {
    /// When the request was made.
    pub since: Wall,
    /// For how long it should have been served.
    pub late: Span,
}

impl Reasons {
    /// Whether the request would be served if all devices of open nodes were free.
    pub(super) fn could_be_served(&self) -> bool {
        let by_quotas = self.quota.is_none() && !self.unsettled;
        by_quotas && self.away.is_none() && self.lacks.is_none()
    }

    /// The reasons without times that pass, to be compared with later ones.
    pub(super) fn without_times(&self) -> Reasons {
        let mut reasons = self.clone();
        reasons.latest = None;
        reasons.away = self.away.map(|_| Span(0));
        if let Aside::Own { within, .. } = &mut reasons.aside {
            *within = None;
        }
        reasons
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts = Vec::new();
        if let Some(kept) = self.away {
            let kept = seconds(kept);
            texts.push(format!(
                "the client is away, and its place is kept for {kept} s"
            ));
        }
        texts.extend(self.lacks.as_ref().map(Shortfall::to_string));
        if self.unsettled {
            texts.push(
                "the device manager has just started, and counts what nodes serve for quotas"
                    .to_owned(),
            );
        }
        match &self.quota {
            Some(Some(quota)) => texts.push(format!("a quota is used up: {}", quota.in_numbers())),
            Some(None) => texts.push("a quota is used up".to_owned()),
            None => {}
        }
        match self.own {
            0 => {}
            1 => texts.push("1 earlier request of the same user comes first".to_owned()),
            own => texts.push(format!(
                "{own} earlier requests of the same user come first"
            )),
        }
        match self.ahead {
            0 => {}
            1 => texts.push("the request of 1 user comes first by the fair order".to_owned()),
            ahead => texts.push(format!(
                "requests of {ahead} users come first by the fair order"
            )),
        }
        texts.extend(self.aside.text());
        if texts.is_empty() {
            texts.push("the devices are in use".to_owned());
        }
        if let Some(latest) = self.latest {
            texts.push(format!("served in {} s at the latest", seconds(latest)));
        }
        f.write_str(&texts.join("; "))
    }
}

impl Aside {
    fn text(self) -> Option<String> {
        match self {
            Aside::Nothing => None,
            Aside::Own { ready, of, within } => {
                let latest =
                    within.map(|within| format!(", all in {} s at the latest", seconds(within)));
                let latest = latest.unwrap_or_default();
                Some(format!(
                    "{of} devices are set aside for the request, {ready} of them free{latest}"
                ))
            }
            Aside::Older { of } => Some(format!("{of} devices are set aside for an older request")),
        }
    }
}

fn seconds(span: Span) -> u64 {
    span.0.div_ceil(1000)
}
