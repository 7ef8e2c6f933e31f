//! Measures the pairs in rounds, in which each host takes part once at most.
//!
//! Invariants: nothing is measured twice at the same time on a host by this tool. A node that is busy is asked again after
//! [`ENDING`], and then when it said that it is free, for [`PATIENCE`] at most. Of two nodes, the one with the larger uuid is reserved first, so that two
//! tools cannot each wait for what the other one has. A node of the device manager counts as larger than any other, because
//! it dials only where the manager says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway::transport::links::measure_link;
use causeway_links::{
    Dialled, FarNode, LinkEntry, Terms, WrongDigest, certificate, dial_any, lead, rounds,
};
use causeway_proto::control::{LinkEnd, MeasureLinkReply};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::status::WireError;

use super::addresses::usable;
use super::ends::{Hosts, NodeEnd, shown};
use super::managed::{Claim, Claims, SharedClaims};
use super::matrix::Shown;
use crate::context::Context;
use crate::failure::Failure;
use crate::json::id;
use crate::say::say;

/// Longest wait for busy nodes, for one pair: each of the two may have used up a minute's time, one after the other.
const PATIENCE: Duration = Duration::from_secs(150);
/// First wait for a busy node: it says how long a measurement can take at most, and an ending process takes far less.
const ENDING: Duration = Duration::from_millis(300);
/// Time to reach a node that is let go.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

/// What has come of it.
#[derive(Default)]
pub(crate) struct MeasuredPairs {
    /// This machine's figures that could not be kept, and why. The nodes keep theirs.
    pub(crate) not_kept: Vec<LinkEntry>,
    pub(crate) why: Option<Failure>,
    /// The figures that nodes have measured.
    pub(crate) by_nodes: Vec<Shown>,
    /// Number of pairs, or of addresses of a node, without figures.
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
    claims: Option<Claims>,
    (terms, is_forced): (Terms, bool),
) -> MeasuredPairs {
    let mut measured = MeasuredPairs::default();
    let claims = claims.map(|claims| SharedClaims::new(context, claims));
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
        let part = |node: usize| Part::of(nodes[node], claims.as_ref());
        let pairs = round.into_iter();
        let pairs =
            pairs.map(|(one, other)| Part::ordered(one.checked_sub(1).map(part), part(other - 1)));
        let outcomes = outcomes(pairs.collect(), &terms, is_forced);
        let mut own = Vec::new();
        for (names, outcome) in outcomes {
            for fault in &outcome.faults {
                say!("causeway links: {names}: {fault}");
            }
            measured.failed += outcome.faults.len();
            own.extend(outcome.own);
            measured.by_nodes.extend(outcome.by_node);
        }
        // Now rather than later, because the user may end a long run.
        if let Err(failure) = hosts.keep(own.clone()) {
            measured.not_kept.extend(own);
            measured.why = Some(failure);
        }
    }
    measured
}

/// Measures the pairs of a round at the same time. Returns what each has measured, with the names of its ends.
fn outcomes(
    pairs: Vec<(Option<Part<'_>>, Part<'_>)>,
    terms: &Terms,
    is_forced: bool,
) -> Vec<(String, PairOutcome)> {
    std::thread::scope(|scope| {
        let started = pairs.into_iter().filter_map(|(dialling, dialled)| {
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
            let pair = move || pair(dialling.as_ref(), &dialled, terms, is_forced);
            Some((names, scope.spawn(pair)))
        });
        let started: Vec<_> = started.collect();
        let ended = started.into_iter().map(|(names, pair)| match pair.join() {
            Ok(outcome) => (names, outcome),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    })
}

/// A node in a round.
struct Part<'a> {
    node: Arc<NodeEnd>,
    claims: Option<&'a SharedClaims<'a>>,
}

impl<'a> Part<'a> {
    fn of(node: &Arc<NodeEnd>, claims: Option<&'a SharedClaims<'a>>) -> Part<'a> {
        Part {
            node: Arc::clone(node),
            claims: claims.filter(|_| node.is_managed),
        }
    }

    /// The claim that counts now: that of the round's beginning may have expired at the node's last address.
    fn claim(&self) -> Claim {
        let claims = self.claims;
        claims.map_or_else(Claim::default, |claims| claims.of(&self.node.uuid))
    }

    /// The one that dials, and the one that is dialled. `None`: this machine, which dials.
    fn ordered(one: Option<Part<'a>>, other: Part<'a>) -> (Option<Part<'a>>, Part<'a>) {
        let order = |of: &Part<'_>| (of.node.is_managed, of.node.uuid);
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
        let credential = self.claim().credential;
        Ok(measure_link(server, terms, is_forced, credential, end)?)
    }
}

/// What a pair has measured.
#[derive(Default)]
struct PairOutcome {
    /// This machine's figures, one for each address of the node. This machine keeps them.
    own: Vec<LinkEntry>,
    /// The figures that a node has kept.
    by_node: Option<Shown>,
    /// Why the pair, or an address of the node, has no figures.
    faults: Vec<String>,
}

