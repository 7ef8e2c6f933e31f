//! `servers.toml`: reads the raw table into validated servers.
//!
//! ```toml
//! const_pointers_are_reads = true  # for contexts of several nodes
//!
//! [[server]]
//! address = "gpu1.example:7079"  # required; the port may be left out; or a list of up to 8 addresses
//! name = "the big one"           # for people
//! carrier = "direct"             # or "grpc"
//! bulk_connections = 2           # 1 to 8
//! shared_memory = true           # large transfers, where the node is on this host
//! isolated = false               # true: the session never shares a process of the node with others
//! pacing = "900 Mbit/s"          # upper limit for large transfers
//! compression = "off"            # or "lz4"
//! answer_limit = "3s"            # timeout for a node that has accepted the connection
//!
//! [survival]                     # see `survival`
//! [discovery]                    # with `discover = true`: see `discovery`
//! [tls]                          # see `security`
//! [manager]                      # this and [[request]]: see `leasing`
//! ```
//! An unknown key invalidates its entry, because the misspelled key may be one that matters for security.

use std::ops::Range;
use std::path::Path;

use causeway_proto::DAEMON_PORT;
use causeway_proto::settings::Fault;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue, ValueDeserializer};

use super::discovery::check_domains;
use super::tables::{DiscoveryTable, ServerTable, Time, TlsTable};
use super::{
    Address, BadAddress, DiscoverySettings, MOST_ADDRESSES, NamePattern, Problem, ServerSettings,
    Settings, TlsSettings,
};

/// The file that is being read.
pub(super) struct File<'a> {
    text: &'a str,
    origin: &'a str,
    /// Relative file names start here.
    pub(super) folder: &'a Path,
}

pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// Reads a whole file into `settings`. Entries with errors become problems, the others are used.
pub(super) fn read(text: &str, origin: &str, folder: &Path, settings: &mut Settings) {
    let file = File {
        text,
        origin,
        folder,
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    let unreadable: Vec<usize> = errors
        .iter()
        .map(|error| error.span().map_or(0, |span| span.start))
        .collect();
    let errors = errors.into_iter().map(|error| Fault::of(text, error));
    settings
        .problems
        .extend(errors.map(|fault| file.problem(fault)));
    // The top level is not read by serde: its first error would drop the other entries.
    for (key, value) in document.into_inner() {
        let read = file.read_key(&key, value, &unreadable, settings);
        settings.problems.extend(read.err());
    }
    // The part that the parser could not read may have been `[discovery]` itself.
    settings.discovery.is_broken |= !unreadable.is_empty();
}

impl File<'_> {
    /// Reads a key of the top level. `unreadable`: the positions of what the parser could not read.
    fn read_key(
        &self,
        key: &Spanned<DeString<'_>>,
        value: Value<'_>,
        unreadable: &[usize],
        settings: &mut Settings,
    ) -> Result<(), Problem> {
        match key.get_ref().as_ref() {
            "const_pointers_are_reads" => self
                .entry(value, "const_pointers_are_reads", "the key is ignored")
                .map(|is_read| settings.const_is_read = is_read),
            "resume" => self
                .entry(value, "resume", "the key is ignored")
                .map(|Time(time)| settings.resume = Some(time)),
            "keep" => self
                .entry(value, "keep", "the key is ignored")
                .map(|Time(time)| settings.keep = Some(time)),
            "restart" => self
                .entry(value, "restart", "the key is ignored")
                .map(|Time(time)| settings.restart = Some(time)),
            "survival" => self
                .entry(value, "[survival]", "the table is ignored")
                .map(|survival| settings.survival = survival),
            "discover" => self
                .entry(value, "discover", "the key is ignored")
                .map(|is_on| settings.discover = is_on),
            "discovery" => {
                let read = self.discovery(value, &mut settings.discovery);
                // A name that cannot be read may be the one that keeps a token from others.
                settings.discovery.is_broken |= read.is_err();
                read
            }
            "tls" => {
                let read = self.tls(value);
                settings.tls = read.as_ref().cloned().unwrap_or(TlsSettings {
                    is_broken: true,
                    ..TlsSettings::default()
                });
                // The part that the parser could not read may have belonged to this table.
                settings.tls.is_broken |= !unreadable.is_empty();
                read.map(drop)
            }
            "manager" | "request" => {
                let is_manager = key.get_ref() == "manager";
                let read = self.leasing(is_manager, value, &mut settings.draft);
                // A request with an unreadable part would ask for other devices.
                settings.draft.is_broken |= read.is_err() || !unreadable.is_empty();
                read
            }
            "server" => self.servers(value, unreadable, settings),
            // The key may belong to the part that the parser could not read, such as `[[server]`.
            _ if unreadable.iter().any(|at| *at < key.span().start) => Ok(()),
            other => Err(self.wrong(key.span(), &format!("unknown key `{other}`; it is ignored"))),
        }
    }

    fn servers(
        &self,
        value: Value<'_>,
        unreadable: &[usize],
        settings: &mut Settings,
    ) -> Result<(), Problem> {
        let servers = self.array(value, "server")?;
        let begins: Vec<usize> = servers.iter().map(|server| server.span().start).collect();
        for (position, server) in servers.into_iter().enumerate() {
            let end = begins.get(position + 1).copied();
            let place = begins[position]..end.unwrap_or(self.text.len());
            // The parser's error in this entry is already in the list of problems, so the entry is skipped.
            if unreadable.iter().any(|at| place.contains(at)) {
                continue;
            }
            match self.server(server) {
                Ok((place, server)) => settings.add(server, |message| self.wrong(place, &message)),
                Err(problem) => settings.problems.push(problem),
            }
        }
        Ok(())
    }

    // Returns the server, and the position of its address in the file.
    fn server(&self, value: Value<'_>) -> Result<(Range<usize>, ServerSettings), Problem> {
        let (name, effect) = ("[[server]]", "this server is ignored");
        let mut table: ServerTable = self.entry(value, name, effect)?;
        let place = table.address.span();
        let written = std::mem::take(&mut table.address.get_mut().0);
        let (address, further) = self.addresses(&written, DAEMON_PORT, &place, (name, effect))?;
        let name = table.name.take();
        let settings = ServerSettings {
            name,
            further,
            ..table.settings(address, self.folder)
        };
        Ok((place, settings))
    }

    /// Reads the first and the further addresses of an entry. `place` is that of the whole value, and
    /// `(name, effect)` as in [`File::entry`].
    pub(super) fn addresses(
        &self,
        written: &[Spanned<String>],
        port: u16,
        place: &Range<usize>,
        (name, effect): (&str, &str),
    ) -> Result<(Address, Vec<Address>), Problem> {
        addresses(written, port).map_err(|(at, error)| {
            // An address that is no list has the position of the whole value.
            let at = at.filter(|at| !at.is_empty()).unwrap_or(place.clone());
            self.wrong(at, &format!("{name}: {error}; {effect}"))
        })
    }

    fn discovery(&self, value: Value<'_>, into: &mut DiscoverySettings) -> Result<(), Problem> {
        let (whole, effect) = (
            value.span(),
            "no node that is found is used until it is corrected",
        );
        let table: DiscoveryTable = self.entry(value, "[discovery]", effect)?;
        let names = table.names.into_iter().flatten().map(|name| name.parse());
        let names: Result<Vec<NamePattern>, String> = names.collect();
        into.insecure = table.insecure.unwrap_or(false);
        into.routed = table.routed.unwrap_or(false);
        let domains = table.domains.unwrap_or_default();
        check_domains(&domains).map_err(|error| {
            self.wrong(whole.clone(), &format!("[discovery]: {error}; {effect}"))
        })?;
        into.domains = domains;
        into.names =
            names.map_err(|error| self.wrong(whole, &format!("[discovery]: {error}; {effect}")))?;
        Ok(())
    }

    fn tls(&self, value: Value<'_>) -> Result<TlsSettings, Problem> {
        let effect = "no connection is made until it is corrected";
        let table: TlsTable = self.entry(value, "[tls]", effect)?;
        Ok(table.settings(self.folder))
    }

    /// Reads an entry. `name` and `effect` say where an error is, and what becomes of the entry then.
    pub(super) fn entry<'v, T: Deserialize<'v>>(
        &self,
        value: Value<'v>,
        name: &str,
        effect: &str,
    ) -> Result<T, Problem> {
        let whole = value.span();
        T::deserialize(ValueDeserializer::from(value)).map_err(|error| {
            // An error about the whole value may come without a position.
            let place = error.span().unwrap_or(whole);
            let fault = Fault::of(self.text, error).message;
            self.wrong(place, &format!("{name}: {fault}; {effect}"))
        })
    }

    /// The entries of an array of tables.
    pub(super) fn array<'v>(&self, value: Value<'v>, key: &str) -> Result<DeArray<'v>, Problem> {
        let place = value.span();
        match value.into_inner() {
            DeValue::Array(entries) => Ok(entries),
            _ => Err(self.wrong(
                place,
                &format!("`{key}` must be an array of tables; write `[[{key}]]`"),
            )),
        }
    }

    /// A problem at a position.
    pub(super) fn wrong(&self, place: Range<usize>, message: &str) -> Problem {
        self.problem(Fault::at(self.text, place.start, &message))
    }

    fn problem(&self, fault: Fault) -> Problem {
        Problem {
            origin: self.origin.to_owned(),
            line: Some(fault.line),
            message: fault.message,
        }
    }
}

