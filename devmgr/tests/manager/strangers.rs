//! Callers who are refused, and what users do not see of each other.

use causeway_devmgr::identity::MOST_TOKENS;
use causeway_devmgr::inventory::limits;
use causeway_proto::manager::{
    CreateTokenRequest, DeleteUserRequest, GetManagerRequest, Granted, ListNodesRequest,
    ListQueueRequest, ListTokensRequest, ListUsersRequest, NodeShare, RefusalCode, RenewLease,
    RequestDevices, RevokeTokenRequest, User, considered, progress,
};
use causeway_proto::metadata::TERM;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::node::FakeNode;
use super::orders::named;
use super::process::{AT_MOST, Client, Manager, Who, channel, request, waiting};

pub(crate) const AUTHENTICATE: &str = "authenticate = true\n";

/// The administrator of a manager that requires tokens.
pub(crate) async fn admin(manager: &Manager) -> Client {
    let mut path = manager.store().as_os_str().to_owned();
    path.push(".admin-token");
    let token = std::fs::read_to_string(&path).unwrap();
    manager.client(Who::Token(token.trim().to_owned())).await
}

/// Adds a user or node; returns a token and its id.
pub(crate) async fn user(admin: &mut Client, name: &str, node: bool) -> (String, String) {
    let user = User {
        node,
        ..named(name)
    };
    admin.put_user(user).await.unwrap();
    admin.create_token(name).await.unwrap()
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
    // Another user's id is treated as an unknown id: the request is served or waits as any other.
    let by = |id: &[u8], wait| RequestDevices {
        lease_id: id.to_vec().into(),
        wait,
        ..request("1")
    };
    let refused = bob.ask(by(&none, false)).await.unwrap().last().await;
    let of_anothers = bob
        .ask(by(&granted.lease_id, false))
        .await
        .unwrap()
        .last()
        .await;
    assert_eq!(of_anothers, refused);
    let mut waits = bob.ask(by(&granted.lease_id, true)).await.unwrap();
    let first = waits.next().await;
    assert!(
        matches!(first, Some(progress::Step::Position(_))),
        "{first:?}"
    );
    ann.release(&granted.lease_id).await.unwrap();
    let own = match waits.last().await {
        progress::Step::Granted(own) => own,
        other => panic!("{other:?}"),
    };
    assert_ne!(own.lease_id, granted.lease_id);
    bob.renew(&own.lease_id).await.unwrap();
    assert_eq!(
        ann.renew(&own.lease_id).await.unwrap_err().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn a_request_by_anothers_id_that_is_given_up_leaves_the_queue() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let granted = ann.granted(request("1")).await;
    let by = RequestDevices {
        lease_id: granted.lease_id.clone(),
        ..waiting("1")
    };
    let mut waits = bob.ask(by).await.unwrap();
    waits.next().await;
    drop(waits);
    // The user's next request is served before the one whose client is gone.
    let mut next = bob.ask(waiting("1")).await.unwrap();
    next.next().await;
    ann.release(&granted.lease_id).await.unwrap();
    let step = next.last().await;
    assert!(matches!(step, progress::Step::Granted(_)), "{step:?}");
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
async fn who_only_asks_learns_what_devices_but_not_where() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (node_token, _) = user(&mut admin, "node1", true).await;
    let _node = FakeNode::start_as(manager.address, 1, 2, Who::Token(node_token));
    let (ann, _) = user(&mut admin, "ann", false).await;
    admin.see_nodes(1).await;
    let mut ann = manager.client(Who::Token(ann)).await;
    let told = fitting(&mut ann, "2").await;
    let devices = vec!["fake device".to_owned(); 2];
    let unplaced = NodeShare {
        devices: devices.clone(),
        ..NodeShare::default()
    };
    assert_eq!(told, [unplaced]);
    let told = fitting(&mut admin, "2").await;
    let [share] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((share.name.as_str(), share.units.len()), ("node1", 2));
    assert_eq!(share.devices, devices);
}

async fn fitting(client: &mut Client, line: &str) -> Vec<NodeShare> {
    let asked = client.who.request(request(line));
    let considered = client.leases.consider(asked).await.unwrap();
    match considered.into_inner().outcome {
        Some(considered::Outcome::Fitting(fitting)) => fitting.nodes,
        other => panic!("{other:?}"),
    }
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

#[tokio::test]
async fn a_node_is_no_user() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (token, _) = user(&mut admin, "node1", true).await;
    let mut node = manager.client(Who::Token(token)).await;
    let tokens = ListTokensRequest {
        user: "node1".to_owned(),
    };
    let tokens = node.who.request(tokens);
    for status in [
        node.ask(request("1")).await.err(),
        node.renew(&[7; 16]).await.err(),
        node.admin.list_tokens(tokens).await.err(),
    ] {
        assert_eq!(status.expect("denied").code(), Code::PermissionDenied);
    }
}

#[tokio::test]
async fn a_node_is_nobody_elses() {
    let mut manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (its, _) = user(&mut admin, "node1", true).await;
    let (others, _) = user(&mut admin, "node2", true).await;
    let node = FakeNode::start_as(manager.address, 1, 1, Who::Token(its));
    admin.see_nodes(1).await;
    let granted = admin.granted(request("1")).await;
    for restarts in [false, true] {
        if restarts {
            manager.kill_and_restart();
        }
        let who = Who::Token(others.clone());
        let impostor = FakeNode::start_as(manager.address, 1, 1, who);
        impostor
            .see("the refusal", |state| state.refused.is_some())
            .await;
        let status = impostor.look(|state| state.refused.clone().unwrap());
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    }
    let mut admin = self::admin(&manager).await;
    admin.see_nodes(1).await;
    admin.renew(&granted.lease_id).await.unwrap();
    let serves = node.look(|state| state.served.len());
    assert_eq!(serves, 1);
    node.assert_no_fault();
}

/// The status of a call whose message never arrives.
async fn unsaid(manager: &Manager, who: &Who, path: &'static str) -> Status {
    let mut caller = Grpc::new(channel(manager.address).await);
    caller.ready().await.unwrap();
    let nothing = who.request(tokio_stream::pending());
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<RenewLease, Granted>::default();
    let answer = caller.streaming(nothing, path, codec);
    let answer = tokio::time::timeout(AT_MOST, answer).await;
    answer.expect("an answer in time").expect_err("a refusal")
}

#[tokio::test]
async fn who_is_not_let_in_is_told_before_he_has_said_anything() {
    let manager = Manager::configured(AUTHENTICATE);
    let wrong = Who::Token("causeway_0000".to_owned());
    for who in [Who::Nobody, wrong] {
        for path in [
            "/causeway.manager.v1.Leases/Renew",
            "/causeway.manager.v1.Leases/Request",
            "/causeway.manager.v1.Admin/CreateToken",
            "/causeway.manager.v1.Nodes/Join",
        ] {
            let status = unsaid(&manager, &who, path).await;
            assert_eq!(status.code(), Code::Unauthenticated, "{path}: {status}");
        }
    }
}

#[tokio::test]
async fn a_long_line_is_no_request() {
    let manager = Manager::start();
    let mut ann = manager.user("ann").await;
    let names = (0..200).map(|n| format!(", NAME != \"device number {n}\""));
    let line = names.fold("1".to_owned(), |line, name| line + &name);
    match ann.ask(request(&line)).await.unwrap().last().await {
        progress::Step::Refused(refused) => {
            assert_eq!(refused.code(), RefusalCode::Malformed, "{refused:?}");
            assert!(refused.reason.contains("4096"), "{refused:?}");
        }
        other => panic!("{other:?}"),
    }
    // Messages above the size limit are refused.
    let status = ann.ask(request(&line.repeat(8))).await.err().unwrap();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
}

#[tokio::test]
async fn a_user_has_so_many_tokens_and_no_more() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (token, first) = user(&mut admin, "ann", false).await;
    let mut ann = manager.client(Who::Token(token)).await;
    let another = async |ann: &mut Client| {
        let token = CreateTokenRequest {
            user: "ann".to_owned(),
            ..CreateTokenRequest::default()
        };
        ann.admin.create_token(ann.who.request(token)).await
    };
    for _ in 1..MOST_TOKENS {
        another(&mut ann).await.unwrap();
    }
    for who in [&mut ann, &mut admin] {
        let status = another(who).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    let revoke = admin.who.request(RevokeTokenRequest { token_id: first });
    admin.admin.revoke_token(revoke).await.unwrap();
    another(&mut admin).await.unwrap();
}

#[tokio::test]
async fn a_node_brings_so_many_devices_and_no_more() {
    let manager = Manager::start();
    let most = u32::try_from(limits::NODE_DEVICES).unwrap();
    let node = FakeNode::start(manager.address, 1, most + 1);
    let status = node.refused().await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(
        status.message().contains("1025 devices") && status.message().contains("1024"),
        "{status}"
    );
    let _node = FakeNode::start(manager.address, 2, most);
    manager.user("ann").await.see_nodes(1).await;
}

/// Only an authenticated caller makes the manager ask whether it still leads.
#[tokio::test]
async fn a_stranger_who_names_a_higher_term_is_a_stranger() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut nobody = Client::connect(manager.address, Who::Nobody).await;
    let mut met = nobody.who.request(GetManagerRequest {});
    met.metadata_mut().insert(TERM, "9".parse().unwrap());
    let refused = nobody.admin.get_manager(met).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    // Callers judge refusals by it, too.
    assert_eq!(refused.metadata().get(TERM).unwrap(), "1");
    let mut admin = admin(&manager).await;
    let asked = admin.who.request(GetManagerRequest {});
    let info = admin.admin.get_manager(asked).await.unwrap().into_inner();
    assert_eq!((info.term, info.claimed_term), (1, 0));
}
