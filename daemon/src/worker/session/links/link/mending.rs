//! What a link does about its broken lanes, and when. Pure.
//!
//! Each lane has a connection, or is broken since some time. The connections of a lane have ascending numbers, because a
//! break may be reported when the next connection is there already. The end that has made the link dials broken lanes again:
//! at once, and then with growing pauses. Both ends give the link up when its time is over, or when the other end has
//! given it up.
//!
//! Invariant: the client is told that the link is being mended before it is told that the link is back.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Shortest and longest time between two tries after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// Time between a success and the next try. Something may break each connection as soon as it is made.
const AGAIN: Duration = Duration::from_millis(25);
/// The client is told of a link that is broken for so long. Most breaks are mended at once, and need no detour.
const TELL_AFTER: Duration = Duration::from_millis(500);

/// The state of a link's broken lanes. See the module.
#[derive(Debug)]
pub(super) struct Mending {
    resume: Duration,
    dials: bool,
    broken: BTreeMap<u8, Instant>,
    /// Number of each lane's newest connection.
    newest: BTreeMap<u8, u64>,
    is_given_up: bool,
    is_told: bool,
    next_try: Option<Instant>,
    pause: Duration,
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Nothing is broken any more. `is_told`: the client must be told that the link is back.
    Finish { is_told: bool },
    /// Tell the client that the link is being mended.
    Tell,
    /// Dial these lanes.
    Dial(Vec<u8>),
    /// Wait for a change, or until this time.
    Wait(Instant),
    /// Take the link down, for this reason.
    GiveUp(String),
}

impl Mending {
    /// Makes the state of a link without broken lanes, which lanes may be broken for `resume`. `dials`: this end dials
    /// them again.
    pub(super) fn new(resume: Duration, dials: bool) -> Mending {
        Mending {
            resume,
            dials,
            broken: BTreeMap::new(),
            newest: BTreeMap::new(),
            is_given_up: false,
            is_told: false,
            next_try: None,
            pause: RETRY.0,
        }
    }

    /// Notes that a connection of a lane is broken. Returns false if a later one has replaced it.
    pub(super) fn lane_broke(&mut self, lane: u8, connection: u64, now: Instant) -> bool {
        let is_newest = !self.is_replaced(lane, connection);
        if is_newest {
            self.broken.entry(lane).or_insert(now);
        }
        is_newest
    }

    /// Notes that a lane has a new connection. Returns false if a later one has replaced it.
    pub(super) fn lane_mended(&mut self, lane: u8, connection: u64) -> bool {
        let is_newest = !self.is_replaced(lane, connection);
        if is_newest {
            self.newest.insert(lane, connection);
            self.broken.remove(&lane);
        }
        is_newest
    }

    fn is_replaced(&self, lane: u8, connection: u64) -> bool {
        let newest = self.newest.get(&lane);
        newest.is_some_and(|newest| connection < *newest)
    }

    /// Whether a lane is broken.
    pub(super) fn is_broken(&self, lane: u8) -> bool {
        self.broken.contains_key(&lane)
    }

    /// Notes that the other end has given up the connections. Does nothing if no lane is broken: this end will see the
    /// break, or an attempt to make the link was just late.
    pub(super) fn other_end_gave_up(&mut self) {
        self.is_given_up |= !self.broken.is_empty();
    }

    /// Notes that lanes were dialled. `is_done`: all of them have connections.
    pub(super) fn dialled(&mut self, is_done: bool, now: Instant) {
        if is_done {
            (self.next_try, self.pause) = (Some(now + AGAIN), RETRY.0);
        } else {
            self.next_try = Some(now + self.pause);
            self.pause = (self.pause * 2).min(RETRY.1);
        }
    }

    /// Whether lanes that are being dialled are still wanted.
    pub(super) fn goes_on(&self) -> bool {
        !self.is_given_up
    }

