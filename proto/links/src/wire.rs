//! Kept figures as messages, and back.
//!
//! A message has no user: whoever passes it on knows whose it is. Invariant: a message that is no figure of a link becomes
//! none.

use causeway_proto::control::Link;

use crate::table::LinkEntry;

impl LinkEntry {
    /// The figures as a message.
    #[must_use]
    pub fn to_wire(&self) -> Link {
        let uuid = u128::from_str_radix(&self.peer, 16).unwrap_or_default();
        Link {
            node_uuid: uuid.to_be_bytes().to_vec().into(),
            node_name: self.name.clone(),
            from: self.from.to_string(),
            to: self.to.to_string(),
            least_ns: self.least_ns,
            median_ns: self.median_ns,
            lost: self.lost,
            outward: self.outward,
            inward: self.inward,
            stream_ms: self.stream_ms,
            tls: self.tls,
            when: self.when,
        }
    }

    /// A message's figures, of no user. `None` if the message is nonsense.
    #[must_use]
    pub fn from_wire(link: &Link) -> Option<LinkEntry> {
        let uuid = <[u8; 16]>::try_from(&link.node_uuid[..]).ok()?;
        let name = link.node_name.chars().filter(|of| !of.is_control());
        Some(LinkEntry {
            peer: format!("{:032x}", u128::from_be_bytes(uuid)),
            name: name.take(60).collect(),
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::entry;

    #[test]
    fn figures_stay_the_same_and_nonsense_is_none() {
        let of = entry("", 7, 5);
        assert_eq!(LinkEntry::from_wire(&of.to_wire()), Some(of.clone()));
        for wrong in [
            Link {
                node_uuid: vec![1; 15].into(),
                ..of.to_wire()
            },
            Link {
                from: "gpu1".to_owned(),
                ..of.to_wire()
            },
            Link {
                to: "10.0.0.1".to_owned(),
                ..of.to_wire()
            },
        ] {
            assert_eq!(LinkEntry::from_wire(&wrong), None);
        }
        let named = Link {
            node_name: "a\nb".repeat(60),
            ..of.to_wire()
        };
        let name = LinkEntry::from_wire(&named).map(|of| of.name.len());
        assert_eq!(name, Some(60));
    }
}
