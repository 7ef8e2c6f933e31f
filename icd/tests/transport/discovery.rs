//! Tests the discovery of nodes: all at once, within a second, leaving nothing behind.
//!
//! The tests have a process of their own, because one of them counts its threads and sockets. They run one after the
//! other.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use causeway::config::ServerSettings;
use causeway::transport::{Target, WireError, ask_by_uuid, discover, node_status};
use causeway_cutter::Forwarder;
use parking_lot::Mutex;
use prost::bytes::Bytes;

use crate::frames::fake_node;
use crate::frames::fake_node::{FakeNode, Faults};

/// Held by the test that runs, because sockets of another one would count.
static RUNS: Mutex<()> = Mutex::new(());

fn at(address: SocketAddr) -> ServerSettings {
    ServerSettings::at(address.to_string().parse().unwrap())
}

fn sockets() -> usize {
    let links = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}

fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("cw-")).collect()
}

#[test]
fn all_nodes_are_asked_at_once_and_nothing_stays() {
    own_process!();
    let _alone = RUNS.lock();
    let first = FakeNode::start(Faults::default());
    let second = FakeNode::start(Faults {
        uuid: [2; 16],
        ..Faults::default()
    });
    let newer = FakeNode::start(Faults {
        uuid: [3; 16],
        wire_version: 99,
        ..Faults::default()
    });
    let nameless = [(); 2].map(|()| {
        FakeNode::start(Faults {
            nameless: true,
            ..Faults::default()
        })
    });
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let localhost = ServerSettings::at(
        format!("localhost:{}", first.address.port())
            .parse()
            .unwrap(),
    );
    let unknown = ServerSettings::at("no-such-host.invalid:7079".parse().unwrap());
    // This node accepts connections, as the system does for a stopped process, and never answers.
    let silent_at = ServerSettings {
        answer_limit: Duration::from_secs(1),
        ..at(silent.local_addr().unwrap())
    };
    let servers = [
        silent_at,
        second.settings(),
        at(closed),
        first.settings(),
        localhost,
        newer.settings(),
        unknown,
        nameless[0].settings(),
        nameless[1].settings(),
    ];

    let before = sockets();
    let begun = Instant::now();
    let found = discover(&servers);
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(1500), "took {took:?}");
    assert_eq!(threads(), Vec::<String>::new());

    // Nodes come in the order of the settings. The second address of the first node is no further node.
    let addresses: Vec<&str> = found.iter().map(|found| found.node.address()).collect();
    let mut expected: Vec<&str> = servers
        .iter()
        .map(|server| server.address.as_str())
        .collect();
    expected.remove(4);
    assert_eq!(addresses, expected);
    assert_eq!(found[3].also_at, [servers[4].address.to_string()]);

    assert!(
        matches!(found[0].inventory, Err(WireError::Unreachable { .. })),
        "{:?}",
        found[0]
    );
    assert!(found[0].round_trip.is_some(), "the node has no round trip");
    assert_eq!(found[1].inventory.as_ref().unwrap().node_uuid[..], [2; 16]);
    assert!(found[1].node.is_available() && found[1].node.inventory().is_some());
    assert!(
        matches!(found[2].inventory, Err(WireError::Unreachable { .. })),
        "{:?}",
        found[2]
    );
    assert!(found[2].round_trip.is_none() && !found[2].node.is_available());
    assert!(found[3].inventory.is_ok());
    let version = found[4].inventory.as_ref().unwrap_err();
    assert!(
        matches!(version, WireError::Protocol { reason, .. } if reason.contains("upgrade this side")),
        "{version:?}"
    );
    assert!(
        matches!(found[5].inventory, Err(WireError::Unreachable { .. })),
        "{:?}",
        found[5]
    );
    // Two nodes without a UUID are two nodes.
    for refused in &found[6..8] {
        let who = refused.inventory.as_ref().unwrap_err();
        assert!(
            matches!(who, WireError::Protocol { reason, .. } if reason.contains("no valid uuid")),
            "{who:?}"
        );
    }
    assert_eq!(first.sessions_opened(), 0);

    assert_eq!(
        node_status(&first.settings(), Duration::from_secs(1))
            .unwrap()
            .sessions,
        3
    );
    drop(silent);
    // The fakes' ends close when the fakes notice. Ours must be closed.
    let deadline = Instant::now() + fake_node::PATIENCE;
    while sockets() > before {
        assert!(
            Instant::now() < deadline,
            "{} sockets, {before} before",
            sockets()
        );
        std::thread::yield_now();
    }
}

#[test]
fn of_the_addresses_of_a_node_those_that_lead_to_it_are_found() {
    own_process!();
    let _alone = RUNS.lock();
    let node = FakeNode::start(Faults::default());
    let other = FakeNode::start(Faults {
        uuid: [2; 16],
        ..Faults::default()
    });
    let uuid = |of: &FakeNode| {
        let found = discover(&[of.settings()]).remove(0);
        found.inventory.expect("an answer").node_uuid.clone()
    };
    let (uuid, others) = (uuid(&node), uuid(&other));
    let target = Some(causeway_cutter::Target::Tcp(node.address));
    let way = Forwarder::start_on("127.0.0.2:0".parse().unwrap(), target).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.3:0").unwrap().local_addr();
    let addresses = [
        silent.local_addr().unwrap().to_string(),
        closed.unwrap().to_string(),
        other.address.to_string(),
        format!("localhost:{}", node.address.port()),
        node.address.to_string(),
        way.address().to_string(),
    ];
    let at = |addresses: &[String]| {
        let all = addresses.iter().map(|address| address.parse().unwrap());
        let mut all: Vec<causeway::config::Address> = all.collect();
        let first = all.remove(0);
        Target::from(ServerSettings {
            further: all,
            ..ServerSettings::at(first)
        })
    };
    let begun = Instant::now();
    let limit = Duration::from_secs(20);
    let asked = vec![(uuid.clone(), at(&addresses))];
    let (found, reply) = ask_by_uuid(asked, limit).remove(0);
    // The silent address keeps nobody waiting for as long as it may take.
    assert!(begun.elapsed() < limit / 2);
    assert_eq!(reply.inventory.expect("an answer").node_uuid, uuid);
    // Two names of one address count as one.
    let found: Vec<String> = found.server.addresses().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&addresses[5]), "{found:?}");
    assert!(found.iter().all(|address| addresses[3..].contains(address)));

    // None leads there.
    let asked = vec![
        (Bytes::from_static(&[9; 16]), at(&addresses[1..4])),
        (others, at(&addresses[1..2])),
    ];
    let found = ask_by_uuid(asked, limit);
    let errors = found.into_iter().map(|(_, reply)| reply.inventory);
    let errors: Vec<String> = errors.map(|of| of.unwrap_err().to_string()).collect();
    for address in &addresses[1..4] {
        assert!(errors[0].contains(address), "{errors:?}");
    }
    assert!(errors[0].contains("leads to another node"), "{errors:?}");
    assert!(errors[1].contains(&addresses[1]), "{errors:?}");
}
