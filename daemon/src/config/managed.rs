//! Settings of managed mode: the address of the device manager, and how devices are shared.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use causeway_discovery::is_of_name;
use causeway_managers::sought::DISCOVER;
use causeway_proto::MANAGER_PORT;
use causeway_security::{CaDigest, ClientTls, Token, ca_digests};
use causeway_serving::BadFile;

use super::file::{ConfigFile, Share, Times};
use super::flags::Flags;
use super::settings::BadSettings;
use super::sharing::Together;
use super::which::WhichDevice;

/// The device manager, and how to connect to it.
#[derive(Clone, Debug)]
pub struct ManagerSettings {
    /// Addresses of all managers that share a store, of which one leads. Empty if the manager is `sought`.
    pub addresses: Vec<ManagerAddress>,
    /// The manager is found by its name.
    pub sought: Option<SoughtManager>,
    /// TLS settings. If set, the manager must present a certificate of the configured CA.
    pub tls: Option<ClientTls>,
    /// Token that authenticates this node.
    pub token: Option<Token>,
}

/// A device manager whose address is found: `address = "discover"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoughtManager {
    /// The announced name, which its certificate must have.
    pub name: String,
    /// The configured CA: its claims are kept first.
    pub cas: Vec<CaDigest>,
}

/// Address of a device manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerAddress {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The name that the certificate must have, in place of the host.
    pub name: Option<String>,
}

/// A device that is offered in several shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareSettings {
    /// The device.
    pub device: WhichDevice,
    /// Number of shares that the device is offered as; at least 1.
    pub count: u32,
    /// Memory of each share in bytes; 0: the device's memory is divided equally.
    pub memory: u64,
    /// Part of the device's time for each share, in percent; empty: shares compete freely.
    pub times: Vec<u32>,
    /// Whether shares get no more than that even if nobody else wants the device.
    pub strict: bool,
    /// Whose sessions on these shares may have one host process; `None`: as for the node's other devices.
    pub together: Option<Together>,
}

/// Settings of the device manager that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadManager {
    /// The text is not an address.
    #[error("--manager: invalid address {0:?}; expected HOST or HOST:PORT")]
    Address(String),
    /// The manager is remote and the connection has no TLS, so anyone on the path could grant access to
    /// this node.
    #[error(
        "the device manager {0} is on another machine, and no CA is configured for its certificate; set [manager] ca \
         (--manager-ca), or use --insecure if you trust everyone on the network"
    )]
    InTheClear(ManagerAddress),
    /// The manager is found by its name, and nothing vouches for it.
    #[error(
        "a device manager that is found by its name needs the CA of its certificate; set [manager] ca (--manager-ca)"
    )]
    SoughtWithoutCa,
    /// The name of a manager that is found is missing or invalid.
    #[error(
        "[manager] name: expected the announced name of the device manager beside address = \"discover\", for example \
         name = \"mgr1\" (--manager discover:mgr1), and with no other address"
    )]
    SoughtName,
    /// A certificate without a key, a key without a certificate, or either without a CA.
    #[error("[manager] certificate and key go together and also need ca")]
    Half,
    /// A file cannot be read or is invalid.
    #[error(transparent)]
    File(#[from] causeway_security::BadFile),
}

impl ManagerAddress {
    /// Parses `HOST` or `HOST:PORT`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<ManagerAddress> {
        let bare = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Some(ManagerAddress {
                host: ip.to_string(),
                port: MANAGER_PORT,
                name: None,
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
            Some(number) => bracketed(number)?,
            None => host.to_owned(),
        };
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_name = !host.is_empty() && host.len() <= 253 && host.chars().all(letter);
        let name = None;
        (is_name || in_brackets.is_some()).then_some(ManagerAddress { host, port, name })
    }

    /// The name that the certificate must have.
    #[must_use]
    pub fn certified(&self) -> &str {
        let host = self.host.split('%').next().unwrap_or_default();
        self.name.as_deref().unwrap_or(host)
    }

