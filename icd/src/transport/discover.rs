//! Asks all configured nodes for their inventories at the same time.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causeway_proto::control::Inventory;
use causeway_proto::status::WireError;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::control::{self, Supervisor};
use super::node::{Node, Target};
use super::resolve::STAGGER;
use super::retry;
use crate::config::ServerSettings;

/// Time limit for connecting, for all nodes together. Every program that looks for a device enumerates
/// them, so it is short. A node that has accepted the connection has [`ServerSettings::answer_limit`] to
/// answer.
pub const LIMIT: Duration = Duration::from_secs(1);
/// Part of the limit that is reserved for starting and ending the conversation.
const RESERVE: Duration = Duration::from_millis(30);

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

/// Asks nodes that have several known addresses each and a known uuid. For each node, returns the target
/// that answered first with that uuid. If none did, returns the first target with its error. Takes
/// `limit` at most, in all.
#[must_use]
pub fn ask_any(nodes: &[(Bytes, Vec<Target>)], limit: Duration) -> Vec<Option<(Target, Reply)>> {
    let asked = nodes.to_vec();
    let found = control::converse(move || {
        in_order(asked, move |(uuid, targets)| first_of(uuid, targets, limit))
    });
    match found {
        Ok(found) => found.into_iter().map(|of| of.ok().flatten()).collect(),
        Err(error) => {
            let none = |(_, targets): &(Bytes, Vec<Target>)| {
                let target = targets.first()?.clone();
                let reply = unreached(&target, error.to_string());
                Some((target, reply))
            };
            nodes.iter().map(none).collect()
        }
    }
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

async fn first_of(uuid: Bytes, targets: Vec<Target>, limit: Duration) -> Option<(Target, Reply)> {
    let mut asking = JoinSet::new();
    for (position, target) in targets.into_iter().enumerate() {
        asking.spawn(async move {
            let reply = ask_one(&target, limit, limit).await;
            (position, target, reply)
        });
    }
    let mut worst: Option<(usize, Target, Reply)> = None;
    while let Some(answered) = asking.join_next().await {
        let Ok((position, target, mut reply)) = answered else {
            continue;
        };
        match &reply.inventory {
            // Dropping `asking` cancels the other queries.
            Ok(inventory) if inventory.node_uuid == uuid => return Some((target, reply)),
            // The address leads to another node from here than it does for the manager.
            Ok(_) => {
                reply = unreached(
                    &target,
                    "the address leads to another node than the lease names".to_owned(),
                );
            }
            Err(_) => {}
        }
        if worst.as_ref().is_none_or(|(known, ..)| position < *known) {
            worst = Some((position, target, reply));
        }
    }
    worst.map(|(_, target, reply)| (target, reply))
}

// Asks a node at all addresses of its server, each a little after the one before. The first answer counts, so an address
// that only accepts connections keeps no other away.
async fn ask_one(target: &Target, connect_limit: Duration, limit: Duration) -> Reply {
    if target.server.further.is_empty() {
        return ask_at(target, connect_limit, limit).await;
    }
    let mut asking = JoinSet::new();
    let mut delay = Duration::ZERO;
    for (rail, address) in target.server.addresses().cloned().enumerate() {
        let at_address = Target {
            server: ServerSettings {
                address,
                further: Vec::new(),
                ..target.server.clone()
            },
            credential: target.credential.clone(),
        };
        let limits = [connect_limit, limit].map(|limit| limit.saturating_sub(delay));
        asking.spawn(async move {
            tokio::time::sleep(delay).await;
            let reply = ask_at(&at_address, limits[0], limits[1]).await;
            Reply { rail, ..reply }
        });
        delay += STAGGER;
    }
    let mut failures = Vec::new();
    while let Some(asked) = asking.join_next().await {
        // A query that panicked has no answer.
        let Ok(reply) = asked else { continue };
        match &reply.inventory {
            // Dropping `asking` cancels the other queries. A refusal is an answer, too.
            Ok(_) | Err(WireError::Refused { .. } | WireError::Unauthenticated { .. }) => {
                return reply;
            }
            Err(error) => failures.push((reply.rail, error.clone())),
        }
    }
    failures.sort_by_key(|(rail, _)| *rail);
    none_answered(
        target,
        failures.into_iter().map(|(_, error)| error).collect(),
    )
}

// The error of a server none of whose addresses has answered: the first that says more than that, else all of them.
fn none_answered(target: &Target, failures: Vec<WireError>) -> Reply {
    let mut reasons = Vec::new();
    for failure in failures {
        match failure {
            WireError::Unreachable { address, reason } => {
                reasons.push(format!("{address}: {reason}"));
            }
            error => {
                return Reply {
                    inventory: Err(error),
                    round_trip: None,
                    rail: 0,
                };
            }
        }
    }
    unreached(target, reasons.join("; "))
}

async fn ask_at(target: &Target, connect_limit: Duration, limit: Duration) -> Reply {
    let round_trip_seen = Mutex::new(None);
    let address = &target.server.address;
    let connect_within = connect_limit.saturating_sub(RESERVE);
    let round_trip = &round_trip_seen;
    let converse = |attempt| async move {
        let mut supervisor = Supervisor::reach(&target.server, connect_within, attempt).await?;
        *round_trip.lock() = Some(supervisor.round_trip);
        let inventory = supervisor.inventory(target.credential.clone()).await;
        inventory.map(Arc::new)
    };
    let limit = limit.max(connect_limit).saturating_sub(RESERVE);
    let inventory = control::within(limit, address, retry::persistently(converse)).await;
    Reply {
        inventory,
        round_trip: round_trip_seen.into_inner(),
        rail: 0,
    }
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

fn join_duplicates(servers: &[ServerSettings], replies: Vec<Reply>) -> Vec<Discovered> {
    let mut found: Vec<Discovered> = Vec::with_capacity(servers.len());
    let mut known: HashMap<Bytes, usize> = HashMap::new();
    for (server, reply) in servers.iter().zip(replies) {
        if let Ok(inventory) = &reply.inventory {
            if let Some(&earlier) = known.get(&inventory.node_uuid) {
                found[earlier].also_at.push(server.address.to_string());
                continue;
            }
            known.insert(inventory.node_uuid.clone(), found.len());
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
