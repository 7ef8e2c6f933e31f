//! Logs of the daemon's processes and of the device manager: `tracing` to standard error, as text or JSON.
//!
//! Workers inherit the settings through their environment, so that one `--log` rules all of a
//! daemon's processes. Invariant: standard output carries nothing but the `listening on` lines.
use std::str::FromStr;

use serde::de::DeserializeOwned;
use toml::Spanned;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};

use crate::{BadFile, ConfigFile};

/// [`Logging::filter`], for a daemon as for its child processes.
pub const FILTER_VARIABLE: &str = "CAUSEWAYD_LOG";
/// [`Logging::format`], likewise.
pub const FORMAT_VARIABLE: &str = "CAUSEWAYD_LOG_FORMAT";

/// What the lines of our crates are named after, or rather begin with.
const OWN_TARGETS: &str = "causeway";

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
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

/// No such format.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no log format: text or json")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Format, UnknownFormat> {
        match text {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            other => Err(UnknownFormat(other.to_owned())),
        }
    }
}

/// What is logged and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// A `tracing` filter: a level, or `target=level` pairs. A level alone is about our own crates;
    /// the libraries below it (HTTP/2 tells every frame at `debug`) then only warn.
    pub filter: String,
    /// How a line looks.
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

/// What is to be logged cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum BadLogging {
    /// In the file.
    #[error(transparent)]
    File(#[from] BadFile),
    /// In the flag.
    #[error("--log: {0}")]
    Flag(#[from] ParseError),
}

impl Logging {
    /// What the parent put in this child's environment.
    #[must_use]
    pub fn inherited() -> Logging {
        let variable = |name| std::env::var(name).ok();
        let default = Logging::default();
        Logging {
            filter: variable(FILTER_VARIABLE).unwrap_or(default.filter),
            format: variable(FORMAT_VARIABLE)
                .and_then(|text| text.parse().ok())
                .unwrap_or(default.format),
        }
    }

    /// The environment that makes a child log alike.
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

    /// What flags and a file say together, each a filter and a format; flags win.
    ///
    /// # Errors
    /// [`BadLogging`], which says whose fault it is.
    pub fn combine<Table: DeserializeOwned>(
        flags: (Option<&String>, Option<Format>),
        file: &ConfigFile<Table>,
        table: (&Option<Spanned<String>>, &Option<Spanned<String>>),
    ) -> Result<Logging, BadLogging> {
        let mut logging = Logging::default();
        if let Some(format) = table.1 {
            let parsed = format.get_ref().parse();
            logging.format = parsed.map_err(|error| file.wrong(format, &error))?;
        }
        if let Some(format) = flags.1 {
            logging.format = format;
        }
        if let Some(filter) = flags.0 {
            logging.filter.clone_from(filter);
            logging.check()?;
        } else if let Some(filter) = table.0 {
            logging.filter.clone_from(filter.get_ref());
            let checked = logging.check();
            checked.map_err(|error| file.wrong(filter, &error))?;
        }
        Ok(logging)
    }

    fn check(&self) -> Result<(), ParseError> {
        EnvFilter::builder().parse(&self.filter).map(drop)
    }

    /// Starts logging. A second call in a process changes nothing.
    pub fn start(&self) {
        let filter = EnvFilter::builder().parse_lossy(self.directives());
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        let result = match self.format {
            Format::Text => subscriber.with_ansi(false).try_init(),
            Format::Json => subscriber.json().try_init(),
        };
        drop(result);
    }
}

#[cfg(test)]
mod tests {
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
    fn a_filter_is_checked_before_it_is_used() {
        let logging = |filter: &str| Logging {
            filter: filter.to_owned(),
            format: Format::Json,
        };
        assert!(logging("info,causeway_daemon=debug").check().is_ok());
        assert!(logging("causeway_daemon=loudly").check().is_err());
    }
}
