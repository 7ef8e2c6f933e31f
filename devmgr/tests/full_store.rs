//! A store's file that cannot grow, as on a full disk: each write is an error, nothing is lost, and writes
//! succeed when there is room again. This test is alone in its process, because the size limit is the whole
//! process's.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_devmgr::inventory::NodeId;
use causeway_devmgr::lease::Change;
use causeway_devmgr::lease::change::NodeRow;
use causeway_devmgr::store::{RedbStore, Store, StoreError, Write};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Eight rows of 64 KiB, with numbers from `from` on.
fn large_rows(from: u8) -> Vec<Write> {
    let row = |n| NodeRow {
        node: NodeId([n; 16]),
        name: "n".repeat(64 << 10),
        addresses: Vec::new(),
        draining: false,
        account: None,
    };
    let rows = (from..from + 8).map(|n| Write::Lease(Change::PutNode(row(n))));
    rows.collect()
}

#[test]
fn a_full_disk_loses_nothing_and_is_gone_when_there_is_room() {
    // Without a handler, the signal that comes with the error would end the process.
    let hit = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, hit).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = RedbStore::open(&path).unwrap();
    store.apply(&large_rows(0)).unwrap();

    let before = getrlimit(Resource::Fsize);
    let full = Rlimit {
        current: Some(std::fs::metadata(&path).unwrap().len()),
        ..before
    };
    setrlimit(Resource::Fsize, full).unwrap();
    let mut applied = 8;
    let error = loop {
        match store.apply(&large_rows(applied)) {
            Ok(()) => applied += 8,
            Err(error) => break error,
        }
        assert!(applied < 200, "the limit was not met");
    };
    assert!(matches!(error, StoreError::System(_)), "{error}");
    // The second attempt fails too.
    let again = store.apply(&large_rows(applied)).unwrap_err();
    assert!(matches!(again, StoreError::System(_)), "{again}");

    setrlimit(Resource::Fsize, before).unwrap();
    assert_eq!(store.load().unwrap().rows.nodes.len(), usize::from(applied));
    store.apply(&large_rows(applied)).unwrap();
    drop(store);
    let stored = RedbStore::open(&path).unwrap().load().unwrap();
    assert_eq!(stored.rows.nodes.len(), usize::from(applied) + 8);
}
