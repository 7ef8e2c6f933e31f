//! Settings of `causeway-devmgr`: flags and configuration file, first raw, then validated ([`Settings`]).
//!
//! This module opens no socket and no store. Invariant: a [`Settings`] value needs no further check.
//! Errors name the file and the line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use causeway_announcer::{AnnounceSettings, BadAnnounce};
use causeway_proto::MANAGER_PORT;
use causeway_proto::metadata::ClusterId;
use causeway_security::OwnCertificate;
use causeway_serving::logging::{BadLogging, Format, Logging};
use causeway_serving::settings::{HeartbeatTable, TlsTable};
use causeway_serving::watched;
use causeway_serving::{BadAddress, BadFile, is_loopback, parse_listen};
use serde::Deserialize;
use toml::Spanned;

use crate::etcd::{Access, Tls};
pub use crate::flags::Flags;
use crate::policy::Policy;
use crate::service::token_file;
use crate::time::Span;

/// Default path of the configuration file.
pub const DEFAULT_PATH: &str = "/etc/causeway/manager.toml";
/// Default port of `/metrics`.
const METRICS_PORT: u16 = 9078;
/// Default port of the dashboard.
const DASHBOARD_PORT: u16 = 9080;
/// Default path of the store.
const DEFAULT_STORE: &str = "/var/lib/causeway/manager.redb";
/// The name of the store in etcd, in place of a path.
const ETCD: &str = "etcd";
/// Default path of the first administrator's token with etcd.
const DEFAULT_TOKEN: &str = "/var/lib/causeway/manager.admin-token";
/// Default beginning of the keys in etcd.
const DEFAULT_PREFIX: &str = "/causeway/";
/// The least and the most `ttl_s` in seconds. etcd grants no shorter lease than the least by default. The most
/// is less than the policy's margin: a deposed leader may have been a node's contact for as long.
const TTL: std::ops::RangeInclusive<u32> = 2..=30;

/// The configuration file, unchecked. Every key is optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    listen: Option<Vec<Spanned<String>>>,
    advertise: Option<Spanned<String>>,
    store: Option<PathBuf>,
    etcd: Option<Spanned<EtcdTable>>,
    store_failure_limit: Option<Spanned<u32>>,
    insecure: Option<bool>,
    authenticate: Option<bool>,
    log: Option<Spanned<String>>,
    log_format: Option<Format>,
    #[serde(default)]
    tls: TlsTable,
    #[serde(default)]
    metrics: watched::Table,
    #[serde(default)]
    dashboard: watched::Table,
    #[serde(default)]
    heartbeat: HeartbeatTable<100>,
    #[serde(default)]
    discovery: Discovery,
    #[serde(default)]
    privacy: Privacy,
    policy: Option<Spanned<Policy>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EtcdTable {
    endpoints: Vec<Spanned<String>>,
    prefix: Option<Spanned<String>>,
    cluster: Option<Spanned<String>>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    ttl_s: Option<Spanned<u32>>,
    admin_token: Option<PathBuf>,
}

/// How nodes and clients find the manager.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Discovery {
    announce: Option<bool>,
    interfaces: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Privacy {
    #[serde(default)]
    visible: Visible,
}

/// Which leases, requests and nodes a user may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visible {
    /// The user's own leases and requests.
    #[default]
    Own,
    /// All leases, requests and nodes.
    All,
}

/// The configuration file, with the positions for error messages.
pub type ConfigFile = causeway_serving::ConfigFile<Table>;

