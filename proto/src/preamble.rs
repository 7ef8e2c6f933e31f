//! The first bytes of every connection that belongs to a session, and the proof of its secret.
//!
//! ```text
//! client → supervisor   preamble, 32 bytes: magic, version, purpose, lane, route, link
//!          supervisor ⇒ worker: the socket itself
//! worker → client       greeting, 40 bytes: verdict, version, worker's nonce
//! client → worker       106 bytes: client's nonce, HMAC-SHA256(secret, "client" ‖ preamble ‖ nonces ‖ word), word
//! worker → client       40 bytes: HMAC-SHA256(secret, "worker" ‖ preamble ‖ nonces ‖ position), position
//! ```
//! The words say how much each side has received over earlier connections of the same purpose and lane. With
//! them, a new connection takes over from a broken one. On a heartbeat connection, the worker's position is its
//! incarnation: a number that no other worker of the session has; 0 is no number. The client names the incarnation when it
//! opens the command connection, so both connections lead to one worker.
//!
//! A refusal (by supervisor or worker) is a greeting with a verdict other than [`Verdict::Welcome`]. The
//! connection closes after it. With TLS, the worker's handshake comes between the preamble and the
//! greeting. The protocol of the purpose begins after the last step.
//!
//! Between two workers, the one that dials has the client's part. The secret is that of their link, which
//! the client of both sessions gave them.
//!
//! The route leads to the session without showing its id. It has a hint of two bytes and six bytes that
//! are unique among the session's connections. Then come the first eight bytes of HMAC-SHA256(id, "route"
//! ‖ the rest of the preamble). An eavesdropper can neither make another preamble for the session nor
//! reuse this one.
//!
//! The supervisor distinguishes the protocols on its port by the first byte: `P` begins HTTP/2, 0x16 TLS,
//! [`MAGIC`] a preamble.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::id::{SessionId, SessionSecret};
use crate::version::{self, VersionMismatch, WireVersion};

/// The first bytes of every preamble and greeting.
pub const MAGIC: [u8; 4] = *b"CSWY";
/// Size of a preamble in bytes.
pub const PREAMBLE: usize = 32;
/// Size of a greeting in bytes.
pub const GREETING: usize = 40;
/// Size of the client's proof in bytes: nonce, MAC, position, origin, generation and worker.
pub const CLIENT_PROOF: usize = 106;
/// Size of the worker's proof in bytes: MAC and position. A refusal has the same size.
pub const WORKER_PROOF: usize = 40;
/// Size of a nonce in bytes.
pub const NONCE: usize = 32;

/// Added to the position of a worker that takes the place of one that has parked the session. The client must first send
/// its record.
pub const WANTS_RECORD: u64 = 1 << 63;

/// Added, with [`WANTS_RECORD`], to the position of a worker that takes the place of one that has died. The client sends
/// its record of that position, and then all commands behind it again.
pub const REEXECUTES: u64 = 1 << 62;

/// Lane number of a link's connection for events. The other lanes count from 0.
pub const EVENT_LANE: u8 = 255;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// Batches of commands and events as [`frame`](crate::frame)s.
    Commands = 1,
    /// Batches of commands and events over gRPC (HTTP/2 follows).
    CommandsGrpc = 2,
    /// Bulk data.
    Bulk = 3,
    /// Heartbeats: the worker sends one zero byte per interval. If the session outlives its connections, the client
    /// sends numbers of 8 bytes: acknowledged event batches, and [`COMES_BACK`](crate::frame::COMES_BACK).
    Heartbeat = 4,
    /// Between the workers of two sessions: bulk data, or messages about events ([`EVENT_LANE`]).
    Peer = 5,
    /// Bulk data through memory that both ends share. Only over a Unix socket, so that no other machine
    /// can intercept the connection.
    SharedBulk = 6,
    /// Measures the way to another node. It has an id and a secret of its own, in place of a session's.
    Measure = 7,
    /// Between two nodes: contents of a session that moves. It has an id and a secret of its own, in place of a session's.
    Contents = 8,
}

/// The client's first 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// Index among several connections of the same purpose.
    pub lane: u8,
    /// The session that the connection is for. The encoded preamble does not show it.
    pub session: SessionId,
    /// The link of a [`Purpose::Peer`] connection, or the number of a [`Purpose::Contents`] connection's session; otherwise
    /// 0.
    pub link: u64,
}

