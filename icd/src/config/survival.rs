//! `[survival]`: whether the program's commands are executed again if a node's process dies, and what that may cost.
//!
//! ```toml
//! [survival]
//! reexecute = true   # or CAUSEWAY_REEXECUTE=1
//! log = "1GiB"       # memory for what has to be executed again
//! mtbf = "1d"        # time between deaths of a process, for the interval of checkpoints
//! interval = "5min"  # the interval itself, at least 1s
//! hold = "client"    # who holds checkpoints: the node, the client, or what the link allows; or CAUSEWAY_HOLD
//! held = "8GiB"      # the program's memory for checkpoints
//! ```
//! Invariant: a log has [`LEAST`] bytes at least, so that it holds more than one large write.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

use causeway_proto::request;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use super::tables::time;

/// The smallest log, in bytes.
const LEAST: u64 = 16 << 20;
/// The shortest interval. The session stands during each checkpoint, so it would do little else.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);
const UNITS: [&str; 4] = ["TiB", "GiB", "MiB", "KiB"];

/// The settings of `[survival]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table; write `[survival]`"
)]
pub struct Survival {
    /// Whether the commands of sessions whose process has died are executed again.
    pub reexecute: bool,
    /// Bytes of memory in which a session keeps its commands and their data for that.
    #[serde(deserialize_with = "size")]
    pub log: u64,
    /// Mean time between the deaths of a session's process.
    #[serde(deserialize_with = "time")]
    pub mtbf: Duration,
    /// Time from one checkpoint to the next; `None`: chosen by `mtbf`.
    #[serde(deserialize_with = "some_time")]
    pub interval: Option<Duration>,
    /// Who holds checkpoints.
    pub hold: Hold,
    /// Bytes of the program's memory for the checkpoints that it holds, of all its sessions.
    #[serde(deserialize_with = "size")]
    pub held: u64,
}

/// Who holds checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// The daemon of the session, in memory that outlives the session's process.
    #[default]
    Node,
    /// The program, in memory that outlives the node.
    Client,
    /// The program if the link carries the checkpoint in a tenth of the interval, else the node. The node, too, while
    /// nothing is known of the link, and if the checkpoint does not fit into the program's memory for checkpoints.
    Auto,
}

/// The reason why a text names no holder.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid holder `{0}`; expected `node`, `client` or `auto`")]
pub(super) struct BadHolder(String);

impl Hold {
    /// Reads the name of a holder.
    ///
    /// # Errors
    /// [`BadHolder`].
    pub(super) fn read(text: &str) -> Result<Hold, BadHolder> {
        match text {
            "node" => Ok(Hold::Node),
            "client" => Ok(Hold::Client),
            "auto" => Ok(Hold::Auto),
            other => Err(BadHolder(other.to_owned())),
        }
    }
}

impl<'de> Deserialize<'de> for Hold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hold, D::Error> {
        let text = String::deserialize(deserializer)?;
        Hold::read(&text).map_err(serde::de::Error::custom)
    }
}

impl Default for Survival {
    fn default() -> Survival {
        Survival {
            reexecute: false,
            log: 1 << 30,
            mtbf: Duration::from_secs(24 * 3600),
            interval: None,
            hold: Hold::default(),
            held: 8 << 30,
        }
    }
}

/// The reason why a text is not the size of a log.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
enum BadSize {
    #[error("invalid size `{0}`; expected e.g. `512MiB` or `1GiB`")]
    Spelling(String),
    #[error("size `{0}` is too small; expected at least `16MiB`")]
    Little(String),
}

fn read(text: &str) -> Result<u64, BadSize> {
    let has_unit = UNITS.iter().any(|unit| text.ends_with(unit));
    let bytes = request::number(text).filter(|_| has_unit);
    let bytes = bytes.ok_or_else(|| BadSize::Spelling(text.to_owned()))?;
    match bytes < LEAST {
        true => Err(BadSize::Little(text.to_owned())),
        false => Ok(bytes),
    }
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_str(SizeVisitor)
}

fn some_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let time = time(deserializer)?;
    match time < LEAST_INTERVAL {
        true => Err(serde::de::Error::custom(format!(
            "invalid interval of {time:?}; expected at least `1s`"
        ))),
        false => Ok(Some(time)),
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size in quotes, e.g. `\"1GiB\"`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        read(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_a_least() {
        assert_eq!(read("1GiB"), Ok(1 << 30));
        assert_eq!(read("16 MiB"), Ok(16 << 20));
        assert_eq!(read("1KiB"), Err(BadSize::Little("1KiB".to_owned())));
        for bad in ["", "1", "GiB", "1GB", "-1GiB", "1.5GiB", "99999999TiB"] {
            assert_eq!(read(bad), Err(BadSize::Spelling(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn the_interval_is_chosen_or_given() {
        let read = |text: &str| toml::from_str::<Survival>(text);
        assert_eq!(read("").ok(), Some(Survival::default()));
        let given = read("mtbf = \"2h\"\ninterval = \"5min\"").unwrap();
        assert_eq!(given.mtbf, Duration::from_secs(7200));
        assert_eq!(given.interval, Some(Duration::from_secs(300)));
        for bad in ["mtbf = \"0s\"", "interval = \"often\"", "interval = 5"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read("interval = \"1s\"").is_ok());
        let short = read("interval = \"999ms\"").unwrap_err().to_string();
        assert!(short.contains("invalid interval of 999ms"), "{short}");
    }

    #[test]
    fn the_holder_is_named_and_its_memory_has_a_bound() {
        let read = |text: &str| toml::from_str::<Survival>(text);
        for (name, hold) in [
            ("node", Hold::Node),
            ("client", Hold::Client),
            ("auto", Hold::Auto),
        ] {
            let survival = read(&format!("hold = \"{name}\"\nheld = \"1GiB\"")).unwrap();
            assert_eq!((survival.hold, survival.held), (hold, 1 << 30));
        }
        let other = read("hold = \"disk\"").unwrap_err().to_string();
        assert!(other.contains("invalid holder `disk`"), "{other}");
        assert!(read("held = \"1KiB\"").is_err());
    }
}
