//! An emulated network with a host for the program, and hosts with daemons.
//!
//! All processes share this machine, and only their networks are separate. So shared memory is disabled here.
//! Invariant: no daemon outlives the network.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_network::Network;

use crate::setup::{Build, Process, set_vendors};

/// The program's host.
pub(crate) const PROGRAM: usize = 0;

/// Hosts with cables, and a daemon on each but the first.
pub(crate) struct Cables {
    /// The hosts.
    pub(crate) network: Network,
    /// The parts of this build.
    pub(crate) build: Build,
    client: PathBuf,
    daemons: Vec<(Process, String)>,
}

impl Cables {
    /// Starts the daemons over the OpenCL of `vendors` (`None`: the system's).
    pub(crate) fn start(network: Network, vendors: Option<&Path>) -> io::Result<Cables> {
        let build = Build::find()?;
        let client = build.vendors("causeway", "libcauseway.so")?;
        let mut daemons = Vec::new();
        for host in &network.hosts()[PROGRAM + 1..] {
            let mut command = host.command(build.part("causewayd")?);
            let listen = format!("{}:0", host.address());
            // Nobody else can reach these hosts, so no authentication is needed.
            command.args(["--listen", &listen, "--insecure", "--log", "error"]);
            // The cache would build beside the measurement.
            command.env("CAUSEWAYD_BUILD_CACHE_SIZE", "0");
            set_vendors(&mut command, vendors);
            daemons.push(Build::listening(&mut command)?);
        }
        Ok(Cables {
            network,
            build,
            client,
            daemons,
        })
    }

    /// The process of the first daemon.
    pub(crate) fn daemon(&self) -> u32 {
        self.daemons[0].0.id()
    }

    /// A command for this program in another role on the first host, through Causeway over the first `count` nodes.
    pub(crate) fn program(&self, role: &str, count: usize) -> io::Result<Command> {
        let mut command = self.network.host(PROGRAM).command(self.build.own_path()?);
        set_vendors(&mut command, Some(&self.client));
        let servers: Vec<&str> = self.daemons[..count]
            .iter()
            .map(|(_, address)| address.as_str())
            .collect();
        command
            .arg(role)
            .env("CAUSEWAY_SERVERS", servers.join(","))
            .env("CAUSEWAY_SHARED_MEMORY", "0")
            .env_remove("CAUSEWAY_CONFIG");
        Ok(command)
    }
}