/// A decoded preamble. Only with a session's id can one tell whether the connection is for that session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// Index among several connections of the same purpose.
    pub lane: u8,
    /// As [`Preamble::link`].
    pub link: u64,
    bytes: [u8; PREAMBLE],
}

/// A short digest by which the supervisor finds a session. Several sessions may have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint([u8; 2]);

/// Bytes that are unique among a session's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Once([u8; 6]);

// Positions of the route's parts in a preamble.
const HINT: Range<usize> = 8..10;
const ONCE: Range<usize> = 10..16;
const MARK: Range<usize> = 16..24;

impl Hint {
    /// The hint of connections for this session.
    #[must_use]
    pub fn of(session: &SessionId) -> Hint {
        let [a, b, ..] = keyed(session, &[b"hint"]);
        Hint([a, b])
    }
}

impl Introduction {
    /// The hint of the session that the connection is for.
    #[must_use]
    pub fn hint(&self) -> Hint {
        Hint([self.bytes[HINT.start], self.bytes[HINT.start + 1]])
    }

    /// The bytes that are unique among the session's connections.
    #[must_use]
    pub fn once(&self) -> Once {
        Once(std::array::from_fn(|i| self.bytes[ONCE.start + i]))
    }

    /// Whether the connection is for this session.
    #[must_use]
    pub fn is_for(&self, session: &SessionId) -> bool {
        self.hint() == Hint::of(session)
            && bool::from(mark(session, &self.bytes).ct_eq(&self.bytes[MARK]))
    }
}

fn mark(session: &SessionId, preamble: &[u8; PREAMBLE]) -> [u8; 8] {
    // The MAC covers every byte of the preamble except its own.
    let parts = [b"route", &preamble[..MARK.start], &preamble[MARK.end..]];
    let mac = keyed(session, &parts);
    std::array::from_fn(|i| mac[i])
}

fn keyed(session: &SessionId, parts: &[&[u8]]) -> [u8; 32] {
    // A key of any length is valid for HMAC, so this cannot fail.
    let mut mac = Hmac::<Sha256>::new_from_slice(&session.0).expect("HMAC takes any key");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Why a preamble was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum BadPreamble {
    /// The magic bytes are missing.
    #[error("the connection does not open with Causeway's preamble")]
    Magic,
    /// The versions of the wire protocol differ.
    #[error(transparent)]
    Version(#[from] VersionMismatch),
    /// The purpose is unknown.
    #[error("the preamble has the unknown purpose {0}")]
    Purpose(u8),
}

impl Preamble {
    /// The encoded preamble. Every call returns different bytes, for one connection.
    #[must_use]
    pub fn encode(&self) -> [u8; PREAMBLE] {
        let mut out = [0; PREAMBLE];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&WireVersion::CURRENT.number().to_le_bytes());
        out[6] = self.purpose as u8;
        out[7] = self.lane;
        out[HINT].copy_from_slice(&Hint::of(&self.session).0);
        out[ONCE].copy_from_slice(&rand::random::<[u8; 6]>());
        out[24..32].copy_from_slice(&self.link.to_le_bytes());
        let mark = mark(&self.session, &out);
        out[MARK].copy_from_slice(&mark);
        out
    }

    /// Decodes the result of [`Preamble::encode`].
    ///
    /// # Errors
    /// [`BadPreamble`] for anything else.
    pub fn decode(bytes: &[u8; PREAMBLE]) -> Result<Introduction, BadPreamble> {
        if bytes[0..4] != MAGIC {
            return Err(BadPreamble::Magic);
        }
        version::check(u32::from(u16::from_le_bytes([bytes[4], bytes[5]])))?;
        let purpose = match bytes[6] {
            1 => Purpose::Commands,
            2 => Purpose::CommandsGrpc,
            3 => Purpose::Bulk,
            4 => Purpose::Heartbeat,
            5 => Purpose::Peer,
            6 => Purpose::SharedBulk,
            7 => Purpose::Measure,
            8 => Purpose::Contents,
            other => return Err(BadPreamble::Purpose(other)),
        };
        Ok(Introduction {
            purpose,
            lane: bytes[7],
            link: u64::from_le_bytes(std::array::from_fn(|i| bytes[24 + i])),
            bytes: *bytes,
        })
    }
}

/// The node's answer to a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Verdict {
    /// The preamble is accepted; the proof follows.
    #[error("the node accepts the connection")]
    Welcome = 0,
    /// The node could not decode the preamble.
    #[error("the node could not decode the connection's preamble")]
    Malformed = 1,
    /// The versions of the wire protocol differ.
    #[error("the node uses another wire version; upgrade both sides to the same release")]
    Version = 2,
    /// The node does not have this session, or not any more.
    #[error("the node does not know this session")]
    UnknownSession = 3,
    /// The session has too many connections of this purpose.
    #[error("the session already has the maximum number of such connections")]
    TooMany = 4,
    /// The proof of the secret was wrong.
    #[error("the caller did not prove the session's secret")]
    Unproved = 5,
    /// The client has not announced this link to this end, or not yet.
    #[error("the node does not know this link")]
    UnknownLink = 6,
    /// The session is parked, and this daemon ends or is not ready yet. The client tries again.
    #[error("the session is parked until the node's daemon is ready")]
    Parked = 7,
    /// The connection is for another worker of the session, which has ended. The client dials the session anew.
    #[error("another process serves the session now")]
    OtherWorker = 8,
}

