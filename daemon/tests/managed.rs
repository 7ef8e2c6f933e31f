//! A daemon in managed mode: what a device manager leases is served, and nothing else.

mod common;

use std::path::Path;
use std::time::{Instant, SystemTime};

use causeway_proto::command::{CreateContext, ObjectKind, command::Kind};
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{GetInventoryRequest, Inventory};
use causeway_proto::manager::{
    ClaimedNode, Drain, Grant, Heartbeat, Stopping, Unit, from_node, to_node,
};
use causeway_proto::named_lease;
use causeway_proto::request::answer_of;
use causeway_proto::request::property::GLOBAL_MEM_SIZE;
use causeway_proto::version::WireVersion;
use causeway_security::LeaseKey;
use common::manager::{LONG, Manager, Node, USER, claim, grant};
use common::{Daemon, Session};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process};
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};

const MEM_OBJECT_ALLOCATION_FAILURE: i32 = -4;
const MIB: u64 = 1 << 20;

/// Three devices, of which the last is offered as two.
const DEVICES: &str = "devices = 3";
const SHARES: &str = "[[shares]]\ndevice = \"0.2\"\ncount = 2\nmemory = 67108864\n";

fn daemon(manager: &Manager, state: &Path) -> Daemon {
    configured(manager, state, SHARES)
}

fn configured(manager: &Manager, state: &Path, text: &str) -> Daemon {
    let config = state.join("daemon.toml");
    std::fs::write(&config, text).unwrap();
    let arguments = [
        "--manager",
        &manager.address.to_string(),
        "--config",
        config.to_str().unwrap(),
    ];
    let state = [("STATE_DIRECTORY", state.to_str().unwrap())];
    Daemon::fake_with(DEVICES, &arguments, &state)
}

/// A manager, a daemon that it has welcomed, and where that keeps its identity.
struct Cluster {
    daemon: Daemon,
    node: Node,
    manager: Manager,
    state: tempfile::TempDir,
}

fn cluster() -> Cluster {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let daemon = daemon(&manager, state.path());
    let node = manager.welcomed(10);
    Cluster {
        daemon,
        node,
        manager,
        state,
    }
}

impl Cluster {
    /// A lease of whole device 1, and what its client shows.
    fn lease(&self) -> (Grant, Vec<u8>) {
        let lease = grant(1, 11, &[(0, 1, 0, 0)]);
        self.node.grant(&lease);
        let credential = self.manager.credential(&self.node, &lease);
        (lease, credential)
    }

    fn open(&self, credential: &[u8]) -> Session {
        Session::try_open(&self.daemon, credential).unwrap()
    }

    fn refusal(&self, credential: &[u8]) -> String {
        let refused = Session::try_open(&self.daemon, credential);
        let status = refused.err().expect("no session");
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        status.message().to_owned()
    }
}

fn shown(inventory: &Inventory) -> Vec<bool> {
    let devices = inventory.platforms.iter().flat_map(|of| &of.devices);
    devices.map(|device| !device.info.is_empty()).collect()
}

fn context_on(session: &mut Session, device: u32) -> u64 {
    let context = session.new_id();
    session.send(vec![Kind::CreateContext(CreateContext {
        context,
        platform: 0,
        devices: vec![device],
    })]);
    context
}

/// What became of a buffer: 0, or why there is none.
fn allocate(session: &mut Session, context: u64, size: u64) -> (u64, i32) {
    let buffer = session.buffer(context, size, &[]);
    session.ping();
    let mut notices = session.heard.notices.iter();
    let broken = notices.find(|notice| notice.id == buffer);
    (buffer, broken.map_or(0, |notice| notice.status))
}

