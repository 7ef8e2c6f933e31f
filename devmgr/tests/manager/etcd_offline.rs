//! What is done to a store in etcd that no manager uses, and what managers refuse to use.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use causeway_devmgr::store::{RedbStore, Store, Write};
use causeway_proto::metadata::{ClusterId, Term};

use super::etcd::{Cluster, PREFIX};
use super::process::{AT_MOST, Manager};
use super::watching::get;

/// Runs the manager's program with a store and these flags, to its end.
fn run(config: &Path, store: &str, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_causeway-devmgr"))
        .arg("--config")
        .arg(config)
        .args(["--store", store])
        .args(flags)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(error)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_moves_from_a_file_to_etcd_and_back() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let config = folder.path().join("manager.toml");
    std::fs::write(&config, cluster.table(&folder.path().join("token"))).unwrap();
    let file = at("store");
    let cluster_id = ClusterId([5; 16]);
    let mut store = RedbStore::open(file.as_ref()).unwrap();
    let writes = [Write::Cluster(cluster_id), Write::Term(Term(40))];
    store.apply(&writes).unwrap();
    drop(store);

    let exported = run(&config, &file, &["--export", &at("first")]);
    assert!(exported.status.success(), "{}", said(&exported));
    let imported = run(&config, "etcd", &["--import", &at("first")]);
    assert!(imported.status.success(), "{}", said(&imported));
    let again = run(&config, "etcd", &["--import", &at("first")]);
    assert!(said(&again).contains("not empty"), "{}", said(&again));
    let restored = run(&config, "etcd", &["--after-restore"]);
    assert!(restored.status.success(), "{}", said(&restored));
    let token = run(&config, "etcd", &["--new-admin-token"]);
    assert!(token.status.success(), "{}", said(&token));
    assert!(folder.path().join("token").exists());

    let back = run(&config, "etcd", &["--export", &at("second")]);
    assert!(back.status.success(), "{}", said(&back));
    let other = at("other");
    let imported = run(&config, &other, &["--import", &at("second")]);
    assert!(imported.status.success(), "{}", said(&imported));
    let stored = RedbStore::open(other.as_ref()).unwrap().load().unwrap();
    assert_eq!(stored.cluster, Some(cluster_id));
    assert!(stored.term > Term(1 << 32), "{:?}", stored.term);
    assert_eq!((stored.users.len(), stored.tokens.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_a_manager_uses_is_left_alone() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let table = cluster.table(&folder.path().join("token"));
    let config = folder.path().join("manager.toml");
    std::fs::write(&config, &table).unwrap();
    let manager = Manager::configured(&table);
    let begin = Instant::now();
    while !get(manager.address, "/healthz").await.contains(" 200 ") {
        assert!(begin.elapsed() < AT_MOST, "the manager does not lead");
    }
    let refused = run(&config, "etcd", &["--after-restore"]);
    assert!(!refused.status.success());
    assert!(
        said(&refused).contains("stop all managers"),
        "{}",
        said(&refused)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_a_later_version_is_not_written_and_the_standby_says_so() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut etcd = cluster.client().await;
    let schema = format!("{PREFIX}rows/meta/schema");
    let put = etcd.put(schema, "3", None).await.unwrap();
    let revision = put.header().unwrap().revision();
    let manager = Manager::configured(&cluster.table(&folder.path().join("token")));
    let begin = Instant::now();
    let health = loop {
        let health = get(manager.address, "/healthz").await;
        if health.contains("schema 3") {
            break health;
        }
        assert!(begin.elapsed() < AT_MOST, "{health}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(
        health.contains(" 503 ") && health.contains("upgrade"),
        "{health}"
    );
    // Only the manager's own key, which hangs on its lease, was written.
    let options = etcd_client::GetOptions::new().with_prefix();
    let all = etcd.get(PREFIX, Some(options)).await.unwrap();
    let written = all.kvs().iter().filter(|kv| kv.mod_revision() > revision);
    let keys: Vec<_> = written.map(|kv| kv.key_str().unwrap().to_owned()).collect();
    assert!(
        keys.iter().all(|key| key.contains("/managers/")),
        "{keys:?}"
    );
}
