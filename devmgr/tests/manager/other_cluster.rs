//! Managers whose settings lead to the state of another cluster, or to none: they stand by, name the key and the cure, and
//! write nothing.

use std::time::Duration;

use causeway_proto::manager::GetManagerRequest;
use causeway_proto::metadata::{CLUSTER, ClusterId, LEADER};
use etcd_client::GetOptions;

use super::etcd::{Cluster, PREFIX};
use super::etcd_trouble::see_health;
use super::process::{AT_MOST, Client, Manager, Who, request};
use super::watching::get;

/// The keys with this beginning, and their revisions.
async fn keys(etcd: &mut etcd_client::Client, prefix: &str) -> Vec<(String, i64)> {
    let all = GetOptions::new().with_prefix();
    let got = etcd.get(prefix, Some(all)).await.unwrap();
    let keys = got.kvs().iter();
    keys.map(|of| (of.key_str().unwrap().to_owned(), of.mod_revision()))
        .collect()
}

async fn cluster_of(manager: &Manager) -> String {
    let mut client = Client::connect(manager.address, Who::Nobody).await;
    let asked = client.who.request(GetManagerRequest {});
    let info = client.admin.get_manager(asked).await.unwrap().into_inner();
    ClusterId::from_bytes(&info.cluster_id).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_of_another_cluster_stands_by_names_key_and_cure_and_writes_nothing() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let table = cluster.table(&folder.path().join("token"));
    let other = format!("{table}cluster = \"{}\"\n", "7".repeat(32));
    let mut ours = Manager::configured(&table);
    see_health(ours.address, &[" 200 "]).await;
    let id = cluster_of(&ours).await;
    let mut etcd = cluster.client().await;
    let (begin, own) = (std::time::Instant::now(), format!("{PREFIX}managers/"));
    while keys(&mut etcd, &own).await.is_empty() {
        assert!(begin.elapsed() < AT_MOST, "the leader is not registered");
    }

    let stranger = Manager::configured(&other);
    let key = format!("{PREFIX}rows/meta/cluster");
    let says = [" 503 ", "standby", &key, &id, "correct `endpoints`"];
    see_health(stranger.address, &says).await;
    let mut client = Client::connect(stranger.address, Who::Nobody).await;
    let status = client.ask(request("1")).await.err().unwrap();
    // Nobody is led into the other cluster.
    assert!(status.metadata().get(LEADER).is_none() && status.metadata().get(CLUSTER).is_none());
    assert_eq!(keys(&mut etcd, &own).await.len(), 1);

    // Now nobody leads, and the stranger does not either.
    ours.kill();
    let leader = format!("{PREFIX}leader");
    while !keys(&mut etcd, &leader).await.is_empty() {
        assert!(begin.elapsed() < AT_MOST, "the leader's key stays");
    }
    // From now on, nobody else writes.
    let lasting = |(of, _): &(String, i64)| !of.contains("/managers/") && !of.ends_with("/leader");
    let rows = keys(&mut etcd, PREFIX).await;
    let rows: Vec<_> = rows.into_iter().filter(lasting).collect();
    let mut tries = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..15 {
        tries.tick().await;
        let health = get(stranger.address, "/healthz").await;
        assert!(says.iter().all(|words| health.contains(words)), "{health}");
    }
    let now = keys(&mut etcd, PREFIX).await;
    assert_eq!(now.into_iter().filter(lasting).collect::<Vec<_>>(), rows);

    // A manager that names the cluster leads.
    let named = Manager::configured(&format!("{table}cluster = \"{id}\"\n"));
    see_health(named.address, &[" 200 "]).await;
    assert_eq!(cluster_of(&named).await, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_prefix_makes_no_new_cluster_if_the_cluster_is_named() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let table = cluster.table(&folder.path().join("token"));
    let misspelt = table.replace(PREFIX, "/tset/");
    let manager = Manager::configured(&format!("{misspelt}cluster = \"{}\"\n", "7".repeat(32)));
    let key = "/tset/rows/meta/cluster";
    see_health(manager.address, &[" 503 ", "cluster none", key, "`prefix`"]).await;
    let mut etcd = cluster.client().await;
    assert_eq!(keys(&mut etcd, "/tset/").await, []);
    assert!(manager.log().contains(key), "{}", manager.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_cluster_row_is_named_as_damaged_also_if_the_cluster_is_named() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let table = cluster.table(&folder.path().join("token"));
    let mut etcd = cluster.client().await;
    let key = format!("{PREFIX}rows/meta/cluster");
    etcd.put(key, "damaged", None).await.unwrap();
    let manager = Manager::configured(&format!("{table}cluster = \"{}\"\n", "7".repeat(32)));
    let says = [" 503 ", "cannot be read", "restore the store from a backup"];
    see_health(manager.address, &says).await;
    assert!(!manager.log().contains("cluster none"), "{}", manager.log());
}