#[test]
fn a_lease_opens_a_session_with_its_devices_and_no_others() {
    let cluster = cluster();
    let hello = &cluster.node.hello;
    assert_eq!(shown(hello.inventory.as_ref().unwrap()), [true; 3]);
    assert_eq!((hello.shared[0].device, hello.shared[0].shares), (2, 2));
    assert!(!hello.addresses.is_empty() && hello.leases.is_empty());
    let (lease, credential) = cluster.lease();

    let nothing = cluster.daemon.inventory();
    assert_eq!(shown(&nothing), [false; 3]);
    assert!(nothing.problems[0].contains("a lease is needed"));
    assert!(cluster.refusal(&[]).contains("a lease is needed"));
    let inventory = cluster.daemon.inventory_for(&credential);
    assert_eq!(shown(&inventory), [false, true, false]);

    let mut session = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
    let context = context_on(&mut session, 1);
    assert_eq!(allocate(&mut session, context, 64).1, 0);
    context_on(&mut session, 0);
    session.ends();
    cluster.node.expect_sessions(&lease, 0);
}

#[test]
fn what_is_no_lease_of_this_node_opens_nothing() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let (node, manager) = (&cluster.node, &cluster.manager);
    let sign = |change: &dyn Fn(&mut causeway_proto::manager::Claim)| {
        let mut claim = claim(node, &lease);
        change(&mut claim);
        manager.key.sign(claim)
    };
    let stranger = LeaseKey::generate().unwrap().sign(claim(node, &lease));
    let long_ago = SystemTime::now() - LONG;
    let long_ago = long_ago.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    for (credential, said) in [
        (b"a lease".to_vec(), "is no lease"),
        (stranger, "not signed by this node's device manager"),
        (
            sign(&|of| of.not_after_unix_ms = long_ago.as_millis() as u64),
            "has expired",
        ),
        (sign(&|of| of.user = "bob".to_owned()), "another user's"),
        (sign(&|of| of.nodes[0].epoch = 10), "older grant"),
        (sign(&|of| of.nodes[0].epoch = 12), "no such lease"),
        (
            sign(&|of| of.nodes[0].node_uuid = vec![1; 16].into()),
            "nothing of this node",
        ),
        (
            sign(&|of| {
                of.nodes[0].units.push(Unit {
                    platform: 0,
                    device: 0,
                    share: 0,
                });
            }),
            "does not have what",
        ),
        (
            sign(&|of| of.lease_id = vec![2; 16].into()),
            "no such lease",
        ),
    ] {
        let refusal = cluster.refusal(&credential);
        assert!(refusal.contains(said), "{refusal}");
        let inventory = cluster.daemon.inventory_for(&credential);
        assert_eq!(shown(&inventory), [false; 3], "{said}");
    }
    let _session = cluster.open(&credential);
    node.expect_sessions(&lease, 1);
}

#[test]
fn a_withdrawn_lease_ends_its_sessions_and_its_credential_is_worth_nothing() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let mut sessions = [cluster.open(&credential), cluster.open(&credential)];
    cluster.node.expect_sessions(&lease, 1);
    cluster.node.expect_sessions(&lease, 2);
    // Who has no session yet, because his worker is still loading, has nobody who could tell him.
    for session in &mut sessions {
        let context = context_on(session, 1);
        assert_eq!(allocate(session, context, 64).1, 0);
    }
    cluster.node.withdraw(&lease);
    for session in &mut sessions {
        session.ends();
        assert_eq!(session.heard.farewell, "the lease is over: a test");
    }
    cluster.node.expect_sessions(&lease, 1);
    cluster.node.expect_sessions(&lease, 0);
    cluster.node.expect_withdrawn(&lease);
    assert!(cluster.refusal(&credential).contains("no such lease"));
    // What was never here is not here either.
    let other = grant(7, 12, &[(0, 0, 0, 0)]);
    cluster.node.withdraw(&other);
    cluster.node.expect_withdrawn(&other);
    assert!(cluster.node.grant_refused(&other).contains("older"));
}

#[test]
fn a_lease_ends_by_the_nodes_own_clock() {
    let cluster = cluster();
    let mut lease = grant(1, 11, &[(0, 1, 0, 0)]);
    lease.limit_ms = 1000;
    cluster.node.grant(&lease);
    let credential = cluster.manager.credential(&cluster.node, &lease);
    let mut session = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
    session.ends();
    let farewell = &session.heard.farewell;
    assert_eq!(farewell, "the lease is over: its time is over");
    cluster.node.expect_sessions(&lease, 0);
    cluster.node.expect_withdrawn(&lease);
}

