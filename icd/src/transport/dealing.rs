//! Deals the lanes of a session over the rails of its server: the addresses that lead to it.
//!
//! Pure: the caller says which rails work and how fast they are, and passes the time. Invariants: while a rail works, no
//! lane is dealt to one that does not, nor to one below a quarter of the fastest speed. Rails of one speed differ by one
//! lane at most.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// The pauses before a dead rail is tried again grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// The pauses of a rail that worked for longer begin anew.
const STEADY: Duration = Duration::from_secs(60);

/// Part of the fastest speed below which a rail gets no lane: one of so many.
const SLOWEST: u64 = 4;

/// Which rails work; see the module.
#[derive(Debug)]
pub(super) struct Dealing {
    rails: Vec<RailState>,
    /// The rail of commands and heartbeats.
    current: usize,
}

#[derive(Clone, Copy, Debug)]
struct RailState {
    works: bool,
    /// When the rail last began to work, or is tried again.
    at: Instant,
    /// The pause after the next try.
    pause: Duration,
    /// How fast the rail is, compared with the others; not 0.
    speed: u64,
}

impl Dealing {
    /// Assumes that all of so many rails work. `current` is the rail of commands. All are equally fast.
    pub(super) fn new(count: usize, current: usize, now: Instant) -> Dealing {
        let rail = RailState {
            works: true,
            at: now,
            pause: PAUSES.0,
            speed: 1,
        };
        Dealing {
            rails: vec![rail; count.max(current + 1)],
            current,
        }
    }

    /// Number of rails.
    pub(super) fn count(&self) -> usize {
        self.rails.len()
    }

    /// The rail of commands and heartbeats.
    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// All rails in the order in which commands try them: the present one first, those that do not work last.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.count()).collect();
        order.sort_by_key(|rail| (!self.rails[*rail].works, *rail != self.current));
        order
    }

    /// Sets the speeds of all rails, in any unit. Without them, all are equally fast.
    pub(super) fn with_speeds(mut self, speeds: &[u64]) -> Dealing {
        for (rail, speed) in self.rails.iter_mut().zip(speeds) {
            rail.speed = (*speed).max(1);
        }
        self
    }

    /// The rail of a lane. Each rail that is fast enough gets one, the fastest first. Each further lane goes to the rail that
    /// has the fewest for its speed. Of equal ones, that of commands is first.
    pub(super) fn of_lane(&self, lane: u8) -> usize {
        let (usable, lane) = (self.usable(), usize::from(lane));
        if usable.is_empty() {
            return self.current;
        }
        let mut dealt = vec![1u64; usable.len()];
        let mut last = lane.min(usable.len() - 1);
        for _ in usable.len()..=lane {
            // The product with the other one's speed compares the quotients.
            let load =
                |at: usize, other: usize| u128::from(dealt[at] + 1) * u128::from(usable[other].1);
            last = (1..usable.len()).fold(0, |best, at| match load(at, best) < load(best, at) {
                true => at,
                false => best,
            });
            dealt[last] += 1;
        }
        usable[last].0
    }

    /// The working rails that are fast enough, with their speeds: the fastest first.
    fn usable(&self) -> Vec<(usize, u64)> {
        let all = (0..self.count()).map(|step| (self.current + step) % self.count());
        let working = all.filter(|rail| self.rails[*rail].works);
        let mut usable: Vec<(usize, u64)> =
            working.map(|rail| (rail, self.rails[rail].speed)).collect();
        let fastest = usable.iter().map(|(_, speed)| *speed).max().unwrap_or(1);
        usable.retain(|(_, speed)| *speed >= fastest.div_ceil(SLOWEST));
        usable.sort_by_key(|(_, speed)| std::cmp::Reverse(*speed));
        usable
    }

    /// Whether another rail works.
    pub(super) fn has_other(&self, rail: usize) -> bool {
        let mut others = self.rails.iter().enumerate();
        others.any(|(number, other)| number != rail && other.works)
    }

    /// Moves commands to a rail, which works.
    pub(super) fn set_current(&mut self, rail: usize, now: Instant) {
        self.current = rail;
        self.note_works(rail, now);
    }

    /// Notes that a rail works. Returns whether it did not before.
    pub(super) fn note_works(&mut self, rail: usize, now: Instant) -> bool {
        let state = &mut self.rails[rail];
        let is_news = !std::mem::replace(&mut state.works, true);
        if is_news {
            state.at = now;
        }
        is_news
    }

    /// Notes that a rail is dead. Returns whether it worked before.
    pub(super) fn note_dead(&mut self, rail: usize, now: Instant) -> bool {
        let state = &mut self.rails[rail];
        let is_news = std::mem::replace(&mut state.works, false);
        if is_news {
            if now.saturating_duration_since(state.at) >= STEADY {
                state.pause = PAUSES.0;
            }
            state.pause_from(now);
        }
        is_news
    }

    /// A dead rail that is to be tried now. Its next try is later.
    pub(super) fn due(&mut self, now: Instant) -> Option<usize> {
        let is_due = |rail: &RailState| !rail.works && now >= rail.at;
        let rail = self.rails.iter().position(is_due)?;
        self.rails[rail].pause_from(now);
        Some(rail)
    }
}

