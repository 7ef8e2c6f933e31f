//! Settings of sharing: whose sessions may have one host process.
//!
//! This module decides for no session; `supervisor::domains` does. Invariant: names of groups and drivers
//! are not empty.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use causeway_serving::BadFile;
use serde::Deserialize;

use super::file::ConfigFile;
use super::flags::Flags;

/// Prefix of a group's name in [`Together`].
const GROUP: &str = "group:";
/// Default time for which a host process without sessions is kept.
const HOST_IDLE: Duration = Duration::from_secs(60);

/// Which sessions may have one host process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingSettings {
    /// Whose sessions may have one host process, where a share does not say otherwise.
    pub together: Together,
    /// Names of platforms, or their short names (`CL_PLATFORM_ICD_SUFFIX_KHR`), whose sessions get a process
    /// each.
    pub except: Vec<String>,
    /// Time for which a host process without sessions is kept.
    pub host_idle: Duration,
}

/// Whose sessions may have one host process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Together {
    /// Nobody's: each session has a process of its own.
    #[default]
    None,
    /// Those of one user.
    User,
    /// Those of the users whom the node's group of this name lists.
    Group(String),
    /// Those of everyone on this node.
    All,
}

/// The text says nobody whose sessions could be together.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid value `{0}` of together; expected `none`, `user`, `group:NAME` or `all`")]
pub struct BadTogether(String);

impl FromStr for Together {
    type Err = BadTogether;

    fn from_str(text: &str) -> Result<Together, BadTogether> {
        match (text, text.strip_prefix(GROUP).map(str::trim)) {
            ("none", _) => Ok(Together::None),
            ("user", _) => Ok(Together::User),
            ("all", _) => Ok(Together::All),
            (_, Some(name)) if !name.is_empty() => Ok(Together::Group(name.to_owned())),
            _ => Err(BadTogether(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Together {
    type Error = BadTogether;

    fn try_from(text: String) -> Result<Together, BadTogether> {
        text.parse()
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Together::None => f.write_str("none"),
            Together::User => f.write_str("user"),
            Together::Group(name) => write!(f, "{GROUP}{name}"),
            Together::All => f.write_str("all"),
        }
    }
}

/// Combines flags and file; flags take precedence.
pub(super) fn sharing(flags: &Flags, file: &ConfigFile) -> Result<SharingSettings, BadFile> {
    let table = &file.table.sharing;
    let together = flags.together.as_ref().or(table.together.as_ref());
    let mut except = Vec::new();
    for name in table.except.iter().flatten() {
        let trimmed = name.get_ref().trim();
        if trimmed.is_empty() {
            let problem = "a driver's name is empty; expected a platform's name, or its short name, e.g. \"POCL\"";
            return Err(file.wrong(name, &problem));
        }
        except.push(trimmed.to_owned());
    }
    Ok(SharingSettings {
        together: together.cloned().unwrap_or_default(),
        except,
        host_idle: table.host_idle.unwrap_or(HOST_IDLE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    fn read(flags: &Flags, text: &str) -> Result<SharingSettings, String> {
        ConfigFile::parse(Path::new("daemon.toml"), text.to_owned())
            .map_err(|error| error.to_string())
            .and_then(|file| sharing(flags, &file).map_err(|error| error.to_string()))
    }

    #[test]
    fn nothing_is_shared_by_default() {
        let settings = read(&Flags::default(), "").unwrap();
        let expected = SharingSettings {
            together: Together::None,
            except: Vec::new(),
            host_idle: Duration::from_secs(60),
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn the_table_and_the_flag_name_those_who_share() {
        for (text, expected) in [
            ("none", Together::None),
            ("user", Together::User),
            ("group:render", Together::Group("render".to_owned())),
            ("all", Together::All),
        ] {
            let table = format!("[sharing]\ntogether = \"{text}\"\n");
            let of_table = read(&Flags::default(), &table).unwrap().together;
            let flags = Flags::parse_from(["causewayd", "--together", text]);
            let of_flag = read(&flags, "[sharing]\ntogether = \"user\"\n").unwrap();
            assert_eq!(
                (of_table, of_flag.together),
                (expected.clone(), expected.clone())
            );
            assert_eq!(expected.to_string(), text);
        }
        let text = "[sharing]\nexcept = [\" POCL \", \"Other\"]\nhost_idle = \"2min\"\n";
        let settings = read(&Flags::default(), text).unwrap();
        assert_eq!(settings.except, ["POCL", "Other"]);
        assert_eq!(settings.host_idle, Duration::from_secs(120));
    }

    #[test]
    fn faults_name_the_line_and_the_cure() {
        for (text, start) in [
            (
                "together = \"users\"",
                "daemon.toml:2: invalid value `users` of together; expected `none`",
            ),
            (
                "together = \"group:\"",
                "daemon.toml:2: invalid value `group:` of together",
            ),
            (
                "except = [\" \"]",
                "daemon.toml:2: a driver's name is empty",
            ),
            ("host_idle = \"0s\"", "daemon.toml:2: invalid duration `0s`"),
        ] {
            let error = read(&Flags::default(), &format!("[sharing]\n{text}\n")).unwrap_err();
            assert!(error.starts_with(start), "{error}");
        }
        let share = "[[shares]]\ndevice = \"0.0\"\ncount = 2\ntogether = \"me\"\n";
        let error = read(&Flags::default(), share).unwrap_err();
        assert!(
            error.starts_with("daemon.toml:4: invalid value `me` of together"),
            "{error}"
        );
        let error = Flags::try_parse_from(["causewayd", "--together", "x"]).unwrap_err();
        assert!(error.to_string().contains("--together"), "{error}");
    }
}
