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
use causeway_security::BadState;
use parking_lot::Mutex;

use crate::config::remembered::{NodeMemory, RememberedNode};
use crate::config::{MOST_ADDRESSES, ServerSettings, Settings};
use crate::thread::{self, Stack};
use crate::transport::finder::{Finder, Snapshot};
use crate::transport::{self, ENUMERATION_LIMIT, Node, Reply, Target};

/// Pauses before a node that did not answer is dialled again: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Time for dialling that is left to a call, however long announcements took.
pub(super) const LEAST: Duration = Duration::from_millis(200);
/// Time for dialling remembered nodes. The rest of the second is for those that are found.
const RECALL_LIMIT: Duration = Duration::from_millis(800);
/// Most nodes that one call dials.
const MOST: usize = 64;
/// Most claims that are kept because they were dialled in vain.
const MOST_FAILED: usize = 1024;
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
    remembering: Arc<Remembering>,
}

/// Writes the nodes that are used into the user's file.
#[derive(Debug)]
struct Remembering {
    memory: Option<NodeMemory>,
    /// Whether it has been logged that the file cannot be written.
    has_failed_to_write: AtomicBool,
    /// Used nodes that are not in the file yet, because other programs write it.
    pending: Mutex<Vec<RememberedNode>>,
}

/// A node that has answered, or why it has not.
pub(in crate::stub) struct Answered {
    claim: Claim,
    pub(in crate::stub) target: Target,
    pub(in crate::stub) reply: Reply,
}

impl Answered {
    /// The node as messages name it.
    pub(in crate::stub) fn shown(&self) -> String {
        let server = &self.target.server;
        let name = server.name.as_deref().unwrap_or_default();
        format!("{name} ({})", server.address)
    }
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
            remembering: Arc::new(Remembering::new(settings.discovery.memory.clone())),
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

    /// Remembers nodes that are used: their names, uuids and addresses. If other programs write the file, the next call tries
    /// it again.
    pub(in crate::stub) fn remember(&self, used: Vec<RememberedNode>) {
        self.remembering.remember(used);
    }

    fn remembered(&self) -> Vec<RememberedNode> {
        let memory = self.settings.discovery.memory.as_ref();
        let nodes = memory.map_or(Ok(Vec::new()), NodeMemory::nodes);
        nodes.unwrap_or_else(|error| {
            tracing::warn!("no node is remembered: {error}");
            Vec::new()
        })
    }

