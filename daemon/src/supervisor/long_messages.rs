//! Whose messages may be long: of who is known, and on a managed node of who names at the head of his call a lease that
//! is served here. A credential for many devices is long; what a stranger has to say is not.
//!
//! What it is not: it lets nobody in ([`authentication`](super::authentication)). Invariant: of a stranger's message
//! no more than [`STRANGERS`] bytes are taken, however long it says it is.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use causeway_proto::control::node_server::{Node, NodeServer};
use causeway_proto::named_lease;
use causeway_serving::door::Peer;
use tonic::body::Body;
use tonic::codegen::http::{self, Extensions, HeaderMap};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

use super::Supervisor;
use super::managed::Managed;

/// A request is small; its strings are cut before they reach the log.
const LONG: usize = 64 << 10;
/// Who has a lease of a few dozen devices, and does not name it, is heard with it; and who shows nothing in any case.
const STRANGERS: usize = 4 << 10;

/// A service with room for messages of either length.
pub(super) struct ByHead<N> {
    supervisor: Arc<Supervisor>,
    long: NodeServer<N>,
    short: NodeServer<N>,
}

impl<N: Node> ByHead<N> {
    pub(super) fn new(supervisor: &Arc<Supervisor>, node: N) -> ByHead<N> {
        let node = NodeServer::new(node);
        ByHead {
            supervisor: Arc::clone(supervisor),
            long: node.clone().max_decoding_message_size(LONG),
            short: node.max_decoding_message_size(STRANGERS),
        }
    }
}

impl<N> Clone for ByHead<N> {
    fn clone(&self) -> ByHead<N> {
        ByHead {
            supervisor: Arc::clone(&self.supervisor),
            long: self.long.clone(),
            short: self.short.clone(),
        }
    }
}

impl<N: Node> NamedService for ByHead<N> {
    const NAME: &'static str = <NodeServer<N> as NamedService>::NAME;
}

impl<N: Node> Service<http::Request<Body>> for ByHead<N> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // As generated servers are: always.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let managed = self.supervisor.managed.as_ref();
        match may_be_long(managed, request.headers(), request.extensions()) {
            true => self.long.call(request),
            false => self.short.call(request),
        }
    }
}

fn may_be_long(managed: Option<&Managed>, headers: &HeaderMap, extensions: &Extensions) -> bool {
    // Elsewhere who is let in was known by the head of his call.
    let Some(managed) = managed else {
        return true;
    };
    let peer = extensions.get::<Peer>();
    let named = || {
        let said = headers.get(named_lease::HEADER)?;
        named_lease::heard(said.as_bytes())
    };
    peer.is_some_and(|peer| peer.standing.is_known())
        || named().is_some_and(|id| managed.serves(id))
}
