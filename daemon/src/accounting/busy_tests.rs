//! Compares busy times with a plain list of intervals, and counts on several threads at once.

use proptest::prelude::*;

use super::*;
use crate::accounting::{Ledger, LedgerEntry};

const DEVICES_OF_NODE: [DeviceName; 2] = [DeviceName(0, 0), DeviceName(3, 1)];

fn sessions<const N: usize>() -> [(LedgerEntry, Arc<Busy>); N] {
    let ledger = Ledger::new(N as u32).unwrap();
    [(); N].map(|()| {
        let entry = ledger.enter().unwrap();
        let page = entry.page().try_clone_to_owned().unwrap();
        let slot = LedgerSlot::adopt(&page, entry.number()).unwrap();
        (entry, Busy::new(slot, DEVICES_OF_NODE))
    })
}

fn meters() -> [DeviceMeter; 2] {
    [DeviceMeter::new(0), DeviceMeter::new(1)]
}

/// A moment of a generated history: something begins, or the oldest thing under way ends.
#[derive(Clone, Copy, Debug)]
struct Moment {
    pause: u64,
    session: usize,
    device: usize,
    begins: bool,
}

fn history() -> impl Strategy<Value = Vec<Moment>> {
    let moment = (0..20_u64, 0..3_usize, 0..2_usize, any::<bool>());
    let moment = moment.prop_map(|(pause, session, device, begins)| Moment {
        pause,
        session,
        device,
        begins,
    });
    proptest::collection::vec(moment, 0..100)
}

proptest! {
    /// Between two moments, all time counts or none.
    #[test]
    fn busy_times_are_unions(history in history()) {
        let sessions = sessions::<3>();
        let meters = meters();
        let mut under_way = [[0_u64; 2]; 3];
        let mut busy = [[0_u64; 2]; 3];
        let mut device_busy = [0_u64; 2];
        let mut now = 1;
        let end_all = (0..600).map(|n| Moment { pause: 1, session: n % 3, device: n / 3 % 2, begins: false });
        for moment in history.into_iter().chain(end_all) {
            now += moment.pause;
            for device in 0..2 {
                for session in 0..3 {
                    busy[session][device] += moment.pause * under_way[session][device].min(1);
                }
                device_busy[device] += moment.pause * under_way.iter().map(|of| of[device]).sum::<u64>().min(1);
            }
            let count = &mut under_way[moment.session][moment.device];
            let (_, counts) = &sessions[moment.session];
            if moment.begins {
                *count += 1;
                counts.begin_at(&meters[moment.device], || now);
            } else if *count > 0 {
                *count -= 1;
                counts.end_at(&meters[moment.device], now);
            }
        }
        prop_assert_eq!(under_way, [[0; 2]; 3]);
        let (mut used, mut added) = ([0; 2], [0; 2]);
        for (session, (entry, _)) in sessions.iter().enumerate() {
            for (device, (name, time)) in entry.busy().enumerate() {
                prop_assert_eq!(name, DEVICES_OF_NODE[device]);
                prop_assert_eq!((time.busy, time.waits), (busy[session][device], 0));
                prop_assert!(time.used <= time.busy, "a session uses a device only while it is busy");
                used[device] += time.used;
                added[device] += time.added;
            }
        }
        prop_assert_eq!(added, device_busy);
        prop_assert!(used[0] <= added[0] && used[1] <= added[1]);
    }
}

#[test]
fn a_command_that_has_not_ended_counts_up_to_now() {
    let [(entry, busy)] = sessions();
    let meters = meters();
    assert!(entry.busy().all(|(_, time)| time == DeviceTime::default()));
    let begun = now();
    busy.begin(&meters[1]);
    while now() < begun + 2_000_000 {}
    let times: Vec<_> = entry.busy().map(|(_, time)| time).collect();
    assert_eq!(times[0], DeviceTime::default());
    assert!(times[1].busy >= 1_000_000 && times[1].waits == times[1].busy);
    assert_eq!(times[1].used, 0);
    busy.end(&meters[1]);
    let ended = busy.of(&meters[1]);
    assert!(ended.busy >= times[1].busy && ended.busy <= now() - begun);
    assert_eq!(
        (ended.waits, ended.used, ended.added),
        (0, ended.busy, ended.busy)
    );
}

#[test]
fn threads_never_count_more_time_than_has_passed() {
    let sessions = sessions::<2>();
    let meters = meters();
    let begun = now();
    std::thread::scope(|scope| {
        for (_, busy) in sessions.iter().chain(&sessions) {
            let meter = &meters[0];
            scope.spawn(move || {
                for _ in 0..20_000 {
                    busy.begin(meter);
                    busy.end(meter);
                }
            });
        }
    });
    let passed = now() - begun;
    let times = sessions.iter().flat_map(|(entry, _)| entry.busy());
    let times: Vec<_> = times
        .filter(|(name, _)| *name == DEVICES_OF_NODE[0])
        .collect();
    let used: u64 = times.iter().map(|(_, time)| time.used).sum();
    let added: u64 = times.iter().map(|(_, time)| time.added).sum();
    assert!(used > 0 && added > 0 && used.max(added) <= passed);
    for (_, time) in times {
        assert!(time.busy > 0 && time.busy <= passed && time.waits == 0);
    }
}

#[test]
fn a_long_command_is_not_charged_to_short_neighbours() {
    let [(_, long), (_, short)] = sessions();
    let meters = meters();
    long.begin_at(&meters[0], || 1_000);
    for n in 0..9 {
        short.begin_at(&meters[0], || 1_100 + n * 100);
        short.end_at(&meters[0], 1_110 + n * 100);
    }
    long.end_at(&meters[0], 2_000);
    assert_eq!(
        (short.of(&meters[0]).used, long.of(&meters[0]).used),
        (90, 910)
    );
}

#[test]
fn equal_sessions_that_are_always_busy_use_equal_parts() {
    let sessions = sessions::<4>();
    let meters = meters();
    for (_, busy) in &sessions {
        busy.begin_at(&meters[0], || 1_000);
        busy.begin_at(&meters[0], || 1_000);
    }
    // The device runs one command after the other, in turn.
    for n in 1..=400 {
        let (_, busy) = &sessions[n % 4];
        busy.end_at(&meters[0], 1_000 + n as u64 * 10);
        busy.begin_at(&meters[0], || 1_000 + n as u64 * 10);
    }
    let used = sessions
        .each_ref()
        .map(|(_, busy)| busy.of(&meters[0]).used);
    assert_eq!(used, [1_000; 4]);
}

#[test]
fn devices_without_words_are_not_counted() {
    let [(entry, busy)] = sessions();
    for place in [2, DEVICES, usize::MAX] {
        let beyond = DeviceMeter::new(place);
        busy.begin(&beyond);
        busy.end(&beyond);
        assert_eq!(busy.of(&beyond), DeviceTime::default());
    }
    assert_eq!(entry.busy().count(), 2);
}
