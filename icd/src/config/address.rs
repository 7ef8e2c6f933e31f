//! Server addresses: `host:port`, or the path of a Unix socket.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::Ipv6Addr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use causeway_proto::DAEMON_PORT;

/// Prefix of the path of a Unix socket.
const UNIX: &str = "unix:";
/// Longest path of a Unix socket's address, in bytes.
const LONGEST_PATH: usize = 107;

/// A server's address: `name`, `name:port`, `192.0.2.1:7079`, `[::1]:7079`, `[::1]`, `::1`, `[fe80::1%eth0]:7079`,
/// `unix:/path`.
///
/// The default port is [`DAEMON_PORT`]. Two addresses are equal when they name the same host and port, or
/// the same path.
#[derive(Debug, Clone)]
pub struct Address {
    host: String,
    port: u16,
    path: Option<Arc<Path>>,
    shown: String,
}

/// The reason why a text is not an address.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone)]
pub enum BadAddress {
    /// The text is empty.
    #[error("the address is empty")]
    Empty,
    /// The host is neither a name nor an IP address.
    #[error("invalid host `{0}`; expected host[:port], without http://")]
    Host(String),
    /// The port is not a number from 1 to 65535.
    #[error("invalid port `{0}`; expected a number from 1 to 65535")]
    Port(String),
    /// The path is too long for a Unix socket.
    #[error("Unix socket path `{0}` is too long; expected at most {LONGEST_PATH} bytes")]
    Path(String),
}

impl Address {
    /// The path of the Unix socket. `None` for a host.
    #[must_use]
    pub fn path(&self) -> Option<&Arc<Path>> {
        self.path.as_ref()
    }

    /// The host's name or IP address, without brackets. `localhost` for a Unix socket.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host without the interface of a link-local address: certificates do not name interfaces.
    #[must_use]
    pub fn host_without_zone(&self) -> &str {
        self.host.split('%').next().unwrap_or_default()
    }

    /// The port. 0 for a Unix socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address as `host:port`, with IPv6 in brackets, or as `unix:/path`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.shown
    }

    /// Parses an address. `port` is the default port.
    ///
    /// # Errors
    /// [`BadAddress`] says which part is wrong.
    pub fn with_port(text: &str, port: u16) -> Result<Address, BadAddress> {
        let text = text.trim();
        if text.is_empty() {
            return Err(BadAddress::Empty);
        }
        // "unix" alone, or before a port, is the name of a host. So only an absolute path makes a socket.
        if let Some(path) = text.strip_prefix(UNIX).filter(|path| path.starts_with('/')) {
            return Address::of_socket(path);
        }
        let new = |host: &str, own: Option<&str>| Address::new(host, own, port);
        if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| BadAddress::Host(text.to_owned()))?;
            return match rest.strip_prefix(':') {
                // Only IPv6 addresses may be in brackets.
                _ if !host.contains(':') => Err(BadAddress::Host(text.to_owned())),
                Some(port) => new(host, Some(port)),
                None if rest.is_empty() => new(host, None),
                None => Err(BadAddress::Host(text.to_owned())),
            };
        }
        match text.split_once(':') {
            // Several colons without brackets: an IPv6 address without a port.
            Some((_, rest)) if rest.contains(':') => new(text, None),
            Some((host, port)) => new(host, Some(port)),
            None => new(text, None),
        }
    }

    fn new(host: &str, port: Option<&str>, default: u16) -> Result<Address, BadAddress> {
        let port = port.map_or(Ok(default), parse_port)?;
        let (host, shown) = if host.contains(':') {
            let bad = || BadAddress::Host(host.to_owned());
            let (literal, zone) = match host.split_once('%') {
                Some((literal, zone)) => (literal, Some(zone)),
                None => (host, None),
            };
            let literal: Ipv6Addr = literal.parse().map_err(|_| bad())?;
            // Only link-local addresses exist once for each interface.
            if zone.is_some_and(|zone| !literal.is_unicast_link_local() || !is_interface(zone)) {
                return Err(bad());
            }
            let zone = zone.map(|zone| format!("%{zone}")).unwrap_or_default();
            let host = format!("{literal}{zone}");
            let shown = format!("[{host}]:{port}");
            (host, shown)
        } else if is_name(host) {
            let host = host.to_ascii_lowercase();
            let shown = format!("{host}:{port}");
            (host, shown)
        } else {
            return Err(BadAddress::Host(host.to_owned()));
        };
        Ok(Address {
            host,
            port,
            path: None,
            shown,
        })
    }

    /// The address of a server that is not known yet. Nobody connects to it.
    pub(super) fn unknown() -> Address {
        Address {
            host: String::new(),
            port: 0,
            path: None,
            shown: String::new(),
        }
    }

    fn of_socket(path: &str) -> Result<Address, BadAddress> {
        if path.len() > LONGEST_PATH {
            return Err(BadAddress::Path(path.to_owned()));
        }
        Ok(Address {
            host: "localhost".to_owned(),
            port: 0,
            path: Some(Path::new(path).into()),
            shown: format!("{UNIX}{path}"),
        })
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Address, BadAddress> {
        Address::with_port(text, DAEMON_PORT)
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Address) -> bool {
        (&self.host, self.port, &self.path) == (&other.host, other.port, &other.path)
    }
}

