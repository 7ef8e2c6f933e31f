//! `consider` says what a request would get, and takes nothing.

use causeway_proto::manager::{Quota, RefusalCode, progress, quota};

use tonic::Code;

use super::node::FakeNode;
use super::process::{AT_MOST, Client, Manager, request, waiting};

async fn refusal(client: &mut Client, line: &str) -> RefusalCode {
    client.considers(request(line)).await.unwrap_err().code()
}

#[tokio::test]
async fn what_would_be_granted_stays_free() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 2);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    for _ in 0..2 {
        let fitting = ann.considers(request("2, TYPE=GPU")).await.unwrap();
        let [share] = &fitting.nodes[..] else {
            panic!("{fitting:?}");
        };
        assert_eq!((share.name.as_str(), share.units.len()), ("node1", 2));
        assert_eq!(share.devices, ["fake device", "fake device"]);
    }
    assert_eq!(ann.list().await, []);
    node.look(|state| assert!(state.granted.is_empty()));
    // The device was not taken, so another user gets it.
    bob.granted(request("2")).await;
}

#[tokio::test]
async fn why_not_is_told_as_to_who_asks_in_earnest() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 2);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    assert_eq!(refusal(&mut ann, "3").await, RefusalCode::NothingFits);
    assert_eq!(
        refusal(&mut ann, "1, TYPE=CPU").await,
        RefusalCode::NothingFits
    );
    assert_eq!(
        refusal(&mut ann, "1, TIPE=GPU").await,
        RefusalCode::Malformed
    );
    bob.granted(request("1")).await;
    assert_eq!(refusal(&mut ann, "2").await, RefusalCode::NothingFree);
    let quota = Quota {
        who: Some(quota::Who::User("bob".to_owned())),
        devices: 1,
        ..Quota::default()
    };
    let put = ann.who.request(quota);
    ann.admin.put_quota(put).await.unwrap();
    assert_eq!(refusal(&mut bob, "1").await, RefusalCode::Quota);
    ann.considers(request("1")).await.unwrap();
}

#[tokio::test]
async fn who_asks_too_often_has_to_wait_and_nobody_else() {
    let manager = Manager::start();
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    let begin = std::time::Instant::now();
    let too_often = loop {
        let asked = ann.who.request(request("1"));
        match ann.leases.consider(asked).await {
            Ok(_) => assert!(begin.elapsed() < AT_MOST, "no limit was reached"),
            Err(status) => break status,
        }
    };
    assert_eq!(too_often.code(), Code::ResourceExhausted);
    assert!(too_often.message().contains("--wait"), "{too_often}");
    assert_eq!(refusal(&mut bob, "1").await, RefusalCode::NothingFits);
}

#[tokio::test]
async fn who_is_refused_too_often_has_to_wait_or_to_ask_to() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let begin = std::time::Instant::now();
    let mut refused = 0;
    let too_often = loop {
        match ann.ask(request("2")).await {
            Ok(asked) => {
                let step = asked.last().await;
                assert!(matches!(step, progress::Step::Refused(_)), "{step:?}");
                refused += 1;
                assert!(begin.elapsed() < AT_MOST, "no limit was reached");
            }
            Err(status) => break status,
        }
    };
    assert_eq!(too_often.code(), Code::ResourceExhausted);
    assert!(too_often.message().contains("--wait"), "{too_often}");
    // A user may start many programs at once, so a burst of refusals is allowed.
    assert!(refused >= 240, "{refused}");
    ann.ask(waiting("2")).await.unwrap();
    // Requests that are granted do not count against the rate limit.
    for _ in 0..300 {
        let granted = bob.granted(request("1")).await;
        bob.release(&granted.lease_id).await.unwrap();
    }
}
