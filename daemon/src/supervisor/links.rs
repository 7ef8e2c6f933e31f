//! Measured links: whether the node measures now, the process that does it, and the figures that are kept.
//!
//! The figures belong to the user who asked for them, because that user names the other end, and it may lie. On a node of a
//! device manager, the manager names it, and the figures are for all ([`ClusterLinks`]). Nothing here reads or writes a
//! stream. Invariants: there is one process at most. It has ended, or is killed, within the
//! measurement's time and [`GRACE`]. A measurement without figures changes no kept figure.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_links::{
    Admission, Asker, LinkEntry, LinkMemory, LinkTable, Refused, SessionLoad, Terms, Used,
    WrongDigest, certificate, put_slow_last,
};
use causeway_proto::control::{Link, LinkEnd, LinkSpeed, MeasureLinkReply};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::limits::MAX_LINK_ADDRESSES;
use causeway_proto::preamble::{Introduction, PREAMBLE, Verdict};
use causeway_security::SessionCertificate;
use parking_lot::Mutex;
use tonic::Status;

use super::authentication::User;
use super::cluster_links::ClusterLinks;
use super::description::milliseconds;
use super::process::{Process, Processes, Role};
use super::workers::Workers;
use crate::handover::{self, LinkOrder, LinkOutcome, LinkRole, ToLinkEnd, most_addresses};

/// Time for a process that should have ended.
const GRACE: Duration = Duration::from_millis(500);
/// Time in which sessions are watched before a measurement. A program with rarer commands hardly waits for the network.
const WATCHED_FOR: Duration = Duration::from_millis(200);

/// Shortest stream whose figures count for all users.
const LEAST_FOR_ALL: Duration = Duration::from_millis(500);

/// Measures links. Clones share their state.
#[derive(Clone)]
pub(super) struct Links(Arc<Inner>);

struct Inner {
    processes: Processes,
    workers: Workers,
    /// Whether connections use TLS.
    secures: bool,
    /// `None` without a state folder: figures are not kept.
    memory: Option<LinkMemory>,
    /// The figures for all, if the node belongs to a device manager.
    cluster: ClusterLinks,
    /// What has been read of it, so that callers who ask often cost no memory. `None`: nothing yet.
    kept: Mutex<Option<LinkTable>>,
    state: Mutex<LinksState>,
}

#[derive(Default)]
struct LinksState {
    admission: Admission,
    /// The measurement in which this node is dialled.
    dialled: Option<(SessionId, Arc<OwnedFd>)>,
}

/// What a caller asks for.
pub(super) struct Wanted {
    pub(super) user: User,
    pub(super) terms: Terms,
    pub(super) is_forced: bool,
    /// Whether a device manager names the other end.
    pub(super) is_managed: bool,
}

impl Wanted {
    /// Whether the figures say what the link can do. A user's limit, or too short a time, must not spoil everyone's figures.
    fn says_all(&self) -> bool {
        self.terms.rate.is_none() && self.terms.each() >= LEAST_FOR_ALL
    }
}

