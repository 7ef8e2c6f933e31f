//! The tables of `servers.toml` in raw form, for serde. What they mean is decided by their readers.
//!
//! Invariant: a table refuses keys that it does not have.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_proto::limits::MAX_BULK_CONNECTIONS;
use causeway_proto::manager::Priority;
use causeway_proto::request::Placement;
use causeway_proto::settings::Within;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use toml::Spanned;

use super::leasing::read_priority;
use super::{
    Address, BadDuration, Carrier, Compression, ServerSettings, TlsSettings, duration, rate, wait,
};

/// Number of bulk connections.
type Connections = Within<u32, 1, { MAX_BULK_CONNECTIONS as u64 }>;

/// Declares a table that has the keys of a connection beside its own. Serde cannot flatten tables that
/// refuse unknown keys.
macro_rules! connection_table {
    ($(#[$about:meta])* $name:ident { $($(#[$of_key:meta])* $key:ident: $type:ty,)* }) => {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        $(#[$about])*
        pub(super) struct $name {
            $($(#[$of_key])* pub(super) $key: $type,)*
            carrier: Option<Carrier>,
            bulk_connections: Option<Connections>,
            shared_memory: Option<bool>,
            isolated: Option<bool>,
            #[serde(default, deserialize_with = "rate")]
            pacing: Option<u64>,
            compression: Option<Compression>,
            #[serde(default, deserialize_with = "span")]
            answer_limit: Option<Duration>,
            resume: Option<Time>,
            keep: Option<Time>,
            restart: Option<Time>,
            ca: Option<PathBuf>,
            certificate: Option<PathBuf>,
            key: Option<PathBuf>,
            token_file: Option<PathBuf>,
            tls_name: Option<String>,
        }

        impl $name {
            /// The settings for this address. Relative file names start at `folder`.
            pub(super) fn settings(self, address: Address, folder: &Path) -> ServerSettings {
                let default = ServerSettings::at(address);
                let tls = TlsTable {
                    ca: self.ca,
                    certificate: self.certificate,
                    key: self.key,
                    token_file: self.token_file,
                    name: self.tls_name,
                };
                ServerSettings {
                    carrier: self.carrier.unwrap_or(default.carrier),
                    bulk_connections: self
                        .bulk_connections
                        .map_or(default.bulk_connections, Within::get),
                    shared_memory: self.shared_memory.unwrap_or(default.shared_memory),
                    isolated: self.isolated.unwrap_or(default.isolated),
                    pacing: self.pacing,
                    compression: self.compression.unwrap_or(default.compression),
                    answer_limit: self.answer_limit.unwrap_or(default.answer_limit),
                    resume: self.resume.map(|Time(time)| time),
                    keep: self.keep.map(|Time(time)| time),
                    restart: self.restart.map(|Time(time)| time),
                    tls: tls.settings(folder),
                    ..default
                }
            }
        }
    };
}

connection_table! {
    /// A `[[server]]`.
    #[serde(expecting = "a table; write `[[server]]`")]
    ServerTable {
        address: Spanned<Addresses>,
        name: Option<String>,
    }
}

connection_table! {
    /// `[manager]`.
    #[serde(expecting = "a table; write `[manager]`")]
    ManagerTable {
        address: Option<Spanned<Addresses>>,
        name: Option<String>,
        #[serde(default, deserialize_with = "placement")]
        placement: Option<Placement>,
        #[serde(default, deserialize_with = "priority")]
        priority: Option<Priority>,
        #[serde(default, deserialize_with = "span")]
        time_limit: Option<Duration>,
    }
}

/// `[tls]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table; write `[tls]`")]
pub(super) struct TlsTable {
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    token_file: Option<PathBuf>,
    name: Option<String>,
}

impl TlsTable {
    /// The settings. Relative file names start at `folder`.
    pub(super) fn settings(self, folder: &Path) -> TlsSettings {
        let in_folder = |file: Option<PathBuf>| file.map(|file| folder.join(file));
        TlsSettings {
            ca: in_folder(self.ca),
            certificate: in_folder(self.certificate),
            key: in_folder(self.key),
            token_file: in_folder(self.token_file),
            name: self.name,
            servers_only: false,
            is_broken: false,
        }
    }
}

/// `[discovery]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table; write `[discovery]`")]
pub(super) struct DiscoveryTable {
    pub(super) names: Option<Vec<String>>,
    pub(super) insecure: Option<bool>,
    pub(super) routed: Option<bool>,
    pub(super) domains: Option<Vec<String>>,
}

/// The addresses of a server: one, or a list.
#[derive(Debug)]
pub(super) struct Addresses(pub(super) Vec<Spanned<String>>);

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Addresses, D::Error> {
        // Serde's untagged enums lose the positions in the file.
        deserializer.deserialize_any(AddressesVisitor)
    }
}

struct AddressesVisitor;

impl<'de> Visitor<'de> for AddressesVisitor {
    type Value = Addresses;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address or a list of addresses")
    }

    fn visit_str<E>(self, address: &str) -> Result<Addresses, E> {
        // The position is that of the whole value.
        Ok(Addresses(vec![Spanned::new(0..0, address.to_owned())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Addresses, A::Error> {
        let mut addresses = Vec::new();
        while let Some(address) = list.next_element()? {
            addresses.push(address);
        }
        Ok(Addresses(addresses))
    }
}

/// How long to wait for a session or to keep one: from `0s` to `24h`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        deserializer
            .deserialize_str(DurationVisitor(wait))
            .map(Time)
    }
}

struct DurationVisitor(fn(&str) -> Result<Duration, BadDuration>);

impl Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration in quotes, e.g. `\"90s\"`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
        (self.0)(text).map_err(E::custom)
    }
}

/// A `[[request]]`: `count`, and a condition for each other key.
pub(super) type RequestTable = BTreeMap<Spanned<String>, Given>;

/// A value of a `[[request]]`.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "invalid value; expected a string, a number, true or false"
)]
pub(super) enum Given {
    /// A number.
    Number(u64),
    /// True or false.
    Truth(bool),
    /// A text, which may begin with a comparison.
    Text(String),
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    text(deserializer, rate::read)
}

pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(DurationVisitor(duration))
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    time(deserializer).map(Some)
}

fn priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Priority>, D::Error> {
    text(deserializer, read_priority)
}

fn placement<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Placement>, D::Error> {
    text(deserializer, |word| {
        Placement::from_word(word).ok_or_else(|| {
            format!("invalid placement `{word}`; expected `any`, `same-node` or `spread`")
        })
    })
}

fn text<'de, D: Deserializer<'de>, T, E: Display>(
    deserializer: D,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    read(&text).map(Some).map_err(D::Error::custom)
}
