//! Asks all configured nodes for their inventories at the same time.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causeway_proto::control::Inventory;
use causeway_proto::status::WireError;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::control::{self, Supervisor};
use super::local::Peer;
use super::node::{Node, Target};
use super::resolve::{STAGGER, head_start};
use super::retry;
use crate::config::{Address, ServerSettings};

/// Time limit for connecting, for all nodes together. Every program that looks for a device enumerates
/// them, so it is short. A node that has accepted the connection has [`ServerSettings::answer_limit`] to
/// answer.
pub const LIMIT: Duration = Duration::from_secs(1);
/// Part of the limit that is reserved for starting and ending the conversation.
const RESERVE: Duration = Duration::from_millis(30);

/// Most addresses of found nodes that are dialled at the same time.
const MOST_DIALS: u32 = 64;

/// The result of [`discover`] for one node.
#[derive(Debug)]
pub struct Discovered {
    /// The node.
    pub node: Arc<Node>,
    /// The node's devices, or why there are none.
    pub inventory: Result<Arc<Inventory>, WireError>,
    /// One network round trip (the TCP handshake), when the node was reached.
    pub round_trip: Option<Duration>,
    /// Other configured addresses of the same daemon. They have no entries of their own.
    pub also_at: Vec<String>,
}

/// A node's answer.
#[derive(Debug)]
pub struct Reply {
    /// The node's devices, or why there are none.
    pub inventory: Result<Arc<Inventory>, WireError>,
    /// One network round trip (the TCP handshake), when the node was reached.
    pub round_trip: Option<Duration>,
    /// The number of the server's address that answered.
    pub rail: usize,
}

/// Asks all servers for their inventories, in parallel. Nodes that do not accept a connection get one
/// second, the others the longest of their `answer_limit`s.
///
/// The result is in the order of the settings. Opens no session. When this returns, no socket is left,
/// and no thread except one for each name that the system's resolver is still looking up. Two addresses
/// of one daemon (same node uuid) give one entry. Nothing is cached: the caller keeps the result.
#[must_use]
pub fn discover(servers: &[ServerSettings]) -> Vec<Discovered> {
    let targets: Vec<Target> = servers.iter().cloned().map(Target::from).collect();
    join_duplicates(servers, ask(&targets))
}

/// Like [`discover`], with one reply for each target. The caller must handle two targets that are the
/// same node.
#[must_use]
pub fn ask(targets: &[Target]) -> Vec<Reply> {
    if targets.is_empty() {
        return Vec::new();
    }
    let asked = targets.to_vec();
    control::converse(move || {
        in_order(asked, |target| async move {
            ask_one(&target, LIMIT, target.server.answer_limit).await
        })
    })
    .unwrap_or_else(|error| {
        let reason = error.to_string();
        targets.iter().map(|_| Err(reason.clone())).collect()
    })
    .into_iter()
    .zip(targets)
    .map(|(reply, target)| reply.unwrap_or_else(|reason| unreached(target, reason)))
    .collect()
}

/// Asks nodes with known uuids at all addresses of their targets, which may lead to other nodes from here. Returns each
/// target with the addresses that lead to its node: the one that answered first, and those that answered soon after.
/// If none does, returns the target as it was, with an error. Takes `limit` at most, in all.
#[must_use]
pub fn ask_by_uuid(nodes: Vec<(Bytes, Target)>, limit: Duration) -> Vec<(Target, Reply)> {
    let asked = nodes.clone();
    let found = control::converse(move || {
        in_order(asked, move |(uuid, target)| leading_to(uuid, target, limit))
    });
    answers(found, &nodes)
}

type Answers = Vec<Result<(Target, Reply), String>>;

fn answers(found: std::io::Result<Answers>, nodes: &[(Bytes, Target)]) -> Vec<(Target, Reply)> {
    let failed = |error: String| nodes.iter().map(|_| Err(error.clone())).collect();
    let found = found.unwrap_or_else(|error| failed(error.to_string()));
    let found = found.into_iter().zip(nodes);
    found
        .map(|(found, (_, target))| {
            found.unwrap_or_else(|reason| (target.clone(), unreached(target, reason)))
        })
        .collect()
}

