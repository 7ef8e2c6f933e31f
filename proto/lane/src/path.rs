//! Whether the network path of a connection is dead: the other end's kernel acknowledges nothing. Behind a tunnel, which
//! acknowledges in its place, the other end itself does not answer.
//!
//! Pure: the caller reads the kernel's counts and passes the time. A process that is stopped for a moment is no dead
//! path, because its kernel acknowledges what it gets. Invariant: a connection is never dead on which nothing is
//! unacknowledged and no answer is expected.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// A path is dead if bytes stay unacknowledged for so long and [`ROUND_TRIPS`].
const DEAD_AFTER: Duration = Duration::from_millis(400);
/// Round trips beyond [`DEAD_AFTER`], for distant nodes.
const ROUND_TRIPS: u32 = 4;
/// A path is dead if no expected answer comes for so long.
const UNANSWERED: Duration = Duration::from_secs(10);
/// After a longer time without a look, this process was stopped, and the counts say nothing.
const STOPPED: Duration = Duration::from_secs(1);

/// What the kernel knows about the path of a connection.
#[derive(Clone, Copy, Debug)]
pub struct PathReading {
    /// Whether bytes were sent that the other end has not acknowledged.
    pub has_unacknowledged: bool,
    /// Number of bytes that the other end has acknowledged so far.
    pub acknowledged: u64,
    /// Number of bytes received so far. The caller may count other answers, too.
    pub received: u64,
    /// The smoothed round trip time.
    pub round_trip: Duration,
}

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// The path works, or it is too early to say.
    Works,
    /// Nothing has crossed since the last look. The caller may send something, whose acknowledgement will tell.
    Quiet,
    /// The other end has not acknowledged or answered anything for too long.
    Dead,
}

/// The looks at one connection after the other; see the module.
#[derive(Debug, Default)]
pub struct PathWatch {
    last: Option<Look>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    reading: PathReading,
    /// Since when something is unacknowledged, or was sent by the caller.
    waiting_since: Option<Instant>,
    /// Since when an answer is expected and does not come.
    unanswered_since: Instant,
}

impl PathWatch {
    /// Looks at the connection. `expects_answer` says that the caller sends something on a quiet path that the other
    /// end answers.
    pub fn look(&mut self, now: Instant, reading: PathReading, expects_answer: bool) -> PathState {
        let was_stopped = |last: &Look| now.saturating_duration_since(last.at) >= STOPPED;
        let last = self.last.filter(|last| !was_stopped(last));
        let unanswered =
            last.filter(|last| expects_answer && last.reading.received == reading.received);
        let unanswered_since = unanswered.map_or(now, |last| last.unanswered_since);
        let (state, waiting_since) = judge(now, reading, last);
        self.last = Some(Look {
            at: now,
            reading,
            waiting_since,
            unanswered_since,
        });
        match now.saturating_duration_since(unanswered_since) >= UNANSWERED {
            true => PathState::Dead,
            false => state,
        }
    }
}

// The state by acknowledgements, and since when something is unacknowledged.
fn judge(now: Instant, reading: PathReading, last: Option<Look>) -> (PathState, Option<Instant>) {
    let crossed = |of: &PathReading| (of.acknowledged, of.received);
    match last.filter(|last| crossed(&last.reading) == crossed(&reading)) {
        None => (PathState::Works, reading.has_unacknowledged.then_some(now)),
        Some(_) if !reading.has_unacknowledged => (PathState::Quiet, Some(now)),
        Some(last) => {
            let since = last.waiting_since.unwrap_or(now);
            let limit = DEAD_AFTER + ROUND_TRIPS * reading.round_trip;
            match now.saturating_duration_since(since) >= limit {
                true => (PathState::Dead, Some(since)),
                false => (PathState::Works, Some(since)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    fn reading(has_unacknowledged: bool, acknowledged: u64) -> PathReading {
        PathReading {
            has_unacknowledged,
            acknowledged,
            received: 0,
            round_trip: Duration::from_millis(1),
        }
    }

    /// The states of looks that are [`STEP`] apart.
    fn states(readings: &[PathReading]) -> Vec<PathState> {
        let (mut watch, begun) = (PathWatch::default(), Instant::now());
        let looks = (0u32..).zip(readings);
        looks
            .map(|(step, reading)| watch.look(begun + step * STEP, *reading, false))
            .collect()
    }

    #[test]
    fn bytes_that_stay_unacknowledged_mean_a_dead_path() {
        let found = states(&[reading(true, 7); 7]);
        assert_eq!(found[..5], [PathState::Works; 5]);
        assert_eq!(found[5..], [PathState::Dead; 2]);
    }

    #[test]
    fn any_acknowledgement_means_that_the_path_works() {
        let readings: Vec<_> = (0..40).map(|step| reading(true, step / 4)).collect();
        assert_eq!(states(&readings), [PathState::Works; 40]);
    }

    #[test]
    fn a_quiet_path_is_dead_only_if_what_was_sent_then_is_lost() {
        let mut readings = vec![reading(false, 7); 20];
        assert!(
            states(&readings)[1..]
                .iter()
                .all(|state| *state == PathState::Quiet)
        );
        readings.extend([reading(true, 7); 4]);
        let found = states(&readings);
        assert_eq!(
            found[20..],
            [
                PathState::Works,
                PathState::Works,
                PathState::Works,
                PathState::Works
            ]
        );
        readings.push(reading(true, 7));
        assert_eq!(states(&readings).last(), Some(&PathState::Dead));
    }

    #[test]
    fn distant_nodes_have_more_time() {
        let far = PathReading {
            round_trip: Duration::from_millis(300),
            ..reading(true, 7)
        };
        assert!(!states(&[far; 16]).contains(&PathState::Dead));
        assert!(states(&[far; 18]).contains(&PathState::Dead));
    }

    #[test]
    fn a_process_that_was_stopped_starts_anew() {
        let (mut watch, now) = (PathWatch::default(), Instant::now());
        watch.look(now, reading(true, 7), false);
        let later = now + Duration::from_secs(60);
        assert_eq!(watch.look(later, reading(true, 7), false), PathState::Works);
    }

    #[test]
    fn a_tunnel_that_acknowledges_in_place_of_the_other_end_is_dead_without_answers() {
        let (mut watch, begun) = (PathWatch::default(), Instant::now());
        let mut look = |step: u32, answers: u64, expects_answer: bool| {
            let reading = PathReading {
                received: answers,
                // The tunnel takes each message.
                ..reading(false, u64::from(step / 2))
            };
            watch.look(begun + step * STEP, reading, expects_answer)
        };
        let mut step = 0;
        // With answers, and without any that are expected, the path works.
        for answers in 0..150 {
            step += 1;
            assert_ne!(look(step, answers / 20, true), PathState::Dead);
        }
        for _ in 0..150 {
            step += 1;
            assert_ne!(look(step, 9, false), PathState::Dead);
        }
        for _ in 0..99 {
            step += 1;
            assert_ne!(look(step, 9, true), PathState::Dead);
        }
        assert_eq!(look(step + 1, 9, true), PathState::Dead);
    }
}
