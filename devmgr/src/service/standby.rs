//! The services of a standby: every call is answered `UNAVAILABLE`, with the leader's address, the cluster, and the
//! highest known term.
//!
//! A standby does not forward calls, because it cannot pass on whom a certificate names. Invariant: no byte of
//! a call's message is read.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::task::{Context, Poll};

use causeway_proto::manager::admin_server::AdminServer;
use causeway_proto::manager::leases_server::LeasesServer;
use causeway_proto::manager::nodes_server::NodesServer;
use causeway_proto::metadata::{CLUSTER, LEADER, NODE, TERM, sixteen_bytes};
use causeway_serving::services::{NotReflected, Services};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{self, HeaderValue};
use tonic::server::NamedService;

use super::admin::AdminService;
use super::identity::number;
use super::leases::LeasesService;
use super::nodes::NodesService;
use super::watching::standby;
use crate::etcd::{SharedTurnedAway, Standing};

/// All services of a standby.
pub(super) fn services(
    standing: &watch::Receiver<Standing>,
    turned_away: &SharedTurnedAway,
) -> Result<Services, NotReflected> {
    let counts = turned_away;
    Services::default()
        .with(StandsBy::<NodesServer<NodesService>>::new(standing, counts))
        .with(StandsBy::<LeasesServer<LeasesService>>::new(
            standing, counts,
        ))
        .with(StandsBy::<AdminServer<AdminService>>::new(standing, counts))
        .with_health(standing.clone(), |_| false)
        .with_reflection(causeway_proto::SERVICES)
}

/// Answers in place of the service `S`.
struct StandsBy<S> {
    standing: watch::Receiver<Standing>,
    turned_away: SharedTurnedAway,
    service: PhantomData<fn() -> S>,
}

impl<S> StandsBy<S> {
    fn new(standing: &watch::Receiver<Standing>, turned_away: &SharedTurnedAway) -> StandsBy<S> {
        StandsBy {
            standing: standing.clone(),
            turned_away: turned_away.clone(),
            service: PhantomData,
        }
    }
}

// Derived, it would ask for `S: Clone`.
impl<S> Clone for StandsBy<S> {
    fn clone(&self) -> Self {
        StandsBy::new(&self.standing, &self.turned_away)
    }
}

impl<S: NamedService> NamedService for StandsBy<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for StandsBy<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let node = request.headers().get(NODE).and_then(|of| of.to_str().ok());
        if let Some(node) = node.and_then(sixteen_bytes) {
            self.turned_away.note(node);
        }
        let standing = self.standing.borrow();
        let status =
            Status::unavailable(format!("this device manager is a {}", standby(&standing)));
        let mut answer = status.into_http::<Body>();
        let headers = answer.headers_mut();
        headers.insert(TERM, number(standing.met));
        // Without it, callers would not believe the term.
        if let Some(Ok(cluster)) = standing
            .cluster
            .map(|of| HeaderValue::from_str(&of.to_string()))
        {
            headers.insert(CLUSTER, cluster);
        }
        let leader = standing.leader.as_deref().map(HeaderValue::from_str);
        if let Some(Ok(leader)) = leader {
            headers.insert(LEADER, leader);
        }
        ready(Ok(answer))
    }
}