/// Measures a pair: two nodes, or this machine and each address of a node.
fn pair(
    dialling: Option<&Part<'_>>,
    dialled: &Part<'_>,
    terms: &Terms,
    is_forced: bool,
) -> PairOutcome {
    let mut outcome = PairOutcome::default();
    if let Some(dialling) = dialling {
        match between(dialling, dialled, terms, is_forced) {
            Ok(shown) => outcome.by_node = Some(shown),
            Err(error) => outcome.faults.push(error.to_string()),
        }
        return outcome;
    }
    let all: Vec<String> = dialled.node.sockets().collect();
    let are_several = all.len() > 1;
    let (addresses, faults) = match are_several {
        true => usable(all),
        false => (all, Vec::new()),
    };
    outcome.faults.extend(faults);
    for address in addresses {
        match own(dialled, &address, terms, is_forced) {
            Ok(entry) => outcome.own.push(entry),
            Err(error) if are_several => outcome.faults.push(format!("{address}: {error}")),
            Err(error) => outcome.faults.push(error.to_string()),
        }
    }
    outcome
}

/// Makes a node the other end of a measurement.
fn reserve(
    dialled: &Part<'_>,
    terms: &Terms,
    is_forced: bool,
    patience: &mut Patience,
) -> Result<LinkEnd, NoFigures> {
    loop {
        let reply = dialled.measure(terms, is_forced, None)?;
        let Some(reply) = patience.free(reply)? else {
            continue;
        };
        let end = reply.end.ok_or(NoFigures::Nonsense)?;
        if dialled.node.is_secured() && certificate(&end.certificate_sha256)?.is_none() {
            return Err(NoFigures::InTheClear);
        }
        return Ok(end);
    }
}

/// Measures the link between two nodes.
fn between(
    dialling: &Part<'_>,
    dialled: &Part<'_>,
    terms: &Terms,
    is_forced: bool,
) -> Result<Shown, NoFigures> {
    let mut patience = Patience::new();
    loop {
        let end = reserve(dialled, terms, is_forced, &mut patience)?;
        let to = LinkEnd {
            place: dialled.claim().place,
            ..end.clone()
        };
        let reply = dialling.measure(terms, is_forced, Some(to));
        if !reply.as_ref().is_ok_and(|reply| reply.busy_ms == 0) {
            release(&dialled.node, &end);
        }
        if let Some(reply) = patience.free(reply?)? {
            let entry = reply.link.as_ref().and_then(LinkEntry::from_wire);
            let entry = entry.ok_or(NoFigures::Nonsense)?;
            return Ok(shown(&id(&dialling.node.uuid), entry));
        }
    }
}

/// How long busy nodes are asked again.
struct Patience {
    until: Instant,
    /// Whether a node has been busy already.
    has_waited: bool,
}

impl Patience {
    fn new() -> Patience {
        Patience {
            until: Instant::now() + PATIENCE,
            has_waited: false,
        }
    }

    /// Waits if the node is busy; then there is no reply.
    fn free(&mut self, reply: MeasureLinkReply) -> Result<Option<MeasureLinkReply>, NoFigures> {
        if reply.busy_ms == 0 {
            return Ok(Some(reply));
        }
        let wait = self.wait(Duration::from_millis(reply.busy_ms.into()));
        if Instant::now() + wait >= self.until {
            return Err(NoFigures::Busy);
        }
        std::thread::sleep(wait);
        Ok(None)
    }

    /// How long to wait for a node that is busy for so long at most.
    fn wait(&mut self, busy: Duration) -> Duration {
        match std::mem::replace(&mut self.has_waited, true) {
            false => busy.min(ENDING),
            true => busy,
        }
    }
}

/// The end that a node has reserved.
fn reserved(dialled: &NodeEnd, end: &LinkEnd) -> Result<FarNode, NoFigures> {
    let (id_bytes, secret) = (&end.id[..], &end.secret[..]);
    Ok(FarNode {
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

/// Measures the link from this machine to an address of a node.
fn own(
    dialled: &Part<'_>,
    address: &str,
    terms: &Terms,
    is_forced: bool,
) -> Result<LinkEntry, NoFigures> {
    let end = reserve(dialled, terms, is_forced, &mut Patience::new())?;
    let node = &dialled.node;
    let to = FarNode {
        addresses: vec![address.to_owned()],
        ..reserved(node, &end)?
    };
    let deadline = Instant::now() + terms.limit();
    let dialled = dial_any(&to, deadline);
    if dialled.is_err() {
        release(node, &end);
    }
    let Dialled { ends, addresses } = dialled?;
    let measured = lead(ends, terms, deadline)?;
    let name = node.name.chars().filter(|of| !of.is_control());
    let entry = LinkEntry {
        name: name.take(60).collect(),
        stream_ms: u32::try_from(terms.each().as_millis()).unwrap_or(u32::MAX),
        tls: to.fingerprint.is_some(),
        when: causeway_links::seconds_now(),
        ..LinkEntry::unmeasured(id(&node.uuid), addresses.0.ip().to_canonical(), addresses.1)
    };
    Ok(entry.with(&measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_node_is_asked_again_soon_once() {
        let long = Duration::from_secs(6);
        let mut patience = Patience::new();
        assert_eq!([(); 3].map(|()| patience.wait(long)), [ENDING, long, long]);
        let short = Duration::from_millis(20);
        assert_eq!(Patience::new().wait(short), short);
    }
}
