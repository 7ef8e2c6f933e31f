//! Who takes part: this machine, and the nodes that answer.

use std::sync::Arc;

use causeway::config::{self, ServerSettings, Settings};
use causeway::transport::discover;
use causeway::transport::links::links_of;
use causeway_devmgr::report;
use causeway_links::{Entry, LinkMemory};
use causeway_proto::control::Link;

use super::matrix::{Host, Shown};
use crate::failure::Failure;
use crate::json::id;

/// A node that answers.
#[derive(Clone, Debug)]
pub(crate) struct NodeEnd {
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) server: ServerSettings,
}

impl NodeEnd {
    /// Its addresses that are no Unix sockets.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = String> {
        let addresses = self.server.addresses().filter(|at| at.path().is_none());
        addresses.map(ToString::to_string)
    }

    /// Whether connections to it use TLS.
    pub(crate) fn is_secured(&self) -> bool {
        self.server.tls.ca.is_some() && self.sockets().next().is_some()
    }

    /// Whether the text is its name or one of its addresses.
    fn is_named(&self, of: &str) -> bool {
        let mut addresses = self.server.addresses();
        self.name == of || addresses.any(|at| at.as_str() == of || at.host() == of)
    }
}

/// This machine, and the nodes.
pub(crate) struct Hosts {
    pub(crate) nodes: Vec<Arc<NodeEnd>>,
    memory: Option<LinkMemory>,
}

impl Hosts {
    /// Asks the configured nodes, or those of these names or addresses. Returns also why others do not answer.
    ///
    /// # Errors
    /// No node is configured, or none has a name.
    pub(crate) fn find(
        settings: &Settings,
        wanted: &[String],
    ) -> Result<(Hosts, Vec<String>), Failure> {
        let mut servers = settings.servers.clone();
        if settings.discover {
            servers.extend(report::announced(settings));
        }
        if servers.is_empty() {
            return Err(Failure::new("no node is configured").cure(
                "write servers.toml, or set CAUSEWAY_SERVERS=host[:port],…; the links of a device manager's nodes cannot be \
                 measured yet",
            ));
        }
        let (mut nodes, mut absent) = (Vec::new(), Vec::new());
        for found in discover(&servers) {
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
                nodes.push(Arc::new(NodeEnd { name, uuid, server }));
            }
        }
        for of in wanted {
            if !nodes.iter().any(|node: &Arc<NodeEnd>| node.is_named(of)) {
                absent.push(format!(
                    "no node that answers has the name or address `{of}`"
                ));
            }
        }
        nodes.retain(|node| wanted.is_empty() || wanted.iter().any(|of| node.is_named(of)));
        if nodes.is_empty() {
            let what = format!("no node takes part; {}", absent.join("; "));
            return Err(Failure::new(what.trim_end_matches("; ")).cure(
                "name configured nodes, and see with `causeway devices` which of them answer",
            ));
        }
        let memory = config::link_memory();
        Ok((Hosts { nodes, memory }, absent))
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

    /// Keeps this machine's own figures.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn keep(&self, entries: Vec<Entry>) -> Result<(), Failure> {
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
        let (mut links, mut problems) = (Vec::new(), Vec::new());
        if let Some(memory) = &self.memory {
            match memory.table() {
                Ok(table) => links.extend(table.entries().iter().map(|of| shown("", of.clone()))),
                Err(error) => problems.push(error.to_string()),
            }
        }
        let kept = std::thread::scope(|scope| {
            let asked = self.nodes.iter();
            let asked: Vec<_> = asked
                .map(|node| scope.spawn(|| links_of(&node.server)))
                .collect();
            let answers = asked.into_iter().map(|asked| match asked.join() {
                Ok(answer) => answer,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            answers.collect::<Vec<_>>()
        });
        for (node, kept) in self.nodes.iter().zip(kept) {
            match kept {
                Ok(of) => links.extend(
                    of.iter()
                        .filter_map(|of| Some(shown(&id(&node.uuid), entry(of)?))),
                ),
                Err(error) => problems.push(format!("{}: {error}", node.name)),
            }
        }
        (links, problems)
    }
}

pub(crate) fn shown(owner: &str, of: Entry) -> Shown {
    Shown {
        owner: owner.to_owned(),
        of,
    }
}

/// A node's figures. `None` if the node sends nonsense.
pub(crate) fn entry(link: &Link) -> Option<Entry> {
    Some(Entry {
        peer: id(&link.node_uuid),
        name: link.node_name.clone(),
        user: String::new(),
        from: link.from.parse().ok()?,
        to: link.to.parse().ok()?,
        least_ns: link.least_ns,
        median_ns: link.median_ns,
        lost: link.lost,
        outward: link.outward,
        inward: link.inward,
        stream_ms: link.stream_ms,
        tls: link.tls,
        when: link.when,
    })
}
