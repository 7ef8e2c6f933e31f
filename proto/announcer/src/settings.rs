//! Settings of an announcement.
//!
//! Whether the server listens where others can reach it is known later, because the service manager may pass its
//! sockets. Invariant: the announced name is one that a client can compare with the server's certificate.

use causeway_discovery::{CaDigest, is_of_name};

/// Longest name in an announcement, in bytes: that of a DNS label.
const LONGEST_NAME: usize = 63;
/// Most interfaces that can be named.
const MOST_INTERFACES: usize = 64;

/// How a server announces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceSettings {
    /// The announced name: the first DNS name of the certificate, else the host name.
    pub name: String,
    /// Interfaces on which the server announces itself; empty: all.
    pub interfaces: Vec<String>,
    /// The CA of the server's certificate, if the server's files contain it.
    pub ca: Option<CaDigest>,
}

/// Settings of the announcement that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadAnnounce {
    /// The name cannot be announced.
    #[error(
        "[discovery] announce: the name {0:?} cannot be announced; expected letters, digits, `-`, `.` and `_`, at most \
         {LONGEST_NAME} bytes; put such a DNS name first in the certificate, or change the host name"
    )]
    Name(String),
    /// The names of interfaces are not those of interfaces.
    #[error(
        "[discovery] interfaces: list 1 to {MOST_INTERFACES} names of interfaces, for example [\"eth0\"], or leave the \
         key out"
    )]
    Interfaces,
}

impl AnnounceSettings {
    /// Checks the settings of a server whose certificate has these DNS names.
    ///
    /// # Errors
    /// [`BadAnnounce`].
    pub fn new(
        names: Vec<String>,
        interfaces: Option<Vec<String>>,
        ca: Option<CaDigest>,
    ) -> Result<AnnounceSettings, BadAnnounce> {
        let name = names.into_iter().next().unwrap_or_else(host_name);
        let name = name.to_ascii_lowercase();
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(is_of_name) {
            return Err(BadAnnounce::Name(name));
        }
        if interfaces
            .as_ref()
            .is_some_and(|of| of.is_empty() || of.len() > MOST_INTERFACES)
        {
            return Err(BadAnnounce::Interfaces);
        }
        Ok(AnnounceSettings {
            name,
            interfaces: interfaces.unwrap_or_default(),
            ca,
        })
    }
}

/// Returns the name of this host.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_certificates_first_and_can_be_announced() {
        let of = |name: &str| AnnounceSettings::new(vec![name.to_owned()], None, None);
        assert_eq!(of("MGR1.lab").unwrap().name, "mgr1.lab");
        assert!(matches!(of("a b"), Err(BadAnnounce::Name(_))));
        assert!(matches!(of(&"a".repeat(64)), Err(BadAnnounce::Name(_))));
        let none = AnnounceSettings::new(Vec::new(), Some(Vec::new()), None);
        assert!(matches!(none, Err(BadAnnounce::Interfaces)));
        let own = AnnounceSettings::new(Vec::new(), None, None).unwrap();
        assert_eq!(own.name, host_name().to_ascii_lowercase());
    }
}
