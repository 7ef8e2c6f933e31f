//! Who of two nodes dials, and under which addresses it looks for the other.
//!
//! What is known: where this process has reached each, and where each says that it may be reached. An
//! address of loopback means the machine of whoever uses it, so it is told only where both nodes were
//! reached by loopback: then they are most likely on this machine, or are reached from it by tunnels, and
//! a wrong address costs a refused connection. Pure.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};

use causeway_proto::limits::MAX_LINK_ADDRESSES;

use super::path::End;
use crate::transport::Location;

/// Longer ones are no addresses; a worker refuses them.
const LONGEST: usize = 512;

/// Which of two nodes, reached there, should dial first: 0 is the first.
///
/// A node that is reached by loopback may listen nowhere else, but can reach the others.
pub(super) fn dialler(one: SocketAddr, other: SocketAddr) -> End {
    usize::from(is_loopback(other.ip()) && !is_loopback(one.ip()))
}

/// Where `dialler` may reach `far`, the likeliest first.
pub(super) fn of(far: &Location, dialler: &Location) -> Vec<String> {
    let local = is_loopback(far.peer.ip()) && is_loopback(dialler.peer.ip());
    // One that was reached by a Unix socket has no port there.
    let reached = (far.peer.port() != 0).then(|| far.peer.to_string());
    let mut addresses: Vec<String> = Vec::new();
    for address in reached.into_iter().chain(far.addresses.iter().cloned()) {
        let useful = address.len() <= LONGEST && (local || !means_loopback(&address));
        if useful && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.truncate(MAX_LINK_ADDRESSES);
    addresses
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn means_loopback(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => is_loopback(address.ip()),
        Err(_) => address
            .rsplit_once(':')
            .is_some_and(|(host, _)| host.eq_ignore_ascii_case("localhost")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn node(peer: &str, addresses: &[&str]) -> Location {
        Location {
            peer: peer.parse().unwrap(),
            uuid: Bytes::new(),
            name: String::new(),
            certificate: None,
            addresses: addresses.iter().map(|&a| a.to_owned()).collect(),
        }
    }

    #[test]
    fn the_one_that_cannot_be_reached_dials() {
        let (near, far) = (
            "127.0.0.1:1".parse().unwrap(),
            "10.0.0.2:1".parse().unwrap(),
        );
        assert_eq!(dialler(near, far), 0);
        assert_eq!(dialler(far, near), 1);
        assert_eq!(dialler(far, far), 0, "else the first");
        assert_eq!(dialler(near, near), 0);
        assert_eq!(dialler(far, "[::ffff:127.0.0.1]:1".parse().unwrap()), 1);
    }

    #[test]
    fn loopback_is_told_only_among_those_on_this_machine() {
        let here = node("127.0.0.1:7079", &["127.0.0.1:7079", "10.0.0.1:7079"]);
        let also_here = node("[::1]:7080", &["localhost:7080"]);
        let there = node(
            "10.0.0.2:7079",
            &["there:7079", "[::1]:7079", "10.0.0.2:7079"],
        );
        assert_eq!(of(&here, &also_here), ["127.0.0.1:7079", "10.0.0.1:7079"]);
        assert_eq!(of(&also_here, &here), ["[::1]:7080", "localhost:7080"]);
        assert_eq!(of(&here, &there), ["10.0.0.1:7079"]);
        assert_eq!(of(&there, &here), ["10.0.0.2:7079", "there:7079"]);
        assert_eq!(of(&also_here, &there), [""; 0]);
    }

    #[test]
    fn no_worker_is_told_more_than_it_takes() {
        let many: Vec<String> = (0..100).map(|n| format!("node{n}:1")).collect();
        let mut far = node("10.0.0.2:7079", &[]);
        far.addresses = many;
        far.addresses.insert(0, "x".repeat(LONGEST + 1));
        let told = of(&far, &node("10.0.0.1:1", &[]));
        assert_eq!(told.len(), MAX_LINK_ADDRESSES);
        assert!(told.iter().all(|address| address.len() <= LONGEST));
    }
}
