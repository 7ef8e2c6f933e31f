//! Round trip and bandwidth between this process and a node, as far as they have been observed.
//!
//! No probes are sent. Round trips come from handshakes and clock readings, the bandwidth from large
//! transfers while they last. Invariant: a number is 0 until it was measured.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Number of bytes of one measurement. Fewer bytes would only fill buffers on the way.
const WINDOW: u64 = 8 << 20;
/// After this time without bytes, the transfer is over or waits for something other than the network.
const GAP: Duration = Duration::from_millis(20);

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the node.
    Out,
    /// From the node.
    In,
}

/// Measurements for one node; see the module.
#[derive(Debug, Default)]
pub struct Gauge {
    // Round trips of handshakes, which the kernel answers, and of queries, which a worker answers.
    handshake_ns: AtomicU64,
    question_ns: AtomicU64,
    bandwidth: AtomicU64,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    of: [Window; 2],
    // When the bandwidth was measured last.
    measured: Option<Instant>,
}

/// Bytes transferred in one direction since a moment.
#[derive(Debug, Default, Clone, Copy)]
struct Window {
    since: Option<Instant>,
    last: Option<Instant>,
    bytes: u64,
    // The first window of an outgoing transfer only fills buffers on the way, so its rate does not count.
    filled: bool,
}

impl Gauge {
    /// The smallest known round trip: of the queries that read the session's clock, or else of
    /// handshakes. `None` if there was neither.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        let known = [&self.question_ns, &self.handshake_ns];
        let mut known = known.into_iter().map(|ns| ns.load(Ordering::Relaxed));
        known.find(|ns| *ns != 0).map(Duration::from_nanos)
    }

    /// Bandwidth of recent large transfers in bytes per second; 0 if there was none.
    #[must_use]
    pub fn bandwidth(&self) -> u64 {
        self.bandwidth.load(Ordering::Relaxed)
    }

    /// When the bandwidth was measured last.
    #[must_use]
    pub fn measured(&self) -> Option<Instant> {
        self.windows.lock().measured
    }

    /// Sets the smallest round trip of the current session's queries.
    pub(super) fn set_round_trip(&self, took: Duration) {
        self.question_ns.store(in_ns(took), Ordering::Relaxed);
    }

    /// Records the duration of a handshake.
    pub(super) fn note_round_trip(&self, took: Duration) {
        let ns = in_ns(took);
        let smaller = |known| (known == 0 || ns < known).then_some(ns);
        let _ = self
            .handshake_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, smaller);
    }

    /// Records that bytes begin to flow.
    pub(super) fn begin(&self, direction: Direction, now: Instant) {
        self.windows.lock().of[direction as usize].begin(now);
    }

    /// Records that `bytes` bytes have flowed. Newer measurements count a quarter in the average.
    pub(super) fn end(&self, direction: Direction, now: Instant, bytes: u64) {
        let mut windows = self.windows.lock();
        let rate = windows.of[direction as usize].end(now, bytes, direction);
        if let Some(rate) = rate {
            windows.measured = Some(now);
            drop(windows);
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

    /// Forgets all measurements, because the node may be another one or at another place.
    pub(super) fn forget(&self) {
        self.handshake_ns.store(0, Ordering::Relaxed);
        self.question_ns.store(0, Ordering::Relaxed);
        self.bandwidth.store(0, Ordering::Relaxed);
        *self.windows.lock() = Default::default();
    }
}

// Converts to nanoseconds, at least 1: 0 means that nothing was measured.
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

    // Returns the rate in bytes per second when the window is full.
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

    // Transfers chunks of 1 MiB, one every `pace`; returns the time at the end.
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
        // A worker takes longer to answer than the kernel, and the worker's time counts.
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
        assert_eq!(gauge.measured(), None);
        let now = flow(
            &gauge,
            Direction::In,
            Instant::now(),
            8,
            Duration::from_millis(10),
        );
        assert_eq!(gauge.bandwidth(), 100 * MIB);
        assert_eq!(gauge.measured(), Some(now));
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
