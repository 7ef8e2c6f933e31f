//! The speed of iperf3 on a link, as a yardstick.
//!
//! Invariant: no server of iperf3 outlives a measurement.
#![forbid(unsafe_code)]

use std::io;
use std::time::Duration;

use causeway_network::{Host, Network};
use serde::Deserialize;

use crate::nodes::run_within;
use crate::setup::Process;

/// The parts of iperf3's report that are used here.
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

/// Checks that iperf3 is installed.
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

/// Bytes a second from one host to another, over this number of streams and seconds. The first second is not counted.
pub(crate) fn measure(
    network: &Network,
    from: usize,
    to: usize,
    streams: u32,
    seconds: u64,
) -> io::Result<f64> {
    let address = network.host(to).address().to_string();
    let mut server = serve(network.host(to), &address)?;
    // The server is ready when it has printed the line with the port.
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
