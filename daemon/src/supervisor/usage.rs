//! How long devices were busy, from what each session has counted. Pure.
//!
//! The sessions of one process count disjoint parts of its busy time, so their parts add up. Nothing orders the busy
//! times of different processes. Between two readings, they are taken to be independent of each other: a device that
//! two processes had busy for half of the time was busy for three quarters of it. That is exact for one process, and
//! between the longest of the times and their sum for several.
//!
//! Invariant: a device's total never decreases, and grows by no more than the time that has passed.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::accounting::{DeviceName, DeviceTime};

/// Number of a process: of its worker.
pub(super) type ProcessNumber = u64;
/// Number of a session: of its worker, also in a host.
pub(super) type SessionNumber = u64;

/// The busy time of a session on a device, as of a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) process: ProcessNumber,
    pub(super) session: SessionNumber,
    pub(super) device: DeviceName,
    pub(super) time: DeviceTime,
}

/// The busy times of all devices.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Time of the latest reading, since the start.
    read_at: Duration,
    totals: BTreeMap<DeviceName, Duration>,
    /// What each session had added at the latest reading.
    seen: HashMap<(SessionNumber, DeviceName), u64>,
    /// Nanoseconds since the latest reading, by process.
    since: HashMap<(ProcessNumber, DeviceName), u64>,
    /// For how long the commands under way had been so at the latest reading. Their ends add this time once more.
    ahead: HashMap<(ProcessNumber, DeviceName), u64>,
}

impl Usage {
    /// Takes the last sample of a session that has ended.
    pub(super) fn end(&mut self, sample: Sample) {
        self.add(&sample);
        self.seen.remove(&(sample.session, sample.device));
    }

    /// Takes samples of all sessions, and returns the total of each device. `now` counts from the start.
    pub(super) fn read(
        &mut self,
        now: Duration,
        samples: impl Iterator<Item = Sample>,
    ) -> &BTreeMap<DeviceName, Duration> {
        let mut waits: HashMap<(ProcessNumber, DeviceName), u64> = HashMap::new();
        for sample in samples {
            self.add(&sample);
            self.totals.entry(sample.device).or_default();
            if sample.time.waits > 0 {
                let of_process = waits.entry((sample.process, sample.device));
                let least = of_process.or_insert(u64::MAX);
                *least = (*least).min(sample.time.waits);
            }
        }
        let ahead = std::mem::replace(&mut self.ahead, waits);
        for (of, time) in &self.ahead {
            let since = self.since.entry(*of).or_default();
            *since = since.saturating_add(*time);
        }
        let passed = now.saturating_sub(self.read_at);
        self.read_at = now;
        let mut idle: BTreeMap<DeviceName, f64> = BTreeMap::new();
        for ((process, device), since) in self.since.drain() {
            let before = ahead.get(&(process, device)).copied().unwrap_or(0);
            let busy = Duration::from_nanos(since.saturating_sub(before)).min(passed);
            if busy > Duration::ZERO {
                *idle.entry(device).or_insert(1.0) *= 1.0 - busy.div_duration_f64(passed);
            }
        }
        for (device, idle) in idle {
            *self.totals.entry(device).or_default() += passed.mul_f64((1.0 - idle).clamp(0.0, 1.0));
        }
        &self.totals
    }

    fn add(&mut self, sample: &Sample) {
        let seen = self.seen.entry((sample.session, sample.device));
        let seen = seen.or_default();
        // A worker could decrease its counters.
        let new = sample.time.added.saturating_sub(*seen);
        *seen = sample.time.added.max(*seen);
        let since = self.since.entry((sample.process, sample.device));
        let since = since.or_default();
        *since = since.saturating_add(new);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CARD: DeviceName = DeviceName(0, 0);

    fn sample(process: u64, session: u64, added_ms: u64, waits_ms: u64) -> Sample {
        Sample {
            process,
            session,
            device: CARD,
            time: DeviceTime {
                added: added_ms * 1_000_000,
                waits: waits_ms * 1_000_000,
                ..DeviceTime::default()
            },
        }
    }

    fn read(usage: &mut Usage, now_ms: u64, samples: &[Sample]) -> u128 {
        let totals = usage.read(Duration::from_millis(now_ms), samples.iter().copied());
        totals.get(&CARD).map_or(0, Duration::as_millis)
    }

    #[test]
    fn parts_of_one_process_add_up_and_processes_are_independent() {
        let mut usage = Usage::default();
        assert_eq!(read(&mut usage, 0, &[]), 0);
        assert_eq!(
            read(&mut usage, 100, &[sample(1, 2, 30, 0), sample(1, 3, 20, 0)]),
            50
        );
        let both = [
            sample(1, 2, 80, 0),
            sample(1, 3, 20, 0),
            sample(4, 4, 50, 0),
        ];
        assert_eq!(read(&mut usage, 200, &both), 125);
        assert_eq!(read(&mut usage, 300, &both), 125);
        // A session that has ended keeps what it has added.
        usage.end(sample(4, 4, 60, 0));
        assert_eq!(read(&mut usage, 400, &both[..2]), 135);
    }

    #[test]
    fn a_command_under_way_counts_once() {
        let mut usage = Usage::default();
        assert_eq!(read(&mut usage, 100, &[sample(1, 1, 0, 40)]), 40);
        assert_eq!(read(&mut usage, 200, &[sample(1, 1, 0, 140)]), 140);
        assert_eq!(read(&mut usage, 300, &[sample(1, 1, 150, 0)]), 150);
        // Behind a neighbour's command, which began before.
        let both = [sample(1, 1, 150, 60), sample(1, 2, 0, 20)];
        assert_eq!(read(&mut usage, 400, &both), 170);
        let both = [sample(1, 1, 150, 0), sample(1, 2, 30, 0)];
        assert_eq!(read(&mut usage, 500, &both), 180);
    }

    proptest! {
        /// Whatever workers write into their pages.
        #[test]
        fn totals_never_decrease_and_never_outrun_the_clock(
            readings in proptest::collection::vec(
                (0..50_u64, proptest::collection::vec((0..3_u64, 0..4_u64, any::<u64>(), any::<u64>(), any::<bool>()), 0..6)),
                0..20,
            )
        ) {
            let (mut usage, mut now, mut before) = (Usage::default(), Duration::ZERO, Duration::ZERO);
            for (pause, samples) in readings {
                now += Duration::from_millis(pause);
                let sample = |(process, session, added, waits, _)| Sample {
                    time: DeviceTime { added, waits, ..DeviceTime::default() },
                    ..sample(process, session, 0, 0)
                };
                for of in samples.iter().filter(|of| of.4) {
                    usage.end(sample(*of));
                }
                let open = samples.iter().filter(|of| !of.4).map(|of| sample(*of));
                let total = usage.read(now, open).get(&CARD).copied().unwrap_or_default();
                prop_assert!(total >= before && total <= now, "{before:?} {total:?} {now:?}");
                before = total;
            }
        }
    }
}
