//! Settings of the node's announcement; `causeway_announcer` checks them.
//!
//! Invariant: without the flag and the key there are none.

use causeway_announcer::{AnnounceSettings, BadAnnounce};

use super::file::ConfigFile;
use super::flags::Flags;
use super::security::Security;

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
    let client_ca = flags.server.tls(&file.table.tls).client_ca;
    let ca = certificate.and_then(|own| own.ca_digest(client_ca.as_deref()));
    AnnounceSettings::new(names, table.interfaces.clone(), ca).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_announcer::host_name;
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