/// The manager's settings, validated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The addresses to listen on; not empty.
    pub listen: Vec<SocketAddr>,
    /// The store's file; with etcd, its name in messages.
    pub store: PathBuf,
    /// How etcd is reached, if the store is there.
    pub etcd: Option<Access>,
    /// Where others reach this manager, as `HOST:PORT`.
    pub advertise: Option<String>,
    /// The file for the first administrator's token.
    pub admin_token: PathBuf,
    /// How long the store may fail before the manager ends.
    pub store_failure_limit: Span,
    /// Whether interfaces other than loopback may be served without both TLS and authentication.
    pub insecure: bool,
    /// Whether callers must show a token or a client certificate.
    pub authenticate: bool,
    /// The TLS files. `None`: no TLS.
    pub tls: Option<TlsFiles>,
    /// The address of a separate listener for `/metrics` and `/healthz`.
    pub metrics: Option<SocketAddr>,
    /// The address of the dashboard. `None`: there is none.
    pub dashboard: Option<SocketAddr>,
    /// How the manager announces itself. `None`: not at all.
    pub announce: Option<AnnounceSettings>,
    /// The log's filter and format.
    pub logging: Logging,
    /// Interval of a node's heartbeats.
    pub heartbeat_interval: Duration,
    /// Silence after which a node is lost.
    pub heartbeat_limit: Duration,
    /// The leases, requests and nodes that users may see.
    pub visible: Visible,
    /// Replaces the stored policy.
    pub policy: Option<Policy>,
}

/// The files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// The CA of client certificates. `None`: only tokens are accepted.
    pub client_ca: Option<PathBuf>,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadSettings {
    /// The configuration file cannot be read or parsed.
    #[error(transparent)]
    File(#[from] BadFile),
    /// An address cannot be parsed.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// The log settings cannot be parsed.
    #[error(transparent)]
    Log(#[from] BadLogging),
    /// The announcement cannot be made.
    #[error(transparent)]
    Announce(#[from] BadAnnounce),
    /// The certificate, whose name is announced, cannot be read.
    #[error(transparent)]
    Certificate(#[from] causeway_security::BadFile),
    /// The manager announces itself, and listens on loopback only.
    #[error(
        "[discovery] announce: the manager listens on this machine only, so nobody who hears of it could reach it; listen \
         on another interface (listen = [\"0.0.0.0:7078\"], with [tls] and authenticate), or remove `announce`"
    )]
    AnnouncesLoopback,
    /// A certificate without a key, or the other way round.
    #[error(
        "TLS needs both a certificate and its key (--tls-certificate and --tls-key, or [tls] in the file)"
    )]
    HalfTls,
    /// The manager would serve other machines without both TLS and authentication (`design.md` §10).
    #[error(
        "{0} is reachable from other machines without both TLS and authentication: listen on 127.0.0.1 and use a \
         tunnel, configure [tls] with authenticate = true, or use --insecure if you trust everyone who can reach it"
    )]
    Exposed(SocketAddr),
    /// The store would be etcd, and nothing says where that is.
    #[error("store = \"etcd\" needs the table [etcd] with endpoints in manager.toml")]
    NoEtcd,
    /// etcd would be reached without TLS, so everyone on the way could read the key that signs leases.
    #[error(
        "etcd at {0} is on another machine and without TLS: use https:// with ca (and certificate and key) in [etcd], \
         or --insecure"
    )]
    ExposedEtcd(String),
    /// Standbys would name an address that leads nowhere.
    #[error(
        "store = \"etcd\" with {0} in listen needs advertise in manager.toml: others cannot reach that address"
    )]
    NoAdvertise(SocketAddr),
    /// Half of a pair of settings for etcd.
    #[error("[etcd] needs both {0}, or neither")]
    HalfEtcd(&'static str),
    /// `/metrics` would be readable from other machines without TLS.
    #[error(
        "/metrics at {0} is reachable from other machines without TLS: configure [tls] in manager.toml, listen on \
         127.0.0.1, or use --insecure"
    )]
    ExposedMetrics(SocketAddr),
    /// The dashboard would serve other machines without both TLS and authentication.
    #[error(
        "the dashboard at {0} is reachable from other machines without both TLS and authentication: configure [tls] \
         with authenticate = true in manager.toml, listen on 127.0.0.1, or use --insecure"
    )]
    ExposedDashboard(SocketAddr),
}

