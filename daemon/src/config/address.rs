//! Addresses that are advertised to others.

use std::net::{IpAddr, SocketAddr};

/// An address at which other nodes are told to reach this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    host: String,
    port: Option<u16>,
}

impl Advertised {
    /// Returns `HOST:PORT`. Uses `port` if the settings give no port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> String {
        format!("{}:{}", self.host, self.port.unwrap_or(port))
    }
}

/// The text is not an address that other nodes can use.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "invalid advertised address {0:?}; expected HOST or HOST:PORT, e.g. node1.cluster or 10.0.0.1:7079"
)]
pub struct BadAdvertised(pub String);

/// Parses `HOST` or `HOST:PORT`. The host is a name or an IP address other than a wildcard.
///
/// # Errors
/// [`BadAdvertised`] for anything else.
pub fn parse_advertised(text: &str) -> Result<Advertised, BadAdvertised> {
    let bad = || BadAdvertised(text.to_owned());
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
        let advertised = advertised(ip, None);
        return advertised.ok_or_else(bad);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        let advertised = advertised(address.ip(), Some(address.port()));
        return advertised.ok_or_else(bad);
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port.parse().map_err(|_| bad())?)),
        None => (text, None),
    };
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if host.is_empty() || host.len() > 253 || !host.chars().all(letter) || port == Some(0) {
        return Err(bad());
    }
    Ok(Advertised {
        host: host.to_owned(),
        port,
    })
}

fn advertised(ip: IpAddr, port: Option<u16>) -> Option<Advertised> {
    let host = match ip {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    (!ip.is_unspecified() && port != Some(0)).then_some(Advertised { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_be_told() {
        for (text, expected) in [
            ("node1", "node1:7"),
            ("node1.cluster:80", "node1.cluster:80"),
            ("10.0.0.1", "10.0.0.1:7"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("2001:db8::1", "[2001:db8::1]:7"),
            ("[2001:db8::1]", "[2001:db8::1]:7"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ] {
            let advertised = parse_advertised(text).map(|address| address.with_port(7));
            assert_eq!(advertised, Ok(expected.to_owned()), "{text}");
        }
        for text in [
            "", ":80", "node1:", "node1:0", "node1:x", "0.0.0.0", "[::]:80", "a b", "a:1:2",
        ] {
            assert!(parse_advertised(text).is_err(), "{text}");
        }
    }
}
