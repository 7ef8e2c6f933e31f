//! Nodes that were found and used: `nodes.toml` in the user's folder for state (`$XDG_STATE_HOME/causeway`).
//!
//! Programs ask these nodes at once, without waiting for announcements. The file has addresses and no trust: a remembered
//! node proves its name and its uuid as one does that was just found.
//!
//! Invariants: an absent or damaged file counts as empty. A reader sees a whole file, because a writer replaces it. The
//! entries are bounded in number, age and addresses.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use causeway_discovery::{NodeId, is_of_name};
use causeway_security::{BadState, StateFile};
use serde::Deserialize;
use serde::de::Error as _;

use super::{Address, MOST_ADDRESSES, ServerSettings};

/// The file's name.
pub(super) const FILE: &str = "nodes.toml";
/// How long a node is remembered that is not used.
const KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);
/// The age at which the time of an entry is renewed, so that not every program writes the file.
const RENEWED_AFTER: Duration = Duration::from_secs(86_400);
/// Most nodes that are remembered.
const MOST_NODES: usize = 64;
/// Most bytes of the file that are read. The largest that is written is smaller.
const MOST_BYTES: usize = 1 << 20;
/// Longest wait for other programs that write the file.
const LOCKED_WITHIN: Duration = Duration::from_millis(100);

/// A node that was found and used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedNode {
    /// Its announced name, which its certificate has.
    pub name: String,
    /// Its uuid.
    pub uuid: NodeId,
    /// The addresses at which it has answered, the best first.
    pub addresses: Vec<Address>,
    /// When it was last used, in seconds since 1970.
    used: u64,
}

impl RememberedNode {
    /// A node that is used now.
    #[must_use]
    pub fn used_now(name: String, uuid: NodeId, addresses: Vec<Address>) -> RememberedNode {
        RememberedNode {
            name,
            uuid,
            addresses,
            used: now(),
        }
    }

    /// The node of a server that is used now. `None` for a server without a name.
    #[must_use]
    pub fn of(server: &ServerSettings, uuid: &[u8]) -> Option<RememberedNode> {
        let (name, uuid) = (server.name.clone()?, uuid.try_into().ok()?);
        let addresses = server.addresses().cloned().collect();
        Some(RememberedNode::used_now(name, uuid, addresses))
    }
}

/// The file of remembered nodes. Makes nothing until a node is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMemory {
    file: StateFile,
}

