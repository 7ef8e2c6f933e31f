//! Tests both sides of a page in one process: a ledger, and slots that are adopted from its descriptor.

use std::os::fd::OwnedFd;

use proptest::prelude::*;

use super::*;

/// Returns the worker's side of an entry.
fn slot(entry: &LedgerEntry) -> LedgerSlot {
    let page: OwnedFd = entry.page().try_clone_to_owned().unwrap();
    LedgerSlot::adopt(&page, entry.number()).unwrap()
}

#[test]
fn what_a_worker_counted_outlives_it() {
    let ledger = Ledger::new(2).unwrap();
    let (first, second) = (ledger.enter().unwrap(), ledger.enter().unwrap());
    assert!(ledger.enter().is_none(), "there are two slots");
    let (one, two) = (slot(&first), slot(&second));
    one.add(Counter::Commands, 5);
    one.add(Counter::FromClient, 100);
    one.note_ending(Cause::Violation);
    two.add(Counter::Commands, 1);
    two.add(Counter::ToNodes, 10);
    assert_eq!(first.ending(), Some(Cause::Violation));
    assert_eq!(second.ending(), None);
    let both = ledger.figures();
    assert_eq!((both.commands, both.bytes()), (6, 110));
    drop(first);
    assert_eq!(ledger.figures(), both);
    // The next session in the slot starts from zero.
    let third = ledger.enter().unwrap();
    assert_eq!((third.number(), third.ending()), (0, None));
    assert_eq!(third.figures(), Figures::default());
    slot(&third).add(Counter::Commands, 1);
    assert_eq!(ledger.figures().commands, 7);
}

#[test]
fn the_next_worker_of_a_session_needs_no_other_slot() {
    let ledger = Ledger::new(1).unwrap();
    let mut entry = ledger.enter().unwrap();
    let before = slot(&entry);
    before.add(Counter::Commands, 5);
    assert!(before.hold(0, 60, 100));
    entry.begin_anew();
    assert_eq!(entry.figures(), Figures::default());
    assert_eq!(ledger.figures().commands, 5);
    let next = slot(&entry);
    assert!(
        next.hold(0, 100, 100),
        "the memory of the worker before is free"
    );
    next.add(Counter::Commands, 2);
    assert_eq!(ledger.figures().commands, 7);
    assert!(ledger.enter().is_none());
    drop(entry);
    assert_eq!(ledger.figures().commands, 7);
}

#[test]
fn what_was_read_never_becomes_less() {
    let ledger = Ledger::new(1).unwrap();
    let entry = ledger.enter().unwrap();
    let worker = slot(&entry);
    worker.add(Counter::Builds, 9);
    assert_eq!(ledger.figures().builds, 9);
    // A compromised worker may do this.
    worker.add(Counter::Builds, u64::MAX);
    assert_eq!(entry.figures().builds, 9);
    drop(entry);
    assert_eq!(ledger.figures().builds, 9);
}

#[test]
fn a_limit_holds_for_all_sessions_of_a_lease() {
    let ledger = Ledger::new(3).unwrap();
    let (first, second) = (ledger.enter().unwrap(), ledger.enter().unwrap());
    let (one, two) = (slot(&first), slot(&second));
    assert!(one.hold(0, 60, 100));
    assert!(!two.hold(0, 41, 100), "the lease has 40 left");
    assert!(two.hold(0, 40, 100));
    assert!(two.hold(1, 100, 100), "another device");
    assert!(!one.hold(0, 1, 100));
    assert!(!one.hold(0, u64::MAX, 100));
    two.give_back(0, 40);
    assert!(one.hold(0, 10, 100));
    // A killed worker releases nothing itself. Dropping its entry does.
    drop(first);
    assert!(two.hold(0, 100, 100));
}

#[test]
fn sessions_that_race_never_have_more_than_the_limit() {
    const LIMIT: u64 = 10;
    let ledger = Ledger::new(4).unwrap();
    let entries: Vec<_> = (0..4).map(|_| ledger.enter().unwrap()).collect();
    // Bytes that sessions really hold. The slots may show more for a moment, never less.
    let given = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for entry in &entries {
            let (worker, given) = (slot(entry), &given);
            scope.spawn(move || {
                for size in (1..=7).cycle().take(20_000) {
                    if worker.hold(3, size, LIMIT) {
                        let before = given.fetch_add(size, Ordering::SeqCst);
                        assert!(before + size <= LIMIT);
                        given.fetch_sub(size, Ordering::SeqCst);
                        worker.give_back(3, size);
                    }
                }
            });
        }
    });
    // No bytes were lost or released twice.
    let worker = slot(&entries[0]);
    assert!(worker.hold(3, LIMIT, LIMIT) && !worker.hold(3, 1, LIMIT));
}

#[test]
fn memory_that_can_be_resized_is_not_taken() {
    let made = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&made, 1 << 16).unwrap();
    assert!(matches!(
        LedgerSlot::adopt(&made, 0),
        Err(PageError::Unsealed)
    ));
    let ledger = Ledger::new(1).unwrap();
    let entry = ledger.enter().unwrap();
    let page = entry.page().try_clone_to_owned().unwrap();
    assert!(matches!(
        LedgerSlot::adopt(&page, 1),
        Err(PageError::NoSlot)
    ));
}

proptest! {
    /// Compares with a plain list of what each session holds.
    #[test]
    fn holding_is_adding_up(steps in proptest::collection::vec((0..3_usize, 0..2_usize, 1..50_u64, any::<bool>()), 0..200)) {
        const LIMIT: u64 = 100;
        let ledger = Ledger::new(3).unwrap();
        let mut sessions: Vec<_> = (0..3)
            .map(|_| ledger.enter().unwrap())
            .map(|entry| (slot(&entry), entry, Vec::<(usize, u64)>::new()))
            .collect();
        for (session, device, size, holds) in steps {
            let held: u64 = sessions.iter().flat_map(|of| &of.2).filter(|of| of.0 == device).map(|of| of.1).sum();
            let (worker, _, mine) = &mut sessions[session];
            if holds {
                let fits = held + size <= LIMIT;
                prop_assert_eq!(worker.hold(device, size, LIMIT), fits);
                if fits {
                    mine.push((device, size));
                }
            } else if let Some((device, size)) = mine.pop() {
                worker.give_back(device, size);
            }
        }
    }
}
