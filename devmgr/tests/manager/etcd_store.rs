//! The store in etcd alone: steps of any size are stored whole or not at all, and a deposed leader stores
//! nothing.

use std::time::{Duration, Instant};

use causeway_cutter::{Cut, Forwarder, Hold, Target};
use causeway_devmgr::etcd::EtcdStore;
use causeway_devmgr::identity::{IdentityChange, User};
use causeway_devmgr::leadership::{Reign, Revision};
use causeway_devmgr::store::{Store, StoreError, Stored, Write};
use causeway_proto::metadata::Term;

use super::etcd::{Cluster, PREFIX};

/// Begins another reign, as a candidate does.
async fn reign(cluster: &Cluster, term: u64) -> Reign {
    let mut client = cluster.client().await;
    let key = |name: &str| format!("{PREFIX}{name}");
    client.delete(key("leader"), None).await.unwrap();
    client
        .put(key("step"), format!("{term} 0"), None)
        .await
        .unwrap();
    let put = client.put(key("leader"), "{}", None).await.unwrap();
    Reign {
        term: Term(term),
        revision: Revision(put.header().unwrap().revision()),
    }
}

/// Loads the store for the next reign.
async fn load(cluster: &Cluster, term: u64) -> (EtcdStore, Stored) {
    let reign = reign(cluster, term).await;
    EtcdStore::load(cluster.access(), reign).await.unwrap()
}

/// Rows with values of some size, so that they need several transactions and several parts.
fn puts(count: usize, letter: char) -> Vec<Write> {
    let put = |n: usize| {
        let name = format!("user{n:05}");
        Write::Identity(IdentityChange::PutUser(User {
            name: name.as_str().into(),
            groups: vec![letter.to_string().repeat(900).as_str().into()],
            admin: false,
            node: false,
        }))
    };
    (0..count).map(put).collect()
}

fn deletes(count: usize) -> Vec<Write> {
    let name = |n: usize| format!("user{n:05}");
    let delete = |n| Write::Identity(IdentityChange::DeleteUser(name(n).as_str().into()));
    (0..count).map(delete).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_is_loaded() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let (mut store, stored) = load(&cluster, 1).await;
    assert!(stored.users.is_empty() && stored.schema.is_none());
    store.write(&puts(3, 'a')).await.unwrap();
    // The last write of a key counts.
    let mut twice = puts(1, 'b');
    twice.extend(deletes(1));
    store.write(&twice).await.unwrap();
    store.write(&[]).await.unwrap();
    let (_, stored) = load(&cluster, 2).await;
    let names: Vec<_> = stored
        .users
        .iter()
        .map(|user| user.name.to_string())
        .collect();
    assert_eq!(names, ["user00001", "user00002"]);
    assert_eq!(stored.schema, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_leader_stores_nothing_and_is_not_confirmed() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let (mut old, _) = load(&cluster, 1).await;
    let (mut new, _) = load(&cluster, 2).await;
    for writes in [puts(1, 'a'), puts(3_000, 'a'), Vec::new()] {
        let refused = old.write(&writes).await.unwrap_err();
        assert!(matches!(refused, StoreError::Deposed), "{refused}");
    }
    new.write(&puts(1, 'b')).await.unwrap();
    let (_, stored) = load(&cluster, 3).await;
    assert_eq!(stored.users.len(), 1);
    // No part of the refused step is left.
    let mut client = cluster.client().await;
    let options = etcd_client::GetOptions::new().with_prefix();
    let parts = client
        .get(format!("{PREFIX}parts/"), Some(options))
        .await
        .unwrap();
    assert!(parts.kvs().is_empty());
}

/// The leader dies at any moment of a step with 3,000 rows, of 3 MB.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_step_is_stored_whole_or_not_at_all() {
    const ROWS: usize = 3_000;
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let (mut store, _) = load(&cluster, 1).await;
    let begin = Instant::now();
    store.write(&puts(ROWS, 'a')).await.unwrap();
    let whole = begin.elapsed();
    let (mut all, mut none, mut term) = (0, 0, 1);
    let mut has_rows = true;
    for round in 0..16 {
        term += 1;
        let (mut store, stored) = load(&cluster, term).await;
        assert_eq!(stored.users.len(), if has_rows { ROWS } else { 0 });
        let step = if has_rows {
            deletes(ROWS)
        } else {
            puts(ROWS, 'b')
        };
        // The future is dropped in the middle, as if the process had been killed there.
        let moment = whole * round / 12 + Duration::from_micros(200);
        let _ = tokio::time::timeout(moment, store.write(&step)).await;
        term += 1;
        let (_, stored) = load(&cluster, term).await;
        let count = stored.users.len();
        assert!(count == 0 || count == ROWS, "{count} of {ROWS} rows");
        let is_done = (count == ROWS) != has_rows;
        (all, none) = (all + u32::from(is_done), none + u32::from(!is_done));
        has_rows = count == ROWS;
    }
    assert!(all > 0 && none > 0, "{all} whole, {none} not at all");
}

/// The answer to a small step is lost, and a large step follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_step_after_one_of_unknown_outcome_counts_with_its_rows() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let way = Forwarder::start(Some(Target::Tcp(cluster.address(0)))).unwrap();
    let etcd = cluster.access_at(vec![format!("https://{}", way.address())]);
    let reign = reign(&cluster, 1).await;
    let (mut store, _) = EtcdStore::load(etcd, reign).await.unwrap();
    store.write(&puts(1, 'a')).await.unwrap();
    way.hold(Hold {
        down: true,
        ..Hold::default()
    });
    let unknown = store.write(&puts(1, 'b')).await.unwrap_err();
    assert!(matches!(unknown, StoreError::Remote(_)), "{unknown}");
    way.cut_all(Cut::Reset);
    way.hold(Hold::default());
    store.write(&puts(3_000, 'c')).await.unwrap();
    let loaded = tokio::task::spawn_blocking(move || Store::load(&mut store));
    let stored = loaded.await.unwrap().unwrap();
    let is_new = |of: &&User| {
        let mut groups = of.groups.iter();
        groups.all(|group| group.to_string().starts_with('c'))
    };
    assert_eq!(stored.users.iter().filter(is_new).count(), 3_000);
}
