//! Byte counts by pair of hosts.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};

/// Traffic of one host's cable, in bytes of the link layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Bytes into the host.
    pub received: u64,
    /// Bytes out of the host.
    pub sent: u64,
}

impl Interface {
    /// Finds `device` in the text of `/proc/net/dev`.
    pub(crate) fn parse(text: &str, device: &str) -> Result<Self> {
        let found = text.lines().find_map(|line| {
            let (name, figures) = line.split_once(':')?;
            if name.trim() != device {
                return None;
            }
            let figures: Vec<&str> = figures.split_whitespace().collect();
            Some(Self {
                received: figures.first()?.parse().ok()?,
                sent: figures.get(8)?.parse().ok()?,
            })
        });
        found.ok_or_else(|| unexpected("/proc/net/dev", text))
    }
}

/// The bytes that arrived, for each pair of hosts and direction: IP packets with headers, after losses
/// and cuts. A run of TCP segments that travelled as one large packet (segmentation offload) counts with
/// one header. So the number is close to the payload and never below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    hosts: usize,
    bytes: Vec<u64>,
}

impl Traffic {
    pub(crate) fn new(hosts: usize) -> Self {
        Self {
            hosts,
            bytes: vec![0; hosts * hosts],
        }
    }

    pub(crate) fn set(&mut self, from: usize, to: usize, bytes: u64) {
        self.bytes[from * self.hosts + to] = bytes;
    }

    /// The number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// Bytes that arrived at host `to` from host `from`.
    ///
    /// # Panics
    ///
    /// If there is no such host.
    #[must_use]
    pub fn bytes(&self, from: usize, to: usize) -> u64 {
        assert!(from < self.hosts && to < self.hosts, "no such host");
        self.bytes[from * self.hosts + to]
    }

    /// Bytes between two hosts, in both directions.
    ///
    /// # Panics
    ///
    /// If there is no such host.
    #[must_use]
    pub fn between(&self, a: usize, b: usize) -> u64 {
        self.bytes(a, b) + self.bytes(b, a)
    }

    /// Returns the difference from `earlier`, a reading of the same network.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.bytes.iter().zip(&earlier.bytes);
        Self {
            hosts: self.hosts,
            bytes: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
        }
    }
}

/// Parses the counters in the output of `nft -j list counters`: names and bytes.
pub(crate) fn counters(text: &str) -> Result<Vec<(String, u64)>> {
    let parsed: Value = serde_json::from_str(text).map_err(|_| unexpected("nft", text))?;
    let objects = parsed["nftables"]
        .as_array()
        .ok_or_else(|| unexpected("nft", text))?;
    let named = objects.iter().filter_map(|object| {
        let counter = object.get("counter")?;
        let name = counter["name"].as_str()?;
        Some((name.to_owned(), counter["bytes"].as_u64()?))
    });
    Ok(named.collect())
}

fn unexpected(what: &'static str, said: &str) -> Error {
    Error::Unexpected {
        what,
        said: said.chars().take(200).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_statistics_are_found() {
        let text = "Inter-|   Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 2 1 0\n  eth0: 500 4 0 0 0 0 0 0 70 1 0 0 0 0 0 0\n";
        let found = Interface::parse(text, "eth0").unwrap();
        assert_eq!((found.received, found.sent), (500, 70));
        assert!(Interface::parse(text, "eth1").is_err());
    }

    #[test]
    fn counters_are_found() {
        let text = r#"{"nftables": [{"metainfo": {"version": "1"}}, {"counter": {"family": "inet", "name": "from_1", "table": "network", "handle": 1, "packets": 2, "bytes": 168}}]}"#;
        assert_eq!(counters(text).unwrap(), [("from_1".to_owned(), 168)]);
        assert!(counters("{}").is_err());
    }

    #[test]
    fn a_difference_is_by_pair() {
        let mut before = Traffic::new(2);
        before.set(0, 1, 10);
        let mut after = before.clone();
        after.set(0, 1, 15);
        after.set(1, 0, 2);
        assert_eq!(after.since(&before).between(0, 1), 7);
    }
}
