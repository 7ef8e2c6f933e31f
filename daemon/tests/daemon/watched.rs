//! Tests of monitoring: `/healthz`, `/metrics`, gRPC's health and reflection.

use std::io::{Read, Write};
use std::sync::Arc;

use causeway_proto::preamble::Purpose;
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tonic::transport::Channel;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::secured::Cluster;
use crate::support::{Daemon, Setup, connect, eventually, read_to_close};

const NODE: &str = "causeway.control.v1.Node";

/// Returns the whole answer.
fn ask(mut stream: impl Read + Write, path: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(crate) fn get(daemon: &Daemon, path: &str) -> String {
    ask(connect(daemon.watched_at.unwrap()), path)
}

/// Waits for a line of the metrics.
fn until_told(daemon: &Daemon, line: &str) {
    eventually(line, || {
        let metrics = get(daemon, "/metrics");
        metrics.lines().any(|of| of == line).then_some(())
    });
}

fn watched(settings: &str) -> Daemon {
    let setup = Setup::with_fake_driver(settings).watched();
    setup.args(&["--spare-workers", "0"]).start()
}

#[tokio::test]
async fn a_nodes_health_and_counts_are_told_to_everyone_and_names_to_nobody() {
    let daemon = watched("devices = 2");
    let health = get(&daemon, "/healthz");
    assert!(health.starts_with("HTTP/1.1 200 OK\r\n") && health.ends_with("\r\n\r\nok\n"));
    let session = daemon.open().await;
    let commands = session.connect(Purpose::Commands, 0).unwrap();
    for line in [
        "causeway_serving 1",
        "causeway_devices 2",
        "causeway_sessions 1",
        "causeway_sessions_opened_total 1",
        "causeway_workers 1",
        "causeway_hosts 0",
        "causeway_workers_spare_target 0",
        "causeway_session_open_seconds_count 1",
        "causeway_sessions_ended_total{reason=\"closed\"} 0",
        "causeway_commands_total 0",
        "causeway_bulk_bytes_total{with=\"client\",direction=\"sent\"} 0",
    ] {
        until_told(&daemon, line);
    }
    drop(commands);
    until_told(
        &daemon,
        "causeway_sessions_ended_total{reason=\"closed\"} 1",
    );
    until_told(&daemon, "causeway_sessions 0");
    // A worker that cannot report its reason.
    let _killed = daemon.open().await;
    let worker = eventually("its worker", || daemon.children().pop());
    rustix::process::kill_process(worker, Signal::FPE).unwrap();
    until_told(
        &daemon,
        "causeway_sessions_ended_total{reason=\"crashed\"} 1",
    );
    // A caller without authentication.
    let mut stranger = connect(daemon.address());
    stranger.write_all(b"HELO\r\n").unwrap();
    read_to_close(&mut stranger);
    until_told(
        &daemon,
        "causeway_handshakes_refused_total{reason=\"foreign\"} 1",
    );
    let metrics = get(&daemon, "/metrics");
    let name = daemon.inventory().await.node_name;
    assert!(!metrics.contains(&name), "{metrics}");
    assert!(get(&daemon, "/").starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn a_node_without_devices_or_at_its_end_is_not_well() {
    let empty = Setup::new().watched().start();
    let health = get(&empty, "/healthz");
    assert!(health.starts_with("HTTP/1.1 503 ") && health.contains("no OpenCL device"));
    assert_eq!(grpc_health(&empty).await, ServingStatus::NotServing);

    let mut daemon = watched("");
    assert_eq!(grpc_health(&daemon).await, ServingStatus::Serving);
    let session = daemon.open().await;
    let commands = session.connect(Purpose::Commands, 0).unwrap();
    daemon.signal(Signal::TERM);
    let health = eventually("its end", || {
        Some(get(&daemon, "/healthz")).filter(|health| health.starts_with("HTTP/1.1 503 "))
    });
    assert!(health.contains("shutting down"), "{health}");
    assert_eq!(grpc_health(&daemon).await, ServingStatus::NotServing);
    drop(commands);
    assert!(daemon.wait().success());
}

async fn channel(daemon: &Daemon) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", daemon.address())).unwrap();
    endpoint.connect().await.unwrap()
}

async fn grpc_health(daemon: &Daemon) -> ServingStatus {
    let mut client = HealthClient::new(channel(daemon).await);
    let mut said = Vec::new();
    for service in ["", NODE] {
        let service = service.to_owned();
        let answer = client.check(HealthCheckRequest { service }).await;
        said.push(answer.unwrap().into_inner().status);
    }
    assert_eq!(said[0], said[1]);
    match said[0] {
        1 => ServingStatus::Serving,
        2 => ServingStatus::NotServing,
        _ => ServingStatus::Unknown,
    }
}

#[tokio::test]
async fn reflection_tells_what_is_served_and_how_to_call_it() {
    let daemon = Setup::new().start();
    let mut client = ServerReflectionClient::new(channel(&daemon).await);
    let ask = |message_request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message_request),
    };
    let questions = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(format!(
            "{NODE}.OpenSession"
        ))),
    ];
    let answers = client.server_reflection_info(tokio_stream::iter(questions));
    let mut answers = answers.await.unwrap().into_inner();
    let mut next = async || answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = next().await else {
        panic!("no list");
    };
    let mut names: Vec<_> = list.service.into_iter().map(|of| of.name).collect();
    names.sort();
    assert_eq!(names, [NODE, "grpc.health.v1.Health"]);
    let Some(MessageResponse::FileDescriptorResponse(files)) = next().await else {
        panic!("no file");
    };
    assert_eq!(files.file_descriptor_proto.len(), 1);
}

#[test]
fn metrics_beyond_loopback_take_tls() {
    let setup = Setup::new().args(&["--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"]);
    let (said, status) = setup.refused();
    assert!(!status.success());
    assert!(
        said.contains("/metrics at 0.0.0.0:0 is reachable"),
        "{said}"
    );
}

#[test]
fn with_a_certificate_watchers_may_speak_tls() {
    let cluster = Cluster::new();
    let tokens = cluster.text("tokens");
    let setup = cluster.setup("node").args(&["--tokens", &tokens]);
    let daemon = setup.watched().start();
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(cluster.path("ca")).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    // Browsers and Prometheus do this.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = connect(daemon.watched_at.unwrap());
    let mut stream = rustls::StreamOwned::new(client, socket);
    let head = "GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // The other end closes without the closing message of TLS. The length shows that the answer is complete.
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.contains("causeway_sessions_opened_total 0\n"),
        "{answer}"
    );
    assert!(
        answer.contains("\ncauseway_certificate_expiry_timestamp_seconds "),
        "{answer}"
    );
    assert!(
        answer.contains("connections_unproved_total 0\n"),
        "{answer}"
    );
    // On loopback, plain HTTP works too.
    assert!(get(&daemon, "/metrics").starts_with("HTTP/1.1 200 OK\r\n"));
}
