//! The process that is one end of a measured link.
//!
//! It is confined as a worker is, without OpenCL. Its connections prove a secret, as those of links between workers do.
//! The secret is for one measurement. Invariants: nothing but proved connections takes part. The process ends within the
//! measurement's time, or when the supervisor closes its socket.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use causeway_links::{Dialled, Ends, FarNode, dial_any, follow, lanes, lead};
use causeway_proto::preamble::{Introduction, PREAMBLE, Preamble, Purpose, Verdict};
use causeway_security::{Line, ServerTls, SessionCertificate};
use causeway_serving::logging::Logging;
use parking_lot::Mutex;

use super::confine;
use super::service::proof;
use crate::handover::{LinkOrder, LinkOutcome, LinkRole, ToLinkEnd};
use crate::sys;

/// Memory that the process may have, in bytes: mostly stacks of the threads that try addresses.
const MEMORY: u64 = 128 << 20;
/// Most connections that prove the secret at the same time.
const MOST_PROVING: usize = 4 * lanes::ALL;
/// Time for the outcome to be written and the process to end.
const RESERVE: Duration = Duration::from_millis(100);

/// Why a measurement cannot begin.
#[derive(Debug, thiserror::Error)]
enum NotBegun {
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("the supervisor sent no order")]
    NoOrder,
}

/// Runs the process; its entry point.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let Some((channel, _)) = confine::begin("the process that measures a link") else {
        return ExitCode::FAILURE;
    };
    if let Err(error) = run(channel) {
        tracing::warn!(%error, "a link cannot be measured");
        return ExitCode::FAILURE;
    }
    // Threads that try addresses may wait for a name.
    sys::exit_now(0)
}

fn run(channel: OwnedFd) -> Result<(), NotBegun> {
    causeway_confine::limit_memory(MEMORY)?;
    let order = match ToLinkEnd::receive(&channel)? {
        Some(ToLinkEnd::Order(order)) => order,
        // The supervisor is gone.
        None => return Ok(()),
        Some(ToLinkEnd::Connection(..)) => return Err(NotBegun::NoOrder),
    };
    let deadline = Instant::now() + order.terms.limit().saturating_sub(RESERVE);
    match order.role.clone() {
        LinkRole::Dials {
            fingerprint,
            addresses,
        } => {
            let far = FarNode {
                id: order.id,
                secret: order.secret.clone(),
                fingerprint,
                addresses,
            };
            measure(&order, &far, deadline).send(&channel)?;
            Ok(())
        }
        LinkRole::Dialled(certificate) => {
            let channel = Arc::new(channel);
            be_measured(&channel, order, certificate, deadline)?.send(&channel)?;
            Ok(())
        }
    }
}

fn measure(order: &LinkOrder, far: &FarNode, deadline: Instant) -> LinkOutcome {
    let fault = |fault: String, has_streamed| LinkOutcome {
        // The other end, or a stranger, has a part in the text.
        fault: fault.chars().take(500).collect(),
        has_streamed,
        ..LinkOutcome::default()
    };
    // Time for the streams is left after this.
    let reached_by = deadline
        .checked_sub(order.terms.streams())
        .unwrap_or(deadline);
    let Dialled { ends, addresses } = match dial_any(far, reached_by) {
        Ok(dialled) => dialled,
        Err(error) => return fault(error.to_string(), false),
    };
    match lead(ends, &order.terms, deadline) {
        Ok(measured) => {
            let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            LinkOutcome {
                fault: String::new(),
                has_streamed: true,
                from: addresses.0.ip().to_canonical().to_string(),
                to: addresses.1.to_string(),
                least_ns: ns(measured.round_trip.least),
                median_ns: ns(measured.round_trip.median),
                lost: measured.round_trip.lost,
                outward: measured.outward,
                inward: measured.inward,
            }
        }
        Err(error) => fault(error.to_string(), true),
    }
}

/// Collects the connections, and follows the other end's measurement. The outcome says whether there was one.
fn be_measured(
    channel: &Arc<OwnedFd>,
    order: LinkOrder,
    certificate: Option<SessionCertificate>,
    deadline: Instant,
) -> Result<LinkOutcome, NotBegun> {
    let tls = certificate.as_ref().map(SessionCertificate::server);
    let gathering = Arc::new(Gathering {
        tls: tls.transpose()?,
        order,
        deadline,
        lanes: Mutex::default(),
    });
    let (whole, complete) = mpsc::channel();
    let (receiving, channel) = (Arc::clone(&gathering), Arc::clone(channel));
    std::thread::Builder::new()
        .name("link-sockets".into())
        .spawn(move || {
            receiving.receive(&channel, &whole);
            // The supervisor no longer needs the measurement.
            sys::exit_now(0)
        })?;
    // Later ones would have no time for their streams, and others wait for this node.
    let left = gathering.order.terms.connected_within();
    let Ok(ends) = complete.recv_timeout(left.saturating_sub(RESERVE)) else {
        tracing::debug!("the other end of a measured link has not connected in time");
        return Ok(LinkOutcome::default());
    };
    if let Err(error) = follow(ends, &gathering.order.terms, deadline) {
        tracing::debug!(%error, "a measured link has no figures");
    }
    Ok(LinkOutcome {
        has_streamed: true,
        ..LinkOutcome::default()
    })
}

