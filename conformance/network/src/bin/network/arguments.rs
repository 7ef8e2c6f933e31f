//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use causeway_network::{Builder, Network, Rate, Shape, units};
use clap::{Args, Parser, Subcommand};

use crate::protocol::Ends;

/// Several hosts on this machine: namespaces joined by a switch, with rates, delays, losses, cuts and
/// counters. Needs root, iproute2 and nftables. Hosts count from 0.
#[derive(Parser)]
#[command(version)]
pub(crate) struct Arguments {
    /// Name of the network, if several are up.
    #[arg(long, short, global = true, default_value = "lab", value_parser = name)]
    pub(crate) name: String,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Build a network and keep it until Ctrl-C or `down`.
    Up(Up),
    /// Run a command on a host.
    Run {
        host: usize,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Show hosts, shapes, and the bytes that crossed each link.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delay, lose, reorder or slow packets between two hosts from now on.
    Shape {
        #[command(flatten)]
        ends: Between,
        #[command(flatten)]
        shape: Shaping,
    },
    /// Drop all packets between two hosts without any notification.
    Cut(Between),
    /// Undo a cut.
    Mend(Between),
    /// Undo a cut.
    RefuseDialling(FromTo),
    /// Undo `refuse-dialling`.
    AllowDialling(FromTo),
    /// Drop what arrives at a host for a port.
    Block {
        host: usize,
        port: u16,
        /// Refuse TCP connections with a reset instead.
        #[arg(long)]
        reset: bool,
    },
    /// Undo `block`.
    Open { host: usize, port: u16 },
    /// Pull a host's cable out of the switch.
    Unplug { host: usize },
    /// Undo `unplug`.
    Plug { host: usize },
    /// Remove the network, and end what still runs on its hosts.
    Down,
    /// Remove the leftovers of networks whose process was killed.
    Clean,
}

#[derive(Args)]
pub(crate) struct Up {
    /// Number of hosts.
    #[arg(long, default_value_t = 2)]
    hosts: usize,
    /// Rate of each host's cable in each direction (1gbit, 250mbit).
    #[arg(long)]
    rate: Option<Rate>,
    /// Amount that passes such a cable at once after a pause, as time at its rate [default: 0.6ms].
    #[arg(long, value_parser = units::duration)]
    burst: Option<Duration>,
    /// Seed of the random decisions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Return when the network is up, and keep it in the background.
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    shape: Shaping,
}

impl Up {
    pub(crate) fn builder(&self) -> Builder {
        let mut builder = Network::builder().hosts(self.hosts).seed(self.seed);
        if let Some(rate) = self.rate {
            builder = builder.rate(rate);
        }
        if let Some(burst) = self.burst {
            builder = builder.burst(burst);
        }
        let shape = self.shape.shape();
        if shape != Shape::default() {
            builder = builder.every_link(shape);
        }
        builder
    }
}

/// Shape of links, in each direction.
#[derive(Args)]
pub(crate) struct Shaping {
    /// Delay in one direction: 10ms makes a round trip of 20.
    #[arg(long, value_parser = units::duration)]
    delay: Option<Duration>,
    /// Maximum additional delay; the order is kept.
    #[arg(long, value_parser = units::duration)]
    jitter: Option<Duration>,
    /// Share of packets that are lost (0.001, 0.1%).
    #[arg(long, value_parser = units::share)]
    loss: Option<f64>,
    /// Share of packets that others overtake.
    #[arg(long, value_parser = units::share)]
    reorder: Option<f64>,
    /// Additional delay of those packets.
    #[arg(long, value_parser = units::duration)]
    late: Option<Duration>,
    /// Rate of each link.
    #[arg(long)]
    link_rate: Option<Rate>,
    /// Number of bytes that may wait for that rate.
    #[arg(long)]
    queue: Option<u64>,
}

impl Shaping {
    pub(crate) fn shape(&self) -> Shape {
        let plain = Shape::default();
        Shape {
            delay: self.delay.unwrap_or(plain.delay),
            jitter: self.jitter.unwrap_or(plain.jitter),
            loss: self.loss.unwrap_or(plain.loss),
            reorder: self.reorder.unwrap_or(plain.reorder),
            late: self.late.unwrap_or(plain.late),
            rate: self.link_rate,
            queue: self.queue,
        }
    }
}

#[derive(Args)]
pub(crate) struct Between {
    a: usize,
    b: usize,
    /// Only packets from the first host to the second.
    #[arg(long)]
    one_way: bool,
}

impl From<&Between> for Ends {
    fn from(between: &Between) -> Self {
        Self {
            from: between.a,
            to: between.b,
            both: !between.one_way,
        }
    }
}

#[derive(Args)]
pub(crate) struct FromTo {
    from: usize,
    to: usize,
}

impl From<&FromTo> for Ends {
    fn from(ends: &FromTo) -> Self {
        Self {
            from: ends.from,
            to: ends.to,
            both: false,
        }
    }
}

/// Checks a name, which becomes part of a file's name.
fn name(text: &str) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if text.is_empty() || text.len() > 40 || !text.chars().all(fits) {
        return Err("a name has 1 to 40 letters, digits and hyphens".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn names_stay_in_their_directory() {
        assert!(name("lab-2").is_ok());
        for bad in ["", "../x", "a/b", "a b", &"x".repeat(41)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}