    /// Looks for a node whose session has no connection. The session goes on where the node is now. Does not wait.
    pub(in crate::stub) fn follow(&self, node: &Arc<Node>) {
        if self.is_following.swap(true, Ordering::AcqRel) {
            return;
        }
        let (settings, node) = (self.settings, Arc::clone(node));
        let (finder, is_following) = (Arc::clone(&self.finder), Arc::clone(&self.is_following));
        let remembering = Arc::clone(&self.remembering);
        let following = move || {
            let over = Over(is_following);
            finder.begin();
            finder.wait_for_all();
            let moved = moved(settings, &finder.snapshot(), &node);
            // The session may have gone on at a known address meanwhile.
            let is_away = node.live_session().is_some_and(|session| session.is_away());
            if let Some((uuid, server)) = moved.filter(|_| is_away) {
                remembering.remember(RememberedNode::of(&server, &uuid).into_iter().collect());
                let server = before(server, &node.target().server);
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

    /// Reports, once and with this text, why a node that has answered is not used. The node is not dialled for a while.
    pub(in crate::stub) fn set_aside(&self, answered: &Answered, text: &str) {
        let of = Failed {
            times: u32::MAX,
            not_before: Some(Instant::now() + PAUSES.1),
        };
        let mut failed = self.failed.lock();
        let is_known = failed.contains_key(&answered.claim);
        if is_known || failed.len() < MOST_FAILED {
            failed.insert(answered.claim.clone(), of);
        }
        drop(failed);
        if !is_known {
            tracing::warn!("{text}");
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
        if failed.len() < MOST_FAILED || failed.contains_key(claim) {
            let of = failed.entry(claim.clone()).or_default();
            of.not_before = Some(now + pause(PAUSES, of.times));
            of.times = of.times.saturating_add(1);
        }
    }
}

impl Remembering {
    fn new(memory: Option<NodeMemory>) -> Remembering {
        Remembering {
            memory,
            has_failed_to_write: AtomicBool::new(false),
            pending: Mutex::default(),
        }
    }

    /// Writes these nodes, and those that earlier calls could not write.
    fn remember(&self, used: Vec<RememberedNode>) {
        let Some(memory) = &self.memory else {
            return;
        };
        let mut pending = self.pending.lock();
        pending.retain(|of| used.iter().all(|node| node.uuid != of.uuid));
        pending.extend(used);
        if pending.is_empty() {
            return;
        }
        match memory.remember(&pending) {
            Err(error @ BadState::Busy(_)) => tracing::debug!("{error}"),
            outcome => {
                pending.clear();
                // A home that is read-only is nothing to report in every program.
                if let Err(error) = outcome
                    && !self.has_failed_to_write.swap(true, Ordering::Relaxed)
                {
                    tracing::debug!("found nodes are not remembered: {error}");
                }
            }
        }
    }
}

/// Where a node is now, with its uuid, if that is somewhere else.
fn moved(
    settings: &Settings,
    snapshot: &Snapshot,
    node: &Arc<Node>,
) -> Option<(Bytes, ServerSettings)> {
    let (known, inventory) = (node.target(), node.inventory()?);
    let uuid = inventory.node_uuid.clone();
    let is_it = |of: &&Found| {
        of.announcement.id == uuid[..] && known.server.name.as_ref() == Some(&of.name)
    };
    let claims = snapshot.found.iter().filter(is_it);
    let is_announced = claims
        .clone()
        .any(|of| of.announcement.run == inventory.run[..]);
    let servers = claims.filter_map(|of| settings.server_found(of, &snapshot.interfaces).ok());
    let servers: Vec<ServerSettings> = servers.collect();
    let is_known = |of: &ServerSettings| of.addresses().all(|address| known.server.is_at(address));
    if servers.iter().all(is_known) {
        return None;
    }
    // The known addresses are dialled, too: the session stays if one of them answers.
    let targets = std::iter::once(known.clone()).chain(servers.into_iter().map(Target::from));
    let targets = targets.map(|target| (uuid.clone(), target)).collect();
    let answers = transport::ask_found(targets, Instant::now() + ENUMERATION_LIMIT);
    let answers = answers.into_iter().filter_map(|(target, reply)| {
        let run = reply.inventory.ok()?.run.clone();
        Some((target.server, run))
    });
    let run = (&inventory.run[..], is_announced);
    let server = elsewhere(&known.server, run, answers.collect())?;
    Some((uuid, server))
}

/// Where a node answers, if it answers at no known address. `run` is the known start, and whether an announcement has it: then
/// an answer of another start is that of a copy.
fn elsewhere(
    known: &ServerSettings,
    (run, is_announced): (&[u8], bool),
    mut answers: Vec<(ServerSettings, Bytes)>,
) -> Option<ServerSettings> {
    let is_same = |(_, of): &(ServerSettings, Bytes)| !transport::are_other_starts(run, of);
    if is_announced || answers.iter().any(is_same) {
        answers.retain(is_same);
    }
    let is_known = |server: &ServerSettings| server.addresses().any(|of| known.is_at(of));
    // The session dials the addresses that it knows by itself.
    if answers.iter().any(|(server, _)| is_known(server)) {
        return None;
    }
    answers.into_iter().next().map(|(server, _)| server)
}

/// A server with its earlier addresses behind the new ones: its node may come back to them.
fn before(mut server: ServerSettings, known: &ServerSettings) -> ServerSettings {
    let room = MOST_ADDRESSES.saturating_sub(server.addresses().count());
    server.further.extend(known.addresses().take(room).cloned());
    server
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

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[u8] = &[1; 8];

    fn at(addresses: &[&str]) -> ServerSettings {
        let mut addresses = addresses.iter().map(|of| of.parse().unwrap());
        let mut server = ServerSettings::at(addresses.next().unwrap());
        server.further = addresses.collect();
        server
    }

    /// Where a node at `known` goes on. Each answer has its addresses and its start.
    fn goes_on(known: &[&str], is_announced: bool, answers: &[(&[&str], u8)]) -> Vec<String> {
        let answers = answers
            .iter()
            .map(|(addresses, run)| (at(addresses), Bytes::from(vec![*run; 8])));
        let server = elsewhere(&at(known), (KNOWN, is_announced), answers.collect());
        let server = server.map(|server| before(server, &at(known)));
        let addresses = server.iter().flat_map(ServerSettings::addresses);
        addresses.map(|of| of.host().to_owned()).collect()
    }

    #[test]
    fn a_node_that_other_programs_kept_from_the_file_is_written_with_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let memory = NodeMemory::at(folder.path().join("nodes.toml"));
        let remembering = Remembering::new(Some(memory.clone()));
        let node = |name: &str, id| {
            RememberedNode::used_now(
                name.to_owned(),
                [id; 16],
                vec![format!("10.0.0.{id}").parse().unwrap()],
            )
        };
        let lock = std::fs::File::open(folder.path()).unwrap();
        lock.lock().unwrap();
        remembering.remember(vec![node("gpu1", 1)]);
        assert_eq!(memory.nodes().unwrap().len(), 0, "the file is busy");
        drop(lock);
        remembering.remember(vec![node("gpu2", 2)]);
        let mut names: Vec<String> = (memory.nodes().unwrap().into_iter())
            .map(|node| node.name)
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["gpu1", "gpu2"]);
        assert!(remembering.pending.lock().is_empty());
    }

    #[test]
    fn a_session_stays_if_its_node_answers_at_a_known_address() {
        let (known, new): (&[&str], &[&str]) = (&["10.0.0.1", "10.0.0.2"], &["10.0.0.9"]);
        assert_eq!(goes_on(known, true, &[]), [""; 0]);
        // An announced address that is dead, or slow to answer, is no move.
        for answers in [
            &[(&["10.0.0.2"][..], 1), (new, 1)][..],
            &[(&["10.0.0.9", "10.0.0.1"], 1)],
        ] {
            assert_eq!(goes_on(known, true, answers), [""; 0]);
        }
        assert_eq!(
            goes_on(known, true, &[(new, 1)]),
            ["10.0.0.9", "10.0.0.1", "10.0.0.2"]
        );
        let eight: Vec<String> = (0..8).map(|number| format!("10.0.1.{number}")).collect();
        let eight: Vec<&str> = eight.iter().map(String::as_str).collect();
        assert_eq!(goes_on(&eight, true, &[(new, 1)]).len(), MOST_ADDRESSES);
    }

    #[test]
    fn a_session_does_not_move_to_a_copy_of_its_node() {
        let (known, new, copy): (&[&str], &[&str], &[&str]) =
            (&["10.0.0.1"], &["10.0.0.9"], &["10.0.0.7"]);
        assert_eq!(goes_on(known, true, &[(copy, 2)]), [""; 0]);
        let expected = ["10.0.0.9", "10.0.0.1"];
        assert_eq!(goes_on(known, true, &[(copy, 2), (new, 1)]), expected);
        assert_eq!(goes_on(known, false, &[(copy, 2), (new, 1)]), expected);
        // A copy has taken the node's old address.
        assert_eq!(goes_on(known, true, &[(known, 2), (new, 1)]), expected);
        // A node that was started again tells another start.
        assert_eq!(goes_on(known, false, &[(new, 2)]), expected);
        assert_eq!(goes_on(known, false, &[(known, 2), (copy, 3)]), [""; 0]);
    }
}
