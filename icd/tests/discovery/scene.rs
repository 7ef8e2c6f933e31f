//! A network with a client, whose programs are processes of their own.

use std::path::PathBuf;

use causeway::config::remembered::NodeMemory;
use causeway_network::Host;

use crate::programs::Program;
use crate::stage::*;

/// A client with its folders, and the certificates of its nodes.
pub(crate) struct Scene {
    pub(crate) network: Stage,
    pub(crate) certificates: Certificates,
}

impl Scene {
    pub(crate) fn new(hosts: usize, names: &[&str]) -> Option<Scene> {
        let network = network(hosts)?;
        let certificates = Certificates::new();
        names.iter().for_each(|name| certificates.node(name));
        certificates.user("alice");
        Some(Scene {
            network,
            certificates,
        })
    }

    pub(crate) fn host(&self, number: usize) -> &Host {
        self.network.host(number)
    }

    /// The settings of a program; `more` follows `[tls]`.
    pub(crate) fn config(&self, file: &str, first: &str, more: &str) -> PathBuf {
        let path = self.certificates.path(file);
        std::fs::write(&path, self.certificates.settings(first, more)).expect("written");
        path
    }

    pub(crate) fn program(&self, config: PathBuf) -> Program<'_> {
        Program {
            host: self.host(0),
            config,
            state: self.certificates.folder.path(),
            resolv_conf: None,
            awaits: 0,
            asks_to_the_end: false,
        }
    }

    /// Lets no question and no answer through.
    pub(crate) fn block_multicast(&self) {
        for host in self.network.hosts() {
            host.block_port(5353).expect("nft");
        }
    }

    /// Runs a command on a host.
    pub(crate) fn on(&self, number: usize, command: &str) {
        let mut words = command.split(' ');
        let mut command = self.host(number).command(words.next().expect("a program"));
        let output = command.args(words).output().expect("it runs");
        assert!(output.status.success(), "{command:?}: {output:?}");
    }

    pub(crate) fn memory(&self) -> NodeMemory {
        NodeMemory::at(self.certificates.path("causeway/nodes.toml"))
    }

    pub(crate) fn remembered(&self) -> Vec<String> {
        let nodes = self.memory().nodes().expect("the file is whole");
        nodes.into_iter().map(|node| node.name).collect()
    }
}
