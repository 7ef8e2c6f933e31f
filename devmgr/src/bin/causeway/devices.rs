//! `causeway devices`: each node with its devices, round-trip time and problems. If a device manager is
//! configured, also the kinds of devices that it offers, and how many of them are free.

use std::process::ExitCode;

use causeway_devmgr::listing::{Kind, LinkReport};
use causeway_devmgr::report::{self, DeviceReport, NodeReport};
use causeway_proto::manager::ListKindsRequest;
use serde::Serialize;

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::links::bandwidth;
use crate::say::say;
use crate::text::{Table, bytes, duration, printable_lines};

/// Arguments of `devices`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// An entry of the output: first nodes, then the manager.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Shown {
    Node(NodeReport),
    Manager(ManagerReport),
}

/// The devices that a device manager offers.
#[derive(Debug, Serialize)]
struct ManagerReport {
    /// The manager's `host:port`.
    manager: String,
    /// Whether the manager serves other machines without both TLS and authentication.
    insecure: bool,
    /// Number of its nodes that everyone who can reach them can use.
    insecure_nodes: u32,
    /// The kinds of devices of its nodes.
    kinds: Vec<Kind>,
}

/// The message if neither servers nor a manager are configured.
const NOTHING: &str = "no server is configured: write servers.toml, or set CAUSEWAY_SERVERS=host[:port],… or CAUSEWAY_MANAGER=host[:port]; \
                       `causeway run -- clinfo -l` shows this machine's own devices";

