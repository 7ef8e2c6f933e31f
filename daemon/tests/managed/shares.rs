//! Tests of shares of a device, and of their memory.

use causeway_proto::command::ObjectKind;
use causeway_proto::request::answer_of;
use causeway_proto::request::property::GLOBAL_MEM_SIZE;

use crate::common::manager::{Manager, grant};
use crate::common::{Daemon, Session, allocate, context_on};
use crate::support::{DEVICES, SHARES, cluster, configured, shown};

const MEM_OBJECT_ALLOCATION_FAILURE: i32 = -4;
const MIB: u64 = 1 << 20;

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
        // The limit covers all contexts.
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
    // A killed worker returns no memory. The supervisor does.
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
fn the_sessions_of_a_share_have_the_domain_that_the_share_names() {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let at = |name: &str| state.path().join(name);
    let settings = "[sharing]\ntogether = \"user\"\n[[shares]]\ndevice = \"0.2\"\ncount = 2\ntogether = \"all\"\n";
    std::fs::write(at("daemon.toml"), settings).unwrap();
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_causewayd"));
    program.stderr(std::fs::File::create(at("log")).unwrap());
    program.args(["--manager", &manager.address.to_string()]);
    program.arg("--config").arg(at("daemon.toml"));
    let flags = ["--log-format", "json"];
    let folder = [("STATE_DIRECTORY", state.path().to_str().unwrap())];
    let daemon = Daemon::by_fake(program, DEVICES, &flags, &folder);
    let node = manager.welcomed(10);
    for (lease, device) in [(1, 1), (2, 2)] {
        let lease = grant(lease, 10 + u64::from(lease), &[(0, device, 0, 0)]);
        node.grant(&lease);
        let credential = manager.credential(&node, &lease);
        let session = Session::try_open(&daemon, &credential).unwrap();
        node.expect_sessions(&lease, 1);
        drop(session);
        node.expect_sessions(&lease, 0);
    }
    let log = std::fs::read_to_string(at("log")).unwrap();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let opened = lines.filter(|line| line["fields"]["message"] == "session opened");
    let domains: Vec<_> = opened
        .map(|line| line["fields"]["domain"].clone())
        .collect();
    // Device 1 has no shares, so [sharing] holds for it.
    assert_eq!(domains, ["user ann", "everyone on this node"]);
}

#[test]
fn leases_in_one_host_have_the_memory_of_their_shares_each() {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let daemon = configured(
        &manager,
        state.path(),
        &format!("{SHARES}together = \"all\"\n"),
    );
    let node = manager.welcomed(10);
    let credentials = [0, 1].map(|share| {
        let epoch = 11 + u64::from(share);
        let lease = grant(1 + share as u8, epoch, &[(0, 2, share, 64 * MIB)]);
        node.grant(&lease);
        manager.credential(&node, &lease)
    });
    let mut sessions = credentials.map(|of| Session::try_open(&daemon, &of).unwrap());
    assert_eq!(sessions[0].workers().len(), 1);
    for session in &mut sessions {
        let context = context_on(session, 2);
        assert_eq!(allocate(session, context, 40 * MIB).1, 0);
        let (_, status) = allocate(session, context, 30 * MIB);
        assert_eq!(status, MEM_OBJECT_ALLOCATION_FAILURE);
        // The rest of the lease's memory is there.
        assert_eq!(allocate(session, context, 20 * MIB).1, 0);
    }
}

#[test]
fn users_have_hosts_of_their_own_and_the_end_of_one_leaves_the_other() {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let settings = format!("{SHARES}together = \"user\"\n");
    let daemon = configured(&manager, state.path(), &settings);
    let node = manager.welcomed(10);
    let credentials = [(0, "ann"), (1, "bob")].map(|(share, user)| {
        let mut lease = grant(
            1 + share as u8,
            11 + u64::from(share),
            &[(0, 2, share, 64 * MIB)],
        );
        user.clone_into(&mut lease.user);
        node.grant(&lease);
        manager.credential(&node, &lease)
    });
    let open = |of: &Vec<u8>| Session::try_open(&daemon, of).unwrap();
    let mut of_ann = [(); 2].map(|()| open(&credentials[0]));
    let host = of_ann[0].worker();
    let mut of_bob = open(&credentials[1]);
    let context = context_on(&mut of_bob, 2);
    assert_eq!(allocate(&mut of_bob, context, MIB).1, 0);
    assert_eq!(of_bob.workers().len(), 2, "two users, two hosts");
    let pid = rustix::process::Pid::from_raw(host as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    for session in &mut of_ann {
        session.ends();
    }
    assert_eq!(allocate(&mut of_bob, context, MIB).1, 0);
    let mut next = open(&credentials[0]);
    let context = context_on(&mut next, 2);
    assert_eq!(allocate(&mut next, context, MIB).1, 0);
    of_bob.ping();
}
