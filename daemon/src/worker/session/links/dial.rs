//! Making a link's connections from this end.
//!
//! All addresses are tried until a connection has proved the secret. The next one starts as soon as the
//! one before has failed or is slow. An address may belong to another machine here than at the other end,
//! so a stranger may answer. The lanes use the address of the first connection. Time is bounded:
//! [`REACH`] for reaching the other end, [`LATE`] for that end to learn of the link.
//!
//! The other end's connections are accepted by the connection service.
#![forbid(unsafe_code)]

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use causeway_proto::limits::{LINK_LANES, MAX_LINKS};
use causeway_proto::preamble::{
    BadPreamble, ClientWord, EVENT_LANE, GREETING, Greeting, Preamble, Purpose, Verdict,
    WORKER_PROOF, check_worker_proof, client_proof,
};

use causeway_security::{Fingerprint, Line, NotSecured, TlsStream, complete, pinned};

use super::Links;
use super::incoming::Connections;
use super::link::Link;
use crate::worker::socket::{self, read_within, write_within};

/// Time limit for some address to answer.
const REACH: Duration = Duration::from_secs(4);
/// Time limit for the other end to learn of the link, once it has answered. Its drivers may still be loading.
const LATE: Duration = Duration::from_secs(20);
/// Time limit for one TCP connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Time limit for greeting and proof. The other end waits half of it for its client to add the link.
const PROVE: Duration = Duration::from_secs(2);
/// Delay before the next address is tried in parallel.
const STAGGER: Duration = Duration::from_millis(100);
/// Delay before an address that was not ready is retried.
const AGAIN: Duration = Duration::from_millis(50);
/// Longest reason for one address, in characters.
const MAX_REASON: usize = 200;
/// Limit on threads that make connections. Above it, no further link is dialed.
const MOST_THREADS: usize = 2 * MAX_LINKS;
/// Limit on addresses tried per host name.
const OF_ONE_NAME: usize = 4;

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
enum NotConnected {
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    #[error("{0}")]
    Verdict(#[from] Verdict),
    #[error(transparent)]
    Foreign(#[from] BadPreamble),
    #[error(transparent)]
    NotSecured(#[from] NotSecured),
    #[error("another server answered: this one does not know the link's secret")]
    Impostor,
    #[error("another address leads to the other node, too")]
    Beaten,
}

impl NotConnected {
    /// Returns for how long after the beginning a retry is worthwhile; `None` for a final error.
    fn passes_within(&self) -> Option<Duration> {
        match self {
            NotConnected::Verdict(Verdict::UnknownLink | Verdict::TooMany) => Some(LATE),
            // Most likely the daemon of another machine answered.
            NotConnected::Verdict(Verdict::UnknownSession) => Some(REACH / 2),
            _ => None,
        }
    }

    /// Whether the other end has given up the lane that was to be continued. An unknown session is no sign of that: an
    /// address may lead to another node.
    fn gives_up(&self) -> bool {
        matches!(self, NotConnected::Verdict(Verdict::UnknownLink))
    }
}

/// The system's error as text for people, without its number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "the other node did not answer before the timeout".to_owned(),
        io::ErrorKind::ConnectionRefused => "the other node refused the connection".to_owned(),
        io::ErrorKind::UnexpectedEof => "the other node closed the connection".to_owned(),
        _ => error.to_string(),
    }
}

/// Dials in the background, unless a thread does so already. The client gets the result.
pub(super) fn start(links: &Arc<Links>, link: &Arc<Link>) {
    if !link.engage() {
        return;
    }
    let failed = |reason| link.not_made(links, Instant::now(), reason);
    let Some(running) = links.diallers.enter() else {
        return failed("this worker already dials too many links".to_owned());
    };
    let (own, of) = (Arc::clone(links), Arc::clone(link));
    let started = links
        .scope
        .try_spawn("link-dial", move || run(&own, &of, &running));
    if let Err(error) = started {
        failed(format!("cannot start a thread to dial: {error}"));
    }
}

fn run(links: &Arc<Links>, link: &Arc<Link>, running: &DialThread) {
    let until = Instant::now() + LATE;
    if !link.begin_dial(until) {
        return;
    }
    match dial(link, running) {
        Ok(connections) => link.dialled(links, connections),
        Err(reason) => link.not_made(links, until, reason),
    }
}

/// Counts the threads that make connections. So a client that adds and drops links has no more of them
/// than one that keeps its links.
#[derive(Default)]
pub(super) struct Diallers(Arc<()>);

/// One of the counted threads, until it ends.
#[derive(Clone)]
struct DialThread(#[allow(dead_code, reason = "it counts by being there")] Arc<()>);

impl Diallers {
    fn enter(&self) -> Option<DialThread> {
        (Arc::strong_count(&self.0) <= MOST_THREADS).then(|| DialThread(Arc::clone(&self.0)))
    }
}

/// What a connection is for.
#[derive(Clone, Copy)]
struct Wanted {
    lane: u8,
    word: ClientWord,
    /// Whether the connection continues a lane. Then one address at most gets the proof, because a second proof would
    /// take the lane from the first.
    continues: bool,
}

/// The result for one address.
enum News {
    Connected(Reached),
    /// A worker answered, but is not ready.
    NotReady,
    Failed(NoWay),
}

/// A connection, and how much the other end has received over earlier ones of its lane.
struct Reached {
    at: SocketAddr,
    line: Line,
    position: u64,
}

/// Why a connection was made at no address.
struct NoWay {
    reason: String,
    /// Whether the other end has given up a lane that was to be continued.
    is_final: bool,
}

/// What the tries at all addresses share.
#[derive(Default)]
struct Race {
    /// Set when no thread waits for an answer any more.
    is_over: AtomicBool,
    /// Set by the first try that a worker has welcomed.
    is_won: AtomicBool,
}

/// Ends the race on drop.
struct Over(Arc<Race>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// Makes all connections, or returns why there are none.
fn dial(link: &Arc<Link>, running: &DialThread) -> Result<Connections, String> {
    let word = ClientWord {
        generation: rand::random(),
        ..ClientWord::default()
    };
    let wanted = Wanted {
        lane: EVENT_LANE,
        word,
        continues: false,
    };
    // The other end may have dialed meanwhile, or the client may have dropped the link.
    let goes_on = || !link.is_settled();
    let reached = reach(
        link,
        running,
        wanted,
        link.addresses.iter().cloned(),
        goes_on,
    );
    let Reached { at, line, .. } = reached.map_err(|no_way| no_way.reason)?;
    let lanes = lanes(link, at, word).map_err(|error| format!("{at}: {error}"))?;
    Ok(Connections {
        events: line,
        lanes,
        at: Some(at),
        generation: word.generation,
    })
}

/// Tries all addresses until one leads to the other end.
fn reach(
    link: &Arc<Link>,
    running: &DialThread,
    wanted: Wanted,
    mut addresses: impl Iterator<Item = String>,
    goes_on: impl Fn() -> bool,
) -> Result<Reached, NoWay> {
    let begun = Instant::now();
    let mut until = begun + REACH;
    let (sender, news) = mpsc::channel();
    let over = Over(Arc::default());
    let (mut asked, mut reasons) = (0_usize, Vec::new());
    loop {
        match addresses.next() {
            Some(address) => {
                let asking = Asking {
                    link: Arc::clone(link),
                    address,
                    wanted,
                    news: sender.clone(),
                    race: Arc::clone(&over.0),
                    begun,
                    _running: running.clone(),
                };
                match asking.start() {
                    Ok(()) => asked += 1,
                    Err(error) => reasons.push(error.to_string()),
                }
            }
            // All addresses have been tried, and no attempt is left that could succeed.
            None if asked == 0 => return Err(because(&reasons)),
            None => {}
        }
        match news.recv_timeout(STAGGER) {
            Ok(News::Connected(reached)) => return Ok(reached),
            Ok(News::NotReady) => until = begun + LATE,
            Ok(News::Failed(no_way)) if no_way.is_final => return Err(no_way),
            Ok(News::Failed(no_way)) => {
                asked -= 1;
                reasons.push(no_way.reason);
            }
            Err(_) => {}
        }
        if !goes_on() {
            reasons = vec!["the connection is not needed any more".to_owned()];
            return Err(because(&reasons));
        }
        if Instant::now() >= until {
            reasons.push("the other node did not answer before the timeout".to_owned());
            return Err(because(&reasons));
        }
    }
}

fn because(reasons: &[String]) -> NoWay {
    let reason = if reasons.is_empty() {
        "the other node has no known address".to_owned()
    } else {
        reasons.join("; ")
    };
    NoWay {
        reason,
        is_final: false,
    }
}

fn lanes(link: &Link, at: SocketAddr, word: ClientWord) -> Result<Vec<Line>, NotConnected> {
    let lane = |lane| {
        // The session may have ended, and a host waits for this thread.
        if link.is_settled() {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
        }
        let wanted = Wanted {
            lane,
            word,
            continues: false,
        };
        connect(link, at, wanted, || true).map(|(line, _)| line)
    };
    (0..LINK_LANES).map(lane).collect()
}

/// Dials broken lanes again: where the other end was reached last, and at all its addresses. Returns whether all have
/// a connection now, or why the link cannot go on.
pub(super) fn again(
    link: &Arc<Link>,
    links: &Arc<Links>,
    incarnation: u64,
    last: SocketAddr,
    lanes: &[u8],
) -> Result<bool, String> {
    let Some(running) = links.diallers.enter() else {
        return Ok(false);
    };
    let mut reached = None;
    for lane in lanes {
        // `None` also if the link has come down, which the caller finds out.
        let Some(mut of) = link.stop_lane(links, incarnation, *lane) else {
            return Ok(false);
        };
        let wanted = Wanted {
            lane: *lane,
            // 0 is the position of a first connection.
            word: ClientWord {
                position: of.after.position + 1,
                generation: of.generation,
                origin: None,
                ..ClientWord::default()
            },
            continues: true,
        };
        let addresses = match reached {
            Some(at) => vec![SocketAddr::to_string(&at)],
            None => {
                let known = link.addresses.iter().cloned();
                let last = last.to_string();
                let others = known.filter(|address| *address != last);
                std::iter::once(last.clone()).chain(others).collect()
            }
        };
        let goes_on = || link.is_mending(incarnation);
        match reach(link, &running, wanted, addresses.into_iter(), goes_on) {
            Ok(Reached { at, line, position }) => {
                reached = Some(at);
                of.at = reached;
                link.resume(links, of, line, position);
            }
            Err(NoWay { reason, is_final }) if is_final => return Err(reason),
            Err(NoWay { reason, .. }) => {
                tracing::debug!(link = ?link.id, reason, "cannot replace a connection of a link yet");
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// One address, tried on its own thread, because a name may take long to resolve.
struct Asking {
    link: Arc<Link>,
    address: String,
    wanted: Wanted,
    news: mpsc::Sender<News>,
    race: Arc<Race>,
    begun: Instant,
    _running: DialThread,
}

impl Asking {
    // Not a thread of the session's scope: a name may take long to resolve, and the thread holds nothing of the
    // session that a host would have to release.
    fn start(self) -> io::Result<()> {
        std::thread::Builder::new()
            .name("link-try".into())
            .spawn(move || self.ask())
            .map(drop)
    }

    fn ask(&self) {
        // If the receiver is gone, the connection closes with the dropped message.
        let _ = self.news.send(self.answer());
    }

    fn answer(&self) -> News {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", self.address);
        let mut is_final = false;
        let reason = match self.address.to_socket_addrs() {
            Ok(found) => {
                let mut reason = failed(&"the name has no address");
                for at in found.take(OF_ONE_NAME) {
                    match self.ask_at(at) {
                        Ok(reached) => return News::Connected(reached),
                        Err(error) => {
                            is_final |= self.wanted.continues && error.gives_up();
                            reason = failed(&error);
                        }
                    }
                }
                reason
            }
            Err(error) => failed(&error),
        };
        let reason = reason.chars().take(MAX_REASON).collect();
        News::Failed(NoWay { reason, is_final })
    }

    fn ask_at(&self, at: SocketAddr) -> Result<Reached, NotConnected> {
        loop {
            let wins = || !self.wanted.continues || !self.race.is_won.swap(true, Ordering::AcqRel);
            let error = match connect(&self.link, at, self.wanted, wins) {
                Ok((line, position)) => return Ok(Reached { at, line, position }),
                Err(error) => error,
            };
            let passes = error
                .passes_within()
                .is_some_and(|limit| self.begun.elapsed() < limit);
            let is_over = self.race.is_over.load(Ordering::Acquire);
            if self.wanted.continues || !passes || is_over {
                return Err(error);
            }
            if !matches!(error, NotConnected::Verdict(Verdict::UnknownSession)) {
                let _ = self.news.send(News::NotReady);
            }
            std::thread::sleep(AGAIN);
        }
    }
}

fn greeting(line: &Line, deadline: Instant) -> Result<Greeting, NotConnected> {
    let mut greeting = [0; GREETING];
    read_within(line, &mut greeting, deadline)?;
    Ok(Greeting::decode(&greeting)?)
}

/// Starts TLS if the other end uses it. The client has given the digest of that end's certificate.
fn secure(
    line: Line,
    fingerprint: Option<Fingerprint>,
    deadline: Instant,
) -> Result<Line, NotConnected> {
    let Some(fingerprint) = fingerprint else {
        return Ok(line);
    };
    let (socket, _) = line.into_parts();
    match complete(pinned(fingerprint)?, &socket, deadline) {
        Ok(records) => Ok(Line::Tls(TlsStream::new(socket, records)?)),
        Err(NotSecured::InTheClear) => {
            // A worker that refuses a connection says so before TLS. A welcome without TLS is not accepted.
            let refusal = greeting(&Line::Clear(socket), deadline)?;
            Err(match refusal.verdict {
                Verdict::Welcome => NotConnected::Impostor,
                verdict => verdict.into(),
            })
        }
        Err(error) if error.is_late() => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        Err(error) => Err(error.into()),
    }
}

/// Makes one connection, with the secret proved in both directions. The connection must not
/// be used before that. `wins` is asked before the proof. Returns also how much the other end has received over earlier
/// connections of the lane.
fn connect(
    link: &Link,
    at: SocketAddr,
    Wanted { lane, word, .. }: Wanted,
    wins: impl FnOnce() -> bool,
) -> Result<(Line, u64), NotConnected> {
    let socket = TcpStream::connect_timeout(&at, CONNECT)?;
    super::set_options(&socket, lane)?;
    let deadline = Instant::now() + PROVE;
    let preamble = Preamble {
        purpose: Purpose::Peer,
        lane,
        session: link.peer,
        link: link.id.0,
    }
    .encode();
    let line = Line::Clear(socket);
    write_within(&line, &preamble, deadline)?;
    let line = secure(line, link.fingerprint, deadline)?;
    let greeting = greeting(&line, deadline)?;
    if greeting.verdict != Verdict::Welcome {
        return Err(greeting.verdict.into());
    }
    if !wins() {
        return Err(NotConnected::Beaten);
    }
    let ours = client_proof(&link.secret, &preamble, &greeting.nonce, &word);
    write_within(&line, &ours, deadline)?;
    let mut theirs = [0; WORKER_PROOF];
    read_within(&line, &mut theirs, deadline)?;
    socket::no_limits(line.socket())?;
    let proved = check_worker_proof(&link.secret, &preamble, &greeting.nonce, &ours, &theirs);
    if let Some(position) = proved {
        return Ok((line, position));
    }
    // A refusal here is a greeting, which has the size of a proof.
    match Greeting::decode(&theirs) {
        Ok(refusal) if refusal.verdict != Verdict::Welcome => Err(refusal.verdict.into()),
        _ => Err(NotConnected::Impostor),
    }
}
