//! The `Worker` service written by hand: as tonic generates it, except for the decoder.
//!
//! The generated service would use prost's own codec. That allocates memory for as many commands as a
//! message of the allowed size can name. This service uses [`batch::decode`], as the direct carrier does.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use causeway_proto::command::CommandBatch;
use causeway_proto::limits::MAX_BATCH;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, StreamingService};
use tonic::{Code, Status};

use super::batch;

/// Path of the service's only method.
const COMMANDS: &str = "/causeway.command.v1.Worker/Commands";

/// An event batch in its encoded form.
pub(super) struct Encoded(pub(super) Bytes);

/// A command batch, and its length in bytes.
pub(super) struct Received {
    pub(super) batch: CommandBatch,
    pub(super) bytes: usize,
}

/// Serves `Commands` with `call`. Every other path is unimplemented.
#[derive(Clone)]
pub(super) struct WorkerService<Call>(pub(super) Call);

impl<Call> Service<http::Request<Body>> for WorkerService<Call>
where
    Call: StreamingService<Received, Response = Encoded> + Clone + Send + 'static,
    Call::ResponseStream: Send,
    Call::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let call = self.0.clone();
        Box::pin(async move {
            if request.uri().path() != COMMANDS {
                return Ok(Status::new(Code::Unimplemented, "").into_http());
            }
            let mut grpc = Grpc::new(BatchCodec)
                .max_decoding_message_size(MAX_BATCH)
                .max_encoding_message_size(MAX_BATCH);
            Ok(grpc.streaming(call, request).await)
        })
    }
}

/// Decodes commands, encodes events.
struct BatchCodec;

impl Codec for BatchCodec {
    type Encode = Encoded;
    type Decode = Received;
    type Encoder = BatchCodec;
    type Decoder = BatchCodec;

    fn encoder(&mut self) -> BatchCodec {
        BatchCodec
    }

    fn decoder(&mut self) -> BatchCodec {
        BatchCodec
    }
}

impl Encoder for BatchCodec {
    type Item = Encoded;
    type Error = Status;

    fn encode(&mut self, batch: Encoded, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(batch.0);
        Ok(())
    }
}

impl Decoder for BatchCodec {
    type Item = Received;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Received>, Status> {
        let encoded = from.copy_to_bytes(from.remaining());
        let bytes = encoded.len();
        batch::decode(encoded, Vec::new())
            .map(|batch| Some(Received { batch, bytes }))
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }
}
