//! Tests that every store loads what was applied, across restarts.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;
use crate::identity::TokenId;
use crate::inventory::{DeviceClass, DeviceId, NodeId, Unit};
use crate::lease::UnitsMoved;
use crate::lease::change::{Absence, LeaseRow, NodeRow, UnitRow, WaitingRow};
use crate::lease::{Epoch, LeaseId};
use crate::policy::ledger::{Hour, UseRow};
use crate::policy::{Class, Policy, Quota, Subject};
use crate::time::{Span, Wall};

fn lease(n: u8) -> LeaseRow {
    let unit = Unit {
        device: DeviceId {
            platform: 0,
            device: u32::from(n),
        },
        share: 1,
    };
    LeaseRow {
        lease: LeaseId([n; 16]),
        epoch: Epoch(u64::from(n)),
        user: "ann".into(),
        groups: vec!["lab".into()],
        devices: "2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; spread"
            .parse()
            .unwrap(),
        units: vec![(
            NodeId([7; 16]),
            vec![UnitRow {
                unit,
                memory: 1 << 40,
            }],
        )],
        lost: vec![(NodeId([8; 16]), vec![UnitRow { unit, memory: 1 }])],
        moved: vec![UnitsMoved {
            from: (NodeId([7; 16]), vec![unit]),
            to: (NodeId([9; 16]), vec![unit]),
            replaced: true,
        }],
        replace: vec![DeviceClass {
            device: unit.device,
            class: [n; 16],
        }],
        since: Wall(u64::from(n)),
        limit: Some(Span(1)),
        confirmed: n.is_multiple_of(2),
        silence: Span(u64::from(n % 3)),
    }
}

fn waiting(n: u8) -> WaitingRow {
    WaitingRow {
        lease: LeaseId([n; 16]),
        place: u64::from(n),
        user: "ann \"quoted\"".into(),
        groups: Vec::new(),
        devices: "1, NAME contains \"a, b\"".parse().unwrap(),
        class: Class::High,
        limit: None,
        reserve: true,
        replace: true,
        since: Wall(u64::MAX),
    }
}

fn node(n: u8) -> NodeRow {
    NodeRow {
        node: NodeId([n; 16]),
        name: format!("node{n}"),
        addresses: vec!["[::1]:7079".to_owned()],
        draining: n == 1,
        account: (n == 1).then(|| "gpu1".into()),
    }
}

fn absence(n: u8) -> Absence {
    Absence {
        node: NodeId([n; 16]),
        since: Wall(u64::from(n)),
    }
}

fn subject(n: u8) -> Subject {
    match n % 3 {
        0 => Subject::EveryUser,
        1 => Subject::User("ann".into()),
        _ => Subject::Group("lab".into()),
    }
}

fn quota(n: u8) -> Quota {
    Quota {
        devices: Some(u32::from(n)),
        device_time: Some(Span(9)),
        class: Some(Class::Low),
        ..Quota::default()
    }
}

fn use_row(n: u8) -> UseRow {
    UseRow {
        subject: subject(n),
        hour: Hour(u64::from(n)),
        used: Span(3),
    }
}

fn user(n: u8) -> User {
    User {
        name: format!("user{n}").as_str().into(),
        groups: vec!["lab".into()],
        admin: n == 1,
        node: n == 2,
    }
}

