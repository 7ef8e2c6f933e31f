//! Checks whether the device manager's nodes can be reached from this machine, as a program with a lease
//! would.

use std::time::Duration;

use bytes::Bytes;
use causeway::config::Settings;
use causeway::transport::{Target, ask_any};
use causeway_proto::manager::NodeInfo;

use super::finding::Finding;

const CHECK: &str = "device manager's nodes";
/// Timeout for all nodes together.
const LIMIT: Duration = Duration::from_secs(3);

pub(super) fn reach(nodes: &[NodeInfo], settings: &Settings) -> Vec<Finding> {
    let nodes: Vec<&NodeInfo> = nodes.iter().filter(|node| node.connected).collect();
    let targets: Vec<(Bytes, Vec<Target>)> = nodes
        .iter()
        .map(|node| (node.node_uuid.clone(), targets(node, settings)))
        .collect();
    let mut reached = 0;
    let mut findings = Vec::new();
    for (node, found) in nodes.iter().zip(ask_any(&targets, LIMIT)) {
        let why = match found.map(|(_, reply)| reply.inventory) {
            Some(Ok(_)) => {
                reached += 1;
                continue;
            }
            Some(Err(error)) => error.to_string(),
            None => "the node has reported no address".to_owned(),
        };
        findings.push(Finding::problem(
            CHECK,
            format!("{}: {why}", node.name),
            "let the firewall pass it; there, name in daemon.toml (advertise) an address that is reached from here; \
             with TLS, name the CA of its certificate here",
        ));
    }
    if reached > 0 {
        findings.push(Finding::ok(CHECK, format!("reached from here: {reached}")));
    }
    findings
}

fn targets(node: &NodeInfo, settings: &Settings) -> Vec<Target> {
    let addresses = node.addresses.iter().filter_map(|text| text.parse().ok());
    let servers = addresses.map(|address| settings.server_at(address, &node.name));
    servers.map(Target::from).collect()
}
