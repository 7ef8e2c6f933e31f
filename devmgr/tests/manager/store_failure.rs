//! A store that cannot be written: changes are refused with the reason, and leases go on. If that lasts,
//! the process ends and is started again.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use causeway_devmgr::service::RunningManager;
use causeway_devmgr::settings::Flags;
use causeway_devmgr::store::{Failing, MemoryStore, Store, StoreError, Stored, Write};
use causeway_proto::manager::progress;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tonic::{Code, Status};

use super::in_process::{serve, serve_configured};
use super::node::{FakeNode, FakeNodeState};
use super::orders::named;
use super::process::{AT_MOST, Client, Who, request, waiting};
use super::watching::get;

/// Starts a manager in this process, whose store can be made to fail.
async fn start() -> (RunningManager, Failing) {
    let store = MemoryStore::default();
    let failing = store.failing();
    let running = serve(Box::new(store)).await;
    (running, failing)
}

/// The change is refused, and the answer names the fault.
pub(crate) fn assert_refused(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let said = status.message();
    let says = ["store", "nothing was changed"];
    assert!(says.iter().all(|words| said.contains(words)), "{said}");
}

/// The request is not granted. Its write may be late, so the answer does not say that nothing was changed.
pub(crate) fn assert_not_granted(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let said = status.message();
    let says = ["store", "no further devices were granted"];
    assert!(says.iter().all(|words| said.contains(words)), "{said}");
}

/// The change was being written when the failure became known. Its answer promises neither outcome.
pub(crate) fn assert_unconfirmed(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let said = status.message();
    let says = ["store", "the outcome of the change is unknown"];
    assert!(says.iter().all(|words| said.contains(words)), "{said}");
    assert!(!said.contains("not in effect"), "{said}");
}

#[tokio::test]
async fn leases_are_renewed_and_everything_else_is_refused() {
    let (running, failing) = start().await;
    let address = running.addresses[0];
    let node = FakeNode::start(address, 1, 2);
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    ann.see_nodes(1).await;
    let held = ann.granted(request("1")).await;
    let renewed = ann.renew(&held.lease_id).await.unwrap();
    assert!(renewed.lifetime_ms > 50_000, "{renewed:?}");
    failing.set(true);

    // The first request finds the failure out; the second is refused before it is handled.
    assert_not_granted(&ann.refused(request("1")).await);
    assert_refused(&ann.refused(request("1")).await);
    for _ in 0..3 {
        // A silence may be stored whose write was not answered, so the next manager may wait for 15 s only.
        let renewed = ann.renew(&held.lease_id).await.unwrap();
        assert!(renewed.lifetime_ms <= 15_000, "{renewed:?}");
    }
    let health = get(address, "/healthz").await;
    assert!(health.starts_with("HTTP/1.1 503 "), "{health}");
    for _ in 0..2 {
        assert_refused(&ann.release(&held.lease_id).await.unwrap_err());
        assert_refused(&ann.confirm(&held.lease_id).await.unwrap_err());
        assert_refused(&ann.revoke_lease(&held.lease_id, "").await.unwrap_err());
    }
    // The first request was offered to the node before anything had to be written; the second was not.
    // The node serves the first lease, because no release and no revocation was accepted.
    node.look(|state| assert_eq!((state.granted.len(), state.withdrawn.len()), (2, 0)));

    failing.set(false);
    // The refused request keeps no device.
    node.see("the withdrawal", |state| state.served.len() == 1)
        .await;
    ann.renew(&held.lease_id).await.unwrap();
    ann.release(&held.lease_id).await.unwrap();
    ann.granted(waiting("2")).await;
    node.assert_no_fault();
    running.stop().await;
}

/// A store that another manager can take over, as far as the manager knows.
struct Shared(MemoryStore);

impl Store for Shared {
    fn load(&mut self) -> Result<Stored, StoreError> {
        self.0.load()
    }