fn token(n: u8) -> TokenRow {
    TokenRow {
        id: TokenId(n.to_string()),
        user: "ann".into(),
        label: "laptop".to_owned(),
        hash: [n; 32],
        expires: Some(Wall(5)),
    }
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let one = (0..22_u8, 0..4_u8).prop_map(|(kind, n)| match kind {
        0 => Write::Lease(Change::Epochs(Epoch(u64::from(n)))),
        1 | 2 => Write::Lease(Change::PutLease(lease(n))),
        3 => Write::Lease(Change::DeleteLease(LeaseId([n; 16]))),
        4 | 5 => Write::Lease(Change::PutWaiting(waiting(n))),
        6 => Write::Lease(Change::DeleteWaiting(LeaseId([n; 16]))),
        7 => Write::Lease(Change::PutNode(node(n))),
        8 => Write::Lease(Change::DeleteNode(NodeId([n; 16]))),
        9 => Write::Lease(Change::PutQuota(subject(n), quota(n))),
        10 => Write::Lease(Change::DeleteQuota(subject(n))),
        11 => Write::Lease(Change::PutUse(use_row(n))),
        12 => Write::Lease(Change::DeleteUse(subject(n), Hour(u64::from(n)))),
        13 => Write::Lease(Change::PutPolicy(Policy {
            longest_queue: u32::from(n),
            ..Policy::default()
        })),
        14 => Write::Identity(IdentityChange::PutUser(user(n))),
        15 => Write::Identity(IdentityChange::DeleteUser(user(n).name)),
        16 => Write::Identity(IdentityChange::PutToken(token(n))),
        17 => Write::Identity(IdentityChange::DeleteToken(token(n).id)),
        18 => Write::Identity(IdentityChange::PutRemoved(user(n).name)),
        19 => Write::Lease(Change::PutAbsence(absence(n))),
        20 => Write::Lease(Change::DeleteAbsence(NodeId([n; 16]))),
        _ => Write::Identity(IdentityChange::DeleteRemoved(user(n).name)),
    });
    proptest::collection::vec(one, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_file_has_what_memory_has(batches in proptest::collection::vec(writes(), 0..5)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut memory = MemoryStore::default();
        for batch in &batches {
            // Reopened each time, as after a restart.
            let mut file = RedbStore::open(&path).unwrap();
            file.apply(batch).unwrap();
            memory.apply(batch).unwrap();
        }
        let mut file = RedbStore::open(&path).unwrap();
        let in_file = Stored { schema: None, ..file.load().unwrap() };
        prop_assert_eq!(in_file, memory.load().unwrap());
    }
}

#[test]
fn a_batch_is_loaded_as_it_was_applied() {
    let mut store = MemoryStore::default();
    store
        .apply(&[
            Write::Lease(Change::Epochs(Epoch(9))),
            Write::Lease(Change::PutLease(lease(1))),
            Write::Lease(Change::PutWaiting(waiting(2))),
            Write::Lease(Change::PutNode(node(1))),
            Write::Lease(Change::PutAbsence(absence(1))),
            Write::Lease(Change::PutQuota(subject(1), quota(1))),
            Write::Lease(Change::PutUse(use_row(2))),
            Write::Identity(IdentityChange::PutUser(user(1))),
            Write::Identity(IdentityChange::PutToken(token(1))),
            Write::Identity(IdentityChange::PutRemoved(user(2).name)),
            Write::SigningKey(Secret::new(*b"key")),
            Write::Cluster(ClusterId([3; 16])),
            Write::Term(Term(4)),
        ])
        .unwrap();
    let stored = store.clone().load().unwrap();
    let expected = Stored {
        rows: Rows {
            epochs: Epoch(9),
            leases: vec![lease(1)],
            waiting: vec![waiting(2)],
            nodes: vec![node(1)],
            absences: vec![absence(1)],
            quotas: vec![(subject(1), quota(1))],
            uses: vec![use_row(2)],
            policy: None,
        },
        users: vec![user(1)],
        tokens: vec![token(1)],
        removed: vec![user(2).name],
        signing_key: Some(Secret::new(*b"key")),
        cluster: Some(ClusterId([3; 16])),
        term: Term(4),
        schema: None,
    };
    assert_eq!(stored, expected);
}

#[test]
fn a_failing_store_has_nothing_of_the_batch() {
    let mut store = MemoryStore::default();
    let batch = [Write::Lease(Change::PutLease(lease(1)))];
    store.failing().set(true);
    assert!(matches!(store.apply(&batch), Err(StoreError::System(_))));
    assert!(store.load().unwrap().rows.leases.is_empty());
    store.failing().set(false);
    store.apply(&batch).unwrap();
    assert_eq!(store.load().unwrap().rows.leases, [lease(1)]);
}

#[test]
fn one_manager_at_a_time_and_nobody_else_reads_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = RedbStore::open(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(RedbStore::open(&path), Err(StoreError::InUse)));
    drop(store);
    RedbStore::open(&path).unwrap();
}

#[test]
fn what_is_no_store_of_ours_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    std::fs::write(
        &path,
        b"something else, and longer than a header would have to be".repeat(100),
    )
    .unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(RedbStore::open(&path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let nowhere = folder.path().join("no/such/folder");
    assert!(matches!(
        RedbStore::open(&nowhere),
        Err(StoreError::System(_))
    ));
}

#[test]
fn a_store_of_a_later_manager_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = RedbStore::open(&path).unwrap();
    let later = super::rows::Row {
        value: Some(b"3".to_vec()),
        ..super::rows::schema_row()
    };
    store.commit([later].into_iter()).unwrap();
    drop(store);
    let error = RedbStore::open(&path).unwrap_err();
    assert!(
        matches!(error, StoreError::Schema { found: 3, known: 2 }),
        "{error}"
    );
}

