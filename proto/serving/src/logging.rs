//! The log of the daemon's processes and of the device manager: `tracing` to standard error, as text or
//! JSON.
//!
//! In a process that serves one session, every line has the session's names ([`name_process`]). In one that
//! serves several, the lines of a session's threads have them ([`name_thread`]). Workers inherit the settings
//! through their environment, so one `--log` applies to all processes of a daemon.
//! Invariant: standard output carries only the `listening on` and `metrics on` lines.
use std::cell::RefCell;
use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

use causeway_proto::log_filter::{self, BadDirective};
use clap::ValueEnum;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::settings::ServerFlags;
use crate::{BadFile, ConfigFile};

/// The variable with [`Logging::filter`], for a daemon and its child processes.
pub const FILTER_VARIABLE: &str = "CAUSEWAYD_LOG";
/// The variable with [`Logging::format`], for a daemon and its child processes.
pub const FORMAT_VARIABLE: &str = "CAUSEWAYD_LOG_FORMAT";

/// Prefix of the log targets of Causeway's own crates.
const OWN_TARGETS: &str = "causeway";

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Plain text, for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
        }
    }
}

/// The settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// A `tracing` filter: a level, or `target=level` pairs. A level alone applies to Causeway's crates
    /// only. The libraries then log warnings only, because HTTP/2 logs every frame at `debug`.
    pub filter: String,
    /// The format of a log line.
    pub format: Format,
}

impl Default for Logging {
    fn default() -> Logging {
        Logging {
            filter: "info".to_owned(),
            format: Format::Text,
        }
    }
}

/// The log settings are not valid.
#[derive(Debug, thiserror::Error)]
pub enum BadLogging {
    /// The error is in the file.
    #[error(transparent)]
    File(#[from] BadFile),
    /// The error is in the flag.
    #[error("--log: invalid filter: {0}")]
    Flag(#[from] BadDirective),
}

impl Logging {
    /// The settings that the parent process put into this process's environment.
    #[must_use]
    pub fn inherited() -> Logging {
        let variable = |name| std::env::var(name).ok();
        let default = Logging::default();
        Logging {
            filter: variable(FILTER_VARIABLE).unwrap_or(default.filter),
            format: variable(FORMAT_VARIABLE)
                .and_then(|text| Format::from_str(&text, false).ok())
                .unwrap_or(default.format),
        }
    }

    /// The environment that gives a child process the same settings.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            (FILTER_VARIABLE, self.filter.clone()),
            (FORMAT_VARIABLE, self.format.name().to_owned()),
        ]
    }

    fn directives(&self) -> String {
        match self.filter.parse::<LevelFilter>() {
            Ok(level) if level > LevelFilter::WARN => format!("warn,{OWN_TARGETS}={level}"),
            _ => self.filter.clone(),
        }
    }

    /// Combines flags and file. `table` is the file's filter and format. Flags override the file.
    ///
    /// # Errors
    /// [`BadLogging`] says whether flag or file is wrong.
    pub fn combine<Table: DeserializeOwned>(
        flags: &ServerFlags,
        file: &ConfigFile<Table>,
        table: (Option<&Spanned<String>>, Option<Format>),
    ) -> Result<Logging, BadLogging> {
        let mut logging = Logging {
            format: flags.log_format.or(table.1).unwrap_or_default(),
            ..Logging::default()
        };
        if let Some(filter) = &flags.log {
            logging.filter.clone_from(filter);
            logging.check()?;
        } else if let Some(filter) = table.0 {
            logging.filter.clone_from(filter.get_ref());
            let checked = logging.check();
            checked.map_err(|error| file.wrong(filter, &error))?;
        }
        Ok(logging)
    }

    fn check(&self) -> Result<(), BadDirective> {
        targets(&self.filter).map(drop)
    }

    /// Starts logging. A second call in a process changes nothing.
    pub fn start(&self) {
        // Parents and `combine` have checked the filter.
        let filter = targets(&self.directives()).unwrap_or_default();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            // These messages would go to where writing has just failed, and panic.
            .log_internal_errors(false);
        let lines = match self.format {
            Format::Text => lines
                .with_ansi(false)
                .map_event_format(|inner| Named {
                    inner,
                    add: add_to_text,
                })
                .boxed(),
            Format::Json => lines
                .json()
                .map_event_format(|inner| Named {
                    inner,
                    add: add_to_json,
                })
                .boxed(),
        };
        let subscriber = tracing_subscriber::registry().with(lines).with(filter);
        drop(subscriber.try_init());
    }
}

fn targets(filter: &str) -> Result<Targets, BadDirective> {
    let targets = log_filter::directives(filter)?.parse();
    targets.map_err(|_: ParseError| BadDirective::Invalid(filter.to_owned()))
}

/// Prints on standard error why `program` does not start or ends. A failure to print is ignored.
pub fn complain(program: &str, error: &dyn std::error::Error) {
    let _ = writeln!(std::io::stderr(), "{program}: {error}");
}