/// As [`ask_by_uuid`], for nodes that were found: at most `MOST_DIALS` addresses are dialled at the same time, in the
/// order of the nodes. Nodes whose turn has not come until `deadline` are not dialled.
#[must_use]
pub fn ask_found(
    nodes: Vec<(Bytes, Target)>,
    deadline: std::time::Instant,
) -> Vec<(Target, Reply)> {
    let asked = nodes.clone();
    let turns = Arc::new(Semaphore::new(MOST_DIALS as usize));
    let found = control::converse(move || {
        in_order(asked, move |(uuid, target)| {
            let turns = Arc::clone(&turns);
            async move {
                let dials = u32::try_from(target.server.addresses().count());
                let dials = dials.unwrap_or(MOST_DIALS).min(MOST_DIALS);
                // The semaphore is not closed.
                let turn = timeout_at(deadline.into(), turns.acquire_many(dials)).await;
                let left = deadline.saturating_duration_since(std::time::Instant::now());
                let Ok(Ok(_turn)) = turn else {
                    let reply = unreached(&target, "too many nodes were found".to_owned());
                    return (target, reply);
                };
                leading_to(uuid, target, left).await
            }
        })
    });
    answers(found, &nodes)
}

// Asks all items at the same time; results are in the order of the items.
async fn in_order<I, T, F>(items: Vec<I>, each: impl Fn(I) -> F) -> Vec<Result<T, String>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut asking = JoinSet::new();
    let failed = || Err("the client's query task failed; this is a bug in Causeway".to_owned());
    let mut replies: Vec<_> = items.iter().map(|_| failed()).collect();
    for (position, item) in items.into_iter().enumerate() {
        let reply = each(item);
        asking.spawn(async move { (position, reply.await) });
    }
    while let Some(answered) = asking.join_next().await {
        if let Ok((position, reply)) = answered {
            replies[position] = Ok(reply);
        }
    }
    replies
}

async fn leading_to(uuid: Bytes, mut target: Target, limit: Duration) -> (Target, Reply) {
    let mut asking = ask_each(&target, limit, limit, Duration::ZERO);
    let (mut leading, mut failures): (Vec<(Reply, _)>, _) = (Vec::new(), Vec::new());
    let mut until = Instant::now() + limit;
    while let Ok(Some(asked)) = timeout_at(until, asking.join_next()).await {
        // A query that panicked has no answer.
        let Ok((reply, peer)) = asked else { continue };
        match &reply.inventory {
            Ok(inventory) if inventory.node_uuid == uuid => {
                if leading.is_empty() {
                    until = until.min(Instant::now() + STAGGER);
                }
                // Two names of one address are one way to the node.
                if leading.iter().all(|(_, known)| *known != peer) {
                    leading.push((reply, peer));
                }
            }
            Ok(_) => {
                let address = target.server.addresses().nth(reply.rail);
                let inventory = Err(WireError::Unreachable {
                    address: address.map_or_else(String::new, Address::to_string),
                    reason: "the address leads to another node".to_owned(),
                });
                failures.push(Reply { inventory, ..reply });
            }
            Err(_) => failures.push(reply),
        }
    }
    if leading.is_empty() {
        let reply = none_answered(&target, failures);
        return (target, reply);
    }
    // The order of the further ones is the server's, so that it does not depend on chance.
    leading[1..].sort_by_key(|(reply, _)| reply.rail);
    let all: Vec<Address> = target.server.addresses().cloned().collect();
    let mut addresses = leading.iter().map(|(reply, _)| all[reply.rail].clone());
    target.server.address = addresses.next().unwrap_or(target.server.address);
    target.server.further = addresses.collect();
    let (first, _) = leading.swap_remove(0);
    (target, Reply { rail: 0, ..first })
}

// Asks a node at all addresses of its server, each a little after the one before. The first answer counts, so an address
// that only accepts connections keeps no other away.
async fn ask_one(target: &Target, connect_limit: Duration, limit: Duration) -> Reply {
    let mut asking = ask_each(target, connect_limit, limit, STAGGER);
    let mut failures = Vec::new();
    while let Some(asked) = asking.join_next().await {
        // A query that panicked has no answer.
        let Ok((reply, _)) = asked else { continue };
        match &reply.inventory {
            // Dropping `asking` cancels the other queries. A refusal is an answer, too.
            Ok(_) | Err(WireError::Refused { .. } | WireError::Unauthenticated { .. }) => {
                return reply;
            }
            Err(_) => failures.push(reply),
        }
    }
    none_answered(target, failures)
}

