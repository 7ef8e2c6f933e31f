//! Checks whether the device manager's nodes can be reached from this machine, as a program with a lease
//! would.

use std::time::Duration;

use causeway::config::Settings;
use causeway::transport::{Target, ask_by_uuid};
use causeway_proto::manager::NodeInfo;

use super::finding::Finding;

const CHECK: &str = "device manager's nodes";
/// Timeout for all nodes together.
const LIMIT: Duration = Duration::from_secs(3);

pub(super) fn reach(nodes: &[NodeInfo], settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut problem = |node: &NodeInfo, why: &str| {
        findings.push(Finding::problem(
            CHECK,
            format!("{}: {why}", node.name),
            "let the firewall pass it; there, name in daemon.toml (advertise) an address that is reached from here; \
             with TLS, name the CA of its certificate here",
        ));
    };
    let (mut asked, mut targets) = (Vec::new(), Vec::new());
    for node in nodes.iter().filter(|node| node.connected) {
        match settings.server_at(&node.addresses, &node.name) {
            Some(server) => {
                asked.push(node);
                targets.push((node.node_uuid.clone(), Target::from(server)));
            }
            None => problem(node, "the node has reported no address"),
        }
    }
    let mut reached = 0;
    for (node, (_, reply)) in asked.into_iter().zip(ask_by_uuid(targets, LIMIT)) {
        match reply.inventory {
            Ok(_) => reached += 1,
            Err(error) => problem(node, &error.to_string()),
        }
    }
    if reached > 0 {
        findings.push(Finding::ok(CHECK, format!("reached from here: {reached}")));
    }
    findings
}
