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

use causeway_proto::control::LinkSpeed;
use causeway_proto::limits::MAX_LINK_ADDRESSES;

use super::path::End;
use crate::transport::Location;

/// An address that is slower than the fastest one by more than this factor comes after it.
const SLOWER: u64 = 4;

/// Maximum length of an address, in bytes; a worker rejects longer ones.
const LONGEST: usize = 512;

/// Returns which of two nodes should dial first, by the addresses they were reached at: 0 for the first, 1
/// for the second. A node that was reached by loopback may listen on nothing else, but can reach others.
pub(super) fn dialler(one: SocketAddr, other: SocketAddr) -> End {
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

/// Moves addresses behind the fastest one that are slower than a quarter of it, if the speeds of all are known.
fn put_slow_last(addresses: &mut Vec<String>, far: &[LinkSpeed], dialler: &[LinkSpeed]) {
    let speeds = addresses.iter().map(|address| speed(address, far, dialler));
    let Some(speeds) = speeds.collect::<Option<Vec<u64>>>() else {
        return;
    };
    let fastest = speeds.iter().max().copied().unwrap_or(0);
    let mut sorted: Vec<_> = speeds.into_iter().zip(std::mem::take(addresses)).collect();
    sorted.sort_by_key(|(speed, _)| speed * SLOWER < fastest);
    addresses.extend(sorted.into_iter().map(|(_, address)| address));
}

/// The lower speed of the two interfaces, in Mbit/s. `None` unless both tell one and have the same network.
fn speed(address: &str, far: &[LinkSpeed], dialler: &[LinkSpeed]) -> Option<u64> {
    let ip = address.parse::<SocketAddr>().ok()?.ip();
    let theirs = far
        .iter()
        .find(|of| bits(&of.address) == Some(bits_of(ip)))?;
    // An address that the dialler has itself, as that of `docker0`, leads nowhere.
    if dialler.iter().any(|of| of.address == theirs.address) {
        return None;
    }
    let own = (dialler.iter()).filter(|of| is_same_network(of, theirs));
    own.map(|own| u64::from(own.mbits.min(theirs.mbits))).max()
}

fn is_same_network(one: &LinkSpeed, other: &LinkSpeed) -> bool {
    let (Some((bits_of_one, length)), Some((bits_of_other, other_length))) =
        (bits(&one.address), bits(&other.address))
    else {
        return false;
    };
    let prefix = one.prefix.min(length);
    let differing = bits_of_one ^ bits_of_other;
    length == other_length
        && one.prefix == other.prefix
        && differing.checked_shr(length - prefix).unwrap_or(0) == 0
}

/// The bits of an address, and their number.
fn bits(address: &[u8]) -> Option<(u128, u32)> {
    match address.len() {
        4 => Some((u32::from_be_bytes(address.try_into().ok()?).into(), 32)),
        16 => Some((u128::from_be_bytes(address.try_into().ok()?), 128)),
        _ => None,
    }
}

fn bits_of(ip: IpAddr) -> (u128, u32) {
    match ip {
        IpAddr::V4(v4) => (v4.to_bits().into(), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
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
            resume: std::time::Duration::ZERO,
            addresses: addresses.iter().map(|&a| a.to_owned()).collect(),
            speeds: Vec::new(),
        }
    }

    fn speeds(of: &[(&str, u32)]) -> Vec<LinkSpeed> {
        let speed = |(address, mbits): &(&str, u32)| {
            let address = match address.parse().unwrap() {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            LinkSpeed {
                address: address.into(),
                mbits: *mbits,
                prefix: 24,
            }
        };
        of.iter().map(speed).collect()
    }

    #[test]
    fn addresses_that_are_much_slower_come_last() {
        let as_told = ["10.0.0.2:7079", "10.2.0.2:7079", "10.1.0.2:7079"];
        let mut far = node("10.0.0.2:7079", &as_told);
        let mut dialler = node("10.0.0.1:7079", &[]);
        assert_eq!(of(&far, &dialler), as_told);
        let theirs = [
            ("10.0.0.2", 1_000),
            ("10.1.0.2", 10_000),
            ("10.2.0.2", 4_000),
        ];
        far.speeds = speeds(&theirs);
        assert_eq!(of(&far, &dialler), as_told, "the dialler tells nothing");
        let own = [
            ("10.0.0.1", 1_000),
            ("10.1.0.1", 10_000),
            ("10.2.0.1", 9_000),
        ];
        dialler.speeds = speeds(&own);
        let sorted = ["10.2.0.2:7079", "10.1.0.2:7079", "10.0.0.2:7079"];
        assert_eq!(of(&far, &dialler), sorted);
        dialler.speeds = speeds(&own[..2]);
        assert_eq!(of(&far, &dialler), as_told, "one is not known");
        dialler.speeds = speeds(&[own[0], ("10.1.0.1", 4_000), own[2]]);
        assert_eq!(of(&far, &dialler), as_told, "a quarter is fast enough");
        // The speeds of networks that only one of both has are not known.
        for address in ["gpu2:7079", "172.17.0.1:7079", "10.9.0.2:7079"] {
            far.addresses = vec![as_told[2].to_owned(), address.to_owned()];
            far.speeds = speeds(&[
                theirs[0],
                theirs[1],
                ("172.17.0.1", 10_000),
                ("10.9.0.2", 10_000),
            ]);
            dialler.speeds =
                speeds(&[own[0], own[1], ("172.17.0.1", 10_000), ("10.8.0.1", 10_000)]);
            assert_eq!(of(&far, &dialler), [as_told[0], as_told[2], address]);
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
