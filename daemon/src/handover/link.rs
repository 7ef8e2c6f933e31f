//! The messages between the supervisor and a process that measures a link.
//!
//! The supervisor sends the order first. The process of the end that is dialled then gets connections, as workers do. The
//! process sends its outcome, and ends. Both ends are the same binary, so the format has no version.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use causeway_links::Terms;
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::PREAMBLE;
use causeway_security::{Fingerprint, Secret, SessionCertificate};
use prost::Message;

use super::{CONNECTION, MAX_MESSAGE, nonsense, receive, send};

const ORDER: u8 = 1;
const OUTCOME: u8 = 2;

/// What a process is to measure.
#[derive(Clone, Debug)]
pub struct LinkOrder {
    /// The measurement.
    pub id: SessionId,
    /// Both ends prove that they know it.
    pub secret: SessionSecret,
    /// Duration and rate.
    pub terms: Terms,
    /// Which end the process is.
    pub role: LinkRole,
}

/// An end of a link.
#[derive(Clone, Debug)]
pub enum LinkRole {
    /// The end that is dialled, with its certificate; `None`: no TLS.
    Dialled(Option<SessionCertificate>),
    /// The end that dials.
    Dials {
        /// Digest of the other end's certificate.
        fingerprint: Option<Fingerprint>,
        /// Where the other end's node listens.
        addresses: Vec<String>,
    },
}

/// Messages from the supervisor.
#[derive(Debug)]
pub enum ToLinkEnd {
    /// The first message.
    Order(LinkOrder),
    /// A connection that named this measurement, with the bytes that were read from it. `None`: this process has no free
    /// descriptor.
    Connection([u8; PREAMBLE], Option<OwnedFd>),
}

/// What has come of a measurement.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LinkOutcome {
    /// Why there are no figures, for people; empty: there are.
    #[prost(string, tag = "1")]
    pub fault: String,
    /// Whether the other end was reached, so that streams may have begun.
    #[prost(bool, tag = "2")]
    pub has_streamed: bool,
    /// This end's address.
    #[prost(string, tag = "3")]
    pub from: String,
    /// The other end's address.
    #[prost(string, tag = "4")]
    pub to: String,
    /// Shortest round trip in nanoseconds.
    #[prost(uint64, tag = "5")]
    pub least_ns: u64,
    /// Median of the round trips in nanoseconds.
    #[prost(uint64, tag = "6")]
    pub median_ns: u64,
    /// Number of lost probes.
    #[prost(uint32, tag = "7")]
    pub lost: u32,
    /// Bytes per second to the other end.
    #[prost(uint64, tag = "8")]
    pub outward: u64,
    /// Bytes per second from the other end.
    #[prost(uint64, tag = "9")]
    pub inward: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Encoded {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    secret: Vec<u8>,
    #[prost(uint64, tag = "3")]
    stream_ms: u64,
    #[prost(uint64, tag = "4")]
    rate: u64,
    #[prost(bool, tag = "5")]
    dials: bool,
    #[prost(bytes = "vec", tag = "6")]
    certificate: Vec<u8>,
    #[prost(bytes = "vec", tag = "7")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "8")]
    fingerprint: Vec<u8>,
    #[prost(string, repeated, tag = "9")]
    addresses: Vec<String>,
}

/// The addresses that fit into an order, the first ones.
pub fn most_addresses(addresses: Vec<String>) -> Vec<String> {
    let mut left = MAX_MESSAGE / 2;
    let fits = |address: &String| {
        let fits = address.len() + 4 <= left;
        left = left.saturating_sub(address.len() + 4);
        fits
    };
    addresses.into_iter().take_while(fits).collect()
}

impl LinkOrder {
    fn encode(&self) -> Vec<u8> {
        let mut encoded = Encoded {
            id: self.id.0.to_vec(),
            secret: self.secret.0.to_vec(),
            stream_ms: u64::try_from(self.terms.each().as_millis()).unwrap_or(u64::MAX),
            rate: self.terms.rate.unwrap_or(0),
            ..Encoded::default()
        };
        match &self.role {
            LinkRole::Dialled(None) => {}
            LinkRole::Dialled(Some(certificate)) => {
                encoded.certificate.clone_from(&certificate.certificate);
                encoded.key = certificate.key.reveal().to_vec();
            }
            LinkRole::Dials {
                fingerprint,
                addresses,
            } => {
                encoded.dials = true;
                encoded.fingerprint = fingerprint.map(|of| of.0.to_vec()).unwrap_or_default();
                encoded.addresses.clone_from(addresses);
            }
        }
        encoded.encode_to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<LinkOrder> {
        let encoded = Encoded::decode(bytes).ok()?;
        let each = Duration::from_millis(encoded.stream_ms);
        let rate = Some(encoded.rate).filter(|rate| *rate > 0);
        let role =
            match encoded.dials {
                true => LinkRole::Dials {
                    fingerprint: causeway_links::certificate(&encoded.fingerprint).ok()?,
                    addresses: encoded.addresses,
                },
                false => LinkRole::Dialled((!encoded.certificate.is_empty()).then(|| {
                    SessionCertificate {
                        certificate: encoded.certificate,
                        key: Secret::new(encoded.key),
                    }
                })),
            };
        Some(LinkOrder {
            id: SessionId(encoded.id.try_into().ok()?),
            secret: SessionSecret(encoded.secret.try_into().ok()?),
            terms: Terms::new(each, rate)?,
            role,
        })
    }
}

impl ToLinkEnd {
    /// Sends the message to the process.
    ///
    /// # Errors
    /// As [`send_to_worker`](super::send_to_worker).
    pub fn send(&self, end: impl AsFd) -> io::Result<()> {
        match self {
            ToLinkEnd::Order(order) => send(end, &[&[ORDER], &order.encode()[..]].concat(), None),
            ToLinkEnd::Connection(preamble, socket) => {
                let bytes = [&[CONNECTION], &preamble[..]].concat();
                send(end, &bytes, socket.as_ref().map(AsFd::as_fd))
            }
        }
    }

