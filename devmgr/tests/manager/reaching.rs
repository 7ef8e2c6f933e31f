//! A loss of permissions reaches what runs already: nodes, streams, and offers.

use causeway_proto::manager::{CreateTokenRequest, User, WatchRequest, progress};
use tonic::{Code, Status, Streaming};

use super::node::FakeNode;
use super::process::{AT_MOST, Manager, Who, request, waiting};
use super::strangers::{AUTHENTICATE, admin, user};

/// The node is disconnected, connects again, and is refused with these words.
async fn refused(node: &FakeNode, code: Code) {
    node.see("the refusal", |state| state.refused.is_some())
        .await;
    let status = node.look(|state| state.refused.clone().unwrap());
    assert_eq!(status.code(), code, "{status}");
}

/// The status that ends a stream; messages before it are skipped.
async fn end<T>(stream: &mut Streaming<T>) -> Status {
    let end = async {
        loop {
            match stream.message().await {
                Ok(word) => assert!(word.is_some(), "the stream ended without a reason"),
                Err(status) => return status,
            }
        }
    };
    let end = tokio::time::timeout(AT_MOST, end).await;
    end.expect("an end in time")
}

#[tokio::test]
async fn a_node_goes_with_its_token_its_account_and_its_part() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let mut nodes = Vec::new();
    let mut ids = Vec::new();
    for number in 1..=4 {
        let (token, id) = user(&mut admin, &format!("node{number}"), true).await;
        let who = Who::Token(token);
        nodes.push(FakeNode::start_as(manager.address, number, 1, who));
        ids.push(id);
    }
    admin.see_nodes(4).await;
    admin.revoke_token(&ids.remove(0)).await.unwrap();
    refused(&nodes[0], Code::Unauthenticated).await;
    admin.delete_user("node2").await.unwrap();
    refused(&nodes[1], Code::Unauthenticated).await;
    let name = "node3".to_owned();
    let no_node = User {
        name,
        ..User::default()
    };
    admin.put_user(no_node).await.unwrap();
    refused(&nodes[2], Code::PermissionDenied).await;
    // The remaining node is not affected.
    admin.see_nodes(1).await;
    let granted = admin.granted(request("1")).await;
    assert_eq!(granted.nodes[0].name, "node4");
}

#[tokio::test]
async fn a_node_goes_when_its_token_ends() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    user(&mut admin, "node1", true).await;
    let token = admin.who.request(CreateTokenRequest {
        user: "node1".to_owned(),
        lifetime_ms: 1_000,
        ..CreateTokenRequest::default()
    });
    let token = admin.admin.create_token(token).await.unwrap();
    let who = Who::Token(token.into_inner().token);
    let node = FakeNode::start_as(manager.address, 1, 1, who);
    refused(&node, Code::Unauthenticated).await;
    admin.see_nodes(0).await;
}

#[tokio::test]
async fn who_administrates_no_more_watches_no_more() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (token, _) = user(&mut admin, "boss", false).await;
    let boss = |admin| User {
        name: "boss".to_owned(),
        admin,
        ..User::default()
    };
    admin.put_user(boss(true)).await.unwrap();
    let mut client = manager.client(Who::Token(token)).await;
    let watch = client.who.request(WatchRequest { interval_ms: 100 });
    let mut watch = client.admin.watch(watch).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    admin.put_user(boss(false)).await.unwrap();
    let status = end(&mut watch).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
}

#[tokio::test]
async fn with_a_token_goes_what_waits_by_it() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (node, _) = user(&mut admin, "node1", true).await;
    let node = FakeNode::start_as(manager.address, 1, 1, Who::Token(node));
    let (token, id) = user(&mut admin, "ann", false).await;
    admin.see_nodes(1).await;
    let granted = admin.granted(request("1")).await;
    let mut ann = manager.client(Who::Token(token)).await;
    let mut waits = ann.ask(waiting("1")).await.unwrap();
    waits.next().await;
    admin.revoke_token(&id).await.unwrap();
    let status = end(&mut waits.0).await;
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    // The request no longer waits, so another user gets the device.
    admin.release(&granted.lease_id).await.unwrap();
    admin.granted(waiting("1")).await;
    node.assert_no_fault();
}

#[tokio::test]
async fn with_a_user_go_his_offers() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut admin = admin(&manager).await;
    let (node, _) = user(&mut admin, "node1", true).await;
    let node = FakeNode::start_as(manager.address, 1, 1, Who::Token(node));
    let (ann, _) = user(&mut admin, "ann", false).await;
    admin.see_nodes(1).await;
    node.say(false, true);
    let mut ann = manager.client(Who::Token(ann)).await;
    let asked = ann.ask(waiting("1")).await.unwrap();
    node.see("the offer", |state| state.granted.len() == 1)
        .await;
    admin.delete_user("ann").await.unwrap();
    node.see("its end", |state| !state.withdrawn.is_empty())
        .await;
    node.say(true, true);
    let last = asked.last().await;
    assert!(matches!(last, progress::Step::Ended(_)), "{last:?}");
    admin.granted(waiting("1")).await;
    node.assert_no_fault();
}
