//! Discovery: which of the nodes that announce themselves are used, and how.
//!
//! ```toml
//! discover = true                 # look for nodes on this host's networks; CAUSEWAY_DISCOVER overrides it
//! [discovery]
//! names = ["gpu*.lab"]            # use these only; and show a token to them
//! insecure = false                # true: without a CA, also use nodes without TLS
//! routed = false                  # true: also use addresses behind routers, which an announcement may name
//! domains = ["lab.example.org"]   # also ask DNS for the nodes of these domains; they may be behind routers
//! ```
//! An announcement says where to dial, and nothing else. A found node is used if the CA of `[tls]` has signed its
//! certificate for the announced name, and the certificate is one for servers. A token could be used elsewhere by a node
//! that sees it, so it is shown to nodes in `names` only.
//!
//! Pure. Invariant: with a CA, the settings of a found node never allow an unencrypted connection.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::str::FromStr;

use causeway_discovery::{Found, Interfaces, MOST_DOMAINS, Role, is_of_name};

use super::remembered::{NodeMemory, RememberedNode};
use super::{Address, MOST_ADDRESSES, ServerSettings, Settings, TlsSettings};

/// Which found nodes are used, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoverySettings {
    /// The names of nodes that are used; empty: all.
    pub names: Vec<NamePattern>,
    /// Whether nodes without TLS are used, if no CA is configured.
    pub insecure: bool,
    /// Whether addresses behind routers are dialled too, and answers from there are heard.
    pub routed: bool,
    /// Domains that DNS is asked for.
    pub domains: Vec<String>,
    /// Whether some part could not be read. If so, no found node is used.
    pub is_broken: bool,
    /// Where nodes that were used are remembered; `None` without a folder for the user's state.
    pub memory: Option<NodeMemory>,
    /// The settings of a found node, and of one that the program connects, except its name and its addresses.
    pub like: ServerSettings,
}

impl Default for DiscoverySettings {
    fn default() -> DiscoverySettings {
        DiscoverySettings {
            names: Vec::new(),
            insecure: false,
            routed: false,
            domains: Vec::new(),
            is_broken: false,
            memory: None,
            like: ServerSettings::at(Address::unknown()),
        }
    }
}

/// A name in which each `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(String);

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<NamePattern, String> {
        let known = |byte: u8| is_of_name(byte) || byte == b'*';
        if text.is_empty() || text.len() > 253 || !text.bytes().all(known) {
            return Err(format!(
                "invalid name `{text}` in `names`; expected e.g. `gpu*.lab`"
            ));
        }
        Ok(NamePattern(text.to_ascii_lowercase()))
    }
}

impl NamePattern {
    /// Whether a name, in small letters, is one of these.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else {
            return rest.is_empty();
        };
        for part in parts {
            // The first place leaves the most for the other parts.
            let Some(at) = rest.find(part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

/// Checks the names of domains.
pub(super) fn check_domains(domains: &[String]) -> Result<(), String> {
    let is_domain = |name: &String| {
        let is_label = |label: &str| (1..64).contains(&label.len());
        name.len() < 240 && name.bytes().all(is_of_name) && name.split('.').all(is_label)
    };
    if let Some(wrong) = domains.iter().find(|name| !is_domain(name)) {
        return Err(format!(
            "invalid domain `{wrong}` in `domains`; expected e.g. `lab.example.org`"
        ));
    }
    match domains.len() > MOST_DOMAINS {
        true => Err(format!("`domains` has more than {MOST_DOMAINS} names")),
        false => Ok(()),
    }
}

/// Why a found node is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotUsed {
    /// Some part of the settings is broken.
    #[error("[discovery] or [tls] in servers.toml is invalid; correct the error reported for it")]
    Broken,
    /// It is a device manager.
    #[error(
        "the service is a device manager; to use it, set address = \"discover\" and its name below [manager] in servers.toml"
    )]
    Manager,
    /// A device manager controls its devices.
    #[error("a device manager controls the node's devices; request them from the manager")]
    Managed,
    /// `names` does not have its name.
    #[error("`names` below [discovery] does not have the node's name")]
    OtherName,
    /// No CA is configured.
    #[error(
        "no CA is configured, so nobody knows whose node it is; set `ca` below [tls] in servers.toml, or CAUSEWAY_CA"
    )]
    NoCa,
    /// It has no TLS, and a CA is configured.
    #[error("the node does not use TLS, but a CA is configured")]
    InTheClear,
    /// Only a token is configured, and `names` does not allow to show it.
    #[error(
        "a token is shown only to nodes in `names` below [discovery]; add the name, or use a client certificate"
    )]
    NoToken,
    /// None of its addresses is on a network of this host.
    #[error(
        "none of its addresses is on a network of this host; `routed = true` below [discovery] allows others"
    )]
    NoAddress,
}