    /// Returns what to do next. The caller does it.
    pub(super) fn next(&mut self, now: Instant) -> Task {
        let Some(since) = self.broken.values().min().copied() else {
            let is_told = std::mem::take(&mut self.is_told);
            return Task::Finish { is_told };
        };
        if self.is_given_up {
            return Task::GiveUp("the other end has given up the connections".to_owned());
        }
        let until = since + self.resume;
        if now >= until {
            return Task::GiveUp(format!(
                "a connection broke and was not replaced in {:?}",
                self.resume
            ));
        }
        let tell_at = since + TELL_AFTER;
        if now >= tell_at && !self.is_told {
            self.is_told = true;
            return Task::Tell;
        }
        let mut wake = until;
        if !self.is_told {
            wake = wake.min(tell_at);
        }
        if self.dials {
            match self.next_try {
                Some(at) if now < at => wake = wake.min(at),
                _ => return Task::Dial(self.broken.keys().copied().collect()),
            }
        }
        Task::Wait(wake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESUME: Duration = Duration::from_secs(60);

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn a_break_is_mended_at_once_without_a_word() {
        let start = Instant::now();
        let mut mending = Mending::new(RESUME, true);
        assert!(mending.lane_broke(1, 0, start));
        assert!(mending.lane_broke(0, 0, start));
        assert_eq!(mending.next(start), Task::Dial(vec![0, 1]));
        assert!(mending.lane_mended(0, 1));
        assert!(mending.lane_mended(1, 1));
        mending.dialled(true, start);
        assert_eq!(mending.next(start), Task::Finish { is_told: false });
        // The next break comes too soon after the try.
        assert!(mending.lane_broke(1, 1, at(start, 1)));
        assert_eq!(mending.next(at(start, 1)), Task::Wait(at(start, 25)));
        assert_eq!(mending.next(at(start, 25)), Task::Dial(vec![1]));
    }

    #[test]
    fn a_late_report_of_a_break_does_not_count() {
        let start = Instant::now();
        let mut mending = Mending::new(RESUME, false);
        assert!(mending.lane_mended(0, 2));
        assert!(!mending.lane_broke(0, 1, start));
        assert_eq!(mending.next(start), Task::Finish { is_told: false });
        assert!(mending.lane_broke(0, 2, start));
        // A late connection does not replace the one that broke.
        assert!(!mending.lane_mended(0, 1));
        assert!(mending.is_broken(0));
    }

    #[test]
    fn pauses_grow_and_the_client_is_told_once() {
        let start = Instant::now();
        let mut mending = Mending::new(RESUME, true);
        assert!(mending.lane_broke(0, 0, start));
        let (mut tries, mut told) = (Vec::new(), Vec::new());
        let mut now = start;
        loop {
            match mending.next(now) {
                Task::Dial(_) => {
                    tries.push((now - start).as_millis());
                    mending.dialled(false, now);
                }
                Task::Tell => told.push((now - start).as_millis()),
                Task::Wait(until) => now = until,
                Task::GiveUp(reason) => {
                    assert!(reason.contains("60s"), "{reason}");
                    break;
                }
                Task::Finish { .. } => panic!("the lane is broken"),
            }
        }
        assert_eq!(now, start + RESUME);
        assert_eq!(tries[..5], [0, 250, 750, 1750, 3750]);
        assert_eq!(told, [500]);
        assert!(mending.lane_mended(0, 1));
        assert_eq!(mending.next(now), Task::Finish { is_told: true });
        assert_eq!(mending.next(now), Task::Finish { is_told: false });
    }

    #[test]
    fn the_end_that_does_not_dial_waits() {
        let start = Instant::now();
        let mut mending = Mending::new(RESUME, false);
        mending.other_end_gave_up();
        assert!(mending.lane_broke(0, 0, start));
        assert_eq!(mending.next(start), Task::Wait(at(start, 500)));
        assert_eq!(mending.next(at(start, 500)), Task::Tell);
        assert_eq!(mending.next(at(start, 500)), Task::Wait(start + RESUME));
        assert!(mending.goes_on());
        mending.other_end_gave_up();
        assert!(!mending.goes_on());
        let task = mending.next(at(start, 501));
        assert!(matches!(task, Task::GiveUp(_)), "{task:?}");
    }
}