pub(crate) fn run(_: &Arguments, context: &Context) -> Outcome {
    let settings = context.settings();
    let manager = settings.manager.as_ref().map(|of| of.all_addresses());
    for problem in &settings.problems {
        say!("causeway devices: {problem}");
    }
    let has_manager = manager.is_some();
    let mut nodes = report::nodes(&settings);
    let mut has_all = settings.problems.is_empty();
    match report::leased(settings) {
        Ok(leased) => nodes.extend(leased),
        Err(error) => {
            has_all = false;
            context.fail(
                "devices",
                &Failure::new(format!("the device manager granted no devices: {error}")),
            );
        }
    }
    has_all &= nodes.iter().all(|node| node.problems.is_empty());
    let mut shown: Vec<Shown> = nodes.into_iter().map(Shown::Node).collect();
    if let Some(manager) = manager {
        match given_out(context, manager) {
            Ok(report) => shown.push(Shown::Manager(report)),
            Err(failure) => {
                has_all = false;
                context.fail("devices", &failure);
            }
        }
    }
    // A manager that does not answer is configured all the same; its failure is on standard error.
    let is_configured = has_manager || !shown.is_empty();
    context.print(&shown, |shown| shown.iter().map(text).collect())?;
    // If a problem was printed above, it is the reason that nothing is configured.
    if !is_configured && has_all {
        return Ok(context.fail("devices", &Failure::new(NOTHING)));
    }
    if has_all {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

fn given_out(context: &Context, manager: String) -> Result<ManagerReport, Failure> {
    let list = context.read_from_manager(async |manager| {
        let request = manager.request(ListKindsRequest {});
        manager
            .answer_to(manager.leases().list_kinds(request))
            .await
    })?;
    Ok(ManagerReport {
        manager,
        insecure: list.insecure,
        insecure_nodes: list.insecure_nodes,
        kinds: list.kinds.into_iter().map(Kind::from).collect(),
    })
}

fn text(shown: &Shown) -> String {
    match shown {
        Shown::Node(node) => node_text(node),
        Shown::Manager(manager) => manager_text(manager),
    }
}

fn manager_text(of: &ManagerReport) -> String {
    let insecure = insecure_text(of);
    if of.kinds.is_empty() {
        return format!(
            "The device manager at {} has no devices now.\n{insecure}",
            of.manager
        );
    }
    let mut table = Table::new(["THERE", "FREE", "TYPE", "MEMORY", "DEVICE"]);
    for kind in &of.kinds {
        let (there, free) = (kind.count.to_string(), kind.free.to_string());
        let memory = bytes(kind.memory_bytes);
        table.row([there, free, kind.kind.clone(), memory, kind.name.clone()]);
    }
    format!(
        "The device manager at {} offers (causeway run --request '1, TYPE=…' -- PROGRAM):\n{table}{insecure}",
        of.manager
    )
}

/// The remarks that a node without a manager makes too.
fn insecure_text(of: &ManagerReport) -> String {
    let mut text = String::new();
    if of.insecure {
        text += "  remark: INSECURE: everyone who can reach the device manager can use it under any name, or read what crosses \
                 the network\n";
    }
    match of.insecure_nodes {
        0 => {}
        1 => {
            text += "  remark: INSECURE: everyone who can reach one of its nodes can use that, and read what crosses the network\n"
        }
        more => {
            text += &format!(
                "  remark: INSECURE: everyone who can reach {more} of its nodes can use them, and read what crosses the network\n"
            )
        }
    }
    text
}

fn node_text(node: &NodeReport) -> String {
    let version = node
        .daemon_version
        .as_deref()
        .map(|version| format!(", causewayd {version}"))
        .unwrap_or_default();
    let time = node
        .round_trip_us
        .map(|us| format!(", round trip {}", milliseconds(us)))
        .unwrap_or_default();
    let named = if node.name == node.address {
        String::new()
    } else {
        format!(" ({})", node.address)
    };
    let mut lines = vec![format!("{}{named}{version}{time}", node.name)];
    if let Some(lease) = &node.lease {
        lines.push(format!("  leased from the device manager: {lease}"));
    }
    if !node.also_at.is_empty() {
        lines.push(format!("  the same daemon as {}", node.also_at.join(", ")));
    }
    if node.own_away > 0 {
        lines.push(format!(
            "  your sessions: {} ({} away)",
            node.own_sessions, node.own_away
        ));
    }
    lines.extend(node.link.as_deref().map(link_text));
    lines.extend(node.devices.iter().map(device_text));
    let remarks = node.remarks.iter();
    lines.extend(remarks.map(|remark| format!("  remark: {remark}")));
    let problems = node.problems.iter();
    lines.extend(problems.map(|problem| format!("  problem: {problem}")));
    printable_lines(&lines.join("\n")) + "\n"
}

fn link_text(of: &LinkReport) -> String {
    let old = if of.old { ", too old to be used" } else { "" };
    format!(
        "  link from here: {} there, {} back, measured {} ago{old}",
        bandwidth(of.outward_bytes_per_second),
        bandwidth(of.inward_bytes_per_second),
        duration(of.age_ms),
    )
}

fn device_text(device: &DeviceReport) -> String {
    format!(
        "  {}  {}\n       {} units, {:.1} GiB; {}, driver {}, of {}",
        device.kind,
        device.name,
        device.compute_units,
        device.memory_bytes as f64 / f64::from(1 << 30),
        device.version,
        device.driver,
        device.platform,
    ) + &usage_text(device)
}

/// What is known about the use of a device, as a further line.
fn usage_text(device: &DeviceReport) -> String {
    let Some(usage) = &device.usage else {
        return String::new();
    };
    let known = [
        usage.utilization_percent.map(|of| format!("{of} % used")),
        usage
            .memory_used_bytes
            .map(|of| format!("{} of its memory taken", bytes(of))),
        usage.temperature_celsius.map(|of| format!("{of} °C")),
        usage
            .context_memory_bytes
            .map(|of| format!("each process takes {} by itself", bytes(of))),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    match known.is_empty() {
        true => String::new(),
        false => format!("\n       {}", known.join(", ")),
    }
}

fn milliseconds(us: u64) -> String {
    format!("{}.{:02} ms", us / 1000, us % 1000 / 10)
}
