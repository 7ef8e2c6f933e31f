//! The device manager, and the request for devices from it.
//!
//! ```toml
//! [manager]
//! address = "manager.example:7078"   # the port may be left out; a list if several managers share a store
//!                                    # or "discover", with the announced name, which its certificate has:
//! name = "mgr1"
//! placement = "spread"               # or "same-node"; "any" if left out
//! priority = "low"                   # or "normal", "high"
//! time_limit = "2h"                  # return the devices after this time at the latest
//! ca = "ca.pem"                      # this and the other keys of [tls], for the manager alone
//! carrier = "grpc"                   # this and [[server]]'s other connection keys, for its nodes
//!
//! [[request]]                        # all of these tables together are one request
//! count = 2                          # 1 if left out
//! TYPE = "GPU"                       # a property of clGetDeviceInfo, without CL_DEVICE_
//! GLOBAL_MEM_SIZE = ">=8GiB"         # the default comparison is =
//! ```
//! The environment overrides the file: `CAUSEWAY_MANAGER` (`host:port`, `m1,m2,m3`, or `discover:mgr1`), and for the request
//! the first variable that is set:
//! 1. `CAUSEWAY_LEASE`: an existing lease of another holder, who also releases it, as 32 hexadecimal
//!    digits.
//! 2. `CAUSEWAY_REQUEST`: `2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; same-node`; `1` is any one device.
//! 3. `CAUSEWAY_REQUEST_FILE`: the dOpenCL paper's file ([`super::paper`]), which may name the manager as
//!    well.
//!
//! `CAUSEWAY_PRIORITY` and `CAUSEWAY_TIME_LIMIT` override `priority` and `time_limit`. Without any of the
//! three variables and without `[[request]]`, the manager is not contacted.
//!
//! This module sends nothing. Invariant: a request is used as a whole; with an error in it, there is no
//! request.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_discovery::is_of_name;
use causeway_proto::MANAGER_PORT;
use causeway_proto::manager::Priority;
use causeway_proto::request::{Comparison, Condition, DeviceRequest, Placement, Wanted};

use super::file::{File, Value};
use super::tables::{Given, ManagerTable, RequestTable};
use super::{
    Address, BadAddress, DISCOVER, MOST_ADDRESSES, Problem, ServerSettings, Settings, Sought,
    duration, paper,
};

const MANAGER: &str = "CAUSEWAY_MANAGER";
const REQUEST: &str = "CAUSEWAY_REQUEST";
const REQUEST_FILE: &str = "CAUSEWAY_REQUEST_FILE";
const LEASE: &str = "CAUSEWAY_LEASE";
const PRIORITY: &str = "CAUSEWAY_PRIORITY";
const TIME_LIMIT: &str = "CAUSEWAY_TIME_LIMIT";

/// A manager and the request to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Address and TLS settings of the manager. Its connection settings apply to the nodes that it assigns.
    pub manager: ServerSettings,
    /// The requested devices.
    pub wanted: LeaseWanted,
    /// The terms of the request.
    pub terms: LeaseTerms,
}

/// The terms of a request for devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Priority in the manager's queue.
    pub priority: Priority,
    /// Longest duration of the lease. `None`: as long as the manager's policy allows.
    pub time_limit: Option<Duration>,
}

impl LeaseTerms {
    /// The time limit for the manager's protocol, in milliseconds. 0 for none.
    #[must_use]
    pub fn time_limit_ms(&self) -> u64 {
        let limit = self.time_limit.unwrap_or_default().as_millis();
        u64::try_from(limit).unwrap_or(u64::MAX)
    }
}

/// Parses a priority: `low`, `normal` or `high`.
#[must_use]
pub fn priority(name: &str) -> Option<Priority> {
    match name {
        "low" => Some(Priority::Low),
        "normal" => Some(Priority::Normal),
        "high" => Some(Priority::High),
        _ => None,
    }
}

/// The devices of a manager with which a program works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseWanted {
    /// New devices, by a request.
    Devices(DeviceRequest),
    /// The devices of a lease that another holder has.
    Lease([u8; 16]),
}

/// The lease settings of the files, before the environment is applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Draft {
    manager: Option<ServerSettings>,
    placement: Placement,
    terms: LeaseTerms,
    wanted: Vec<Wanted>,
    /// Whether some part of it could not be read.
    pub(super) is_broken: bool,
    // Whether `[manager]` could not be read. The lost part may have demanded TLS, so no plain connection is
    // made.
    manager_is_broken: bool,
}

/// The environment variables for leasing.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    pub(super) manager: Option<OsString>,
    pub(super) request: Option<OsString>,
    pub(super) file: Option<PathBuf>,
    pub(super) lease: Option<OsString>,
    pub(super) priority: Option<OsString>,
    pub(super) time_limit: Option<OsString>,
}

