//! Sessions with windows on simulated devices: nobody starves, no time is lost, equal sessions get equal parts, and
//! a single launch waits for no flood.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// How a simulated device serves the queues of the sessions.
#[derive(Clone, Copy, Debug)]
enum Serves {
    /// In the order in which the commands came.
    InOrder,
    /// One command of each session in turn.
    InTurn,
}

/// A session that always has commands of one length.
struct Flood {
    length: u64,
    estimate: Option<u64>,
    window: Window,
    done: u64,
    /// The longest time without an end.
    gap: u64,
    last: u64,
}

/// A simulated device. The driver notices an end `late` nanoseconds after it.
struct Device {
    serves: Serves,
    late: u64,
    /// The driver notices ends together, in this period.
    period: u64,
    now: u64,
    idle: u64,
    waiting: VecDeque<(usize, u64, u64)>,
    /// Ends to be noticed: when, whose, the estimate, and when the command began.
    ends: VecDeque<(u64, usize, u64, u64)>,
    turn: usize,
    previous: u64,
}

impl Device {
    fn new(serves: Serves, late: u64) -> Device {
        Device {
            serves,
            late,
            period: 1,
            now: 0,
            idle: 0,
            waiting: VecDeque::new(),
            ends: VecDeque::new(),
            turn: 0,
            previous: 0,
        }
    }

    fn next(&mut self, sessions: usize) -> Option<(usize, u64, u64)> {
        if let Serves::InTurn = self.serves {
            for of in (0..sessions).map(|n| (self.turn + n) % sessions) {
                if let Some(place) = self.waiting.iter().position(|(who, ..)| *who == of) {
                    self.turn = of + 1;
                    return self.waiting.remove(place);
                }
            }
        }
        self.waiting.pop_front()
    }

    /// Lets all sessions begin what they may, then runs one command or waits for one to be noticed.
    fn step(&mut self, floods: &mut [Flood], limit: Limit) {
        while self.ends.front().is_some_and(|(at, ..)| *at <= self.now) {
            let Some((at, who, estimate, begun)) = self.ends.pop_front() else {
                return;
            };
            let flood = &mut floods[who];
            flood.window.end(1, estimate);
            let time = measured(begun, self.previous, at);
            let idle = was_idle(begun, self.previous);
            self.previous = at;
            let now = scaled(estimate, estimate, time);
            flood.estimate = adjusted(flood.estimate, now, idle);
        }
        for (who, flood) in floods.iter_mut().enumerate() {
            let estimate = flood.estimate;
            let estimate = estimate.unwrap_or_else(|| unknown(limit));
            if flood
                .window
                .has_room(estimate, limit, flood.window.commands)
            {
                flood.window.has_waited(estimate, limit);
            }
            while flood
                .window
                .has_room(estimate, limit, flood.window.commands)
            {
                flood.window.begin(estimate);
                self.waiting.push_back((who, estimate, self.now));
            }
        }
        match self.next(floods.len()) {
            Some((who, estimate, begun)) => {
                let flood = &mut floods[who];
                self.now += flood.length;
                flood.done += flood.length;
                flood.gap = flood.gap.max(self.now - flood.last);
                flood.last = self.now;
                let noticed = (self.now + self.late).next_multiple_of(self.period);
                self.ends.push_back((noticed, who, estimate, begun));
            }
            None => {
                let next = self.ends.front().map_or(self.now, |(at, ..)| *at);
                self.idle += next.saturating_sub(self.now);
                self.now = self.now.max(next);
            }
        }
    }
}

fn floods(lengths: &[u64]) -> Vec<Flood> {
    let flood = |length: &u64| Flood {
        length: *length,
        estimate: None,
        window: Window::default(),
        done: 0,
        gap: 0,
        last: 0,
    };
    lengths.iter().map(flood).collect()
}

fn serves() -> impl Strategy<Value = Serves> {
    prop_oneof![Just(Serves::InOrder), Just(Serves::InTurn)]
}

/// 1 if all parts are equal.
fn jain(parts: &[u64]) -> f64 {
    let sum: f64 = parts.iter().map(|part| *part as f64).sum();
    let squares: f64 = parts.iter().map(|part| (*part as f64).powi(2)).sum();
    sum * sum / (parts.len() as f64 * squares)
}

