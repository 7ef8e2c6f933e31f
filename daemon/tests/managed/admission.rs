//! Tests of admission: which callers may use which devices, which are refused, and how much time they have.

use std::time::{Instant, SystemTime};

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{GetInventoryRequest, Inventory};
use causeway_proto::manager::{ClaimedNode, Unit};
use causeway_proto::version::WireVersion;
use causeway_security::LeaseKey;
use tonic::Code;
use tonic::transport::Channel;

use crate::common;
use crate::common::manager::{LONG, Manager, claim, grant};
use crate::common::{allocate, context_on};
use crate::support::{cluster, configured, reach, shown};

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
    assert!(nothing.problems[0].contains("requires a lease"));
    assert!(cluster.refusal(&[]).contains("requires a lease"));
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
        (b"a lease".to_vec(), "is not a signed lease"),
        (stranger, "not signed by this node's device manager"),
        (
            sign(&|of| of.not_after_unix_ms = long_ago.as_millis() as u64),
            "has expired",
        ),
        (sign(&|of| of.user = "bob".to_owned()), "another user's"),
        (sign(&|of| of.nodes[0].epoch = 10), "outdated"),
        (
            sign(&|of| of.nodes[0].epoch = 12),
            "does not serve the lease",
        ),
        (
            sign(&|of| of.nodes[0].node_uuid = vec![1; 16].into()),
            "no device of this node",
        ),
        (
            sign(&|of| {
                of.nodes[0].units.push(Unit {
                    platform: 0,
                    device: 0,
                    share: 0,
                });
            }),
            "differ from those of its grant",
        ),
        (
            sign(&|of| of.lease_id = vec![2; 16].into()),
            "does not serve the lease",
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

async fn ask(
    node: &mut NodeClient<Channel>,
    credential: &[u8],
) -> Result<Inventory, tonic::Status> {
    let request = GetInventoryRequest {
        wire_version: WireVersion::CURRENT.number().into(),
        credential: credential.to_vec().into(),
    };
    Ok(node.get_inventory(request).await?.into_inner())
}

#[test]
fn a_credential_for_many_nodes_is_accepted_and_a_longer_message_is_refused() {
    let cluster = cluster();
    let (lease, _) = cluster.lease();
    let mut claim = claim(&cluster.node, &lease);
    claim.nodes.extend((0..400).map(|_| ClaimedNode {
        node_uuid: vec![9; 16].into(),
        epoch: 11,
        units: vec![Unit::default()],
    }));
    let credential = cluster.manager.key.sign(claim);
    assert!((8 << 10..60 << 10).contains(&credential.len()));
    common::block_on(async {
        let mut stranger = reach(&cluster.daemon).await;
        let forged = vec![b'a'; credential.len()];
        let nothing = ask(&mut stranger, &forged).await;
        assert_eq!(shown(&nothing.unwrap()), [false; 3]);
        // The node closes the connection of a stranger that continues to send, but the stranger reads the answer
        // first.
        let endless = vec![b'a'; 1 << 20];
        let refused = ask(&mut stranger, &endless).await.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
        let mut holder = reach(&cluster.daemon).await;
        for _ in 0..2 {
            let devices = ask(&mut holder, &credential).await.unwrap();
            assert_eq!(shown(&devices), [false, true, false]);
        }
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
        // Each call is refused until the caller's time is over.
        let until = Instant::now() + common::LIMIT;
        while let Ok(nothing) = ask(&mut stranger, b"a lease").await {
            assert!(Instant::now() < until, "he is not ended");
            assert_eq!(shown(&nothing), [false; 3]);
            assert!(nothing.problems[0].contains("is not a signed lease"));
        }
        // This is later, over the connection that the holder had before.
        ask(&mut holder, &credential).await.unwrap();
    });
}
