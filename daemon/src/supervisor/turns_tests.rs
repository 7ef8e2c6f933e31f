//! Leases take turns on a simulated device that runs kernels of several lengths, and gives parallel native contexts
//! time slices.

use proptest::prelude::*;

use super::*;

const TICK: u64 = 1_000_000;
/// Step of the simulation.
const STEP: u64 = 100_000;

/// A lease that launches kernels of one length, one after the other.
#[derive(Clone, Debug)]
struct Lease {
    time: u32,
    is_strict: bool,
    kernel: u64,
    /// When it launches: always, or in periods of this length with a pause as long.
    period: Option<u64>,
    /// Time that it needs before the next launch after so many kernels.
    delay: u64,
    every: u64,
    ready: u64,
    /// Rest of the kernel that runs.
    runs: Option<u64>,
    /// Device time, and busy time as its worker counts it: at the end of each kernel.
    device: u64,
    used: u64,
    begun: u64,
    /// Whether only transfers are under way, always.
    transfers: bool,
    asked: u64,
    waits: bool,
}

fn lease(time: u32, kernel: u64) -> Lease {
    Lease {
        time,
        is_strict: false,
        kernel,
        period: None,
        delay: 0,
        every: 16,
        ready: 0,
        runs: None,
        device: 0,
        used: 0,
        begun: 0,
        transfers: false,
        asked: 0,
        waits: false,
    }
}

/// Runs the leases for `length`. Returns the time for which the device was idle although a lease wanted it.
fn run(leases: &mut [Lease], length: u64) -> u64 {
    let mut turns = Turns::default();
    let (mut now, mut idle, mut allowed) = (0, 0, BTreeSet::new());
    while now < length {
        if now % TICK == 0 {
            let parties = (0..).zip(&*leases).map(|(key, lease)| {
                let party = Party {
                    time: lease.time,
                    is_strict: lease.is_strict,
                    used: lease.used,
                    asked: lease.asked,
                    waits: lease.waits,
                    is_under_way: lease.runs.is_some() || lease.transfers,
                };
                (key, party)
            });
            allowed = turns.tick(now, &parties.collect());
        }
        let mut running = 0;
        for (key, lease) in (0..).zip(&mut *leases) {
            let wants = lease.period.is_none_or(|period| now / period % 2 == 0);
            let wants = wants && now >= lease.ready && !lease.transfers;
            lease.waits = lease.runs.is_none() && wants && !allowed.contains(&key);
            if lease.runs.is_none() && wants && !lease.waits {
                (lease.runs, lease.begun) = (Some(lease.kernel), now);
                lease.asked += 1;
            }
            running += u64::from(lease.runs.is_some());
        }
        let waits = leases.iter().any(|lease| lease.waits);
        idle += if running == 0 && waits { STEP } else { 0 };
        for lease in &mut *leases {
            if let Some(rest) = lease.runs {
                // Contexts that run at the same time get slices.
                let slice = STEP / running;
                lease.device += slice;
                lease.runs = rest.checked_sub(slice).filter(|rest| *rest > 0);
                if lease.runs.is_none() {
                    lease.used += now + STEP - lease.begun;
                }
                let is_slow = lease.runs.is_none() && lease.asked % lease.every == 0;
                lease.ready = if is_slow {
                    now + lease.delay
                } else {
                    lease.ready
                };
            }
        }
        now += STEP;
    }
    idle
}