impl Variables {
    pub(super) fn of(set: impl Fn(&str) -> Option<OsString>) -> Variables {
        Variables {
            manager: set(MANAGER),
            request: set(REQUEST),
            file: set(REQUEST_FILE).map(PathBuf::from),
            lease: set(LEASE),
            priority: set(PRIORITY),
            time_limit: set(TIME_LIMIT),
        }
    }

    /// Combines the files' settings with the environment into `settings`. `open` reads a file, or returns
    /// why it cannot.
    pub(super) fn resolve(
        &self,
        settings: &mut Settings,
        open: impl Fn(&Path) -> Result<String, String>,
    ) {
        let draft = std::mem::take(&mut settings.draft);
        let asked = self.asked(&draft, open);
        let terms = self.terms(draft.terms);
        let named = asked.as_ref().ok().and_then(|asked| asked.manager.clone());
        let manager = self.manager(draft, named, settings);
        // A broken request or manager gives no lease and one problem. Without a request, the terms do not
        // matter.
        let lease = match (asked, &manager) {
            (Ok(SourcedRequest { wanted: None, .. }), _) | (Ok(_), Err(_)) => Ok(None),
            (Err(problem), _) => Err(problem),
            (Ok(_), Ok(Some(_))) if terms.is_err() => terms.map(|_| None),
            (Ok(SourcedRequest { origin, .. }), Ok(None)) => {
                let message = "devices are requested but no device manager is configured; set CAUSEWAY_MANAGER or [manager] in servers.toml";
                Err(wrong(origin, message.to_owned()))
            }
            (
                Ok(SourcedRequest {
                    wanted: Some(wanted),
                    ..
                }),
                Ok(Some(manager)),
            ) => Ok(Some(LeaseSettings {
                manager: manager.clone(),
                wanted,
                terms: terms.unwrap_or_default(),
            })),
        };
        let mut keep = |problem| settings.problems.push(problem);
        settings.lease = lease.map_err(&mut keep).unwrap_or_default();
        settings.manager = manager.map_err(&mut keep).unwrap_or_default();
    }

    fn asked(
        &self,
        draft: &Draft,
        open: impl Fn(&Path) -> Result<String, String>,
    ) -> Result<SourcedRequest, Problem> {
        let asked = |origin, wanted| SourcedRequest {
            origin,
            wanted,
            manager: None,
        };
        if let Some(lease) = &self.lease {
            let wanted = lease_of(&lease.to_string_lossy())?;
            return Ok(asked(LEASE, Some(wanted)));
        }
        if let Some(request) = &self.request {
            let request = request.to_string_lossy().parse();
            let request = request.map_err(|error| wrong(REQUEST, format!("{error}")))?;
            return Ok(asked(REQUEST, Some(LeaseWanted::Devices(request))));
        }
        let Some(path) = &self.file else {
            return Ok(asked("[[request]]", draft.wanted()?));
        };
        let text = open(path)
            .map_err(|error| wrong(REQUEST_FILE, format!("{}: {error}", path.display())))?;
        let in_file = |line, message| Problem {
            origin: path.display().to_string(),
            line,
            message,
        };
        let read = paper::read(&text);
        let read = read.map_err(|(line, message)| in_file(Some(line), message))?;
        let request = DeviceRequest::new(read.wanted, Placement::Any);
        let request = request.map_err(|error| in_file(None, error.to_string()))?;
        let named = read.manager.filter(|_| self.manager.is_none());
        let named = named.map(|text| managers(&text));
        Ok(SourcedRequest {
            manager: named.transpose().map_err(|error| in_file(None, error))?,
            ..asked(REQUEST_FILE, Some(LeaseWanted::Devices(request)))
        })
    }

    fn terms(&self, mut terms: LeaseTerms) -> Result<LeaseTerms, Problem> {
        if let Some(name) = &self.priority {
            let name = name.to_string_lossy();
            terms.priority = read_priority(&name).map_err(|message| wrong(PRIORITY, message))?;
        }
        if let Some(limit) = &self.time_limit {
            let limit = duration(&limit.to_string_lossy());
            let limit = limit.map_err(|error| wrong(TIME_LIMIT, error.to_string()))?;
            terms.time_limit = Some(limit);
        }
        Ok(terms)
    }

