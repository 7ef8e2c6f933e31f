//! Which of two nodes dials, and which addresses it tries for the other. Pure.
//!
//! The client knows the address by which it has reached each node, and the addresses that each node
//! announces. A loopback address refers to the machine that uses it. So the client passes it on only if
//! both nodes were reached by loopback. Then both are probably on this machine, or are reached through
//! tunnels; a wrong address costs only a refused connection.
//!
//! The address by which the client reached a node is the most likely one. If all addresses are on networks of both nodes, and
//! their interfaces tell that one is more than four times as fast, that one comes first.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};

use causeway_links::put_slow_last;
use causeway_proto::limits::MAX_LINK_ADDRESSES;

use super::path::EndIndex;
use crate::transport::Location;

/// Maximum length of an address, in bytes; a worker rejects longer ones.
const LONGEST: usize = 512;

/// Returns which of two nodes should dial first, by the addresses they were reached at: 0 for the first, 1
/// for the second. A node that was reached by loopback may listen on nothing else, but can reach others.
pub(super) fn dialler(one: SocketAddr, other: SocketAddr) -> EndIndex {
    usize::from(is_loopback(other.ip()) && !is_loopback(one.ip()))
}

/// Returns the addresses at which `dialler` may reach `far`, the most likely first.
pub(super) fn of(far: &Location, dialler: &Location) -> Vec<String> {
    let local = is_loopback(far.peer.ip()) && is_loopback(dialler.peer.ip());
    // A node that was reached through a Unix socket has no port.
    let reached = (far.peer.port() != 0).then(|| far.peer.to_string());
    let mut addresses: Vec<String> = Vec::new();
    for address in reached.into_iter().chain(far.addresses.iter().cloned()) {
        let useful = address.len() <= LONGEST && (local || !means_loopback(&address));
        if useful && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.truncate(MAX_LINK_ADDRESSES);
    put_slow_last(&mut addresses, &far.speeds, &dialler.speeds);
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
    use causeway_links::link_speed;

    fn node(peer: &str, addresses: &[&str]) -> Location {
        Location {
            peer: peer.parse().unwrap(),
            uuid: Bytes::new(),
            name: String::new(),
            resume: std::time::Duration::ZERO,
            addresses: addresses.iter().map(|&a| a.to_owned()).collect(),
            speeds: Vec::new(),
        }
    }

    #[test]
    fn the_address_that_was_reached_comes_first_unless_it_is_much_slower() {
        let told = ["10.0.0.2:7079", "10.1.0.2:7079"];
        let mut far = node(told[1], &told);
        let mut dialler = node("10.0.0.1:7079", &[]);
        assert_eq!(of(&far, &dialler), [told[1], told[0]]);
        let speeds = |host: u8, second: u32| {
            let of = |net: u8, mbits| link_speed([10, net, 0, host].into(), 24, mbits);
            vec![of(0, 10_000), of(1, second)]
        };
        (far.speeds, dialler.speeds) = (speeds(2, 10_000), speeds(1, 2_000));
        assert_eq!(of(&far, &dialler), told);
        dialler.speeds = speeds(1, 2_500);
        assert_eq!(of(&far, &dialler), [told[1], told[0]]);
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