fn percent(lease: &Lease, length: u64) -> f64 {
    lease.device as f64 * 100.0 / length as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For kernels of up to 10 ms, the parts are within 5 points, and little time is lost.
    #[test]
    fn parts_are_kept_while_all_want_the_device(time in 10..91_u32, kernels in (STEP..10_000_000, STEP..10_000_000_u64)) {
        let mut leases = [lease(time, kernels.0), lease(100 - time, kernels.1)];
        let length = 10_000_000_000;
        let idle = run(&mut leases, length);
        let device: u64 = leases.iter().map(|lease| lease.device).sum();
        let part = percent(&leases[0], device);
        prop_assert!((part - f64::from(time)).abs() < 5.0, "{part} instead of {time}");
        prop_assert!(idle < length / 20, "idle for {idle}");
    }

    /// A slow machine makes a lease look quiet now and then. That costs it nothing of its part.
    #[test]
    fn parts_are_kept_on_a_slow_machine(time in 20..81_u32, delay in 0..8_000_000_u64) {
        let mut leases = [lease(time, 3_000_000), lease(100 - time, 3_000_000)];
        for lease in &mut leases {
            lease.delay = delay;
        }
        let length = 10_000_000_000;
        run(&mut leases, length);
        let device: u64 = leases.iter().map(|lease| lease.device).sum();
        let part = percent(&leases[0], device);
        prop_assert!((part - f64::from(time)).abs() < 5.0, "{part} instead of {time}");
    }

    #[test]
    fn a_strict_party_gets_its_part_and_no_more(time in 10..91_u32, kernel in STEP..10_000_000_u64) {
        let mut leases = [Lease { is_strict: true, ..lease(time, kernel) }];
        let length = 10_000_000_000;
        run(&mut leases, length);
        let part = percent(&leases[0], length);
        prop_assert!((part - f64::from(time)).abs() < 5.0, "{part} instead of {time}");
    }

    /// A lease that rests saves nothing up and loses nothing.
    #[test]
    fn nobody_starves(
        times in proptest::collection::vec(1..50_u32, 2..6),
        period in 50_000_000..1_000_000_000_u64,
    ) {
        let mut leases: Vec<Lease> = times.iter().map(|time| lease(*time, 1_000_000)).collect();
        leases[0].period = Some(period / STEP * STEP);
        let length = 20_000_000_000;
        let idle = run(&mut leases, length);
        prop_assert!(idle < length / 10, "idle for {idle}");
        let all: u32 = times.iter().sum();
        for lease in &leases[1..] {
            let part = percent(lease, length);
            let least = f64::from(lease.time) * 100.0 / f64::from(all);
            prop_assert!(part > least * 0.8 - 2.0, "{part} of at least {least}");
        }
    }
}

/// Parts that add up to little are kept as well as those that add up to 100.
#[test]
fn small_parts_are_kept_beside_a_lease_that_rests_now_and_then() {
    for period in [60_000_000, 124_800_000, 500_000_000] {
        let mut leases = [(); 3].map(|()| lease(1, 1_000_000));
        leases[0].period = Some(period);
        let length = 20_000_000_000;
        run(&mut leases, length);
        let [one, other] = [&leases[1], &leases[2]].map(|lease| percent(lease, length));
        assert!((one - other).abs() < 2.0, "{one} and {other} of {period}");
    }
}

#[test]
fn a_party_alone_is_never_held_back() {
    let mut leases = [lease(10, 2_000_000)];
    let mut turns = Turns::default();
    for now in (0..1000).map(|n| n * TICK) {
        let alone = Party {
            time: 10,
            used: now,
            asked: now,
            is_under_way: true,
            ..Party::default()
        };
        let rests = Party {
            time: 90,
            ..Party::default()
        };
        let allowed = turns.tick(now, &[(0, alone), (1, rests)].into());
        assert_eq!(allowed, [0, 1].into());
    }
    assert_eq!(run(&mut leases, WINDOW), 0);
    assert_eq!(leases[0].device, WINDOW);
}

#[test]
fn a_kernel_that_does_not_end_keeps_the_others_from_the_device_for_a_while_only() {
    let mut leases = [lease(50, 60 * WINDOW), lease(50, STEP)];
    run(&mut leases, 20 * WINDOW);
    // Some of the time is that in which the device runs both.
    assert!(leases[1].device > 2 * WINDOW, "{}", leases[1].device);
}

#[test]
fn a_lease_that_uses_the_device_seldom_keeps_nobody_from_it() {
    // The first one pauses for 3 ms after each kernel of 0.1 ms, so it always seems to want the device.
    let mut leases = [lease(50, STEP), lease(50, 1_000_000)];
    leases[0].delay = 3_000_000;
    leases[0].every = 1;
    run(&mut leases, 100 * WINDOW);
    let part = percent(&leases[1], 100 * WINDOW);
    assert!(part > 30.0, "{part}");
}

#[test]
fn transfers_alone_ask_for_no_turn() {
    let mut leases = [lease(50, STEP), lease(50, 1_000_000)];
    leases[0].transfers = true;
    run(&mut leases, 20 * WINDOW);
    assert!(percent(&leases[1], 20 * WINDOW) > 95.0);
}

#[test]
fn a_worker_that_lies_harms_only_itself() {
    let mut turns = Turns::default();
    let mut launched = [0_u64; 2];
    for n in 0..2_000_u64 {
        let lies = Party {
            time: 50,
            used: if n % 2 == 0 { u64::MAX } else { 0 },
            asked: n,
            waits: true,
            ..Party::default()
        };
        let honest = Party {
            used: launched[1] * TICK,
            ..lies
        };
        let allowed = turns.tick(n * TICK, &[(0, lies), (1, honest)].into());
        for (key, launched) in (0..).zip(&mut launched) {
            *launched += u64::from(allowed.contains(&key));
        }
    }
    assert!(launched[1] > 600, "{launched:?}");
}