proptest! {
    #[test]
    fn equal_sessions_get_equal_parts(serves in serves(), count in 2..9_usize, length in 500..5_000_000_u64) {
        let mut all = floods(&vec![length; count]);
        let limit = limit(count, count).unwrap();
        let mut device = Device::new(serves, 10_000);
        // Long enough for some windows of each session, also of the shortest commands.
        let window = (limit.time / length).min(COMMANDS.into());
        for _ in 0..3000 + 10 * count as u64 * window {
            device.step(&mut all, limit);
        }
        let done: Vec<u64> = all.iter().map(|flood| flood.done).collect();
        prop_assert!(jain(&done) >= 0.95, "{done:?}");
    }

    /// No session waits for longer than all windows and one command of each session together, and the device is idle
    /// only while the lengths are still unknown.
    #[test]
    fn nobody_starves_and_no_time_is_lost(
        serves in serves(),
        lengths in proptest::collection::vec(500..5_000_000_u64, 2..9),
    ) {
        let mut all = floods(&lengths);
        let limit = limit(lengths.len(), lengths.len()).unwrap();
        let late = 5_000;
        let mut device = Device::new(serves, late);
        let learn = 50 * lengths.len();
        for _ in 0..learn {
            device.step(&mut all, limit);
        }
        let (idle, begun) = (device.idle, device.now);
        for flood in &mut all {
            (flood.gap, flood.last) = (0, begun);
        }
        for _ in 0..3000 {
            device.step(&mut all, limit);
        }
        let count = lengths.len() as u64;
        let all_windows = 2 * (lengths.iter().sum::<u64>() + count * (limit.time + late));
        for flood in &all {
            prop_assert!(flood.gap <= all_windows, "{} > {all_windows}", flood.gap);
        }
        let (idle, passed) = (device.idle - idle, device.now - begun);
        prop_assert!(idle <= passed / 20, "idle for {idle} of {passed}");
    }

    /// A launch that finds a flood waits for the window, or for the command that runs.
    #[test]
    fn a_single_launch_waits_for_no_flood(length in 500..5_000_000_u64) {
        let mut all = floods(&[length]);
        let limit = limit(2, 2).unwrap();
        let mut device = Device::new(Serves::InOrder, 10_000);
        for _ in 0..200 {
            device.step(&mut all, limit);
        }
        let ahead = device.waiting.len() as u64 * length;
        prop_assert!(ahead <= limit.time * 3 / 2 + length, "{ahead} ns ahead of {limit:?}");
    }

    /// Where ends are noticed seldom, as on a busy machine, windows of short commands grow, so the device has work.
    #[test]
    fn seldom_notice_costs_little_time(
        period in 1..1_500_000_u64,
        length in 2_000..40_000_u64,
        count in 2..4_usize,
    ) {
        let mut all = floods(&vec![length; count]);
        let limit = limit(count, count).unwrap();
        let mut device = Device {
            period,
            ..Device::new(Serves::InOrder, 5_000)
        };
        for _ in 0..2_000 {
            device.step(&mut all, limit);
        }
        let (idle, begun) = (device.idle, device.now);
        for _ in 0..20_000 {
            device.step(&mut all, limit);
        }
        let (idle, passed) = (device.idle - idle, device.now - begun);
        prop_assert!(idle <= passed / 3, "idle for {idle} of {passed}");
        prop_assert!(all.iter().all(|flood| flood.window.limit(limit).time <= LARGEST));
    }

    #[test]
    fn what_has_ended_leaves_nothing(times in proptest::collection::vec(0..u64::MAX / 2, 1..20)) {
        let mut window = Window::default();
        for time in &times {
            window.begin(*time);
        }
        for time in &times {
            window.end(1, *time);
        }
        // A sum that does not fit is cut, so the rest may be too small, but never too large.
        prop_assert!(window.is_empty() && window.ahead == 0);
        prop_assert!(window.has_room(u64::MAX, limit(2, 2).unwrap(), 0));
    }
}

#[test]
fn a_session_alone_is_not_held_back() {
    assert_eq!(limit(0, 0), None);
    assert_eq!(limit(1, 1), None);
    let time = |sessions, active| limit(sessions, active).map(|limit| limit.time);
    assert_eq!(time(2, 1), Some(20_000_000));
    assert_eq!(time(2, 2), Some(BESIDE_ACTIVE));
    assert_eq!(time(100, 100), Some(BESIDE_ACTIVE));
}

#[test]
fn a_session_beside_quiet_neighbours_may_have_many_commands() {
    let limit = limit(2, 1).unwrap();
    let mut window = Window::default();
    for in_queue in 0..BESIDE_QUIET.commands {
        assert!(window.has_room(50_000, limit, in_queue));
        window.begin(50_000);
    }
    assert!(!window.has_room(1, limit, BESIDE_QUIET.commands));
}

#[test]
fn each_queue_may_have_one_long_command() {
    let limit = limit(2, 2).unwrap();
    let mut window = Window::default();
    for _ in 0..QUEUES {
        assert!(window.has_room(1_000_000_000, limit, 0));
        window.begin(1_000_000_000);
        assert!(!window.has_room(1_000_000_000, limit, 1));
    }
    assert!(!window.has_room(1_000_000_000, limit, 0));
}

#[test]
fn a_long_copy_does_not_make_a_short_fill_long() {
    assert!(copied(1 << 30) > 100 * BESIDE_ACTIVE / 10);
    assert!(copied(4) * 100 < BESIDE_ACTIVE);
}
