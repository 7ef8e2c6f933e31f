//! The speeds of a server's addresses, as the drivers of the interfaces at both ends tell them.
//!
//! Pure. What transfers have measured is not known here ([`super::rails`]). Invariant: of two ends, the slower one counts,
//! and an end that tells nothing counts for nothing.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use causeway_proto::control::LinkSpeed;

use crate::config::Address;

/// Bytes a second of one Mbit/s.
const MBIT: u64 = 125_000;

/// The speed of each address in bytes a second; `None` if neither end tells one. `own` returns the speed of this host's
/// interface towards an address, in Mbit/s. `theirs` are the speeds that the node has told.
pub(super) fn told<'a>(
    addresses: impl Iterator<Item = &'a Address>,
    theirs: &[LinkSpeed],
    own: impl Fn(IpAddr, Option<&str>) -> Option<u32>,
) -> Vec<Option<u64>> {
    let speed = |address: &Address| {
        let host: IpAddr = address.host_without_zone().parse().ok()?;
        let zone = address.host().split_once('%').map(|(_, zone)| zone);
        let bytes = match host {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let told = theirs.iter().find(|of| of.address == bytes);
        let told = told.map(|of| of.mbits).filter(|mbits| *mbits > 0);
        let slower = own(host, zone).into_iter().chain(told).min()?;
        Some(u64::from(slower) * MBIT)
    };
    addresses.map(speed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_end_counts_and_an_unknown_one_does_not() {
        let addresses = ["10.0.0.7", "10.1.0.7", "[fe80::7%eth1]", "10.2.0.7", "gpu1"];
        let addresses: Vec<Address> = addresses.iter().map(|of| of.parse().unwrap()).collect();
        let theirs = [
            ([10, 0, 0, 7], 10_000),
            ([10, 1, 0, 7], 2_500),
            ([10, 2, 0, 7], 0),
        ];
        let theirs = theirs.map(|(address, mbits)| LinkSpeed {
            address: address.to_vec().into(),
            mbits,
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
}
