//! Tests of the pacer on a simulated network.

use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

/// A network with a queue in front of it, and lanes that always have bytes to send.
struct Link {
    capacity: f64,
    least: Duration,
    queue: f64,
    most_queue: f64,
    // Delay in seconds that other traffic adds to the queue.
    foreign: f64,
}

struct Sender {
    pacer: Pacer,
    rate: Option<u64>,
    acknowledged: f64,
    // Relative demand while the sender is not paced, and the time at which it starts.
    weight: f64,
    from: Duration,
}

impl Sender {
    fn new() -> Sender {
        Sender {
            pacer: Pacer::default(),
            rate: None,
            acknowledged: 0.0,
            weight: 2.0,
            from: Duration::ZERO,
        }
    }
}

impl Link {
    fn new(capacity: f64, least: Duration) -> Link {
        Link {
            capacity,
            least,
            queue: 0.0,
            most_queue: 512e3,
            foreign: 0.0,
        }
    }

    // One time step. Unpaced demand exceeds the capacity.
    fn step(&mut self, senders: &mut [Sender], now: Instant, time: Duration, total: Duration) {
        let wishes: Vec<f64> = senders
            .iter()
            .map(|sender| {
                let wish = sender.weight * self.capacity;
                match sender.rate {
                    _ if total <= sender.from => 0.0,
                    Some(rate) => wish.min(rate as f64),
                    None => wish,
                }
            })
            .collect();
        let wished: f64 = wishes.iter().sum();
        let seconds = time.as_secs_f64();
        let arrived = wished * seconds;
        let before = self.queue;
        let served = (self.capacity * seconds).min(before + arrived);
        self.queue = (before + arrived - served).min(self.most_queue);
        let waiting = Duration::from_secs_f64(self.queue / self.capacity + self.foreign);
        for (sender, wish) in senders.iter_mut().zip(&wishes) {
            let Some(busy) = total
                .checked_sub(sender.from)
                .filter(|busy| !busy.is_zero())
            else {
                continue;
            };
            sender.acknowledged += served * wish / wished;
            let reading = Reading {
                round_trip: self.least + waiting,
                least: self.least,
                acknowledged: sender.acknowledged as u64,
                busy,
            };
            sender.rate = sender.pacer.look(now, reading);
        }
    }
}

// Returns the utilisation of the network and its queueing delays in the second half of `steps`.
fn run(
    link: &mut Link,
    senders: &mut [Sender],
    steps: u32,
    step: Duration,
) -> (f64, Vec<Duration>) {
    let begun = Instant::now();
    let mut queues = Vec::new();
    let mut half = 0.0;
    let sum = |senders: &[Sender]| senders.iter().map(|of| of.acknowledged).sum::<f64>();
    for at in 1..=steps {
        let total = step * at;
        link.step(senders, begun + total, step, total);
        if at == steps / 2 {
            half = sum(senders);
        }
        if at > steps / 2 {
            queues.push(Duration::from_secs_f64(link.queue / link.capacity));
        }
    }
    queues.sort();
    let could = link.capacity * step.as_secs_f64() * f64::from(steps - steps / 2);
    ((sum(senders) - half) / could, queues)
}

