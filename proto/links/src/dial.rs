//! The connections of a measurement, and others between nodes, made by the end that begins it.
//!
//! The addresses are tried in parallel, a little apart, because the first may be unreachable from here. An address may
//! belong to another machine here, so a connection counts only when both ends have proved the secret.
//! Invariant: nothing but TLS, the preamble and the proof reaches an end that has not proved the secret.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{
    BadPreamble, CLIENT_PROOF, ClientWord, GREETING, Greeting, PREAMBLE, Preamble, Purpose,
    Verdict, WORKER_PROOF, check_client_proof, check_worker_proof, client_proof, worker_proof,
};
use causeway_proto::socket::set_options;
use causeway_security::{Fingerprint, Line, NotSecured, ServerTls, TlsStream, complete, pinned};

use crate::exchange::{Ends, lanes};

/// Delay before the next address is tried in parallel.
const STAGGER: Duration = Duration::from_millis(100);
/// Longest wait of one system call.
const SLICE: Duration = Duration::from_millis(100);
/// Limit on addresses that are tried, the first ones of the list. Discovery takes as many of a node, and a node tells others
/// as many.
const MOST_ADDRESSES: usize = 16;
/// Limit on addresses per host name.
const OF_ONE_NAME: usize = 4;

/// The node to dial, as that node describes itself: for a measurement, or for the contents of sessions that move.
#[derive(Clone, Debug)]
pub struct FarNode {
    /// Id of the measurement or of the transfer. The preamble has it in the place of a session's id.
    pub id: SessionId,
    /// Both ends prove that they know this secret.
    pub secret: SessionSecret,
    /// Digest of the certificate that the other end shows; `None` without TLS.
    pub fingerprint: Option<Fingerprint>,
    /// Where the node listens, `HOST:PORT`, the likeliest first. Only [`dial_any`] reads them.
    pub addresses: Vec<String>,
}

/// The digest of a certificate has another length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the digest of the other end's certificate has a wrong length")]
pub struct WrongDigest;

/// The digest of the certificate that an end will show, from a message. `None`: it uses no TLS.
///
/// # Errors
/// [`WrongDigest`]; the end must then not be dialled, because nothing says whether its TLS may be left out.
pub fn certificate(digest: &[u8]) -> Result<Option<Fingerprint>, WrongDigest> {
    match digest {
        [] => Ok(None),
        digest => Fingerprint::from_wire(digest).map(Some).ok_or(WrongDigest),
    }
}

/// Why the other end was not reached.
#[derive(Debug, thiserror::Error)]
pub enum NotDialled {
    /// A system call failed, or time is up.
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    /// The node refuses the connection.
    #[error("{0}")]
    Verdict(#[from] Verdict),
    /// Another server answers there.
    #[error(transparent)]
    Foreign(#[from] BadPreamble),
    /// TLS failed.
    #[error(transparent)]
    NotSecured(#[from] NotSecured),
    /// The server that answers does not know the secret.
    #[error("another server answered: this one does not know the secret")]
    Impostor,
    /// No address leads to the other end.
    #[error("{0}")]
    Nowhere(String),
}

/// The system's error as text for people, without its number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "the other end did not answer before the timeout".to_owned()
        }
        io::ErrorKind::ConnectionRefused => "the other end refused the connection".to_owned(),
        io::ErrorKind::UnexpectedEof => "the other end closed the connection".to_owned(),
        _ => error.to_string(),
    }
}

/// Connections to the other end.
#[derive(Debug)]
pub struct Dialled {
    /// The connections.
    pub ends: Ends,
    /// This end's address and the other one's.
    pub addresses: (SocketAddr, SocketAddr),
}