    fn apply(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        self.0.apply(writes)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// Starts a manager as [`start`] does, over a store that others can take over.
async fn start_shared() -> (RunningManager, Failing) {
    let store = MemoryStore::default();
    let failing = store.failing();
    (serve(Box::new(Shared(store))).await, failing)
}

/// Another manager may lead, and have granted what this one does not know.
#[tokio::test]
async fn a_shared_store_that_fails_confirms_nothing_that_takes() {
    let (running, failing) = start_shared().await;
    let address = running.addresses[0];
    let node = FakeNode::start(address, 1, 1);
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    ann.see_nodes(1).await;
    let held = ann.granted(request("1")).await;
    let mut bob = Client::connect(address, Who::Name("bob".to_owned())).await;
    let mut root = Client::connect(address, Who::Nobody).await;
    let unknown = bob.renew(&held.lease_id).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "{unknown}");

    failing.set(true);
    // The first one finds the failure out. The second one arrives when it is known.
    for _ in 0..2 {
        assert_unconfirmed(&bob.renew(&held.lease_id).await.unwrap_err());
    }
    ann.renew(&held.lease_id).await.unwrap();
    failing.set(false);
    let begin = Instant::now();
    while bob.renew(&held.lease_id).await.unwrap_err().code() != Code::NotFound {
        assert!(begin.elapsed() < AT_MOST, "the store does not recover");
    }
    // An order that is refused for its own reasons.
    let unknown = root.delete_user("carl").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "{unknown}");
    failing.set(true);
    assert_refused(&root.delete_user("carl").await.unwrap_err());
    node.assert_no_fault();
    running.stop().await;
}

