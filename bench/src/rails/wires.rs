//! Two hosts with two cables between them, and a daemon on the second host.
//!
//! The first cable is the network's own. The second joins the two hosts directly. Invariant: both have the same rate,
//! and a cut drops what arrives, at both ends, so that nobody is told.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_network::{Host, Network, Rate};

use super::Direction;
use crate::setup::{Build, Process, set_vendors};

/// The names of the cables' ends, the same on both hosts.
const DEVICES: [&str; 2] = ["eth0", "eth1"];
/// The addresses of the second cable.
const SECOND: [&str; 2] = ["10.80.0.1", "10.80.0.2"];
/// How often the bytes are looked at.
const LOOK: Duration = Duration::from_millis(5);

const PROGRAM: usize = 0;
const NODE: usize = 1;

/// The bytes that had arrived over each cable at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) bytes: [u64; 2],
}

impl Sample {
    /// The bytes of both cables.
    pub(super) fn sum(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// The hosts; see the module.
pub(super) struct Wires {
    build: Build,
    client: PathBuf,
    port: String,
    // Before the network, so that the daemon ends first. The lock makes it shareable.
    _daemon: Mutex<Process>,
    network: Network,
}

impl Wires {
    /// Lays cables of this rate, and starts the daemon over the fake driver.
    pub(super) fn lay(rate: Rate) -> Result<Wires, Box<dyn std::error::Error>> {
        let network = Network::builder().hosts(2).rate(rate).build()?;
        second_cable(&network, rate)?;
        let build = Build::find()?;
        let vendors = build.vendors("fake", "libfake_opencl.so")?;
        let client = build.vendors("causeway", "libcauseway.so")?;
        let mut command = network.host(NODE).command(build.part("causewayd")?);
        // Nobody else can reach this host, so no authentication is needed.
        command.args(["--listen", "0.0.0.0:0", "--insecure", "--log", "error"]);
        command.env("CAUSEWAYD_BUILD_CACHE_SIZE", "0");
        set_vendors(&mut command, Some(&vendors));
        let (daemon, address) = Build::listening(&mut command)?;
        let port = address.rsplit(':').next().unwrap_or_default().to_owned();
        Ok(Wires {
            build,
            client,
            port,
            _daemon: Mutex::new(daemon),
            network,
        })
    }

    /// A command for this program in another role on the first host, with a server of so many addresses.
    pub(super) fn program(&self, role: &str, rails: usize) -> io::Result<Command> {
        let first = self.network.host(NODE).address().to_string();
        let addresses = [first.as_str(), SECOND[NODE]];
        let listed: Vec<String> = addresses[..rails]
            .iter()
            .map(|address| format!("\"{address}:{}\"", self.port))
            .collect();
        let config = self.build.scratch().join(format!("{rails}-rails.toml"));
        let text = format!(
            "[[server]]\naddress = [{}]\nshared_memory = false\n",
            listed.join(", ")
        );
        std::fs::write(&config, text)?;
        let own = self.build.own_path()?;
        let mut command = self.network.host(PROGRAM).command(own);
        set_vendors(&mut command, Some(&self.client));
        command.arg(role).env("CAUSEWAY_CONFIG", config);
        command.env_remove("CAUSEWAY_SERVERS");
        Ok(command)
    }

    /// Cuts a cable silently.
    pub(super) fn cut(&self, cable: usize) -> io::Result<()> {
        let rules = format!(
            "add table inet rails; add chain inet rails in {{ type filter hook input priority 0; }}; \
             add rule inet rails in iifname {} drop",
            DEVICES[cable]
        );
        self.on_both("nft", &[&rules])
    }

    /// Undoes all cuts.
    pub(super) fn mend(&self) -> io::Result<()> {
        self.on_both("nft", &["delete table inet rails"])
    }

    fn on_both(&self, program: &str, arguments: &[&str]) -> io::Result<()> {
        [PROGRAM, NODE]
            .iter()
            .try_for_each(|host| done(self.network.host(*host).command(program).args(arguments)))
    }

    /// Samples what arrives at the receiver until `is_over`. Calls `look` with each sample.
    pub(super) fn watch(
        &self,
        direction: Direction,
        is_over: &AtomicBool,
        mut look: impl FnMut(&Sample) + Send,
    ) -> io::Result<Vec<Sample>> {
        let receiver = match direction {
            Direction::Write => NODE,
            Direction::Read => PROGRAM,
        };
        let sampling = || {
            let mut samples = Vec::new();
            while !is_over.load(Ordering::Acquire) {
                let sample = Sample {
                    at: Instant::now(),
                    bytes: arrived()?,
                };
                look(&sample);
                samples.push(sample);
                std::thread::sleep(LOOK);
            }
            Ok(samples)
        };
        let host: &Host = self.network.host(receiver);
        host.enter(sampling).map_err(io::Error::other)?
    }
}

/// The bytes that have arrived over each cable, on the host of this thread.
fn arrived() -> io::Result<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let of = |device: &str| {
        let mut lines = text.lines().filter_map(|line| line.trim().split_once(':'));
        let (_, counts) = lines.find(|(name, _)| *name == device)?;
        counts.split_whitespace().next()?.parse().ok()
    };
    let missing = || io::Error::other("a cable is missing in /proc/net/dev");
    let [first, second] = DEVICES.map(|device| of(device).ok_or_else(missing));
    Ok([first?, second?])
}

fn second_cable(network: &Network, rate: Rate) -> io::Result<()> {
    let [here, there] = [PROGRAM, NODE].map(|host| network.host(host));
    let device = DEVICES[1];
    let peer = there.namespace();
    let ends = [
        "link", "add", device, "type", "veth", "peer", "name", device,
    ];
    done(here.command("ip").args(ends).args(["netns", &peer]))?;
    // As the network limits its own cables.
    let bucket = |time| rate.bytes_in(time).max(256 << 10).to_string();
    let queue = bucket(Duration::from_millis(5));
    let burst = rate.bytes_in(Duration::from_micros(600)).to_string();
    let bits = format!("{}bit", rate.bits_per_second());
    for (host, address) in [(here, SECOND[PROGRAM]), (there, SECOND[NODE])] {
        let address = format!("{address}/24");
        done(
            host.command("ip")
                .args(["address", "add", &address, "dev", device]),
        )?;
        done(host.command("ip").args(["link", "set", device, "up"]))?;
        let limit = ["tbf", "rate", &bits, "burst", &burst, "limit", &queue];
        done(
            host.command("tc")
                .args(["qdisc", "add", "dev", device, "root"])
                .args(limit),
        )?;
    }
    Ok(())
}

fn done(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