/// The message with the node's answer to a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The verdict: welcome, or the reason of the refusal.
    pub verdict: Verdict,
    /// The node's wire version.
    pub version: u16,
    /// The worker's nonce; zero in a refusal.
    pub nonce: [u8; NONCE],
}

impl Greeting {
    /// A greeting that accepts the preamble, with a fresh nonce.
    #[must_use]
    pub fn welcome() -> Greeting {
        Greeting {
            verdict: Verdict::Welcome,
            version: WireVersion::CURRENT.number(),
            nonce: fresh_nonce(),
        }
    }

    /// A greeting that refuses the connection.
    #[must_use]
    pub fn refusal(verdict: Verdict) -> Greeting {
        Greeting {
            verdict,
            version: WireVersion::CURRENT.number(),
            nonce: [0; NONCE],
        }
    }

    /// The encoded greeting.
    #[must_use]
    pub fn encode(&self) -> [u8; GREETING] {
        let mut out = [0; GREETING];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&self.version.to_le_bytes());
        out[6] = self.verdict as u8;
        out[8..].copy_from_slice(&self.nonce);
        out
    }

    /// Decodes the result of [`Greeting::encode`]. An unknown verdict becomes [`Verdict::Malformed`].
    ///
    /// # Errors
    /// [`BadPreamble`] when the peer is not a Causeway node.
    pub fn decode(bytes: &[u8; GREETING]) -> Result<Greeting, BadPreamble> {
        if bytes[0..4] != MAGIC {
            return Err(BadPreamble::Magic);
        }
        let verdict = match bytes[6] {
            0 => Verdict::Welcome,
            2 => Verdict::Version,
            3 => Verdict::UnknownSession,
            4 => Verdict::TooMany,
            5 => Verdict::Unproved,
            6 => Verdict::UnknownLink,
            7 => Verdict::Parked,
            8 => Verdict::OtherWorker,
            _ => Verdict::Malformed,
        };
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        Ok(Greeting {
            verdict,
            version,
            nonce: std::array::from_fn(|i| bytes[8 + i]),
        })
    }
}

/// A fresh random nonce.
#[must_use]
pub fn fresh_nonce() -> [u8; NONCE] {
    rand::random()
}

/// The client's statement about a connection, which its proof covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientWord {
    /// How much the client has received before, over earlier connections of this purpose and lane: the number of
    /// the last event batch for commands, bytes for bulk data. 0 for the first connection. Between workers, one more
    /// than that: a link may be made anew before a byte has crossed it.
    pub position: u64,
    /// The client's own address and port of this connection; `None` if it is no TCP connection. If the node
    /// sees another address, something forwards the connection.
    pub origin: Option<SocketAddr>,
    /// Between workers: a random number that the dialing end gives to all connections that make a link, and to those
    /// that replace them. Positions of another generation mean nothing. From the client: the generation of its bulk
    /// lanes, which grows when another worker takes the place of the session's worker.
    pub generation: u64,
    /// The incarnation of the worker for which the connection is. Other workers refuse it. 0: any worker.
    pub worker: u64,
}

