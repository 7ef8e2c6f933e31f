//! Asking all configured nodes what they have, at once.

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
use super::node::Node;
use crate::config::ServerSettings;

/// To connect to a node, for all nodes together: enumeration happens in every program that looks for a device. A node
/// that has accepted the connection has [`ServerSettings::answer_limit`].
pub const LIMIT: Duration = Duration::from_secs(1);
/// Kept back for starting and ending the conversation.
const RESERVE: Duration = Duration::from_millis(30);

/// Whom to ask, and what to show.
#[derive(Debug, Clone)]
pub struct Target {
    /// The node's settings.
    pub server: ServerSettings,
    /// The signed lease on the node's devices; empty without one.
    pub credential: Bytes,
}

impl From<ServerSettings> for Target {
    fn from(server: ServerSettings) -> Target {
        Target {
            server,
            credential: Bytes::new(),
        }
    }
}

/// What [`discover`] found out about one node.
#[derive(Debug)]
pub struct Discovered {
    /// The node.
    pub node: Arc<Node>,
    /// Its devices, or why there are none.
    pub inventory: Result<Arc<Inventory>, WireError>,
    /// One network round trip (the TCP handshake), when the node was reached.
    pub round_trip: Option<Duration>,
    /// Other configured addresses that lead to the same daemon; they give no devices of their own.
    pub also_at: Vec<String>,
}

/// What a node answered.
#[derive(Debug)]
pub struct Reply {
    /// Its devices, or why there are none.
    pub inventory: Result<Arc<Inventory>, WireError>,
    /// One network round trip (the TCP handshake), when the node was reached.
    pub round_trip: Option<Duration>,
}

/// Asks all servers for their inventories, in parallel: one second for those that do not accept a connection, the
/// longest of their `answer_limit`s for the others.
///
/// In the order of the settings. Opens no session; when it returns, no socket is left and no thread,
/// but one for each name that the system's resolver is still at. Two addresses of one daemon (same
/// node uuid) give one entry. Nothing is remembered: the caller keeps what it got.
#[must_use]
pub fn discover(servers: &[ServerSettings]) -> Vec<Discovered> {
    let targets: Vec<Target> = servers.iter().cloned().map(Target::from).collect();
    join_duplicates(servers, ask(&targets))
}

/// The same, one reply each; what to make of two that are one node is the caller's business.
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

/// Asks nodes that are each known by several addresses, and by who they are. Of each: which address it was that
/// answered first, or the first one, and what came of it. Takes `limit` at most, in all.
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

// All at the same time.
async fn in_order<I, T, F>(items: Vec<I>, each: impl Fn(I) -> F) -> Vec<Result<T, String>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut asking = JoinSet::new();
    let failed = || Err("asking it failed in this library".to_owned());
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
            Ok(inventory) if inventory.node_uuid == uuid => return Some((target, reply)),
            // An address that means something else here than there.
            Ok(_) => {
                reply = unreached(
                    &target,
                    "it is another node than the lease names".to_owned(),
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

async fn ask_one(target: &Target, connect_limit: Duration, limit: Duration) -> Reply {
    let round_trip = Mutex::new(None);
    let address = &target.server.address;
    let connect_within = connect_limit.saturating_sub(RESERVE);
    let converse = || async {
        let mut supervisor = Supervisor::reach(&target.server, connect_within).await?;
        *round_trip.lock() = Some(supervisor.round_trip);
        let inventory = supervisor.inventory(target.credential.clone()).await;
        inventory.map(Arc::new)
    };
    let limit = limit.max(connect_limit).saturating_sub(RESERVE);
    let inventory = control::within(limit, address, control::persistently(converse)).await;
    Reply {
        inventory,
        round_trip: round_trip.into_inner(),
    }
}

fn unreached(target: &Target, reason: String) -> Reply {
    Reply {
        inventory: Err(WireError::Unreachable {
            address: target.server.address.to_string(),
            reason,
        }),
        round_trip: None,
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
        node.note_round_trip(reply.round_trip);
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
