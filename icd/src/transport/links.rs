//! Measured links: the calls about them to nodes' supervisors, for tools, and the figures that the user has kept.
//!
//! No program measures. Invariant: the kept figures are read once in a process, and only if somebody asks.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use causeway_links::Terms;
use causeway_proto::control::{
    GetLinksRequest, Link, LinkEnd, MeasureLinkReply, MeasureLinkRequest,
};
use causeway_proto::status::WireError;
use causeway_proto::version::WireVersion;

use super::control::{self, Supervisor};
use super::retry;
use crate::config::{self, ServerSettings};

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
    let request = GetLinksRequest {
        wire_version: u32::from(WireVersion::CURRENT.number()),
        ..GetLinksRequest::default()
    };
    ask(server, ANSWER_WITHIN, request, async |mut of, request| {
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

/// The lower of the two bandwidths, in bytes per second, that the user has measured to the node of this uuid. 0: there is
/// none, or it is old.
#[must_use]
pub fn kept_bandwidth(uuid: &[u8]) -> u64 {
    static KEPT: OnceLock<HashMap<String, u64>> = OnceLock::new();
    let kept = KEPT.get_or_init(|| {
        let Some(memory) = config::link_memory() else {
            return HashMap::new();
        };
        let table = memory.table().unwrap_or_else(|error| {
            tracing::warn!(%error, "the kept figures of links are not used");
            Default::default()
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let fresh = table.entries().iter().filter(|of| !of.is_old(now));
        fresh
            .map(|of| (of.peer.clone(), of.outward.min(of.inward)))
            .collect()
    });
    let uuid: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    kept.get(&uuid).copied().unwrap_or(0)
}
