//! Tests of measuring links of a device manager's nodes: whose claims count, what other ends are dialled, and what the
//! manager gets to know.

use std::time::{Duration, Instant, SystemTime};

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{
    GetInventoryRequest, GetLinksRequest, Link, LinkEnd, MeasureLinkReply, MeasureLinkRequest,
};
use causeway_proto::manager::{MeasuringClaim, NodePlace};
use causeway_proto::version::WireVersion;
use causeway_security::{EndKey, LeaseKey};
use tonic::{Code, Status};

use crate::common::manager::{LONG, Manager, Node, USER};
use crate::common::{Closed, Daemon, LIMIT, block_on};
use crate::support::{Cluster, configured, reach};

const VERSION: u32 = WireVersion::CURRENT.number() as u32;

fn unix_ms(of: SystemTime) -> u64 {
    let since = of.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    since.as_millis() as u64
}

fn claim(node: &Node) -> MeasuringClaim {
    MeasuringClaim {
        node_uuid: node.hello.node_uuid.clone(),
        user: USER.to_owned(),
        admin: false,
        not_after_unix_ms: unix_ms(SystemTime::now() + LONG),
    }
}

fn place(node: &Node) -> NodePlace {
    NodePlace {
        node_uuid: node.hello.node_uuid.clone(),
        name: "the other".to_owned(),
        addresses: node.hello.addresses.clone(),
        not_after_unix_ms: unix_ms(SystemTime::now() + LONG),
        link_key: node.hello.link_key.clone(),
        ..NodePlace::default()
    }
}

/// A daemon that knows its manager's key.
fn joined() -> Cluster {
    let cluster = crate::support::cluster();
    is_joined(&cluster.node);
    cluster
}

/// Waits until the daemon has been welcomed: then its heartbeats begin.
fn is_joined(node: &Node) {
    node.beat(|_| true);
}

fn asked(credential: Vec<u8>, end: Option<LinkEnd>) -> MeasureLinkRequest {
    MeasureLinkRequest {
        wire_version: VERSION,
        credential: credential.into(),
        stream_ms: 500,
        end,
        ..MeasureLinkRequest::default()
    }
}

fn measure(daemon: &Daemon, request: MeasureLinkRequest) -> Result<MeasureLinkReply, Status> {
    let at = format!("http://{}", daemon.address);
    block_on(async {
        let mut node = NodeClient::connect(at).await.unwrap();
        let reply = node.measure_link(request).await;
        reply.map(tonic::Response::into_inner)
    })
}

fn refused(daemon: &Daemon, request: MeasureLinkRequest, part: &str) {
    let status = measure(daemon, request).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(status.message().contains(part), "{part}: {status}");
}

#[test]
fn only_the_managers_claim_for_this_node_measures() {
    let cluster = joined();
    let (_, lease) = cluster.lease();
    let key = &cluster.manager.key;
    let signed = |change: &dyn Fn(&mut MeasuringClaim)| {
        let mut claim = claim(&cluster.node);
        change(&mut claim);
        key.sign_measuring(&claim)
    };
    let forged = LeaseKey::generate().unwrap();
    let forged = forged.sign_measuring(&claim(&cluster.node));
    let mut changed = signed(&|_| {});
    let last = changed.len() - 1;
    changed[last] ^= 1;
    let by_another = "is not signed by this node's device manager";
    for (wrong, part) in [
        (Vec::new(), "with a claim of its device manager only"),
        (b"a claim".to_vec(), "is not a statement"),
        (forged, by_another),
        (changed, by_another),
        (lease, by_another),
        (key.sign_place(&place(&cluster.node)), by_another),
        (
            signed(&|of| of.not_after_unix_ms = unix_ms(SystemTime::now() - LONG)),
            "has expired",
        ),
        (
            signed(&|of| of.node_uuid = vec![1; 16].into()),
            "is for another node",
        ),
    ] {
        refused(&cluster.daemon, asked(wrong, None), part);
    }
    let right = signed(&|_| {});
    let reply = measure(&cluster.daemon, asked(right.clone(), None)).unwrap();
    assert_eq!(
        reply.end.expect("an end").node_uuid,
        cluster.node.hello.node_uuid
    );
    // It opens no session, and shows no device.
    let said = cluster.refusal(&right);
    assert!(said.contains("not signed by"), "{said}");
    let inventory = cluster.daemon.inventory_for(&right);
    assert!(!crate::support::shown(&inventory).contains(&true));
}

