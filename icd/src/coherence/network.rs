//! What planning knows about the paths between places: which are direct, and how many bytes are in
//! flight.
//!
//! The connections themselves are elsewhere. Invariant: `load` is the sum of `under_way`, by source.

use causeway_proto::id::EventId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::place::{Place, SiteIndex};

/// How bytes travel from one site to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// Worker to worker. Transfers from and to the client are always direct: they use its session.
    Direct,
    /// Without a direct path: chunk by chunk through the client.
    ViaClient,
}

/// Routes and loads; see the module.
#[derive(Debug, Default)]
pub(super) struct Network {
    relayed: FxHashSet<(SiteIndex, SiteIndex)>,
    load: FxHashMap<Place, u64>,
    under_way: FxHashMap<EventId, (Place, u64)>,
}

impl Network {
    /// Sets how two sites reach each other, in both directions.
    pub(super) fn set_route(&mut self, one: SiteIndex, other: SiteIndex, route: Route) {
        for pair in [(one, other), (other, one)] {
            match route {
                Route::Direct => self.relayed.remove(&pair),
                Route::ViaClient => self.relayed.insert(pair),
            };
        }
    }

    pub(super) fn route(&self, from: Place, to: Place) -> Route {
        match (from, to) {
            (Place::Site(from), Place::Site(to)) if self.relayed.contains(&(from, to)) => {
                Route::ViaClient
            }
            _ => Route::Direct,
        }
    }

    /// Number of bytes that the place has yet to send.
    pub(super) fn load(&self, place: Place) -> u64 {
        self.load.get(&place).copied().unwrap_or(0)
    }

    pub(super) fn begin(&mut self, received: EventId, source: Place, bytes: u64) {
        *self.load.entry(source).or_default() += bytes;
        self.under_way.insert(received, (source, bytes));
    }

    pub(super) fn end(&mut self, received: EventId) {
        if let Some((source, bytes)) = self.under_way.remove(&received)
            && let Some(load) = self.load.get_mut(&source)
        {
            *load = load.saturating_sub(bytes);
        }
    }
}