proptest! {
    #[test]
    fn the_queue_becomes_short_and_the_link_stays_full(
        mbit in 50f64..4000.0,
        least_us in 50u64..20_000,
        lanes in 1usize..4,
        step_ms in 6u64..25,
    ) {
        let mut link = Link::new(mbit * 125e3, Duration::from_micros(least_us));
        // Deep enough to matter: 8 ms.
        link.most_queue = link.capacity * 8e-3;
        let mut senders: Vec<Sender> = (0..lanes).map(|_| Sender::new()).collect();
        prop_assume!(link.capacity < FAST as f64);
        let (full, queues) = run(&mut link, &mut senders, 400, Duration::from_millis(step_ms));
        prop_assert!(full > 0.93, "{full}");
        let median = queues[queues.len() / 2];
        prop_assert!(median < 2 * MS, "{median:?}");
        prop_assert!(queues[queues.len() * 9 / 10] < 4 * MS, "{:?}", queues[queues.len() * 9 / 10]);
    }

    // The first lane has the whole network before the others begin, and unpaced lanes have unequal
    // shares.
    #[test]
    fn unequal_lanes_find_rates_that_fit_the_link(
        mbit in 100f64..2000.0,
        least_us in 50u64..5_000,
        later in prop::collection::vec((1.1f64..4.0, 0u32..20), 1..4),
        step_ms in 6u64..25,
    ) {
        let step = Duration::from_millis(step_ms);
        let mut link = Link::new(mbit * 125e3, Duration::from_micros(least_us));
        link.most_queue = link.capacity * 5e-3;
        let mut senders = vec![Sender::new()];
        for (weight, from) in later {
            let from = step * from;
            senders.push(Sender { weight, from, ..Sender::new() });
        }
        let begun = Instant::now();
        for at in 1..=400 {
            let total = step * at;
            link.step(&mut senders, begun + total, step, total);
            for sender in &senders {
                prop_assert!(sender.pacer.alone.is_none(), "given up at {at}");
            }
        }
        let before: f64 = senders.iter().map(|sender| sender.acknowledged).sum();
        let mut queues = Vec::new();
        for at in 401..=600 {
            let total = step * at;
            link.step(&mut senders, begun + total, step, total);
            queues.push(Duration::from_secs_f64(link.queue / link.capacity));
        }
        let after: f64 = senders.iter().map(|sender| sender.acknowledged).sum();
        let full = (after - before) / (link.capacity * (step * 200).as_secs_f64());
        prop_assert!(full > 0.93, "{full}");
        queues.sort();
        prop_assert!(queues[100] < 2 * MS, "{:?}", queues[100]);
        prop_assert!(queues[180] < 4 * MS, "{:?}", queues[180]);
    }

    #[test]
    fn no_reading_brings_a_rate_below_the_least_share(
        readings in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>()), 1..200),
    ) {
        let mut pacer = Pacer::default();
        let mut now = Instant::now();
        for (round_trip, least, acknowledged, busy) in readings {
            now += SAMPLE;
            let rate = pacer.look(now, Reading {
                round_trip: Duration::from_micros(round_trip.into()),
                least: Duration::from_micros(least.into()),
                acknowledged,
                busy: Duration::from_micros(busy),
            });
            if let (Some(rate), Some(paced)) = (rate, pacer.paced) {
                prop_assert!(rate >= 1);
                let least = percent(paced.unpaced, LEAST_SHARE);
                prop_assert!(rate >= least, "{rate} < {least}");
                prop_assert!(paced.unpaced >= paced.before / LEAST_PART);
            }
        }
    }
}

#[test]
fn a_short_queue_is_left_alone() {
    let mut link = Link::new(125e6, Duration::from_micros(200));
    link.most_queue = link.capacity * 0.9e-3;
    let mut senders = [Sender::new(), Sender::new()];
    run(&mut link, &mut senders, 100, 10 * MS);
    assert!(senders.iter().all(|sender| sender.rate.is_none()));
}

#[test]
fn a_queue_of_others_costs_little_and_not_for_long() {
    let mut link = Link::new(125e6, Duration::from_micros(200));
    link.foreign = 4e-3;
    let mut senders = [Sender::new()];
    let mut unpaced = 0;
    let begun = Instant::now();
    for at in 1..=600 {
        let total = 10 * MS * at;
        link.step(&mut senders, begun + total, 10 * MS, total);
        unpaced += u32::from(senders[0].rate.is_none());
    }
    assert!(unpaced > 400, "{unpaced}");
}

#[test]
fn a_short_queue_of_others_costs_little_and_not_for_long() {
    // A little longer than tolerated, so that the rate falls slowly.
    let mut link = Link::new(125e6, Duration::from_micros(200));
    link.foreign = 1.2e-3;
    let mut senders = [Sender::new()];
    let (full, _) = run(&mut link, &mut senders, 3000, 10 * MS);
    assert!(full > 0.85, "{full}");
}

#[test]
fn without_commands_nothing_is_remembered() {
    let mut link = Link::new(125e6, Duration::from_micros(200));
    let mut senders = [Sender::new()];
    run(&mut link, &mut senders, 50, 10 * MS);
    assert!(senders[0].rate.is_some());
    senders[0].pacer.rest();
    assert_eq!(senders[0].pacer.rate(), None);
}

#[test]
fn a_lane_whose_neighbour_has_ended_takes_the_link() {
    let mut link = Link::new(125e6, Duration::from_micros(200));
    let mut senders = vec![Sender::new(), Sender::new()];
    run(&mut link, &mut senders, 200, 10 * MS);
    let mut one = vec![senders.remove(0)];
    one[0].pacer.before = None;
    one[0].acknowledged = 0.0;
    let (full, _) = run(&mut link, &mut one, 200, 10 * MS);
    assert!(full > 0.93, "{full}");
}

#[test]
fn commands_are_seen_and_a_transfers_own_are_not() {
    let (beside, mut crossing) = (Beside::default(), Crossing::default());
    let mut now = Instant::now();
    let mut look = |now, batches, transfers| {
        for _ in 0..batches {
            beside.note_batch();
        }
        for _ in 0..transfers {
            beside.note_transfer();
        }
        crossing.look(now, &beside)
    };
    assert!(!look(now, 50, 0), "what was before counts not");
    for _ in 0..10 {
        now += WATCH / 2;
        assert!(!look(now, 4, 4));
    }
    now += WATCH / 2;
    assert!(look(now, 4, 1));
    now += LINGER / 2;
    assert!(look(now, 0, 0));
    now += LINGER;
    assert!(!look(now, 0, 0));
    now += 100 * WATCH;
    assert!(!look(now, 20, 0), "few in a long time");
}