// Asks a node at each address of its server, one `delay` after the other. With each reply comes where the address led.
fn ask_each(
    target: &Target,
    connect_limit: Duration,
    limit: Duration,
    delay: Duration,
) -> JoinSet<(Reply, Option<Peer>)> {
    let mut asking = JoinSet::new();
    let mut begins = Duration::ZERO;
    for (rail, address) in target.server.addresses().cloned().enumerate() {
        let at_address = Target {
            server: ServerSettings {
                address,
                further: Vec::new(),
                ..target.server.clone()
            },
            credential: target.credential.clone(),
        };
        let limits = [connect_limit, limit].map(|limit| limit.saturating_sub(begins));
        asking.spawn(async move {
            head_start(begins).await;
            let (reply, peer) = ask_at(&at_address, limits[0], limits[1]).await;
            (Reply { rail, ..reply }, peer)
        });
        begins += delay;
    }
    asking
}

// The reply of a server none of whose addresses has answered: the first that says more than that, else all of them.
fn none_answered(target: &Target, mut failures: Vec<Reply>) -> Reply {
    failures.sort_by_key(|reply| reply.rail);
    if failures.len() == 1 {
        return failures.remove(0);
    }
    let mut reasons = Vec::new();
    for failure in failures {
        match &failure.inventory {
            Err(WireError::Unreachable { address, reason }) => {
                reasons.push(format!("{address}: {reason}"));
            }
            _ => return failure,
        }
    }
    unreached(target, reasons.join("; "))
}

async fn ask_at(
    target: &Target,
    connect_limit: Duration,
    limit: Duration,
) -> (Reply, Option<Peer>) {
    let reached = Mutex::new((None, None));
    let address = &target.server.address;
    let connect_within = connect_limit.saturating_sub(RESERVE);
    let seen = &reached;
    let converse = |attempt| async move {
        let mut supervisor = Supervisor::reach(&target.server, connect_within, attempt).await?;
        *seen.lock() = (
            Some(supervisor.round_trip),
            Some(supervisor.rail.peer.clone()),
        );
        let inventory = supervisor.inventory(target.credential.clone()).await;
        inventory.map(Arc::new)
    };
    let limit = limit.max(connect_limit).saturating_sub(RESERVE);
    let inventory = control::within(limit, address, retry::persistently(converse)).await;
    let (round_trip, peer) = reached.into_inner();
    let reply = Reply {
        inventory,
        round_trip,
        rail: 0,
    };
    (reply, peer)
}

fn unreached(target: &Target, reason: String) -> Reply {
    Reply {
        inventory: Err(WireError::Unreachable {
            address: target.server.address.to_string(),
            reason,
        }),
        round_trip: None,
        rail: 0,
    }
}

/// Whether two answers with one uuid are of two machines, of which one is a copy of the other: the daemons' starts differ.
/// A daemon that was started between the answers looks the same.
#[must_use]
pub fn are_copies(one: &Inventory, other: &Inventory) -> bool {
    one.node_uuid == other.node_uuid && are_other_starts(&one.run, &other.run)
}

/// Whether two starts of daemons are known to differ. An empty one tells nothing.
#[must_use]
pub fn are_other_starts(one: &[u8], other: &[u8]) -> bool {
    !one.is_empty() && !other.is_empty() && one != other
}

/// Says that two nodes are copies of one machine, and what helps.
#[must_use]
pub fn copied(one: &str, other: &str) -> String {
    format!(
        "nodes {one} and {other} have the same identity, because one machine is a copy of the other; only {one} is used; \
         on the copy, stop causewayd, delete its file node-*.seed (in /var/lib/causewayd, or in \
         ~/.local/state/causeway of its user), and start causewayd again"
    )
}

fn join_duplicates(servers: &[ServerSettings], replies: Vec<Reply>) -> Vec<Discovered> {
    let mut found: Vec<Discovered> = Vec::with_capacity(servers.len());
    let mut known: HashMap<(Bytes, Bytes), usize> = HashMap::new();
    for (server, reply) in servers.iter().zip(replies) {
        if let Ok(inventory) = &reply.inventory {
            // Copies of a machine have one uuid, and are two nodes.
            let identity = (inventory.node_uuid.clone(), inventory.run.clone());
            if let Some(&earlier) = known.get(&identity) {
                found[earlier].also_at.push(server.address.to_string());
                continue;
            }
            known.insert(identity, found.len());
        }
        let node = Arc::new(Node::new(server.clone()));
        node.note_answer(reply.rail, reply.round_trip);
        if let Ok(inventory) = &reply.inventory {
            node.set_inventory(Arc::clone(inventory));
        }
        found.push(Discovered {
            node,
            inventory: reply.inventory,
            round_trip: reply.round_trip,
            also_at: Vec::new(),
        });
    }
    found
}
