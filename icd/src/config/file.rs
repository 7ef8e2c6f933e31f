//! `servers.toml`: reads the raw table into validated servers.
//!
//! ```toml
//! const_pointers_are_reads = true  # for contexts of several nodes
//!
//! [[server]]
//! address = "gpu1.example:7079"  # required; the port may be left out
//! name = "the big one"           # for people
//! carrier = "direct"             # or "grpc"
//! bulk_connections = 2           # 1 to 8
//! shared_memory = true           # large transfers, where the node is on this host
//! pacing = "900 Mbit/s"          # upper limit for large transfers
//! compression = "off"            # or "lz4"
//! answer_limit = "3s"            # timeout for a node that has accepted the connection
//!
//! [tls]                          # see `security`
//! [manager]                      # this and [[request]]: see `leasing`
//! ```
//! An unknown key invalidates its entry, because the misspelled key may be one that matters for security.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::rate;
use super::security::FILES;
use super::{
    Carrier, Compression, MAX_BULK_CONNECTIONS, Problem, ServerSettings, Settings, TlsSettings,
    duration,
};

/// The keys for the connection to a node.
pub(super) const LINK: [&str; 6] = [
    "carrier",
    "bulk_connections",
    "shared_memory",
    "pacing",
    "compression",
    "answer_limit",
];

/// The file that is being read.
pub(super) struct File<'a> {
    text: &'a str,
    origin: &'a str,
    // Relative file names start here.
    folder: &'a Path,
}

pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// The problem of a `server` that is not an array of tables.
const NOT_SERVERS: &str = "`server` must be an array of tables; write `[[server]]`";

/// Reads a whole file into `settings`. Entries with errors become problems, the others are used.
pub(super) fn read(text: &str, origin: &str, folder: &Path, settings: &mut Settings) {
    let file = File {
        text,
        origin,
        folder,
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let message = error.message().to_owned();
        settings
            .problems
            .push(file.problem(error.span().unwrap_or_default(), message));
    }
    for (key, value) in document.get_ref() {
        if key.get_ref() == "const_pointers_are_reads" {
            match value.get_ref().as_bool() {
                Some(is_read) => settings.const_is_read = is_read,
                None => settings.problems.push(file.problem(
                    value.span(),
                    "const_pointers_are_reads must be true or false".to_owned(),
                )),
            }
            continue;
        }
        if key.get_ref() == "tls" {
            settings.tls = file.tls(value).unwrap_or_else(|problem| {
                settings.problems.push(problem);
                TlsSettings {
                    is_broken: true,
                    ..TlsSettings::default()
                }
            });
            // The part that the parser could not read may have belonged to this table.
            settings.tls.is_broken |= !errors.is_empty();
            continue;
        }
        if file.leasing(key.get_ref(), value, settings) {
            // A request with an unreadable part would ask for other devices.
            settings.draft.is_broken |= !errors.is_empty();
            continue;
        }
        if key.get_ref() != "server" {
            let message = format!("unknown key `{}`; it is ignored", key.get_ref());
            settings.problems.push(file.problem(key.span(), message));
            continue;
        }
        let Some(servers) = value.get_ref().as_array() else {
            let message = NOT_SERVERS.to_owned();
            settings.problems.push(file.problem(key.span(), message));
            continue;
        };
        for (position, server) in servers.iter().enumerate() {
            let begin = server.span().start;
            let end = servers
                .get(position + 1)
                .map_or(text.len(), |next| next.span().start);
            // The parser's error in this entry is already in the list of problems, so the entry is skipped.
            let broken = |error: &toml::de::Error| {
                error
                    .span()
                    .is_some_and(|span| (begin..end).contains(&span.start))
            };
            if errors.iter().any(broken) {
                continue;
            }
            match file.server(server) {
                Ok((place, server)) => settings.add(server, |message| file.problem(place, message)),
                Err(problem) => settings.problems.push(problem),
            }
        }
    }
}

