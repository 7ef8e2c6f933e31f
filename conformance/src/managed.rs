//! A device manager in front of the nodes: every program gets its devices by a lease.
//!
//! With `--managed`, each set of nodes has a `causeway-devmgr` of its own, and all speak TLS: the programs are a
//! user with a token, who asks for all devices of the nodes, in `servers.toml`. Invariant: a program is shown as
//! many devices as without; it never meets a device that another program still has, because the runner starts
//! them one after the other.

use std::path::{Path, PathBuf};

use causeway_cluster::{Caller, Manager};

use crate::SetupError;
use crate::options::Carrier;

/// What is not given back is soon free: leases without sessions, and without renewals.
const TIMING: &str = "[policy.timing]\ngrace = 10000\nlease = 15000\n";

/// The manager of some nodes.
pub(crate) struct Cluster {
    program: PathBuf,
    manager: Manager,
    token: PathBuf,
}

impl Cluster {
    /// Starts one.
    pub(crate) fn start(program: &Path) -> Result<Self, SetupError> {
        let manager = Manager::start(program, TIMING)?;
        let (_, token) = manager.user("tester")?;
        Ok(Self {
            program: program.to_owned(),
            manager,
            token,
        })
    }

    /// Another of the same program, for other nodes.
    pub(crate) fn another(&self) -> Result<Self, SetupError> {
        Self::start(&self.program)
    }

    /// The manager's program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// What a daemon needs to be its node number `number`: arguments, and variables.
    pub(crate) fn of_node(&self, number: usize) -> (Vec<String>, (String, String)) {
        let state = self.manager.certificates.path(&format!("node-{number}"));
        let variable = ("STATE_DIRECTORY".to_owned(), state.display().to_string());
        (self.manager.node_arguments(), variable)
    }

    /// Waits until nobody has anything. On a busy machine a program may end before it has given its devices back:
    /// these then come back when its lease has run out, and the next program would find none.
    pub(crate) fn until_free(&self) -> Result<(), SetupError> {
        let is_free = |admin: &Caller| Ok(admin.leases()?.is_empty());
        Ok(self.manager.see("that all devices are free", is_free)?)
    }

    /// A `servers.toml` that asks for all devices of so many nodes, once they have come.
    pub(crate) fn client_settings(
        &self,
        nodes: usize,
        carrier: Carrier,
    ) -> Result<String, SetupError> {
        self.settings_of(nodes, carrier, usize::MAX)
    }

    /// The same for at most so many of the devices.
    pub(crate) fn settings_of(
        &self,
        nodes: usize,
        carrier: Carrier,
        most: usize,
    ) -> Result<String, SetupError> {
        let mut devices = 0;
        self.manager.see(&format!("{nodes} nodes"), |admin| {
            let there = admin.nodes()?;
            let there = there.iter().filter(|node| node.connected);
            let each: Vec<usize> = there.map(|node| node.devices.len()).collect();
            devices = each.iter().sum();
            Ok(each.iter().filter(|of| **of > 0).count() == nodes)
        })?;
        let link = format!("carrier = \"{}\"\n", carrier.name());
        let settings = self.manager.client_settings(&self.token, &link);
        let count = devices.min(most);
        Ok(format!("{settings}[[request]]\ncount = {count}\n"))
    }
}
