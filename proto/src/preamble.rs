//! The first bytes of every connection that belongs to a session, and the proof of its secret.
//!
//! ```text
//! client → supervisor   preamble, 32 bytes: magic, version, purpose, lane, route, link
//!          supervisor ⇒ worker: the socket itself
//! worker → client       greeting, 40 bytes: verdict, version, worker's nonce
//! client → worker       64 bytes: client's nonce, HMAC-SHA256(secret, "client" ‖ preamble ‖ nonces)
//! worker → client       32 bytes: HMAC-SHA256(secret, "worker" ‖ preamble ‖ nonces)
//! ```
//! A refusal (by supervisor or worker) is a greeting with a verdict other than [`Verdict::Welcome`],
//! after which the connection closes. With TLS, the worker's handshake comes between the preamble and
//! the greeting. What the purpose's protocol says comes after the last step.
//!
//! Between two workers the dialling one is the client here, and the secret is that of their link, which
//! the client of both sessions gave them.
//!
//! The route leads to the session without showing its id: a hint of two bytes, six bytes that no other connection of the
//! session has, and the first eight of HMAC-SHA256(id, "route" ‖ the rest of the preamble). Whoever sees a preamble on
//! its way can neither make another one for the session nor use this one again.
//!
//! The supervisor tells the protocols on its port apart by the first byte: `P` opens HTTP/2, 0x16
//! TLS, [`MAGIC`] a preamble.

use std::ops::Range;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::id::{SessionId, SessionSecret};
use crate::version::{self, VersionMismatch, WireVersion};

/// Opens every preamble and greeting.
pub const MAGIC: [u8; 4] = *b"CSWY";
/// Bytes of a preamble.
pub const PREAMBLE: usize = 32;
/// Bytes of a greeting.
pub const GREETING: usize = 40;
/// Bytes of the client's proof: nonce and MAC.
pub const CLIENT_PROOF: usize = 64;
/// Bytes of the worker's proof.
pub const WORKER_PROOF: usize = 32;
/// Bytes of a nonce.
pub const NONCE: usize = 32;

/// The lane of a link's connection for events; its others count from 0.
pub const EVENT_LANE: u8 = 255;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// Command and event batches as [`frame`](crate::frame)s.
    Commands = 1,
    /// The same over gRPC (HTTP/2 follows).
    CommandsGrpc = 2,
    /// Bulk data.
    Bulk = 3,
    /// Heartbeats: the worker sends one zero byte an interval; the client sends nothing.
    Pulse = 4,
    /// Bulk data, or words about events ([`EVENT_LANE`]), between the workers of two sessions.
    Peer = 5,
    /// Bulk data through memory that both ends have; over a Unix socket and nothing else, so that nobody
    /// can stand between the two on another machine.
    SharedBulk = 6,
}

/// The client's first 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// What for.
    pub purpose: Purpose,
    /// Which of several connections of the same purpose.
    pub lane: u8,
    /// Whose. It is not shown.
    pub session: SessionId,
    /// Of [`Purpose::Peer`]: which link; else 0.
    pub link: u64,
}

/// A preamble as it is read: who knows a session's id can tell whether the connection is for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// What for.
    pub purpose: Purpose,
    /// Which of several connections of the same purpose.
    pub lane: u8,
    /// Of [`Purpose::Peer`]: which link; else 0.
    pub link: u64,
    bytes: [u8; PREAMBLE],
}

/// By which a session is found among others; several may have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint([u8; 2]);

/// What no other connection of a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Once([u8; 6]);

// Where the parts of the route lie.
const HINT: Range<usize> = 8..10;
const ONCE: Range<usize> = 10..16;
const MARK: Range<usize> = 16..24;

impl Hint {
    /// Of connections for this session.
    #[must_use]
    pub fn of(session: &SessionId) -> Hint {
        let [a, b, ..] = keyed(session, &[b"hint"]);
        Hint([a, b])
    }
}

impl Introduction {
    /// For which sessions it may be.
    #[must_use]
    pub fn hint(&self) -> Hint {
        Hint([self.bytes[HINT.start], self.bytes[HINT.start + 1]])
    }

    /// What no other connection of its session has.
    #[must_use]
    pub fn once(&self) -> Once {
        Once(std::array::from_fn(|i| self.bytes[ONCE.start + i]))
    }

    /// Whether it is for this session.
    #[must_use]
    pub fn is_for(&self, session: &SessionId) -> bool {
        self.hint() == Hint::of(session)
            && bool::from(mark(session, &self.bytes).ct_eq(&self.bytes[MARK]))
    }
}