    /// Whether this is the same host and port.
    #[must_use]
    pub fn is_at(&self, other: &ManagerAddress) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// Returns whether the manager is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

/// Reads an IPv6 address without its brackets. A link-local one may have its interface: `fe80::1%eth0`.
fn bracketed(text: &str) -> Option<String> {
    let Some((number, interface)) = text.split_once('%') else {
        return Some(text.parse::<Ipv6Addr>().ok()?.to_string());
    };
    let number: Ipv6Addr = number.parse().ok()?;
    let is_interface = (1..16).contains(&interface.len())
        && interface
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/%]".contains(&byte));
    (number.is_unicast_link_local() && is_interface).then(|| format!("{number}%{interface}"))
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

/// Returns the settings of the manager, if one is configured; flags take precedence over the file.
pub(super) fn manager(
    flags: &Flags,
    file: &ConfigFile,
    insecure: bool,
) -> Result<Option<ManagerSettings>, BadSettings> {
    let table = &file.table.manager;
    let named = named(flags, file)?;
    // Flags override the file's address, and the name that belongs to it.
    if flags.manager.is_empty() && named.is_none() && table.name.is_some() {
        return Err(BadManager::SoughtName.into());
    }
    let addresses = match &named {
        Some(_) => Vec::new(),
        None => addresses(flags, file)?,
    };
    if addresses.is_empty() && named.is_none() {
        return Ok(None);
    }
    let or = |flag: &Option<PathBuf>, key: &Option<PathBuf>| flag.clone().or_else(|| key.clone());
    let ca = or(&flags.manager_ca, &table.ca);
    let token = or(&flags.manager_token_file, &table.token_file);
    let mut certificate = or(&flags.manager_certificate, &table.certificate);
    let mut key = or(&flags.manager_key, &table.key);
    if ca.is_some() && token.is_none() && certificate.is_none() && key.is_none() {
        // The node uses its server certificate for the manager as well.
        let own = flags.server.tls(&file.table.tls);
        (certificate, key) = (own.certificate, own.key);
    }
    // Nobody has configured the address of a manager that is found, so a user's certificate must not do.
    let load: fn(&Path, Option<(&Path, &Path)>) -> _ = match &named {
        Some(_) => ClientTls::for_found,
        None => ClientTls::load,
    };
    let tls = match (&ca, &certificate, &key) {
        (None, None, None) => None,
        (Some(ca), None, None) => Some(load(ca, None)),
        (Some(ca), Some(certificate), Some(key)) => Some(load(ca, Some((certificate, key)))),
        _ => return Err(BadManager::Half.into()),
    };
    let tls = tls.transpose().map_err(BadManager::File)?;
    let far = addresses.iter().find(|address| !address.is_loopback());
    if let (Some(far), None, false) = (far, &tls, insecure) {
        return Err(BadManager::InTheClear(far.clone()).into());
    }
    let sought = match (named, &ca) {
        (None, _) => None,
        (Some(_), None) => return Err(BadManager::SoughtWithoutCa.into()),
        (Some(name), Some(ca)) => Some(SoughtManager {
            name,
            cas: ca_digests(ca).map_err(BadManager::File)?,
        }),
    };
    let token = token.map(|path| Token::from_file(&path).map_err(BadManager::File));
    Ok(Some(ManagerSettings {
        addresses,
        sought,
        tls,
        token: token.transpose()?,
    }))
}

/// The name of a manager that is to be found, if the settings say so.
fn named(flags: &Flags, file: &ConfigFile) -> Result<Option<String>, BadManager> {
    let table = &file.table.manager;
    let listed = match (&flags.manager[..], &table.address) {
        ([], Some(listed)) => listed.get_ref().all(),
        (given, _) => given,
    };
    let name_of = |text: &String| match text.strip_prefix(DISCOVER) {
        // The file has the name in a key of its own.
        Some("") => Some(table.name.clone().unwrap_or_default()),
        // Of `discover:7078`, the first part is the name of a host.
        Some(rest) => {
            let name = rest.strip_prefix(':')?;
            name.parse::<u16>().is_err().then(|| name.to_owned())
        }
        None => None,
    };
    let mut names = listed.iter().map(name_of);
    match (names.next(), names.next()) {
        (Some(Some(name)), None) => {
            let name = name.to_ascii_lowercase();
            let is_name = (1..64).contains(&name.len()) && name.bytes().all(is_of_name);
            is_name.then_some(Some(name)).ok_or(BadManager::SoughtName)
        }
        _ if listed.iter().any(|text| name_of(text).is_some()) => Err(BadManager::SoughtName),
        _ => Ok(None),
    }
}

fn addresses(flags: &Flags, file: &ConfigFile) -> Result<Vec<ManagerAddress>, BadSettings> {
    if !flags.manager.is_empty() {
        let parse = |text: &String| {
            ManagerAddress::parse(text).ok_or_else(|| BadManager::Address(text.clone()).into())
        };
        return flags.manager.iter().map(parse).collect();
    }
    let Some(listed) = &file.table.manager.address else {
        return Ok(Vec::new());
    };
    let parse = |text: &String| {
        let problem =
            format!("invalid address {text:?} of a device manager; expected HOST or HOST:PORT");
        ManagerAddress::parse(text).ok_or_else(|| file.wrong(listed, &problem).into())
    };
    listed.get_ref().all().iter().map(parse).collect()
}

/// Returns the folder for persistent state of systemd or of the user.
pub(super) fn state_folder(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
    let given = |name: &str| variable(name).and_then(|path| absolute(path.into()));
    // systemd's variable may contain a list. Its directories belong to the daemon alone.
    let own = variable("STATE_DIRECTORY")
        .and_then(|list| std::env::split_paths(&list).next())
        .and_then(absolute);
    own.or_else(|| given("XDG_STATE_HOME").map(|folder| folder.join("causeway")))
        .or_else(|| given("HOME").map(|home| home.join(".local/state/causeway")))
}

/// Returns the settings for shared devices.
pub(super) fn shares(file: &ConfigFile) -> Result<Vec<ShareSettings>, BadFile> {
    file.table
        .shares
        .iter()
        .map(|share| share_of(file, share))
        .collect()
}

fn share_of(file: &ConfigFile, share: &Share) -> Result<ShareSettings, BadFile> {
    let Some(device) = WhichDevice::parse(share.device.get_ref()) else {
        let problem =
            "the device is empty; expected its name, or PLATFORM.DEVICE by index, e.g. 0.1";
        return Err(file.wrong(&share.device, &problem));
    };
    Ok(ShareSettings {
        device,
        count: share.count.get(),
        memory: share.memory.unwrap_or(0),
        times: times_of(file, share)?,
        strict: share.strict,
        together: share.together.clone(),
    })
}

/// Returns the parts of the device's time of an entry's shares.
fn times_of(file: &ConfigFile, share: &Share) -> Result<Vec<u32>, BadFile> {
    let count = share.count.get();
    let Some(time) = &share.time else {
        if share.strict {
            let problem = "strict needs a time; add e.g. `time = 25`, or remove strict";
            return Err(file.wrong(&share.device, &problem));
        }
        return Ok(Vec::new());
    };
    let times = match time.get_ref() {
        Times::Each(each) => vec![*each; count as usize],
        Times::List(list) if list.len() == count as usize => list.clone(),
        Times::List(list) => {
            let problem = format!(
                "time lists {} parts for {count} shares; expected one number, or one for each share",
                list.len()
            );
            return Err(file.wrong(time, &problem));
        }
    };
    if let Some(wrong) = times.iter().find(|of| !(1..=100).contains(*of)) {
        let problem = format!("invalid time {wrong}; expected a percentage from 1 to 100");
        return Err(file.wrong(time, &problem));
    }
    let sum: u64 = times.iter().map(|of| u64::from(*of)).sum();
    if share.strict && sum > 100 {
        let problem = format!(
            "the strict times of this device's shares add up to {sum} percent; lower time or count so that they add \
             up to 100 at most"
        );
        return Err(file.wrong(time, &problem));
    }
    Ok(times)
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
            ("[fe80::1%eth0]:9", "[fe80::1%eth0]:9"),
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
    fn a_manager_that_is_found_has_a_name_and_a_ca() {
        let file = |more: &str| format!("[manager]\naddress = \"discover\"\n{more}");
        let none = read(&Flags::default(), &file("")).unwrap_err();
        assert!(none.contains("[manager] name"), "{none}");
        let without = read(&Flags::default(), &file("name = \"mgr1\"\n")).unwrap_err();
        assert!(without.contains("--manager-ca"), "{without}");
        let beside = "[manager]\naddress = [\"m\"]\nname = \"mgr1\"\n";
        assert!(read(&Flags::default(), beside).is_err());
        let by_flag = |of: &[&str]| Flags {
            manager: of.iter().map(|of| (*of).to_owned()).collect(),
            ..Flags::default()
        };
        let flag = read(&by_flag(&["discover:MGR1"]), "").unwrap_err();
        assert!(flag.contains("--manager-ca"), "{flag}");
        assert!(read(&by_flag(&["discover:mgr1", "10.0.0.1"]), "").is_err());
        assert!(read(&by_flag(&["discover"]), "").is_err());
        let folder = tempfile::tempdir().unwrap();
        let day = std::time::Duration::from_secs(86_400);
        let now = std::time::SystemTime::now();
        let (_, ca) = causeway_security::Authority::generate("test", now - day..now + day).unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, ca.certificate).unwrap();
        let text = file(&format!("name = \"MGR1\"\nca = {path:?}\n"));
        let settings = read(&Flags::default(), &text).unwrap().unwrap();
        let sought = settings.sought.unwrap();
        assert_eq!((sought.name.as_str(), sought.cas.len()), ("mgr1", 1));
        assert!(settings.addresses.is_empty() && settings.tls.is_some());
        let by_address = by_flag(&["10.0.0.1"]);
        let overridden = read(&by_address, &text).unwrap().unwrap();
        assert!(overridden.sought.is_none(), "the flag overrides the file");
        // It is a host with a port.
        assert!(
            read(&by_flag(&["discover:7078"]), "")
                .unwrap_err()
                .contains("discover:7078")
        );
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
        let text = "[[shares]]\ndevice = \"0.1\"\ncount = 4\nmemory = 9\n[[shares]]\ndevice = \"GPU 1.5\"\ncount = 2\n\
                    together = \"all\"\n";
        let both = read(text).unwrap();
        let together: Vec<_> = both.iter().map(|share| share.together.clone()).collect();
        assert_eq!(together, [None, Some(Together::All)]);
        assert_eq!(
            (both[0].device.to_string(), both[0].memory),
            ("0.1".to_owned(), 9)
        );
        assert!(matches!(
            both[0].device,
            WhichDevice::Index {
                platform: 0,
                device: 1
            }
        ));
        assert_eq!(both[1].device, WhichDevice::Name("GPU 1.5".to_owned()));
        let error = read("[[shares]]\ndevice = \" \"\ncount = 1\n").unwrap_err();
        assert!(
            error.starts_with("daemon.toml:2: the device is empty"),
            "{error}"
        );
        for (settings, expected) in [
            ("time = [25, 75]", Ok(vec![25, 75])),
            ("time = 60", Ok(vec![60, 60])),
            ("time = 50\nstrict = true", Ok(vec![50, 50])),
            (
                "time = [1]",
                Err("daemon.toml:4: time lists 1 parts for 2 shares"),
            ),
            ("time = 101", Err("daemon.toml:4: invalid time 101")),
            ("time = [0, 1]", Err("daemon.toml:4: invalid time 0")),
            ("strict = true", Err("daemon.toml:2: strict needs a time")),
            (
                "time = 51\nstrict = true",
                Err(
                    "daemon.toml:4: the strict times of this device's shares add up to 102 percent",
                ),
            ),
        ] {
            let found = read(&format!(
                "[[shares]]\ndevice = \"x\"\ncount = 2\n{settings}\n"
            ));
            match (found.map(|shares| shares[0].times.clone()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{found}"),
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        }
        let text = "[[shares]]\ndevice = \"x\"\ncount = 0\n";
        let error = ConfigFile::parse(Path::new("daemon.toml"), text.to_owned()).unwrap_err();
        let expected =
            "daemon.toml:3: 0 is out of range; expected a number from 1 to 1024 in `shares.count`";
        assert_eq!(error.to_string(), expected);
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
