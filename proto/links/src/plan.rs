//! The plan of rounds: which pairs of hosts are measured at the same time.
//!
//! Two measurements of one host would halve each other's figures. A plan is an edge colouring of the complete graph.
//! The circle method finds one with the least number of rounds: n for odd n, and n − 1 for even n. Pure.
//!
//! Invariants: each pair is in exactly one round. Each host is in a round at most once.

/// The rounds for so many hosts, as pairs of their numbers, the smaller first.
#[must_use]
pub fn rounds(hosts: usize) -> Vec<Vec<(usize, usize)>> {
    if hosts < 2 {
        return Vec::new();
    }
    // With an odd number, one place of the circle is empty: its partner rests.
    let places = hosts + hosts % 2;
    (0..places - 1)
        .map(|round| {
            let at = |place: usize| match place {
                0 => 0,
                _ => 1 + (place - 1 + round) % (places - 1),
            };
            let pairs = (0..places / 2).map(|place| (at(place), at(places - 1 - place)));
            let pairs = pairs.map(|(one, other)| (one.min(other), one.max(other)));
            pairs.filter(|(_, larger)| *larger < hosts).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn small_plans() {
        assert_eq!(rounds(0), Vec::<Vec<_>>::new());
        assert_eq!(rounds(1), Vec::<Vec<_>>::new());
        assert_eq!(rounds(2), [[(0, 1)]]);
        assert_eq!(rounds(3).len(), 3);
        assert_eq!(rounds(8).len(), 7);
    }

    proptest! {
        #[test]
        fn every_pair_has_one_round_and_no_host_is_in_a_round_twice(hosts in 2_usize..80) {
            let rounds = rounds(hosts);
            prop_assert_eq!(rounds.len(), if hosts % 2 == 0 { hosts - 1 } else { hosts });
            let mut pairs = HashSet::new();
            for round in &rounds {
                let mut busy = HashSet::new();
                for (one, other) in round {
                    prop_assert!(one < other && *other < hosts);
                    prop_assert!(busy.insert(*one) && busy.insert(*other));
                    prop_assert!(pairs.insert((*one, *other)));
                }
            }
            prop_assert_eq!(pairs.len(), hosts * (hosts - 1) / 2);
        }
    }
}
