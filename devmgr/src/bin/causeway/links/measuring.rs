//! Measures the pairs in rounds, in which each host takes part once at most.
//!
//! Invariants: nothing is measured twice at the same time on a host by this tool. A node that is busy is asked again when it
//! said that it is free, for [`PATIENCE`] at most. Of two nodes, the one with the larger uuid is reserved first, so that two
//! tools cannot each wait for what the other one has. A node of the device manager counts as larger than any other, because
//! it dials only where the manager says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway::transport::links::measure_link;
use causeway_links::{
    Dialled, End, Entry, Terms, WrongDigest, certificate, dial_any, lead, rounds,
};
use causeway_proto::control::{LinkEnd, MeasureLinkReply};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::status::WireError;

use super::ends::{Hosts, NodeEnd, shown};
use super::managed::{Claim, Claims};
use super::matrix::Shown;
use crate::context::Context;
use crate::failure::Failure;
use crate::json::id;
use crate::say::say;

/// Longest wait for busy nodes, for one pair: a node measures 10 s a minute.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time to reach a node that is let go.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

/// What has come of it.
#[derive(Default)]
pub(crate) struct MeasuredPairs {
    /// This machine's figures that could not be kept, and why. The nodes keep theirs.
    pub(crate) not_kept: Vec<Entry>,
    pub(crate) why: Option<Failure>,
    /// The figures that nodes have measured.
    pub(crate) by_nodes: Vec<Shown>,
    /// Number of pairs without figures.
    pub(crate) failed: usize,
}

