//! `causeway devices`: each node, its devices, the round-trip time, and what is wrong with it.

use std::process::ExitCode;

use causeway::config::Settings;
use causeway_devmgr::report::{self, DeviceReport, NodeReport};

/// What `devices` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let settings = Settings::load();
    for problem in &settings.problems {
        eprintln!("causeway devices: {problem}");
    }
    let nodes = report::nodes(&settings);
    if arguments.json {
        match serde_json::to_string_pretty(&nodes) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("causeway devices: {error}"),
        }
    } else if nodes.is_empty() {
        println!(
            "No server is configured. Write servers.toml, or set CAUSEWAY_SERVERS=host[:port],…"
        );
    } else {
        nodes.iter().for_each(print);
    }
    let well_configured = settings.problems.is_empty();
    if well_configured && nodes.iter().all(|node| node.problems.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print(node: &NodeReport) {
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
    println!("{}{named}{version}{time}", node.name);
    if !node.also_at.is_empty() {
        println!("  the same daemon as {}", node.also_at.join(", "));
    }
    for device in &node.devices {
        print_device(device);
    }
    for remark in &node.remarks {
        println!("  remark: {remark}");
    }
    for problem in &node.problems {
        println!("  problem: {problem}");
    }
}

fn print_device(device: &DeviceReport) {
    println!("  {}  {}", device.kind, device.name);
    println!(
        "       {} units, {:.1} GiB; {}, driver {}, of {}",
        device.compute_units,
        device.memory_bytes as f64 / f64::from(1 << 30),
        device.version,
        device.driver,
        device.platform,
    );
}

fn milliseconds(us: u64) -> String {
    format!("{}.{:02} ms", us / 1000, us % 1000 / 10)
}