impl Settings {
    /// Combines flags and configuration file; flags override the file.
    ///
    /// # Errors
    /// [`BadSettings`]: the first error, with its place.
    pub fn from_flags(flags: &Flags) -> Result<Settings, BadSettings> {
        let file = ConfigFile::load(flags.server.config.as_deref(), DEFAULT_PATH.as_ref())?;
        Settings::combine(flags, &file)
    }

    /// Like [`Settings::from_flags`], with a given file.
    ///
    /// # Errors
    /// As for [`Settings::from_flags`].
    pub fn combine(flags: &Flags, file: &ConfigFile) -> Result<Settings, BadSettings> {
        let table = &file.table;
        let (heartbeat_interval, heartbeat_limit) = table.heartbeat.times(file, (1_000, 5_000))?;
        let store = flags.store.as_ref().or(table.store.as_ref());
        let store = store.cloned().unwrap_or_else(|| DEFAULT_STORE.into());
        let insecure = flags.server.insecure || table.insecure.unwrap_or(false);
        let is_etcd = store.as_os_str() == ETCD;
        let tls = tls(flags.server.tls(&table.tls))?;
        let settings = Settings {
            listen: listen(flags, file)?,
            etcd: is_etcd.then(|| etcd(file, insecure)).transpose()?,
            advertise: advertise(file)?,
            admin_token: match is_etcd {
                true => admin_token(file),
                false => token_file(&store),
            },
            store,
            store_failure_limit: store_failure_limit(file)?,
            insecure,
            authenticate: flags.authenticate || table.authenticate.unwrap_or(false),
            announce: announce(flags, file, tls.as_ref())?,
            tls,
            metrics: watched::address::<_, BadSettings>(
                flags.server.metrics.as_ref(),
                file,
                &table.metrics,
                METRICS_PORT,
            )?,
            dashboard: watched::address::<_, BadSettings>(
                None,
                file,
                &table.dashboard,
                DASHBOARD_PORT,
            )?,
            logging: Logging::combine(&flags.server, file, (table.log.as_ref(), table.log_format))?,
            heartbeat_interval,
            heartbeat_limit,
            visible: table.privacy.visible,
            policy: policy(file)?,
        };
        settings.checked()
    }

    /// Checks what settings must be together.
    fn checked(self) -> Result<Settings, BadSettings> {
        if self.announce.is_some() && self.listen.iter().all(is_loopback) {
            return Err(BadSettings::AnnouncesLoopback);
        }
        let first = self.listen.first();
        if let Some(&first) = first.filter(|at| at.ip().is_unspecified())
            && self.etcd.is_some()
            && self.advertise.is_none()
        {
            return Err(BadSettings::NoAdvertise(first));
        }
        let metrics = self.metrics.filter(|at| !is_loopback(at));
        if let Some(exposed) = metrics
            && self.tls.is_none()
            && !self.insecure
        {
            return Err(BadSettings::ExposedMetrics(exposed));
        }
        let dashboard = self.dashboard.filter(|at| !is_loopback(at));
        if let Some(exposed) = dashboard
            && !self.is_safe()
            && !self.insecure
        {
            return Err(BadSettings::ExposedDashboard(exposed));
        }
        match self.exposed() {
            Some(exposed) if !self.insecure => Err(BadSettings::Exposed(exposed)),
            _ => Ok(self),
        }
    }

    /// An address that serves other machines without both TLS and authentication, if there is one.
    #[must_use]
    pub fn exposed(&self) -> Option<SocketAddr> {
        let exposed = self.listen.iter().find(|at| !is_loopback(at));
        exposed.copied().filter(|_| !self.is_safe())
    }

    /// Whether the manager may serve other machines.
    fn is_safe(&self) -> bool {
        self.authenticate && self.tls.is_some()
    }
}

