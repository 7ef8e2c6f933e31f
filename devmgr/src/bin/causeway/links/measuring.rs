//! Measures the pairs in rounds, in which each host takes part once at most.
//!
//! Invariants: nothing is measured twice at the same time on a host by this tool. A node that is busy is asked again when it
//! said that it is free, for [`PATIENCE`] at most. Of two nodes, the one with the larger uuid is reserved first, so that two
//! tools cannot each wait for what the other one has.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use causeway::transport::links::measure_link;
use causeway_links::{
    Dialled, End, Entry, Terms, WrongDigest, certificate, dial_any, lead, rounds,
};
use causeway_proto::control::{LinkEnd, MeasureLinkReply};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::status::WireError;

use super::ends::{Hosts, NodeEnd};
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
pub(crate) fn measure(hosts: &Hosts, terms: Terms, is_forced: bool) -> MeasuredPairs {
    let mut measured = MeasuredPairs::default();
    // This machine is number 0.
    let rounds = rounds(1 + hosts.nodes.len());
    let count = rounds.len();
    for (number, round) in rounds.into_iter().enumerate() {
        say!("causeway links: round {} of {count}", number + 1);
        let pairs: Vec<_> = round
            .into_iter()
            .filter_map(|(one, other)| {
                let mut dialled = Arc::clone(&hosts.nodes[other - 1]);
                let dialling = one.checked_sub(1).map(|one| {
                    let one = Arc::clone(&hosts.nodes[one]);
                    match one.uuid > dialled.uuid {
                        true => std::mem::replace(&mut dialled, one),
                        false => one,
                    }
                });
                if dialling.is_none() && dialled.sockets().next().is_none() {
                    say!(
                        "causeway links: {}: a Unix socket is no link; not measured from this machine",
                        dialled.name
                    );
                    return None;
                }
                let names = match &dialling {
                    None => format!("this machine and {}", dialled.name),
                    Some(one) => format!("{} and {}", one.name, dialled.name),
                };
                let pair = move || pair(dialling.as_deref(), &dialled, &terms, is_forced);
                Some((names, std::thread::spawn(pair)))
            })
            .collect();
        let mut own = Vec::new();
        for (names, pair) in pairs {
            match pair.join() {
                Ok(Ok(entry)) => own.extend(entry),
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

/// Measures a pair. Returns the figures that this machine keeps.
fn pair(
    dialling: Option<&NodeEnd>,
    dialled: &NodeEnd,
    terms: &Terms,
    is_forced: bool,
) -> Result<Option<Entry>, NoFigures> {
    let until = Instant::now() + PATIENCE;
    loop {
        let reply = measure_link(&dialled.server, terms, is_forced, None)?;
        let end = match free(reply, until)? {
            Some(reply) => reply.end.ok_or(NoFigures::Nonsense)?,
            None => continue,
        };
        if dialled.is_secured() && certificate(&end.certificate_sha256)?.is_none() {
            return Err(NoFigures::InTheClear);
        }
        let Some(dialling) = dialling else {
            return own(dialled, &end, terms).map(Some);
        };
        let reply = measure_link(&dialling.server, terms, is_forced, Some(end.clone()));
        if !reply.as_ref().is_ok_and(|reply| reply.busy_ms == 0) {
            release(dialled, &end);
        }
        if let Some(reply) = free(reply?, until)? {
            return match reply.link {
                Some(_) => Ok(None),
                None => Err(NoFigures::Nonsense),
            };
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
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
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
        when: now.unwrap_or_default().as_secs(),
    };
    Ok(entry.with(&measured))
}