/// The connections of a measurement, as they arrive.
struct Gathering {
    tls: Option<ServerTls>,
    order: LinkOrder,
    deadline: Instant,
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    proving: usize,
    /// `None` until the proof's end. A lane that has been proved is taken for good.
    lines: BTreeMap<u8, Option<Line>>,
}

impl Gathering {
    /// Takes connections until the supervisor closes its socket.
    fn receive(self: &Arc<Self>, channel: &OwnedFd, whole: &mpsc::Sender<Ends>) {
        loop {
            match ToLinkEnd::receive(channel) {
                Ok(Some(ToLinkEnd::Connection(preamble, Some(socket)))) => {
                    self.take(preamble, socket.into(), whole);
                }
                Ok(Some(ToLinkEnd::Connection(_, None))) => {
                    tracing::warn!("a measurement has no free descriptor for a connection");
                }
                Ok(Some(ToLinkEnd::Order(_)) | None) => return,
                Err(error) => {
                    tracing::warn!(%error, "the supervisor's socket failed");
                    return;
                }
            }
        }
    }

    fn take(
        self: &Arc<Self>,
        bytes: [u8; PREAMBLE],
        socket: TcpStream,
        whole: &mpsc::Sender<Ends>,
    ) {
        let preamble = match self.enter(&bytes) {
            Ok(preamble) => preamble,
            Err(verdict) => return proof::refuse(&socket.into(), verdict),
        };
        let (of, whole) = (Arc::clone(self), whole.clone());
        let proving = std::thread::Builder::new().name("proof".into());
        let spawned = proving.spawn(move || {
            let proved = of.prove(&preamble, &bytes, socket);
            if let Some(ends) = of.note(preamble.lane, proved) {
                // The receiver has gone when time is up.
                let _ = whole.send(ends);
            }
        });
        if let Err(error) = spawned {
            self.lanes.lock().proving -= 1;
            tracing::warn!(%error, "cannot start a thread for a new connection");
        }
    }

    /// Counts a connection that is about to prove the secret.
    fn enter(&self, bytes: &[u8; PREAMBLE]) -> Result<Introduction, Verdict> {
        let preamble = Preamble::decode(bytes).map_err(|_| Verdict::Malformed)?;
        if preamble.purpose != Purpose::Measure || usize::from(preamble.lane) >= lanes::ALL {
            return Err(Verdict::Malformed);
        }
        if !preamble.is_for(&self.order.id) {
            return Err(Verdict::UnknownSession);
        }
        let mut lanes = self.lanes.lock();
        if lanes.proving >= MOST_PROVING {
            return Err(Verdict::TooMany);
        }
        lanes.proving += 1;
        Ok(preamble)
    }

    fn prove(
        &self,
        preamble: &Introduction,
        bytes: &[u8; PREAMBLE],
        socket: TcpStream,
    ) -> Result<Line, proof::Refused> {
        let line = proof::secure(socket, preamble.purpose, self.tls.as_ref(), self.deadline)?;
        let claim = |_: &_| {
            let mut lanes = self.lanes.lock();
            match lanes.lines.contains_key(&preamble.lane) {
                true => Err(Verdict::TooMany),
                false => {
                    lanes.lines.insert(preamble.lane, None);
                    Ok(((), 0))
                }
            }
        };
        proof::prove(&line, &self.order.secret, bytes, self.deadline, claim)?;
        Ok(line)
    }

    /// Notes the end of a proof. Returns all connections when they are there.
    fn note(&self, lane: u8, proved: Result<Line, proof::Refused>) -> Option<Ends> {
        let mut lanes = self.lanes.lock();
        lanes.proving -= 1;
        match proved {
            Ok(line) => drop(lanes.lines.insert(lane, Some(line))),
            Err(error) => {
                tracing::debug!(%error, "a connection of a measurement was refused");
                return None;
            }
        }
        let is_whole = lanes.lines.len() == lanes::ALL && lanes.lines.values().all(Option::is_some);
        if !is_whole {
            return None;
        }
        let mut lines = std::mem::take(&mut lanes.lines);
        // The lanes stay taken.
        lanes
            .lines
            .extend((0..lanes::ALL as u8).map(|lane| (lane, None)));
        let mut take = |lane: u8| lines.remove(&lane).flatten();
        Some(Ends {
            control: take(lanes::CONTROL)?,
            up: lanes::UP.map(&mut take).collect::<Option<_>>()?,
            down: lanes::DOWN.map(&mut take).collect::<Option<_>>()?,
        })
    }
}
