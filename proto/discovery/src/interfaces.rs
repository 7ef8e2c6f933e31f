//! The networks of this host's interfaces, and which addresses are on-link of them.
//!
//! An announcement must not aim programs at third parties. So only addresses that are on-link are dialled. Invariant: no
//! loopback, multicast or unspecified address is on-link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// An address of an interface, with its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's number.
    pub index: u32,
    /// The interface's name.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// The number of bits that the network's addresses share.
    pub prefix: u8,
}

/// The addresses of this host's interfaces, without those of loopback.
#[derive(Clone, Debug, Default)]
pub struct Interfaces(pub Vec<Interface>);

impl Interfaces {
    /// Returns the interfaces of this host that are up.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_host() -> std::io::Result<Interfaces> {
        let all = if_addrs::get_if_addrs()?;
        let usable = all
            .into_iter()
            .filter(|of| !of.is_loopback() && of.is_oper_up());
        let interface = |of: if_addrs::Interface| {
            Some(Interface {
                index: of.index?,
                prefix: match &of.addr {
                    if_addrs::IfAddr::V4(v4) => v4.prefixlen,
                    if_addrs::IfAddr::V6(v6) => v6.prefixlen,
                },
                address: of.ip(),
                name: of.name,
            })
        };
        Ok(Interfaces(usable.filter_map(interface).collect()))
    }

    /// Whether hosts at this address can be reached without a router. A link-local IPv6 address is on-link of every
    /// interface, so the caller must know on which one it was heard.
    #[must_use]
    pub fn are_on_link(&self, address: IpAddr) -> bool {
        match address {
            address if is_special(address) => false,
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                self.0.iter().any(|of| of.address.is_ipv6())
            }
            _ => self.0.iter().any(|of| of.has(address)),
        }
    }

    /// Whether hosts at this address may be dialled: those that are on-link, and with `routed` those behind routers too.
    #[must_use]
    pub fn may_dial(&self, address: IpAddr, routed: bool) -> bool {
        let is_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        self.are_on_link(address) || (routed && !is_local && !is_special(address))
    }

    /// The interface whose network has this address. `interface` is its name, if it is known.
    #[must_use]
    pub fn towards(&self, address: IpAddr, interface: Option<&str>) -> Option<&Interface> {
        let is_named = |of: &&Interface| interface.is_none_or(|name| of.name == name);
        let mut on_link = self.0.iter().filter(|of| of.has(address));
        on_link.find(is_named)
    }

    /// Returns the name of the interface with this number.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<&str> {
        let of = self.0.iter().find(|of| of.index == index);
        of.map(|of| of.name.as_str())
    }
}

impl Interface {
    /// The speed of the link in Mbit/s, as the driver of a physical device tells it. `None` for bridges, veths, tunnels and
    /// other interfaces without a device, and where the driver tells none, as for WLAN. May wait for the driver.
    #[must_use]
    pub fn speed(&self) -> Option<u32> {
        self.speed_in(Path::new("/sys/class/net"))
    }

    fn speed_in(&self, interfaces: &Path) -> Option<u32> {
        // Names of interfaces have no slash.
        let folder = interfaces.join(&self.name);
        // Others tell a constant, whatever carries them, or the speed of their fastest port.
        if !folder.join("device").exists() {
            return None;
        }
        // Without a link, the file cannot be read, or has -1.
        let text = std::fs::read_to_string(folder.join("speed")).ok()?;
        text.trim().parse().ok().filter(|speed| *speed > 0)
    }

    /// Whether this address is of the interface's network.
    fn has(&self, address: IpAddr) -> bool {
        let differ = |bits: u32, differing: u128| match self.prefix {
            0 => 0,
            prefix => differing >> bits.saturating_sub(u32::from(prefix)),
        };
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                differ(32, u128::from(own.to_bits() ^ other.to_bits())) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                differ(128, own.to_bits() ^ other.to_bits()) == 0
            }
            _ => false,
        }
    }
}

/// Whether an address is one of no other host: loopback, multicast and such.
#[must_use]
pub fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_special_v4(v4),
        IpAddr::V6(v6) => is_special_v6(v6),
    }
}

fn is_special_v4(address: Ipv4Addr) -> bool {
    address.is_loopback()
        || address.is_multicast()
        || address.is_broadcast()
        || address.octets()[0] == 0
}

