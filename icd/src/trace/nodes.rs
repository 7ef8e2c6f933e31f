//! The numbers by which reports name nodes.
//!
//! Invariant: an address has one number for the life of the process.

use causeway_trace::record::Record;
use parking_lot::Mutex;

use super::report;

// Addresses; the number of each is its place.
static NODES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns the number of the node at an address.
pub(crate) fn node(address: &str) -> u32 {
    let mut nodes = NODES.lock();
    let known = nodes.iter().position(|of| of == address);
    let place = known.unwrap_or_else(|| {
        nodes.push(address.to_owned());
        nodes.len() - 1
    });
    // A process has far fewer nodes.
    place as u32
}

/// Reports the name of the node at an address. The first name of a node counts.
pub(crate) fn name_node(address: &str, name: &str) {
    let name = match name.is_empty() || name == address {
        true => format!("node {address}"),
        false => format!("node {name} ({address})"),
    };
    let node = node(address);
    report(Record::Node { node, name });
}
