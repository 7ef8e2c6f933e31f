//! Who takes part: this machine, the configured nodes that answer, and the device manager's nodes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use causeway::config::{self, ServerSettings, Settings};
use causeway::transport::discover;
use causeway::transport::links::links_of;
use causeway_devmgr::report;
use causeway_links::{LinkEntry, LinkMemory, LinkTable};

use super::managed::{self, Claims};
use super::matrix::{Host, Shown};
use crate::context::Context;
use crate::failure::Failure;
use crate::json::id;

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct NodeEnd {
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    /// How it is reached. `None`: a node of the device manager that is only shown.
    pub(crate) server: Option<ServerSettings>,
    /// Whether the device manager names it, and gives claims for it.
    pub(crate) is_managed: bool,
}

impl NodeEnd {
    /// Its addresses that are no Unix sockets.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = String> {
        let addresses = self.server.iter().flat_map(ServerSettings::addresses);
        let addresses = addresses.filter(|at| at.path().is_none());
        addresses.map(ToString::to_string)
    }

    /// Whether connections to it use TLS.
    pub(crate) fn is_secured(&self) -> bool {
        let has_ca = self.server.as_ref().is_some_and(|of| of.tls.ca.is_some());
        has_ca && self.sockets().next().is_some()
    }

    /// This machine's figures for the addresses that the node has now. The newest one stands for addresses that are not known,
    /// as what a host name leads to: earlier ones may be of networks that the node has left.
    fn own(&self, table: &LinkTable) -> Vec<Shown> {
        let own = table.entries().iter();
        let own: Vec<_> = own.filter(|of| of.peer == id(&self.uuid)).collect();
        // Link-local addresses are not measured beside others.
        let global = self.sockets().filter(|at| !at.contains('%'));
        let ips = global.map(|at| Some(at.parse::<SocketAddr>().ok()?.ip()));
        let ips: Vec<Option<IpAddr>> = ips.collect();
        let is_used = |of: &LinkEntry| ips.contains(&Some(of.to.ip()));
        let has_names = ips.contains(&None) || !own.iter().any(|of| is_used(of));
        let newest = own.iter().map(|of| of.when).max();
        let counts = |of: &&LinkEntry| is_used(of) || (has_names && Some(of.when) == newest);
        let counting = own.into_iter().filter(counts);
        counting.map(|of| shown("", of.clone())).collect()
    }

    /// Whether the text is its name or one of its addresses.
    fn is_named(&self, of: &str) -> bool {
        let mut addresses = self.server.iter().flat_map(ServerSettings::addresses);
        self.name == of || addresses.any(|at| at.as_str() == of || at.host() == of)
    }
}

/// This machine, and the nodes.
pub(crate) struct Hosts {
    pub(crate) nodes: Vec<Arc<NodeEnd>>,
    /// Number of the wanted names and addresses that no node has.
    pub(crate) not_found: usize,
    /// What the device manager knows.
    of_manager: Vec<Shown>,
    memory: Option<LinkMemory>,
}

impl Hosts {
    /// Asks the configured nodes and the device manager, or of these those of these names or addresses. Returns also why
    /// others do not answer. `claims`: for the manager's nodes, if something is to be measured.
    ///
    /// # Errors
    /// No node is configured, or none has a name.
    pub(crate) fn find(
        context: &Context,
        settings: &Settings,
        wanted: &[String],
        claims: Option<&Claims>,
    ) -> Result<(Hosts, Vec<String>), Failure> {
        let mut servers = settings.servers.clone();
        if settings.discover {
            servers.extend(report::announced(settings));
        }
        if servers.is_empty() && settings.manager.is_none() {
            return Err(Failure::new("no node is configured").cure(
                "write servers.toml, or set CAUSEWAY_SERVERS=host[:port],… or CAUSEWAY_MANAGER=host[:port]",
            ));
        }
        let (mut nodes, mut absent) = configured(&servers);
        let mut of_manager = Vec::new();
        if settings.manager.is_some() {
            match managed::listed(context) {
                Ok(list) => {
                    let of_cluster = managed::nodes(&list, claims, settings);
                    // A node that is configured as well measures with the manager's claim only.
                    nodes.retain(|of| of_cluster.iter().all(|node| node.uuid != of.uuid));
                    nodes.extend(of_cluster.into_iter().map(Arc::new));
                    of_manager = managed::figures(&list);
                }
                Err(failure) if servers.is_empty() => return Err(failure),
                Err(failure) => absent.push(failure.to_string()),
            }
        }
        let mut not_found = 0;
        for of in wanted {
            if !nodes.iter().any(|node: &Arc<NodeEnd>| node.is_named(of)) {
                not_found += 1;
                absent.push(format!(
                    "no node that answers has the name or address `{of}`"
                ));
            }
        }
        nodes.retain(|node| wanted.is_empty() || wanted.iter().any(|of| node.is_named(of)));
        if nodes.is_empty() {
            let what = format!("no node takes part; {}", absent.join("; "));
            return Err(Failure::new(what.trim_end_matches("; ")).cure(
                "name configured nodes, and see with `causeway devices` which of them answer; a device manager shows users the nodes of their \
                 leases",
            ));
        }
        let memory = config::link_memory();
        let hosts = Hosts {
            nodes,
            not_found,
            of_manager,
            memory,
        };
        Ok((hosts, absent))
    }