#[test]
fn a_lease_ends_when_its_manager_is_silent_for_too_long() {
    let cluster = cluster();
    let mut lease = grant(1, 11, &[(0, 1, 0, 0)]);
    lease.autonomy_ms = 1000;
    cluster.node.grant(&lease);
    let credential = cluster.manager.credential(&cluster.node, &lease);
    let mut session = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
    cluster.node.fall_silent();
    session.ends();
    assert!(session.heard.farewell.contains("not been heard of"));
    cluster.node.expect_sessions(&lease, 0);
    cluster.node.expect_withdrawn(&lease);
}

#[test]
fn while_the_manager_is_away_leases_go_on() {
    let Cluster {
        daemon,
        node,
        manager,
        state: _state,
    } = cluster();
    let lease = grant(1, 11, &[(0, 1, 0, 0)]);
    node.grant(&lease);
    let credential = manager.credential(&node, &lease);
    let mut first = Session::try_open(&daemon, &credential).unwrap();
    node.expect_sessions(&lease, 1);
    drop(node);
    // It is back, and says nothing yet.
    let node = manager.joined();
    first.ping();
    let mut second = Session::try_open(&daemon, &credential).unwrap();
    second.ping();
    let running = &node.hello.leases;
    assert_eq!((running.len(), running[0].sessions), (1, 1));
    assert_eq!(
        (&running[0].lease_id, running[0].epoch),
        (&lease.lease_id, 11)
    );
    // What was said after the hello comes after it.
    node.expect_sessions(&lease, 2);
    // Meanwhile it has granted others what it numbers up to 20; this node never heard of it.
    node.welcome(&manager.key, 20);
    let late = grant(2, 20, &[(0, 0, 0, 0)]);
    assert!(node.grant_refused(&late).contains("older"));
    node.grant(&grant(2, 21, &[(0, 0, 0, 0)]));
    first.ping();
    // The unit is given to somebody else: whoever has it is fenced off.
    let newer = grant(3, 22, &[(0, 1, 0, 0)]);
    assert!(node.grant_refused(&newer).contains("still in use"));
    for session in [&mut first, &mut second] {
        session.ends();
        assert!(session.heard.farewell.contains("somebody else"));
    }
}

#[test]
fn a_daemon_that_was_killed_comes_back_as_the_same_node_without_its_leases() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let mut session = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
    let Cluster {
        daemon: killed,
        node,
        manager,
        state,
    } = cluster;
    let uuid = node.hello.node_uuid.clone();
    drop(killed);
    session.ends();
    drop(node);
    let again = daemon(&manager, state.path());
    let node = manager.welcomed(11);
    assert_eq!(node.hello.node_uuid, uuid);
    assert!(node.hello.leases.is_empty());
    assert!(node.grant_refused(&lease).contains("older"));
    let refused = Session::try_open(&again, &credential).err();
    assert_eq!(refused.unwrap().code(), Code::PermissionDenied);
}

#[test]
fn shares_of_a_device_are_leased_apart_each_with_its_memory() {
    let cluster = cluster();
    let leases = [0, 1].map(|share| {
        let epoch = 11 + u64::from(share);
        let lease = grant(1 + share as u8, epoch, &[(0, 2, share, 64 * MIB)]);
        cluster.node.grant(&lease);
        lease
    });
    let beyond = grant(9, 20, &[(0, 2, 2, 64 * MIB)]);
    assert!(cluster.node.grant_refused(&beyond).contains("no such"));
    for lease in &leases {
        let credential = cluster.manager.credential(&cluster.node, lease);
        let inventory = cluster.daemon.inventory_for(&credential);
        assert_eq!(shown(&inventory), [false, false, true]);
        let device = &inventory.platforms[0].devices[2];
        let memory = answer_of(&device.info, GLOBAL_MEM_SIZE).unwrap();
        assert_eq!(memory, (64 * MIB).to_le_bytes());

        let mut session = cluster.open(&credential);
        cluster.node.expect_sessions(lease, 1);
        let context = context_on(&mut session, 2);
        let (first, status) = allocate(&mut session, context, 40 * MIB);
        assert_eq!(status, 0);
        // In another context it is the same memory.
        let other = context_on(&mut session, 2);
        let (_, status) = allocate(&mut session, other, 30 * MIB);
        assert_eq!(status, MEM_OBJECT_ALLOCATION_FAILURE);
        session.release(ObjectKind::Memory, first);
        let (_, status) = allocate(&mut session, other, 30 * MIB);
        assert_eq!(status, 0);
        drop(session);
        cluster.node.expect_sessions(lease, 0);
    }
}

