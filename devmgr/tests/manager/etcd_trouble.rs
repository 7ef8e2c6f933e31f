//! What managers do when etcd is full, or has a row that cannot be read: both heal without a restart. And what they
//! do so that etcd does not become full.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use causeway_proto::manager::ListManagersRequest;
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, CompactionOptions, DeleteOptions, GetOptions,
};

use super::etcd::{Cluster, PREFIX};
use super::node::FakeNode;
use super::orders::named;
use super::process::{AT_MOST, Client, Manager, Who, request};
use super::watching::get;

/// Waits until `/healthz` contains all of this.
pub(crate) async fn see_health(address: SocketAddr, says: &[&str]) {
    let begin = Instant::now();
    loop {
        let health = get(address, "/healthz").await;
        if says.iter().all(|words| health.contains(words)) {
            return;
        }
        assert!(begin.elapsed() < AT_MOST, "{health}");
        tokio::task::yield_now().await;
    }
}

/// Fills etcd's database with keys of another program, until etcd raises its alarm.
async fn fill(etcd: &mut etcd_client::Client) {
    for number in 0.. {
        let put = etcd.put(format!("other/{number}"), vec![7; 256 << 10], None);
        if let Err(full) = put.await {
            assert!(full.to_string().contains("space exceeded"), "{full}");
            return;
        }
        assert!(number < 1_000, "etcd is never full");
    }
}

/// What an administrator does about a full database.
async fn make_room(etcd: &mut etcd_client::Client) {
    let all = DeleteOptions::new().with_prefix();
    let deleted = etcd.delete("other/", Some(all)).await.unwrap();
    let revision = deleted.header().unwrap().revision();
    let physical = CompactionOptions::new().with_physical();
    etcd.compact(revision, Some(physical)).await.unwrap();
    etcd.defragment().await.unwrap();
    // The alarm is the member's.
    let member = deleted.header().unwrap().member_id();
    let mut raised = AlarmOptions::new();
    raised.with_member(member);
    let disarm = etcd.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(raised));
    disarm.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_is_named_nothing_is_granted_and_room_heals_it() {
    let quota = format!("--quota-backend-bytes={}", 4 << 20);
    let Some(cluster) = Cluster::with_flags(&[&quota], 1).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::configured(&cluster.table(&folder.path().join("token")));
    see_health(manager.address, &[" 200 "]).await;
    let node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let held = ann.granted(request("1")).await;

    let mut etcd = cluster.client().await;
    fill(&mut etcd).await;
    let mut root = Client::connect(manager.address, Who::Nobody).await;
    let refused = root.put_user(named("bob")).await.unwrap_err();
    assert!(refused.message().contains("space exceeded"), "{refused}");
    see_health(manager.address, &[" 503 ", "space exceeded"]).await;
    let refused = ann.refused(request("1")).await;
    assert!(refused.message().contains("space exceeded"), "{refused}");
    ann.renew(&held.lease_id).await.unwrap();
    let list = root.who.request(ListManagersRequest {});
    let list = root.admin.list_managers(list).await.unwrap().into_inner();
    assert!(list.members[0].problem.contains("NOSPACE"), "{list:?}");
    assert!(manager.log().contains("space exceeded"));

    make_room(&mut etcd).await;
    see_health(manager.address, &[" 200 "]).await;
    root.put_user(named("carl")).await.unwrap();
    ann.renew(&held.lease_id).await.unwrap();
    ann.granted(request("1")).await;
    node.assert_no_fault();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_read_is_named_until_it_is_corrected() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let mut etcd = cluster.client().await;
    let row = format!("{PREFIX}rows/users/ann");
    etcd.put(row.as_str(), "{\"name\":", None).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::configured(&cluster.table(&folder.path().join("token")));
    let says = [" 503 ", "standby", "users", "`ann`", "--after-restore"];
    see_health(manager.address, &says).await;
    // The problem stays known while the manager tries again.
    let failed = "the state cannot be read from etcd";
    while manager.log().matches(failed).count() < 2 {
        let health = get(manager.address, "/healthz").await;
        assert!(says.iter().all(|words| health.contains(words)), "{health}");
    }
    let all = GetOptions::new().with_prefix();
    let rows = etcd.get(format!("{PREFIX}rows/"), Some(all)).await.unwrap();
    let keys = rows.kvs().iter().map(|row| row.key_str().unwrap());
    let others: Vec<_> = keys.filter(|key| !key.ends_with("/meta/term")).collect();
    assert_eq!(others, [&row]);

    etcd.delete(row, None).await.unwrap();
    see_health(manager.address, &[" 200 "]).await;
    let mut root = Client::connect(manager.address, Who::Nobody).await;
    root.put_user(named("ann")).await.unwrap();
}

/// etcd keeps them otherwise, until it is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_discards_old_revisions() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let mut etcd = cluster.client().await;
    let put = etcd.put("other", "old", None).await.unwrap();
    let revision = put.header().unwrap().revision();
    etcd.put("other", "new", None).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::configured(&cluster.table(&folder.path().join("token")));
    see_health(manager.address, &[" 200 "]).await;
    let old = || GetOptions::new().with_revision(revision);
    let got = etcd.get("other", Some(old())).await.unwrap();
    assert_eq!(got.kvs()[0].value(), b"old");
    // The leader leaves each revision to others for a while.
    let mut polls = tokio::time::interval(Duration::from_millis(200));
    let begin = Instant::now();
    while let Ok(got) = etcd.get("other", Some(old())).await {
        assert!(begin.elapsed() < AT_MOST, "{got:?}");
        polls.tick().await;
    }
    let refused = etcd.get("other", Some(old())).await.unwrap_err();
    assert!(refused.to_string().contains("compacted"), "{refused}");
    let got = etcd.get("other", None).await.unwrap();
    assert_eq!(got.kvs()[0].value(), b"new");
}
