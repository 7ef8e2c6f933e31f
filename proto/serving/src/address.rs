//! Addresses to listen on.

use std::net::{IpAddr, SocketAddr};

/// The text is not an address to listen on. The second field is the default port.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "invalid listen address {0:?}; expected ADDR:PORT, e.g. 127.0.0.1:{1} or [::1]:{1} (port 0 selects a free one), or \
     for causewayd unix:/PATH of at most 107 bytes"
)]
pub struct BadAddress(pub String, pub u16);

/// Parses `ADDR:PORT` or `ADDR` (with the server's default port). Only IP addresses are accepted: a name
/// may have several, and the one in use would depend on the resolver.
///
/// # Errors
/// [`BadAddress`] for anything else.
pub fn parse_listen(text: &str, usual_port: u16) -> Result<SocketAddr, BadAddress> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    text.parse()
        .or_else(|_| {
            bare.unwrap_or(text)
                .parse::<IpAddr>()
                .map(|ip| SocketAddr::new(ip, usual_port))
        })
        .map_err(|_| BadAddress(text.to_owned(), usual_port))
}

/// Whether only this machine can reach the address.
#[must_use]
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// What to do if a server cannot listen on an address; begins with a semicolon unless it is empty.
#[must_use]
pub fn listening_cure(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "; end the program that listens there (ss -tlnp shows it), or choose another port with --listen"
        }
        std::io::ErrorKind::AddrNotAvailable => {
            "; this machine has no such address: choose one that `ip address` shows, or 0.0.0.0 for all"
        }
        std::io::ErrorKind::PermissionDenied => {
            "; ports below 1024 are for root: choose another one with --listen"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_a_port() {
        for (text, expected) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1", "127.0.0.1:7079"),
            ("[::1]:9", "[::1]:9"),
            ("[::1]", "[::1]:7079"),
            ("::1", "[::1]:7079"),
        ] {
            assert_eq!(
                parse_listen(text, 7079),
                Ok(expected.parse().unwrap()),
                "{text}"
            );
        }
        for text in ["", "localhost:7079", "127.0.0.1:70790", "1.2.3:1", ":7079"] {
            assert!(parse_listen(text, 7079).is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_is_known_in_every_dress() {
        for text in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_loopback(&text.parse().unwrap()), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert!(!is_loopback(&text.parse().unwrap()), "{text}");
        }
    }
}