/// How the manager announces itself: under the first name of its certificate.
fn announce(
    flags: &Flags,
    file: &ConfigFile,
    tls: Option<&TlsFiles>,
) -> Result<Option<AnnounceSettings>, BadSettings> {
    let table = &file.table.discovery;
    if !(flags.announce || table.announce.unwrap_or(false)) {
        return Ok(None);
    }
    let own = tls.map(|files| OwnCertificate::load(&files.certificate));
    let own = own.transpose()?;
    let names = own.as_ref().map(OwnCertificate::host_names);
    let client_ca = tls.and_then(|files| files.client_ca.as_deref());
    let ca = own.and_then(|own| own.ca_digest(client_ca));
    let interfaces = table.interfaces.clone();
    Ok(Some(AnnounceSettings::new(
        names.unwrap_or_default(),
        interfaces,
        ca,
    )?))
}

fn listen(flags: &Flags, file: &ConfigFile) -> Result<Vec<SocketAddr>, BadSettings> {
    let given = &flags.server.listen;
    if !given.is_empty() {
        let parsed = given.iter().map(|t| parse_listen(t, MANAGER_PORT));
        return Ok(parsed.collect::<Result<_, _>>()?);
    }
    let listed = file.table.listen.iter().flatten().map(|text| {
        parse_listen(text.get_ref(), MANAGER_PORT).map_err(|error| file.wrong(text, &error))
    });
    let listed: Vec<_> = listed.collect::<Result<_, _>>()?;
    if listed.is_empty() {
        return Ok(vec![SocketAddr::from(([127, 0, 0, 1], MANAGER_PORT))]);
    }
    Ok(listed)
}

/// Where others reach this manager. Without a port, the default one.
fn advertise(file: &ConfigFile) -> Result<Option<String>, BadSettings> {
    let Some(given) = &file.table.advertise else {
        return Ok(None);
    };
    let text = given.get_ref();
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok()
            && !host.is_empty()
            && (!host.contains(':') || host.ends_with(']'))
    });
    if text.is_empty() || text.contains(char::is_whitespace) {
        let message = format!("invalid advertise `{text}`; expected HOST or HOST:PORT");
        return Err(file.wrong(given, &message).into());
    }
    Ok(Some(match has_port {
        true => text.clone(),
        false => format!("{text}:{MANAGER_PORT}"),
    }))
}

fn admin_token(file: &ConfigFile) -> PathBuf {
    let table = file.table.etcd.as_ref();
    let path = table.and_then(|table| table.get_ref().admin_token.clone());
    path.unwrap_or_else(|| DEFAULT_TOKEN.into())
}

/// How etcd is reached.
fn etcd(file: &ConfigFile, insecure: bool) -> Result<Access, BadSettings> {
    let Some(spanned) = &file.table.etcd else {
        return Err(BadSettings::NoEtcd);
    };
    let table = spanned.get_ref();
    let endpoints = etcd_endpoints(file, spanned, insecure)?;
    let prefix = table.prefix.as_ref();
    let mut prefix = prefix
        .map_or(DEFAULT_PREFIX, |prefix| prefix.get_ref())
        .to_owned();
    if !prefix.ends_with('/') {
        prefix.push('/');
    }
    let cluster = table.cluster.as_ref().map(|spanned| {
        let id = spanned.get_ref();
        let message = format!(
            "invalid cluster `{id}`; expected the 32 digits that `causeway managers` shows"
        );
        ClusterId::parse(id).ok_or_else(|| file.wrong(spanned, &message))
    });
    let ttl = etcd_ttl(file, table)?;
    let identity = both(&table.certificate, &table.key, "certificate and key")?;
    let login = both(&table.user, &table.password_file, "user and password_file")?;
    let has_tls = endpoints.iter().any(|url| url.starts_with("https://"));
    let tls = match (&table.ca, has_tls) {
        (Some(ca), true) => Some(Tls {
            ca: ca.clone(),
            identity,
        }),
        (None, true) => return Err(BadSettings::HalfEtcd("https endpoints and ca")),
        (_, false) => None,
    };
    Ok(Access {
        tls,
        endpoints,
        prefix,
        cluster: cluster.transpose()?,
        login,
        ttl,
    })
}