impl NodeMemory {
    /// The file at this path.
    #[must_use]
    pub fn at(path: PathBuf) -> NodeMemory {
        NodeMemory {
            file: StateFile::at(path),
        }
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The remembered nodes, ordered by name, then uuid. An absent file has none.
    ///
    /// # Errors
    /// [`BadState`]; the file then counts as empty.
    pub fn nodes(&self) -> Result<Vec<RememberedNode>, BadState> {
        let Some(text) = self.file.read(MOST_BYTES)? else {
            return Ok(Vec::new());
        };
        parse(&text, now()).map_err(|error| self.file.damaged(&error.message()))
    }

    /// Writes nodes that are used now into the file, unless it has them. Keeps those of other programs. A damaged file is
    /// replaced.
    ///
    /// # Errors
    /// [`BadState`]; the file is then as it was.
    pub fn remember(&self, used: &[RememberedNode]) -> Result<(), BadState> {
        let has_all = |known: &[RememberedNode]| used.iter().all(|node| is_fresh(known, node));
        if self.nodes().is_ok_and(|known| has_all(&known)) {
            return Ok(());
        }
        let locked = self.file.lock(LOCKED_WITHIN)?;
        let mut nodes = self.nodes().unwrap_or_default();
        for node in used {
            note(&mut nodes, node);
        }
        locked.replace(&text(&nodes))
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Whether the file needs no change for this node.
fn is_fresh(known: &[RememberedNode], node: &RememberedNode) -> bool {
    known.iter().any(|of| {
        of.uuid == node.uuid
            && of.name == node.name
            && has_all(of, node)
            && has_all(node, of)
            && node.used < of.used.saturating_add(RENEWED_AFTER.as_secs())
    })
}

/// Whether a node has all addresses of another entry. The order depends on which one answered first, and is no news.
fn has_all(of: &RememberedNode, other: &RememberedNode) -> bool {
    let mut addresses = other.addresses.iter();
    addresses.all(|address| of.addresses.contains(address))
}

/// Takes a node that is used. Its addresses no longer lead to other nodes. The oldest ones go if there are too many.
fn note(nodes: &mut Vec<RememberedNode>, node: &RememberedNode) {
    nodes.retain_mut(|of| {
        of.addresses
            .retain(|address| !node.addresses.contains(address));
        of.uuid != node.uuid && !of.addresses.is_empty()
    });
    nodes.push(node.clone());
    nodes.sort_by_key(|of| std::cmp::Reverse(of.used));
    nodes.truncate(MOST_NODES);
    sort(nodes);
}

/// Sorts by name, then uuid: the order in which programs list found nodes.
fn sort(nodes: &mut [RememberedNode]) {
    nodes.sort_by(|one, other| (&one.name, one.uuid).cmp(&(&other.name, other.uuid)));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    node: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    uuid: String,
    addresses: Vec<String>,
    used: u64,
}

/// Reads the file's text, without entries that are too old.
fn parse(text: &str, now: u64) -> Result<Vec<RememberedNode>, toml::de::Error> {
    let table: Table = toml::from_str(text)?;
    let mut nodes = Vec::new();
    for entry in table.node.into_iter().take(MOST_NODES) {
        let mut node = entry.node()?;
        // A clock may have been wrong.
        node.used = node.used.min(now);
        if now - node.used < KEPT_FOR.as_secs() {
            nodes.push(node);
        }
    }
    sort(&mut nodes);
    Ok(nodes)
}

impl Entry {
    fn node(self) -> Result<RememberedNode, toml::de::Error> {
        let is_name = |name: &str| {
            let is_small = |byte: u8| is_of_name(byte) && !byte.is_ascii_uppercase();
            !name.is_empty() && name.len() <= 253 && name.bytes().all(is_small)
        };
        if !is_name(&self.name) {
            return Err(toml::de::Error::custom("a `name` is not one"));
        }
        let uuid = u128::from_str_radix(&self.uuid, 16);
        let uuid = uuid.ok().filter(|_| self.uuid.len() == 32);
        let uuid = uuid.ok_or_else(|| toml::de::Error::custom("a `uuid` is not one"))?;
        let addresses = self.addresses.iter().take(MOST_ADDRESSES);
        let addresses: Result<Vec<Address>, _> = addresses.map(|address| address.parse()).collect();
        let addresses = addresses.map_err(toml::de::Error::custom)?;
        Ok(RememberedNode {
            name: self.name,
            uuid: uuid.to_be_bytes(),
            addresses,
            used: self.used,
        })
    }
}

fn text(nodes: &[RememberedNode]) -> String {
    let mut text = String::from(
        "# Nodes that your programs have found and used. Causeway writes this file, and forgets a node after 7 days.\n\
         # You may delete the file.\n",
    );
    for node in nodes {
        // The address's syntax has no quotes, except in names of interfaces.
        let is_plain = |address: &&Address| !address.as_str().contains(['\'', '\n']);
        let addresses = node.addresses.iter().filter(is_plain);
        let addresses: Vec<String> = addresses.map(|address| format!("'{address}'")).collect();
        let uuid = u128::from_be_bytes(node.uuid);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n[[node]]\nname = '{}'\nuuid = '{uuid:032x}'\naddresses = [{}]\nused = {}\n",
            node.name,
            addresses.join(", "),
            node.used
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    fn node(number: u8, address: &str, used: u64) -> RememberedNode {
        RememberedNode {
            name: format!("gpu{number}.lab"),
            uuid: [number; 16],
            addresses: vec![address.parse().unwrap()],
            used,
        }
    }

    #[test]
    fn what_is_written_is_read_for_a_week() {
        let nodes = [
            node(1, "[fe80::1%eth0]:7079", 1_000),
            node(2, "10.0.0.2:7080", 2_000),
        ];
        let text = text(&nodes);
        assert_eq!(parse(&text, 2_000).unwrap(), nodes);
        let week = KEPT_FOR.as_secs();
        assert_eq!(parse(&text, 1_000 + week).unwrap(), nodes[1..]);
        assert_eq!(parse(&text, 2_000 + week).unwrap(), []);
        // A time in the future counts as now.
        assert_eq!(parse(&text, 1_500).unwrap()[1].used, 1_500);
    }

    #[test]
    fn the_order_of_addresses_is_no_news() {
        let of = |addresses: &[&str]| {
            let mut node = node(1, "10.0.0.1", 5);
            node.addresses = addresses.iter().map(|of| of.parse().unwrap()).collect();
            node
        };
        let known = [of(&["10.0.0.1", "10.0.0.2"])];
        assert!(is_fresh(&known, &of(&["10.0.0.2", "10.0.0.1"])));
        for other in [&["10.0.0.1"][..], &["10.0.0.1", "10.0.0.2", "10.0.0.3"]] {
            assert!(!is_fresh(&known, &of(other)), "{other:?}");
        }
    }

    #[test]
    fn an_address_is_of_the_node_that_used_it_last() {
        let mut nodes = vec![node(1, "10.0.0.1", 1), node(2, "10.0.0.2", 2)];
        nodes[1].addresses.push("10.0.0.3".parse().unwrap());
        note(&mut nodes, &node(3, "10.0.0.1", 3));
        note(&mut nodes, &node(4, "10.0.0.3", 3));
        let shown: Vec<_> = nodes
            .iter()
            .map(|of| (of.uuid[0], of.addresses[0].as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (2, "10.0.0.2:7079"),
                (3, "10.0.0.1:7079"),
                (4, "10.0.0.3:7079")
            ]
        );
        for number in 0..100 {
            note(
                &mut nodes,
                &node(number, &format!("10.1.0.{number}"), 10 + u64::from(number)),
            );
        }
        assert_eq!(nodes.len(), MOST_NODES);
        assert!(
            nodes.iter().all(|of| of.used >= 10 + 36),
            "the oldest are gone"
        );
    }

    #[test]
    fn a_damaged_file_counts_as_empty_and_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let memory = NodeMemory::at(folder.path().join("state/causeway").join(FILE));
        assert_eq!(memory.nodes().unwrap(), [], "an absent file");
        let used = RememberedNode::used_now(
            "gpu1".to_owned(),
            [1; 16],
            vec!["10.0.0.1".parse().unwrap()],
        );
        memory.remember(std::slice::from_ref(&used)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(memory.path()), 0o600);
        assert_eq!(mode(memory.path().parent().unwrap()), 0o700);
        let whole = fs::read(memory.path()).unwrap();
        let mut damages: Vec<Vec<u8>> = vec![
            b"\xff\xfe".to_vec(),
            b"[[node]]\nname = 'A B'\nuuid = ''\naddresses = []\nused = 1\n".to_vec(),
            b"other = 1\n".to_vec(),
        ];
        // A file that was cut within its entry.
        let begins = whole.iter().position(|byte| *byte == b'[').unwrap();
        damages.extend((begins + 1..whole.len() - 2).map(|length| whole[..length].to_vec()));
        for damage in damages {
            fs::write(memory.path(), &damage).unwrap();
            let read = memory.nodes();
            let is_number_cut = damage.windows(6).any(|of| of == b"used =");
            assert!(
                is_number_cut || matches!(read, Err(BadState::Damaged { .. })),
                "{:?}: {read:?}",
                String::from_utf8_lossy(&damage)
            );
            memory.remember(std::slice::from_ref(&used)).unwrap();
            assert_eq!(memory.nodes().unwrap().len(), 1);
        }
        let rest = fs::read_dir(memory.path().parent().unwrap()).unwrap();
        assert_eq!(rest.count(), 1, "no other file is left");
    }

    #[test]
    fn programs_that_write_at_the_same_time_lose_no_node() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        // Each has the folder open by itself, as processes have.
        std::thread::scope(|scope| {
            for half in 0..2_u8 {
                let memory = NodeMemory::at(path.clone());
                scope.spawn(move || {
                    for number in 0..16 {
                        let number = half * 16 + number;
                        let address = format!("10.0.0.{number}").parse().unwrap();
                        let used = RememberedNode::used_now(
                            format!("gpu{number}"),
                            [number; 16],
                            vec![address],
                        );
                        let deadline = Instant::now() + Duration::from_secs(60);
                        while let Err(error) = memory.remember(std::slice::from_ref(&used)) {
                            let is_busy = matches!(error, BadState::Busy(_));
                            assert!(is_busy && Instant::now() < deadline, "{error}");
                        }
                    }
                });
            }
            let memory = NodeMemory::at(path.clone());
            scope.spawn(move || {
                for _ in 0..200 {
                    memory.nodes().expect("a reader sees a whole file");
                }
            });
        });
        assert_eq!(NodeMemory::at(path).nodes().unwrap().len(), 32);
    }
}
