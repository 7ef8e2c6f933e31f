//! Limits the length of a caller's messages. Long messages are accepted from known callers. On a managed
//! node they are also accepted from callers that name a served lease in a header. A credential for many
//! devices is long; other messages of unknown callers are short.
//!
//! This module authenticates nobody ([`authentication`](super::authentication)). Invariant: at most
//! [`STRANGERS`] bytes of an unknown caller's message are accepted, whatever length it announces.

use std::convert::Infallible;
use std::task::{Context, Poll};

use causeway_proto::control::node_server::{Node, NodeServer};
use causeway_proto::named_lease;
use causeway_serving::gate::Peer;
use tonic::body::Body;
use tonic::codegen::http::{self, Extensions, HeaderMap};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

use super::managed::Managed;

/// Maximum length of a known caller's message, in bytes. Requests are small; their strings are shortened
/// before they are logged.
const LONG: usize = 64 << 10;
/// Maximum length of an unknown caller's message, in bytes. A credential for a few dozen devices fits
/// without the header.
const STRANGERS: usize = 4 << 10;

/// A service that selects the maximum message length by the head of the call.
pub(super) struct ByHead<N> {
    managed: Option<Managed>,
    long: NodeServer<N>,
    short: NodeServer<N>,
}

impl<N: Node> ByHead<N> {
    pub(super) fn new(managed: Option<Managed>, node: N) -> ByHead<N> {
        let node = NodeServer::new(node);
        ByHead {
            managed,
            long: node.clone().max_decoding_message_size(LONG),
            short: node.max_decoding_message_size(STRANGERS),
        }
    }
}

impl<N> Clone for ByHead<N> {
    fn clone(&self) -> ByHead<N> {
        ByHead {
            managed: self.managed.clone(),
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
        // Generated servers are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let managed = self.managed.as_ref();
        match may_be_long(managed, request.headers(), request.extensions()) {
            true => self.long.call(request),
            false => self.short.call(request),
        }
    }
}

fn may_be_long(managed: Option<&Managed>, headers: &HeaderMap, extensions: &Extensions) -> bool {
    // Without a device manager, the call was authenticated by its head before it came here.
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
