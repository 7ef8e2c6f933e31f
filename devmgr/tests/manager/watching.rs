//! Monitoring: `/healthz`, `/metrics`, gRPC's health and reflection.

use std::net::SocketAddr;
use std::time::Instant;

use causeway_proto::manager::progress::Step;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1alpha::ServerReflectionRequest;
use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1alpha::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1alpha::server_reflection_response::MessageResponse;

use super::node::FakeNode;
use super::process::{AT_MOST, Manager, channel, request, waiting};

/// Sends a GET request, and returns the whole answer.
pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: manager\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = tokio::time::timeout(AT_MOST, socket.read_to_string(&mut answer)).await;
    read.expect("an answer in time").unwrap();
    answer
}

#[tokio::test]
async fn health_and_counts_are_told_to_everyone_and_names_to_nobody() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    ann.granted(request("1")).await;
    let health = get(manager.address, "/healthz").await;
    assert!(health.starts_with("HTTP/1.1 200 OK\r\n") && health.ends_with("\r\n\r\nok\n"));
    let metrics = get(manager.address, "/metrics").await;
    for line in [
        "causeway_manager_serving 1",
        "causeway_manager_nodes_connected 1",
        "causeway_manager_units 2",
        "causeway_manager_units_leased 1",
        "causeway_manager_requests_total 1",
        "causeway_manager_grants_total 1",
        "causeway_manager_requests_waiting 0",
        "causeway_manager_memory_bytes 17179869184",
        "causeway_manager_memory_leased_bytes 8589934592",
        "causeway_manager_leader 1",
        "causeway_manager_term 1",
        "causeway_manager_request_grant_seconds_count 1",
        "causeway_manager_queue_wait_seconds_count 0",
        "causeway_manager_queue_head_wait_seconds 0.0",
        "causeway_manager_handshakes_refused_total{reason=\"tls_is_off\"} 0",
    ] {
        assert!(metrics.lines().any(|of| of == line), "{line}: {metrics}");
    }
    for name in ["sum", "count"] {
        let name = format!("causeway_manager_commit_seconds_{name}{{store=\"file\"}} ");
        let mut values = metrics.lines().filter_map(|of| of.strip_prefix(&name));
        let value: f64 = values.next().unwrap().parse().unwrap();
        assert!(value > 0.0, "{name}: {metrics}");
    }
    assert!(!metrics.contains("ann") && !metrics.contains("node1"));
    assert!(get(manager.address, "/").await.starts_with("HTTP/1.1 404 "));
    // The lease stays for a while. Its units are not among those of connected nodes any more.
    drop(node);
    let begin = Instant::now();
    loop {
        let metrics = get(manager.address, "/metrics").await;
        let has = |line: &str| metrics.lines().any(|of| of == line);
        if has("causeway_manager_nodes_connected 0") {
            for line in [
                "leases 1",
                "units 0",
                "units_leased 0",
                "memory_leased_bytes 0",
            ] {
                assert!(
                    has(&format!("causeway_manager_{line}")),
                    "{line}: {metrics}"
                );
            }
            break;
        }
        assert!(begin.elapsed() < AT_MOST, "the node is still connected");
    }
}

#[tokio::test]
async fn waits_are_counted_until_the_lease_and_refused_callers_by_reason() {
    let manager = Manager::configured("[policy.timing]\npatience = 1\nposition = 50\n");
    let _node = FakeNode::start(manager.address, 1, 1);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let granted = ann.granted(request("1")).await;
    let mut asked = bob.ask(waiting("1")).await.unwrap();
    // The first report has no reason, because it is the answer to the request.
    let why = loop {
        match asked.next().await {
            Some(Step::Position(position)) if !position.why.is_empty() => break position.why,
            Some(Step::Position(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(why, "the devices are in use");
    let value = async |name: &str| -> f64 {
        let metrics = get(manager.address, "/metrics").await;
        let name = format!("causeway_manager_{name} ");
        let mut values = metrics.lines().filter_map(|of| of.strip_prefix(&name));
        values.next().unwrap().parse().unwrap()
    };
    let begin = Instant::now();
    while value("queue_head_wait_seconds").await == 0.0 {
        assert!(begin.elapsed() < AT_MOST, "no request is the head");
    }
    assert_eq!(value("queue_head_late_seconds").await, 0.0);
    ann.release(&granted.lease_id).await.unwrap();
    assert!(matches!(asked.answer().await, Step::Granted(_)));
    assert_eq!(value("queue_wait_seconds_count").await, 1.0);
    assert_eq!(value("request_grant_seconds_count").await, 2.0);
    assert_eq!(value("queue_head_wait_seconds").await, 0.0);
    let mut stranger = TcpStream::connect(manager.address).await.unwrap();
    // The beginning of TLS, which is off.
    stranger.write_all(&[22, 3, 1, 0]).await.unwrap();
    let mut refused = Vec::new();
    // The end may be a reset.
    let _ = stranger.read_to_end(&mut refused).await;
    let name = "handshakes_refused_total{reason=\"tls_is_off\"}";
    let begin = Instant::now();
    while value(name).await == 0.0 {
        assert!(begin.elapsed() < AT_MOST, "it is not counted");
    }
}

#[tokio::test]
async fn what_nodes_and_leases_use_is_told_as_of_the_last_heartbeat() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    ann.granted(request("1")).await;
    node.uses(4096, 7);
    let begin = Instant::now();
    let lease = loop {
        let lease = ann.list().await.remove(0);
        if lease.commands > 0 {
            break lease;
        }
        assert!(begin.elapsed() < AT_MOST, "no heartbeat was heard");
    };
    assert_eq!((lease.bytes, lease.commands, lease.sessions), (4096, 7, 1));
    let metrics = get(manager.address, "/metrics").await;
    let node = "{node=\"01010101-0101-0101-0101-010101010101\"}";
    for line in [
        format!("causeway_manager_node_bytes_total{node} 4096"),
        format!("causeway_manager_node_commands_total{node} 7"),
        format!("causeway_manager_node_sessions{node} 1"),
        format!("causeway_manager_node_busy_seconds_total{node} 0.000004096"),
    ] {
        assert!(metrics.lines().any(|of| of == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn reflection_tells_what_is_served() {
    let manager = Manager::start();
    let mut client = ServerReflectionClient::new(channel(manager.address).await);
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answers = client.server_reflection_info(tokio_stream::iter([list]));
    let answer = answers.await.unwrap().into_inner().message().await.unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.unwrap().message_response else {
        panic!("no list");
    };
    let mut names: Vec<_> = list.service.into_iter().map(|of| of.name).collect();
    names.sort();
    let own = ["Admin", "Leases", "Nodes"].map(|name| format!("causeway.manager.v1.{name}"));
    assert_eq!(names[..3], own);
    assert_eq!(names[3..], ["grpc.health.v1.Health"]);
}

#[tokio::test]
async fn load_balancers_ask_as_they_ask_everyone() {
    let manager = Manager::start();
    let mut health = HealthClient::new(channel(manager.address).await);
    let request = HealthCheckRequest {
        service: String::new(),
    };
    let status = health.check(request).await.unwrap().into_inner().status;
    assert_eq!(status, ServingStatus::Serving as i32);
}