impl Eq for Address {}

impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.host, self.port, &self.path).hash(state);
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn parse_port(text: &str) -> Result<u16, BadAddress> {
    // parse() also accepts "+1".
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if digits && port != 0 => Ok(port),
        _ => Err(BadAddress::Port(text.to_owned())),
    }
}

/// Whether this can be the name of an interface (`IFNAMSIZ`).
fn is_interface(zone: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b']' | b',');
    (1..16).contains(&zone.len()) && zone.bytes().all(known)
}

fn is_name(host: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !host.is_empty() && host.len() <= 253 && host.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_unix_socket_is_its_path() {
        let one: Address = "unix:/run/user/1/node".parse().unwrap();
        assert_eq!(one.as_str(), "unix:/run/user/1/node");
        assert_eq!((one.host(), one.port()), ("localhost", 0));
        assert_eq!(&**one.path().unwrap(), Path::new("/run/user/1/node"));
        assert_ne!(one, "unix:/run/user/2/node".parse().unwrap());
        assert_eq!(shown("unix:7079"), "unix:7079", "a host of this name");
        assert!(
            format!("unix:/{}", "x".repeat(107))
                .parse::<Address>()
                .is_err()
        );
        assert!("unix:relative".parse::<Address>().is_err());
    }

    fn shown(text: &str) -> String {
        text.parse::<Address>().unwrap().to_string()
    }

    #[test]
    fn a_link_local_address_may_name_its_interface() {
        assert_eq!(shown("[fe80::1%eth0]:80"), "[fe80::1%eth0]:80");
        assert_eq!(shown("fe80::1%br-lan"), "[fe80::1%br-lan]:7079");
        let address: Address = "[fe80::1%eth0]".parse().unwrap();
        assert_eq!(
            (address.host(), address.host_without_zone()),
            ("fe80::1%eth0", "fe80::1")
        );
        for wrong in [
            "[2001:db8::1%eth0]",
            "[fe80::1%]",
            "fe80::1%a/b",
            "[fe80::1%x%y]",
            "10.0.0.1%eth0",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_form_is_understood() {
        assert_eq!(shown("node"), "node:7079");
        assert_eq!(shown(" Node.Example:80 "), "node.example:80");
        assert_eq!(shown("192.0.2.1:7080"), "192.0.2.1:7080");
        assert_eq!(shown("[::1]:7079"), "[::1]:7079");
        assert_eq!(shown("[2001:db8:0:0::1]"), "[2001:db8::1]:7079");
        assert_eq!(shown("::1"), "[::1]:7079");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            " ",
            ":80",
            "a b",
            "[::1",
            "[::1]x",
            "[node]:1",
            "http://node",
            "node/x",
            "2001:db8::1%eth0",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
        for port in ["a:", "a:0", "a:65536", "a:+1", "a:x", "[::1]:"] {
            assert!(
                matches!(port.parse::<Address>(), Err(BadAddress::Port(_))),
                "{port:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(host in "[a-zA-Z0-9][a-zA-Z0-9.-]{0,30}", port in 1u16..) {
            let address: Address = format!("{host}:{port}").parse().unwrap();
            prop_assert_eq!(address.as_str().parse::<Address>().unwrap(), address.clone());
            prop_assert_eq!(address.port(), port);
        }

        #[test]
        fn any_text_is_an_address_or_refused(text in ".{0,40}") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.as_str().parse::<Address>().unwrap(), address);
            }
        }

        #[test]
        fn literals_read_back(bits: u128, port in 1u16..) {
            let literal = Ipv6Addr::from(bits);
            let address: Address = format!("[{literal}]:{port}").parse().unwrap();
            prop_assert_eq!(address.host().parse::<Ipv6Addr>().unwrap(), literal);
        }
    }
}
