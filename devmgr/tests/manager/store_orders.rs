//! Orders while the store cannot be written: what takes away counts at once and is written later, what gives is not done
//! at all, and each answer says which. What is found in the store afterwards agrees with it.

use causeway_devmgr::service::{self, Running};
use causeway_devmgr::settings::{ConfigFile, Flags, Settings};
use causeway_devmgr::store::{Failing, MemoryStore};
use causeway_proto::manager::{
    CreateTokenRequest, DeleteUserRequest, ListQuotasRequest, ListTokensRequest, ListUsersRequest,
    Quota, RevokeLeaseRequest, RevokeTokenRequest, User, quota::Who as Whose,
};
use tonic::{Code, Status};

use super::node::FakeNode;
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
        listen: vec!["127.0.0.1:0".to_owned()],
        store: Some(folder.path().join("store")),
        authenticate: true,
        ..Flags::default()
    };
    let file = ConfigFile::parse("none".as_ref(), String::new()).unwrap();
    let settings = Settings::combine(&flags, &file).unwrap();
    let store = Box::new(store.clone());
    service::start(&settings, store).await.unwrap()
}

/// It is decided, and not written yet.
fn assert_later<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let said = status.message();
    let says = ["store", "counts from now on", "as soon as", "undone"];
    assert!(says.iter().all(|word| said.contains(word)), "{said}");
}

/// It is not, and will not be.
fn assert_not_done<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("was not done"), "{status}");
}

async fn put_user(admin: &mut Client, user: User) -> Result<(), Status> {
    let request = admin.who.request(user);
    admin.admin.put_user(request).await.map(drop)
}

async fn delete_user(admin: &mut Client, name: &str) -> Result<(), Status> {
    let name = name.to_owned();
    let request = admin.who.request(DeleteUserRequest { name });
    admin.admin.delete_user(request).await.map(drop)
}

async fn create_token(admin: &mut Client, user: &str) -> Result<(), Status> {
    let user = user.to_owned();
    let request = admin.who.request(CreateTokenRequest {
        user,
        ..CreateTokenRequest::default()
    });
    admin.admin.create_token(request).await.map(drop)
}

async fn revoke_token(admin: &mut Client, token_id: &str) -> Result<(), Status> {
    let token_id = token_id.to_owned();
    let request = admin.who.request(RevokeTokenRequest { token_id });
    admin.admin.revoke_token(request).await.map(drop)
}

async fn users(admin: &mut Client) -> Vec<User> {
    let request = admin.who.request(ListUsersRequest {});
    let list = admin.admin.list_users(request).await.unwrap();
    list.into_inner().users
}

async fn tokens_of(admin: &mut Client, user: &str) -> usize {
    let user = user.to_owned();
    let request = admin.who.request(ListTokensRequest { user });
    let list = admin.admin.list_tokens(request).await.unwrap();
    list.into_inner().tokens.len()
}

/// Until orders are carried out again.
async fn see_recovery(admin: &mut Client) {
    let user = User {
        name: "probe".to_owned(),
        ..User::default()
    };
    let begin = std::time::Instant::now();
    while let Err(status) = put_user(admin, user.clone()).await {
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
        assert_later(revoke_token(&mut root, id).await);
        let mut refused = cluster.client(token).await;
        let status = refused.ask(request("1")).await.map(drop).unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
    // What is not there is no more there than usual.
    let status = revoke_token(&mut root, &first_id).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    assert_eq!(tokens_of(&mut root, "ann").await, 0);
    assert_eq!(tokens_of(&mut root, "bob").await, 0);
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
    assert_later(delete_user(&mut root, "ann").await);
    node.see("the end of his leases", |state| state.served.len() == 1)
        .await;
    let status = ann.ask(request("1")).await.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    bob.renew(&kept.lease_id).await.unwrap();
    // So does one that an administrator takes back.
    let revoke = RevokeLeaseRequest {
        lease_id: kept.lease_id.clone(),
        reason: "maintenance".to_owned(),
    };
    let revoked = root.admin.revoke_lease(root.who.request(revoke)).await;
    assert_later(revoked);
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
    assert!(users(&mut root).await.iter().all(|of| of.name != "ann"));
    assert_eq!(root.list().await, []);
    cluster.running.stop().await;
}

#[tokio::test]
async fn who_may_less_may_less_at_once() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    let (ann, _) = user(&mut root, "ann", false).await;
    let put = |admin| User {
        name: "ann".to_owned(),
        admin,
        ..User::default()
    };
    put_user(&mut root, put(true)).await.unwrap();
    let mut ann = cluster.client(&ann).await;
    users(&mut ann).await;
    cluster.failing.set(true);
    assert_later(put_user(&mut root, put(false)).await);
    let list = ann.who.request(ListUsersRequest {});
    let status = ann.admin.list_users(list).await.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert_not_done(put_user(&mut root, put(true)).await);
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    assert!(users(&mut root).await.contains(&put(false)));
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
        assert_not_done(create_token(&mut root, "ann").await);
    }
    let carl = User {
        name: "carl".to_owned(),
        ..User::default()
    };
    assert_not_done(put_user(&mut root, carl).await);
    let quota = Quota {
        who: Some(Whose::User("ann".to_owned())),
        devices: 1,
        ..Quota::default()
    };
    let put = root.admin.put_quota(root.who.request(quota)).await;
    assert_not_done(put);
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    assert_eq!(tokens_of(&mut root, "ann").await, 1);
    assert!(users(&mut root).await.iter().all(|of| of.name != "carl"));
    let list = root.who.request(ListQuotasRequest {});
    let quotas = root.admin.list_quotas(list).await.unwrap();
    assert_eq!(quotas.into_inner().quotas, []);
    cluster.running.stop().await;
}

#[tokio::test]
async fn what_finds_the_trouble_out_is_done_later_and_its_answer_says_so() {
    let cluster = Cluster::start().await;
    let mut root = cluster.admin().await;
    user(&mut root, "ann", false).await;
    cluster.failing.set(true);
    let quota = Quota {
        who: Some(Whose::User("ann".to_owned())),
        devices: 1,
        ..Quota::default()
    };
    let put = root.admin.put_quota(root.who.request(quota.clone())).await;
    assert_later(put);
    cluster.failing.set(false);
    see_recovery(&mut root).await;
    let cluster = cluster.restart().await;
    let mut root = cluster.admin().await;
    let list = root.who.request(ListQuotasRequest {});
    let quotas = root.admin.list_quotas(list).await.unwrap();
    assert_eq!(quotas.into_inner().quotas, [quota]);
    cluster.running.stop().await;
}
