//! Two clients and one device, a thousand times.

use causeway_proto::manager::{RefusalCode, progress};

use super::node::FakeNode;
use super::process::{Client, Manager, Who, request};

const ROUNDS: usize = 1000;
/// The rate limit of refusals allows little more for one user.
const ROUNDS_OF_ONE: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_time_one_of_them_has_it() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    manager.user("nobody").await.see_nodes(1).await;
    let run = |name: &'static str| {
        let address = manager.address;
        tokio::spawn(async move {
            let mut client = Client::connect(address, Who::Name(name.to_owned())).await;
            let mut won = 0;
            for round in 0..ROUNDS {
                client.who = Who::Name(format!("{name}{}", round / ROUNDS_OF_ONE));
                match client.ask(request("1")).await.unwrap().last().await {
                    progress::Step::Granted(granted) => {
                        won += 1;
                        client.release(&granted.lease_id).await.unwrap();
                    }
                    progress::Step::Refused(refused) => {
                        assert_eq!(refused.code(), RefusalCode::NothingFree, "{refused:?}");
                    }
                    other => panic!("{other:?}"),
                }
            }
            won
        })
    };
    let (ann, bob) = (run("ann"), run("bob"));
    let won = (ann.await.unwrap(), bob.await.unwrap());
    assert!(won.0 + won.1 > 0, "{won:?}");
    // At most one lease at a time, each epoch once, and no lease at the end.
    node.see("the last withdrawal", |state| state.served.is_empty())
        .await;
    node.assert_no_fault();
    let epochs = node.look(|state| state.granted.iter().map(|of| of.epoch).collect::<Vec<_>>());
    assert!(epochs.is_sorted_by(|a, b| a < b));
    assert_eq!(epochs.len(), won.0 + won.1);
}
