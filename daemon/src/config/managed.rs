//! Settings of managed mode: where the device manager is, and how devices are shared.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use causeway_proto::MANAGER_PORT;
use causeway_security::{ClientTls, Token};
use toml::Spanned;

use super::file::{ConfigFile, Share};
use super::flags::Flags;
use super::settings::BadSettings;

/// Shares of one device.
const MOST_SHARES: u32 = 1024;

/// The device manager, and how it is reached.
#[derive(Clone, Debug)]
pub struct ManagerSettings {
    /// Its addresses, tried in turn; not empty.
    pub addresses: Vec<ManagerAddress>,
    /// With a CA, the manager has to show a certificate of it.
    pub tls: Option<ClientTls>,
    /// What this node says to be known.
    pub token: Option<Token>,
    /// Where the node's identity is kept; `None` where there is no place.
    pub folder: Option<PathBuf>,
}

/// Where the manager is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerAddress {
    /// A name or a number, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A device is offered as several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareSettings {
    /// Which.
    pub device: SharedWhich,
    /// As so many; at least 1.
    pub count: u32,
    /// Bytes of memory of each; 0: the device's, divided.
    pub memory: u64,
}

/// Names devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedWhich {
    /// The one with this place in the inventory.
    Index {
        /// The platform's index.
        platform: u32,
        /// The device's index in it.
        device: u32,
    },
    /// All with this `CL_DEVICE_NAME`.
    Name(String),
}

/// A manager that cannot be used so.
#[derive(Debug, thiserror::Error)]
pub enum BadManager {
    /// Not an address.
    #[error("--manager: {0:?} is no address of a device manager: write HOST or HOST:PORT")]
    Address(String),
    /// Anybody between here and there could give out this node.
    #[error(
        "the device manager {0} is on another machine, and is not asked for a certificate: name its CA ([manager] ca, \
         --manager-ca), or say --insecure if you trust everyone on the network between"
    )]
    InTheClear(ManagerAddress),
    /// A certificate without a key, or the other way round, or without a CA.
    #[error("[manager] certificate and key go together, and with ca")]
    Half,
    /// A file.
    #[error(transparent)]
    File(#[from] causeway_security::BadFile),
}

impl ManagerAddress {
    /// Reads `HOST` or `HOST:PORT`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<ManagerAddress> {
        let bare = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Some(ManagerAddress {
                host: ip.to_string(),
                port: MANAGER_PORT,
            });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)?),
            None => (text, MANAGER_PORT),
        };
        let in_brackets = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = match in_brackets {
            Some(number) => number.parse::<std::net::Ipv6Addr>().ok()?.to_string(),
            None => host.to_owned(),
        };
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_name = !host.is_empty() && host.len() <= 253 && host.chars().all(letter);
        (is_name || in_brackets.is_some()).then_some(ManagerAddress { host, port })
    }

    /// Whether it is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

impl fmt::Display for ManagerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for SharedWhich {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SharedWhich::Index { platform, device } => write!(f, "{platform}.{device}"),
            SharedWhich::Name(name) => f.write_str(name),
        }
    }
}