/// etcd may refuse writes for hours, and the manager must not fill its memory meanwhile.
#[tokio::test]
async fn a_node_that_reports_without_end_while_the_store_fails_is_turned_away() {
    let (running, failing) = start_shared().await;
    let address = running.addresses[0];
    let node = FakeNode::start(address, 1, 1);
    let other = FakeNode::start(address, 2, 1);
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    ann.see_nodes(2).await;
    let held = ann.granted(request("1")).await;
    failing.set(true);
    assert_not_granted(&ann.refused(request("1")).await);
    node.flood().await;
    let said = |state: &FakeNodeState| {
        let unavailable = state.unavailable.as_ref();
        unavailable.is_some_and(|status| status.message().contains("nothing was changed"))
    };
    node.see("the reason", said).await;
    let reason = node.look(|state| state.unavailable.clone());
    assert_refused(&reason.unwrap());
    ann.renew(&held.lease_id).await.unwrap();
    other.look(|state| assert!(state.unavailable.is_none()));

    failing.set(false);
    node.see("the welcome", |state| state.welcome.is_some())
        .await;
    ann.see_nodes(2).await;
    ann.renew(&held.lease_id).await.unwrap();
    node.assert_no_fault();
    running.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_in_the_queue_waits_for_the_store_too() {
    let (running, failing) = start().await;
    let address = running.addresses[0];
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    let mut asked = ann.ask(waiting("1")).await.unwrap();
    asked.next().await.expect("a position");
    failing.set(true);
    // A new node's row has to be durable before the node is welcomed.
    let node = FakeNode::start(address, 1, 1);
    let mut root = Client::connect(address, Who::Nobody).await;
    root.put_user(named("bob")).await.unwrap_err();
    node.look(|state| assert!(state.granted.is_empty()));
    failing.set(false);
    let step = asked.answer().await;
    let is_granted = matches!(step, progress::Step::Granted(_));
    assert!(is_granted, "{step:?}");
    running.stop().await;
}

#[tokio::test]
async fn a_failure_that_lasts_ends_the_manager() {
    let store = MemoryStore::default();
    let failing = store.failing();
    // Longer than the pause between two attempts, so that the first failure can end in time.
    let text = "store_failure_limit = 5";
    let mut running = serve_configured(text, Flags::default(), Box::new(store)).await;
    let mut root = Client::connect(running.addresses[0], Who::Nobody).await;
    // A failure that does not last is forgotten.
    failing.set(true);
    assert_unconfirmed(&root.put_user(named("ann")).await.unwrap_err());
    failing.set(false);
    while let Err(status) = root.put_user(named("bob")).await {
        assert_refused(&status);
    }
    failing.set(true);
    root.put_user(named("carl")).await.unwrap_err();
    let failed = tokio::time::timeout(AT_MOST, running.failed()).await;
    let said = failed.expect("the call ends").to_string();
    let says = ["could not be written for 5 s", "no storage space", "again"];
    assert!(says.iter().all(|words| said.contains(words)), "{said}");
}

/// The manager over the store in this folder. It ignores the signal that comes with the file size limit,
/// so that writes beyond the limit are errors. The shell command runs before.
fn command(folder: &Path, listen: &str, before: &str) -> Command {
    let config = folder.join("manager.toml");
    std::fs::write(&config, "store_failure_limit = 5\n").unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{before}\nexec \"$@\""), "sh"])
        .args(["env", "--ignore-signal=XFSZ"])
        .arg(env!("CARGO_BIN_EXE_causeway-devmgr"))
        .args(["--listen", listen, "--config"])
        .arg(&config)
        .arg("--store")
        .arg(folder.join("store"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn process(folder: &Path, listen: &str) -> (Child, SocketAddr) {
    let mut child = command(folder, listen, "").spawn().unwrap();
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").expect("a port");
    (child, address.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_ends_with_an_error_and_starts_from_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = process(folder.path(), "127.0.0.1:0");
    let node = FakeNode::start(address, 1, 1);
    let mut root = Client::connect(address, Who::Nobody).await;
    root.see_nodes(1).await;
    root.put_user(named("before")).await.unwrap();
    let held = root.granted(request("1")).await;
    // From now on every write to a file fails.
    let none = Rlimit {
        current: Some(0),
        maximum: None,
    };
    prlimit(Some(Pid::from_child(&child)), Resource::Fsize, none).unwrap();
    assert_unconfirmed(&root.put_user(named("after")).await.unwrap_err());
    root.renew(&held.lease_id).await.unwrap();
    let ended = tokio::task::spawn_blocking(|| child.wait_with_output());
    let ended = ended.await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    let store = folder.path().join("store");
    let says = [store.to_str().unwrap(), "File too large", "disk", "again"];
    assert!(says.iter().all(|words| last.contains(words)), "{said}");

    // Its service starts it again every second. While the store fails, each start ends with the reason.
    let address = address.to_string();
    for _ in 0..3 {
        let ended = command(folder.path(), &address, "ulimit -f 0").output();
        let ended = ended.unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(ended.stdout.is_empty(), "it has served");
        let last = said.lines().last().unwrap();
        let says = [store.to_str().unwrap(), "File too large", "disk", "again"];
        assert!(says.iter().all(|words| last.contains(words)), "{said}");
    }

    let (mut child, address) = process(folder.path(), &address);
    let mut root = Client::connect(address, Who::Nobody).await;
    root.see_nodes(1).await;
    root.renew(&held.lease_id).await.unwrap();
    let users = root.users().await.unwrap();
    assert_eq!(users, [named("before")]);
    node.look(|state| assert_eq!(state.served.len(), 1));
    node.assert_no_fault();
    child.kill().unwrap();
    child.wait().unwrap();
}

/// systemd starts a manager again that has ended with the status of a failed store, however often.
#[test]
fn the_unit_starts_a_manager_again_whose_store_fails() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/causeway-devmgr.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let value = |key: &str| {
        let values = unit.lines().filter_map(|line| line.split_once('='));
        let mut of_key = values.filter(|(name, _)| *name == key);
        of_key.next().map(|(_, value)| value)
    };
    assert_eq!(value("Restart"), Some("on-failure"));
    assert_eq!(value("StartLimitIntervalSec"), Some("0"));
    assert_eq!(value("RestartPreventExitStatus"), Some("2"));
}

#[test]
fn a_store_that_cannot_be_opened_is_named() {
    let manager = std::process::Command::new(env!("CARGO_BIN_EXE_causeway-devmgr"))
        .args(["--config", "/dev/null", "--listen", "127.0.0.1:0"])
        .args(["--store", "/nonexistent/folder/store"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&manager.stderr);
    assert_eq!(manager.status.code(), Some(1), "{said}");
    assert!(said.contains("/nonexistent/folder/store: "), "{said}");
}
