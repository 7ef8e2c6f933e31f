//! Who is not let in, and what others are not shown.

use causeway_proto::manager::{
    CreateTokenRequest, DeleteUserRequest, ListNodesRequest, ListQueueRequest, ListUsersRequest,
    RevokeTokenRequest, User, progress,
};
use tonic::Code;

use super::node::FakeNode;
use super::process::{Client, Manager, Who, request, waiting};

const AUTHENTICATE: &str = "authenticate = true\n";

/// The administrator of a manager that asks for tokens.
async fn admin(manager: &Manager) -> Client {
    let mut path = manager.store().as_os_str().to_owned();
    path.push(".admin-token");
    let token = std::fs::read_to_string(&path).unwrap();
    manager.client(Who::Token(token.trim().to_owned())).await
}

async fn user(admin: &mut Client, name: &str, node: bool) -> (String, String) {
    let user = User {
        name: name.to_owned(),
        node,
        ..User::default()
    };
    admin.admin.put_user(admin.who.request(user)).await.unwrap();
    let token = CreateTokenRequest {
        user: name.to_owned(),
        ..CreateTokenRequest::default()
    };
    let reply = admin.admin.create_token(admin.who.request(token)).await;
    let reply = reply.unwrap().into_inner();
    (reply.token, reply.token_id)
}

#[tokio::test]
async fn anothers_lease_is_as_none_at_all() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let granted = ann.granted(request("1")).await;
    let none = [7; 16];
    for id in [&granted.lease_id[..], &none[..]] {
        for status in [
            bob.renew(id).await.unwrap_err(),
            bob.confirm(id).await.unwrap_err(),
            bob.release(id).await.unwrap_err(),
        ] {
            assert_eq!(status.code(), Code::NotFound, "{status}");
        }
    }
    assert_eq!(
        bob.release(b"short").await.unwrap_err().code(),
        Code::InvalidArgument
    );
    ann.renew(&granted.lease_id).await.unwrap();
}

#[tokio::test]
async fn without_a_good_token_nobody_does_anything() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (token, token_id) = user(&mut admin, "ann", false).await;
    for who in [
        Who::Nobody,
        Who::Name("admin".to_owned()),
        Who::Token("causeway_0000".to_owned()),
    ] {
        let mut stranger = manager.client(who).await;
        let status = stranger.ask(request("1")).await.err().unwrap();
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        let nodes = stranger.who.request(ListNodesRequest {});
        let status = stranger.admin.list_nodes(nodes).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
    let mut ann = manager.client(Who::Token(token)).await;
    ann.ask(request("1")).await.unwrap();
    let revoke = RevokeTokenRequest { token_id };
    admin
        .admin
        .revoke_token(admin.who.request(revoke))
        .await
        .unwrap();
    let status = ann.ask(request("1")).await.err().unwrap();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
}

#[tokio::test]
async fn a_user_sees_and_administrates_nothing_of_others() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (node_token, _) = user(&mut admin, "node1", true).await;
    let node = FakeNode::start_as(manager.address, 1, 1, Who::Token(node_token));
    let (ann, _) = user(&mut admin, "ann", false).await;
    let (bob, _) = user(&mut admin, "bob", false).await;
    admin.see_nodes(1).await;
    let mut ann = manager.client(Who::Token(ann)).await;
    let mut bob = manager.client(Who::Token(bob)).await;
    ann.granted(request("1")).await;
    let mut waits = ann.ask(waiting("1")).await.unwrap();
    waits.next().await;

    assert!(bob.list().await.is_empty());
    let queue = bob.who.request(ListQueueRequest {});
    let queue = bob.leases.list_queue(queue).await.unwrap().into_inner();
    assert_eq!((queue.requests.len(), queue.waiting), (0, 1));
    assert_eq!((ann.list().await.len(), admin.list().await.len()), (1, 1));
    let denied = [
        bob.admin
            .list_nodes(bob.who.request(ListNodesRequest {}))
            .await
            .err(),
        bob.admin
            .list_users(bob.who.request(ListUsersRequest {}))
            .await
            .err(),
        bob.admin
            .put_user(bob.who.request(User::default()))
            .await
            .err(),
        bob.admin
            .create_token(bob.who.request(CreateTokenRequest {
                user: "ann".to_owned(),
                ..CreateTokenRequest::default()
            }))
            .await
            .err(),
    ];
    for status in denied {
        assert_eq!(status.expect("denied").code(), Code::PermissionDenied);
    }
    node.assert_no_fault();
}

#[tokio::test]
async fn a_user_is_no_node() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (token, _) = user(&mut admin, "ann", false).await;
    let node = FakeNode::start_as(manager.address, 1, 1, Who::Token(token));
    node.see("the refusal", |state| state.refused.is_some())
        .await;
    let status = node.look(|state| state.refused.clone().unwrap());
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
}

#[tokio::test]
async fn with_a_user_go_his_leases() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (node_token, _) = user(&mut admin, "node1", true).await;
    let node = FakeNode::start_as(manager.address, 1, 1, Who::Token(node_token));
    let (ann, _) = user(&mut admin, "ann", false).await;
    admin.see_nodes(1).await;
    let mut ann = manager.client(Who::Token(ann)).await;
    ann.granted(request("1")).await;
    let mut waits = ann.ask(waiting("1")).await.unwrap();
    waits.next().await;
    let delete = DeleteUserRequest {
        name: "ann".to_owned(),
    };
    admin
        .admin
        .delete_user(admin.who.request(delete))
        .await
        .unwrap();
    assert!(matches!(waits.last().await, progress::Step::Ended(_)));
    node.see("the end", |state| state.served.is_empty()).await;
    assert!(ann.ask(request("1")).await.is_err());
}