    /// The names of all, this machine first.
    pub(crate) fn names(&self) -> Vec<Host> {
        let own = Host {
            name: "this machine".to_owned(),
            id: String::new(),
        };
        let nodes = self.nodes.iter().map(|node| Host {
            name: node.name.clone(),
            id: id(&node.uuid),
        });
        std::iter::once(own).chain(nodes).collect()
    }

    /// The nodes that cannot be measured, each with the reason.
    pub(crate) fn not_measurable(&self) -> Vec<String> {
        let without = self.nodes.iter().filter(|node| node.server.is_none());
        let text = |node: &Arc<NodeEnd>| {
            format!(
                "{}: not connected to the device manager, or without a claim of it; not measured",
                node.name
            )
        };
        without.map(text).collect()
    }

    /// Keeps this machine's own figures.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn keep(&self, entries: Vec<LinkEntry>) -> Result<(), Failure> {
        match &self.memory {
            _ if entries.is_empty() => Ok(()),
            Some(memory) => memory
                .keep(entries)
                .map_err(|error| Failure::new(error.to_string())),
            None => Err(Failure::new(
                "this machine's figures are not kept, because there is no folder for state",
            )
            .cure("set HOME or XDG_STATE_HOME")),
        }
    }

    /// All kept figures: this machine's own, and those of the nodes. Returns also why some are missing.
    pub(crate) fn links(&self) -> (Vec<Shown>, Vec<String>) {
        let (mut links, mut problems) = (self.of_manager.clone(), Vec::new());
        if let Some(memory) = &self.memory {
            match memory.table() {
                Ok(table) => links.extend(self.nodes.iter().flat_map(|node| node.own(&table))),
                Err(error) => problems.push(error.to_string()),
            }
        }
        let asked = self.nodes.iter().filter(|node| !node.is_managed);
        let asked = asked.filter_map(|node| Some((node, node.server.as_ref()?)));
        let asked: Vec<_> = asked.collect();
        let kept = std::thread::scope(|scope| {
            let asked = asked.iter();
            let asked: Vec<_> = asked
                .map(|(_, server)| scope.spawn(|| links_of(server)))
                .collect();
            let answers = asked.into_iter().map(|asked| match asked.join() {
                Ok(answer) => answer,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            answers.collect::<Vec<_>>()
        });
        for ((node, _), kept) in asked.iter().zip(kept) {
            match kept {
                Ok(of) => links.extend(
                    of.iter()
                        .filter_map(|of| Some(shown(&id(&node.uuid), LinkEntry::from_wire(of)?))),
                ),
                Err(error) => problems.push(format!("{}: {error}", node.name)),
            }
        }
        (links, problems)
    }
}

pub(crate) fn shown(owner: &str, of: LinkEntry) -> Shown {
    Shown {
        owner: owner.to_owned(),
        of,
    }
}

/// The configured nodes that answer, and why others do not.
fn configured(servers: &[ServerSettings]) -> (Vec<Arc<NodeEnd>>, Vec<String>) {
    let (mut nodes, mut absent) = (Vec::new(), Vec::new());
    for found in discover(servers) {
        let server = found.node.settings().clone();
        let inventory = match &found.inventory {
            Ok(inventory) => inventory,
            Err(error) => {
                absent.push(error.to_string());
                continue;
            }
        };
        let named = server.name.clone();
        let name = named.unwrap_or_else(|| inventory.node_name.clone());
        if let Ok(uuid) = <[u8; 16]>::try_from(&inventory.node_uuid[..]) {
            nodes.push(Arc::new(NodeEnd {
                name,
                uuid,
                server: Some(server),
                is_managed: false,
            }));
        }
    }
    (nodes, absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_addresses_in_use_are_shown() {
        let mut table = LinkTable::default();
        for (host, when) in [(5, 10), (6, 20), (7, 30)] {
            let to = ([10, 0, 0, host], 7079).into();
            let entry = LinkEntry::unmeasured("01".repeat(16), [10, 0, 0, 1].into(), to);
            assert!(table.note(LinkEntry { when, ..entry }));
        }
        let of = |addresses: &[&str]| {
            let mut addresses = addresses.iter().map(|of| of.parse().unwrap());
            let server = addresses.next().map(|first| ServerSettings {
                further: addresses.collect(),
                ..ServerSettings::at(first)
            });
            let node = NodeEnd {
                name: String::new(),
                uuid: [1; 16],
                server,
                is_managed: false,
            };
            let own = node.own(&table).into_iter();
            own.map(|of| of.of.when).collect::<Vec<_>>()
        };
        assert_eq!(of(&["10.0.0.5:1", "10.0.0.6:1"]), [10, 20]);
        assert_eq!(of(&["10.0.0.9:1"]), [30], "the newest");
        assert_eq!(of(&["10.0.0.5:1", "gpu1:1"]), [10, 30]);
        assert_eq!(of(&["gpu1:1"]), [30]);
        // A node that is found.
        assert_eq!(of(&["[fe80::5%eth0]:1", "10.0.0.5:1"]), [10]);
        // A node of the device manager that is only shown.
        assert_eq!(of(&[]), [30]);
    }
}
