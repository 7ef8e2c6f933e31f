//! How far away a node is and how fast bytes get there, as far as this process has seen.
//!
//! Nothing is sent to find out: round trips are those of handshakes and clock readings, and the
//! bandwidth is that of large transfers while they last. Invariant: a number is 0 until it was measured.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many bytes make a measurement: fewer vanish in the buffers on the way.
const WINDOW: u64 = 8 << 20;
/// Without bytes for so long a transfer is over, or waits for something else than the link.
const GAP: Duration = Duration::from_millis(20);

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the node.
    Out,
    /// From it.
    In,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Gauge {
    // Of handshakes, which the system answers, and of questions, which a worker does.
    handshake_ns: AtomicU64,
    question_ns: AtomicU64,
    bandwidth: AtomicU64,
    windows: Mutex<[Window; 2]>,
}

/// What went one way since a moment.
#[derive(Debug, Default, Clone, Copy)]
struct Window {
    since: Option<Instant>,
    last: Option<Instant>,
    bytes: u64,
    // The first window of a transfer out goes into the buffers on the way, not through them.
    filled: bool,
}

impl Gauge {
    /// The smallest round trip: of the questions that the session's clock was read by, else of handshakes;
    /// `None` when there was none.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        let known = [&self.question_ns, &self.handshake_ns];
        let mut known = known.into_iter().map(|ns| ns.load(Ordering::Relaxed));
        known.find(|ns| *ns != 0).map(Duration::from_nanos)
    }

    /// Bytes per second of the last large transfers; 0 when there was none.
    #[must_use]
    pub fn bandwidth(&self) -> u64 {
        self.bandwidth.load(Ordering::Relaxed)
    }

    /// The smallest round trip of the present session's questions.
    pub(super) fn set_round_trip(&self, took: Duration) {
        self.question_ns.store(in_ns(took), Ordering::Relaxed);
    }

    /// A handshake took so long.
    pub(super) fn note_round_trip(&self, took: Duration) {
        let ns = in_ns(took);
        let smaller = |known| (known == 0 || ns < known).then_some(ns);
        let _ = self
            .handshake_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, smaller);
    }

    /// Bytes begin to flow.
    pub(super) fn begin(&self, direction: Direction, now: Instant) {
        self.windows.lock()[direction as usize].begin(now);
    }

    /// So many bytes have flowed.
    pub(super) fn end(&self, direction: Direction, now: Instant, bytes: u64) {
        let rate = self.windows.lock()[direction as usize].end(now, bytes, direction);
        if let Some(rate) = rate {
            let mixed = |known| {
                Some(if known == 0 {
                    rate
                } else {
                    known - known / 4 + rate / 4
                })
            };
            let _ = self
                .bandwidth
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, mixed);
        }
    }

    /// The node is another one, or elsewhere.
    pub(super) fn forget(&self) {
        self.handshake_ns.store(0, Ordering::Relaxed);
        self.question_ns.store(0, Ordering::Relaxed);
        self.bandwidth.store(0, Ordering::Relaxed);
        *self.windows.lock() = Default::default();
    }
}

// Not 0, which means that nothing was measured.
fn in_ns(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl Window {
    fn begin(&mut self, now: Instant) {
        let idle = self
            .last
            .is_none_or(|last| now.saturating_duration_since(last) > GAP);
        if idle {
            *self = Window {
                since: Some(now),
                ..Window::default()
            };
        }
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
    }

    // The rate, when the window is full.
    fn end(&mut self, now: Instant, bytes: u64, direction: Direction) -> Option<u64> {
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
        self.bytes += bytes;
        let since = self.since?;
        if self.bytes < WINDOW {
            return None;
        }
        let took = now.saturating_duration_since(since).as_nanos().max(1);
        let rate = u128::from(self.bytes) * 1_000_000_000 / took;
        let counts = direction == Direction::In || self.filled;
        *self = Window {
            since: Some(now),
            last: Some(now),
            bytes: 0,
            filled: true,
        };
        counts.then(|| u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    // Chunks of 1 MiB, each `pace` after the last; the time at the end.
    fn flow(
        gauge: &Gauge,
        direction: Direction,
        mut now: Instant,
        chunks: u64,
        pace: Duration,
    ) -> Instant {
        for _ in 0..chunks {
            gauge.begin(direction, now);
            now += pace;
            gauge.end(direction, now, MIB);
        }
        now
    }

    #[test]
    fn the_smallest_round_trip_counts() {
        let gauge = Gauge::default();
        assert_eq!(gauge.round_trip(), None);
        for us in [300, 200, 250] {
            gauge.note_round_trip(Duration::from_micros(us));
        }
        assert_eq!(gauge.round_trip(), Some(Duration::from_micros(200)));
        // A worker needs longer to answer than the system, and that is what counts.
        gauge.set_round_trip(Duration::from_micros(220));
        assert_eq!(gauge.round_trip(), Some(Duration::from_micros(220)));
        gauge.forget();
        assert_eq!(gauge.round_trip(), None);
    }

    #[test]
    fn small_transfers_and_those_with_pauses_say_nothing() {
        let gauge = Gauge::default();
        let mut now = flow(
            &gauge,
            Direction::In,
            Instant::now(),
            7,
            Duration::from_millis(10),
        );
        for _ in 0..20 {
            now += 2 * GAP;
            now = flow(&gauge, Direction::In, now, 1, Duration::from_millis(1));
        }
        assert_eq!(gauge.bandwidth(), 0);
    }

    #[test]
    fn a_large_transfer_tells_its_rate_and_newer_ones_count_more() {
        let gauge = Gauge::default();
        let now = flow(
            &gauge,
            Direction::In,
            Instant::now(),
            8,
            Duration::from_millis(10),
        );
        assert_eq!(gauge.bandwidth(), 100 * MIB);
        flow(&gauge, Direction::In, now, 64, Duration::from_millis(5));
        let seen = gauge.bandwidth();
        assert!((180 * MIB..=200 * MIB).contains(&seen), "{seen}");
    }

    #[test]
    fn what_only_fills_the_buffers_on_the_way_out_does_not_count() {
        let gauge = Gauge::default();
        let now = flow(
            &gauge,
            Direction::Out,
            Instant::now(),
            8,
            Duration::from_micros(100),
        );
        assert_eq!(gauge.bandwidth(), 0);
        flow(&gauge, Direction::Out, now, 8, Duration::from_millis(10));
        assert_eq!(gauge.bandwidth(), 100 * MIB);
    }
}