#[test]
fn sessions_of_one_lease_come_and_go_and_the_manager_is_told() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let [first, second] = [1, 2].map(|count| {
        let session = cluster.open(&credential);
        cluster.node.expect_sessions(&lease, count);
        session
    });
    drop(first);
    cluster.node.expect_sessions(&lease, 1);
    drop(second);
    cluster.node.expect_sessions(&lease, 0);
    // It is the manager's to say that the lease is over.
    let _third = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
}

#[test]
fn a_draining_node_takes_no_new_lease() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let drain = |draining| {
        cluster
            .node
            .say(to_node::Message::Drain(Drain { draining }))
    };
    drain(true);
    let other = grant(2, 12, &[(0, 0, 0, 0)]);
    assert!(cluster.node.grant_refused(&other).contains("draining"));
    let _session = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
    drain(false);
    cluster.node.grant(&grant(2, 13, &[(0, 0, 0, 0)]));
}

#[test]
fn a_daemon_that_is_told_to_end_takes_no_lease_and_lets_go_of_those_that_it_has() {
    let cluster = cluster();
    let (used, credential) = cluster.lease();
    let unused = grant(2, 12, &[(0, 0, 0, 0)]);
    cluster.node.grant(&unused);
    let session = cluster.open(&credential);
    cluster.node.expect_sessions(&used, 1);
    let daemon = Pid::from_raw(cluster.daemon.pid() as i32).unwrap();
    kill_process(daemon, Signal::TERM).unwrap();
    let told = from_node::Message::Stopping(Stopping {});
    assert_eq!(cluster.node.word(), told);
    let late = grant(3, 13, &[(0, 2, 0, 0)]);
    assert!(cluster.node.grant_refused(&late).contains("stopping"));
    let remarks = cluster.daemon.inventory_for(&credential).remarks;
    assert!(
        remarks.iter().any(|of| of.starts_with("STOPPING")),
        "{remarks:?}"
    );
    // It says so to whomever it joins meanwhile, and what runs goes on.
    let Cluster {
        daemon,
        node,
        manager,
        state: _state,
    } = cluster;
    drop(node);
    let node = manager.joined();
    assert!(node.hello.stopping && node.hello.leases.len() == 2);
    node.welcome(&manager.key, 10);
    drop(session);
    node.expect_sessions(&used, 0);
    node.expect_withdrawn(&used);
    node.expect_withdrawn(&unused);
    // All of it was said before it left.
    node.left();
    assert!(daemon.terminate());
}