/// Why a pair has no figures.
#[derive(Debug, thiserror::Error)]
enum NoFigures {
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Dial(#[from] causeway_links::NotDialled),
    #[error("{0}")]
    Exchange(#[from] causeway_links::NotMeasured),
    #[error("the nodes measure other links all the time")]
    Busy,
    #[error(transparent)]
    WrongDigest(#[from] WrongDigest),
    #[error("the node offers a measurement without TLS, although its own connections use TLS")]
    InTheClear,
    #[error("the node answered with neither figures nor an end of a link")]
    Nonsense,
}

/// Measures all pairs. This machine's figures are kept after each round.
pub(crate) fn measure(
    context: &Context,
    hosts: &Hosts,
    mut claims: Option<Claims>,
    (terms, is_forced): (Terms, bool),
) -> MeasuredPairs {
    let mut measured = MeasuredPairs::default();
    let nodes: Vec<_> = hosts
        .nodes
        .iter()
        .filter(|of| of.server.is_some())
        .collect();
    // This machine is number 0.
    let rounds = rounds(1 + nodes.len());
    let count = rounds.len();
    for (number, round) in rounds.into_iter().enumerate() {
        say!("causeway links: round {} of {count}", number + 1);
        if let Some(claims) = &mut claims {
            claims.renew(context);
        }
        let pairs: Vec<_> = round
            .into_iter()
            .filter_map(|(one, other)| {
                let part = |node: usize| Part::of(nodes[node], claims.as_ref());
                let one = one.checked_sub(1).map(part);
                let (dialling, dialled) = Part::ordered(one, part(other - 1));
                if dialling.is_none() && dialled.node.sockets().next().is_none() {
                    say!(
                        "causeway links: {}: a Unix socket is no link; not measured from this machine",
                        dialled.node.name
                    );
                    return None;
                }
                let names = match &dialling {
                    None => format!("this machine and {}", dialled.node.name),
                    Some(one) => format!("{} and {}", one.node.name, dialled.node.name),
                };
                let pair = move || pair(dialling.as_ref(), &dialled, &terms, is_forced);
                Some((names, std::thread::spawn(pair)))
            })
            .collect();
        let mut own = Vec::new();
        for (names, pair) in pairs {
            match pair.join() {
                Ok(Ok(Measured::Own(entry))) => own.push(entry),
                Ok(Ok(Measured::ByNode(shown))) => measured.by_nodes.push(shown),
                Ok(Err(error)) => {
                    measured.failed += 1;
                    say!("causeway links: {names}: {error}");
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // Now rather than later, because the user may end a long run.
        if let Err(failure) = hosts.keep(own.clone()) {
            measured.not_kept.extend(own);
            measured.why = Some(failure);
        }
    }
    measured
}

/// A node in a round.
struct Part {
    node: Arc<NodeEnd>,
    claim: Claim,
}

impl Part {
    fn of(node: &Arc<NodeEnd>, claims: Option<&Claims>) -> Part {
        let claim = claims.filter(|_| node.is_managed);
        Part {
            node: Arc::clone(node),
            claim: claim.map_or_else(Claim::default, |claims| claims.of(&node.uuid)),
        }
    }

    /// The one that dials, and the one that is dialled. `None`: this machine, which dials.
    fn ordered(one: Option<Part>, other: Part) -> (Option<Part>, Part) {
        let order = |of: &Part| (of.node.is_managed, of.node.uuid);
        match one {
            Some(one) if order(&one) > order(&other) => (Some(other), one),
            one => (one, other),
        }
    }

    /// Asks the node to measure the link to this end, or to be the other end.
    fn measure(
        &self,
        terms: &Terms,
        is_forced: bool,
        end: Option<LinkEnd>,
    ) -> Result<MeasureLinkReply, NoFigures> {
        let server = self.node.server.as_ref().ok_or(NoFigures::Nonsense)?;
        let credential = self.claim.credential.clone();
        Ok(measure_link(server, terms, is_forced, credential, end)?)
    }
}

/// What a pair has measured.
enum Measured {
    /// This machine keeps it.
    Own(Entry),
    /// The node has kept it.
    ByNode(Shown),
}

/// Measures a pair.
fn pair(
    dialling: Option<&Part>,
    dialled: &Part,
    terms: &Terms,
    is_forced: bool,
) -> Result<Measured, NoFigures> {
    let until = Instant::now() + PATIENCE;
    loop {
        let reply = dialled.measure(terms, is_forced, None)?;
        let end = match free(reply, until)? {
            Some(reply) => reply.end.ok_or(NoFigures::Nonsense)?,
            None => continue,
        };
        if dialled.node.is_secured() && certificate(&end.certificate_sha256)?.is_none() {
            return Err(NoFigures::InTheClear);
        }
        let Some(dialling) = dialling else {
            return own(&dialled.node, &end, terms).map(Measured::Own);
        };
        let to = LinkEnd {
            place: dialled.claim.place.clone(),
            ..end.clone()
        };
        let reply = dialling.measure(terms, is_forced, Some(to));
        if !reply.as_ref().is_ok_and(|reply| reply.busy_ms == 0) {
            release(&dialled.node, &end);
        }
        if let Some(reply) = free(reply?, until)? {
            let entry = reply.link.as_ref().and_then(Entry::from_wire);
            let entry = entry.ok_or(NoFigures::Nonsense)?;
            return Ok(Measured::ByNode(shown(&id(&dialling.node.uuid), entry)));
        }
    }
}

/// Waits if the node is busy; then there is no reply.
fn free(reply: MeasureLinkReply, until: Instant) -> Result<Option<MeasureLinkReply>, NoFigures> {
    if reply.busy_ms == 0 {
        return Ok(Some(reply));
    }
    let wait = Duration::from_millis(reply.busy_ms.into());
    if Instant::now() + wait >= until {
        return Err(NoFigures::Busy);
    }
    std::thread::sleep(wait);
    Ok(None)
}

/// The end that a node has reserved.
fn reserved(dialled: &NodeEnd, end: &LinkEnd) -> Result<End, NoFigures> {
    let (id_bytes, secret) = (&end.id[..], &end.secret[..]);
    Ok(End {
        id: SessionId(id_bytes.try_into().map_err(|_| NoFigures::Nonsense)?),
        secret: SessionSecret(secret.try_into().map_err(|_| NoFigures::Nonsense)?),
        fingerprint: certificate(&end.certificate_sha256)?,
        addresses: dialled.sockets().collect(),
    })
}

/// Lets a node go that nobody dials after all: its process ends with its connections. Otherwise it would wait for seconds.
fn release(dialled: &NodeEnd, end: &LinkEnd) {
    if let Ok(to) = reserved(dialled, end) {
        // Without a connection, the node's own time limit releases it.
        let _ = dial_any(&to, Instant::now() + RELEASED_WITHIN);
    }
}

/// Measures the link from this machine, over the addresses that programs use.
fn own(dialled: &NodeEnd, end: &LinkEnd, terms: &Terms) -> Result<Entry, NoFigures> {
    let to = reserved(dialled, end)?;
    let deadline = Instant::now() + terms.limit();
    let Dialled { ends, addresses } = dial_any(&to, deadline)?;
    let measured = lead(ends, terms, deadline)?;
    let entry = Entry {
        peer: id(&dialled.uuid),
        name: dialled
            .name
            .chars()
            .filter(|of| !of.is_control())
            .take(60)
            .collect(),
        user: String::new(),
        from: addresses.0.ip().to_canonical(),
        to: addresses.1,
        least_ns: 0,
        median_ns: 0,
        lost: 0,
        outward: 0,
        inward: 0,
        stream_ms: u32::try_from(terms.each().as_millis()).unwrap_or(u32::MAX),
        tls: to.fingerprint.is_some(),
        when: causeway_links::seconds_now(),
    };
    Ok(entry.with(&measured))
}
