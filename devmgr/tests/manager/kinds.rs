//! `ListKinds`: every user who may have leases sees the kinds of devices, and how many are free. No answer
//! says where the devices are, or who has leased them.

use causeway_proto::manager::{DeviceKind, ListKindsRequest};
use tonic::{Code, Status};

use super::node::FakeNode;
use super::process::{AT_MOST, Client, Manager, Who, request};
use super::real_node::Daemon;
use super::strangers::{AUTHENTICATE, admin, user};

async fn kinds(client: &mut Client) -> Result<Vec<DeviceKind>, Status> {
    let list = client.who.request(ListKindsRequest {});
    Ok(client.leases.list_kinds(list).await?.into_inner().kinds)
}

/// The count of each kind, and how many are free.
async fn counts(client: &mut Client) -> Vec<(u32, u32)> {
    let kinds = kinds(client).await.unwrap();
    kinds.iter().map(|of| (of.count, of.free)).collect()
}

/// Waits until the only kind has these counts.
async fn see(client: &mut Client, expected: (u32, u32)) {
    let begin = std::time::Instant::now();
    while counts(client).await != [expected] {
        let seen = counts(client).await;
        assert!(begin.elapsed() < AT_MOST, "{seen:?} and not {expected:?}");
    }
}

#[tokio::test]
async fn devices_that_are_alike_are_counted_and_nothing_else_is_told() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (node_token, _) = user(&mut admin, "node-account", true).await;
    let who = || Who::Token(node_token.clone());
    let first = FakeNode::start_as(manager.address, 1, 2, who());
    let _second = FakeNode::start_as(manager.address, 2, 1, who());
    let (ann, _) = user(&mut admin, "ann", false).await;
    let (bob, _) = user(&mut admin, "bob", false).await;
    admin.see_nodes(2).await;
    let mut ann = manager.client(Who::Token(ann)).await;
    let mut bob = manager.client(Who::Token(bob)).await;
    let lease = ann.granted(request("2")).await;

    // The whole answer contains neither the leases' users nor the nodes.
    let kind = |free| DeviceKind {
        name: "fake device".to_owned(),
        r#type: "GPU".to_owned(),
        memory: 8 << 30,
        count: 3,
        free,
    };
    assert_eq!(kinds(&mut bob).await.unwrap(), [kind(1)]);
    assert_eq!(kinds(&mut ann).await.unwrap(), [kind(1)]);
    assert_eq!(kinds(&mut admin).await.unwrap(), [kind(1)]);
    ann.release(&lease.lease_id).await.unwrap();
    see(&mut bob, (3, 3)).await;
    admin.drain("node2", true).await;
    see(&mut bob, (3, 2)).await;
    first.die();
    see(&mut bob, (1, 0)).await;

    // Neither a node's token nor a call without one gets an answer.
    let mut node = manager.client(who()).await;
    assert_eq!(
        kinds(&mut node).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    for stranger in [
        Who::Nobody,
        Who::Name("ann".to_owned()),
        Who::Token("causeway_0000".to_owned()),
    ] {
        let mut stranger = manager.client(stranger).await;
        assert_eq!(
            kinds(&mut stranger).await.unwrap_err().code(),
            Code::Unauthenticated
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_counts_as_a_device() {
    let manager = Manager::start();
    let folder = tempfile::tempdir().unwrap();
    // Two devices; the second is offered as two shares.
    let _daemon = Daemon::start(manager.address, folder.path());
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let all = |of: Vec<(u32, u32)>| {
        of.iter()
            .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    };
    assert_eq!(all(counts(&mut ann).await), (3, 3));
    ann.granted(request("2")).await;
    assert_eq!(all(counts(&mut ann).await), (3, 1));
}
