//! Orders while the store cannot be written: what takes away counts at once and is written later, what gives is not done
//! at all, and each answer says which. What is found in the store afterwards agrees with it.

use causeway_devmgr::service::Running;
use causeway_devmgr::settings::Flags;
use causeway_devmgr::store::{Failing, MemoryStore};
use causeway_proto::manager::{Quota, User, quota::Who as Whose};
use tonic::{Code, Status};

use super::in_process::serve_with;
use super::node::FakeNode;
use super::orders::named;
use super::process::{Client, Who, request};
use super::strangers::user;

/// A manager in this process that asks for tokens, and its store's switch.
struct Cluster {
    folder: tempfile::TempDir,
    store: MemoryStore,
    failing: Failing,
    running: Running,
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

    /// What another manager finds in the store.
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

async fn serve(folder: &tempfile::TempDir, store: &MemoryStore) -> Running {
    let flags = Flags {
        store: Some(folder.path().join("store")),
        authenticate: true,
        ..Flags::default()
    };
    serve_with(flags, Box::new(store.clone())).await
}

/// It is decided, and not written yet.
fn assert_later<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let said = status.message();
    let says = ["store", "is in effect", "as soon as", "undone"];
    assert!(says.iter().all(|word| said.contains(word)), "{said}");
}

/// It is not, and will not be.
fn assert_not_done<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("nothing was changed"), "{status}");
}

fn one_device(user: &str) -> Quota {
    Quota {
        who: Some(Whose::User(user.to_owned())),
        devices: 1,
        ..Quota::default()
    }
}

/// Until orders are carried out again.
async fn see_recovery(admin: &mut Client) {
    let begin = std::time::Instant::now();
    while let Err(status) = admin.put_user(named("probe")).await {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(begin.elapsed() < super::process::AT_MOST, "{status}");
    }
}

#[tokio::test]
async fn a_token_that_is_revoked_opens_nothing_from_then_on() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    let (first, first_id) = user(&mut root, "ann", false).await;
    let (second, second_id) = user(&mut root, "bob", false).await;
    cluster.failing.set(true);
    // The first finds the trouble out, the second meets it.
    for (token, id) in [(&first, &first_id), (&second, &second_id)] {
        cluster.client(token).await.list().await;
        assert_later(root.revoke_token(id).await);
        let mut refused = cluster.client(token).await;
        let status = refused.ask(request("1")).await.map(drop).unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
    // What is not there is no more there than usual.
    let status = root.revoke_token(&first_id).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    assert_eq!(root.tokens_of("ann").await, 0);
    assert_eq!(root.tokens_of("bob").await, 0);
    cluster.running.stop().await;
}

#[tokio::test]
async fn with_a_user_who_is_removed_his_leases_end_at_once() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    let (node, _) = user(&mut root, "node1", true).await;
    let node = FakeNode::start_as(cluster.running.addresses[0], 1, 3, Who::Token(node));
    let (ann, _) = user(&mut root, "ann", false).await;
    let (bob, _) = user(&mut root, "bob", false).await;
    let (mut ann, mut bob) = (cluster.client(&ann).await, cluster.client(&bob).await);
    root.see_nodes(1).await;
    for _ in 0..2 {
        ann.granted(request("1")).await;
    }
    let kept = bob.granted(request("1")).await;
    cluster.failing.set(true);
    assert_later(root.delete_user("ann").await);
    node.see("the end of his leases", |state| state.served.len() == 1)
        .await;
    let status = ann.ask(request("1")).await.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    bob.renew(&kept.lease_id).await.unwrap();
    // So does one that an administrator takes back.
    assert_later(root.revoke_lease(&kept.lease_id, "maintenance").await);
    node.see("the end of it", |state| state.served.is_empty())
        .await;
    node.look(|state| {
        let reason = &state.withdrawn.last().unwrap().reason;
        assert!(reason.contains("maintenance"), "{reason}");
    });
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    node.assert_no_fault();
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    assert!(
        root.users()
            .await
            .unwrap()
            .iter()
            .all(|of| of.name != "ann")
    );
    assert_eq!(root.list().await, []);
    cluster.running.stop().await;
}

#[tokio::test]
async fn who_may_less_may_less_at_once() {
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
    assert_later(root.put_user(put(false)).await);
    let status = ann.users().await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert_not_done(root.put_user(put(true)).await);
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    assert!(root.users().await.unwrap().contains(&put(false)));
    cluster.running.stop().await;
}

#[tokio::test]
async fn what_gives_is_not_done_later_either() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    user(&mut root, "ann", false).await;
    cluster.failing.set(true);
    // The first finds the trouble out, and nobody would have the token.
    for _ in 0..2 {
        assert_not_done(root.create_token("ann").await);
    }
    assert_not_done(root.put_user(named("carl")).await);
    assert_not_done(root.put_quota(one_device("ann")).await);
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    assert_eq!(root.tokens_of("ann").await, 1);
    assert!(
        root.users()
            .await
            .unwrap()
            .iter()
            .all(|of| of.name != "carl")
    );
    assert_eq!(root.quotas().await, []);
    cluster.running.stop().await;
}

#[tokio::test]
async fn what_finds_the_trouble_out_is_done_later_and_its_answer_says_so() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    user(&mut root, "ann", false).await;
    cluster.failing.set(true);
    assert_later(root.put_quota(one_device("ann")).await);
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    assert_eq!(root.quotas().await, [one_device("ann")]);
    cluster.running.stop().await;
}
