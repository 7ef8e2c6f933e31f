//! `causeway nodes`: the device manager's nodes and their devices; drains, resumes and removes a node.

use std::time::Duration;

use causeway::config;
use causeway_devmgr::listing::{LinkTo, NodeLinks};
use causeway_proto::manager::{DrainNodeRequest, ListNodesRequest, RemoveNodeRequest};

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::{Leaving, ManagedDevice, ManagedNode};
use crate::links;
use crate::say::say;
use crate::text::{NodeNames, Table, bytes, milliseconds, node_state};

/// How often `drain --migrate` looks whether the leases have moved.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// The remark for a node that `--insecure` opens to everyone.
const INSECURE: &str = "INSECURE: everyone who can reach this node can use it and read the traffic";

/// Arguments of `nodes`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// Show the nodes with their slowest and their fastest measured links
    #[arg(long)]
    links: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the nodes (the default)
    List,
    /// Grant no new leases of a node; its existing leases go on, or move to other nodes
    Drain(Drain),
    /// Grant leases of a node again
    Resume(Which),
    /// Forget a node that will not come back
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Drain {
    #[command(flatten)]
    which: Which,
    /// Move the node's leases to equal free devices of other nodes; running programs stand still for a moment
    #[arg(long)]
    migrate: bool,
    /// End the leases that are still on the node after this time, for example 10m
    #[arg(long, value_name = "DURATION", requires = "migrate", value_parser = within)]
    within: Option<Duration>,
}

fn within(text: &str) -> Result<Duration, config::BadDuration> {
    config::duration(text)
}

#[derive(Debug, clap::Args)]
struct Remove {
    #[command(flatten)]
    which: Which,
    /// Remove the node even if it may still serve leases, which end; if it returns, it is a new node
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The node's name or id
    node: String,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    match &arguments.action {
        None if arguments.links => with_links(context),
        None | Some(Action::List) => list(context),
        Some(Action::Drain(Drain {
            which,
            migrate: true,
            within,
        })) => migrate(context, which, *within),
        Some(Action::Drain(Drain { which, .. })) => drain(context, which, true),
        Some(Action::Resume(which)) => drain(context, which, false),
        Some(Action::Remove(which)) => remove(context, which),
    }
}

fn list(context: &Context) -> Outcome {
    let nodes = listed(context)?;
    context.print(&nodes, |nodes| text(nodes))
}

fn with_links(context: &Context) -> Outcome {
    let mut nodes = listed(context)?;
    match links::listed(context) {
        Ok(list) => {
            let figures = links::of_manager(&list);
            let mut of_nodes = NodeLinks::by_node(figures.links());
            for node in &mut nodes {
                node.links = of_nodes.remove(&*node.node);
            }
        }
        // The nodes are worth showing all the same.
        Err(failure) => say!("causeway nodes: the measured links are not shown: {failure}"),
    }
    context.print(&nodes, |nodes| text(nodes))
}

fn listed(context: &Context) -> Result<Vec<ManagedNode>, Failure> {
    let list = context.read_from_manager(async |manager| {
        let request = manager.request(ListNodesRequest {});
        manager.answer_to(manager.admin().list_nodes(request)).await
    })?;
    Ok(list.nodes.into_iter().map(ManagedNode::from).collect())
}

fn drain(context: &Context, which: &Which, draining: bool) -> Outcome {
    order(
        context,
        DrainNodeRequest {
            node: which.node.clone(),
            draining,
            ..DrainNodeRequest::default()
        },
    )?;
    list(context)
}

