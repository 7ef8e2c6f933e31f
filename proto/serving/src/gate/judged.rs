//! Authenticates callers by the headers of a call, before anything of its message is read.
//!
//! This module does not know the purpose of a call. The service decides what its caller may do. Invariant:
//! an unauthenticated caller gets its answer without a byte of its message in memory.

use std::convert::Infallible;
use std::future::ready;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{self, Extensions, HeaderMap};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// Authenticates callers.
pub trait Judge: Clone {
    /// The identity of an authenticated caller.
    type Caller: Clone + Send + Sync + 'static;

    /// Authenticates the caller of `path` by the headers of the call and the extensions of its connection.
    ///
    /// # Errors
    /// The status with which the call is refused.
    fn judge(
        &self,
        path: &str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Self::Caller, Status>;
}

/// A service whose calls carry their [`Judge::Caller`] as an extension.
#[derive(Clone)]
pub struct Judged<J, S> {
    judge: J,
    service: S,
}

impl<J: Judge, S> Judged<J, S> {
    /// Puts the judge before the service.
    pub fn new(judge: &J, service: S) -> Judged<J, S> {
        let judge = judge.clone();
        Judged { judge, service }
    }
}

impl<J, S: NamedService> NamedService for Judged<J, S> {
    const NAME: &'static str = S::NAME;
}

impl<J, S> Service<Request> for Judged<J, S>
where
    J: Judge,
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
        let (headers, extensions) = (request.headers(), request.extensions());
        match self.judge.judge(request.uri().path(), headers, extensions) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                Box::pin(self.service.call(request))
            }
            Err(status) => Box::pin(ready(Ok(Status::into_http(status)))),
        }
    }
}