fn mark(session: &SessionId, preamble: &[u8; PREAMBLE]) -> [u8; 8] {
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
    /// Not ours.
    #[error("the connection does not open with Causeway's preamble")]
    Magic,
    /// Another version of the wire.
    #[error(transparent)]
    Version(#[from] VersionMismatch),
    /// Unknown purpose.
    #[error("unknown purpose {0}")]
    Purpose(u8),
}

impl Preamble {
    /// The bytes that travel: each time others, for one connection.
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

    /// Reads what [`Preamble::encode`] made.
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
            4 => Purpose::Pulse,
            5 => Purpose::Peer,
            6 => Purpose::SharedBulk,
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

/// What the node says to a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Verdict {
    /// Go on with the proof.
    #[error("welcome")]
    Welcome = 0,
    /// The preamble made no sense to the node.
    #[error("the node did not understand the preamble")]
    Malformed = 1,
    /// The versions differ.
    #[error("the node speaks another version of the wire")]
    Version = 2,
    /// No such session here (any more).
    #[error("the node does not know this session")]
    UnknownSession = 3,
    /// Too many connections of this purpose.
    #[error("the session has its full number of connections")]
    TooMany = 4,
    /// The secret was not proved.
    #[error("the session's secret was not proved")]
    Unproved = 5,
    /// The client has not told this end of the link (yet).
    #[error("the node does not know this link")]
    UnknownLink = 6,
}

/// The node's answer to a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Accepted or why not.
    pub verdict: Verdict,
    /// The node's wire version.
    pub version: u16,
    /// The worker's nonce; zero in a refusal.
    pub nonce: [u8; NONCE],
}

impl Greeting {
    /// Accepts, with a fresh nonce.
    #[must_use]
    pub fn welcome() -> Greeting {
        Greeting {
            verdict: Verdict::Welcome,
            version: WireVersion::CURRENT.number(),
            nonce: fresh_nonce(),
        }
    }

    /// Refuses.
    #[must_use]
    pub fn refusal(verdict: Verdict) -> Greeting {
        Greeting {
            verdict,
            version: WireVersion::CURRENT.number(),
            nonce: [0; NONCE],
        }
    }

    /// The bytes that travel.
    #[must_use]
    pub fn encode(&self) -> [u8; GREETING] {
        let mut out = [0; GREETING];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&self.version.to_le_bytes());
        out[6] = self.verdict as u8;
        out[8..].copy_from_slice(&self.nonce);
        out
    }

    /// Reads what [`Greeting::encode`] made.
    ///
    /// # Errors
    /// [`BadPreamble`] when the peer is no Causeway node.
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

/// The client's proof, with its nonce in front.
#[must_use]
pub fn client_proof(
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    worker_nonce: &[u8; NONCE],
) -> [u8; CLIENT_PROOF] {
    let nonce = fresh_nonce();
    let mac = proof(secret, b"client", preamble, worker_nonce, &nonce);
    let mut out = [0; CLIENT_PROOF];
    out[..NONCE].copy_from_slice(&nonce);
    out[NONCE..].copy_from_slice(&mac);
    out
}

/// Checks the client's proof; the worker's own proof when it holds.
#[must_use]
pub fn check_client_proof(
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    worker_nonce: &[u8; NONCE],
    client: &[u8; CLIENT_PROOF],
) -> Option<[u8; WORKER_PROOF]> {
    let nonce: [u8; NONCE] = std::array::from_fn(|i| client[i]);
    let expected = proof(secret, b"client", preamble, worker_nonce, &nonce);
    bool::from(expected[..].ct_eq(&client[NONCE..]))
        .then(|| proof(secret, b"worker", preamble, worker_nonce, &nonce))
}

/// Checks the worker's proof against the client's own message.
#[must_use]
pub fn check_worker_proof(
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    worker_nonce: &[u8; NONCE],
    client: &[u8; CLIENT_PROOF],
    worker: &[u8; WORKER_PROOF],
) -> bool {
    let nonce: [u8; NONCE] = std::array::from_fn(|i| client[i]);
    let expected = proof(secret, b"worker", preamble, worker_nonce, &nonce);
    bool::from(expected[..].ct_eq(&worker[..]))
}

fn proof(
    secret: &SessionSecret,
    role: &[u8],
    preamble: &[u8; PREAMBLE],
    worker_nonce: &[u8; NONCE],
    client_nonce: &[u8; NONCE],
) -> [u8; 32] {
    // A key of any length is valid for HMAC, so this cannot fail.
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes any key");
    for part in [role, preamble.as_slice(), worker_nonce, client_nonce] {
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
    fn both_sides_prove_the_secret() {
        let (secret, stranger) = (SessionSecret([1; 32]), SessionSecret([2; 32]));
        let bytes = preamble().encode();
        let greeting = Greeting::decode(&Greeting::welcome().encode()).unwrap();
        let client = client_proof(&secret, &bytes, &greeting.nonce);
        let worker = check_client_proof(&secret, &bytes, &greeting.nonce, &client).unwrap();
        assert!(check_worker_proof(
            &secret,
            &bytes,
            &greeting.nonce,
            &client,
            &worker
        ));
        assert!(!check_worker_proof(
            &stranger,
            &bytes,
            &greeting.nonce,
            &client,
            &worker
        ));
        assert_eq!(
            check_client_proof(&stranger, &bytes, &greeting.nonce, &client),
            None
        );
        let other = Preamble {
            lane: 4,
            ..preamble()
        }
        .encode();
        assert_eq!(
            check_client_proof(&secret, &other, &greeting.nonce, &client),
            None
        );
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
        // Nothing of it can be changed without the id.
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