// Positions of the parts in a client's proof.
const CLIENT_NONCE: Range<usize> = 0..32;
const CLIENT_MAC: Range<usize> = 32..64;
const CLIENT_WORD: Range<usize> = 64..CLIENT_PROOF;
// Positions of the parts in a worker's proof.
const WORKER_MAC: Range<usize> = 0..32;
const WORKER_POSITION: Range<usize> = 32..WORKER_PROOF;

const WORD: usize = CLIENT_PROOF - 64;

impl ClientWord {
    fn encode(&self) -> [u8; WORD] {
        let mut out = [0; WORD];
        out[..8].copy_from_slice(&self.position.to_le_bytes());
        if let Some(origin) = self.origin {
            let ip = match origin.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            out[8..24].copy_from_slice(&ip.octets());
            out[24..26].copy_from_slice(&origin.port().to_le_bytes());
        }
        out[26..34].copy_from_slice(&self.generation.to_le_bytes());
        out[34..].copy_from_slice(&self.worker.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; WORD]) -> ClientWord {
        let position = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
        let ip = Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| bytes[8 + i]));
        let port = u16::from_le_bytes([bytes[24], bytes[25]]);
        ClientWord {
            position,
            // No connection has port 0.
            origin: (port != 0).then(|| SocketAddr::new(ip.to_canonical(), port)),
            generation: u64::from_le_bytes(std::array::from_fn(|i| bytes[26 + i])),
            worker: u64::from_le_bytes(std::array::from_fn(|i| bytes[34 + i])),
        }
    }
}

/// The client's proof of the secret, with its word.
#[must_use]
pub fn client_proof(
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    worker_nonce: &[u8; NONCE],
    word: &ClientWord,
) -> [u8; CLIENT_PROOF] {
    let (nonce, word) = (fresh_nonce(), word.encode());
    let mac = proof(secret, b"client", preamble, worker_nonce, &nonce, &word);
    let mut out = [0; CLIENT_PROOF];
    out[CLIENT_NONCE].copy_from_slice(&nonce);
    out[CLIENT_MAC].copy_from_slice(&mac);
    out[CLIENT_WORD].copy_from_slice(&word);
    out
}

/// Checks the client's proof. Returns the client's word if the proof is right.
#[must_use]
pub fn check_client_proof(
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    worker_nonce: &[u8; NONCE],
    client: &[u8; CLIENT_PROOF],
) -> Option<ClientWord> {
    let nonce = std::array::from_fn(|i| client[i]);
    let word = std::array::from_fn(|i| client[CLIENT_WORD.start + i]);
    let expected = proof(secret, b"client", preamble, worker_nonce, &nonce, &word);
    bool::from(expected[..].ct_eq(&client[CLIENT_MAC])).then(|| ClientWord::decode(&word))
}

/// The worker's proof for a client whose proof is right. `position` says how much the worker has received before,
/// over earlier connections of this purpose and lane: the number of the last applied command, or bytes of
/// bulk data.
#[must_use]
pub fn worker_proof(
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    worker_nonce: &[u8; NONCE],
    client: &[u8; CLIENT_PROOF],
    position: u64,
) -> [u8; WORKER_PROOF] {
    let nonce = std::array::from_fn(|i| client[i]);
    let position = position.to_le_bytes();
    let mac = proof(secret, b"worker", preamble, worker_nonce, &nonce, &position);
    let mut out = [0; WORKER_PROOF];
    out[WORKER_MAC].copy_from_slice(&mac);
    out[WORKER_POSITION].copy_from_slice(&position);
    out
}

/// Checks the worker's proof, which covers the nonce in the client's proof. Returns the worker's position.
#[must_use]
pub fn check_worker_proof(
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    worker_nonce: &[u8; NONCE],
    client: &[u8; CLIENT_PROOF],
    worker: &[u8; WORKER_PROOF],
) -> Option<u64> {
    let nonce = std::array::from_fn(|i| client[i]);
    let position: [u8; 8] = std::array::from_fn(|i| worker[WORKER_POSITION.start + i]);
    let expected = proof(secret, b"worker", preamble, worker_nonce, &nonce, &position);
    bool::from(expected[..].ct_eq(&worker[WORKER_MAC])).then(|| u64::from_le_bytes(position))
}