/// A store with typical rows, larger than a page.
fn a_real_store(path: &std::path::Path) {
    let mut store = RedbStore::open(path).unwrap();
    for round in 0..40_u32 {
        let numbers = (0..50).map(|n| (round * 7 % 200 + n) as u8);
        let writes: Vec<Write> = numbers
            .map(|n| Write::Lease(Change::PutLease(lease(n))))
            .collect();
        store.apply(&writes).unwrap();
    }
    let key = Write::SigningKey(Secret::new(*b"key"));
    store.apply(&[key]).unwrap();
}

#[test]
fn a_store_with_flipped_bits_is_used_or_refused_and_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    a_real_store(&path);
    let whole = std::fs::read(&path).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut refused = 0;
    for round in 0..150 {
        let mut damaged = whole.clone();
        for _ in 0..=next(8) {
            // Zeros are mostly unused bytes.
            let at = match next(4) {
                0 => next(whole.len()),
                1 => next(8192),
                _ => used[next(used.len())],
            };
            damaged[at] ^= 1 << next(8);
        }
        std::fs::write(&path, &damaged).unwrap();
        let tried = RedbStore::open(&path).and_then(|mut store| {
            store.load()?;
            store.apply(&[Write::Lease(Change::PutLease(lease(1)))])?;
            store.apply(&[Write::Lease(Change::DeleteLease(lease(1).lease))])
        });
        match tried {
            Ok(()) => {}
            Err(StoreError::Damaged(_) | StoreError::Row { .. } | StoreError::Schema { .. }) => {
                refused += 1;
            }
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    assert!(refused > 15, "{refused}");
}

#[test]
fn a_store_that_others_can_get_at_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    drop(RedbStore::open(&path).unwrap());
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for (of_folder, of_store, is_used) in [
        (0o755, 0o600, true),
        (0o775, 0o640, true),
        (0o755, 0o666, false),
        (0o755, 0o644, false),
        (0o777, 0o600, false),
        (0o1777, 0o600, true),
    ] {
        set(folder.path(), of_folder);
        set(&path, of_store);
        match RedbStore::open(&path) {
            Ok(_) => assert!(is_used, "{of_folder:o} {of_store:o}"),
            Err(StoreError::Exposed(error)) => {
                assert!(!is_used, "{of_folder:o} {of_store:o}");
                let text = error.to_string();
                assert!(text.contains("chmod") && text.contains("store"), "{text}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    // Of a file that is no store, nobody is asked to change the mode.
    set(folder.path(), 0o755);
    let other = folder.path().join("other");
    std::fs::write(&other, "root:x:0:0:root:/root:/bin/bash\n").unwrap();
    set(&other, 0o644);
    assert!(matches!(RedbStore::open(&other), Err(StoreError::NoStore)));
    // No store is created in a folder where other users could replace it.
    set(folder.path(), 0o777);
    let new = folder.path().join("new");
    assert!(matches!(RedbStore::open(&new), Err(StoreError::Exposed(_))));
    assert!(!new.exists());
}

#[test]
fn a_store_of_the_first_schema_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = RedbStore::open(&path).unwrap();
    let writes = [Write::Lease(Change::PutLease(lease(1)))];
    store.apply(&writes).unwrap();
    let first = super::rows::Row {
        value: Some(b"1".to_vec()),
        ..super::rows::schema_row()
    };
    store.commit([first].into_iter()).unwrap();
    drop(store);
    let stored = RedbStore::open(&path).unwrap().load().unwrap();
    assert_eq!(stored.schema, Some(super::rows::SCHEMA));
    assert_eq!(stored.rows.leases, [lease(1)]);
}

#[test]
fn rows_from_before_replacements_are_read() {
    let (lease, waiting) = (lease(1), waiting(1));
    let mut old = serde_json::to_value((&lease, &waiting)).unwrap();
    for at in 0..2 {
        assert!(old[at].as_object_mut().unwrap().remove("replace").is_some());
    }
    let moved = old[0]["moved"][0].as_object_mut().unwrap();
    assert!(moved.remove("replaced").is_some());
    let (mut expected, mut expected_waiting) = (lease, waiting);
    expected.replace.clear();
    expected.moved[0].replaced = false;
    expected_waiting.replace = false;
    let read: (LeaseRow, WaitingRow) = serde_json::from_value(old).unwrap();
    assert_eq!(read, (expected, expected_waiting));
}