/// Makes all connections, over the first address that leads to the other end. Tries 16 addresses at most, and an error says
/// how many it has not tried.
///
/// # Errors
/// [`NotDialled`], before `deadline`.
pub fn dial_any(far: &FarNode, deadline: Instant) -> Result<Dialled, NotDialled> {
    let (news, answers) = mpsc::channel();
    let mut addresses = far.addresses.iter().take(MOST_ADDRESSES);
    let (mut asked, mut reasons) = (0_usize, Vec::new());
    loop {
        if let Some(address) = addresses.next() {
            let (far, address, news) = (far.clone(), address.clone(), news.clone());
            // The thread ends by the deadline, except while the system looks up a name.
            let tries = move || {
                let answer = control(&far, &address, deadline);
                // Without a receiver, the connection closes with the message.
                let _ = news.send(answer.map_err(|error| format!("{address}: {error}")));
            };
            match std::thread::Builder::new()
                .name("link-try".into())
                .spawn(tries)
            {
                Ok(_) => asked += 1,
                Err(error) => reasons.push(error.to_string()),
            }
        } else if asked == 0 {
            if reasons.is_empty() {
                reasons.push("the other end has no known address".to_owned());
            }
            return Err(nowhere(far, addresses.len(), asked, reasons));
        }
        match answers.recv_timeout(STAGGER) {
            Ok(Ok((at, control))) => return with_lanes(far, at, control, deadline),
            Ok(Err(reason)) => {
                asked -= 1;
                reasons.push(reason);
            }
            Err(_) if Instant::now() >= deadline => {
                return Err(nowhere(far, addresses.len(), asked, reasons));
            }
            Err(_) => {}
        }
    }
}

/// No address leads to the other end. Time was up before `left` addresses could be tried, and before `asked` answered.
fn nowhere(far: &FarNode, left: usize, asked: usize, mut reasons: Vec<String>) -> NotDialled {
    if asked > 0 {
        reasons.push(format!("addresses without an answer in time: {asked}"));
    }
    let untried = left + far.addresses.len().saturating_sub(MOST_ADDRESSES);
    if untried > 0 {
        reasons.insert(0, format!("addresses that were not tried: {untried}"));
    }
    NotDialled::Nowhere(reasons.join("; "))
}

