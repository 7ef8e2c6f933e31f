//! Callers are judged by what stands at the head of a call, before anything of its message is taken.
//!
//! What it is not: it does not know what a call is for; what its caller may do is the service's to say. Invariant:
//! whoever is not let in is answered without a byte of his message in memory.

use std::convert::Infallible;
use std::future::ready;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;

use super::gate::Gate;

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// A service whose calls come with their [`Caller`](crate::identity::Caller).
#[derive(Clone)]
pub(super) struct Judged<S> {
    gate: Gate,
    service: S,
}

impl<S> Judged<S> {
    pub(super) fn new(gate: &Gate, service: S) -> Judged<S> {
        let gate = gate.clone();
        Judged { gate, service }
    }
}

impl<S: NamedService> NamedService for Judged<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request> for Judged<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        match self.gate.judge(request.headers(), request.extensions()) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                Box::pin(self.service.call(request))
            }
            Err(status) => Box::pin(ready(Ok(Status::into_http(status)))),
        }
    }
}
