//! Measures the pairs in rounds, in which each host takes part once at most.
//!
//! Invariants: nothing is measured twice at the same time on a host by this tool. A node that is busy is asked again when it
//! said that it is free, for [`PATIENCE`] at most. Of two nodes, the one with the larger uuid is reserved first, so that two
//! tools cannot each wait for what the other one has. A node of the device manager counts as larger than any other, because
//! it dials only where the manager says.

use std::net::{SocketAddr, ToSocketAddrs};
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
            let outcome = match pair.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            for fault in &outcome.faults {
                say!("causeway links: {names}: {fault}");
            }
            measured.failed += usize::from(!outcome.has_figures());
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
#[derive(Default)]
struct PairOutcome {
    /// This machine's figures, one for each address of the node. This machine keeps them.
    own: Vec<Entry>,
    /// The figures that a node has kept.
    by_node: Option<Shown>,
    faults: Vec<String>,
}

impl PairOutcome {
    fn has_figures(&self) -> bool {
        self.by_node.is_some() || !self.own.is_empty()
    }
}

/// Measures a pair: two nodes, or this machine and each address of a node.
fn pair(dialling: Option<&Part>, dialled: &Part, terms: &Terms, is_forced: bool) -> PairOutcome {
    let mut outcome = PairOutcome::default();
    if let Some(dialling) = dialling {
        match between(dialling, dialled, terms, is_forced) {
            Ok(shown) => outcome.by_node = Some(shown),
            Err(error) => outcome.faults.push(error.to_string()),
        }
        return outcome;
    }
    let addresses = ways(dialled.node.sockets().collect());
    let are_several = addresses.len() > 1;
    for address in addresses {
        match own(dialled, &address, terms, is_forced) {
            Ok(entry) => outcome.own.push(entry),
            Err(error) if are_several => outcome.faults.push(format!("{address}: {error}")),
            Err(error) => outcome.faults.push(error.to_string()),
        }
    }
    outcome
}

/// The addresses that are measured one by one, because programs use all of them at a time. Names of an address that has come
/// before are left out. So are link-local ones, which are not dialled, if there are others.
fn ways(addresses: Vec<String>) -> Vec<String> {
    let (local, others): (Vec<_>, Vec<_>) =
        (addresses.into_iter()).partition(|of| of.contains('%'));
    let (numbers, names): (Vec<_>, Vec<_>) =
        (others.into_iter()).partition(|of| of.parse::<SocketAddr>().is_ok());
    let mut known = Vec::new();
    let mut ways = Vec::new();
    for address in numbers.into_iter().chain(names) {
        // A name without an address fails when it is measured, and the failure has the reason.
        let at = address.to_socket_addrs().map(Vec::from_iter);
        let at = at.unwrap_or_default();
        if !at.iter().any(|of| known.contains(&of.ip())) {
            known.extend(at.iter().map(SocketAddr::ip));
            ways.push(address);
        }
    }
    if ways.is_empty() { local } else { ways }
}

/// Makes a node the other end of a measurement.
fn reserve(
    dialled: &Part,
    terms: &Terms,
    is_forced: bool,
    until: Instant,
) -> Result<LinkEnd, NoFigures> {
    loop {
        let reply = dialled.measure(terms, is_forced, None)?;
        let Some(reply) = free(reply, until)? else {
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
    dialling: &Part,
    dialled: &Part,
    terms: &Terms,
    is_forced: bool,
) -> Result<Shown, NoFigures> {
    let until = Instant::now() + PATIENCE;
    loop {
        let end = reserve(dialled, terms, is_forced, until)?;
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
            return Ok(shown(&id(&dialling.node.uuid), entry));
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

/// Measures the link from this machine to an address of a node.
fn own(dialled: &Part, address: &str, terms: &Terms, is_forced: bool) -> Result<Entry, NoFigures> {
    let end = reserve(dialled, terms, is_forced, Instant::now() + PATIENCE)?;
    let node = &dialled.node;
    let to = End {
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
    let entry = Entry {
        name: name.take(60).collect(),
        stream_ms: u32::try_from(terms.each().as_millis()).unwrap_or(u32::MAX),
        tls: to.fingerprint.is_some(),
        when: causeway_links::seconds_now(),
        ..Entry::unmeasured(id(&node.uuid), addresses.0.ip().to_canonical(), addresses.1)
    };
    Ok(entry.with(&measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_measured_once() {
        let of = |addresses: &[&str]| ways(addresses.iter().map(|&of| of.to_owned()).collect());
        let two = ["10.0.0.5:7079", "[fd00::5]:7079"];
        assert_eq!(of(&two), two);
        assert_eq!(
            of(&["localhost:1", "127.0.0.1:1", "127.0.0.1:2"]),
            ["127.0.0.1:1"]
        );
        assert_eq!(of(&["[fe80::1%eth0]:1", two[0]]), two[..1]);
        assert_eq!(of(&["[fe80::1%eth0]:1"]), ["[fe80::1%eth0]:1"]);
        assert_eq!(
            of(&["no.such.invalid:1", two[0]]),
            [two[0], "no.such.invalid:1"]
        );
    }
}
