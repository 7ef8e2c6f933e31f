//! What a node says of itself, as the keys of a TXT record.
//!
//! Everyone on the network reads this, so it names no users and no devices. Invariant: a record without a valid `role`,
//! `id` and `run` is no announcement. Unknown keys are ignored, because later versions may add some.

/// A node's uuid.
pub type NodeId = [u8; 16];
/// Random bytes that are new at each start of a daemon.
pub type Run = [u8; 8];
/// The first bytes of the SHA-256 of a CA's certificate.
pub type CaDigest = [u8; 8];

/// Whether names of nodes may have this character: those of host names, and `_`.
#[must_use]
pub fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// What a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A node with devices.
    Node,
    /// A device manager.
    Manager,
}

impl Role {
    /// The role as the record names it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::Node => "node",
            Role::Manager => "manager",
        }
    }
}

/// What a node or manager says of itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Announcement {
    /// Whether this is a node or a manager.
    pub role: Role,
    /// The node's uuid.
    pub id: NodeId,
    /// New at each start. Zeros if it is not known, as in the records of a domain.
    pub run: Run,
    /// The number of its wire version.
    pub wire: u16,
    /// Whether its port wants TLS.
    pub tls: bool,
    /// Whether a device manager controls its devices.
    pub managed: bool,
    /// The CA that signed its certificate, if the daemon knows it.
    pub ca: Option<CaDigest>,
}

impl Announcement {
    /// The keys and values of the TXT record.
    #[must_use]
    pub fn to_txt(&self) -> Vec<(&'static str, String)> {
        let switch = |is: bool| String::from(if is { "1" } else { "0" });
        let mut keys = vec![
            ("role", self.role.word().to_owned()),
            ("id", hex(&self.id)),
            ("run", hex(&self.run)),
            ("wire", self.wire.to_string()),
            ("tls", switch(self.tls)),
            ("managed", switch(self.managed)),
        ];
        keys.extend(self.ca.map(|ca| ("ca", hex(&ca))));
        keys
    }

    /// Reads the strings of a TXT record. Of a key that comes twice, the first counts (RFC 6763 §6.4).
    #[must_use]
    pub fn from_txt<'a>(strings: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Announcement> {
        let value = |key: &str| {
            strings.clone().find_map(|string| {
                let (name, value) = string.split_at_checked(key.len())?;
                let value = value.strip_prefix(b"=")?;
                name.eq_ignore_ascii_case(key.as_bytes())
                    .then(|| std::str::from_utf8(value).ok())
                    .flatten()
            })
        };
        let role = match value("role")? {
            "node" => Role::Node,
            "manager" => Role::Manager,
            _ => return None,
        };
        Some(Announcement {
            role,
            id: unhex(value("id")?)?,
            run: value("run").and_then(unhex).unwrap_or_default(),
            wire: value("wire")
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            tls: value("tls") == Some("1"),
            managed: value("managed") == Some("1"),
            ca: value("ca").and_then(unhex),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |of: u8| char::from(of).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strings(announcement: &Announcement) -> Vec<Vec<u8>> {
        let keys = announcement.to_txt();
        keys.iter()
            .map(|(key, value)| format!("{key}={value}").into_bytes())
            .collect()
    }

    fn read(strings: &[Vec<u8>]) -> Option<Announcement> {
        Announcement::from_txt(strings.iter().map(Vec::as_slice))
    }

    proptest! {
        #[test]
        fn what_is_said_is_read(id: [u8; 16], run: [u8; 8], wire: u16, tls: bool, managed: bool, ca: Option<[u8; 8]>, is_node: bool) {
            let role = if is_node { Role::Node } else { Role::Manager };
            let said = Announcement { role, id, run, wire, tls, managed, ca };
            prop_assert_eq!(read(&strings(&said)), Some(said));
        }

        #[test]
        fn any_strings_are_read_without_panic(strings: Vec<Vec<u8>>) {
            let _ = read(&strings);
        }
    }

    #[test]
    fn keys_may_be_unknown_in_capitals_or_absent() {
        let said = Announcement {
            role: Role::Node,
            id: [7; 16],
            run: [8; 8],
            wire: 3,
            tls: true,
            managed: false,
            ca: None,
        };
        let mut record = strings(&said);
        record.insert(0, b"colour".to_vec());
        record.push(b"ROLE=manager".to_vec());
        assert_eq!(read(&record), Some(said), "the first `role` counts");
        for missing in ["role", "id"] {
            let of = |string: &&Vec<u8>| !string.starts_with(format!("{missing}=").as_bytes());
            let rest: Vec<Vec<u8>> = record.iter().filter(of).cloned().collect();
            let expected = (missing == "role").then_some(Role::Manager);
            assert_eq!(read(&rest).map(|of| of.role), expected, "{missing}");
        }
        assert_eq!(read(&[b"id=\xff".to_vec(), b"role=node".to_vec()]), None);
    }
}
