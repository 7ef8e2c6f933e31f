//! Measured links: the calls about them to nodes' supervisors.
//!
//! No program measures; tools do. Not here: what is done with the figures (`figures`). Invariant: each call has a time limit.
#![forbid(unsafe_code)]

use std::time::Duration;

use bytes::Bytes;
use causeway_links::Terms;
use causeway_proto::control::{
    GetLinksRequest, Link, LinkEnd, MeasureLinkReply, MeasureLinkRequest,
};
use causeway_proto::status::WireError;
use causeway_proto::version::WireVersion;

use super::control::{self, Supervisor};
use super::retry;
use crate::config::ServerSettings;

/// Time for connections and answers, in addition to that of the measurement.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Asks a node to measure the link to another end, or without one, to be the other end of a measurement. A device manager's
/// node needs the manager's claim as `credential`; others need none.
///
/// # Errors
/// [`WireError`]; there are no figures then.
pub fn measure_link(
    server: &ServerSettings,
    terms: &Terms,
    is_forced: bool,
    credential: Bytes,
    end: Option<LinkEnd>,
) -> Result<MeasureLinkReply, WireError> {
    let request = MeasureLinkRequest {
        wire_version: u32::from(WireVersion::CURRENT.number()),
        stream_ms: u32::try_from(terms.each().as_millis()).unwrap_or(u32::MAX),
        rate: terms.rate.unwrap_or(0),
        force: is_forced,
        credential,
        end,
    };
    let limit = ANSWER_WITHIN + terms.limit();
    // A call that the node has begun must not be repeated: the other end measures once.
    ask(server, limit, request, async |mut of, request| {
        of.measure_link(request).await
    })
}

/// Returns the figures that the user has had measured by a node.
///
/// # Errors
/// [`WireError`].
pub fn links_of(server: &ServerSettings) -> Result<Vec<Link>, WireError> {
    links_within(server, ANSWER_WITHIN)
}

/// As [`links_of`], with this time limit.
pub(super) fn links_within(
    server: &ServerSettings,
    limit: Duration,
) -> Result<Vec<Link>, WireError> {
    let request = GetLinksRequest {
        wire_version: u32::from(WireVersion::CURRENT.number()),
    };
    ask(server, limit, request, async |mut of, request| {
        of.links(request).await
    })
}

fn ask<Request, Reply>(
    server: &ServerSettings,
    limit: Duration,
    request: Request,
    call: impl AsyncFn(Supervisor, Request) -> Result<Reply, WireError> + Send + 'static,
) -> Result<Reply, WireError>
where
    Request: Clone + Send + 'static,
    Reply: Send + 'static,
{
    let asked = server.clone();
    control::converse(move || async move {
        let (asked, call, request) = (&asked, &call, &request);
        let conversation = async {
            let reach = |attempt| Supervisor::reach(asked, limit, attempt);
            let supervisor = retry::persistently(reach).await?;
            call(supervisor, request.clone()).await
        };
        control::within(limit, &asked.address, conversation).await
    })
    .unwrap_or_else(|error| {
        Err(WireError::Unreachable {
            address: server.address.to_string(),
            reason: error.to_string(),
        })
    })
}
