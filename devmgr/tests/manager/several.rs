//! Several managers over one etcd, with TLS: the leader is killed, told to stop, deposed, and left without
//! etcd. Leases, places and the cluster's id stay.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use causeway_cutter::{Forwarder, Target};
use causeway_proto::manager::{
    GetManagerRequest, ListManagersRequest, ManagerInfo, ManagerRole, ManagerState, RequestDevices,
    StepDownRequest, progress,
};
use causeway_proto::metadata::{CLUSTER, ClusterId, LEADER, TERM, Term};
use tonic::Status;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::etcd::{Cluster, PREFIX};
use super::node::FakeNode;
use super::process::{AT_MOST, Client, Manager, Who, request, try_channel, waiting};
use super::tool::running::RunningTool;

/// Managers over one etcd.
pub(super) struct Several {
    pub(super) managers: Vec<Manager>,
    etcd: Cluster,
    _folder: tempfile::TempDir,
}

impl Several {
    async fn start(members: usize, managers: usize) -> Option<Several> {
        Several::with_flags(&[], members, managers).await
    }

    /// Starts managers with these flags.
    async fn with_flags(flags: &[&str], members: usize, managers: usize) -> Option<Several> {
        Several::configured("", flags, members, managers).await
    }

    /// Starts managers with more settings.
    pub(super) async fn configured(
        more: &str,
        flags: &[&str],
        members: usize,
        managers: usize,
    ) -> Option<Several> {
        let etcd = Cluster::start(members).await?;
        let folder = tempfile::tempdir().unwrap();
        let table = etcd.table(&folder.path().join("token")) + more;
        let managers = (0..managers).map(|_| Manager::started(&table, flags));
        Some(Several {
            managers: managers.collect(),
            etcd,
            _folder: folder,
        })
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.managers.iter().map(|of| of.address).collect()
    }

