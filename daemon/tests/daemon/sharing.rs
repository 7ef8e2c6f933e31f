//! Tests of `[sharing]`: to which domain each session belongs, and what the node says about it.

use causeway_proto::control::OpenSessionRequest;
use causeway_security::Token;

use crate::secured::{Caller, Cluster};
use crate::support::{Daemon, Setup, VERSION, eventually};

/// One device, so that there is something to share.
const DRIVER: &str = "devices = 1";

/// Waits for this number of sessions in the log. Returns the domain of each, in their order.
fn domains(daemon: &Daemon, sessions: usize) -> Vec<Option<String>> {
    eventually("the sessions' lines", || {
        let log = daemon.log();
        let lines = log.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            (line["fields"]["message"] == "session opened").then_some(line)
        });
        let domain = |line: serde_json::Value| Some(line["fields"]["domain"].as_str()?.to_owned());
        let found: Vec<_> = lines.map(domain).collect();
        (found.len() == sessions).then_some(found)
    })
}

fn setup(together: &str) -> Setup {
    Setup::with_fake_driver(DRIVER).args(&["--log-format", "json", "--together", together])
}

async fn open(daemon: &Daemon, isolated: bool) {
    let request = OpenSessionRequest {
        wire_version: VERSION,
        inventory_generation: daemon.inventory().await.generation,
        isolated,
        ..OpenSessionRequest::default()
    };
    daemon.client().await.open_session(request).await.unwrap();
}

#[tokio::test]
async fn sessions_of_this_machine_are_together_unless_one_wants_to_be_alone() {
    let daemon = setup("user").start();
    open(&daemon, false).await;
    open(&daemon, true).await;
    let local = Some("this machine's users".to_owned());
    assert_eq!(domains(&daemon, 2), [local, None]);
    let remarks = daemon.inventory().await.remarks;
    let said =
        |remark: &String| remark.starts_with("SHARING:") && remark.contains("together = \"user\"");
    assert!(remarks.iter().any(said), "{remarks:?}");
}

#[tokio::test]
async fn nobody_is_together_by_default() {
    let daemon = Setup::with_fake_driver(DRIVER)
        .args(&["--log-format", "json"])
        .start();
    open(&daemon, false).await;
    assert_eq!(domains(&daemon, 1), [None]);
    let remarks = daemon.inventory().await.remarks;
    assert!(!remarks.iter().any(|remark| remark.contains("SHARING")));
}

#[tokio::test]
async fn an_excepted_driver_keeps_its_sessions_apart_and_the_log_says_so_once() {
    let daemon = setup("all")
        .config("[sharing]\nexcept = [\"Fake OpenCL\", \"Elsewhere\"]\n")
        .start();
    open(&daemon, false).await;
    open(&daemon, false).await;
    assert_eq!(domains(&daemon, 2), [None, None]);
    let log = daemon.log();
    let count = |text: &str| log.matches(text).count();
    assert_eq!(
        count("sessions that may use Fake OpenCL have processes of their own"),
        1
    );
    assert_eq!(
        count("except names Elsewhere, but no platform of this node has this name"),
        1
    );
}

#[tokio::test]
async fn authenticated_users_have_domains_and_hosts_of_their_own() {
    let cluster = Cluster::new();
    let bob = Token::generate();
    let lines = format!("{} alice\n{} bob\n", cluster.token.hash(), bob.hash());
    cluster.list(&lines);
    let daemon = cluster.secure(setup("user")).start();
    let tls = cluster.client(None);
    for token in [&cluster.token, &bob, &cluster.token] {
        let caller = Caller::reach(daemon.address(), &tls, Some(token)).await;
        caller.unwrap().open().await.unwrap();
    }
    let [alice, bob] = ["user alice", "user bob"].map(|name| Some(name.to_owned()));
    assert_eq!(domains(&daemon, 3), [alice.clone(), bob, alice]);
    assert_eq!(daemon.log().matches("a host was started").count(), 2);
}

#[test]
fn a_group_that_this_machine_lacks_is_refused_at_the_start() {
    let (said, status) = Setup::new()
        .args(&["--listen", "127.0.0.1:0"])
        .args(&["--together", "group:no such group"])
        .refused();
    assert!(
        said.contains("this machine has no group \"no such group\""),
        "{said}"
    );
    assert!(!status.success());
}