impl Settings {
    /// The settings for a node that was found.
    ///
    /// # Errors
    /// [`NotUsed`]; the node must not be dialled then.
    pub fn server_found(
        &self,
        found: &Found,
        interfaces: &Interfaces,
    ) -> Result<ServerSettings, NotUsed> {
        let (discovery, said) = (&self.discovery, &found.announcement);
        discovery.check()?;
        if said.role == Role::Manager {
            return Err(NotUsed::Manager);
        }
        if said.managed {
            return Err(NotUsed::Managed);
        }
        let tls = discovery.tls(&found.name, said.tls)?;
        discovery.server(&found.name, dialled(found, interfaces), tls)
    }

    /// The settings for a node that was found and used earlier. The same conditions hold as for one that is found now.
    ///
    /// # Errors
    /// [`NotUsed`]; the node must not be dialled then.
    pub fn server_remembered(
        &self,
        node: &RememberedNode,
        interfaces: &Interfaces,
    ) -> Result<ServerSettings, NotUsed> {
        let discovery = &self.discovery;
        discovery.check()?;
        // The file does not say whether the node had TLS: it must have it if a CA is configured.
        let tls = discovery.tls(&node.name, discovery.like.tls.ca.is_some())?;
        // A node of a domain may be behind routers.
        let may_be_far = discovery.routed || !discovery.domains.is_empty();
        let may_be_dialled = |address: &&Address| {
            let host: Result<IpAddr, _> = address.host_without_zone().parse();
            host.is_ok_and(|host| interfaces.may_dial(host, may_be_far))
        };
        // The host may be on another network by now.
        let addresses = node
            .addresses
            .iter()
            .filter(may_be_dialled)
            .cloned()
            .collect();
        discovery.server(&node.name, addresses, tls)
    }
}

impl DiscoverySettings {
    fn check(&self) -> Result<(), NotUsed> {
        match self.is_broken || self.like.tls.is_broken {
            true => Err(NotUsed::Broken),
            false => Ok(()),
        }
    }

    fn server(
        &self,
        name: &str,
        addresses: Vec<Address>,
        tls: TlsSettings,
    ) -> Result<ServerSettings, NotUsed> {
        let mut addresses = addresses.into_iter();
        Ok(ServerSettings {
            address: addresses.next().ok_or(NotUsed::NoAddress)?,
            further: addresses.collect(),
            name: Some(name.to_owned()),
            tls,
            ..self.like.clone()
        })
    }

    fn tls(&self, name: &str, has_tls: bool) -> Result<TlsSettings, NotUsed> {
        let is_named = self.names.iter().any(|pattern| pattern.has(name));
        if !is_named && !self.names.is_empty() {
            return Err(NotUsed::OtherName);
        }
        let ours = &self.like.tls;
        if ours.ca.is_none() {
            return match self.insecure && !has_tls {
                true => Ok(TlsSettings::default()),
                false => Err(NotUsed::NoCa),
            };
        }
        if !has_tls {
            return Err(NotUsed::InTheClear);
        }
        let token_file = ours.token_file.clone().filter(|_| is_named);
        if ours.token_file.is_some() && token_file.is_none() && ours.certificate.is_none() {
            return Err(NotUsed::NoToken);
        }
        Ok(TlsSettings {
            name: Some(name.to_owned()),
            token_file,
            servers_only: true,
            ..ours.clone()
        })
    }
}

