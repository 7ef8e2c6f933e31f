//! Which cluster answers, in which term: in the head of every answer. Callers that have met a higher term
//! are refused.
//!
//! A higher term alone does not end a reign, because anybody can claim one. It makes the manager ask the store.
//! Invariants: every answer of the manager's own services has the term in which it was decided. However many
//! callers claim a higher term, one question at most is in the owner's queue.

use std::convert::Infallible;
use std::task::{Context, Poll};

use causeway_proto::metadata::{CLUSTER, ClusterId, TERM, Term};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderMap, HeaderValue};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

use super::input::{Input, LeadDoubt};

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// The cluster and the term of a leader.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) cluster: ClusterId,
    pub(super) term: Term,
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) doubt: LeadDoubt,
}

impl Identity {
    /// Refuses a caller that has met a higher term.
    pub(super) fn check_term(&self, met: Term) -> Result<(), Status> {
        if met <= self.term {
            return Ok(());
        }
        // Callers are not authenticated yet, so they must not fill the owner's queue.
        if let Some(question) = self.doubt.question() {
            // If the queue is full, a later call asks again.
            let _ = self.owner.try_send(Input::ConfirmLead(question));
        }
        Err(Status::unavailable(format!(
            "the caller has met term {met} of the device manager, and this manager leads in term {}: another manager \
             leads, or the store was restored from a backup without causeway-devmgr --after-restore",
            self.term
        )))
    }

    fn mark(&self, headers: &mut HeaderMap) {
        headers.insert(TERM, number(self.term));
        if let Ok(cluster) = HeaderValue::from_str(&self.cluster.to_string()) {
            headers.insert(CLUSTER, cluster);
        }
    }
}

/// The value of [`TERM`].
pub(super) fn number(term: Term) -> HeaderValue {
    HeaderValue::from(term.0)
}

/// A service whose answers say who answers.
#[derive(Clone)]
pub(super) struct Marked<S> {
    identity: Identity,
    service: S,
}

impl<S> Marked<S> {
    pub(super) fn new(identity: &Identity, service: S) -> Marked<S> {
        Marked {
            identity: identity.clone(),
            service,
        }
    }
}

impl<S: NamedService> NamedService for Marked<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request> for Marked<S>
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

    fn call(&mut self, request: Request) -> Self::Future {
        let identity = self.identity.clone();
        let met = request.headers().get(TERM);
        let met = met.and_then(|met| Term::parse(met.to_str().ok()?));
        if let Err(status) = identity.check_term(met.unwrap_or_default()) {
            let mut refused = status.into_http();
            identity.mark(refused.headers_mut());
            return Box::pin(std::future::ready(Ok(refused)));
        }
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            identity.mark(answer.headers_mut());
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_higher_terms_are_one_question() {
        let (owner, mut asked) = mpsc::channel(8);
        let identity = Identity {
            cluster: ClusterId([1; 16]),
            term: Term(3),
            owner,
            doubt: LeadDoubt::default(),
        };
        identity.check_term(Term(3)).unwrap();
        assert!(asked.try_recv().is_err());
        for _ in 0..2 {
            for term in 4..100 {
                let refused = identity.check_term(Term(term)).unwrap_err();
                assert_eq!(refused.code(), tonic::Code::Unavailable);
            }
            // Once the question is handled, the next caller asks again.
            assert!(matches!(asked.try_recv(), Ok(Input::ConfirmLead(_))));
            assert!(asked.try_recv().is_err());
        }
    }
}