/// Etcd's endpoints. Beyond loopback, TLS is needed: who reads the traffic has the key that signs leases.
fn etcd_endpoints(
    file: &ConfigFile,
    table: &Spanned<EtcdTable>,
    insecure: bool,
) -> Result<Vec<String>, BadSettings> {
    let endpoints = &table.get_ref().endpoints;
    if endpoints.is_empty() {
        return Err(file.wrong(table, &"endpoints in [etcd] is empty").into());
    }
    for endpoint in endpoints {
        let url = endpoint.get_ref();
        let host = url.strip_prefix("https://").or(url.strip_prefix("http://"));
        let Some(host) = host.filter(|host| !host.is_empty()) else {
            let message =
                format!("invalid endpoint `{url}`; expected e.g. `https://etcd1.example:2379`");
            return Err(file.wrong(endpoint, &message).into());
        };
        let is_safe = url.starts_with("https://") || is_loopback_host(host);
        if !is_safe && !insecure {
            return Err(BadSettings::ExposedEtcd(url.clone()));
        }
    }
    Ok(endpoints.iter().map(|of| of.get_ref().clone()).collect())
}

/// The life of etcd's lease; etcd's least by default.
fn etcd_ttl(file: &ConfigFile, table: &EtcdTable) -> Result<Span, BadSettings> {
    let Some(spanned) = &table.ttl_s else {
        return Ok(Span::seconds(u64::from(*TTL.start())));
    };
    let ttl = *spanned.get_ref();
    if !TTL.contains(&ttl) {
        let (least, most) = (TTL.start(), TTL.end());
        let message = format!("ttl_s ({ttl}) must be from {least} to {most}");
        return Err(file.wrong(spanned, &message).into());
    }
    Ok(Span::seconds(u64::from(ttl)))
}

/// Two settings of which neither is of use alone.
fn both<A: Clone, B: Clone>(
    one: &Option<A>,
    other: &Option<B>,
    names: &'static str,
) -> Result<Option<(A, B)>, BadSettings> {
    match (one, other) {
        (Some(one), Some(other)) => Ok(Some((one.clone(), other.clone()))),
        (None, None) => Ok(None),
        _ => Err(BadSettings::HalfEtcd(names)),
    }
}

/// Whether a host, with a port or without, is this machine.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn store_failure_limit(file: &ConfigFile) -> Result<Span, BadSettings> {
    let Some(limit) = &file.table.store_failure_limit else {
        return Ok(Span::seconds(60));
    };
    let seconds = *limit.get_ref();
    if !(1..=3600).contains(&seconds) {
        let message = format!("store_failure_limit ({seconds}) must be from 1 to 3600 seconds");
        return Err(file.wrong(limit, &message).into());
    }
    Ok(Span::seconds(u64::from(seconds)))
}

fn tls(files: TlsTable) -> Result<Option<TlsFiles>, BadSettings> {
    match (files.certificate, files.key) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
            certificate,
            key,
            client_ca: files.client_ca,
        })),
        (None, None) if files.client_ca.is_none() => Ok(None),
        _ => Err(BadSettings::HalfTls),
    }
}

/// Reads the policy, and rejects times that cannot work. A client renews a lease three times in its
/// lifetime, and at intervals of a tenth of a second at least. A node must be able to serve a lease that
/// it has just been granted.
fn policy(file: &ConfigFile) -> Result<Option<Policy>, BadSettings> {
    let Some(policy) = &file.table.policy else {
        return Ok(None);
    };
    let timing = &policy.get_ref().timing;
    for (name, Span(given), least) in [
        ("acknowledge", timing.acknowledge, 10),
        ("reservation", timing.reservation, 100),
        ("lease", timing.lease, 300),
        ("autonomy", timing.autonomy, 1_000),
    ] {
        if given < least {
            let message =
                format!("{name} ({given} ms) in [policy.timing] must be {least} ms at least");
            return Err(file.wrong(policy, &message).into());
        }
    }
    Ok(Some(policy.get_ref().clone()))
}

