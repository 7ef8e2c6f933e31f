//! Nodes that announce themselves, and those that did so earlier: which of them are dialled, and when.
//!
//! The configuration says which ones may be used ([`Settings::server_found`], [`Settings::server_remembered`]). Invariants:
//! a call dials found nodes for a second at most, counted from its beginning. A node that did not answer is dialled again after a pause, which doubles up
//! to a minute. The order of the nodes depends on their names and uuids, never on when their answers came.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_discovery::{Found, Interfaces, NodeId, Run};
use causeway_proto::span::pause;
use parking_lot::Mutex;

use crate::config::remembered::{NodeMemory, RememberedNode};
use crate::config::{ServerSettings, Settings};
use crate::thread::{self, Stack};
use crate::transport::finder::{Finder, Snapshot};
use crate::transport::{self, ENUMERATION_LIMIT, Node, Reply, Target};

/// Pauses before a node that did not answer is dialled again: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Time for dialling that is left to a call, however long announcements took.
const LEAST: Duration = Duration::from_millis(200);
/// Time for dialling remembered nodes. The rest of the second is for those that are found.
const RECALL_LIMIT: Duration = Duration::from_millis(800);
/// Most nodes that one call dials.
const MOST: usize = 64;
/// Remembered nodes stand for any run of theirs.
const ANY_RUN: Run = [0; 8];

type Claim = (String, NodeId, Run);

/// Looks for nodes and dials them.
#[derive(Debug)]
pub(in crate::stub) struct Finding {
    settings: &'static Settings,
    finder: Arc<Finder>,
    /// Whether a thread looks for nodes whose sessions have no connection.
    is_following: Arc<AtomicBool>,
    /// The claims that were dialled in vain.
    failed: Mutex<HashMap<Claim, Failed>>,
    /// The nodes that were remembered when the first call asked for them.
    remembered: OnceLock<Vec<RememberedNode>>,
    /// Whether a problem with the file of remembered nodes has been reported.
    has_warned: AtomicBool,
}

/// A node that has answered, or why it has not.
pub(in crate::stub) struct Answered {
    claim: Claim,
    pub(in crate::stub) target: Target,
    pub(in crate::stub) reply: Reply,
}

