//! Which cluster answers, in which term: in the head of every answer. Authenticated callers that have met a
//! higher term are refused.
//!
//! A higher term alone does not end a reign, because anybody can claim one. It makes the manager ask the store.
//! Invariants: every answer of the manager's own services has the term in which it was decided. However many
//! callers claim a higher term, one question at most is in the owner's queue.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use causeway_proto::metadata::{CLUSTER, ClusterId, TERM, Term};
use causeway_serving::gate::Judge;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{self, Extensions, HeaderMap, HeaderValue};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

use super::authentication::Authenticator;
use super::input::{Input, LeadDoubt};
use crate::identity::Caller;

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// The cluster and the term of a leader.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) cluster: ClusterId,
    pub(super) term: Term,
    pub(super) owner: mpsc::Sender<Input>,
    doubt: LeadDoubt,
    claimed: Arc<AtomicU64>,
}

impl Identity {
    pub(super) fn new(cluster: ClusterId, term: Term, owner: mpsc::Sender<Input>) -> Identity {
        Identity {
            cluster,
            term,
            owner,
            doubt: LeadDoubt::default(),
            claimed: Arc::default(),
        }
    }

    /// The highest term that a node or an administrator has named, if it is higher than this one.
    pub(super) fn claimed(&self) -> Option<Term> {
        let claimed = Term(self.claimed.load(Ordering::Relaxed));
        (claimed > self.term).then_some(claimed)
    }

    /// Refuses a caller that has met a higher term.
    pub(super) fn check_term(&self, met: Term, caller: &Caller) -> Result<(), Status> {
        if met <= self.term {
            return Ok(());
        }
        // Other users could name any term, to frighten the administrator.
        if caller.may_join() && self.claimed.fetch_max(met.0, Ordering::Relaxed) < met.0 {
            tracing::warn!(
                user = %caller.user,
                met = met.0,
                term = self.term.0,
                "a caller has met a higher term: another manager leads, or the store was restored from a backup \
                 without causeway-devmgr --after-restore"
            );
        }
        // However many callers there are, they must not fill the owner's queue.
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

/// Authenticates callers, and refuses those that have met a higher term.
#[derive(Clone)]
pub(super) struct TermJudge {
    identity: Identity,
    authenticator: Authenticator,
}

impl TermJudge {
    pub(super) fn new(identity: &Identity, authenticator: &Authenticator) -> TermJudge {
        TermJudge {
            identity: identity.clone(),
            authenticator: authenticator.clone(),
        }
    }
}

impl Judge for TermJudge {
    type Caller = Caller;

    fn judge(
        &self,
        path: &str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Caller, Status> {
        let caller = self.authenticator.judge(path, headers, extensions)?;
        let met = headers.get(TERM);
        let met = met.and_then(|met| Term::parse(met.to_str().ok()?));
        self.identity.check_term(met.unwrap_or_default(), &caller)?;
        Ok(caller)
    }
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
    use crate::identity::Shown;

    fn caller(node: bool) -> Caller {
        Caller {
            user: "ann".into(),
            groups: Vec::new(),
            admin: false,
            node,
            shown: Shown::Word,
            until: None,
        }
    }

    #[test]
    fn many_higher_terms_are_one_question() {
        let (owner, mut asked) = mpsc::channel(8);
        let identity = Identity::new(ClusterId([1; 16]), Term(3), owner);
        let user = caller(false);
        identity.check_term(Term(3), &user).unwrap();
        assert!(asked.try_recv().is_err());
        for _ in 0..2 {
            for term in 4..100 {
                let refused = identity.check_term(Term(term), &user).unwrap_err();
                assert_eq!(refused.code(), tonic::Code::Unavailable);
            }
            // Once the question is handled, the next caller asks again.
            assert!(matches!(asked.try_recv(), Ok(Input::ConfirmLead(_))));
            assert!(asked.try_recv().is_err());
        }
    }

    #[test]
    fn claims_of_nodes_and_administrators_are_remembered() {
        let (owner, _asked) = mpsc::channel(8);
        let identity = Identity::new(ClusterId([1; 16]), Term(3), owner);
        for (term, is_node, claimed) in [
            (9, false, None),
            (3, true, None),
            (7, true, Some(Term(7))),
            (5, true, Some(Term(7))),
        ] {
            let _ = identity.check_term(Term(term), &caller(is_node));
            assert_eq!(identity.claimed(), claimed);
        }
    }
}
