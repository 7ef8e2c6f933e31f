//! The worker's end of a session: the test reads commands and sends answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};

use causeway_proto::command::worker_server::Worker;
use causeway_proto::command::{CommandBatch, EventBatch};
use causeway_proto::frame;
use prost::Message;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status};

use super::PATIENCE;

/// The worker's end of a command connection.
/// The second value is the number of the last event batch.
pub struct FakeWorker(pub(super) Link, pub(super) u64);

pub(super) enum Link {
    Direct(TcpStream),
    Grpc {
        received: Receiver<CommandBatch>,
        events: tokio::sync::mpsc::UnboundedSender<Result<EventBatch, Status>>,
        killer: TcpStream,
    },
}

impl FakeWorker {
    /// Returns the next batch, or `None` when the client has closed the connection.
    pub fn try_receive(&mut self) -> Option<CommandBatch> {
        match &mut self.0 {
            Link::Direct(stream) => {
                let mut prefix = [0; frame::PREFIX];
                stream.read_exact(&mut prefix).ok()?;
                let mut bytes = vec![0; frame::length(prefix).unwrap()];
                stream.read_exact(&mut bytes).ok()?;
                Some(CommandBatch::decode(&bytes[..]).unwrap())
            }
            Link::Grpc { received, .. } => received.recv_timeout(PATIENCE).ok(),
        }
    }

    pub fn receive(&mut self) -> CommandBatch {
        self.try_receive().expect("a batch")
    }

    /// Numbers the next batch as the one behind `number`, which the client has told a worker in the place of another.
    pub fn begin_behind(&mut self, number: u64) {
        self.1 = number;
    }

    /// Sends a batch. One without a number gets the next.
    pub fn send(&mut self, mut batch: EventBatch) {
        if batch.number == 0 {
            batch.number = self.1 + 1;
        }
        self.1 = batch.number;
        match &mut self.0 {
            Link::Direct(stream) => {
                let bytes = batch.encode_to_vec();
                stream
                    .write_all(&frame::prefix(bytes.len()).unwrap())
                    .unwrap();
                stream.write_all(&bytes).unwrap();
            }
            Link::Grpc { events, .. } => events.send(Ok(batch)).unwrap(),
        }
    }

    /// Sends bytes that need not be a frame. For the direct carrier only.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.socket().write_all(bytes).unwrap();
    }

    pub fn socket(&mut self) -> &mut TcpStream {
        match &mut self.0 {
            Link::Direct(stream) => stream,
            Link::Grpc { killer, .. } => killer,
        }
    }

    /// Closes the connection, as a dying worker does.
    pub fn die(mut self) {
        let _ = self.socket().shutdown(std::net::Shutdown::Both);
    }
}

pub(super) struct Bridge {
    pub(super) batches: Mutex<Sender<CommandBatch>>,
    pub(super) events:
        Mutex<Option<tokio::sync::mpsc::UnboundedReceiver<Result<EventBatch, Status>>>>,
}

#[tonic::async_trait]
impl Worker for Bridge {
    type CommandsStream = UnboundedReceiverStream<Result<EventBatch, Status>>;

    async fn commands(
        &self,
        request: Request<tonic::Streaming<CommandBatch>>,
    ) -> Result<Response<Self::CommandsStream>, Status> {
        let batches = self.batches.lock().unwrap().clone();
        let mut commands = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(batch)) = commands.message().await {
                let _ = batches.send(batch);
            }
        });
        let events = self.events.lock().unwrap().take().unwrap();
        Ok(Response::new(UnboundedReceiverStream::new(events)))
    }
}