/// The settings without flags and file.
#[cfg(test)]
pub(crate) fn defaults() -> Settings {
    let file = ConfigFile::parse("none".as_ref(), String::new()).expect("no settings");
    Settings::combine(&Flags::default(), &file).expect("the defaults are valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    fn combine(flags: &Flags, text: &str) -> Result<Settings, String> {
        ConfigFile::parse(Path::new("manager.toml"), text.to_owned())
            .map_err(|error| error.to_string())
            .and_then(|file| Settings::combine(flags, &file).map_err(|error| error.to_string()))
    }

    #[test]
    fn the_defaults_serve_this_machine_only() {
        let settings = combine(&Flags::default(), "").unwrap();
        assert_eq!(settings.listen, ["127.0.0.1:7078".parse().unwrap()]);
        assert!(!settings.insecure && !settings.authenticate && settings.tls.is_none());
        assert_eq!(settings.visible, Visible::Own);
        assert_eq!(settings.dashboard, None);
        assert_eq!(settings.store_failure_limit, Span::seconds(60));
    }

    #[test]
    fn a_manager_announces_itself_only_if_it_is_told_to_and_others_can_reach_it() {
        assert_eq!(combine(&Flags::default(), "").unwrap().announce, None);
        let flags = Flags::parse_from(["causeway-devmgr", "--announce"]);
        let refused = combine(&flags, "").unwrap_err();
        assert!(refused.contains("this machine only"), "{refused}");
        let far = "listen = [\"0.0.0.0:0\"]\ninsecure = true\n";
        let by_flag = combine(&flags, far).unwrap().announce.unwrap();
        let text = format!("{far}[discovery]\nannounce = true\ninterfaces = [\"eth0\"]\n");
        let by_file = combine(&Flags::default(), &text).unwrap().announce.unwrap();
        assert_eq!(
            (by_file.name, by_file.interfaces),
            (by_flag.name, vec!["eth0".to_owned()])
        );
    }

    #[test]
    fn other_machines_are_served_with_tls_and_authentication_or_an_explicit_word() {
        let tls = "[tls]\ncertificate = \"c\"\nkey = \"k\"\n";
        for (top, tables, is_allowed) in [
            ("", "", false),
            ("authenticate = true\n", "", false),
            ("", tls, false),
            ("authenticate = true\n", tls, true),
            ("insecure = true\n", "", true),
        ] {
            let text = format!("listen = [\"192.0.2.1\"]\n{top}{tables}");
            let settings = combine(&Flags::default(), &text);
            assert_eq!(settings.is_ok(), is_allowed, "{text}: {settings:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_file_and_line() {
        for (text, start) in [
            ("\nlisen = []\n", "manager.toml:2: unknown field `lisen`"),
            (
                "listen = [\"here\"]",
                "manager.toml:1: invalid listen address \"here\"",
            ),
            ("log = \"x=loudly\"", "manager.toml:1: "),
            (
                "[heartbeat]\ninterval_ms = 9000",
                "manager.toml:2: limit_ms (5000) must be at least twice interval_ms (9000)",
            ),
            (
                "[privacy]\nvisible = \"none\"",
                "manager.toml:2: unknown variant",
            ),
            (
                "store_failure_limit = 0",
                "manager.toml:1: store_failure_limit (0)",
            ),
            ("[tls]\nkey = \"k\"", "TLS needs both"),
            (
                "[metrics]\nlisten = \"x\"",
                "manager.toml:2: invalid listen address \"x\"",
            ),
            ("[metrics]\nlisten = \"[::]:0\"", "/metrics at [::]:0"),
            (
                "[dashboard]\nlisten = \"0.0.0.0\"",
                "the dashboard at 0.0.0.0:9080",
            ),
            (
                "authenticate = true\n[dashboard]\nlisten = \"[::]\"",
                "the dashboard at [::]:9080",
            ),
            ("[tls]\nclient_ca = \"k\"", "TLS needs both"),
            ("[policy]\nasignment = 1", "manager.toml:2: unknown field"),
            (
                "\n[policy]\n[policy.timing]\nlease = 60",
                "manager.toml:2: lease (60 ms)",
            ),
            ("[policy.timing]\nautonomy = 0", "manager.toml:1: autonomy"),
        ] {
            let error = combine(&Flags::default(), text).unwrap_err();
            assert!(error.starts_with(start), "{text:?} gave {error:?}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags = ["causeway-devmgr", "--listen", "[::1]:0", "--store", "/a"];
        let flags = Flags::parse_from(flags);
        let text =
            "listen = [\"127.0.0.1:1\"]\nstore = \"/b\"\n[policy]\nassignment = \"spread\"\n";
        let settings = combine(&flags, text).unwrap();
        assert_eq!(settings.listen, ["[::1]:0".parse().unwrap()]);
        assert_eq!(settings.store, Path::new("/a"));
        assert!(settings.policy.is_some());
    }

    const ETCD: &str = "store = \"etcd\"\nadvertise = \"m1\"\n[etcd]\n";

    #[test]
    fn etcd_is_reached_as_the_table_says() {
        let table = "endpoints = [\"https://e1:2379\", \"http://127.0.0.1:1\"]\nca = \"ca.pem\"\nprefix = \"/x\"\n\
                     cluster = \"0123456789abcdef0123456789abcdef\"";
        let settings = combine(&Flags::default(), &format!("{ETCD}{table}")).unwrap();
        let access = settings.etcd.unwrap();
        assert_eq!(
            access.cluster.map(|of| of.to_string()).as_deref(),
            Some("0123456789abcdef0123456789abcdef")
        );
        assert_eq!((&*access.prefix, access.ttl), ("/x/", Span::seconds(2)));
        assert_eq!(access.tls.unwrap().ca, Path::new("ca.pem"));
        assert_eq!(settings.advertise.as_deref(), Some("m1:7078"));
        assert_eq!(settings.admin_token, Path::new(DEFAULT_TOKEN));
        // A table without the store says nothing.
        let unused = combine(&Flags::default(), &format!("[etcd]\n{table}")).unwrap();
        assert_eq!(unused.etcd, None);
    }

    #[test]
    fn what_cannot_reach_etcd_is_refused_with_its_cure() {
        for (table, cure) in [
            ("", "endpoints"),
            ("endpoints = []", "is empty"),
            ("endpoints = [\"e1:2379\"]", "expected e.g."),
            (
                "endpoints = [\"http://[::1]:1\"]\ncluster = \"ours\"",
                "causeway managers",
            ),
            ("endpoints = [\"http://e1:2379\"]", "--insecure"),
            ("endpoints = [\"https://e1:2379\"]", "and ca"),
            (
                "endpoints = [\"http://[::1]:1\"]\nuser = \"a\"",
                "password_file",
            ),
            (
                "endpoints = [\"http://localhost:1\"]\nttl_s = 1",
                "ttl_s (1)",
            ),
            (
                "endpoints = [\"http://localhost:1\"]\nkey = \"k\"",
                "certificate and key",
            ),
        ] {
            let refused = combine(&Flags::default(), &format!("{ETCD}{table}")).unwrap_err();
            assert!(refused.contains(cure), "{table}: {refused}");
        }
        let anywhere = "listen = [\"0.0.0.0\"]\ninsecure = true\nstore = \"etcd\"\n[etcd]\nendpoints = [\"http://localhost:1\"]";
        let refused = combine(&Flags::default(), anywhere).unwrap_err();
        assert!(refused.contains("needs advertise"), "{refused}");
        let none = combine(&Flags::default(), "store = \"etcd\"").unwrap_err();
        assert!(none.contains("[etcd]"), "{none}");
    }
}
