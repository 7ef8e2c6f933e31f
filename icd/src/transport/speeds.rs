//! The speeds of a server's addresses: as the user has had them measured, or as the interfaces at both ends tell them.
//!
//! Pure. Running transfers decide nothing, because their figures depend on what else happens. Invariants: speeds of one kind
//! are compared only, because a measured figure is always below the speed of its interface. If an address has none, all
//! addresses count as equal. A link-local address, which nobody tells or measures, has that of others by the same interface.
//! If there are none, this host's interface counts, at most as the fastest of all others. If its speed is not known, the
//! address counts as the slowest of them. Of two ends, the slower one counts, and both must tell theirs. Host names have no
//! speed.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use causeway_links::{LinkEntry, is_speed_of};
use causeway_proto::control::LinkSpeed;

use crate::config::Address;

/// Measured figures are in bytes a second, speeds of interfaces in Mbit/s.
const BYTES_OF_MBIT: u64 = 125_000;

/// The speeds of all addresses, of one kind; empty if they are not known. `kept` are the node's kept figures, `theirs` are the
/// speeds that the node has told. `own` returns this host's interface towards an address.
pub(super) fn of_addresses<'a>(
    addresses: &[&Address],
    kept: &[LinkEntry],
    theirs: &[LinkSpeed],
    own: impl Fn(IpAddr, Option<&str>) -> Option<OwnInterface<'a>>,
) -> Vec<u64> {
    // `unit` is what 1 Mbit/s is in this kind.
    let known = |unit: u64, speed: &dyn Fn(&Address) -> Option<u64>| {
        let speed = |address: &Address| speed(address).filter(|speed| *speed > 0);
        let of_same_link = |address: &Address| {
            let zone = zone(address)?;
            let others = addresses.iter().filter(|other| {
                let towards = ip_of(other).and_then(|ip| own(ip, self::zone(other)));
                towards.is_some_and(|of| of.name == zone)
            });
            others.filter_map(|other| speed(other)).max()
        };
        let others = || addresses.iter().filter_map(|of| speed(of));
        // Without this, one interface that has a link-local address alone would switch off the speeds of all.
        let of_others = |address: &Address| {
            let mbits = own(ip_of(address)?, Some(zone(address)?)).and_then(|of| of.mbits);
            match mbits.filter(|of| *of > 0) {
                Some(mbits) => others().max().map(|most| most.min(u64::from(mbits) * unit)),
                None => others().min(),
            }
        };
        let known = |of| {
            speed(of)
                .or_else(|| of_same_link(of))
                .or_else(|| of_others(of))
        };
        let speeds = addresses.iter().map(|of| known(of));
        speeds.collect::<Option<Vec<u64>>>()
    };
    let speed = |ip, zone: Option<&str>| own(ip, zone)?.mbits;
    known(BYTES_OF_MBIT, &|address| measured(address, kept))
        .or_else(|| known(1, &|address| of_interfaces(address, theirs, speed)))
        .unwrap_or_default()
}

/// An interface of this host.
#[derive(Clone, Copy)]
pub(super) struct OwnInterface<'a> {
    pub(super) name: &'a str,
    /// In Mbit/s, if it is known.
    pub(super) mbits: Option<u32>,
}

/// The interface of a link-local address.
fn zone(address: &Address) -> Option<&str> {
    address.host().split_once('%').map(|(_, zone)| zone)
}

/// The measured speed of an address in bytes a second: that of the slower direction.
fn measured(address: &Address, kept: &[LinkEntry]) -> Option<u64> {
    let entry = of_address(address, kept)?;
    Some(entry.outward.min(entry.inward))
}

/// The lower speed of the two interfaces in Mbit/s. `None` unless both are known.
fn of_interfaces(
    address: &Address,
    theirs: &[LinkSpeed],
    own: impl Fn(IpAddr, Option<&str>) -> Option<u32>,
) -> Option<u64> {
    let host = ip_of(address)?;
    let far = theirs.iter().find(|of| is_speed_of(of, host))?;
    Some(own(host, zone(address))?.min(far.mbits).into())
}

/// The address that commands try first: the one with the shortest measured round trip, if that of the one that `answered` is
/// measured too.
pub(super) fn first<'a>(
    answered: usize,
    addresses: impl Iterator<Item = &'a Address>,
    kept: &[LinkEntry],
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
pub(super) fn of_address<'a>(address: &Address, kept: &'a [LinkEntry]) -> Option<&'a LinkEntry> {
    let host = ip_of(address)?;
    kept.iter().find(|of| of.to.ip().to_canonical() == host)
}

