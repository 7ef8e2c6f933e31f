//! Tests of callers without authentication: they have little time, and the node reads none of their messages.

use std::io::{Read, Write};
use std::net::TcpStream;

use causeway_proto::codec::SmallBuffers;
use causeway_proto::control::{OpenSessionReply, OpenSessionRequest};
use causeway_security::{Token, secure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};

use crate::secured::{Caller, Cluster, assert_serves, channel};
use crate::support::{Daemon, PATIENCE, Setup, connect, connect_from, read_to_close};

/// The first bytes of an HTTP/2 client: its preface, and empty settings.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The time limit of strangers, which applies twice: to a handshake, and to a credential.
const LITTLE: &str = "[connections]\nhandshake_time_limit_ms = 3000\n";

#[tokio::test]
async fn who_says_nothing_after_tls_is_ended_and_keeps_nobody_out() {
    let cluster = Cluster::new();
    let daemon = cluster.with_tokens().config(LITTLE).start();
    let tls = cluster.client(None);
    let token = Some(&cluster.token);
    let mut early = Caller::reach(daemon.address(), &tls, token).await.unwrap();
    early.status().await.unwrap();
    let mut strangers = Vec::new();
    for number in 0..200u8 {
        let socket = connect_from(number / 50, daemon.address());
        socket.set_nonblocking(true).unwrap();
        let socket = tokio::net::TcpStream::from_std(socket).unwrap();
        let handshake = tls.handshake("127.0.0.1").unwrap();
        let mut stream = secure(handshake, socket, &[]).await.unwrap();
        if number % 2 == 1 {
            stream.write_all(BEGINNING).await.unwrap();
        }
        strangers.push(stream);
    }
    for _ in 0..5 {
        assert_serves(&daemon, &cluster).await;
    }
    for mut stream in strangers {
        let mut said = Vec::new();
        let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await;
        // A reset ends the connection too.
        let _ = end.expect("the node ends the connection");
    }
    // This is later than every time limit, over the connection that was open before.
    early.status().await.unwrap();
}

/// Returns the answer to a call that opens a session with these messages.
async fn told(
    daemon: &Daemon,
    cluster: &Cluster,
    token: Option<&Token>,
    words: impl Stream<Item = OpenSessionRequest> + Send + 'static,
) -> Status {
    let channel = channel(daemon.address(), &cluster.client(None)).await;
    let mut caller = Grpc::new(channel.unwrap());
    caller.ready().await.unwrap();
    let mut request = Request::new(words);
    if let Some(token) = token {
        let value = format!("Bearer {}", token.reveal()).parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    let path = PathAndQuery::from_static("/causeway.control.v1.Node/OpenSession");
    let codec = SmallBuffers::<OpenSessionRequest, OpenSessionReply>::default();
    let answer = caller.streaming(request, path, codec);
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    answer.expect("an answer in time").expect_err("a refusal")
}

#[tokio::test]
async fn who_is_not_let_in_is_told_before_he_has_said_anything() {
    let cluster = Cluster::new();
    let daemon = cluster.with_tokens().watched().start();
    let stranger = Token::generate();
    let large = || {
        tokio_stream::once(OpenSessionRequest {
            credential: vec![0; 1 << 20].into(),
            ..OpenSessionRequest::default()
        })
    };
    for token in [None, Some(&stranger)] {
        let status = told(&daemon, &cluster, token, tokio_stream::pending()).await;
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        // The node closes the connection of a stranger that continues to send, but the stranger reads the answer
        // first.
        let status = told(&daemon, &cluster, token, large()).await;
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
    // The node reads the message of an authenticated caller only, and it is too long there too.
    let status = told(&daemon, &cluster, Some(&cluster.token), large()).await;
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    let metrics = crate::watched::get(&daemon, "/metrics");
    let counted = "causeway_sessions_refused_total{reason=\"unauthenticated\"} 4";
    assert!(metrics.contains(counted), "{metrics}");
    assert_serves(&daemon, &cluster).await;
}

/// Sends a ping and waits for the answer. Other messages are ignored.
fn ping(socket: &mut TcpStream) {
    let opaque = *b"a sign..";
    let mut frame = vec![0, 0, 8, 6, 0, 0, 0, 0, 0];
    frame.extend(opaque);
    socket.write_all(&frame).unwrap();
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        socket.read_exact(&mut payload).unwrap();
        if (head[3], head[4]) == (6, 1) {
            assert_eq!(payload, opaque);
            return;
        }
    }
}

#[test]
fn where_nobody_has_to_show_anything_nobody_is_a_stranger() {
    let daemon = Setup::new()
        .config("[connections]\nhandshake_time_limit_ms = 200\ncontrol_per_peer = 1\n")
        .start();
    let mut client = connect(daemon.address());
    client.write_all(BEGINNING).unwrap();
    ping(&mut client);
    // A silent connection came later, and ends when its time is over.
    let mut silent = connect(daemon.address());
    assert!(read_to_close(&mut silent).is_empty());
    let mut silent = connect(daemon.address());
    assert!(read_to_close(&mut silent).is_empty());
    ping(&mut client);
}