#[test]
fn only_administrators_force() {
    let cluster = joined();
    let force = |admin| {
        let claim = MeasuringClaim {
            admin,
            ..claim(&cluster.node)
        };
        MeasureLinkRequest {
            force: true,
            ..asked(cluster.manager.key.sign_measuring(&claim), None)
        }
    };
    refused(&cluster.daemon, force(false), "only administrators");
    let reply = measure(&cluster.daemon, force(true)).unwrap();
    assert!(reply.end.is_some());
}

#[test]
fn a_node_dials_only_where_the_manager_says_that_another_node_is() {
    let cluster = joined();
    let (key, daemon) = (&cluster.manager.key, &cluster.daemon);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let end_key = EndKey::generate().unwrap();
    let to = |place: Vec<u8>| LinkEnd {
        proof: end_key.prove(&[3; 16], &[]).into(),
        id: vec![3; 16].into(),
        secret: vec![4; 32].into(),
        // What the caller says does not count.
        addresses: vec![listener.local_addr().unwrap().to_string()],
        node_uuid: vec![9; 16].into(),
        place: place.into(),
        ..LinkEnd::default()
    };
    let other = NodePlace {
        node_uuid: vec![9; 16].into(),
        link_key: end_key.public_key().to_vec().into(),
        ..place(&cluster.node)
    };
    let late = NodePlace {
        not_after_unix_ms: unix_ms(SystemTime::now() - LONG),
        ..other.clone()
    };
    let forged = LeaseKey::generate().unwrap();
    let claim = key.sign_measuring(&claim(&cluster.node));
    for (wrong, part) in [
        (Vec::new(), "is not signed"),
        (forged.sign_place(&other), "is not signed"),
        (claim.clone(), "is not signed"),
        (key.sign_place(&late), "has expired"),
        (key.sign_place(&place(&cluster.node)), "this node itself"),
    ] {
        refused(daemon, asked(claim.clone(), Some(to(wrong))), part);
    }
    // Whoever holds an address of the other node is not that node.
    let end = to(key.sign_place(&other));
    let unproved = LinkEnd {
        proof: EndKey::generate().unwrap().prove(&[3; 16], &[]).into(),
        ..end.clone()
    };
    let other_certificate = LinkEnd {
        certificate_sha256: vec![5; 32].into(),
        ..end.clone()
    };
    let other_id = LinkEnd {
        id: vec![6; 16].into(),
        ..end
    };
    for wrong in [unproved, other_certificate, other_id] {
        refused(daemon, asked(claim.clone(), Some(wrong)), "has not proved");
    }
    // Nobody is at the stated address, and the named one gets no connection.
    let closed = Closed::port();
    let nobody = NodePlace {
        addresses: vec![closed.address.to_string()],
        ..other
    };
    let request = MeasureLinkRequest {
        stream_ms: 50,
        ..asked(claim, Some(to(key.sign_place(&nobody))))
    };
    let status = measure(daemon, request).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    listener.set_nonblocking(true).unwrap();
    let accepted = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(accepted, Err(std::io::ErrorKind::WouldBlock));
}

/// Two daemons that know their manager's key.
struct Two {
    manager: Manager,
    folders: [tempfile::TempDir; 2],
    nodes: [(Daemon, Node); 2],
}

impl Two {
    /// With this text as the daemons' `daemon.toml`.
    fn joined(text: &str) -> Two {
        let manager = Manager::start();
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let nodes = folders.each_ref().map(|folder| {
            let daemon = configured(&manager, folder.path(), text);
            let node = manager.welcomed(10);
            is_joined(&node);
            (daemon, node)
        });
        Two {
            manager,
            folders,
            nodes,
        }
    }

    /// Has the first node measure the link to the other one.
    fn measure(&self, change: impl Fn(&mut MeasureLinkRequest)) -> Link {
        self.measure_at(place(&self.nodes[1].1), change)
    }

    /// As [`Two::measure`], with the other node at this place.
    fn measure_at(&self, place: NodePlace, change: impl Fn(&mut MeasureLinkRequest)) -> Link {
        let [one, other] = &self.nodes;
        let key = &self.manager.key;
        let mut request = asked(key.sign_measuring(&claim(&other.1)), None);
        change(&mut request);
        let end = free(&other.0, request).end.expect("an end");
        let to = LinkEnd {
            place: key.sign_place(&place).into(),
            ..end
        };
        let mut request = asked(key.sign_measuring(&claim(&one.1)), Some(to));
        change(&mut request);
        free(&one.0, request).link.expect("figures")
    }
}

