//! Settings of the node's announcement.
//!
//! Whether the daemon listens where others can reach it is known later, because the service manager may pass its
//! sockets. Invariant: the announced name is one that a client can compare with the node's certificate.

use causeway_discovery::is_of_name;
use causeway_security::CaDigest;

use super::file::ConfigFile;
use super::flags::Flags;
use super::security::Security;
use super::settings::host_name;

/// Longest name in an announcement, in bytes: that of a DNS label.
const LONGEST_NAME: usize = 63;
/// Most interfaces that can be named.
const MOST_INTERFACES: usize = 64;

/// How the node announces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceSettings {
    /// The announced name: the first DNS name of the certificate, else the host name.
    pub name: String,
    /// Interfaces on which the node announces itself; empty: all.
    pub interfaces: Vec<String>,
    /// The CA of the node's certificate, if the daemon's files contain it.
    pub ca: Option<CaDigest>,
}

/// Settings of the announcement that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadAnnounce {
    /// The name cannot be announced.
    #[error(
        "[discovery] announce: the name {0:?} cannot be announced; expected letters, digits, `-`, `.` and `_`, at most \
         {LONGEST_NAME} bytes; put such a DNS name first in the node's certificate, or change the host name"
    )]
    Name(String),
    /// The names of interfaces are not those of interfaces.
    #[error(
        "[discovery] interfaces: list 1 to {MOST_INTERFACES} names of interfaces, for example [\"eth0\"], or leave the \
         key out"
    )]
    Interfaces,
}

/// Combines flags and file.
///
/// # Errors
/// [`BadAnnounce`]; only if the node announces itself.
pub(super) fn announce(
    flags: &Flags,
    file: &ConfigFile,
    security: &Security,
) -> Result<Option<AnnounceSettings>, BadAnnounce> {
    let table = &file.table.discovery;
    if !(flags.announce || table.announce.unwrap_or(false)) {
        return Ok(None);
    }
    let certificate = security.certificate.as_ref();
    let names = certificate.map(|own| own.host_names()).unwrap_or_default();
    let name = names.into_iter().next().unwrap_or_else(host_name);
    let name = name.to_ascii_lowercase();
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(is_of_name) {
        return Err(BadAnnounce::Name(name));
    }
    let interfaces = table.interfaces.clone();
    if interfaces
        .as_ref()
        .is_some_and(|of| of.is_empty() || of.len() > MOST_INTERFACES)
    {
        return Err(BadAnnounce::Interfaces);
    }
    let client_ca = flags.server.tls(&file.table.tls).client_ca;
    Ok(Some(AnnounceSettings {
        name,
        interfaces: interfaces.unwrap_or_default(),
        ca: certificate.and_then(|own| own.ca_digest(client_ca.as_deref())),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    fn read(line: &[&str], text: &str) -> Result<Option<AnnounceSettings>, BadAnnounce> {
        let flags = Flags::parse_from([&["causewayd"], line].concat());
        let file = ConfigFile::parse(Path::new("daemon.toml"), text.to_owned()).unwrap();
        announce(&flags, &file, &Security::default())
    }

    #[test]
    fn a_node_announces_itself_only_if_it_is_told_to() {
        assert_eq!(read(&[], "").unwrap(), None);
        assert_eq!(read(&[], "[discovery]\nannounce = false\n").unwrap(), None);
        let by_flag = read(&["--announce"], "").unwrap().unwrap();
        assert_eq!(by_flag.name, host_name().to_ascii_lowercase());
        let text = "[discovery]\nannounce = true\ninterfaces = [\"eth0\"]\n";
        assert_eq!(read(&[], text).unwrap().unwrap().interfaces, ["eth0"]);
        let none = "[discovery]\nannounce = true\ninterfaces = []\n";
        assert!(matches!(read(&[], none), Err(BadAnnounce::Interfaces)));
    }
}
