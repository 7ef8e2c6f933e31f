//! The order in which a node tries the addresses of another one, for a link between their workers and for a measurement.
//!
//! Pure: the nodes tell the speeds of their interfaces. Not here: which addresses there are. Invariant: an order loses no
//! address and adds none.

use std::net::{IpAddr, SocketAddr};

use causeway_proto::control::LinkSpeed;

/// An address that is slower than the fastest one by more than this factor comes after it.
const SLOWER: u64 = 4;

/// The speed of an interface as a message. `prefix`: number of bits that the addresses of its network share.
#[must_use]
pub fn link_speed(address: IpAddr, prefix: u8, mbits: u32) -> LinkSpeed {
    LinkSpeed {
        address: octets(address).into(),
        mbits,
        prefix: prefix.into(),
    }
}

/// Whether a speed is that of the interface with this address.
#[must_use]
pub fn is_speed_of(speed: &LinkSpeed, address: IpAddr) -> bool {
    speed.address == octets(address)
}

/// Moves addresses to the end that are slower than a quarter of the fastest one. If there are such, addresses without a known
/// speed, as that of `docker0`, come between the fast ones and these. `far` are the speeds that their node tells, and
/// `dialler` those of the node that tries them.
pub fn put_slow_last(addresses: &mut Vec<String>, far: &[LinkSpeed], dialler: &[LinkSpeed]) {
    let speeds = addresses.iter().map(|address| speed(address, far, dialler));
    let speeds: Vec<Option<u64>> = speeds.collect();
    let fastest = speeds.iter().flatten().max().copied().unwrap_or(0);
    let is_slow = |speed: u64| speed * SLOWER < fastest;
    // Cards that are alike say nothing about a bond or a bridge, which may be faster.
    if !speeds.iter().flatten().any(|speed| is_slow(*speed)) {
        return;
    }
    let mut sorted: Vec<_> = speeds.into_iter().zip(std::mem::take(addresses)).collect();
    sorted.sort_by_key(|(speed, _)| match speed {
        Some(speed) if is_slow(*speed) => 2,
        Some(_) => 0,
        None => 1,
    });
    addresses.extend(sorted.into_iter().map(|(_, address)| address));
}

/// The lower speed of the two interfaces, in Mbit/s. `None` unless both tell one and have the same network.
fn speed(address: &str, far: &[LinkSpeed], dialler: &[LinkSpeed]) -> Option<u64> {
    let ip = address.parse::<SocketAddr>().ok()?.ip();
    let theirs = far.iter().find(|of| is_speed_of(of, ip))?;
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

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn speeds(of: &[(&str, u32)]) -> Vec<LinkSpeed> {
        let speed =
            |(address, mbits): &(&str, u32)| link_speed(address.parse().unwrap(), 24, *mbits);
        of.iter().map(speed).collect()
    }

    fn order(addresses: &[&str], far: &[(&str, u32)], dialler: &[(&str, u32)]) -> Vec<String> {
        let mut addresses: Vec<String> = addresses.iter().map(|&of| of.to_owned()).collect();
        put_slow_last(&mut addresses, &speeds(far), &speeds(dialler));
        addresses
    }

    const TOLD: [&str; 3] = ["10.0.0.2:7079", "10.2.0.2:7079", "10.1.0.2:7079"];
    const FAR: [(&str, u32); 3] = [
        ("10.0.0.2", 1_000),
        ("10.1.0.2", 10_000),
        ("10.2.0.2", 4_000),
    ];
    const OWN: [(&str, u32); 3] = [
        ("10.0.0.1", 1_000),
        ("10.1.0.1", 10_000),
        ("10.2.0.1", 9_000),
    ];

    #[test]
    fn addresses_that_are_much_slower_come_last() {
        assert_eq!(order(&TOLD, &[], &[]), TOLD);
        assert_eq!(order(&TOLD, &FAR, &[]), TOLD, "the dialler tells nothing");
        assert_eq!(order(&TOLD, &FAR, &OWN), [TOLD[1], TOLD[2], TOLD[0]]);
        let alike = [OWN[0], ("10.1.0.1", 1_000)];
        assert_eq!(order(&TOLD, &FAR, &alike), TOLD, "the third may be faster");
        let own = [OWN[0], ("10.1.0.1", 4_000), OWN[2]];
        assert_eq!(order(&TOLD, &FAR, &own), TOLD, "a quarter is fast enough");
        let six = ["[fd00::2]:1", "[fd01::2]:1"];
        let far = [("fd00::2", 10), ("fd01::2", 100)];
        let own = [("fd00::1", 100), ("fd01::1", 100)];
        assert_eq!(order(&six, &far, &own), [six[1], six[0]]);
    }

    #[test]
    fn addresses_that_one_of_both_knows_come_before_slow_ones_only() {
        for address in ["gpu2:7079", "172.17.0.1:7079", "10.9.0.2:7079"] {
            let told = [TOLD[0], TOLD[2], address];
            let more = [("172.17.0.1", 10_000), ("10.9.0.2", 10_000)];
            let far = [&FAR[..2], &more].concat();
            let own = [&OWN[..2], &[more[0], ("10.8.0.1", 10_000)]].concat();
            assert_eq!(order(&told, &far, &own), [told[1], address, told[0]]);
        }
    }

    proptest! {
        #[test]
        fn no_address_is_lost(
            hosts in prop::collection::vec((0_u8..9, 1_u32..100_000, 1_u32..100_000), 0..9)
        ) {
            let told: Vec<String> = hosts.iter().map(|(net, ..)| format!("10.{net}.0.2:1")).collect();
            let at = |net: &u8, host: u8| IpAddr::from([10, *net, 0, host]);
            let far: Vec<_> = hosts.iter().map(|(net, far, _)| link_speed(at(net, 2), 24, *far)).collect();
            let own: Vec<_> = hosts.iter().map(|(net, _, own)| link_speed(at(net, 1), 24, *own)).collect();
            let mut ordered = told.clone();
            put_slow_last(&mut ordered, &far, &own);
            let [mut told, mut ordered] = [told, ordered];
            told.sort();
            ordered.sort();
            prop_assert_eq!(told, ordered);
        }
    }
}
