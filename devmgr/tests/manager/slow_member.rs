//! What managers do when a member of etcd answers slowly: the only one, and one of three.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use causeway_proto::manager::GetManagerRequest;

use super::etcd::Cluster;
use super::etcd_trouble::see_health;
use super::node::FakeNode;
use super::process::{Client, Manager, Who, request};

/// A way to a member on which all bytes take some time.
struct SlowWay {
    address: SocketAddr,
    delay: watch::Sender<Duration>,
}

impl SlowWay {
    async fn to(member: SocketAddr) -> SlowWay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (delay, takes) = watch::channel(Duration::ZERO);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(member).await else {
                    continue;
                };
                let ((near_out, near_in), (far_out, far_in)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(forward(near_out, far_in, takes.clone()));
                tokio::spawn(forward(far_out, near_in, takes.clone()));
            }
        });
        SlowWay { address, delay }
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    fn takes(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }
}

/// Forwards bytes in their order, each as late as it was said when they came.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    takes: watch::Receiver<Duration>,
) {
    let (send, mut due) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((at, bytes)) = due.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let at = Instant::now() + *takes.borrow();
        if send.send((at, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

async fn term(manager: &Manager) -> u64 {
    let mut client = Client::connect(manager.address, Who::Nobody).await;
    let asked = client.who.request(GetManagerRequest {});
    let info = client.admin.get_manager(asked).await.unwrap();
    info.into_inner().term
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_member_that_answers_slowly_is_named_nothing_is_granted_and_speed_heals_it() {
    let Some(cluster) = Cluster::start(1).await else {
        return;
    };
    let way = SlowWay::to(cluster.address(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let table = cluster.table_at(&[way.url()], &folder.path().join("token"));
    let manager = Manager::configured(&table);
    see_health(manager.address, &[" 200 "]).await;
    let node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let held = ann.granted(request("1")).await;
    let before = term(&manager).await;

    way.takes(Duration::from_secs(3));
    let url = way.url();
    see_health(
        manager.address,
        &[" 503 ", "standby", &url, "did not answer"],
    )
    .await;
    let mut client = Client::connect(manager.address, Who::Name("ann".to_owned())).await;
    let refused = client.ask(request("1")).await.err().unwrap();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(refused.message().contains(&url), "{refused}");
    assert!(
        manager.log().contains("did not answer"),
        "{}",
        manager.log()
    );

    way.takes(Duration::ZERO);
    see_health(manager.address, &[" 200 "]).await;
    assert!(term(&manager).await > before);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    ann.renew(&held.lease_id).await.unwrap();
    ann.granted(request("1")).await;
    node.assert_no_fault();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slow_member_of_three_changes_no_leader_and_refuses_nothing() {
    let Some(cluster) = Cluster::start(3).await else {
        return;
    };
    // The first one, which every call would ask.
    let way = SlowWay::to(cluster.address(0)).await;
    let direct = [1, 2].map(|at| format!("https://{}", cluster.address(at)));
    let urls = [&[way.url()], &direct[..]].concat();
    let folder = tempfile::tempdir().unwrap();
    let table = cluster.table_at(&urls, &folder.path().join("token"));
    let manager = Manager::configured(&table);
    see_health(manager.address, &[" 200 "]).await;
    let _node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let before = term(&manager).await;

    way.takes(Duration::from_secs(3));
    let begin = Instant::now();
    // Far longer than the time of the leader's etcd lease.
    while begin.elapsed() < Duration::from_secs(8) {
        let granted = ann.granted(request("1")).await;
        ann.release(&granted.lease_id).await.unwrap();
    }
    assert_eq!(term(&manager).await, before);
}
