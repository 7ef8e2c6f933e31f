//! The speeds of a server's addresses: as the user has had them measured, else as the interfaces at both ends tell them.
//!
//! Pure. Running transfers decide nothing, because their figures depend on what else happens. Invariants: of two ends, the
//! slower one counts, and an end that tells nothing counts for nothing. Only addresses that are numbers have a speed.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use causeway_links::Entry;
use causeway_proto::control::LinkSpeed;

use crate::config::Address;

/// Bytes a second of one Mbit/s.
const MBIT: u64 = 125_000;

/// The speed of each address in bytes a second; `None` if it is not known. `kept` are the node's kept figures.
pub(super) fn measured<'a>(
    addresses: impl Iterator<Item = &'a Address>,
    kept: &[Entry],
) -> Vec<Option<u64>> {
    let slower = |of: &Entry| of.outward.min(of.inward);
    addresses
        .map(|address| of_address(address, kept).map(slower))
        .collect()
}

/// The speed of each address in bytes a second; `None` if neither end tells one. `own` returns the speed of this host's
/// interface towards an address, in Mbit/s. `theirs` are the speeds that the node has told.
pub(super) fn told<'a>(
    addresses: impl Iterator<Item = &'a Address>,
    theirs: &[LinkSpeed],
    own: impl Fn(IpAddr, Option<&str>) -> Option<u32>,
) -> Vec<Option<u64>> {
    let speed = |address: &Address| {
        let host = ip_of(address)?;
        let zone = address.host().split_once('%').map(|(_, zone)| zone);
        let told = theirs.iter().find(|of| is_ip(&of.address, host));
        let told = told.map(|of| of.mbits).filter(|mbits| *mbits > 0);
        let slower = own(host, zone).into_iter().chain(told).min()?;
        Some(u64::from(slower) * MBIT)
    };
    addresses.map(speed).collect()
}

/// The address that commands try first: the one with the shortest measured round trip, if that of the one that `answered` is
/// measured too.
pub(super) fn first<'a>(
    answered: usize,
    addresses: impl Iterator<Item = &'a Address>,
    kept: &[Entry],
) -> usize {
    let round_trips = addresses.map(|address| of_address(address, kept).map(|of| of.least_ns));
    let round_trips: Vec<Option<u64>> = round_trips.collect();
    let Some(Some(own)) = round_trips.get(answered) else {
        return answered;
    };
    let known = round_trips.iter().enumerate();
    let known = known.filter_map(|(rail, round_trip)| Some(((*round_trip)?, rail)));
    let least = known.min().filter(|(least, _)| least < own);
    least.map_or(answered, |(_, rail)| rail)
}

/// The kept figures of an address.
pub(super) fn of_address<'a>(address: &Address, kept: &'a [Entry]) -> Option<&'a Entry> {
    let host = ip_of(address)?;
    kept.iter().find(|of| of.to.ip().to_canonical() == host)
}

fn ip_of(address: &Address) -> Option<IpAddr> {
    let host: IpAddr = address.host_without_zone().parse().ok()?;
    Some(host.to_canonical())
}

fn is_ip(bytes: &[u8], ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => bytes == v4.octets(),
        IpAddr::V6(v6) => bytes == v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|of| of.parse().unwrap()).collect()
    }

    fn kept(to: &str, outward: u64, inward: u64, least_ns: u64) -> Entry {
        Entry {
            peer: "0".repeat(32),
            name: String::new(),
            user: String::new(),
            from: "10.0.0.1".parse().unwrap(),
            to: to.parse().unwrap(),
            least_ns,
            median_ns: least_ns,
            lost: 0,
            outward,
            inward,
            stream_ms: 500,
            tls: false,
            when: 1,
        }
    }

    #[test]
    fn the_slower_direction_of_the_address_counts() {
        let kept = [
            kept("10.0.0.7:7079", 12, 11, 1),
            kept("[fe80::7]:1", 90, 99, 1),
        ];
        let addresses = addresses(&["10.0.0.7:1", "10.1.0.7", "[fe80::7%eth1]", "gpu1"]);
        let speeds = measured(addresses.iter(), &kept);
        assert_eq!(speeds, [Some(11), None, Some(90), None]);
    }

    #[test]
    fn the_slower_end_counts_and_an_unknown_one_does_not() {
        let addresses = addresses(&["10.0.0.7", "10.1.0.7", "[fe80::7%eth1]", "10.2.0.7", "gpu1"]);
        let theirs = [
            ([10, 0, 0, 7], 10_000),
            ([10, 1, 0, 7], 2_500),
            ([10, 2, 0, 7], 0),
        ];
        let theirs = theirs.map(|(address, mbits)| LinkSpeed {
            address: address.to_vec().into(),
            mbits,
            ..LinkSpeed::default()
        });
        let own = |host: IpAddr, zone: Option<&str>| match (host.to_string().as_str(), zone) {
            ("10.0.0.7", None) => Some(1_000),
            ("fe80::7", Some("eth1")) => Some(40_000),
            _ => None,
        };
        let told = told(addresses.iter(), &theirs, own);
        let expected = [Some(1_000), Some(2_500), Some(40_000), None, None];
        assert_eq!(told, expected.map(|of| of.map(|mbits| mbits * MBIT)));
    }

    #[test]
    fn commands_begin_with_the_shortest_round_trip_that_is_known() {
        let addresses = addresses(&["10.0.0.7", "10.1.0.7", "10.2.0.7"]);
        let first = |answered, kept: &[Entry]| super::first(answered, addresses.iter(), kept);
        let both = [kept("10.0.0.7:1", 1, 1, 900), kept("10.1.0.7:1", 1, 1, 300)];
        assert_eq!([0, 1, 2].map(|rail| first(rail, &both)), [1, 1, 2]);
        assert_eq!(first(0, &both[..1]), 0);
        assert_eq!(first(0, &[]), 0);
        let equal = [kept("10.0.0.7:1", 1, 1, 300), kept("10.1.0.7:1", 1, 1, 300)];
        assert_eq!(first(1, &equal), 1, "an equal one is no better");
    }
}