#[test]
fn the_sessions_of_a_lease_share_the_memory_of_its_share() {
    let cluster = cluster();
    let lease = grant(1, 11, &[(0, 2, 0, 64 * MIB)]);
    cluster.node.grant(&lease);
    let credential = cluster.manager.credential(&cluster.node, &lease);
    let mut killed = cluster.open(&credential);
    let worker = killed.worker();
    let mut other = cluster.open(&credential);
    let of_killed = context_on(&mut killed, 2);
    let of_other = context_on(&mut other, 2);
    let full = |(_, status)| assert_eq!(status, MEM_OBJECT_ALLOCATION_FAILURE);
    let fits = |(buffer, status)| {
        assert_eq!(status, 0);
        buffer
    };
    let first = fits(allocate(&mut killed, of_killed, 40 * MIB));
    full(allocate(&mut other, of_other, 40 * MIB));
    let second = fits(allocate(&mut other, of_other, 24 * MIB));
    full(allocate(&mut killed, of_killed, MIB));
    killed.release(ObjectKind::Memory, first);
    killed.ping();
    other.release(ObjectKind::Memory, second);
    let _third = fits(allocate(&mut other, of_other, 10 * MIB));
    fits(allocate(&mut killed, of_killed, 54 * MIB));
    full(allocate(&mut other, of_other, MIB));
    // Who is killed gives nothing back; the supervisor does.
    let pid = rustix::process::Pid::from_raw(worker as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    killed.ends();
    for count in [1, 2, 1] {
        cluster.node.expect_sessions(&lease, count);
    }
    fits(allocate(&mut other, of_other, 54 * MIB));
    full(allocate(&mut other, of_other, MIB));
}

#[test]
fn heartbeats_tell_what_each_lease_uses() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    cluster.node.grant(&grant(2, 12, &[(0, 0, 0, 0)]));
    let mut session = cluster.open(&credential);
    session.ping();
    let of = |beat: &Heartbeat, lease: &[u8]| {
        let mut leases = beat.leases.iter();
        leases.find(|of| of.lease_id == lease).cloned()
    };
    let beat = cluster.node.beat(|beat| beat.commands > 0);
    let used = of(&beat, &lease.lease_id).unwrap();
    assert_eq!((used.commands, used.sessions), (beat.commands, 1));
    let idle = of(&beat, &[2; 16]).unwrap();
    assert_eq!((idle.bytes, idle.commands, idle.sessions), (0, 0, 0));
    // What a session did stays its lease's, and the node's for ever.
    drop(session);
    let beat = cluster.node.beat(|beat| beat.sessions == 0);
    let left = of(&beat, &lease.lease_id).unwrap();
    assert!(left.commands >= used.commands && left.sessions == 0);
    cluster.node.withdraw(&lease);
    let beat = cluster
        .node
        .beat(|beat| of(beat, &lease.lease_id).is_none());
    assert!(beat.commands >= left.commands);
}

#[test]
fn every_line_about_a_session_tells_whose_it_is() {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let log = state.path().join("log");
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_causewayd"));
    program.stderr(std::fs::File::create(&log).unwrap());
    let arguments = ["--manager", &manager.address.to_string()];
    let arguments = [&arguments[..], &["--log", "debug", "--log-format", "json"]].concat();
    let state_directory = state.path().to_str().unwrap();
    let daemon = Daemon::by_fake(
        program,
        "devices = 3",
        &arguments,
        &[("STATE_DIRECTORY", state_directory)],
    );
    let node = manager.welcomed(10);
    let lease = grant(1, 11, &[(0, 1, 0, 0)]);
    node.grant(&lease);
    let session = Session::try_open(&daemon, &manager.credential(&node, &lease)).unwrap();
    let name = format!("{:?}", session.id());
    drop(session);
    node.expect_sessions(&lease, 1);
    node.expect_sessions(&lease, 0);
    assert!(daemon.terminate());
    let log = std::fs::read_to_string(log).unwrap();
    let mut said = Vec::new();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        let (fields, target) = (&line["fields"], line["target"].as_str().unwrap());
        let is_workers = target.starts_with("causeway_daemon::worker");
        // A worker is nobody's until it is assigned.
        if fields.get("session").is_none() {
            assert!(!is_workers, "{line}");
            continue;
        }
        assert_eq!(fields["session"], name, "{line}");
        assert_eq!(fields["lease"], "lease 01010101", "{line}");
        assert_eq!(fields["user"], USER, "{line}");
        said.push(fields["message"].as_str().unwrap().to_owned());
    }
    for message in [
        "session opened",
        "session of",
        "assigned",
        "the client closed the session",
        "session ended",
    ] {
        assert!(said.iter().any(|of| of == message), "{message}: {said:?}");
    }
}

