//! Administrators' orders while the store cannot be written: each is refused, and none is in effect. The
//! order that is being written when the failure becomes known takes effect when it is durable.

use causeway_devmgr::service::RunningManager;
use causeway_devmgr::settings::Flags;
use causeway_devmgr::store::{Failing, MemoryStore};
use causeway_proto::manager::{Quota, User, quota::Who as Whose};
use tonic::Code;

use super::in_process::serve_with;
use super::node::FakeNode;
use super::orders::named;
use super::process::{Client, Who, request};
use super::store_failure::{assert_refused, assert_unconfirmed};
use super::strangers::user;

/// A manager in this process that requires tokens, with a switch that makes its store fail.
struct Cluster {
    folder: tempfile::TempDir,
    store: MemoryStore,
    failing: Failing,
    running: RunningManager,
}

impl Cluster {
    async fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let store = MemoryStore::default();
        let running = serve(&folder, &store).await;
        Cluster {
            folder,
            failing: store.failing(),
            store,
            running,
        }
    }

    /// Stops the manager, and starts another over the same store.
    async fn restart(self) -> Cluster {
        self.running.stop().await;
        Cluster {
            running: serve(&self.folder, &self.store).await,
            ..self
        }
    }

    async fn client(&self, token: &str) -> Client {
        let who = Who::Token(token.to_owned());
        Client::connect(self.running.addresses[0], who).await
    }

    async fn admin(&self) -> Client {
        let token = std::fs::read_to_string(self.folder.path().join("store.admin-token")).unwrap();
        self.client(token.trim()).await
    }
}

async fn serve(folder: &tempfile::TempDir, store: &MemoryStore) -> RunningManager {
    let flags = Flags {
        store: Some(folder.path().join("store")),
        authenticate: true,
        ..Flags::default()
    };
    serve_with(flags, Box::new(store.clone())).await
}

fn one_device(user: &str) -> Quota {
    Quota {
        who: Some(Whose::User(user.to_owned())),
        devices: 1,
        ..Quota::default()
    }
}

/// Waits until orders are carried out again.
async fn see_recovery(admin: &mut Client) {
    let begin = std::time::Instant::now();
    while let Err(status) = admin.put_user(named("probe")).await {
        assert_refused(&status);
        assert!(begin.elapsed() < super::process::AT_MOST, "{status}");
    }
}

#[tokio::test]
async fn a_revoked_token_stays_valid_until_the_revocation_is_durable() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    let (first, first_id) = user(&mut root, "ann", false).await;
    let (second, second_id) = user(&mut root, "bob", false).await;
    cluster.failing.set(true);
    // The first order finds the failure out; the second is refused before it is handled.
    assert_unconfirmed(&root.revoke_token(&first_id).await.unwrap_err());
    assert_refused(&root.revoke_token(&second_id).await.unwrap_err());
    for token in [&first, &second] {
        cluster.client(token).await.list().await;
    }
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    let status = cluster.client(&first).await.refused(request("1")).await;
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    cluster.client(&second).await.list().await;
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    assert_eq!(root.tokens_of("ann").await, 0);
    assert_eq!(root.tokens_of("bob").await, 1);
    cluster.running.stop().await;
}

#[tokio::test]
async fn leases_of_a_removed_user_end_when_the_removal_is_durable() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    let (node, _) = user(&mut root, "node1", true).await;
    let node = FakeNode::start_as(cluster.running.addresses[0], 1, 3, Who::Token(node));
    let (ann, _) = user(&mut root, "ann", false).await;
    let (bob, _) = user(&mut root, "bob", false).await;
    let (mut ann, mut bob) = (cluster.client(&ann).await, cluster.client(&bob).await);
    root.see_nodes(1).await;
    let mut leases = Vec::new();
    for _ in 0..2 {
        leases.push(ann.granted(request("1")).await.lease_id);
    }
    let kept = bob.granted(request("1")).await;
    cluster.failing.set(true);
    assert_unconfirmed(&root.delete_user("ann").await.unwrap_err());
    let revoked = root.revoke_lease(&kept.lease_id, "maintenance").await;
    assert_refused(&revoked.unwrap_err());
    // Nothing of that is in effect: the removal is not durable, and the revocation was refused.
    for lease in &leases {
        ann.renew(lease).await.unwrap();
    }
    bob.renew(&kept.lease_id).await.unwrap();
    node.look(|state| assert_eq!((state.served.len(), state.withdrawn.len()), (3, 0)));
    cluster.failing.set(false);
    node.see("the end of the removed user's leases", |state| {
        state.served.len() == 1
    })
    .await;
    let status = ann.renew(&leases[0]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    bob.renew(&kept.lease_id).await.unwrap();
    see_recovery(&mut root).await;
    node.assert_no_fault();
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    let users = root.users().await.unwrap();
    assert!(users.iter().all(|of| of.name != "ann"), "{users:?}");
    assert_eq!(root.list().await.len(), 1);
    cluster.running.stop().await;
}

