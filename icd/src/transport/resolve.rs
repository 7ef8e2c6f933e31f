//! Resolves configured addresses and connects to the first that answers.
//!
//! Names are resolved on a separate thread, because the system's resolver blocks and must not delay the
//! caller beyond its time limit. Of several addresses the first to answer wins. Later addresses are tried
//! a little after earlier ones.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::local::Peer;
use super::rails::Rail;
use crate::config::Address;
use crate::thread::Stack;

/// Head start of each address over the next.
pub(super) const STAGGER: Duration = Duration::from_millis(100);
/// Maximum number of addresses that are tried for one name.
const MOST: usize = 8;

/// Waits for as long as earlier addresses have a head start. A timer takes a millisecond even for no time at all, and the
/// first address must not wait for that.
pub(super) async fn head_start(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Resolves a configured address.
async fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    if let Ok(literal) = address.host().parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(literal, address.port())]);
    }
    let (sender, receiver) = oneshot::channel();
    let name = (address.host().to_owned(), address.port());
    super::thread::spawn("cw-resolve", Stack::Runtime, move || {
        let found = name
            .to_socket_addrs()
            .map(|found| found.take(MOST).collect::<Vec<_>>());
        // A failed send means that the caller's time limit has passed.
        let _ = sender.send(found);
    })?;
    let found = receiver.await.map_err(io::Error::other)??;
    if found.is_empty() {
        return Err(io::Error::other(
            "the host name has no address; check the name",
        ));
    }
    Ok(found)
}

/// An address to connect to.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// The number of the address among those of its server.
    pub(super) rail: usize,
    pub(super) address: Address,
    /// Where the address led before. This is tried beside what its name means now.
    pub(super) known: Option<Peer>,
    /// The moves of the session until now.
    pub(super) moves: u64,
}

/// A connection to the address that answered first.
pub(super) struct Connected {
    pub(super) stream: TcpStream,
    pub(super) rail: Rail,
    /// How long the handshake took.
    pub(super) round_trip: Duration,
}

/// Why an address did not answer.
#[derive(Debug)]
pub(super) struct NotConnected {
    /// `None` for all that were silent until the time was over.
    pub(super) rail: Option<usize>,
    /// `None` if the name was not resolved.
    pub(super) peer: Option<Peer>,
    pub(super) error: io::Error,
}

/// Connects to the first candidate that answers within `limit`, except the peers that were `tried` before. Without an
/// answer, returns the errors of all in their order; none if all were tried before.
pub(super) async fn connect(
    candidates: Vec<Candidate>,
    tried: &[Peer],
    limit: Duration,
) -> Result<Connected, Vec<NotConnected>> {
    let deadline = Instant::now().checked_add(limit);
    let mut attempts = JoinSet::new();
    for (position, candidate) in (0u32..).zip(candidates) {
        let known = candidate.known.clone();
        if let Some(peer) = known.clone().filter(|peer| !tried.contains(peer)) {
            let (rail, moves) = (candidate.rail, candidate.moves);
            attempts.spawn(async move {
                head_start(STAGGER * position).await;
                (position, connect_to(rail, moves, vec![peer]).await)
            });
        }
        let not_again: Vec<Peer> = tried.iter().cloned().chain(known).collect();
        attempts.spawn(async move {
            head_start(STAGGER * position).await;
            (position, connect_anew(candidate, &not_again).await)
        });
    }
    let mut failures = Vec::new();
    loop {
        let attempt = match deadline {
            None => attempts.join_next().await,
            Some(deadline) => {
                match tokio::time::timeout_at(deadline.into(), attempts.join_next()).await {
                    Ok(attempt) => attempt,
                    Err(_) => {
                        failures.push((
                            u32::MAX,
                            vec![NotConnected {
                                rail: None,
                                peer: None,
                                error: io::ErrorKind::TimedOut.into(),
                            }],
                        ));
                        None
                    }
                }
            }
        };
        let Some(attempt) = attempt else { break };
        match attempt {
            // Dropping `attempts` cancels the others.
            Ok((_, Ok(connected))) => return Ok(connected),
            Ok((position, Err(errors))) => failures.push((position, errors)),
            // An attempt that panicked has no answer.
            Err(_) => {}
        }
    }
    failures.sort_by_key(|(position, _)| *position);
    Err(failures
        .into_iter()
        .flat_map(|(_, errors)| errors)
        .collect())
}

// Connects to what the address means now.
async fn connect_anew(
    candidate: Candidate,
    not_again: &[Peer],
) -> Result<Connected, Vec<NotConnected>> {
    let rail = candidate.rail;
    let peers = match candidate.address.path() {
        Some(path) => vec![Peer::Unix(Arc::clone(path))],
        None => {
            let resolved = resolve(&candidate.address).await;
            let unresolved = |error| {
                vec![NotConnected {
                    rail: Some(rail),
                    peer: None,
                    error,
                }]
            };
            let found = resolved.map_err(unresolved)?;
            found.into_iter().map(Peer::Tcp).collect()
        }
    };
    let new = peers.into_iter().filter(|peer| !not_again.contains(peer));
    connect_to(rail, candidate.moves, new.collect()).await
}

// Connects to the first peer that answers.
async fn connect_to(
    rail: usize,
    moves: u64,
    peers: Vec<Peer>,
) -> Result<Connected, Vec<NotConnected>> {
    let mut attempts = JoinSet::new();
    for (position, peer) in (0u32..).zip(peers) {
        attempts.spawn(async move {
            head_start(STAGGER * position).await;
            let begun = Instant::now();
            let stream = peer.reach().await;
            (peer, stream, begun.elapsed())
        });
    }
    let mut errors = Vec::new();
    while let Some(attempt) = attempts.join_next().await {
        let (peer, error) = match attempt {
            Ok((peer, Ok(stream), round_trip)) => {
                return Ok(Connected {
                    stream,
                    rail: Rail {
                        number: rail,
                        peer,
                        moves,
                    },
                    round_trip,
                });
            }
            Ok((peer, Err(error), _)) => (Some(peer), error),
            Err(error) => (None, io::Error::other(error)),
        };
        errors.push(NotConnected {
            rail: Some(rail),
            peer,
            error,
        });
    }
    Err(errors)
}