/// The manager that flags and file name, if any; each flag wins over its key.
pub(super) fn manager(
    flags: &Flags,
    file: &ConfigFile,
    insecure: bool,
) -> Result<Option<ManagerSettings>, BadSettings> {
    let table = &file.table.manager;
    let addresses = addresses(flags, file)?;
    if addresses.is_empty() {
        return Ok(None);
    }
    let or = |flag: &Option<PathBuf>, key: &Option<PathBuf>| flag.clone().or_else(|| key.clone());
    let ca = or(&flags.manager_ca, &table.ca);
    let token = or(&flags.manager_token_file, &table.token_file);
    let mut certificate = or(&flags.manager_certificate, &table.certificate);
    let mut key = or(&flags.manager_key, &table.key);
    if ca.is_some() && token.is_none() && certificate.is_none() && key.is_none() {
        // Who this node is to its clients, it is to its manager.
        certificate = or(&flags.tls_certificate, &file.table.tls.certificate);
        key = or(&flags.tls_key, &file.table.tls.key);
    }
    let load = |ca: &PathBuf, identity| ClientTls::load(ca, identity).map_err(BadManager::File);
    let tls = match (&ca, &certificate, &key) {
        (None, None, None) => None,
        (Some(ca), None, None) => Some(load(ca, None)?),
        (Some(ca), Some(certificate), Some(key)) => Some(load(ca, Some((certificate, key)))?),
        _ => return Err(BadManager::Half.into()),
    };
    let far = addresses.iter().find(|address| !address.is_loopback());
    if let (Some(far), None, false) = (far, &tls, insecure) {
        return Err(BadManager::InTheClear(far.clone()).into());
    }
    let token = token.map(|path| Token::from_file(&path).map_err(BadManager::File));
    Ok(Some(ManagerSettings {
        addresses,
        tls,
        token: token.transpose()?,
        folder: state_folder(&|name| std::env::var_os(name)),
    }))
}

fn addresses(flags: &Flags, file: &ConfigFile) -> Result<Vec<ManagerAddress>, BadSettings> {
    if !flags.manager.is_empty() {
        let parse = |text: &String| {
            ManagerAddress::parse(text).ok_or_else(|| BadManager::Address(text.clone()).into())
        };
        return flags.manager.iter().map(parse).collect();
    }
    let listed = file.table.manager.address.iter().flatten();
    let parse = |text: &Spanned<String>| {
        let problem = format!(
            "{:?} is no address of a device manager: write HOST or HOST:PORT",
            text.get_ref()
        );
        ManagerAddress::parse(text.get_ref()).ok_or_else(|| file.wrong(text, &problem).into())
    };
    listed.map(parse).collect()
}

/// A folder among those that systemd or the user has for what is to stay.
fn state_folder(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
    let given = |name: &str| variable(name).and_then(|path| absolute(path.into()));
    // systemd's may be a list, and is the daemon's alone.
    let own = variable("STATE_DIRECTORY")
        .and_then(|list| std::env::split_paths(&list).next())
        .and_then(absolute);
    own.or_else(|| given("XDG_STATE_HOME").map(|folder| folder.join("causeway")))
        .or_else(|| given("HOME").map(|home| home.join(".local/state/causeway")))
}

/// How devices are shared.
pub(super) fn shares(file: &ConfigFile) -> Result<Vec<ShareSettings>, BadSettings> {
    file.table
        .shares
        .iter()
        .map(|share| share_of(file, share))
        .collect()
}