type Misread = (Option<Range<usize>>, String);

/// Reads the first and the further addresses of a server. An error may have a position.
fn addresses(written: &[Spanned<String>], port: u16) -> Result<(Address, Vec<Address>), Misread> {
    let count = written.len();
    if count > MOST_ADDRESSES {
        let most = format!("`address` lists {count} addresses; list at most {MOST_ADDRESSES}");
        return Err((None, most));
    }
    let mut addresses: Vec<Address> = Vec::with_capacity(count);
    for text in written {
        let wrong = |error: String| (Some(text.span()), error);
        let address = Address::with_port(text.get_ref(), port)
            .map_err(|error: BadAddress| wrong(format!("{error} in `address`")))?;
        if addresses.contains(&address) {
            let twice = format!("`address` lists {address} twice; list each address once");
            return Err(wrong(twice));
        }
        addresses.push(address);
    }
    match addresses.split_first() {
        Some((first, further)) => Ok((first.clone(), further.to_vec())),
        None => Err((
            None,
            "`address` is an empty list; list at least one address".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Carrier, Compression, Survival};
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
        let text = "[[server]]\naddress = [\"a\", \"b:80\"]\nname = \"x\"\ncarrier = \"grpc\"\nbulk_connections = 4\nshared_memory = false\nisolated = true\npacing = \"8 Mbit/s\"\ncompression = \"lz4\"\nanswer_limit = \"30s\"\nresume = \"2min\"\nkeep = \"1h\"\nrestart = \"2h\"\nca = \"ca.pem\"\ntoken_file = \"/token\"\ntls_name = \"n\"\n";
        read(text, "s.toml", Path::new("/conf"), &mut settings);
        let expected = ServerSettings {
            address: "a:7079".parse().unwrap(),
            further: vec!["b:80".parse().unwrap()],
            sought: None,
            name: Some("x".to_owned()),
            carrier: Carrier::Grpc,
            bulk_connections: 4,
            shared_memory: false,
            isolated: true,
            pacing: Some(1_000_000),
            compression: Compression::Lz4,
            answer_limit: Duration::from_secs(30),
            resume: Some(Duration::from_secs(120)),
            keep: Some(Duration::from_secs(3600)),
            restart: Some(Duration::from_secs(7200)),
            survival: Survival::default(),
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
                "s.toml:5: [[server]]: invalid port `0`; expected a number from 1 to 65535 in `address`; this server is ignored",
            ),
            (
                "address = \"a:7079\"",
                "s.toml:5: server a:7079 is configured twice; the second entry is ignored",
            ),
            (
                "address = 7",
                "s.toml:5: [[server]]: invalid type: integer `7`, expected an address or a list of addresses in `address`; this server is ignored",
            ),
            (
                "address = [\"b\", 7]",
                "s.toml:5: [[server]]: invalid type: integer `7`, expected a string in `address`; this server is ignored",
            ),
            (
                "address = []",
                "s.toml:5: [[server]]: `address` is an empty list; list at least one address; this server is ignored",
            ),
            (
                "address = [\n\"b\",\n\"d:0\"]",
                "s.toml:7: [[server]]: invalid port `0`; expected a number from 1 to 65535 in `address`; this server is ignored",
            ),
            (
                "address = [\"b\", \"d\", \"b:7079\"]",
                "s.toml:5: [[server]]: `address` lists b:7079 twice; list each address once; this server is ignored",
            ),
            (
                "address = [\"b\", \"a\"]",
                "s.toml:5: server a:7079 is configured twice; the second entry is ignored",
            ),
            (
                "address = [\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]",
                "s.toml:5: [[server]]: `address` lists 9 addresses; list at most 8; this server is ignored",
            ),
            (
                "address = \"b\"\ncarier = \"grpc\"",
                "s.toml:6: [[server]]: unknown field `carier`, expected one of KEYS; this server is ignored",
            ),
            (
                "address = \"b\"\ncarrier = \"x\"",
                "s.toml:6: [[server]]: unknown variant `x`, expected `direct` or `grpc` in `carrier`; this server is ignored",
            ),
            (
                "address = \"b\"\nbulk_connections = 9",
                "s.toml:6: [[server]]: 9 is out of range; expected a number from 1 to 8 in `bulk_connections`; this server is ignored",
            ),
            (
                "address = \"b\"\nbulk_connections = -1",
                "s.toml:6: [[server]]: -1 is out of range; expected a number from 1 to 8 in `bulk_connections`; this server is ignored",
            ),
            (
                "address = \"b\"\npacing = \"900\"",
                "s.toml:6: [[server]]: invalid rate `900`; expected e.g. `900 Mbit/s` or `100 MB/s` in `pacing`; this server is ignored",
            ),
            (
                "address = \"b\"\ncompression = \"gzip\"",
                "s.toml:6: [[server]]: unknown variant `gzip`, expected `off` or `lz4` in `compression`; this server is ignored",
            ),
            (
                "address = \"b\"\nanswer_limit = \"30\"",
                "s.toml:6: [[server]]: invalid duration `30`; expected e.g. `90s`, `30min` or `2h` in `answer_limit`; this server is ignored",
            ),
            (
                "address = \"b\"\nresume = \"60\"",
                "s.toml:6: [[server]]: invalid duration `60`; expected e.g. `90s`, `30min` or `2h` in `resume`; this server is ignored",
            ),
            (
                "address = \"b\"\nkeep = \"25h\"",
                "s.toml:6: [[server]]: `25h` is too long; expected at most `24h` in `keep`; this server is ignored",
            ),
            (
                "address = \"b\"\nkeep = 60",
                "s.toml:6: [[server]]: invalid type: integer `60`, expected a duration in quotes, e.g. `\"90s\"` in `keep`; this server is ignored",
            ),
            (
                "name = \"b\"",
                "s.toml:4: [[server]]: missing field `address`; this server is ignored",
            ),
        ];
        for (entry, message) in bad {
            let text = format!(
                "\n[[server]]\naddress = \"a\"\n[[server]]\n{entry}\n[[server]]\naddress = \"c\"\n"
            );
            let keys = "`address`, `name`, `carrier`, `bulk_connections`, `shared_memory`, `isolated`, `pacing`, `compression`, \
                        `answer_limit`, `resume`, `keep`, `restart`, `ca`, `certificate`, `key`, `token_file`, `tls_name`";
            assert_eq!(
                load(&text),
                (
                    vec!["a:7079".to_owned(), "c:7079".to_owned()],
                    vec![message.replace("KEYS", keys)]
                )
            );
        }
    }

    #[test]
    fn unknown_sections_do_not_cost_the_servers() {
        let (servers, problems) = load("[servre]\nx = 1\n[[server]]\naddress = \"a\"\n");
        assert_eq!(servers, ["a:7079"]);
        assert_eq!(problems, ["s.toml:1: unknown key `servre`; it is ignored"]);
        let (_, problems) = load("[[server]\naddress = \"a\"\n");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(
            load("server = 3\n").1,
            ["s.toml:1: `server` must be an array of tables; write `[[server]]`"]
        );
        assert_eq!(
            load("server = [3]\n").1,
            [
                "s.toml:1: [[server]]: invalid type: integer `3`, expected a table; write `[[server]]`; this server is ignored"
            ]
        );
        assert_eq!(
            load("const_pointers_are_reads = 3\n").1,
            [
                "s.toml:1: const_pointers_are_reads: invalid type: integer `3`, expected a boolean; the key is ignored"
            ]
        );
    }

    #[test]
    fn a_wrong_time_for_all_servers_is_named_with_its_line_and_leaves_the_default() {
        for (value, fault) in [
            (
                "\"60\"",
                "invalid duration `60`; expected e.g. `90s`, `30min` or `2h`",
            ),
            (
                "\"-1s\"",
                "invalid duration `-1s`; expected e.g. `90s`, `30min` or `2h`",
            ),
            ("\"48h\"", "`48h` is too long; expected at most `24h`"),
            (
                "60",
                "invalid type: integer `60`, expected a duration in quotes, e.g. `\"90s\"`",
            ),
        ] {
            for key in ["resume", "keep", "restart"] {
                let text = format!("# times\n{key} = {value}\n[[server]]\naddress = \"a\"\n");
                let problem = format!("s.toml:2: {key}: {fault}; the key is ignored");
                assert_eq!(load(&text), (vec!["a:7079".to_owned()], vec![problem]));
            }
        }
    }

    #[test]
    fn without_all_of_tls_no_connection_is_made() {
        for (text, problem) in [
            (
                "[tls]\nkay = \"k\"\n",
                "s.toml:2: [tls]: unknown field `kay`, expected one of `ca`, `certificate`, `key`, `token_file`, `name`; \
                 no connection is made until it is corrected",
            ),
            (
                "tls = true\n",
                "s.toml:1: [tls]: invalid type: boolean `true`, expected a table; write `[tls]`; \
                 no connection is made until it is corrected",
            ),
        ] {
            let mut settings = Settings::default();
            read(text, "s.toml", Path::new("/conf"), &mut settings);
            assert!(settings.tls.is_broken);
            assert_eq!(settings.problems[0].to_string(), problem);
        }
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