/// The addresses to dial.
pub(crate) fn dialled(found: &Found, interfaces: &Interfaces) -> Vec<Address> {
    let hosts = found.hosts(interfaces).into_iter();
    let addresses = hosts.filter_map(|host| Address::with_port(&host, found.port).ok());
    addresses.take(MOST_ADDRESSES).collect()
}

#[cfg(test)]
mod tests {
    use causeway_discovery::{Announcement, ClaimedAddress, Interface};

    use super::*;

    fn found() -> Found {
        let place = |address: &str, may_be_dialled| ClaimedAddress {
            address: address.parse().unwrap(),
            interface: 2,
            is_source: false,
            may_be_dialled,
        };
        Found {
            name: "gpu1.lab".to_owned(),
            announcement: Announcement {
                role: Role::Node,
                id: [1; 16],
                run: [2; 8],
                wire: 1,
                tls: true,
                managed: false,
                ca: None,
            },
            port: 7079,
            places: vec![
                place("10.0.0.7", true),
                place("8.8.8.8", false),
                place("10.1.0.7", true),
                place("fe80::7", true),
            ],
        }
    }

    fn interfaces() -> Interfaces {
        Interfaces(vec![Interface {
            index: 2,
            name: "eth0".to_owned(),
            address: "10.0.0.1".parse().unwrap(),
            prefix: 16,
        }])
    }

    fn used(settings: &Settings, found: &Found) -> Result<ServerSettings, NotUsed> {
        settings.server_found(found, &interfaces())
    }

    fn with_ca() -> Settings {
        let mut settings = Settings::default();
        settings.discovery.like.tls.ca = Some("ca.pem".into());
        settings
    }

    #[test]
    fn a_found_node_is_dialled_at_on_link_addresses_under_its_announced_name() {
        let server = used(&with_ca(), &found()).unwrap();
        let addresses: Vec<&str> = server.addresses().map(Address::as_str).collect();
        assert_eq!(
            addresses,
            ["[fe80::7%eth0]:7079", "10.0.0.7:7079", "10.1.0.7:7079"]
        );
        assert_eq!(server.tls.name.as_deref(), Some("gpu1.lab"));
        assert!(server.tls.servers_only && server.tls.ca.is_some());
        let mut far = found();
        far.places.retain(|place| !place.may_be_dialled);
        assert_eq!(used(&with_ca(), &far), Err(NotUsed::NoAddress));
    }

    #[test]
    fn without_a_ca_nothing_is_used_unless_both_sides_say_so() {
        let mut settings = Settings::default();
        let mut clear = found();
        clear.announcement.tls = false;
        assert_eq!(used(&settings, &clear), Err(NotUsed::NoCa));
        settings.discovery.insecure = true;
        assert_eq!(used(&settings, &clear).unwrap().tls, TlsSettings::default());
        assert_eq!(used(&settings, &found()), Err(NotUsed::NoCa));
        // A CA is never given up, whatever else is set.
        settings.discovery.like.tls.ca = Some("ca.pem".into());
        assert_eq!(used(&settings, &clear), Err(NotUsed::InTheClear));
    }

    #[test]
    fn a_token_is_shown_only_to_names_that_are_allowed() {
        let mut settings = with_ca();
        settings.discovery.like.tls.token_file = Some("token".into());
        assert_eq!(used(&settings, &found()), Err(NotUsed::NoToken));
        settings.discovery.names = vec!["gpu*.lab".parse().unwrap()];
        assert!(used(&settings, &found()).unwrap().tls.token_file.is_some());
        settings.discovery.names = vec!["cpu*".parse().unwrap()];
        assert_eq!(used(&settings, &found()), Err(NotUsed::OtherName));
        settings.discovery.names.clear();
        settings.discovery.like.tls.certificate = Some("alice.pem".into());
        assert_eq!(used(&settings, &found()).unwrap().tls.token_file, None);
    }

