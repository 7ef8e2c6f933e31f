use std::sync::mpsc;

use super::*;

const DEVICE: DeviceKey = (PlatformIndex(0), DeviceIndex(0));

fn session(devices: &Devices, device: DeviceKey) -> Arc<QueuePace> {
    QueuePace::new(devices.pace(device, None))
}

fn launch(queue: &Arc<QueuePace>, cost: &Arc<Cost>) -> Option<Ticket> {
    // Another thread's launch: counted, not held back.
    queue.enter(&Kind::Launch(cost), None::<fn()>)
}

/// The driver ends other work while the session's commands are in it, so their time is exact.
fn notice_an_end(queue: &QueuePace) {
    queue.pace.device.last_end.0.store(now(), Ordering::Relaxed);
}

#[test]
fn a_session_is_measured_only_beside_others_on_its_device() {
    let devices = Devices::default();
    let cost = Arc::default();
    let one = session(&devices, DEVICE);
    let elsewhere = session(&devices, (PlatformIndex(0), DeviceIndex(1)));
    assert!(launch(&one, &cost).is_none() && launch(&elsewhere, &cost).is_none());
    let other = session(&devices, DEVICE);
    assert!(launch(&one, &cost).is_some() && launch(&other, &cost).is_some());
    drop(other);
    assert!(launch(&one, &cost).is_none());
}

#[test]
fn a_full_window_waits_for_an_end_after_a_flush() {
    let devices = Devices::default();
    let (one, other) = (session(&devices, DEVICE), session(&devices, DEVICE));
    other.pace.uses(now());
    let cost: Arc<Cost> = Arc::default();
    cost.0.store(u64::MAX / 4, Ordering::Relaxed);
    let first = launch(&one, &cost).unwrap();
    assert!(first.is_full());
    let (flushed, flushes) = mpsc::channel();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let _mark = crate::runtime::watch::Enqueuing::begin();
            let flush = || flushed.send(()).unwrap();
            one.enter(&Kind::Launch(&cost), Some(flush)).is_some()
        });
        flushes.recv().unwrap();
        assert!(!waits.is_finished());
        first.end();
        assert!(waits.join().unwrap());
    });
    assert!(
        cost.0.load(Ordering::Relaxed) < u64::MAX / 4,
        "the end was measured"
    );
    assert!(one.pace.state.lock().window.is_empty());
}

#[test]
fn the_end_of_a_session_ends_its_wait() {
    let devices = Devices::default();
    let (one, other) = (session(&devices, DEVICE), session(&devices, DEVICE));
    other.pace.uses(now());
    let cost: Arc<Cost> = Arc::default();
    cost.0.store(u64::MAX / 4, Ordering::Relaxed);
    let _first = launch(&one, &cost).unwrap();
    let (flushed, flushes) = mpsc::channel();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let _mark = crate::runtime::watch::Enqueuing::begin();
            drop(one.enter(&Kind::Launch(&cost), Some(|| flushed.send(()).unwrap())));
        });
        flushes.recv().unwrap();
        one.pace.leave();
        waits.join().unwrap();
    });
}

#[test]
fn commands_of_one_group_share_a_ticket() {
    let devices = Devices::default();
    let (one, other) = (session(&devices, DEVICE), session(&devices, DEVICE));
    other.pace.uses(now());
    let costs: [Arc<Cost>; KINDS + 2] = std::array::from_fn(|_| Arc::default());
    for cost in &costs {
        cost.0.store(100, Ordering::Relaxed);
    }
    let mut group = launch(&one, &costs[0]).unwrap();
    for cost in &costs {
        group.add(launch(&one, cost).unwrap());
    }
    assert!(!group.is_full(), "many kinds do not fill a group");
    assert_eq!(group.commands as usize, costs.len() + 1);
    notice_an_end(&one);
    group.end();
    assert!(one.pace.state.lock().window.is_empty());
    let is_known = |cost: &Arc<Cost>| cost.0.load(Ordering::Relaxed) != 100;
    let count = costs.iter().filter(|cost| is_known(cost)).count();
    assert_eq!(count, KINDS, "the first kinds were measured");
}

#[test]
fn a_new_kernel_is_estimated_as_the_mean_of_the_session() {
    let devices = Devices::default();
    let (one, _other) = (session(&devices, DEVICE), session(&devices, DEVICE));
    let first = launch(&one, &Arc::default()).unwrap();
    notice_an_end(&one);
    first.end();
    let mean = one.pace.mean.known();
    let second = launch(&one, &Arc::default()).unwrap();
    assert_eq!(Some(second.estimate), mean);
}

#[test]
fn nothing_is_learned_while_the_device_may_have_been_idle() {
    let devices = Devices::default();
    let (one, _other) = (session(&devices, DEVICE), session(&devices, DEVICE));
    let cost = Arc::default();
    launch(&one, &cost).unwrap().end();
    assert_eq!((cost.known(), one.pace.mean.known()), (None, None));
}

#[test]
fn a_wait_for_another_device_is_not_learned() {
    let devices = Devices::default();
    let (one, _other) = (session(&devices, DEVICE), session(&devices, DEVICE));
    let cost = Arc::default();
    let mut ticket = launch(&one, &cost).unwrap();
    ticket.waits_elsewhere();
    notice_an_end(&one);
    ticket.end();
    assert_eq!((cost.known(), one.pace.mean.known()), (None, None));
}

#[test]
fn a_quiet_session_counts_as_such_after_a_while() {
    let devices = Devices::default();
    let (one, other) = (session(&devices, DEVICE), session(&devices, DEVICE));
    let device = &one.pace.device;
    let active = || device.active.load(Ordering::Relaxed);
    let of_one = launch(&one, &Arc::default());
    drop(launch(&other, &Arc::default()));
    assert_eq!(active(), 2);
    device.look(now() + 2 * QUIET);
    assert_eq!(active(), 1, "a session with unfinished work is not quiet");
    drop(of_one);
    device.look(now() + 4 * QUIET);
    assert_eq!(active(), 0);
    drop(launch(&other, &Arc::default()));
    assert_eq!(active(), 1);
    drop(other);
    assert_eq!(active(), 0);
}