/// Why a node does not measure, or why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotMeasured {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the node cannot start a process that measures: {0}")]
    System(#[from] std::io::Error),
    #[error("the link was not measured: {0}")]
    Fault(String),
    #[error("the process that measures the link has ended without an answer; see the node's log")]
    Ended,
    #[error("the request does not name the other end of the link")]
    Nonsense,
    #[error(transparent)]
    WrongDigest(#[from] WrongDigest),
}

impl From<NotMeasured> for Status {
    fn from(error: NotMeasured) -> Status {
        let text = error.to_string();
        match error {
            NotMeasured::Refused(_) | NotMeasured::System(_) => Status::resource_exhausted(text),
            NotMeasured::Fault(_) | NotMeasured::Ended => Status::failed_precondition(text),
            NotMeasured::Nonsense | NotMeasured::WrongDigest(_) => Status::invalid_argument(text),
        }
    }
}

impl Links {
    pub(super) fn new(
        processes: Processes,
        workers: Workers,
        secures: bool,
        memory: Option<LinkMemory>,
        cluster: ClusterLinks,
    ) -> Links {
        Links(Arc::new(Inner {
            processes,
            workers,
            secures,
            memory,
            cluster,
            kept: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// Measures the link to another end, or makes this node the other end if `end` is absent. `own` describes
    /// the node.
    pub(super) async fn measure(
        &self,
        wanted: Wanted,
        end: Option<LinkEnd>,
        own: LinkEnd,
    ) -> Result<MeasureLinkReply, NotMeasured> {
        let sessions = match wanted.is_forced {
            true => SessionLoad::default(),
            false => self.sessions().await,
        };
        let result = match end {
            None => self.be_dialled(&wanted, sessions, own),
            Some(end) => self.dial(wanted, sessions, end).await,
        };
        match result {
            Err(NotMeasured::Refused(Refused::Busy(busy))) => Ok(MeasureLinkReply {
                busy_ms: milliseconds(busy.0).max(1),
                ..MeasureLinkReply::default()
            }),
            other => other,
        }
    }

    /// What sessions do within [`WATCHED_FOR`].
    async fn sessions(&self) -> SessionLoad {
        let workers = &self.0.workers;
        let (before, begun) = (workers.figures(), Instant::now());
        let was_busy = workers.are_busy();
        tokio::time::sleep(WATCHED_FOR).await;
        let after = workers.figures();
        let moved = after.bytes().saturating_sub(before.bytes());
        let rate = moved as f64 / begun.elapsed().as_secs_f64();
        SessionLoad {
            traffic: rate as u64,
            is_active: was_busy || after.commands > before.commands || workers.are_busy(),
        }
    }

    fn be_dialled(
        &self,
        wanted: &Wanted,
        sessions: SessionLoad,
        own: LinkEnd,
    ) -> Result<MeasureLinkReply, NotMeasured> {
        let certificate = match self.0.secures {
            true => Some(SessionCertificate::generate()?),
            false => None,
        };
        let fingerprint = certificate.as_ref().map(SessionCertificate::fingerprint);
        let order = LinkOrder {
            id: SessionId(rand::random()),
            secret: SessionSecret(rand::random()),
            terms: wanted.terms,
            role: LinkRole::Dialled(certificate),
        };
        let end = LinkEnd {
            id: order.id.0.to_vec().into(),
            secret: order.secret.0.to_vec().into(),
            certificate_sha256: fingerprint
                .map(|of| of.0.to_vec().into())
                .unwrap_or_default(),
            ..own
        };
        let running = self.start(&order, wanted, sessions)?;
        self.0.state.lock().dialled = Some((order.id, Arc::clone(&running.channel)));
        tokio::spawn(running.outcome());
        Ok(MeasureLinkReply {
            end: Some(end),
            ..MeasureLinkReply::default()
        })
    }

    async fn dial(
        &self,
        wanted: Wanted,
        sessions: SessionLoad,
        end: LinkEnd,
    ) -> Result<MeasureLinkReply, NotMeasured> {
        let id = <[u8; 16]>::try_from(&end.id[..]);
        let secret = <[u8; 32]>::try_from(&end.secret[..]);
        let (Ok(id), Ok(secret), 16) = (id, secret, end.node_uuid.len()) else {
            return Err(NotMeasured::Nonsense);
        };
        let fingerprint = certificate(&end.certificate_sha256)?;
        let order = LinkOrder {
            id: SessionId(id),
            secret: SessionSecret(secret),
            terms: wanted.terms,
            role: LinkRole::Dials {
                fingerprint,
                addresses: most_addresses(end.addresses.clone()),
            },
        };
        let running = self.start(&order, &wanted, sessions)?;
        // The process goes on if the caller hangs up, so that its end is seen.
        let outcome = tokio::spawn(running.outcome()).await;
        let outcome = outcome.ok().flatten().ok_or(NotMeasured::Ended)?;
        if !outcome.fault.is_empty() {
            return Err(NotMeasured::Fault(outcome.fault));
        }
        let entry = entry(&wanted, &end, &outcome, fingerprint.is_some());
        let entry = entry.ok_or(NotMeasured::Nonsense)?;
        let link = entry.to_wire();
        match (wanted.is_managed, wanted.says_all()) {
            (false, _) => self.keep(entry).await,
            (true, true) => self.keep_for_all(entry).await,
            (true, false) => {}
        }
        Ok(MeasureLinkReply {
            link: Some(link),
            ..MeasureLinkReply::default()
        })
    }

    /// Starts a process with its order, if the node measures now.
    fn start(
        &self,
        order: &LinkOrder,
        wanted: &Wanted,
        sessions: SessionLoad,
    ) -> Result<RunningMeasurement, NotMeasured> {
        let terms = order.terms;
        let times = (terms.streams(), terms.limit() + GRACE);
        let now = Instant::now();
        let asker = Asker {
            user: wanted.user.0.as_deref().unwrap_or(""),
            is_forced: wanted.is_forced,
        };
        let mut state = self.0.state.lock();
        state.admission.begin(now, times, sessions, asker)?;
        drop(state);
        let started = || -> std::io::Result<_> {
            let (ours, theirs) = handover::pair()?;
            let process = self.0.processes.start(Role::Link, theirs)?;
            ToLinkEnd::Order(order.clone()).send(&ours)?;
            Ok((process, ours))
        };
        match started() {
            Ok((process, channel)) => Ok(RunningMeasurement {
                links: self.clone(),
                process: Some(process),
                channel: Arc::new(channel),
                limit: terms.limit() + GRACE,
                has_streamed: true,
            }),
            Err(error) => {
                let mut state = self.0.state.lock();
                state.admission.end(now, Used::NotBegun);
                Err(error.into())
            }
        }
    }

    /// Passes a connection to the process of the measurement that it names.
    ///
    /// # Errors
    /// The connection, with the reason to refuse it.
    pub(super) fn pass(
        &self,
        preamble: &Introduction,
        bytes: [u8; PREAMBLE],
        socket: OwnedFd,
    ) -> Result<(), (OwnedFd, Verdict)> {
        let channel = {
            let state = self.0.state.lock();
            let dialled = state.dialled.as_ref();
            let named = dialled.filter(|(id, _)| preamble.is_for(id));
            named.map(|(_, channel)| Arc::clone(channel))
        };
        let Some(channel) = channel else {
            return Err((socket, Verdict::UnknownSession));
        };
        let message = ToLinkEnd::Connection(bytes, Some(socket));
        let sent = message.send(&channel);
        match (sent, message) {
            (Err(_), ToLinkEnd::Connection(_, Some(socket))) => Err((socket, Verdict::TooMany)),
            _ => Ok(()),
        }
    }

    /// The figures that a user has had measured.
    pub(super) async fn of(&self, User(user): &User) -> Vec<Link> {
        let (links, user) = (self.clone(), user.clone().unwrap_or_default());
        let read = tokio::task::spawn_blocking(move || links.read(&user)).await;
        read.unwrap_or_default()
    }

    fn read(&self, user: &str) -> Vec<Link> {
        let Some(memory) = &self.0.memory else {
            return Vec::new();
        };
        let mut kept = self.0.kept.lock();
        let table = kept.get_or_insert_with(|| {
            memory.table().unwrap_or_else(|error| {
                tracing::warn!(%error, "the kept figures of links cannot be used");
                LinkTable::default()
            })
        });
        let own = table.entries().iter().filter(|of| of.user == user);
        own.map(LinkEntry::to_wire).collect()
    }

    async fn keep_for_all(&self, entry: LinkEntry) {
        let cluster = self.0.cluster.clone();
        let entry = LinkEntry {
            user: String::new(),
            ..entry
        };
        if let Err(error) = tokio::task::spawn_blocking(move || cluster.keep(entry)).await {
            tracing::error!(%error, "the figures of a link are not kept");
        }
    }

    async fn keep(&self, entry: LinkEntry) {
        let links = self.clone();
        let keep = move || {
            let Some(memory) = &links.0.memory else {
                return;
            };
            let mut kept = links.0.kept.lock();
            // The next reader sees what others have deleted, too.
            *kept = None;
            if let Err(error) = memory.keep(vec![entry]) {
                tracing::warn!(%error, "the figures of a link are not kept");
            }
        };
        if let Err(error) = tokio::task::spawn_blocking(keep).await {
            tracing::error!(%error, "the figures of a link are not kept");
        }
    }
}

/// The other end with its addresses in the order of links between workers. `own` are the speeds of this node's interfaces.
pub(super) fn ordered(mut end: LinkEnd, own: &[LinkSpeed]) -> LinkEnd {
    // The caller has sent them. A node tells fewer.
    end.addresses.truncate(MAX_LINK_ADDRESSES);
    end.link_speeds.truncate(MAX_LINK_ADDRESSES);
    // Loopback addresses have no speed, and lead to the other end on one machine only.
    let is_loopback = |address: &String| {
        let address = address.parse::<SocketAddr>();
        address.is_ok_and(|at| causeway_serving::is_loopback(&at))
    };
    let (loopback, mut others): (Vec<_>, Vec<_>) = end.addresses.into_iter().partition(is_loopback);
    put_slow_last(&mut others, &end.link_speeds, own);
    others.extend(loopback);
    end.addresses = others;
    end
}

/// A measurement in progress.
struct RunningMeasurement {
    links: Links,
    process: Option<Process>,
    channel: Arc<OwnedFd>,
    limit: Duration,
    /// Whether the measurement has loaded the network. It may have, if the process ends without a word.
    has_streamed: bool,
}

impl RunningMeasurement {
    /// Waits for the end of the process. Returns its last message.
    async fn outcome(mut self) -> Option<LinkOutcome> {
        let mut process = self.process.take()?;
        if tokio::time::timeout(self.limit, process.wait())
            .await
            .is_err()
        {
            tracing::warn!("a process that measures a link is killed, because it takes too long");
            process.end().await;
        }
        // The process has ended, so nothing more can come.
        let outcome = LinkOutcome::receive(&self.channel).ok().flatten();
        if let Some(outcome) = &outcome {
            self.has_streamed = outcome.has_streamed;
        }
        outcome
    }
}

impl Drop for RunningMeasurement {
    fn drop(&mut self) {
        let mut state = self.links.0.state.lock();
        state.dialled = None;
        let used = match self.has_streamed {
            true => Used::Streams,
            false => Used::Nothing,
        };
        state.admission.end(Instant::now(), used);
    }
}

/// What is kept of a measurement. `None` if the process says nonsense.
fn entry(wanted: &Wanted, end: &LinkEnd, outcome: &LinkOutcome, tls: bool) -> Option<LinkEntry> {
    let from: IpAddr = outcome.from.parse().ok()?;
    let to: SocketAddr = outcome.to.parse().ok()?;
    let name = end.node_name.chars().filter(|of| !of.is_control());
    let peer = end.node_uuid.iter().map(|byte| format!("{byte:02x}"));
    Some(LinkEntry {
        name: name.take(60).collect(),
        user: wanted.user.0.clone().unwrap_or_default(),
        least_ns: outcome.least_ns,
        median_ns: outcome.median_ns,
        lost: outcome.lost,
        outward: outcome.outward,
        inward: outcome.inward,
        stream_ms: milliseconds(wanted.terms.each()),
        tls,
        when: causeway_links::seconds_now(),
        ..LinkEntry::unmeasured(peer.collect(), from, to)
    })
}