    #[test]
    fn a_remembered_node_is_dialled_on_the_same_conditions() {
        let addresses = [
            "10.0.0.7",
            "[fe80::7%eth0]",
            "10.1.0.7",
            "gpu1.lab",
            "127.0.0.1",
        ];
        let node = RememberedNode::used_now(
            "gpu1.lab".to_owned(),
            [1; 16],
            addresses.map(|of| of.parse().unwrap()).to_vec(),
        );
        let mut settings = with_ca();
        let of = |settings: &Settings| settings.server_remembered(&node, &interfaces());
        let server = of(&settings).unwrap();
        assert_eq!(server.all_addresses(), "10.0.0.7:7079");
        let found = used(&settings, &found()).unwrap();
        assert_eq!((server.tls, server.name), (found.tls, found.name));
        settings.discovery.like.tls.token_file = Some("token".into());
        assert_eq!(of(&settings), Err(NotUsed::NoToken));
        settings.discovery.names = vec!["cpu*".parse().unwrap()];
        assert_eq!(of(&settings), Err(NotUsed::OtherName));
        assert_eq!(of(&Settings::default()), Err(NotUsed::NoCa));
        let mut insecure = Settings::default();
        insecure.discovery.insecure = true;
        assert_eq!(of(&insecure).unwrap().tls, TlsSettings::default());
        assert_eq!(
            with_ca().server_remembered(&node, &Interfaces(Vec::new())),
            Err(NotUsed::NoAddress)
        );
        let mut routed = with_ca();
        routed.discovery.routed = true;
        let server = of(&routed).unwrap();
        assert_eq!(server.all_addresses(), "10.0.0.7:7079,10.1.0.7:7079");
    }

    #[test]
    fn managers_managed_nodes_and_broken_settings_are_not_used() {
        let mut of = found();
        of.announcement.managed = true;
        assert_eq!(used(&with_ca(), &of), Err(NotUsed::Managed));
        of.announcement.role = Role::Manager;
        assert_eq!(used(&with_ca(), &of), Err(NotUsed::Manager));
        let mut settings = with_ca();
        settings.discovery.is_broken = true;
        assert_eq!(used(&settings, &found()), Err(NotUsed::Broken));
    }

    #[test]
    fn domains_are_names_of_some_labels() {
        let check = |name: &str| check_domains(&[name.to_owned()]);
        assert_eq!(check("lab.example.org"), Ok(()));
        for wrong in ["", "lab.", "a..b", "lab/x", "lab.*"] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
        let many = vec!["lab".to_owned(); MOST_DOMAINS + 1];
        assert!(check_domains(&many).is_err());
        let mut settings = with_ca();
        let far = RememberedNode::used_now(
            "gpu1".to_owned(),
            [1; 16],
            ["8.8.8.8", "127.0.0.1"]
                .map(|of| of.parse().unwrap())
                .to_vec(),
        );
        let of = |settings: &Settings| settings.server_remembered(&far, &interfaces());
        assert_eq!(of(&settings), Err(NotUsed::NoAddress));
        settings.discovery.domains = vec!["lab".to_owned()];
        assert_eq!(of(&settings).unwrap().all_addresses(), "8.8.8.8:7079");
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("gpu1", "gpu1", true),
            ("gpu1", "gpu12", false),
            ("gpu*.lab", "gpu12.lab", true),
            ("gpu*.lab", "gpu.lab", true),
            ("gpu*.lab", "gpu1.lab.evil", false),
            ("*", "anything", true),
            ("*a*a*", "banana", true),
            ("a*a", "a", false),
            ("GPU*", "gpu1", true),
        ] {
            let pattern: NamePattern = pattern.parse().unwrap();
            assert_eq!(pattern.has(name), expected, "{pattern:?} {name}");
        }
        for wrong in ["", "a b", "a/b", "gpu?"] {
            assert!(wrong.parse::<NamePattern>().is_err(), "{wrong:?}");
        }
    }
}