impl File<'_> {
    // Returns the server, and the position of its address in the file.
    fn server(&self, value: &Value<'_>) -> Result<(Range<usize>, ServerSettings), Problem> {
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.problem(value.span(), NOT_SERVERS.to_owned()));
        };
        let is_known = |key: &str| {
            ["address", "name", "tls_name"].contains(&key)
                || LINK.contains(&key)
                || FILES.iter().any(|(file, _)| *file == key)
        };
        if let Some((key, _)) = table.iter().find(|(key, _)| !is_known(key.get_ref())) {
            let message = format!(
                "unknown key `{}` in [[server]]; this server is ignored",
                key.get_ref()
            );
            return Err(self.problem(key.span(), message));
        }
        let Some(address) = table.get("address") else {
            return Err(self.problem(
                value.span(),
                "[[server]] has no `address`; this server is ignored".to_owned(),
            ));
        };
        let parsed = self.text_of(address, "address")?.parse();
        let mut server = ServerSettings::at(
            parsed.map_err(|error| self.problem(address.span(), format!("{error}")))?,
        );
        if let Some(name) = table.get("name") {
            server.name = Some(self.text_of(name, "name")?.to_owned());
        }
        self.link(table, &mut server)?;
        if let Some(name) = table.get("tls_name") {
            server.tls.name = Some(self.text_of(name, "tls_name")?.to_owned());
        }
        self.files(table, &mut server.tls)?;
        Ok((address.span(), server))
    }

    /// Reads the keys of [`LINK`].
    pub(super) fn link(
        &self,
        table: &DeTable<'_>,
        server: &mut ServerSettings,
    ) -> Result<(), Problem> {
        if let Some(carrier) = table.get("carrier") {
            server.carrier = match self.text_of(carrier, "carrier")? {
                "direct" => Carrier::Direct,
                "grpc" => Carrier::Grpc,
                other => {
                    let message = format!("invalid carrier `{other}`; expected `direct` or `grpc`");
                    return Err(self.problem(carrier.span(), message));
                }
            };
        }
        if let Some(count) = table.get("bulk_connections") {
            server.bulk_connections = self.count_of(count)?;
        }
        if let Some(shared) = table.get("shared_memory") {
            server.shared_memory = shared.get_ref().as_bool().ok_or_else(|| {
                self.problem(
                    shared.span(),
                    "shared_memory must be true or false".to_owned(),
                )
            })?;
        }
        if let Some(pacing) = table.get("pacing") {
            let rate = rate::read(self.text_of(pacing, "pacing")?);
            let rate = rate.map_err(|error| self.problem(pacing.span(), error.to_string()))?;
            server.pacing = Some(rate);
        }
        if let Some(compression) = table.get("compression") {
            let named = Compression::named(self.text_of(compression, "compression")?);
            server.compression =
                named.map_err(|message| self.problem(compression.span(), message))?;
        }
        if let Some(limit) = table.get("answer_limit") {
            let read = duration(self.text_of(limit, "answer_limit")?);
            server.answer_limit =
                read.map_err(|error| self.problem(limit.span(), error.to_string()))?;
        }
        Ok(())
    }

    // Reads `[tls]`.
    fn tls(&self, value: &Value<'_>) -> Result<TlsSettings, Problem> {
        let Some(table) = value.get_ref().as_table() else {
            let message = "`tls` must be a table; write `[tls]`".to_owned();
            return Err(self.problem(value.span(), message));
        };
        let is_known = |key: &str| key == "name" || FILES.iter().any(|(file, _)| *file == key);
        if let Some((key, _)) = table.iter().find(|(key, _)| !is_known(key.get_ref())) {
            let message = format!(
                "unknown key `{}` in [tls]; no connection is made until it is corrected",
                key.get_ref()
            );
            return Err(self.problem(key.span(), message));
        }
        let mut tls = TlsSettings::default();
        if let Some(name) = table.get("name") {
            tls.name = Some(self.text_of(name, "name")?.to_owned());
        }
        self.files(table, &mut tls)?;
        Ok(tls)
    }

    pub(super) fn files(&self, table: &DeTable<'_>, tls: &mut TlsSettings) -> Result<(), Problem> {
        for (key, _) in FILES {
            if let (Some(value), Some(file)) = (table.get(key), tls.file(key)) {
                *file = Some(self.folder.join(self.text_of(value, key)?));
            }
        }
        Ok(())
    }

    pub(super) fn text_of<'v>(&self, value: &'v Value<'_>, key: &str) -> Result<&'v str, Problem> {
        let wrong = || self.problem(value.span(), format!("{key} must be a string"));
        value.get_ref().as_str().ok_or_else(wrong)
    }

    fn count_of(&self, value: &Value<'_>) -> Result<u32, Problem> {
        let number = value.get_ref().as_integer();
        number
            .and_then(|number| u32::from_str_radix(number.as_str(), number.radix()).ok())
            .filter(|count| (1..=MAX_BULK_CONNECTIONS).contains(count))
            .ok_or_else(|| {
                self.problem(
                    value.span(),
                    format!("bulk_connections must be 1 to {MAX_BULK_CONNECTIONS}"),
                )
            })
    }

    pub(super) fn problem(&self, span: Range<usize>, message: String) -> Problem {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
        Problem {
            origin: self.origin.to_owned(),
            line: Some(line),
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn load(text: &str) -> (Vec<String>, Vec<String>) {
        let mut settings = Settings::default();
        read(text, "s.toml", Path::new("/conf"), &mut settings);
        let servers = settings
            .servers
            .iter()
            .map(|server| server.address.to_string())
            .collect();
        (
            servers,
            settings.problems.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn all_keys_are_read() {
        let mut settings = Settings::default();
        let text = "[[server]]\naddress = \"a\"\nname = \"x\"\ncarrier = \"grpc\"\nbulk_connections = 4\nshared_memory = false\npacing = \"8 Mbit/s\"\ncompression = \"lz4\"\nanswer_limit = \"30s\"\nca = \"ca.pem\"\ntoken_file = \"/token\"\ntls_name = \"n\"\n";
        read(text, "s.toml", Path::new("/conf"), &mut settings);
        let expected = ServerSettings {
            address: "a:7079".parse().unwrap(),
            name: Some("x".to_owned()),
            carrier: Carrier::Grpc,
            bulk_connections: 4,
            shared_memory: false,
            pacing: Some(1_000_000),
            compression: Compression::Lz4,
            answer_limit: Duration::from_secs(30),
            tls: TlsSettings {
                ca: Some("/conf/ca.pem".into()),
                token_file: Some("/token".into()),
                name: Some("n".to_owned()),
                ..TlsSettings::default()
            },
        };
        assert_eq!(settings.servers, [expected]);
        assert_eq!(settings.problems, []);
    }

    #[test]
    fn each_mistake_is_named_with_its_line_and_costs_only_its_entry() {
        let bad = [
            (
                "address = \"b:0\"",
                "s.toml:5: invalid port `0`; expected a number from 1 to 65535",
            ),
            (
                "address = \"a:7079\"",
                "s.toml:5: server a:7079 is configured twice; the second entry is ignored",
            ),
            ("address = 7", "s.toml:5: address must be a string"),
            (
                "address = \"b\"\ncarier = \"grpc\"",
                "s.toml:6: unknown key `carier` in [[server]]; this server is ignored",
            ),
            (
                "address = \"b\"\ncarrier = \"x\"",
                "s.toml:6: invalid carrier `x`; expected `direct` or `grpc`",
            ),
            (
                "address = \"b\"\nbulk_connections = 9",
                "s.toml:6: bulk_connections must be 1 to 8",
            ),
            (
                "address = \"b\"\nbulk_connections = -1",
                "s.toml:6: bulk_connections must be 1 to 8",
            ),
            (
                "address = \"b\"\npacing = \"900\"",
                "s.toml:6: invalid rate `900`; expected e.g. `900 Mbit/s` or `100 MB/s`",
            ),
            (
                "address = \"b\"\ncompression = \"gzip\"",
                "s.toml:6: invalid compression `gzip`; expected `off` or `lz4`",
            ),
            (
                "address = \"b\"\nanswer_limit = \"30\"",
                "s.toml:6: invalid duration `30`; expected e.g. `90s`, `30min` or `2h`",
            ),
            (
                "name = \"b\"",
                "s.toml:4: [[server]] has no `address`; this server is ignored",
            ),
        ];
        for (entry, message) in bad {
            let text = format!(
                "\n[[server]]\naddress = \"a\"\n[[server]]\n{entry}\n[[server]]\naddress = \"c\"\n"
            );
            assert_eq!(
                load(&text),
                (
                    vec!["a:7079".to_owned(), "c:7079".to_owned()],
                    vec![message.to_owned()]
                )
            );
        }
    }

    #[test]
    fn unknown_sections_do_not_cost_the_servers() {
        let (servers, problems) = load("[servre]\nx = 1\n[[server]]\naddress = \"a\"\n");
        assert_eq!(servers, ["a:7079"]);
        assert_eq!(problems, ["s.toml:1: unknown key `servre`; it is ignored"]);
        assert_eq!(
            load("server = 3\n").1,
            ["s.toml:1: `server` must be an array of tables; write `[[server]]`"]
        );
    }

    #[test]
    fn a_broken_line_costs_only_its_entry() {
        let text =
            "[[server]]\naddress = \"a\"\n[[server]]\naddress = \n[[server]]\naddress = \"c\"\n";
        let (servers, problems) = load(text);
        assert_eq!(servers, ["a:7079", "c:7079"]);
        assert!(problems[0].starts_with("s.toml:4: "), "{problems:?}");
        assert_eq!(problems.len(), 1, "{problems:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\[\\[server\\]\\]\n|address|carrier| = |\"a:1\"|\"|\n|[a-z0-9.=#'\\[\\]]){0,40}") {
            let _ = load(&text);
        }
    }
}