/// One connection, in which a node is asked.
async fn reach(daemon: &Daemon) -> NodeClient<Channel> {
    let socket = tokio::net::TcpStream::connect(&daemon.address).await;
    let mut socket = Some(socket.unwrap());
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.take().map(TokioIo::new);
        std::future::ready(socket.ok_or_else(|| std::io::Error::other("one is all there is")))
    });
    let node = Endpoint::from_static("http://node");
    NodeClient::new(node.connect_with_connector(connector).await.unwrap())
}

async fn ask(
    node: &mut NodeClient<Channel>,
    credential: &[u8],
) -> Result<Inventory, tonic::Status> {
    ask_naming(node, credential, None).await
}

/// The same of who names a lease at the head of his call.
async fn ask_naming(
    node: &mut NodeClient<Channel>,
    credential: &[u8],
    named: Option<&str>,
) -> Result<Inventory, tonic::Status> {
    let mut request = tonic::Request::new(GetInventoryRequest {
        wire_version: WireVersion::CURRENT.number().into(),
        credential: credential.to_vec().into(),
    });
    if let Some(named) = named {
        let metadata = request.metadata_mut();
        metadata.insert(named_lease::HEADER, named.parse().unwrap());
    }
    Ok(node.get_inventory(request).await?.into_inner())
}

#[test]
fn of_who_names_no_lease_of_this_node_no_long_message_is_read() {
    let cluster = cluster();
    let (lease, _) = cluster.lease();
    // It has much of other nodes.
    let mut claim = claim(&cluster.node, &lease);
    claim.nodes.extend((0..400).map(|_| ClaimedNode {
        node_uuid: vec![9; 16].into(),
        epoch: 11,
        units: vec![Unit::default()],
    }));
    let credential = cluster.manager.key.sign(claim);
    assert!((8 << 10..60 << 10).contains(&credential.len()));
    let named = named_lease::told(&credential).unwrap();
    let anothers = "2".repeat(32);
    common::block_on(async {
        for name in [None, Some(anothers.as_str()), Some("a lease")] {
            let mut stranger = reach(&cluster.daemon).await;
            let told = ask_naming(&mut stranger, &credential, name).await;
            let refused = told.unwrap_err();
            assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
        }
        // A name alone is worth no more than that, and a message has an end for everybody.
        let mut finder = reach(&cluster.daemon).await;
        let forged = vec![b'a'; credential.len()];
        let nothing = ask_naming(&mut finder, &forged, Some(&named)).await;
        assert_eq!(shown(&nothing.unwrap()), [false; 3]);
        let endless = vec![b'a'; 1 << 20];
        let refused = ask_naming(&mut finder, &endless, Some(&named)).await;
        assert_eq!(refused.unwrap_err().code(), Code::OutOfRange);
        let mut holder = reach(&cluster.daemon).await;
        let devices = ask_naming(&mut holder, &credential, Some(&named)).await;
        assert_eq!(shown(&devices.unwrap()), [false, true, false]);
        // By then he is known.
        let devices = ask(&mut holder, &credential).await.unwrap();
        assert_eq!(shown(&devices), [false, true, false]);
    });
}

#[test]
fn who_shows_no_lease_has_little_time() {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let short = "[connections]\nhandshake_time_limit_ms = 1000\n";
    let daemon = configured(&manager, state.path(), short);
    let node = manager.welcomed(10);
    let lease = grant(1, 11, &[(0, 1, 0, 0)]);
    node.grant(&lease);
    let credential = manager.credential(&node, &lease);
    common::block_on(async {
        let mut holder = reach(&daemon).await;
        let devices = ask(&mut holder, &credential).await.unwrap();
        assert_eq!(shown(&devices), [false, true, false]);
        let mut stranger = reach(&daemon).await;
        // He is told so, again and again, until his time is over.
        let until = Instant::now() + common::LIMIT;
        while let Ok(nothing) = ask(&mut stranger, b"a lease").await {
            assert!(Instant::now() < until, "he is not ended");
            assert_eq!(shown(&nothing), [false; 3]);
            assert!(nothing.problems[0].contains("is no lease"));
        }
        // Later than that, over the connection that he had before.
        ask(&mut holder, &credential).await.unwrap();
    });
}