/// Measures as soon as the node is free: the process of the measurement before may not have ended.
fn free(daemon: &Daemon, request: MeasureLinkRequest) -> MeasureLinkReply {
    let until = Instant::now() + LONG;
    loop {
        let reply = measure(daemon, request.clone()).unwrap();
        if reply.busy_ms == 0 {
            return reply;
        }
        assert!(Instant::now() < until, "the node is busy");
        std::thread::sleep(Duration::from_millis(reply.busy_ms.into()));
    }
}

#[test]
fn a_link_is_measured_over_the_addresses_of_links_between_workers() {
    let two = Two::joined("");
    let other = &two.nodes[1].1;
    let told = other.hello.inventory.as_ref().unwrap();
    assert_eq!(told.peer_addresses, other.hello.addresses);
    // Users reach the node elsewhere: where nobody answers, and where somebody does who is another one.
    let (closed, stranger) = (Closed::port(), std::net::TcpListener::bind("127.0.0.1:0"));
    let stranger = stranger.unwrap();
    let place = NodePlace {
        addresses: vec![
            closed.address.to_string(),
            stranger.local_addr().unwrap().to_string(),
        ],
        peer_addresses: told.peer_addresses.clone(),
        ..place(other)
    };
    let link = two.measure_at(place, |request| request.stream_ms = 50);
    // A slow machine may have dialled the stranger meanwhile, who proves nothing.
    assert_eq!(vec![link.to], told.peer_addresses);
    // A manager that tells no such addresses.
    let link = two.measure(|request| request.stream_ms = 50);
    assert_eq!(vec![link.to], other.hello.addresses);
}

#[test]
fn a_claim_gives_time_to_measure_and_makes_no_connection_known() {
    let two = Two::joined("[connections]\nhandshake_time_limit_ms = 1000\n");
    // This takes longer than a stranger has.
    let link = two.measure(|request| request.stream_ms = 1_000);
    assert!(link.outward > 0);
    let (one, first) = &two.nodes[0];
    let request = asked(two.manager.key.sign_measuring(&claim(first)), None);
    block_on(async {
        let mut caller = reach(one).await;
        caller.measure_link(request.clone()).await.unwrap();
        // The connection still has a stranger's time.
        let until = Instant::now() + LIMIT;
        let inventory = GetInventoryRequest {
            wire_version: VERSION,
            ..GetInventoryRequest::default()
        };
        while caller.get_inventory(inventory.clone()).await.is_ok() {
            assert!(Instant::now() < until, "the caller is known");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

#[test]
fn the_manager_gets_each_figure_once_and_again_after_a_new_connection() {
    let two = Two::joined("");
    // A limit that a user sets says nothing about the link.
    let slow = two.measure(|request| {
        request.stream_ms = 100;
        request.rate = 10_000_000;
    });
    assert!(slow.outward > 0);
    let link = two.measure(|_| {});
    let Two {
        manager,
        folders,
        nodes: [(one, first), (_other, second)],
    } = two;
    assert_eq!(link.node_uuid, second.hello.node_uuid);
    assert_eq!(link.node_name, "the other");
    let beat = first.beat(|beat| !beat.links.is_empty());
    assert_eq!(beat.links, std::slice::from_ref(&link));
    first.beat(|next| {
        assert_eq!(next.links, [], "once");
        next.number > beat.number + 3
    });
    second.beat(|beat| {
        assert_eq!(beat.links, [], "the end that was dialled keeps nothing");
        beat.number > 2
    });
    // The users have the manager's list.
    let status = block_on(async {
        let at = format!("http://{}", one.address);
        let mut node = NodeClient::connect(at).await.unwrap();
        let request = GetLinksRequest {
            wire_version: VERSION,
        };
        node.get_links(request).await.unwrap_err()
    });
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    // The manager hangs up, and another daemon takes the place of the first one.
    drop(first);
    let again = manager.welcomed(10);
    assert_eq!(
        again.beat(|beat| !beat.links.is_empty()).links,
        std::slice::from_ref(&link)
    );
    assert!(one.terminate());
    let _one = configured(&manager, folders[0].path(), "");
    let again = manager.welcomed(10);
    assert_eq!(again.beat(|beat| !beat.links.is_empty()).links, [link]);
    assert!(again.hello.node_uuid != second.hello.node_uuid);
}