// Waits until every lease of the node has moved, has ended, or stays.
fn migrate(context: &Context, which: &Which, within: Option<Duration>) -> Outcome {
    order(
        context,
        DrainNodeRequest {
            node: which.node.clone(),
            draining: true,
            migrate: true,
            within_ms: within.map_or(0, milliseconds),
        },
    )?;
    loop {
        let list = context.read_from_manager(async |manager| {
            let request = manager.request(ListNodesRequest {});
            manager.answer_to(manager.admin().list_nodes(request)).await
        })?;
        let nodes: Vec<ManagedNode> = list.nodes.into_iter().map(ManagedNode::from).collect();
        let leases = nodes.iter().flat_map(|node| &node.leaving);
        // Without a time limit, equal devices may never become free.
        let is_decided = |of: &Leaving| match of.state.as_str() {
            "moves" => false,
            "waits" | "stays" => within.is_none(),
            _ => true,
        };
        if leases.into_iter().all(is_decided) {
            return context.print(&nodes, |nodes| text(nodes));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn order(context: &Context, request: DrainNodeRequest) -> Result<(), Failure> {
    context.with_manager(async |manager| {
        let request = manager.request(request);
        manager.answer_to(manager.admin().drain_node(request)).await
    })?;
    Ok(())
}

fn remove(context: &Context, Remove { which, force }: &Remove) -> Outcome {
    let (node, force) = (which.node.clone(), *force);
    context.with_manager(async |manager| {
        let request = manager.request(RemoveNodeRequest { node, force });
        manager
            .answer_to(manager.admin().remove_node(request))
            .await
    })?;
    list(context)
}

fn text(nodes: &[ManagedNode]) -> String {
    if nodes.is_empty() {
        return "No node has joined. On each: causewayd --manager HOST[:PORT]\n".to_owned();
    }
    let mut table = Table::new(["NODE", "STATE", "SESSIONS", "ADDRESS", "LEASED", "DEVICE"]);
    let names = NodeNames::of(nodes.iter().map(|of| (of.node.clone(), of.name.as_str())));
    for node in nodes {
        let state = node_state(node.connected, node.draining, node.stopping);
        let first = [
            names.label(&node.node, &node.name),
            state.to_owned(),
            match node.away {
                0 => node.sessions.to_string(),
                away => format!("{} ({away} away)", node.sessions),
            },
            node.addresses.first().cloned().unwrap_or_default(),
        ];
        // A node without devices has a row too.
        let devices = node.devices.iter().map(device_text);
        let rows = devices.chain(node.devices.is_empty().then(Default::default));
        let beginnings = [first]
            .into_iter()
            .chain(std::iter::repeat_with(Default::default));
        for ([name, state, sessions, address], (leased, what)) in beginnings.zip(rows) {
            table.row([name, state, sessions, address, leased, what]);
        }
    }
    let leaving = leaving_text(nodes);
    let insecure = nodes.iter().filter(|node| node.insecure);
    let insecure =
        insecure.map(|node| format!("{}: {INSECURE}\n", names.label(&node.node, &node.name)));
    let links = links_text(nodes, &names);
    format!("{table}{links}{leaving}{}", insecure.collect::<String>())
}

/// The nodes' measured links. Empty if there is none.
fn links_text(nodes: &[ManagedNode], names: &NodeNames) -> String {
    let end = |of: &LinkTo| {
        let name = names.label(&of.node, &of.name);
        format!("{}, {name}", links::bandwidth(of.bytes_per_second))
    };
    let mut table = Table::new(["NODE", "LINKS", "SLOWEST", "FASTEST"]);
    let measured = nodes.iter().filter_map(|of| Some((of, of.links.as_ref()?)));
    let mut count = 0;
    for (node, links) in measured {
        count += 1;
        table.row([
            names.label(&node.node, &node.name),
            links.measured.to_string(),
            end(&links.slowest),
            end(&links.fastest),
        ]);
    }
    match count {
        0 => String::new(),
        _ => format!("\n{table}"),
    }
}

fn leaving_text(nodes: &[ManagedNode]) -> String {
    let leases = || nodes.iter().flat_map(|node| &node.leaving);
    if leases().next().is_none() {
        return String::new();
    }
    let mut table = Table::new(["LEASE", "USER", "STATE", "REASON"]);
    for of in leases() {
        let reason = match of.state.as_str() {
            "moves" | "moved" => format!("to {}", of.reason),
            _ => of.reason.clone(),
        };
        table.row([of.lease.clone(), of.user.clone(), of.state.clone(), reason]);
    }
    format!("\n{table}")
}

fn device_text(device: &ManagedDevice) -> (String, String) {
    let ManagedDevice {
        name,
        kind,
        memory_bytes,
        shares,
        leased,
        ..
    } = device;
    let memory = bytes(*memory_bytes);
    (
        format!("{leased} of {shares}"),
        format!("{kind} {name}, {memory}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_open_to_everybody_is_named() {
        let node = |name: &str, insecure| ManagedNode {
            name: name.to_owned(),
            insecure,
            ..ManagedNode::from(causeway_proto::manager::NodeInfo::default())
        };
        let text = text(&[node("gpu1", false), node("gpu2", true)]);
        let said: Vec<_> = text
            .lines()
            .filter(|line| line.contains("INSECURE"))
            .collect();
        assert!(said.len() == 1 && said[0].starts_with("gpu2"), "{text}");
    }

    #[test]
    fn links_have_a_table_of_their_own_and_only_if_there_are_any() {
        let to = |name: &str, bytes_per_second| LinkTo {
            node: name.to_owned(),
            name: name.to_owned(),
            bytes_per_second,
        };
        let mut node = ManagedNode {
            name: "gpu1".to_owned(),
            ..ManagedNode::from(causeway_proto::manager::NodeInfo::default())
        };
        assert!(!text(std::slice::from_ref(&node)).contains("SLOWEST"));
        node.links = Some(NodeLinks {
            measured: 2,
            slowest: to("gpu3", 12_500_000),
            fastest: to("gpu2", 125_000_000),
        });
        let text = text(&[node]);
        assert!(text.contains("100 Mbit/s, gpu3"), "{text}");
        assert!(text.contains("1.00 Gbit/s, gpu2"), "{text}");
    }

    #[test]
    fn nodes_of_one_name_are_told_apart() {
        let node = |name: &str, node: &str| ManagedNode {
            name: name.to_owned(),
            node: node.to_owned(),
            ..ManagedNode::from(causeway_proto::manager::NodeInfo::default())
        };
        let text = text(&[node("gpu1", "01"), node("gpu2", "02"), node("gpu1", "03")]);
        let names = text.lines().skip(1).map(|line| line.split("  ").next());
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["gpu1 01", "gpu2", "gpu1 03"].map(Some)
        );
    }
}