/// The name and value of a field that every line has.
pub type Name = (&'static str, String);

static NAMES: OnceLock<Vec<Name>> = OnceLock::new();

/// Adds these fields to every later line of this process, from all threads. Only the first call has an
/// effect: a worker serves one session.
pub fn name_process(names: impl IntoIterator<Item = Name>) {
    NAMES.get_or_init(|| names.into_iter().collect());
}

thread_local! {
    static THREAD_NAMES: RefCell<Vec<Name>> = const { RefCell::new(Vec::new()) };
}

/// Adds these fields to every later line of this thread, in place of those of an earlier call.
pub fn name_thread(names: &[Name]) {
    THREAD_NAMES.with_borrow_mut(|own| names.clone_into(own));
}

/// Returns the names of this process and thread.
fn names_here() -> Vec<Name> {
    let process = NAMES.get().into_iter().flatten().cloned();
    // A thread that ends may log after its names are gone, and a line may be logged while they are set.
    let thread = THREAD_NAMES.try_with(|own| own.try_borrow().map(|own| own.clone()));
    let thread = thread.ok().and_then(Result::ok).unwrap_or_default();
    process.chain(thread).collect()
}

/// Formats lines as `inner` does, and adds the names of process and thread.
struct Named<Inner> {
    inner: Inner,
    add: fn(&mut String, &[Name]),
}

impl<S, N, Inner> FormatEvent<S, N> for Named<Inner>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    Inner: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let names = names_here();
        if names.is_empty() {
            return self.inner.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.inner
            .format_event(context, Writer::new(&mut line), event)?;
        (self.add)(&mut line, &names);
        writer.write_str(&line)
    }
}

/// Adds the names at the end of a text line.
fn add_to_text(line: &mut String, names: &[Name]) {
    line.truncate(line.trim_end_matches('\n').len());
    for (name, value) in names {
        line.push_str(&format!(" {name}={}", value.escape_debug()));
    }
    line.push('\n');
}

/// Adds the names to the event's fields in a JSON line. A field of the event with the same name wins.
fn add_to_json(line: &mut String, names: &[Name]) {
    const FIELDS: &str = "\"fields\":{";
    // The first occurrence is the right one: only a time and a level come before it.
    let Some(at) = line.find(FIELDS).map(|at| at + FIELDS.len()) else {
        return;
    };
    let mut added = String::new();
    for (name, value) in names {
        // This finds keys only, because quotes inside of values are escaped.
        if !line.contains(&format!("\"{name}\":")) {
            added.push_str(&format!("\"{name}\":{},", serde_json::json!(value)));
        }
    }
    if line[at..].starts_with('}') {
        added.pop();
    }
    line.insert_str(at, &added);
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_level_alone_is_about_our_own_crates() {
        let directives = |filter: &str| {
            let logging = Logging {
                filter: filter.to_owned(),
                ..Logging::default()
            };
            logging.directives()
        };
        assert_eq!(directives("debug"), "warn,causeway=debug");
        assert_eq!(directives("info"), "warn,causeway=info");
        for as_it_is in ["error", "off", "h2=trace", "debug,h2=off"] {
            assert_eq!(directives(as_it_is), as_it_is);
        }
        assert!(module_path!().starts_with(OWN_TARGETS));
    }

    #[test]
    fn a_process_has_names_that_every_line_tells() {
        let names = [("session", "01".to_owned()), ("user", "a\"b\nc".to_owned())];
        let mut text = "2026-11-22 INFO x: said n=1\n".to_owned();
        add_to_text(&mut text, &names);
        assert_eq!(
            text,
            "2026-11-22 INFO x: said n=1 session=01 user=a\\\"b\\nc\n"
        );
        for (fields, session) in [
            ("{}", "01"),
            (r#"{"message":"\"session\":"}"#, "01"),
            (r#"{"message":"m","session":"own"}"#, "own"),
        ] {
            let mut line = format!(
                "{{\"timestamp\":\"t\",\"level\":\"INFO\",\"fields\":{fields},\"target\":\"x\"}}\n"
            );
            add_to_json(&mut line, &names);
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(line["fields"]["session"], session);
            assert_eq!(line["fields"]["user"], names[1].1);
            assert_eq!(line["target"], "x");
        }
    }

    #[test]
    fn a_filter_is_checked_before_it_is_used() {
        let logging = |filter: &str| Logging {
            filter: filter.to_owned(),
            format: Format::Json,
        };
        assert!(logging("info,causeway_daemon=debug").check().is_ok());
        assert!(logging("causeway_daemon=loudly").check().is_err());
        let filter = targets("warn,,causeway=debug,").unwrap();
        assert!(filter.would_enable("causeway_daemon::worker", &Level::DEBUG));
        assert!(filter.would_enable("h2", &Level::WARN));
        assert!(!filter.would_enable("h2", &Level::INFO));
    }
}