    fn manager(
        &self,
        draft: Draft,
        named: Option<Managers>,
        settings: &Settings,
    ) -> Result<Option<ServerSettings>, Problem> {
        let named = match &self.manager {
            Some(text) => {
                let named = managers(&text.to_string_lossy());
                Some(named.map_err(|error| wrong(MANAGER, error))?)
            }
            None => named,
        };
        let mut manager = match (named, draft.manager) {
            (Some(named), written) => named.with_settings_of(written),
            (None, Some(written)) => written,
            (None, None) => return Ok(None),
        };
        manager.tls.or(&settings.tls);
        manager.tls.is_broken |= draft.manager_is_broken;
        if let Some(sought) = &mut manager.sought {
            // Anybody can announce a manager. Only the CA's word makes it this one.
            if manager.tls.ca.is_none() && !manager.tls.is_broken {
                let message = "a device manager that is found by its name needs the CA of its certificate; set `ca` \
                               below [manager] or [tls] in servers.toml, or CAUSEWAY_CA";
                return Err(wrong("[manager]", message.to_owned()));
            }
            sought.domains.clone_from(&settings.discovery.domains);
            sought.routed = settings.discovery.routed;
            manager.tls.name = Some(sought.name.clone());
            manager.tls.servers_only = true;
        }
        Ok(Some(manager))
    }
}

/// The request, with its source.
struct SourcedRequest {
    // The variable or table that has the request.
    origin: &'static str,
    wanted: Option<LeaseWanted>,
    // The managers' addresses, if the request file names them.
    manager: Option<Managers>,
}

/// The addresses of all managers of a cluster, or the name to look for.
#[derive(Clone)]
enum Managers {
    At {
        first: Address,
        further: Vec<Address>,
    },
    Named(String),
}

impl Managers {
    /// The settings for these managers. The file's settings apply only to managers whose addresses the file
    /// names.
    fn with_settings_of(self, written: Option<ServerSettings>) -> ServerSettings {
        let (first, further) = match self {
            Managers::At { first, further } => (first, further),
            Managers::Named(name) => {
                let is_same =
                    |of: &ServerSettings| of.sought.as_ref().is_some_and(|of| of.name == name);
                return written.filter(is_same).unwrap_or_else(|| sought(name));
            }
        };
        let mut all = std::iter::once(&first).chain(&further);
        let written = written.filter(|written| all.all(|address| written.is_at(address)));
        ServerSettings {
            address: first.clone(),
            further,
            ..written.unwrap_or_else(|| ServerSettings::at(first))
        }
    }
}

