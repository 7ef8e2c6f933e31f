//! `host:port` as people write it.

use std::fmt;

/// A server's address: `name`, `name:port`, `192.0.2.1:7079`, `[::1]:7079`, `::1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: String,
    port: u16,
    shown: String,
}

impl Address {
    /// Name or literal, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, IPv6 in brackets.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.shown
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}
