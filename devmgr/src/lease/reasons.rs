//! Why requests wait, for listings.
//!
//! The manager bases no decision on these reasons. Invariant: they consist of numbers and the request's own
//! conditions. They name no node, user, group or lease, so that any user may read them.

use std::collections::HashMap;
use std::fmt;

use super::holding::Waiting;
use super::id::LeaseId;
use super::manager::Manager;
use super::shortfall::Shortfall;
use crate::policy::ledger::InTheWay;
use crate::policy::queue::QueuePlace;
use crate::time::Span;

/// Why a request waits. Several reasons may hold at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reasons {
    /// The client is disconnected; its place is kept for this time.
    away: Option<Span>,
    /// Even free, the devices of open nodes would not suffice.
    lacks: Option<Shortfall>,
    /// A quota leaves no room. `None` inside: the quota is not known any more.
    quota: Option<Option<InTheWay>>,
    /// Number of earlier requests of the same user, which come first.
    own: usize,
    /// Number of users whose requests come first by the fair order.
    ahead: usize,
    aside: Aside,
    /// In what time the request is served at the latest.
    latest: Option<Span>,
}

/// Devices that are set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Aside {
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

impl Manager {
    /// Returns why each request in the queue waits.
    #[must_use]
    pub fn reasons(&self) -> HashMap<LeaseId, Reasons> {
        let reasons = self.reasons_of_first(usize::MAX).into_iter();
        reasons
            .map(|(_, lease, reasons)| (lease, reasons))
            .collect()
    }

    /// Why the oldest requests wait, at most `most`.
    pub(super) fn reasons_of_first(&self, most: usize) -> Vec<(QueuePlace, LeaseId, Reasons)> {
        let order = self.queue.fair_order();
        let ranks: HashMap<QueuePlace, usize> = order.zip(0..).collect();
        let last_end = self.last_end();
        let mut of_users = HashMap::new();
        let mut reasons = Vec::new();
        for (older, (place, waiting)) in self.queue.iter().take(most).enumerate() {
            let of_user: &mut usize = of_users.entry(&waiting.demand.party.user).or_default();
            let own = *of_user;
            // Only such requests come before others.
            if waiting.away.is_none() && !self.hopeless.contains_key(&place) {
                *of_user += 1;
            }
            let ahead = ranks.get(&place).copied().unwrap_or(0);
            let mut of_request = self.reasons_of(place, waiting, own, ahead);
            if of_request.could_be_served() {
                of_request.latest = self.latest((place, waiting), older, last_end);
            }
            reasons.push((place, waiting.demand.lease, of_request));
        }
        reasons
    }

    fn reasons_of(
        &self,
        place: QueuePlace,
        waiting: &Waiting,
        own: usize,
        ahead: usize,
    ) -> Reasons {
        let away = waiting.away.map(|until| until.since(self.now));
        let refused = self.room(&waiting.demand).err();
        let in_the_way = |why| self.quota_in_the_way(&waiting.demand, why);
        Reasons {
            away,
            lacks: waiting.told.1.clone(),
            quota: refused.map(in_the_way),
            own,
            ahead,
            aside: self.aside_of(place),
            latest: None,
        }
    }

    fn aside_of(&self, place: QueuePlace) -> Aside {
        let Some(aside) = &self.aside else {
            return Aside::Nothing;
        };
        let (ready, of) = aside.count();
        if aside.place != place {
            return Aside::Older { of };
        }
        let within = aside.start(self.now).map(|start| start.since(self.now));
        Aside::Own { ready, of, within }
    }
}

impl Reasons {
    /// Whether the request would be served if all devices of open nodes were free.
    fn could_be_served(&self) -> bool {
        self.away.is_none() && self.lacks.is_none() && self.quota.is_none()
    }

    /// In what time the request is served at the latest, if that is known.
    #[cfg(test)]
    pub(super) fn latest(&self) -> Option<Span> {
        self.latest
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
