//! The message to the process that announces the node: what to announce, and where.
//!
//! The supervisor sends one, with its length before it, and closes the socket when the node no longer announces itself.
//! Both ends are the same binary, so the format has no version.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Longest message, in bytes.
pub const MOST_ORDER: u32 = 64 << 10;

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
