//! Computes the addresses at which other nodes may reach this one.
//!
//! Clients pass the addresses to workers on other nodes, which try them one after the other. A wrong
//! address only costs time, because the peer that answers must prove that it knows a secret.

use std::net::{IpAddr, SocketAddr};

use crate::config::Advertised;
use causeway_serving::is_loopback;

/// Maximum number of addresses. Workers do not try more.
const MOST: usize = causeway_proto::limits::MAX_LINK_ADDRESSES / 2;

/// Returns addresses as `HOST:PORT`, the most likely first. Uses the advertised addresses if there are any.
/// Otherwise uses the listeners' addresses: a wildcard is replaced by the addresses of `interfaces`, and
/// loopback comes last.
pub(super) fn addresses(
    listening: &[SocketAddr],
    advertised: &[Advertised],
    interfaces: impl Fn() -> Vec<IpAddr>,
) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut add = |address: String| {
        if all.len() < MOST && !all.contains(&address) {
            all.push(address);
        }
    };
    if !advertised.is_empty() {
        let port = listening.first().map_or(0, SocketAddr::port);
        for address in advertised {
            add(address.with_port(port));
        }
        return all;
    }
    let mut found: Vec<_> = listening
        .iter()
        .flat_map(|address| match address.ip() {
            ip if ip.is_unspecified() => interfaces()
                .into_iter()
                .filter(|own| own.is_ipv4() || ip.is_ipv6())
                .map(|own| SocketAddr::new(own, address.port()))
                .collect(),
            _ => vec![*address],
        })
        .collect();
    // The sort is stable: equally remote addresses keep the order of settings and interfaces.
    found.sort_by_key(remoteness);
    for address in found {
        add(address.to_string());
    }
    all
}

fn remoteness(address: &SocketAddr) -> u8 {
    match address.ip().to_canonical() {
        _ if is_loopback(address) => 3,
        IpAddr::V4(v4) if v4.is_link_local() => 2,
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_advertised;

    fn of(listening: &[&str], advertised: &[&str]) -> Vec<String> {
        let listening: Vec<_> = listening.iter().map(|a| a.parse().unwrap()).collect();
        let advertised: Vec<_> = advertised
            .iter()
            .map(|a| parse_advertised(a).unwrap())
            .collect();
        let interfaces = ["127.0.0.1", "::1", "2001:db8::5", "169.254.7.7", "10.0.0.5"];
        addresses(&listening, &advertised, || {
            interfaces.iter().map(|a| a.parse().unwrap()).collect()
        })
    }

    #[test]
    fn where_it_listens() {
        let loopback = ["127.0.0.1:7079"];
        assert_eq!(of(&loopback, &[]), loopback);
        assert_eq!(
            of(&["127.0.0.1:7079", "192.0.2.1:7080"], &[]),
            ["192.0.2.1:7080", "127.0.0.1:7079"]
        );
        assert_eq!(
            of(&["0.0.0.0:7079"], &[]),
            ["10.0.0.5:7079", "169.254.7.7:7079", "127.0.0.1:7079"]
        );
        assert_eq!(
            of(&["[::]:1", "0.0.0.0:1"], &[]),
            [
                "10.0.0.5:1",
                "[2001:db8::5]:1",
                "169.254.7.7:1",
                "127.0.0.1:1",
                "[::1]:1"
            ]
        );
    }

    #[test]
    fn what_is_advertised_is_all() {
        assert_eq!(
            of(
                &["0.0.0.0:7079"],
                &["node1.cluster", "node1:99", "2001:db8::9", "node1.cluster"]
            ),
            ["node1.cluster:7079", "node1:99", "[2001:db8::9]:7079"]
        );
    }
}