fn is_special_v6(address: Ipv6Addr) -> bool {
    address.is_loopback()
        || address.is_multicast()
        || address.is_unspecified()
        // An IPv4 address in this form would avoid the checks above.
        || address.to_ipv4().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces(addresses: &[(&str, u8)]) -> Interfaces {
        let interface = |(address, prefix): &(&str, u8)| Interface {
            index: 2,
            name: "eth0".to_owned(),
            address: address.parse().unwrap(),
            prefix: *prefix,
        };
        Interfaces(addresses.iter().map(interface).collect())
    }

    #[test]
    fn on_link_is_what_an_interface_has_the_network_of() {
        let all = interfaces(&[("10.1.2.3", 16), ("2001:db8::5", 64)]);
        for (address, expected) in [
            ("10.1.255.1", true),
            ("10.2.0.1", false),
            ("8.8.8.8", false),
            ("127.0.0.1", false),
            ("0.0.0.0", false),
            ("224.0.0.251", false),
            ("255.255.255.255", false),
            ("2001:db8::9", true),
            ("2001:db8:0:1::9", false),
            ("fe80::1", true),
            ("::1", false),
            ("::ffff:10.1.2.4", false),
            ("::ffff:127.0.0.1", false),
            ("ff02::fb", false),
        ] {
            assert_eq!(
                all.are_on_link(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn an_address_is_reached_by_the_interface_of_its_network() {
        let mut all = interfaces(&[("10.1.2.3", 16), ("fe80::1", 64), ("fe80::2", 64)]);
        all.0[2].name = "eth1".to_owned();
        let towards = |address: &str, name| {
            let of = all.towards(address.parse().unwrap(), name);
            of.map(|of| of.address.to_string())
        };
        assert_eq!(towards("10.1.9.9", None).as_deref(), Some("10.1.2.3"));
        assert_eq!(towards("fe80::9", Some("eth1")).as_deref(), Some("fe80::2"));
        assert_eq!(towards("10.2.0.1", None), None);
    }

    #[test]
    fn only_devices_have_a_speed() {
        let system = tempfile::tempdir().unwrap();
        let cases = [
            ("eth0", true, Some("10000\n"), Some(10_000)),
            ("down", true, Some("-1\n"), None),
            ("wlan0", true, None, None),
            ("br0", false, Some("10000\n"), None),
        ];
        for (name, is_device, speed, expected) in cases {
            let folder = system.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            if is_device {
                std::fs::create_dir(folder.join("device")).unwrap();
            }
            if let Some(speed) = speed {
                std::fs::write(folder.join("speed"), speed).unwrap();
            }
            let mut all = interfaces(&[("10.1.2.3", 16)]);
            all.0[0].name = name.to_owned();
            assert_eq!(all.0[0].speed_in(system.path()), expected, "{name}");
        }
    }

    #[test]
    fn behind_routers_only_other_hosts_may_be_dialled() {
        let all = interfaces(&[("10.1.2.3", 16)]);
        for (address, routed, expected) in [
            ("10.1.0.1", false, true),
            ("10.2.0.1", false, false),
            ("10.2.0.1", true, true),
            ("127.0.0.1", true, false),
            ("::ffff:127.0.0.1", true, false),
            ("224.0.0.251", true, false),
            ("fe80::1", true, false),
        ] {
            let may = all.may_dial(address.parse().unwrap(), routed);
            assert_eq!(may, expected, "{address} {routed}");
        }
    }

    #[test]
    fn without_ipv6_no_ipv6_address_is_on_link_and_a_default_network_excludes_the_special_ones() {
        let four = interfaces(&[("10.1.2.3", 16)]);
        assert!(!four.are_on_link("fe80::1".parse().unwrap()));
        let all = interfaces(&[("10.1.2.3", 0)]);
        assert!(all.are_on_link("8.8.8.8".parse().unwrap()));
        assert!(!all.are_on_link("127.0.0.1".parse().unwrap()));
        let point = interfaces(&[("10.1.2.3", 32)]);
        assert!(point.are_on_link("10.1.2.3".parse().unwrap()));
        assert!(!point.are_on_link("10.1.2.2".parse().unwrap()));
    }
}