/// Remembered nodes that are being dialled.
pub(in crate::stub) struct Recalling {
    due: Vec<(Claim, Target)>,
    replies: JoinHandle<Vec<(Target, Reply)>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Failed {
    times: u32,
    not_before: Option<Instant>,
}

impl Finding {
    pub(in crate::stub) fn new(settings: &'static Settings) -> Finding {
        Finding {
            settings,
            finder: Arc::new(Finder::new(settings)),
            is_following: Arc::default(),
            failed: Mutex::default(),
            remembered: OnceLock::new(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Begins to dial the remembered nodes, except those that are known. `None` if there are none. Does not wait.
    pub(in crate::stub) fn recall(
        &self,
        asked: Instant,
        is_known: impl Fn(&[u8]) -> bool,
    ) -> Option<Recalling> {
        let remembered = self.remembered.get_or_init(|| self.remembered());
        let claim = |node: &RememberedNode| (node.name.clone(), node.uuid, ANY_RUN);
        let is_due =
            |node: &&RememberedNode| !is_known(&node.uuid) && !self.is_paused(&claim(node), asked);
        let mut nodes = remembered.iter().filter(is_due).peekable();
        nodes.peek()?;
        // A host that cannot list its interfaces finds nothing either, and says so.
        let interfaces = Interfaces::of_host().ok()?;
        let mut due = Vec::new();
        for node in nodes {
            match self.settings.server_remembered(node, &interfaces) {
                Ok(server) => due.push((claim(node), Target::from(server))),
                Err(reason) => {
                    tracing::debug!("node {} is remembered and not used: {reason}", node.name);
                }
            }
        }
        if due.is_empty() {
            return None;
        }
        let nodes = by_uuid(&due);
        let dialling = move || transport::ask_found(nodes, asked + RECALL_LIMIT);
        match thread::start("cw-recall", Stack::Runtime, dialling) {
            Ok(replies) => Some(Recalling { due, replies }),
            Err(error) => {
                tracing::warn!("remembered nodes are not asked: {error}");
                None
            }
        }
    }

    /// Waits for the remembered nodes that are being dialled. Returns the answers, ordered by name, then uuid.
    pub(in crate::stub) fn recalled(&self, recalling: Recalling) -> Vec<Answered> {
        // The panic of that thread was reported already.
        let replies = recalling.replies.join().unwrap_or_default();
        self.answers(recalling.due, replies)
    }

    /// Remembers nodes that are used: their names, uuids and addresses. A problem is reported once.
    pub(in crate::stub) fn remember(&self, used: &[RememberedNode]) {
        let Some(memory) = &self.settings.discovery.memory else {
            return;
        };
        if let (false, Err(error)) = (used.is_empty(), memory.remember(used)) {
            self.warn(&format!("found nodes are not remembered: {error}"));
        }
    }

    fn remembered(&self) -> Vec<RememberedNode> {
        let memory = self.settings.discovery.memory.as_ref();
        let nodes = memory.map_or(Ok(Vec::new()), NodeMemory::nodes);
        nodes.unwrap_or_else(|error| {
            self.warn(&format!("no node is remembered: {error}"));
            Vec::new()
        })
    }

    fn warn(&self, text: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("{text}");
        }
    }

    /// Looks for a node whose session has no connection. The session goes on where the node is now. Does not wait.
    pub(in crate::stub) fn follow(&self, node: &Arc<Node>) {
        if self.is_following.swap(true, Ordering::AcqRel) {
            return;
        }
        let (settings, node) = (self.settings, Arc::clone(node));
        let (finder, is_following) = (Arc::clone(&self.finder), Arc::clone(&self.is_following));
        let following = move || {
            let over = Over(is_following);
            finder.begin();
            finder.wait_for_all();
            if let Some((uuid, server)) = moved(settings, &finder.snapshot(), &node) {
                node.move_to(uuid, server);
            }
            drop(over);
        };
        if !thread::spawn("cw-follow", Stack::Runtime, following) {
            self.is_following.store(false, Ordering::Release);
        }
    }

    /// Asks for announcements, unless that was done a short time ago. Does not wait.
    pub(in crate::stub) fn begin(&self) {
        self.finder.begin();
    }

    /// Waits for announcements.
    pub(in crate::stub) fn wait(&self) {
        self.finder.wait();
    }

    /// Dials the nodes that were found and may be used, except those that are known. Returns the answers, ordered by
    /// name, then uuid. `asked` is when the caller's query began.
    pub(in crate::stub) fn ask(
        &self,
        asked: Instant,
        is_known: impl Fn(&Found) -> bool,
    ) -> Vec<Answered> {
        let snapshot = self.finder.snapshot();
        let due = self.due(&snapshot, Instant::now(), is_known);
        if due.is_empty() {
            return Vec::new();
        }
        let deadline = (asked + ENUMERATION_LIMIT).max(Instant::now() + LEAST);
        let replies = transport::ask_found(by_uuid(&due), deadline);
        self.answers(due, replies)
    }

    /// Notes the nodes' replies, and returns them ordered by name, then uuid.
    fn answers(&self, due: Vec<(Claim, Target)>, replies: Vec<(Target, Reply)>) -> Vec<Answered> {
        let mut answers = Vec::new();
        for ((claim, _), (target, reply)) in due.into_iter().zip(replies) {
            self.note(&claim, &reply, Instant::now());
            answers.push(Answered {
                claim,
                target,
                reply,
            });
        }
        answers.sort_by(|one, other| one.claim.cmp(&other.claim));
        answers
    }

    /// Reports that a node that has answered and the one in use are copies of one machine. The node is not dialled for a
    /// while.
    pub(in crate::stub) fn set_aside(&self, copy: &Answered, used: &str) {
        let of = Failed {
            times: u32::MAX,
            not_before: Some(Instant::now() + PAUSES.1),
        };
        let before = self.failed.lock().insert(copy.claim.clone(), of);
        if before.is_none() {
            let name = copy.target.server.name.as_deref().unwrap_or_default();
            let other = format!("{name} ({})", copy.target.server.address);
            tracing::warn!("{}", transport::copied(used, &other));
        }
    }

    /// The nodes to dial now: those of the user's own CA first. Hosts take turns, so that one which announces many nodes
    /// does not stand before all others.
    fn due(
        &self,
        snapshot: &Snapshot,
        now: Instant,
        is_known: impl Fn(&Found) -> bool,
    ) -> Vec<(Claim, Target)> {
        let own_cas = &snapshot.own_cas;
        let is_own = |found: &Found| {
            found
                .announcement
                .ca
                .is_some_and(|ca| own_cas.contains(&ca))
        };
        let mut of_host: HashMap<Option<IpAddr>, usize> = HashMap::new();
        let mut turn = |found: &Found| {
            let source = found.places.iter().find(|place| place.is_source);
            let turn = of_host
                .entry(source.map(|place| place.address))
                .or_default();
            *turn += 1;
            *turn
        };
        let mut found: Vec<(bool, usize, &Found)> = (snapshot.found.iter())
            .map(|found| (!is_own(found), turn(found), found))
            .collect();
        found.sort_by_key(|(is_other, turn, _)| (*is_other, *turn));
        let mut due = Vec::new();
        for (.., found) in found {
            let said = &found.announcement;
            let claim = (found.name.clone(), said.id, said.run);
            if is_known(found) || self.is_paused(&claim, now) {
                continue;
            }
            match self.settings.server_found(found, &snapshot.interfaces) {
                Ok(server) => due.push((claim, Target::from(server))),
                Err(reason) => {
                    tracing::debug!("node {} was found and is not used: {reason}", found.name)
                }
            }
            if due.len() == MOST {
                break;
            }
        }
        due
    }

    fn is_paused(&self, claim: &Claim, now: Instant) -> bool {
        let failed = self.failed.lock();
        let not_before = failed.get(claim).and_then(|of| of.not_before);
        not_before.is_some_and(|at| now < at)
    }

    fn note(&self, claim: &Claim, reply: &Reply, now: Instant) {
        let mut failed = self.failed.lock();
        let Err(error) = &reply.inventory else {
            // The pause of a copy that was set aside goes on.
            if failed.get(claim).is_some_and(|of| of.times < u32::MAX) {
                failed.remove(claim);
            }
            return;
        };
        let name = &claim.0;
        tracing::debug!("found node {name} did not answer: {error}");
        // Strangers may make up claims, so the table is bounded.
        if failed.len() < 1024 || failed.contains_key(claim) {
            let of = failed.entry(claim.clone()).or_default();
            of.not_before = Some(now + pause(PAUSES, of.times));
            of.times = of.times.saturating_add(1);
        }
    }
}

/// Where a node is now, with its uuid, if that is somewhere else.
fn moved(
    settings: &Settings,
    snapshot: &Snapshot,
    node: &Arc<Node>,
) -> Option<(Bytes, ServerSettings)> {
    let (known, uuid) = (node.target().server, node.inventory()?.node_uuid.clone());
    let is_it =
        |of: &&Found| of.announcement.id == uuid[..] && known.name.as_ref() == Some(&of.name);
    let found = snapshot.found.iter().filter(is_it);
    let servers = found.filter_map(|of| settings.server_found(of, &snapshot.interfaces).ok());
    // The session dials the addresses that it knows by itself.
    let elsewhere = servers.filter(|of| of.addresses().any(|address| !known.is_at(address)));
    let targets = elsewhere.map(|server| (uuid.clone(), Target::from(server)));
    let deadline = Instant::now() + ENUMERATION_LIMIT;
    let answers = transport::ask_found(targets.collect(), deadline);
    let mut answers = answers
        .into_iter()
        .filter(|(_, reply)| reply.inventory.is_ok());
    answers.next().map(|(target, _)| (uuid, target.server))
}

/// Says, when dropped, that the thread which follows nodes has ended.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn by_uuid(due: &[(Claim, Target)]) -> Vec<(Bytes, Target)> {
    let nodes = due.iter().map(|(claim, target)| {
        let uuid = Bytes::copy_from_slice(&claim.1);
        (uuid, target.clone())
    });
    nodes.collect()
}