fn control(
    far: &FarNode,
    address: &str,
    deadline: Instant,
) -> Result<(SocketAddr, Line), NotDialled> {
    let mut last = NotDialled::Nowhere("the name has no address".to_owned());
    for at in address.to_socket_addrs()?.take(OF_ONE_NAME) {
        match dial(far, at, lanes::CONTROL, deadline) {
            Ok(line) => return Ok((at, line)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn with_lanes(
    far: &FarNode,
    at: SocketAddr,
    control: Line,
    deadline: Instant,
) -> Result<Dialled, NotDialled> {
    let addresses = (
        control.socket().local_addr()?,
        control.socket().peer_addr()?,
    );
    // All at once: each takes several round trips, and more if a segment is lost.
    let mut lanes = std::thread::scope(|scope| {
        let numbers = lanes::UP.chain(lanes::DOWN);
        let dials: Vec<_> = numbers
            .map(|lane| {
                let name = std::thread::Builder::new().name("link-lane".into());
                name.spawn_scoped(scope, move || dial(far, at, lane, deadline))
            })
            .collect();
        let ends = dials.into_iter().map(|dial| match dial?.join() {
            Ok(line) => line,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect::<Result<Vec<Line>, NotDialled>>()
    })?;
    let down = lanes.split_off(lanes::UP.len());
    let ends = Ends {
        control,
        up: lanes,
        down,
    };
    Ok(Dialled { ends, addresses })
}

/// Makes one connection, with the secret proved in both directions.
///
/// # Errors
/// [`NotDialled`], before `deadline`.
pub fn dial(
    far: &FarNode,
    at: SocketAddr,
    lane: u8,
    deadline: Instant,
) -> Result<Line, NotDialled> {
    let preamble = Preamble {
        purpose: Purpose::Measure,
        lane,
        session: far.id,
        link: 0,
    };
    dial_with(far, at, &preamble, deadline)
}

/// As [`dial`], for the purpose of the preamble.
///
/// # Errors
/// As [`dial`].
pub fn dial_with(
    far: &FarNode,
    at: SocketAddr,
    preamble: &Preamble,
    deadline: Instant,
) -> Result<Line, NotDialled> {
    let socket = TcpStream::connect_timeout(&at, left(deadline)?)?;
    set_options(&socket)?;
    let preamble = preamble.encode();
    let line = Line::Clear(socket);
    write_by(&line, &preamble, deadline)?;
    let line = secure(line, far.fingerprint, deadline)?;
    let greeting = greeting(&line, deadline)?;
    if greeting.verdict != Verdict::Welcome {
        return Err(greeting.verdict.into());
    }
    let ours = client_proof(
        &far.secret,
        &preamble,
        &greeting.nonce,
        &ClientWord::default(),
    );
    write_by(&line, &ours, deadline)?;
    let mut theirs = [0; WORKER_PROOF];
    read_by(&line, &mut theirs, deadline)?;
    if check_worker_proof(&far.secret, &preamble, &greeting.nonce, &ours, &theirs).is_some() {
        // A stream sets its own, and a write of it that is given up would end the lane.
        line.socket().set_read_timeout(None)?;
        line.socket().set_write_timeout(None)?;
        return Ok(line);
    }
    // A refusal here is a greeting, which has the size of a proof.
    match Greeting::decode(&theirs) {
        Ok(refusal) if refusal.verdict != Verdict::Welcome => Err(refusal.verdict.into()),
        _ => Err(NotDialled::Impostor),
    }
}

/// Takes part in such a connection at the end that was dialled, once the preamble was read there.
///
/// # Errors
/// [`NotDialled`], before `deadline`. The connection must then be closed.
pub fn welcome(
    socket: TcpStream,
    preamble: &[u8; PREAMBLE],
    secret: &SessionSecret,
    tls: Option<&ServerTls>,
    deadline: Instant,
) -> Result<Line, NotDialled> {
    set_options(&socket)?;
    let line = match tls {
        None => Line::Clear(socket),
        Some(tls) => {
            let records = complete(tls.handshake()?, &socket, deadline)?;
            Line::Tls(TlsStream::new(socket, records)?)
        }
    };
    let greeting = Greeting::welcome();
    write_by(&line, &greeting.encode(), deadline)?;
    let mut theirs = [0; CLIENT_PROOF];
    read_by(&line, &mut theirs, deadline)?;
    if check_client_proof(secret, preamble, &greeting.nonce, &theirs).is_none() {
        // The caller may be gone.
        let _ = write_by(
            &line,
            &Greeting::refusal(Verdict::Unproved).encode(),
            deadline,
        );
        return Err(Verdict::Unproved.into());
    }
    let ours = worker_proof(secret, preamble, &greeting.nonce, &theirs, 0);
    write_by(&line, &ours, deadline)?;
    line.socket().set_read_timeout(None)?;
    line.socket().set_write_timeout(None)?;
    Ok(line)
}

fn secure(
    line: Line,
    fingerprint: Option<Fingerprint>,
    deadline: Instant,
) -> Result<Line, NotDialled> {
    let Some(fingerprint) = fingerprint else {
        return Ok(line);
    };
    let (socket, _) = line.into_parts();
    match complete(pinned(fingerprint)?, &socket, deadline) {
        Ok(records) => Ok(Line::Tls(TlsStream::new(socket, records)?)),
        Err(NotSecured::InTheClear) => {
            // A node that refuses a connection says so before TLS. A welcome without TLS is not accepted.
            match greeting(&Line::Clear(socket), deadline)?.verdict {
                Verdict::Welcome => Err(NotDialled::Impostor),
                verdict => Err(verdict.into()),
            }
        }
        Err(error) if error.is_late() => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        Err(error) => Err(error.into()),
    }
}

fn greeting(line: &Line, deadline: Instant) -> Result<Greeting, NotDialled> {
    let mut greeting = [0; GREETING];
    read_by(line, &mut greeting, deadline)?;
    Ok(Greeting::decode(&greeting)?)
}

/// The time until `deadline`. `TimedOut` when it has passed.
pub(crate) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// Whether a system call may be tried again.
pub(crate) fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Writes a few bytes.
pub(crate) fn write_by(mut line: &Line, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    line.socket().set_write_timeout(Some(left(deadline)?))?;
    line.write_all(bytes)
}

/// Fills `into`. The limit is set before every read, so that a slow peer cannot extend the deadline. It is short, because
/// the kernel may be an eighth of a long one late.
pub(crate) fn read_by(mut line: &Line, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = left(deadline)?;
        line.socket().set_read_timeout(Some(left.min(SLICE)))?;
        match line.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => into = &mut into[count..],
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answer(mut socket: TcpStream, secret: &SessionSecret) -> io::Result<TcpStream> {
        let mut preamble = [0; PREAMBLE];
        socket.read_exact(&mut preamble)?;
        let greeting = Greeting::welcome();
        socket.write_all(&greeting.encode())?;
        let mut proof = [0; CLIENT_PROOF];
        socket.read_exact(&mut proof)?;
        socket.write_all(&worker_proof(secret, &preamble, &greeting.nonce, &proof, 0))?;
        Ok(socket)
    }

    #[test]
    fn lanes_are_dialled_at_once_and_keep_no_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = FarNode {
            id: SessionId([3; 16]),
            secret: SessionSecret([4; 32]),
            fingerprint: None,
            addresses: vec![listener.local_addr().unwrap().to_string()],
        };
        let secret = far.secret.clone();
        let answering = std::thread::spawn(move || {
            let control = answer(listener.accept().unwrap().0, &secret).unwrap();
            // No lane gets an answer before all have been dialled.
            let lanes: Vec<_> = (1..lanes::ALL)
                .map(|_| listener.accept().unwrap().0)
                .collect();
            let answered = lanes.into_iter().map(|lane| answer(lane, &secret).unwrap());
            (control, answered.collect::<Vec<_>>())
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        let Dialled { ends, .. } = dial_any(&far, deadline).unwrap();
        assert_eq!(
            (ends.up.len(), ends.down.len()),
            (lanes::UP.len(), lanes::DOWN.len())
        );
        for line in ends.up.iter().chain(&ends.down) {
            assert_eq!(line.socket().read_timeout().unwrap(), None);
            assert_eq!(line.socket().write_timeout().unwrap(), None);
        }
        drop(answering.join().unwrap());
    }

    #[test]
    fn the_first_sixteen_addresses_are_tried_and_the_others_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap().to_string();
        // Nobody else gets the port of the open one.
        let shut = (2..18).map(|host| open.replace("127.0.0.1:", &format!("127.0.0.{host}:")));
        let far = FarNode {
            id: SessionId([3; 16]),
            secret: SessionSecret([4; 32]),
            fingerprint: None,
            addresses: shut.chain([open.clone(), open.clone()]).collect(),
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let error = dial_any(&far, deadline).unwrap_err().to_string();
        assert_eq!(
            error.matches("refused the connection").count(),
            16,
            "{error}"
        );
        assert!(
            error.starts_with("addresses that were not tried: 2; "),
            "{error}"
        );
        listener.set_nonblocking(true).unwrap();
        let accepted = listener.accept().map(drop).map_err(|error| error.kind());
        assert_eq!(accepted, Err(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn silent_addresses_are_counted_beside_the_reasons_of_the_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The system accepts, and nobody answers.
        let silent = listener.local_addr().unwrap().to_string();
        let shut = silent.replace("127.0.0.1:", "127.0.0.2:");
        let silent = std::iter::repeat_n(silent, 17);
        let far = FarNode {
            id: SessionId([3; 16]),
            secret: SessionSecret([4; 32]),
            fingerprint: None,
            addresses: [shut].into_iter().chain(silent).collect(),
        };
        let deadline = Instant::now() + Duration::from_secs(2);
        let error = dial_any(&far, deadline).unwrap_err().to_string();
        for part in [
            "addresses that were not tried: ",
            "127.0.0.2:",
            "refused the connection",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(
            error.contains("before the timeout") || error.contains("without an answer in time: "),
            "{error}"
        );
        // A system call may end later than the deadline.
        let refused = vec!["the other end refused the connection".to_owned()];
        assert_eq!(
            nowhere(&far, 3, 2, refused).to_string(),
            "addresses that were not tried: 5; the other end refused the connection; addresses without an answer in time: 2"
        );
    }

    #[test]
    fn a_digest_of_a_wrong_length_is_no_consent_to_clear_text() {
        assert_eq!(certificate(&[]), Ok(None));
        assert_eq!(certificate(&[5; 32]), Ok(Some(Fingerprint([5; 32]))));
        for wrong in [1, 31, 33] {
            assert_eq!(certificate(&vec![5; wrong]), Err(WrongDigest));
        }
    }
}
