//! The output for people.

use std::fmt::Write;

use causeway_network::{Network, Shape};

use crate::protocol::Status;

/// Text of `up` when the network is ready.
pub(crate) fn built(name: &str, network: &Network) -> String {
    let mut text = format!(
        "network {name} is up, held by process {}\n",
        std::process::id()
    );
    for host in network.hosts() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  host {:<3} {}", host.index(), host.address());
    }
    text.push_str("run something there: network run HOST -- COMMAND");
    text
}

/// Text of `status`.
pub(crate) fn status(name: &str, status: &Status) -> String {
    let mut text = format!("network {name}, held by process {}\n", status.process);
    let _ = writeln!(
        text,
        "\n{:<6}{:<14}{:>16}{:>16}",
        "host", "address", "sent B", "received B"
    );
    for (index, host) in status.hosts.iter().enumerate() {
        let (sent, received) = (host.interface.sent, host.interface.received);
        let _ = writeln!(
            text,
            "{index:<6}{:<14}{sent:>16}{received:>16}",
            host.address
        );
    }
    let _ = writeln!(text, "\n{:<6}{:<6}{:>16}  shape", "from", "to", "arrived B");
    let hosts = status.hosts.len();
    for (from, to) in (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))) {
        let shaped = status
            .shaped
            .iter()
            .find(|way| (way.from, way.to) == (from, to));
        let bytes = status.traffic.bytes(from, to);
        if from == to || (bytes == 0 && shaped.is_none()) {
            continue;
        }
        let _ = write!(text, "{from:<6}{to:<6}{bytes:>16}  ");
        if let Some(way) = shaped {
            let fate = way.fate;
            let _ = write!(
                text,
                "{}; {} packets passed, {} lost, {} late, {} overflowed",
                shape(&way.shape),
                fate.passed,
                fate.lost,
                fate.late,
                fate.overflowed
            );
        }
        text.push('\n');
    }
    text
}

fn shape(shape: &Shape) -> String {
    let mut parts = vec![format!("delay {:?}", shape.delay)];
    if !shape.jitter.is_zero() {
        parts.push(format!("jitter {:?}", shape.jitter));
    }
    if shape.loss > 0.0 {
        parts.push(format!("loss {} %", shape.loss * 100.0));
    }
    if shape.reorder > 0.0 {
        parts.push(format!(
            "{} % late by {:?}",
            shape.reorder * 100.0,
            shape.late
        ));
    }
    if let Some(rate) = shape.rate {
        parts.push(format!("rate {rate}"));
    }
    parts.join(", ")
}
