//! The message to the process that announces a server: what to announce, and where.
//!
//! The server sends one, with its length before it, and closes the socket when it no longer announces itself.
//! Both ends are the same binary, so the format has no version.

use std::net::{IpAddr, SocketAddr};

use causeway_discovery::Announcement;
use serde::{Deserialize, Serialize};

use crate::AnnounceSettings;

/// Longest message, in bytes.
pub(crate) const MOST_ORDER: u32 = 64 << 10;

/// What to announce, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The name of the service.
    pub name: String,
    /// The name of the host in the announced records; without `.local.`.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The addresses; empty: all addresses of the interfaces, as they come and go.
    pub addresses: Vec<IpAddr>,
    /// Whether IPv6 addresses are announced, if `addresses` is empty.
    pub has_v6: bool,
    /// The interfaces; empty: all.
    pub interfaces: Vec<String>,
    /// Keys and values of the service.
    pub txt: Vec<(String, String)>,
}

/// An order cannot be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum BadOrder {
    /// The text is not an order.
    #[error("invalid order: {0}")]
    Unreadable(#[from] toml::de::Error),
    /// The order is not representable.
    #[error("invalid order: {0}")]
    Unwritable(#[from] toml::ser::Error),
}

impl Order {
    /// Returns the order for a server that listens on these addresses. `None` if all of them are of loopback.
    #[must_use]
    pub fn of(
        settings: &AnnounceSettings,
        said: &Announcement,
        listening: &[SocketAddr],
    ) -> Option<Order> {
        let reachable = || {
            listening
                .iter()
                .filter(|at| !causeway_serving::is_loopback(at))
        };
        // Clients use one port for all addresses. The others are for those who know them.
        let port = reachable().next()?.port();
        let addresses: Vec<IpAddr> = reachable()
            .filter(|at| at.port() == port)
            .map(SocketAddr::ip)
            .collect();
        let is_everywhere = addresses.iter().any(IpAddr::is_unspecified);
        let txt = said.to_txt().into_iter();
        Some(Order {
            name: settings.name.clone(),
            // Unique, so that no other responder, such as avahi or a copy of this machine, answers for it.
            host: format!("causeway-{:016x}", u64::from_be_bytes(said.run)),
            port,
            has_v6: addresses.iter().any(IpAddr::is_ipv6),
            addresses: if is_everywhere { Vec::new() } else { addresses },
            interfaces: settings.interfaces.clone(),
            txt: txt.map(|(key, value)| (key.to_owned(), value)).collect(),
        })
    }

    /// Encodes the order, with its length before it.
    ///
    /// # Errors
    /// [`BadOrder::Unwritable`].
    pub fn encode(&self) -> Result<Vec<u8>, BadOrder> {
        let text = toml::to_string(self)?;
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        Ok([&length.to_le_bytes(), text.as_bytes()].concat())
    }

    /// Decodes an order, without its length.
    ///
    /// # Errors
    /// [`BadOrder::Unreadable`].
    pub fn decode(text: &str) -> Result<Order, BadOrder> {
        Ok(toml::from_str(text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_discovery::Role;

    fn ordered(listening: &[&str]) -> Option<Order> {
        let settings = AnnounceSettings::new(vec!["mgr1".to_owned()], None, None).unwrap();
        let said = Announcement {
            role: Role::Manager,
            id: [7; 16],
            run: [1; 8],
            wire: 1,
            tls: true,
            managed: false,
            ca: None,
        };
        let listening: Vec<_> = listening.iter().map(|at| at.parse().unwrap()).collect();
        Order::of(&settings, &said, &listening)
    }

    #[test]
    fn what_is_announced_is_what_others_can_reach() {
        assert_eq!(ordered(&["127.0.0.1:7079", "[::1]:7079"]), None);
        let all = ordered(&["127.0.0.1:1", "0.0.0.0:7079"]).unwrap();
        assert_eq!(
            (all.port, all.addresses.len(), all.has_v6),
            (7079, 0, false)
        );
        assert!(all.txt.contains(&("role".to_owned(), "manager".to_owned())));
        assert!(ordered(&["[::]:7079"]).unwrap().has_v6);
        let one = ordered(&["10.0.0.1:7079", "10.0.0.2:80", "127.0.0.1:7079"]).unwrap();
        let expected: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!((one.port, one.addresses), (7079, vec![expected]));
    }

    #[test]
    fn an_order_arrives_as_it_was() {
        let order = Order {
            name: "gpu1.lab".to_owned(),
            host: "causeway-07".to_owned(),
            port: 7079,
            addresses: vec!["10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap()],
            has_v6: true,
            interfaces: vec!["eth0".to_owned()],
            txt: vec![("role".to_owned(), "node".to_owned())],
        };
        let bytes = order.encode().unwrap();
        let text = std::str::from_utf8(&bytes[4..]).unwrap();
        assert_eq!(Order::decode(text).unwrap(), order);
        assert!(Order::decode("name = 3").is_err());
    }
}
