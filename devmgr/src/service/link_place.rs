//! Where other nodes reach a connected node for a link, and with what the node proves to be an end of one.
//!
//! In memory only: each connection of a node tells it anew. Nothing here dials. Invariant: a place has [`MAX_ADDRESSES`]
//! addresses at most, and as many speeds.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::control::{Inventory, LinkSpeed};
use parking_lot::Mutex;

/// Maximum number of addresses of one node.
pub(super) const MAX_ADDRESSES: usize = 32;
/// Maximum length in bytes of an address: a DNS name and a port.
pub(super) const MAX_ADDRESS: usize = 260;

/// The place of a connected node. Clones share it, because addresses change.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkPlace {
    /// With which the node proves that it is an end of a link.
    key: Bytes,
    of: Arc<Mutex<PeerAddresses>>,
}

/// The addresses that a node tells other nodes, and the speeds of their interfaces.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerAddresses {
    pub(super) addresses: Vec<String>,
    pub(super) speeds: Vec<LinkSpeed>,
}

impl LinkPlace {
    /// The place of a node that has this key and describes itself so.
    pub(super) fn new(key: &[u8], inventory: Option<&Inventory>) -> LinkPlace {
        let place = LinkPlace {
            key: Bytes::copy_from_slice(key),
            of: Arc::default(),
        };
        place.set(inventory);
        place
    }

    /// Notes what a node tells of its addresses. A node tells fewer and shorter ones than those that are left out.
    pub(super) fn set(&self, inventory: Option<&Inventory>) {
        let told = inventory.map(|of| (&of.peer_addresses[..], &of.link_speeds[..]));
        let (addresses, speeds) = told.unwrap_or_default();
        let addresses = addresses.iter().filter(|of| of.len() <= MAX_ADDRESS);
        let speeds = speeds.iter().filter(|of| of.address.len() <= 16);
        *self.of.lock() = PeerAddresses {
            addresses: addresses.take(MAX_ADDRESSES).cloned().collect(),
            // A slice of the message would keep all of it.
            speeds: (speeds.take(MAX_ADDRESSES))
                .map(|of| LinkSpeed {
                    address: Bytes::copy_from_slice(&of.address),
                    ..of.clone()
                })
                .collect(),
        };
    }

    pub(super) fn key(&self) -> &Bytes {
        &self.key
    }

    pub(super) fn addresses(&self) -> PeerAddresses {
        self.of.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_links::link_speed;

    #[test]
    fn a_place_has_what_its_node_tells_last_and_not_more_than_a_node_tells() {
        let told = |count: u8| Inventory {
            peer_addresses: (0..count).map(|of| format!("10.0.0.{of}:7079")).collect(),
            link_speeds: (0..count)
                .map(|of| link_speed([10, 0, 0, of].into(), 24, 1_000))
                .collect(),
            ..Inventory::default()
        };
        let place = LinkPlace::new(b"key", Some(&told(1)));
        let (shared, mut changed) = (place.clone(), told(200));
        assert_eq!(shared.addresses().addresses, ["10.0.0.0:7079"]);
        changed.peer_addresses[0] = "x".repeat(MAX_ADDRESS + 1);
        changed.link_speeds[0].address = vec![0; 17].into();
        place.set(Some(&changed));
        let of = shared.addresses();
        assert_eq!(of.addresses, changed.peer_addresses[1..=MAX_ADDRESSES]);
        assert_eq!(of.speeds, changed.link_speeds[1..=MAX_ADDRESSES]);
        place.set(None);
        assert!(shared.addresses().addresses.is_empty());
    }
}
