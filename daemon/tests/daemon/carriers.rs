//! Tests of the two carriers of commands.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use causeway_proto::command::worker_client::WorkerClient;
use causeway_proto::command::{
    Answer, Command, CommandBatch, EventBatch, Ping, Query, command::Kind, query::Question,
};
use causeway_proto::frame::{self, PREFIX};
use causeway_proto::preamble::Purpose;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint, Uri};

use rustix::process::{Signal, kill_process};

use crate::support::{Setup, eventually, read_to_close};

pub(crate) fn ping(number: u64) -> CommandBatch {
    let query = Query {
        request: 1000 + number,
        question: Some(Question::Ping(Ping {})),
    };
    CommandBatch {
        commands: vec![Command {
            kind: Some(Kind::Query(query)),
        }],
        first: number,
        ..Default::default()
    }
}

/// The batch as the direct carrier sends it.
pub(crate) fn frame_of(batch: &CommandBatch) -> Vec<u8> {
    let batch = batch.encode_to_vec();
    [&frame::prefix(batch.len()).unwrap()[..], &batch].concat()
}

fn assert_pong(answers: &[Answer], number: u64) {
    let answer = answers.first().expect("an answer");
    assert_eq!((answer.request, answer.status), (1000 + number, 0));
}

#[tokio::test]
async fn frames_carry_questions_and_answers() {
    let daemon = Setup::with_drivers().start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    for number in 1..=3 {
        commands.write_all(&frame_of(&ping(number))).unwrap();
        let events = loop {
            let mut prefix = [0; PREFIX];
            commands.read_exact(&mut prefix).unwrap();
            let mut bytes = vec![0; frame::length(prefix).unwrap()];
            commands.read_exact(&mut bytes).unwrap();
            let events = EventBatch::decode(&bytes[..]).unwrap();
            if !events.answers.is_empty() {
                break events;
            }
        };
        assert_pong(&events.answers, number);
    }
}

/// HTTP/2 over this one connection.
async fn channel(socket: TcpStream) -> Channel {
    socket.set_nonblocking(true).unwrap();
    let mut socket = Some(tokio::net::TcpStream::from_std(socket).unwrap());
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.take();
        async {
            socket
                .map(TokioIo::new)
                .ok_or_else(|| std::io::Error::other("one connection is all there is"))
        }
    });
    Endpoint::from_static("http://worker")
        .connect_with_connector(connector)
        .await
        .unwrap()
}

/// The answers must come once each, and the numbers without a gap, over connections that break at any time.
#[tokio::test]
async fn grpc_goes_on_over_further_connections() {
    let daemon = Setup::with_drivers().start();
    let session = daemon.open_for_long().await;
    let (mut handled, mut answered) = (0, Vec::new());
    for round in 1..=8u64 {
        let (socket, applied) = session
            .connect_after(Purpose::CommandsGrpc, 0, handled)
            .unwrap();
        let ended = socket.try_clone().unwrap();
        let channel = channel(socket).await;
        let mut client = WorkerClient::new(channel);
        let (send, receive) = tokio::sync::mpsc::channel(100);
        // Each round sends two more commands, and all of those again that may not have been applied.
        for number in applied + 1..=2 * round {
            send.send(ping(number)).await.unwrap();
        }
        let stream = tokio_stream::wrappers::ReceiverStream::new(receive);
        let mut events = client.commands(stream).await.unwrap().into_inner();
        // In some rounds, the last answer is not read.
        while answered.len() as u64 + round % 2 < 2 * round {
            let batch = events.next().await.unwrap().unwrap();
            if batch.number > handled {
                assert_eq!(batch.number, handled + 1);
                handled = batch.number;
                answered.extend(batch.answers.iter().map(|of| of.request - 1000));
            }
        }
        ended.shutdown(Shutdown::Both).unwrap();
    }
    assert_eq!(answered, (1..=16).collect::<Vec<_>>());
    let (socket, applied) = session
        .connect_after(Purpose::CommandsGrpc, 0, handled)
        .unwrap();
    let mut client = WorkerClient::new(channel(socket).await);
    let farewell = CommandBatch {
        first: applied + 1,
        closes: true,
        ..Default::default()
    };
    let _ = client.commands(tokio_stream::once(farewell)).await;
    daemon.until_sessions(0).await;
}

/// A worker without processor time meets commands, the farewell and the end of the connection at once: behind an answer
/// or, without `is_begun`, together with the request.
async fn farewell_with_the_end(is_begun: bool) {
    let daemon = Setup::new().args(&["--spare-workers", "0"]).start();
    let session = daemon.open_for(600_000, 600_000).await;
    let worker = eventually("a worker", || daemon.children().first().copied());
    let socket = session.connect(Purpose::CommandsGrpc, 0).unwrap();
    let ended = socket.try_clone().unwrap();
    if !is_begun {
        kill_process(worker, Signal::STOP).unwrap();
    }
    let mut client = WorkerClient::new(channel(socket).await);
    let (send, receive) = tokio::sync::mpsc::channel(100);
    send.send(ping(1)).await.unwrap();
    let (answer, answered) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let stream = tokio_stream::wrappers::ReceiverStream::new(receive);
        if let Ok(events) = client.commands(stream).await {
            let mut events = events.into_inner();
            let _ = answer.send(events.next().await.is_some());
            while events.next().await.is_some() {}
        }
    });
    if is_begun {
        assert!(answered.await.unwrap());
        kill_process(worker, Signal::STOP).unwrap();
    }
    for number in 2..=50 {
        send.send(ping(number)).await.unwrap();
    }
    let farewell = CommandBatch {
        first: 51,
        closes: true,
        ..Default::default()
    };
    send.send(farewell).await.unwrap();
    // This runtime has one thread, so its other tasks write meanwhile.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    ended.shutdown(Shutdown::Both).unwrap();
    kill_process(worker, Signal::CONT).unwrap();
    daemon.until_sessions(0).await;
}

#[tokio::test]
async fn a_farewell_over_grpc_counts_if_the_connection_has_ended_behind_it() {
    farewell_with_the_end(true).await;
}

#[tokio::test]
async fn a_request_over_grpc_counts_if_it_comes_with_the_end_of_the_connection() {
    farewell_with_the_end(false).await;
}

#[tokio::test]
async fn grpc_carries_the_same() {
    let daemon = Setup::with_drivers().start();
    let session = daemon.open().await;
    let socket = session.connect(Purpose::CommandsGrpc, 0).unwrap();
    let channel = channel(socket).await;
    let mut client = WorkerClient::new(channel.clone());
    let (send, receive) = tokio::sync::mpsc::channel(4);
    send.send(ping(1)).await.unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(receive);
    let mut events = client.commands(stream).await.unwrap().into_inner();
    for number in 1..=3 {
        let batch = loop {
            let batch = events.next().await.unwrap().unwrap();
            if !batch.answers.is_empty() {
                break batch;
            }
        };
        assert_pong(&batch.answers, number);
        send.send(ping(number + 1)).await.unwrap();
    }
    let second = WorkerClient::new(channel)
        .commands(tokio_stream::empty())
        .await;
    assert_eq!(second.unwrap_err().code(), tonic::Code::ResourceExhausted);
    drop(send);
    daemon.until_sessions(0).await;
}

#[tokio::test]
async fn a_gap_in_the_numbers_ends_the_session() {
    let daemon = Setup::with_drivers().start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    commands.write_all(&frame_of(&ping(2))).unwrap();
    read_to_close(&mut commands);
    daemon.until_sessions(0).await;
}