fn share_of(file: &ConfigFile, share: &Share) -> Result<ShareSettings, BadSettings> {
    let count = *share.count.get_ref();
    if !(1..=MOST_SHARES).contains(&count) {
        let problem = format!("{count} is out of range: 1 to {MOST_SHARES}");
        return Err(file.wrong(&share.count, &problem).into());
    }
    let name = share.device.get_ref().trim();
    if name.is_empty() {
        let problem = "write the device's name, or PLATFORM.DEVICE by their indices, such as 0.1";
        return Err(file.wrong(&share.device, &problem).into());
    }
    let index = name.split_once('.').and_then(|(platform, device)| {
        Some(SharedWhich::Index {
            platform: platform.parse().ok()?,
            device: device.parse().ok()?,
        })
    });
    Ok(ShareSettings {
        device: index.unwrap_or_else(|| SharedWhich::Name(name.to_owned())),
        count,
        memory: share.memory.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn file(text: &str) -> ConfigFile {
        ConfigFile::parse(Path::new("daemon.toml"), text.to_owned()).unwrap()
    }

    fn read(flags: &Flags, text: &str) -> Result<Option<ManagerSettings>, String> {
        manager(flags, &file(text), false).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_are_names_or_numbers() {
        let shown = |text: &str| ManagerAddress::parse(text).map(|of| of.to_string());
        for (text, expected) in [
            ("manager", "manager:7078"),
            ("manager.cluster:9", "manager.cluster:9"),
            ("10.0.0.1", "10.0.0.1:7078"),
            ("::1", "[::1]:7078"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", ":9", "a b", "host:0", "host:x", "[::1", "[x]:9"] {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn a_manager_elsewhere_must_show_a_certificate() {
        assert!(read(&Flags::default(), "").unwrap().is_none());
        let near = read(&Flags::default(), "[manager]\naddress = [\"localhost\"]\n");
        assert_eq!(near.unwrap().unwrap().addresses[0].port, MANAGER_PORT);
        let flags = Flags {
            manager: vec!["10.0.0.1".to_owned()],
            ..Flags::default()
        };
        let error = read(&flags, "").unwrap_err();
        assert!(
            error.contains("10.0.0.1:7078") && error.contains("--insecure"),
            "{error}"
        );
        assert!(manager(&flags, &file(""), true).unwrap().is_some());
        let half = read(&flags, "[manager]\ncertificate = \"/x\"\n").unwrap_err();
        assert!(half.contains("go together"), "{half}");
        let wrong = read(&Flags::default(), "[manager]\naddress = [\"a b\"]\n").unwrap_err();
        assert!(wrong.starts_with("daemon.toml:2: "), "{wrong}");
    }

    #[test]
    fn a_node_shows_its_manager_what_it_shows_its_clients() {
        let folder = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::now();
        let valid = now..now + std::time::Duration::from_secs(60);
        let (_, issued) = causeway_security::Authority::generate("CA", valid).unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, &issued.certificate).unwrap();
        let flags = Flags {
            manager: vec!["manager".to_owned()],
            manager_ca: Some(ca),
            ..Flags::default()
        };
        let own = "[tls]\ncertificate = \"/no/node.pem\"\nkey = \"/no/node.key\"\n";
        assert!(read(&flags, "").unwrap().is_some());
        let error = read(&flags, own).unwrap_err();
        assert!(error.contains("/no/node."), "{error}");
        let token = format!("{own}[manager]\ntoken_file = \"/no/token\"\n");
        let error = read(&flags, &token).unwrap_err();
        assert!(error.contains("/no/token"), "{error}");
    }

    #[test]
    fn shares_name_a_device_by_name_or_place() {
        let read = |text: &str| shares(&file(text)).map_err(|error| error.to_string());
        let text = "[[shares]]\ndevice = \"0.1\"\ncount = 4\nmemory = 9\n[[shares]]\ndevice = \"GPU 1.5\"\ncount = 2\n";
        let both = read(text).unwrap();
        assert_eq!(
            (both[0].device.to_string(), both[0].memory),
            ("0.1".to_owned(), 9)
        );
        assert!(matches!(
            both[0].device,
            SharedWhich::Index {
                platform: 0,
                device: 1
            }
        ));
        assert_eq!(both[1].device, SharedWhich::Name("GPU 1.5".to_owned()));
        let error = read("[[shares]]\ndevice = \"x\"\ncount = 0\n").unwrap_err();
        assert!(
            error.starts_with("daemon.toml:3: 0 is out of range"),
            "{error}"
        );
    }

    #[test]
    fn the_identity_lies_where_state_lies() {
        let among = |name: &'static str, value: &'static str| {
            state_folder(&move |asked| (asked == name).then(|| value.into()))
        };
        assert_eq!(
            among("STATE_DIRECTORY", "/var/lib/causeway:/x"),
            Some("/var/lib/causeway".into())
        );
        assert_eq!(
            among("HOME", "/home/me"),
            Some("/home/me/.local/state/causeway".into())
        );
        assert_eq!(among("HOME", "here"), None);
    }
}
