//! Decides how fast a lane sends while small commands share its network. Pure.
//!
//! A sender with plenty to send fills the queue at the network's bottleneck, and small commands then wait
//! in that queue. A [`Pacer`] estimates the queue from a connection's round trips. It sets a rate a
//! little below the delivered rate while the queue is too long, and a little above while it is not.
//! [`Beside`] counts whether there are such commands at all. Without them the lane is not paced.
//!
//! `pace.rs` measures and sets rates. A paced lane does not yield to other traffic as a background
//! transfer would. A lane may have had more than its fair share before pacing, because others had not
//! begun. So the estimate of its unpaced rate (`unpaced`) follows the delivered rate while the queue is
//! long. Invariant: a paced rate is at least [`LEAST_SHARE`] percent of that estimate, which is at least
//! a [`LEAST_PART`]th of the rate before pacing. If lower rates do not shorten the queue, other traffic
//! fills it, and pacing stops for a while.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tolerated queueing delay. Less cannot be distinguished from the time that a burst takes to leave.
const BORNE: Duration = Duration::from_millis(1);
/// Time in which a queue that is too long should drain, approximately.
const DRAIN: Duration = Duration::from_millis(40);
/// Minimum duration of a rate sample.
const SAMPLE: Duration = Duration::from_millis(5);
/// A lane that reaches this rate (bytes per second, about 5 Gbit/s over two lanes) is not paced. A queue
/// on such a fast network is short in time.
const FAST: u64 = 312_500_000;
/// Minimum share of the unpaced rate, in percent; see the module.
const LEAST_SHARE: u64 = 75;
/// Divisor for the lower limit of the unpaced rate; see the module. A session has at most this many
/// lanes.
const LEAST_PART: u64 = 8;
/// While the queue is long, each sample moves the unpaced rate by one part in this many towards the
/// delivered rate.
const FOLLOW: u64 = 4;
/// While the queue is long, the rate is below the share by at least this percentage. Otherwise a queue
/// that hovers around the tolerated length would last for ever and look like other traffic.
const LEAST_DRAIN: u64 = 2;
/// Maximum increase of the rate per sample, in percent.
const MOST_RISE: u64 = 8;
/// Pacing is in vain after this many samples in a row, over at least this time, with a long queue. Only
/// samples count in which the rate is at most [`LEAST_SHARE`] percent of the lane's first rate. Then
/// other traffic fills the queue. The time must be this long because lanes that start one after another
/// refill the queue while it drains.
const IN_VAIN: u32 = 32;
const IN_VAIN_FOR: Duration = Duration::from_millis(750);
/// Duration for which the lane is then not paced: the first time, and at most.
const ALONE: Duration = Duration::from_secs(2);
const MOST_ALONE: Duration = Duration::from_secs(60);

/// State of a connection, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The smoothed round trip time.
    pub(crate) round_trip: Duration,
    /// The smallest round trip time so far.
    pub(crate) least: Duration,
    /// Number of bytes that the other end has acknowledged so far.
    pub(crate) acknowledged: u64,
    /// Total time during which there were bytes to send or to acknowledge.
    pub(crate) busy: Duration,
}