    /// Receives the next message in the process; `None` once the supervisor has closed its end.
    ///
    /// # Errors
    /// As [`receive_in_worker`](super::receive_in_worker).
    pub fn receive(end: impl AsFd) -> io::Result<Option<ToLinkEnd>> {
        let Some((bytes, descriptor)) = receive(end)? else {
            return Ok(None);
        };
        match (bytes.split_first(), descriptor) {
            (Some((&ORDER, order)), None) => LinkOrder::decode(order)
                .map(|order| Some(ToLinkEnd::Order(order)))
                .ok_or_else(nonsense),
            (Some((&CONNECTION, preamble)), socket) => {
                let preamble = preamble.try_into().map_err(|_| nonsense())?;
                Ok(Some(ToLinkEnd::Connection(preamble, socket)))
            }
            _ => Err(nonsense()),
        }
    }
}

impl LinkOutcome {
    /// Sends the outcome to the supervisor.
    ///
    /// # Errors
    /// The system's error.
    pub fn send(&self, end: impl AsFd) -> io::Result<()> {
        send(end, &[&[OUTCOME], &self.encode_to_vec()[..]].concat(), None)
    }

    /// Receives the outcome in the supervisor; `None` if the process has ended without one.
    ///
    /// # Errors
    /// As [`receive_in_supervisor`](super::receive_in_supervisor).
    pub fn receive(end: impl AsFd) -> io::Result<Option<LinkOutcome>> {
        let Some((bytes, _)) = receive(end)? else {
            return Ok(None);
        };
        match bytes.split_first() {
            Some((&OUTCOME, outcome)) => LinkOutcome::decode(outcome)
                .map(Some)
                .map_err(|_| nonsense()),
            _ => Err(nonsense()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(role: LinkRole) -> LinkOrder {
        LinkOrder {
            id: SessionId([3; 16]),
            secret: SessionSecret([4; 32]),
            terms: Terms::new(Duration::from_millis(500), Some(9)).unwrap(),
            role,
        }
    }

    #[test]
    fn orders_and_outcomes_arrive_as_they_were() {
        let (ours, theirs) = super::super::pair().unwrap();
        let certificate = SessionCertificate::generate().unwrap();
        let addresses = most_addresses(vec!["x".repeat(253); 32]);
        assert_eq!(addresses.len(), 7);
        for role in [
            LinkRole::Dialled(None),
            LinkRole::Dialled(Some(certificate)),
            LinkRole::Dials {
                fingerprint: Some(Fingerprint([5; 32])),
                addresses,
            },
        ] {
            let sent = order(role);
            ToLinkEnd::Order(sent.clone()).send(&ours).unwrap();
            let Ok(Some(ToLinkEnd::Order(came))) = ToLinkEnd::receive(&theirs) else {
                panic!("no order");
            };
            assert_eq!(came.encode(), sent.encode());
            assert_eq!((came.id, came.terms), (sent.id, sent.terms));
        }
        let outcome = LinkOutcome {
            fault: "none".to_owned(),
            inward: 7,
            ..LinkOutcome::default()
        };
        outcome.send(&theirs).unwrap();
        assert_eq!(LinkOutcome::receive(&ours).unwrap(), Some(outcome));
        drop(theirs);
        assert_eq!(LinkOutcome::receive(&ours).unwrap(), None);
    }

    #[test]
    fn wrong_messages_are_refused() {
        let (ours, theirs) = super::super::pair().unwrap();
        for wrong in [&[9][..], &[ORDER], &[ORDER, 8, 8], &[CONNECTION, 1]] {
            send(&ours, wrong, None).unwrap();
            assert!(ToLinkEnd::receive(&theirs).is_err(), "{wrong:?}");
        }
        send(&theirs, &[OUTCOME, 0xff], None).unwrap();
        assert!(LinkOutcome::receive(&ours).is_err());
    }
}
