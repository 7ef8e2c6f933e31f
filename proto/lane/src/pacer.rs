//! How fast a lane sends while small commands share its link: pure.
//!
//! A sender that has more than enough to send fills whatever queue the link's narrowest place has, and every
//! small command beside it waits in that queue. A [`Pacer`] sees from a connection's round trips how long the
//! queue is, and names a rate at which it stays short: a little below what the link delivers while it is too
//! long, a little more while it is not. [`Beside`] counts what says whether there are such commands at all;
//! with none the lane sends as it can.
//!
//! What it is not: it measures nothing and sets nothing (that is `pace.rs`); nor does it yield to others as
//! a background transfer would. What a lane had before it was paced may have been more than its part (the
//! others had not begun), so what it is held to have follows what it gets while the queue is long. Invariant: a
//! named rate is at least [`LEAST_SHARE`] of that, which is at least a [`LEAST_PART`]th of what it had before; and
//! where a lower rate does not keep the queue short (it is somebody else's) pacing is given up for a while.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Queueing that is borne. Less cannot be told from what a burst of a connection needs to leave.
const BORNE: Duration = Duration::from_millis(1);
/// In about so long a queue that is too long drains.
const DRAIN: Duration = Duration::from_millis(40);
/// A sample of the rate takes at least so long.
const SAMPLE: Duration = Duration::from_millis(5);
/// A lane that gets this much (bytes a second, about 5 Gbit/s over two lanes) is not paced: a queue on such a
/// link is short in time.
const FAST: u64 = 312_500_000;
/// See the module; hundredths.
const LEAST_SHARE: u64 = 75;
/// See the module; as many lanes as a session has at most.
const LEAST_PART: u64 = 8;
/// With a long queue a lane comes so much nearer to what it gets, at a look.
const FOLLOW: u64 = 4;
/// With a long queue the rate is so far below the share at least, hundredths: all that only hovered about the bound
/// would be long for ever, and look like somebody else's.
const LEAST_DRAIN: u64 = 2;
/// By how much the rate rises at most at a time, hundredths.
const MOST_RISE: u64 = 8;
/// So many looks in a row and so long at a rate so much lower than what the lane once had, and still a long queue: it
/// is not ours. Lanes that begin one after the other fill it again while it drains.
const IN_VAIN: u32 = 32;
const IN_VAIN_FOR: Duration = Duration::from_millis(750);
/// How long the lane is then left alone, at first and at most.
const ALONE: Duration = Duration::from_secs(2);
const MOST_ALONE: Duration = Duration::from_secs(60);

/// What a connection tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The smoothed round trip.
    pub(crate) round_trip: Duration,
    /// The smallest that was seen.
    pub(crate) least: Duration,
    /// Bytes that the other end has acknowledged, ever.
    pub(crate) acknowledged: u64,
    /// How long there was something to send or to be acknowledged, ever.
    pub(crate) busy: Duration,
}

/// The controller of one lane.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    before: Option<Reading>,
    paced: Option<Paced>,
    // It was in vain; until then, and for how long.
    alone: Option<(Instant, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Paced {
    // What the link gives this lane; bytes a second.
    share: u64,
    // The same before the lane was paced.
    before: u64,
    // What it would be unpaced, beside those that send now.
    unpaced: u64,
    rate: u64,
    rise: u64,
    // Looks in a row, and since when.
    in_vain: Option<(u32, Instant)>,
}

impl Pacer {
    /// The rate to send at from now on, bytes a second; `None` for as fast as can be.
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

    /// No commands share the link any more.
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
            // There is a queue, so this is what the link gives.
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

    // Below the share, the more the longer the queue.
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

/// Whether small commands share the link: what is counted of them.
#[derive(Debug, Default)]
pub struct Beside {
    batches: AtomicU64,
    transfers: AtomicU64,
}

impl Beside {
    /// A batch of commands has crossed.
    pub fn note_batch(&self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// A bulk transfer has begun, whose own command is no reason to hurry.
    pub fn note_transfer(&self) {
        self.transfers.fetch_add(1, Ordering::Relaxed);
    }

    fn counts(&self) -> (u64, u64) {
        let transfers = self.transfers.load(Ordering::Relaxed);
        (self.batches.load(Ordering::Relaxed), transfers)
    }
}

/// So often it is seen whether there are commands, and so many more than transfers count.
const WATCH: Duration = Duration::from_millis(100);
const SOME: u64 = 3;
/// For so long after they were seen they may come again.
const LINGER: Duration = Duration::from_millis(500);

/// Sees from [`Beside`] whether there are commands now.
#[derive(Debug, Default)]
pub(crate) struct Crossing {
    since: Option<(Instant, (u64, u64))>,
    until: Option<Instant>,
}

impl Crossing {
    /// Whether small commands share the link, or have a moment ago.
    pub(crate) fn look(&mut self, now: Instant, beside: &Beside) -> bool {
        let counts = beside.counts();
        let Some((since, before)) = self.since else {
            self.since = Some((now, counts));
            return false;
        };
        let passed = now.saturating_duration_since(since);
        let batches = counts.0.saturating_sub(before.0);
        let own = counts.1.saturating_sub(before.1);
        // However long ago the last look was, what counts is how many there are in a time.
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
