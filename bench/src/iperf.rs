//! What iperf3 reaches on the same link: the measure for ours.
//!
//! Invariant: no server of it outlives a measurement.
#![forbid(unsafe_code)]

use std::io;
use std::time::Duration;

use causeway_network::{Host, Network};
use serde::Deserialize;

use crate::nodes::run_within;
use crate::setup::Process;

/// iperf3's report, as far as it is read here.
#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    error: Option<String>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    bits_per_second: f64,
}

/// Whether it is there; why not, if it is not.
pub(crate) fn find() -> Result<(), String> {
    match std::process::Command::new("iperf3")
        .arg("--version")
        .output()
    {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("iperf3 ended with {}", output.status)),
        Err(error) => Err(format!("iperf3: {error}")),
    }
}

/// Bytes a second from one host to another, over so many streams and seconds after one that does not count.
pub(crate) fn measure(
    network: &Network,
    from: usize,
    to: usize,
    streams: u32,
    seconds: u64,
) -> io::Result<f64> {
    let address = network.host(to).address().to_string();
    let mut server = serve(network.host(to), &address)?;
    // Its greeting ends with the line that names the port; then it can be called.
    while !server.line()?.contains("listening on") {}
    let mut client = network.host(from).command("iperf3");
    client
        .args(["--client", &address, "--json", "--omit", "1"])
        .args(["--parallel", &streams.to_string()])
        .args(["--time", &seconds.to_string()]);
    let text = run_within(&mut client, Duration::from_secs(seconds + 20))?;
    let told: Told = serde_json::from_str(&text)?;
    if let Some(error) = told.error {
        return Err(io::Error::other(format!("iperf3: {error}")));
    }
    let sum = told.end.and_then(|end| end.sum_received);
    sum.map(|sum| sum.bits_per_second / 8.0)
        .ok_or_else(|| io::Error::other("iperf3 told no sum"))
}

fn serve(host: &Host, address: &str) -> io::Result<Process> {
    let mut command = host.command("iperf3");
    command.args(["--server", "--one-off", "--forceflush", "--bind", address]);
    Process::start(&mut command)
}