fn proof(
    secret: &SessionSecret,
    role: &[u8],
    preamble: &[u8; PREAMBLE],
    worker_nonce: &[u8; NONCE],
    client_nonce: &[u8; NONCE],
    word: &[u8],
) -> [u8; 32] {
    // A key of any length is valid for HMAC, so this cannot fail.
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes any key");
    for part in [role, preamble.as_slice(), worker_nonce, client_nonce, word] {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn preamble() -> Preamble {
        Preamble {
            purpose: Purpose::Bulk,
            lane: 3,
            session: SessionId([7; 16]),
            link: 5,
        }
    }

    #[test]
    fn both_sides_prove_the_secret_and_their_words() {
        let (secret, stranger) = (SessionSecret([1; 32]), SessionSecret([2; 32]));
        let bytes = preamble().encode();
        let nonce = Greeting::decode(&Greeting::welcome().encode())
            .unwrap()
            .nonce;
        let word = ClientWord {
            position: 7,
            origin: Some("10.0.0.5:7079".parse().unwrap()),
            generation: 1 << 60,
            worker: 1 << 61,
        };
        let client = client_proof(&secret, &bytes, &nonce, &word);
        assert_eq!(
            check_client_proof(&secret, &bytes, &nonce, &client),
            Some(word)
        );
        let worker = worker_proof(&secret, &bytes, &nonce, &client, 9);
        assert_eq!(
            check_worker_proof(&secret, &bytes, &nonce, &client, &worker),
            Some(9)
        );
        assert_eq!(
            check_worker_proof(&stranger, &bytes, &nonce, &client, &worker),
            None
        );
        assert_eq!(check_client_proof(&stranger, &bytes, &nonce, &client), None);
        let other = Preamble {
            lane: 4,
            ..preamble()
        }
        .encode();
        assert_eq!(check_client_proof(&secret, &other, &nonce, &client), None);
    }

    proptest! {
        #[test]
        fn a_changed_byte_spoils_a_proof(position: u64, place in 0..CLIENT_PROOF, change in 1u8..) {
            let secret = SessionSecret([1; 32]);
            let (bytes, nonce) = (preamble().encode(), [3; NONCE]);
            let word = ClientWord { position, ..ClientWord::default() };
            let mut client = client_proof(&secret, &bytes, &nonce, &word);
            let mut worker = worker_proof(&secret, &bytes, &nonce, &client, position);
            worker[place % WORKER_PROOF] ^= change;
            prop_assert_eq!(check_worker_proof(&secret, &bytes, &nonce, &client, &worker), None);
            client[place] ^= change;
            prop_assert_eq!(check_client_proof(&secret, &bytes, &nonce, &client), None);
        }
    }

    #[test]
    fn a_preamble_leads_to_its_session_and_shows_nothing_of_it() {
        let session = SessionId(std::array::from_fn(|i| 101 + i as u8));
        let preamble = Preamble {
            session,
            ..preamble()
        };
        let (one, other) = (preamble.encode(), preamble.encode());
        assert_ne!(one, other);
        assert!(
            !session
                .0
                .windows(3)
                .any(|part| one.windows(3).any(|shown| shown == part))
        );
        let decoded = Preamble::decode(&one).unwrap();
        assert!(decoded.is_for(&session));
        assert_eq!(decoded.hint(), Hint::of(&session));
        assert_ne!(decoded.once(), Preamble::decode(&other).unwrap().once());
        assert!(!decoded.is_for(&SessionId([7; 16])));
        // No byte of it can be changed without knowing the id.
        for at in (4..PREAMBLE).filter(|at| ![4, 5].contains(at)) {
            let mut changed = one;
            changed[at] ^= 1;
            if let Ok(changed) = Preamble::decode(&changed) {
                assert!(!changed.is_for(&session), "byte {at}");
            }
        }
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let mut bytes = preamble().encode();
        bytes[4] = 99;
        assert!(matches!(
            Preamble::decode(&bytes),
            Err(BadPreamble::Version(_))
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes: [u8; PREAMBLE], greeting: [u8; GREETING]) {
            let _ = Preamble::decode(&bytes);
            let _ = Greeting::decode(&greeting);
            if let Ok(decoded) = Preamble::decode(&preamble().encode()) {
                prop_assert_eq!((decoded.purpose, decoded.lane, decoded.link), (Purpose::Bulk, 3, 5));
                prop_assert!(decoded.is_for(&preamble().session));
            }
        }
    }
}