impl RailState {
    fn pause_from(&mut self, now: Instant) {
        self.at = now + self.pause;
        self.pause = (2 * self.pause).min(PAUSES.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rails(dealing: &Dealing, lanes: u8) -> Vec<usize> {
        (0..lanes).map(|lane| dealing.of_lane(lane)).collect()
    }

    #[test]
    fn lanes_go_round_the_rails_and_leave_a_dead_one() {
        let now = Instant::now();
        let mut dealing = Dealing::new(3, 1, now);
        assert_eq!(rails(&dealing, 6), [1, 2, 0, 1, 2, 0]);
        assert!(dealing.note_dead(2, now));
        assert!(!dealing.note_dead(2, now));
        assert_eq!(rails(&dealing, 6), [1, 0, 1, 0, 1, 0]);
        assert_eq!(dealing.order(), [1, 0, 2]);
        dealing.note_dead(1, now);
        assert_eq!(dealing.order(), [0, 1, 2]);
        dealing.note_works(1, now);
        dealing.note_dead(0, now);
        assert_eq!(rails(&dealing, 3), [1, 1, 1]);
        assert_eq!(dealing.order(), [1, 0, 2]);
        assert!(!dealing.has_other(1) && dealing.has_other(0));
        dealing.note_dead(1, now);
        assert_eq!(rails(&dealing, 2), [1, 1]);
        assert!(dealing.note_works(2, now));
        assert!(!dealing.note_works(2, now));
        assert_eq!(rails(&dealing, 2), [2, 2]);
    }

    #[test]
    fn lanes_are_dealt_by_speed_and_a_slow_rail_gets_none() {
        let now = Instant::now();
        let with = |speeds: &[u64]| Dealing::new(3, 0, now).with_speeds(speeds);
        assert_eq!(rails(&with(&[]), 4), [0, 1, 2, 0], "speeds are not known");
        let dealing = with(&[50, 100, 25]);
        assert_eq!(rails(&dealing, 7), [1, 0, 2, 1, 1, 1, 0]);
        let mut dealing = with(&[10, 100, 24]);
        assert_eq!(rails(&dealing, 3), [1, 1, 1]);
        // Without the fast one, the others are as good as they are.
        dealing.note_dead(1, now);
        assert_eq!(rails(&dealing, 3), [2, 0, 2]);
        dealing.note_works(1, now);
        assert_eq!(rails(&dealing, 3), [1, 1, 1]);
    }

    #[test]
    fn one_rail_has_all_lanes() {
        let dealing = Dealing::new(1, 0, Instant::now());
        assert_eq!(rails(&dealing, 3), [0, 0, 0]);
        assert!(!dealing.has_other(0));
    }

    #[test]
    fn a_dead_rail_is_tried_after_growing_pauses() {
        let mut now = Instant::now();
        let mut dealing = Dealing::new(2, 0, now);
        assert_eq!(dealing.due(now), None);
        dealing.note_dead(1, now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let begun = now;
            while dealing.due(now).is_none() {
                now += Duration::from_secs(1);
            }
            pauses.push((now - begun).as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 30, 30]);
        // A rail that works for a moment only has no shorter pause afterwards.
        dealing.note_works(1, now);
        dealing.note_dead(1, now + Duration::from_secs(1));
        assert_eq!(dealing.due(now + Duration::from_secs(20)), None);
        dealing.note_works(1, now);
        now += STEADY;
        dealing.note_dead(1, now);
        assert_eq!(dealing.due(now + PAUSES.0), Some(1));
    }

    proptest! {
        #[test]
        fn no_lane_goes_to_a_rail_below_a_quarter_of_the_fastest(
            speeds in prop::collection::vec(1u64..1_000, 1..9),
            lanes in 1u8..16,
        ) {
            let dealing = Dealing::new(speeds.len(), 0, Instant::now()).with_speeds(&speeds);
            let fastest = speeds.iter().max().copied().unwrap_or(1);
            for rail in rails(&dealing, lanes) {
                prop_assert!(4 * speeds[rail] >= fastest);
            }
            prop_assert_eq!(speeds[dealing.of_lane(0)], fastest);
        }

        #[test]
        fn lanes_are_as_the_speeds_are(
            speeds in prop::collection::vec(250u64..1_000, 1..6),
            rounds in 1u8..4,
        ) {
            let dealing = Dealing::new(speeds.len(), 0, Instant::now()).with_speeds(&speeds);
            let lanes = rounds * speeds.len() as u8;
            let dealt = rails(&dealing, lanes);
            let lanes_of = |rail: usize| dealt.iter().filter(|of| **of == rail).count() as u64;
            for one in 0..speeds.len() {
                prop_assert!(lanes_of(one) > 0);
                for other in 0..speeds.len() {
                    // Its last lane would have made the other one no less loaded.
                    let is_fair = lanes_of(one) * speeds[other] <= (lanes_of(other) + 1) * speeds[one];
                    prop_assert!(is_fair || lanes_of(one) == 1, "{:?} of {:?}", dealt, speeds);
                }
            }
        }

        #[test]
        fn working_rails_share_the_lanes(
            (count, current) in (1usize..9).prop_flat_map(|count| (Just(count), 0..count)),
            dead in prop::collection::vec(0usize..8, 0..8),
            lanes in 1u8..16,
        ) {
            let now = Instant::now();
            let mut dealing = Dealing::new(count, current, now);
            for rail in &dead {
                dealing.note_dead(rail % count, now);
            }
            let is_dead = |rail: usize| dead.iter().any(|dead| dead % count == rail);
            let dealt = rails(&dealing, lanes);
            let working: Vec<usize> = (0..count).filter(|rail| !is_dead(*rail)).collect();
            if !working.is_empty() {
                let lanes_of = |rail: &usize| dealt.iter().filter(|of| *of == rail).count();
                let most = working.iter().map(lanes_of).max().unwrap();
                let least = working.iter().map(lanes_of).min().unwrap();
                prop_assert!(most - least <= 1);
                prop_assert!(dealt.iter().all(|rail| !is_dead(*rail)));
            }
            let mut order = dealing.order();
            order.sort_unstable();
            prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }
}