fn ip_of(address: &Address) -> Option<IpAddr> {
    let host: IpAddr = address.host_without_zone().parse().ok()?;
    Some(host.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_links::link_speed;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|of| of.parse().unwrap()).collect()
    }

    fn kept(to: &str, outward: u64, inward: u64, least_ns: u64) -> LinkEntry {
        LinkEntry {
            least_ns,
            median_ns: least_ns,
            outward,
            inward,
            when: 1,
            ..LinkEntry::unmeasured("0".repeat(32), [10, 0, 0, 1].into(), to.parse().unwrap())
        }
    }

    fn told(of: &[(&str, u32)]) -> Vec<LinkSpeed> {
        let speed =
            |(address, mbits): &(&str, u32)| link_speed(address.parse().unwrap(), 24, *mbits);
        of.iter().map(speed).collect()
    }

    /// The speeds of addresses. `own` are those of this host's interfaces towards them.
    fn speeds(
        of: &[&str],
        kept: &[LinkEntry],
        theirs: &[LinkSpeed],
        own: &[(&str, u32)],
    ) -> Vec<u64> {
        let own = |host: IpAddr, zone: Option<&str>| {
            let is_it = |(to, _): &&(&str, u32)| match to.split_once('%') {
                None => *to == host.to_string(),
                Some((to, interface)) => to == host.to_string() && zone == Some(interface),
            };
            own.iter().find(is_it).map(|(_, mbits)| OwnInterface {
                name: INTERFACES
                    .iter()
                    .find(|(_, net)| host.to_string().starts_with(net))
                    .map_or("eth9", |(name, _)| name),
                mbits: Some(*mbits).filter(|of| *of > 0),
            })
        };
        let addresses = addresses(of);
        of_addresses(&addresses.iter().collect::<Vec<_>>(), kept, theirs, own)
    }

    /// This host's interfaces, and what they are on link with.
    const INTERFACES: [(&str, &str); 2] = [("eth0", "10.0."), ("eth1", "10.1.")];
    const NOT_KNOWN: [u64; 0] = [];
    const TWO: [&str; 2] = ["10.0.0.7:1", "10.1.0.7"];
    const CARDS: [(&str, u32); 2] = [("10.0.0.7", 100_000), ("10.1.0.7", 100_000)];

    #[test]
    fn the_slower_direction_of_each_address_counts_if_all_are_measured() {
        let both = [
            kept("10.0.0.7:7079", 12, 11, 1),
            kept("[fe80::7]:1", 90, 99, 1),
        ];
        let found = speeds(&["10.0.0.7:1", "[fe80::7%eth1]"], &both, &[], &[]);
        assert_eq!(found, [11, 90]);
        assert_eq!(speeds(&["10.0.0.7", "gpu1"], &both, &[], &[]), NOT_KNOWN);
        let nothing = [kept("10.0.0.7:1", 5, 5, 1), kept("10.1.0.7:1", 0, 5, 1)];
        assert_eq!(speeds(&TWO, &nothing, &[], &[]), NOT_KNOWN);
    }

    #[test]
    fn a_measured_speed_is_not_compared_with_that_of_an_interface() {
        let theirs = told(&CARDS);
        // A figure is far below the speed of its card.
        let one = [kept("10.0.0.7:7079", 2_500_000_000, 2_500_000_000, 1)];
        assert_eq!(speeds(&TWO, &one, &theirs, &CARDS), [100_000, 100_000]);
        assert_eq!(speeds(&TWO, &one, &theirs, &CARDS[..1]), NOT_KNOWN);
        let both = [one[0].clone(), kept("10.1.0.7:7079", 7, 7, 1)];
        assert_eq!(speeds(&TWO, &both, &theirs, &CARDS), [2_500_000_000, 7]);
    }

    #[test]
    fn the_slower_of_two_interfaces_counts_if_both_are_known() {
        let theirs = told(&[
            ("10.0.0.7", 10_000),
            ("10.1.0.7", 2_500),
            ("fe80::7", 40_000),
        ]);
        let own = [
            ("10.0.0.7", 1_000),
            ("10.1.0.7", 25_000),
            ("fe80::7%eth1", 100_000),
        ];
        assert_eq!(speeds(&TWO, &[], &theirs, &own), [1_000, 2_500]);
        let with_zone = ["10.0.0.7", "[fe80::7%eth1]"];
        assert_eq!(speeds(&with_zone, &[], &theirs, &own), [1_000, 40_000]);
        assert_eq!(
            speeds(&TWO, &[], &theirs[..1], &own),
            NOT_KNOWN,
            "the node tells one"
        );
        // The second address is behind a router.
        assert_eq!(speeds(&TWO, &[], &theirs, &own[..1]), NOT_KNOWN);
        let without = told(&[("10.0.0.7", 10_000), ("10.1.0.7", 0)]);
        assert_eq!(speeds(&TWO, &[], &without, &own), NOT_KNOWN);
    }

    #[test]
    fn a_link_local_address_has_the_speed_of_others_by_its_interface() {
        // As discovery finds a node's addresses.
        let found = ["[fe80::7%eth0]", "10.0.0.7", "10.1.0.7"];
        let theirs = told(&[("10.0.0.7", 1_000), ("10.1.0.7", 10_000)]);
        assert_eq!(speeds(&found, &[], &theirs, &CARDS), [1_000, 1_000, 10_000]);
        let both = [kept("10.0.0.7:1", 5, 5, 1), kept("10.1.0.7:1", 7, 7, 1)];
        assert_eq!(speeds(&found, &both, &[], &CARDS), [5, 5, 7]);
        // A figure does not need a card's speed.
        let veths = [("10.0.0.7", 0), ("10.1.0.7", 0)];
        assert_eq!(speeds(&found, &both, &[], &veths), [5, 5, 7]);
    }

    #[test]
    fn a_link_local_address_alone_has_the_speed_of_its_interface_or_of_the_slowest() {
        let alone = ["[fe80::7%eth2]", "10.0.0.7", "10.1.0.7"];
        let theirs = told(&[("10.0.0.7", 1_000), ("10.1.0.7", 10_000)]);
        assert_eq!(speeds(&alone, &[], &theirs, &CARDS), [1_000, 1_000, 10_000]);
        let both = [kept("10.0.0.7:1", 7, 7, 1), kept("10.1.0.7:1", 5, 5, 1)];
        assert_eq!(speeds(&alone, &both, &theirs, &CARDS), [5, 7, 5]);
        // A direct cable without configuration.
        let cable = |mbits| [&CARDS[..], &[("fe80::7%eth2", mbits)]].concat();
        for (mbits, speed) in [(100_000, 10_000), (2_500, 2_500), (0, 1_000)] {
            let found = speeds(&alone, &[], &theirs, &cable(mbits));
            assert_eq!(found, [speed, 1_000, 10_000], "{mbits}");
        }
        let fast = [
            kept("10.0.0.7:1", 2_000_000_000, 2_000_000_000, 1),
            kept("10.1.0.7:1", 110_000_000, 110_000_000, 1),
        ];
        for (mbits, speed) in [(100_000, 2_000_000_000), (10_000, 1_250_000_000)] {
            let found = speeds(&alone, &fast, &theirs, &cable(mbits));
            assert_eq!(found, [speed, 2_000_000_000, 110_000_000], "{mbits}");
        }
        // Others must be known, and a host name is not.
        assert_eq!(speeds(&alone[..1], &both, &theirs, &CARDS), NOT_KNOWN);
        let name = ["[fe80::7%eth2]", "10.0.0.7", "gpu1"];
        assert_eq!(speeds(&name, &both, &theirs, &CARDS), NOT_KNOWN);
    }

    #[test]
    fn commands_begin_with_the_shortest_round_trip_that_is_known() {
        let addresses = addresses(&["10.0.0.7", "10.1.0.7", "10.2.0.7"]);
        let first = |answered, kept: &[LinkEntry]| super::first(answered, addresses.iter(), kept);
        let both = [kept("10.0.0.7:1", 1, 1, 900), kept("10.1.0.7:1", 1, 1, 300)];
        assert_eq!([0, 1, 2].map(|rail| first(rail, &both)), [1, 1, 2]);
        assert_eq!(first(0, &both[..1]), 0);
        assert_eq!(first(0, &[]), 0);
        let equal = [kept("10.0.0.7:1", 1, 1, 300), kept("10.1.0.7:1", 1, 1, 300)];
        assert_eq!(first(1, &equal), 1, "an equal one is no better");
    }
}
