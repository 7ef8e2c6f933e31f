//! Chooses the copy from which a transfer takes its bytes.
//!
//! The order of preference: a site on a direct route, then the client, then a site whose route is
//! relayed. Among equals, the place with the least left to send wins. So many readers of one large buffer
//! form a chain or tree, in which every copy that has arrived or will arrive serves the next. A copy that
//! is still arriving costs a little more. So small buffers fan out from one place instead of hopping from
//! site to site.

use smallvec::SmallVec;

use super::IsDone;
use super::network::{Network, Route};
use super::place::Place;
use super::state::{RangeState, Validity};

/// Loads that differ by less count as equal. Switching the source for a few bytes gains nothing.
const QUANTUM: u64 = 1 << 20;

/// Cost of a copy that is still arriving, in bytes of load: about a round trip of a fast network.
const HOP: u64 = 2 * QUANTUM;

/// Chooses the sources of one plan, and counts the bytes it has assigned to each.
pub(super) struct Sources<'a> {
    network: &'a Network,
    destination: Place,
    is_done: IsDone<'a>,
    assigned: SmallVec<[(Place, u64); 4]>,
    last: Option<Place>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(
        network: &'a Network,
        destination: Place,
        is_done: IsDone<'a>,
    ) -> Sources<'a> {
        Sources {
            network,
            destination,
            is_done,
            assigned: SmallVec::new(),
            last: None,
        }
    }

    /// Returns the best source of bytes in this state, or `None` when they are lost.
    pub(super) fn choose(&mut self, state: &RangeState, bytes: u64) -> Option<Place> {
        let valid = state.copies().iter().filter(|copy| copy.is_valid());
        let best = valid.min_by_key(|copy| self.cost(copy.place, copy.validity))?;
        let place = best.place;
        match self.assigned.iter_mut().find(|(known, _)| *known == place) {
            Some((_, assigned)) => *assigned += bytes,
            None => self.assigned.push((place, bytes)),
        }
        self.last = Some(place);
        Some(place)
    }

    fn cost(&self, place: Place, validity: Validity) -> (u8, u64, bool, Place) {
        let kind = match (place, self.network.route(place, self.destination)) {
            (Place::Site(_), Route::Direct) => 0,
            (Place::Client, _) => 1,
            // These bytes would cross the client's network link twice.
            (Place::Site(_), Route::ViaClient) => 2,
        };
        let assigned = self.assigned.iter().find(|(known, _)| *known == place);
        let assigned = assigned.map_or(0, |(_, bytes)| *bytes);
        let hop = match validity {
            Validity::Arriving(event) if !(self.is_done)(event) => HOP,
            _ => 0,
        };
        let load = self.network.load(place) + assigned + hop;
        // With equal loads the last source stays in use. The place makes the choice deterministic.
        (kind, load / QUANTUM, self.last != Some(place), place)
    }
}