/// The rate controller of one lane.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    before: Option<Reading>,
    paced: Option<Paced>,
    // Set after pacing was in vain: the end and the length of the time without pacing.
    alone: Option<(Instant, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Paced {
    // The lane's share of the network's rate, in bytes per second.
    share: u64,
    // The share before the lane was paced.
    before: u64,
    // Estimated rate without pacing, beside the connections that are sending now.
    unpaced: u64,
    rate: u64,
    rise: u64,
    // Number of samples in vain in a row, and the time of the first.
    in_vain: Option<(u32, Instant)>,
}

impl Pacer {
    /// Processes a reading. Returns the rate to send at in bytes per second; `None` is unlimited.
    pub(crate) fn look(&mut self, now: Instant, reading: Reading) -> Option<u64> {
        let Some(before) = self.before else {
            self.before = Some(reading);
            return self.rate();
        };
        let busy = reading.busy.saturating_sub(before.busy);
        if busy < SAMPLE {
            return self.rate();
        }
        self.before = Some(reading);
        let bytes = reading.acknowledged.saturating_sub(before.acknowledged);
        let sample = u128::from(bytes) * 1_000_000 / busy.as_micros().max(1);
        let sample = u64::try_from(sample).unwrap_or(u64::MAX);
        let queued = reading.round_trip.saturating_sub(reading.least);
        self.take(now, queued, sample);
        self.rate()
    }

    /// Ends pacing, because no commands share the network any more.
    pub(crate) fn rest(&mut self) {
        self.before = None;
        self.paced = None;
    }

    fn rate(&self) -> Option<u64> {
        self.paced.map(|paced| paced.rate)
    }

    fn take(&mut self, now: Instant, queued: Duration, sample: u64) {
        if sample >= FAST {
            self.paced = None;
            return;
        }
        let Some(paced) = &mut self.paced else {
            let alone = self.alone.is_some_and(|(until, _)| now < until);
            if queued > BORNE && sample > 0 && !alone {
                self.paced = Some(Paced::new(now, queued, sample));
            }
            return;
        };
        paced.take(now, queued, sample);
        if paced.is_in_vain(now) {
            self.paced = None;
            let long = self.alone.map_or(ALONE, |(_, long)| 2 * long);
            let long = long.min(MOST_ALONE);
            self.alone = Some((now + long, long));
        } else if queued <= BORNE {
            self.alone = None;
        }
    }
}

impl Paced {
    fn new(now: Instant, queued: Duration, sample: u64) -> Paced {
        let mut paced = Paced {
            share: sample,
            before: sample,
            unpaced: sample,
            rate: sample,
            rise: 0,
            in_vain: None,
        };
        paced.drain(now, queued);
        paced
    }

    fn take(&mut self, now: Instant, queued: Duration, sample: u64) {
        if queued > BORNE {
            // There is a queue, so the sample is what the network delivers to this lane.
            self.share = self.share / 2 + sample / 2;
            let over = self.unpaced.saturating_sub(sample);
            self.unpaced = (self.unpaced - over / FOLLOW).max(self.before / LEAST_PART);
            self.rise = 0;
            self.drain(now, queued);
        } else {
            self.in_vain = None;
            self.rise = (self.rise + 1).min(MOST_RISE);
            self.share = percent(self.rate, 100 + self.rise);
            self.rate = self.share;
        }
    }

    // Sets a rate below the share: the longer the queue, the lower the rate.
    fn drain(&mut self, now: Instant, queued: Duration) {
        let excess = queued.saturating_sub(BORNE).min(DRAIN);
        let off = u128::from(self.share) * excess.as_micros() / DRAIN.as_micros();
        let off = (off as u64).max(percent(self.share, LEAST_DRAIN));
        let least = percent(self.unpaced, LEAST_SHARE).max(1);
        self.rate = self.share.saturating_sub(off).max(least);
        let low = self.rate <= percent(self.before, LEAST_SHARE).max(1);
        let (looks, since) = self.in_vain.unwrap_or((0, now));
        self.in_vain = low.then_some((looks + 1, since));
    }

    fn is_in_vain(&self, now: Instant) -> bool {
        self.in_vain.is_some_and(|(looks, since)| {
            looks >= IN_VAIN && now.saturating_duration_since(since) >= IN_VAIN_FOR
        })
    }
}

fn percent(of: u64, hundredths: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(hundredths) / 100).unwrap_or(u64::MAX)
}

/// Counters that show whether small commands share the network.
#[derive(Debug, Default)]
pub struct Beside {
    batches: AtomicU64,
    transfers: AtomicU64,
}

impl Beside {
    /// Records that a batch of commands was sent or received.
    pub fn note_batch(&self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a bulk transfer has begun. Its own command is no reason for pacing.
    pub fn note_transfer(&self) {
        self.transfers.fetch_add(1, Ordering::Relaxed);
    }

    fn counts(&self) -> (u64, u64) {
        let transfers = self.transfers.load(Ordering::Relaxed);
        (self.batches.load(Ordering::Relaxed), transfers)
    }
}

/// Interval at which the counters are evaluated, and by how many batches must exceed transfers in it.
const WATCH: Duration = Duration::from_millis(100);
const SOME: u64 = 3;
/// How long commands count as present after they were seen.
const LINGER: Duration = Duration::from_millis(500);

/// Detects from [`Beside`] whether commands are present now.
#[derive(Debug, Default)]
pub(crate) struct Crossing {
    since: Option<(Instant, (u64, u64))>,
    until: Option<Instant>,
}

impl Crossing {
    /// Whether small commands share the network now, or did a moment ago.
    pub(crate) fn look(&mut self, now: Instant, beside: &Beside) -> bool {
        let counts = beside.counts();
        let Some((since, before)) = self.since else {
            self.since = Some((now, counts));
            return false;
        };
        let passed = now.saturating_duration_since(since);
        let batches = counts.0.saturating_sub(before.0);
        let own = counts.1.saturating_sub(before.1);
        // The number of batches is compared per interval, however long ago the last evaluation was.
        let times = u64::try_from(passed.as_millis() / WATCH.as_millis()).unwrap_or(u64::MAX);
        if batches.saturating_sub(own) >= SOME.saturating_mul(times.max(1)) {
            self.until = Some(now + LINGER);
        }
        if passed >= WATCH {
            self.since = Some((now, counts));
        }
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests;