/// Reads the managers' addresses, which commas or white space separate.
fn managers(text: &str) -> Result<Managers, String> {
    if text.trim() == DISCOVER {
        return Err(format!("no name is given; expected e.g. `{DISCOVER}:mgr1`"));
    }
    let named = text.trim().strip_prefix(DISCOVER);
    let named = named.and_then(|text| text.strip_prefix(':'));
    // Of `discover:7078`, the first part is the name of a host.
    if let Some(name) = named.filter(|name| name.parse::<u16>().is_err()) {
        return manager_name(name).map(Managers::Named);
    }
    let mut addresses = Vec::new();
    let entries = text.split(|c: char| c == ',' || c.is_whitespace());
    for entry in entries.filter(|entry| !entry.is_empty()) {
        let address = Address::with_port(entry, MANAGER_PORT).map_err(|error| error.to_string())?;
        // An address that is named twice is one manager.
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.len() > MOST_ADDRESSES {
        let count = addresses.len();
        return Err(format!(
            "{count} device managers are named; name at most {MOST_ADDRESSES}"
        ));
    }
    let mut addresses = addresses.into_iter();
    let first = addresses.next().ok_or(BadAddress::Empty);
    Ok(Managers::At {
        first: first.map_err(|error| error.to_string())?,
        further: addresses.collect(),
    })
}

/// Checks a manager's name, which announcements and its certificate have.
fn manager_name(name: &str) -> Result<String, String> {
    let name = name.trim().to_ascii_lowercase();
    match (1..64).contains(&name.len()) && name.bytes().all(is_of_name) {
        true => Ok(name),
        false => Err(format!(
            "invalid name `{name}` of a device manager; expected e.g. `mgr1`"
        )),
    }
}

/// The settings of a manager that is found by its name.
fn sought(name: String) -> ServerSettings {
    ServerSettings {
        sought: Some(Sought {
            name,
            domains: Vec::new(),
            routed: false,
        }),
        ..ServerSettings::at(Address::unknown())
    }
}

impl Draft {
    fn wanted(&self) -> Result<Option<LeaseWanted>, Problem> {
        if self.wanted.is_empty() && !self.is_broken {
            return Ok(None);
        }
        if self.is_broken {
            let message = "the request is ignored because of the error above; no devices are requested from the manager";
            return Err(wrong("[[request]]", message.to_owned()));
        }
        let request = DeviceRequest::new(self.wanted.clone(), self.placement);
        let request = request.map_err(|error| wrong("[[request]]", error.to_string()))?;
        Ok(Some(LeaseWanted::Devices(request)))
    }
}

fn lease_of(text: &str) -> Result<LeaseWanted, Problem> {
    let no_lease = || {
        wrong(
            LEASE,
            format!("invalid lease id `{text}`; expected 32 hexadecimal digits"),
        )
    };
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u128::from_str_radix(text, 16) {
        Ok(id) if digits => Ok(LeaseWanted::Lease(id.to_be_bytes())),
        _ => Err(no_lease()),
    }
}

/// As [`priority`], with the message for an unknown name.
pub(super) fn read_priority(name: &str) -> Result<Priority, String> {
    priority(name)
        .ok_or_else(|| format!("invalid priority `{name}`; expected `low`, `normal` or `high`"))
}

fn wrong(origin: &str, message: String) -> Problem {
    Problem {
        origin: origin.to_owned(),
        line: None,
        message,
    }
}

impl File<'_> {
    /// Reads `[manager]`, or `[[request]]`.
    pub(super) fn leasing(
        &self,
        is_manager: bool,
        value: Value<'_>,
        draft: &mut Draft,
    ) -> Result<(), Problem> {
        if !is_manager {
            return self.requests(value, draft);
        }
        let read = self.manager(value, draft);
        draft.manager_is_broken |= read.is_err();
        read
    }

    fn manager(&self, value: Value<'_>, draft: &mut Draft) -> Result<(), Problem> {
        let (name, effect) = ("[manager]", "the manager is ignored");
        let whole = value.span();
        let table: ManagerTable = self.entry(value, name, effect)?;
        draft.placement = table.placement.unwrap_or(draft.placement);
        draft.terms = LeaseTerms {
            priority: table.priority.unwrap_or(draft.terms.priority),
            time_limit: table.time_limit.or(draft.terms.time_limit),
        };
        if let Some(written) = &table.address {
            let (place, written) = (written.span(), &written.get_ref().0);
            if let [only] = &written[..]
                && only.get_ref() == DISCOVER
            {
                let wrong = |message: &str| {
                    self.wrong(place.clone(), &format!("{name}: {message}; {effect}"))
                };
                let missing =
                    "address = \"discover\" needs the manager's `name`, which its certificate has";
                let given = table.name.clone().ok_or_else(|| wrong(missing))?;
                let given = manager_name(&given).map_err(|message| wrong(&message))?;
                let sought = sought(given).sought;
                let settings = table.settings(Address::unknown(), self.folder);
                draft.manager = Some(ServerSettings { sought, ..settings });
                return Ok(());
            }
            if written.iter().any(|of| of.get_ref() == DISCOVER) {
                let message = format!(
                    "{name}: address = \"discover\" has no other address beside it; {effect}"
                );
                return Err(self.wrong(place, &message));
            }
            if table.name.is_some() {
                let message = format!("{name}: `name` is for address = \"discover\"; {effect}");
                return Err(self.wrong(place, &message));
            }
            let (first, further) = self.addresses(written, MANAGER_PORT, &place, (name, effect))?;
            draft.manager = Some(ServerSettings {
                further,
                ..table.settings(first, self.folder)
            });
        } else if table.name.is_some() {
            let message = format!("{name}: `name` needs address = \"discover\"; {effect}");
            return Err(self.wrong(whole, &message));
        }
        Ok(())
    }

    fn requests(&self, value: Value<'_>, draft: &mut Draft) -> Result<(), Problem> {
        for request in self.array(value, "request")? {
            let place = request.span();
            let table = self.entry(request, "[[request]]", "no devices are requested")?;
            draft.wanted.push(self.wanted(place, table)?);
        }
        Ok(())
    }

    fn wanted(&self, place: Range<usize>, table: RequestTable) -> Result<Wanted, Problem> {
        let mut count = 1;
        let mut conditions = Vec::new();
        for (key, given) in table {
            let wrong = |message: String| self.wrong(key.span(), &message);
            match (key.get_ref().as_str(), given) {
                ("count", Given::Number(number)) => {
                    // A number that is too large for the type is too large for a request as well.
                    count = u32::try_from(number).unwrap_or(u32::MAX);
                }
                ("count", _) => return Err(wrong("count must be a number".to_owned())),
                (name, given) => conditions.push(condition(name, &given).map_err(wrong)?),
            }
        }
        let wanted = Wanted::new(count, conditions);
        wanted.map_err(|error| self.wrong(place, &error.to_string()))
    }
}

fn condition(name: &str, given: &Given) -> Result<Condition, String> {
    let equal = |value: &str| Condition::from_text(name, Comparison::Equal, value);
    let read = match given {
        Given::Text(text) => {
            let compares = text.starts_with(['=', '!', '<', '>']) || text.starts_with("contains ");
            if compares {
                format!("{name} {text}").parse()
            } else {
                equal(text)
            }
        }
        Given::Number(number) => equal(&number.to_string()),
        Given::Truth(truth) => equal(if *truth { "true" } else { "false" }),
    };
    read.map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "leasing_tests.rs"]
mod tests;