    /// Waits until a manager leads, and returns its number and what it says.
    pub(super) async fn leader(&self) -> (usize, ManagerInfo) {
        let begin = Instant::now();
        loop {
            for (at, address) in self.addresses().into_iter().enumerate() {
                if let Ok(info) = info(address).await {
                    return (at, info);
                }
            }
            assert!(begin.elapsed() < AT_MOST, "no manager leads");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until another manager than `former` leads, and returns its number and how long that took.
    pub(super) async fn successor(&self, former: usize) -> (usize, Duration) {
        let begin = Instant::now();
        loop {
            let (number, _) = self.leader().await;
            if number != former {
                return (number, begin.elapsed());
            }
            // A leader that steps aside has two waits before, which may both begin anew.
            assert!(
                begin.elapsed() < 2 * AT_MOST,
                "the former leader still leads"
            );
        }
    }

    /// Waits until a manager leads and all others can. Returns the leader's number.
    async fn leader_of_all(&self) -> usize {
        let begin = Instant::now();
        loop {
            let (leader, _) = self.leader().await;
            let mut admin = self.user(leader, "admin").await;
            let listed = admin.who.request(ListManagersRequest {});
            let list = admin.admin.list_managers(listed).await;
            let managers = list.map(|list| list.into_inner().managers);
            let is_fit = |of: &ManagerState| of.problem.is_empty();
            if let Ok(managers) = &managers
                && managers.len() == self.managers.len()
                && managers.iter().all(is_fit)
            {
                return leader;
            }
            assert!(begin.elapsed() < AT_MOST, "{managers:?}");
        }
    }

    async fn user(&self, at: usize, name: &str) -> Client {
        self.managers[at].user(name).await
    }
}

/// What a manager says about itself, if it leads.
async fn info(address: SocketAddr) -> Result<ManagerInfo, Status> {
    let gone = || Status::unavailable("not there");
    let channel = try_channel(address).await.ok_or_else(gone)?;
    let mut client = causeway_proto::manager::admin_client::AdminClient::new(channel);
    let answer = client.get_manager(GetManagerRequest {}).await?;
    let info = answer.get_ref();
    let metadata = answer.metadata();
    let term = Term::parse(metadata.get(TERM).unwrap().to_str().unwrap());
    assert_eq!(term, Some(Term(info.term)));
    assert!(metadata.get(CLUSTER).is_some());
    Ok(answer.into_inner())
}

async fn health(address: SocketAddr) -> ServingStatus {
    let mut client = HealthClient::new(try_channel(address).await.unwrap());
    let asked = client.check(HealthCheckRequest::default()).await.unwrap();
    asked.into_inner().status()
}

/// Runs the tool, which must succeed and knows this manager or these, and returns its output.
fn tool(manager: impl ToString, arguments: &[&str]) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_causeway"))
        .args(["--manager", &manager.to_string()])
        .args(arguments)
        .env("CAUSEWAY_CONFIG", "/dev/null")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{error}");
    String::from_utf8_lossy(&run.stdout).into_owned()
}

fn signal(manager: &Manager, name: &str) {
    let pid = manager.pid().to_string();
    let status = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(status.unwrap().success());
}

/// Whether all threads of a manager have stopped.
fn is_stopped(manager: &Manager) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", manager.pid())).unwrap();
    let mut states = tasks.flatten().map(|task| {
        let status = std::fs::read_to_string(task.path().join("status"));
        status.unwrap_or_default()
    });
    states.all(|status| status.contains("State:\tT"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_followed_by_another_and_no_lease_notices() {
    let Some(mut several) = Several::start(3, 3).await else {
        return;
    };
    let (first, before) = several.leader().await;
    let node = FakeNode::start_at_any(&several.addresses(), 1, 1);
    let mut ann = several.user(first, "ann").await;
    ann.see_nodes(1).await;
    let granted = ann.granted(request("1")).await;
    let mut bob = several.user(first, "bob").await;
    let mut asked = bob.ask(waiting("1")).await.unwrap();
    let Some(progress::Step::Position(place)) = asked.next().await else {
        panic!("bob does not wait");
    };

    several.managers[first].kill();
    let begin = Instant::now();
    let (second, after) = several.leader().await;
    eprintln!("another manager leads after {:?}", begin.elapsed());
    assert_ne!(first, second);
    assert!(after.term > before.term);
    assert_eq!(after.cluster_id, before.cluster_id);
    let mut ann = several.user(second, "ann").await;
    ann.see_nodes(1).await;
    let renewed = ann.renew(&granted.lease_id).await.unwrap();
    assert_eq!(renewed.nodes, granted.nodes);
    let mut bob = several.user(second, "bob").await;
    let again = RequestDevices {
        lease_id: place.lease_id.clone(),
        ..waiting("1")
    };
    let asked = bob.ask(again).await.unwrap();
    ann.release(&granted.lease_id).await.unwrap();
    let progress::Step::Granted(granted) = asked.last().await else {
        panic!("bob is not granted");
    };
    assert_eq!(granted.lease_id, place.lease_id);
    node.look(|state| assert_eq!(state.welcome.as_ref().unwrap().term, after.term));
    node.assert_no_fault();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_names_the_leader_and_serves_nobody() {
    let Some(several) = Several::start(1, 2).await else {
        return;
    };
    let (leader, info) = several.leader().await;
    let standby = several.managers[1 - leader].address;
    let begin = Instant::now();
    let status = loop {
        let mut client = Client::connect(standby, Who::Nobody).await;
        let status = client.ask(request("1")).await.err().unwrap();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        // The standby has to hear of the leader first.
        if status.metadata().get(LEADER).is_some() {
            break status;
        }
        assert!(begin.elapsed() < AT_MOST, "{status}");
    };
    let named = status.metadata().get(LEADER).unwrap().to_str().unwrap();
    assert_eq!(named, several.managers[leader].address.to_string());
    let term = status.metadata().get(TERM).unwrap().to_str().unwrap();
    assert_eq!(Term::parse(term), Some(Term(info.term)));
    // Without the cluster, callers would not believe the term.
    let begin = Instant::now();
    let cluster = loop {
        let mut client = Client::connect(standby, Who::Nobody).await;
        let status = client.ask(request("1")).await.err().unwrap();
        if let Some(cluster) = status.metadata().get(CLUSTER) {
            break ClusterId::parse(cluster.to_str().unwrap());
        }
        assert!(begin.elapsed() < AT_MOST, "{status}");
    };
    assert_eq!(cluster, ClusterId::from_bytes(&info.cluster_id));
    assert_eq!(health(standby).await, ServingStatus::NotServing);
    let serving = several.managers[leader].address;
    assert_eq!(health(serving).await, ServingStatus::Serving);
    let healthz = super::watching::get(standby, "/healthz").await;
    assert!(
        healthz.starts_with("HTTP/1.1 503") && healthz.contains("standby"),
        "{healthz}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_has_met_a_higher_term_is_refused_and_deposes_nobody() {
    let Some(several) = Several::start(1, 1).await else {
        return;
    };
    let (leader, before) = several.leader().await;
    let mut client = several.user(leader, "ann").await;
    let mut request = client.who.request(ListManagersRequest {});
    let met = (before.term + 7).to_string();
    request.metadata_mut().insert(TERM, met.parse().unwrap());
    let status = client.admin.list_managers(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().contains("--after-restore"), "{status}");
    let after = info(several.managers[leader].address).await.unwrap();
    assert_eq!(after.term, before.term);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_told_to_stop_or_step_down_hands_over_at_once() {
    // Far longer than a hand-over takes, whatever the machine does besides.
    let Some(several) = Several::configured("ttl_s = 30\n", &[], 1, 2).await else {
        return;
    };
    let at_once = Duration::from_secs(15);
    let (first, _) = several.leader().await;
    let mut admin = several.user(first, "admin").await;
    let begin = Instant::now();
    loop {
        let listed = admin.who.request(ListManagersRequest {});
        let list = admin
            .admin
            .list_managers(listed)
            .await
            .unwrap()
            .into_inner();
        let roles: Vec<_> = list.managers.iter().map(|of| of.role()).collect();
        assert_eq!((&*list.store, list.members.len()), ("etcd", 1));
        assert!(list.members[0].leader && list.members[0].problem.is_empty());
        if roles == [ManagerRole::Leader, ManagerRole::Standby] {
            break;
        }
        assert!(begin.elapsed() < AT_MOST, "{list:?}");
    }
    let address = several.managers[first].address;
    let listed = tool(address, &["managers"]);
    assert!(
        listed.contains("leader") && listed.contains("standby"),
        "{listed}"
    );
    assert!(listed.contains("3.4") && listed.contains("m0"), "{listed}");
    let begin = Instant::now();
    let [one, other] = [0, 1].map(|at| several.managers[at].address);
    tool(format!("{one},{other}"), &["managers", "step-down"]);
    // The tool ends when another manager leads.
    let took = begin.elapsed();
    let second = 1 - first;
    let next = info(several.managers[second].address).await;
    assert!(next.is_ok(), "{next:?}");
    eprintln!("after a step down another manager leads within {took:?}");
    assert!(took < at_once);

    signal(&several.managers[second], "TERM");
    let (third, took) = several.successor(second).await;
    eprintln!("after SIGTERM another manager leads within {took:?}");
    assert_eq!(third, first);
    assert!(took < at_once);
}

/// Else all nodes and clients ask all managers meanwhile, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_gives_up_the_lead_keeps_its_callers_until_another_serves() {
    // The time for which a leader waits for the next one, without its last part.
    const WAITS: Duration = Duration::from_millis(900);
    let Some(mut several) = Several::start(1, 2).await else {
        return;
    };
    let (mut stepped_down, mut stopped) = (false, false);
    // On a busy machine, the next leader may be later than that.
    for turn in 0..20 {
        let first = several.leader_of_all().await;
        let mut ann = several.user(first, "ann").await;
        let mut queued = ann.ask(waiting("1")).await.unwrap();
        let step = queued.next().await;
        assert!(
            matches!(step, Some(progress::Step::Position(_))),
            "{step:?}"
        );
        let stops = turn % 2 == 0;
        match stops {
            true => signal(&several.managers[first], "TERM"),
            false => {
                let order = ann.who.request(StepDownRequest {});
                // On a busy machine, the lead may be given up before the answer has left.
                drop(ann.admin.step_down(order).await);
            }
        }
        let begin = Instant::now();
        queued.parted().await;
        let took = begin.elapsed();
        let next = info(several.managers[1 - first].address).await;
        if took < WAITS {
            eprintln!("stopped: {stops}; parted after {took:?}");
            next.expect("callers stay until another manager serves");
            match stops {
                true => stopped = true,
                false => stepped_down = true,
            }
        }
        if stopped && stepped_down {
            return;
        }
        if stops {
            several.managers[first].kill_and_restart();
        }
    }
    eprintln!("not judged: this machine is too busy for a change of the leader within {WAITS:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_key_was_deleted_is_deposed_and_another_leads() {
    let Some(several) = Several::start(1, 2).await else {
        return;
    };
    let (_, before) = several.leader().await;
    let mut etcd = several.etcd.client().await;
    etcd.delete(format!("{PREFIX}leader"), None).await.unwrap();
    let begin = Instant::now();
    let (second, after) = loop {
        let (second, after) = several.leader().await;
        if after.term > before.term {
            break (second, after);
        }
        assert!(begin.elapsed() < AT_MOST);
    };
    assert!(after.term > before.term);
    // The deposed one lives on, and stands by.
    let other = several.managers[1 - second].address;
    let begin = Instant::now();
    while info(other).await.is_ok() {
        assert!(begin.elapsed() < AT_MOST, "two managers lead");
    }
    assert!(try_channel(other).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_nobody_leads_and_nothing_is_lost() {
    let Some(mut several) = Several::start(3, 2).await else {
        return;
    };
    let (leader, before) = several.leader().await;
    let node = FakeNode::start_at_any(&several.addresses(), 1, 1);
    let mut ann = several.user(leader, "ann").await;
    ann.see_nodes(1).await;
    let granted = ann.granted(request("1")).await;
    several.etcd.kill(0);
    several.etcd.kill(1);
    let begin = Instant::now();
    while info(several.managers[leader].address).await.is_ok() {
        assert!(begin.elapsed() < AT_MOST, "a manager leads without etcd");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for manager in &several.managers {
        let begin = Instant::now();
        let status = loop {
            match info(manager.address).await.unwrap_err() {
                // The former leader broke this connection when it stopped serving.
                broken if broken.code() == tonic::Code::Unknown => {
                    assert!(begin.elapsed() < AT_MOST, "{broken}");
                }
                status => break status,
            }
        };
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
    }
    several.etcd.run(0);
    several.etcd.run(1);
    several.etcd.wait().await;
    let (leader, after) = several.leader().await;
    assert!(after.term > before.term);
    let mut ann = several.user(leader, "ann").await;
    ann.see_nodes(1).await;
    let renewed = ann.renew(&granted.lease_id).await.unwrap();
    assert_eq!(renewed.nodes, granted.nodes);
    node.assert_no_fault();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_stopped_for_a_while_does_nothing_first() {
    let Some(several) = Several::start(1, 2).await else {
        return;
    };
    let (first, before) = several.leader().await;
    let mut ann = several.user(first, "ann").await;
    signal(&several.managers[first], "STOP");
    let begin = Instant::now();
    while !is_stopped(&several.managers[first]) {
        assert!(begin.elapsed() < AT_MOST, "the leader does not stop");
    }
    // The call lies in the stopped process's socket until that goes on.
    let asked = tokio::spawn(async move { ann.ask(request("1")).await.map(drop) });
    let second = 1 - first;
    let begin = Instant::now();
    while info(several.managers[second].address).await.is_err() {
        assert!(begin.elapsed() < AT_MOST, "no manager leads");
    }
    signal(&several.managers[first], "CONT");
    let status = asked.await.unwrap().expect_err("a late answer");
    assert!(
        matches!(
            status.code(),
            tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Cancelled
        ),
        "{status:?}"
    );
    let (_, after) = several.leader().await;
    assert!(after.term > before.term);
}

/// A client that waits hears nothing for long, so the connection itself must tell that its manager is silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_leaves_a_leader_that_is_silent() {
    let Some(several) = Several::start(1, 2).await else {
        return;
    };
    let (first, _) = several.leader().await;
    let _node = FakeNode::start_at_any(&several.addresses(), 1, 1);
    let mut ann = several.user(first, "ann").await;
    ann.see_nodes(1).await;
    let granted = ann.granted(request("1")).await;
    let addresses: Vec<String> = several
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    let bob = RunningTool::with(
        |tool| tool.with("CAUSEWAY_MANAGER", addresses.join(",")),
        &several.managers[first],
        "bob",
        &["run", "--wait", "--json", "--request", "1", "--", "true"],
    );
    let until = |event: &str| {
        let (begin, event) = (Instant::now(), format!("\"event\":\"{event}\""));
        while !bob.error_line().replace(' ', "").contains(&event) {
            assert!(begin.elapsed() < AT_MOST, "{event} is not told");
        }
    };
    until("waiting");
    signal(&several.managers[first], "STOP");
    let silent = Instant::now();
    until("away");
    // Nodes leave a silent manager after 5 s. On a busy machine that may take longer, and gRPC's usual pings 25 s.
    assert!(silent.elapsed() < Duration::from_secs(20));
    until("waiting");
    // The simulated node does not leave a silent manager.
    signal(&several.managers[first], "CONT");
    let mut ann = several.user(1 - first, "ann").await;
    ann.see_nodes(1).await;
    ann.release(&granted.lease_id).await.unwrap();
    until("granted");
    assert_eq!(bob.end().code(), Some(0));
}

/// The nodes of the leader are cut off from it, and reach one standby. That one leads next. Then its nodes are cut off.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_most_nodes_do_not_reach_steps_aside_and_the_next_one_stays() {
    let Some(several) = Several::start(1, 3).await else {
        return;
    };
    let ways = several.addresses().into_iter();
    let ways = ways.map(|manager| Forwarder::start(Some(Target::Tcp(manager))).unwrap());
    let ways: Vec<_> = ways.collect();
    let (first, before) = several.leader().await;
    let by: Vec<_> = ways.iter().map(Forwarder::address).collect();
    let nodes: Vec<_> = (1..=3)
        .map(|number| FakeNode::start_at_any(&by, number, 1))
        .collect();
    let mut ann = several.user(first, "ann").await;
    ann.see_nodes(3).await;
    // An earlier step aside did not help, so the mark lasts twice as long.
    let mut etcd = several.etcd.client().await;
    let before_aside = format!("{PREFIX}before-aside");
    etcd.put(before_aside.clone(), "300", None).await.unwrap();
    // One of the standbys is of no use to the nodes.
    let useless = (first + 1) % 3;
    ways[useless].close();
    ways[first].close();
    let (second, took) = several.successor(first).await;
    eprintln!("another manager leads after {took:?}");
    let (_, after) = several.leader().await;
    assert_eq!(after.term, before.term + 1);
    assert_ne!(second, useless);
    several.user(second, "ann").await.see_nodes(3).await;
    assert!(several.managers[first].log().contains("stepping aside"));

    // Now the second one is cut off.
    ways[first].open();
    ways[second].close();
    let begin = Instant::now();
    let stays = "a manager has stepped aside for that within the last minutes";
    while !several.managers[second].log().contains(stays) {
        assert!(
            begin.elapsed() < 2 * AT_MOST,
            "{}",
            several.managers[second].log()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let info = info(several.managers[second].address).await.unwrap();
    assert_eq!(info.term, after.term);
    // A mark of ten minutes, which only the leader sets.
    let mark = etcd.get(format!("{PREFIX}aside"), None).await.unwrap();
    let lease = mark.kvs()[0].lease();
    let left = etcd.lease_time_to_live(lease, None).await.unwrap();
    assert!((500..=600).contains(&left.ttl()), "{left:?}");
    let remembered = etcd.get(before_aside, None).await.unwrap();
    assert_eq!(remembered.kvs()[0].value(), b"600");
    let lease = remembered.kvs()[0].lease();
    let left = etcd.lease_time_to_live(lease, None).await.unwrap();
    assert!((2_300..=2_400).contains(&left.ttl()), "{left:?}");
    nodes.iter().for_each(FakeNode::assert_no_fault);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_separate_listener_for_monitoring_is_served_in_each_role() {
    let flags = ["--metrics", "127.0.0.1:0"];
    let Some(mut several) = Several::with_flags(&flags, 1, 1).await else {
        return;
    };
    let watched_at = several.managers[0].watched_at();
    several.leader().await;
    let healthz = super::watching::get(watched_at, "/healthz").await;
    assert!(healthz.starts_with("HTTP/1.1 200"), "{healthz}");
    several.etcd.kill(0);
    let begin = Instant::now();
    loop {
        let healthz = super::watching::get(watched_at, "/healthz").await;
        if healthz.starts_with("HTTP/1.1 503") && healthz.contains("standby") {
            break;
        }
        assert!(begin.elapsed() < AT_MOST, "{healthz}");
    }
}