#[tokio::test]
async fn a_revocation_that_is_being_written_reaches_the_node_when_it_is_durable() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    let (node, _) = user(&mut root, "node1", true).await;
    let node = FakeNode::start_as(cluster.running.addresses[0], 1, 1, Who::Token(node));
    let (ann, _) = user(&mut root, "ann", false).await;
    let mut ann = cluster.client(&ann).await;
    root.see_nodes(1).await;
    let held = ann.granted(request("1")).await;
    cluster.failing.set(true);
    let revoked = root.revoke_lease(&held.lease_id, "maintenance").await;
    assert_unconfirmed(&revoked.unwrap_err());
    // A crash could undo the end of the lease, so its holder is not told of it.
    assert_unconfirmed(&ann.renew(&held.lease_id).await.unwrap_err());
    node.look(|state| assert_eq!((state.served.len(), state.withdrawn.len()), (1, 0)));
    cluster.failing.set(false);
    node.see("the withdrawal", |state| state.served.is_empty())
        .await;
    node.look(|state| {
        let reason = &state.withdrawn.last().unwrap().reason;
        assert!(reason.contains("maintenance"), "{reason}");
    });
    let status = ann.renew(&held.lease_id).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    node.assert_no_fault();
    cluster.running.stop().await;
}

#[tokio::test]
async fn permissions_stay_as_they_are_stored() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    let (ann, _) = user(&mut root, "ann", false).await;
    let put = |admin| User {
        admin,
        ..named("ann")
    };
    root.put_user(put(true)).await.unwrap();
    let mut ann = cluster.client(&ann).await;
    ann.users().await.unwrap();
    cluster.failing.set(true);
    assert_unconfirmed(&root.put_user(put(false)).await.unwrap_err());
    ann.users().await.unwrap();
    assert_refused(&root.put_user(put(true)).await.unwrap_err());
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    let status = ann.users().await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(root.users().await.unwrap().contains(&put(false)));
    cluster.running.stop().await;
}

#[tokio::test]
async fn refused_orders_are_not_carried_out_later() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    user(&mut root, "ann", false).await;
    let node = FakeNode::start_as(cluster.running.addresses[0], 1, 1, {
        let (node, _) = user(&mut root, "node1", true).await;
        Who::Token(node)
    });
    root.see_nodes(1).await;
    cluster.failing.set(true);
    // The quota is being written when the failure becomes known, so its outcome is unknown.
    assert_unconfirmed(&root.put_quota(one_device("ann")).await.unwrap_err());
    assert_refused(&root.create_token("ann").await.unwrap_err());
    assert_refused(&root.put_user(named("carl")).await.unwrap_err());
    assert_refused(&root.put_quota(one_device("bob")).await.unwrap_err());
    assert_refused(&root.delete_user("ann").await.unwrap_err());
    assert_refused(&root.try_drain("node1", true).await.unwrap_err());
    node.look(|state| assert_eq!(state.draining, Some(false)));
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    assert_eq!(root.tokens_of("ann").await, 1);
    let users = root.users().await.unwrap();
    assert!(users.iter().all(|of| of.name != "carl"), "{users:?}");
    assert_eq!(root.quotas().await, [one_device("ann")]);
    cluster.running.stop().await;
}
