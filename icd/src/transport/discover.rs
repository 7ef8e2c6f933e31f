//! Asking all configured nodes what they have, at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::control::Inventory;
use causeway_proto::status::WireError;
use tokio::task::JoinSet;

use super::control::{self, Supervisor};
use super::node::Node;
use crate::config::ServerSettings;

/// For all nodes together: enumeration happens in every program that looks for a device.
const LIMIT: Duration = Duration::from_secs(1);
/// Kept back for starting and ending the conversation.
const RESERVE: Duration = Duration::from_millis(30);

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

/// Asks all servers for their inventories, in parallel; at most one second in all.
///
/// In the order of the settings. Opens no session; when it returns, no socket is left and no thread,
/// but one for each name that the system's resolver is still at. Two addresses of one daemon (same
/// node uuid) give one entry. Nothing is remembered: the caller keeps what it got.
#[must_use]
pub fn discover(servers: &[ServerSettings]) -> Vec<Discovered> {
    join_duplicates(servers, ask(servers))
}

/// The same, one reply each; what to make of two that are one node is the caller's business.
#[must_use]
pub fn ask(servers: &[ServerSettings]) -> Vec<Reply> {
    if servers.is_empty() {
        return Vec::new();
    }
    let asked = servers.to_vec();
    control::converse(move || ask_all(asked)).unwrap_or_else(|error| {
        let reason = error.to_string();
        let reply = |server: &ServerSettings| Reply {
            inventory: Err(WireError::Unreachable {
                address: server.address.to_string(),
                reason: reason.clone(),
            }),
            round_trip: None,
        };
        servers.iter().map(reply).collect()
    })
}

async fn ask_all(servers: Vec<ServerSettings>) -> Vec<Reply> {
    let mut asking = JoinSet::new();
    let mut replies: Vec<Option<Reply>> = servers.iter().map(|_| None).collect();
    for (position, server) in servers.iter().cloned().enumerate() {
        asking.spawn(async move { (position, ask_one(&server).await) });
    }
    while let Some(answered) = asking.join_next().await {
        if let Ok((position, reply)) = answered {
            replies[position] = Some(reply);
        }
    }
    let failed = |server: &ServerSettings| Reply {
        inventory: Err(WireError::Unreachable {
            address: server.address.to_string(),
            reason: "asking it failed in this library".to_owned(),
        }),
        round_trip: None,
    };
    replies
        .into_iter()
        .zip(&servers)
        .map(|(reply, server)| reply.unwrap_or_else(|| failed(server)))
        .collect()
}

async fn ask_one(server: &ServerSettings) -> Reply {
    let mut round_trip = None;
    let inventory = control::within(LIMIT - RESERVE, &server.address, async {
        let mut supervisor = Supervisor::reach(server).await?;
        round_trip = Some(supervisor.round_trip);
        supervisor.inventory().await.map(Arc::new)
    })
    .await;
    Reply {
        inventory,
        round_trip,
    }
}

fn join_duplicates(servers: &[ServerSettings], replies: Vec<Reply>) -> Vec<Discovered> {
    let mut found: Vec<Discovered> = Vec::with_capacity(servers.len());
    let mut known: HashMap<bytes::Bytes, usize> = HashMap::new();
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
