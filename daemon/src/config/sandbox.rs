//! Settings of worker processes: their sandbox and their user.

use std::path::PathBuf;

use causeway_serving::BadFile;
use serde::Deserialize;
use toml::Spanned;

use super::file::ConfigFile;
use super::flags::Flags;

/// Settings of the sandbox of sessions' processes.
#[derive(Clone, Debug)]
pub struct SandboxSettings {
    /// Whether the sandbox is enabled.
    pub enabled: bool,
    /// Whether the daemon runs without the sandbox if drivers show devices only without it.
    pub fall_back: bool,
    /// Further paths to read and execute; absolute.
    pub read: Vec<PathBuf>,
    /// Further paths to write; absolute.
    pub write: Vec<PathBuf>,
    /// Directory in which the processes' folders are made; `None`: the directory for temporary files.
    pub directory: Option<PathBuf>,
    /// Whether drivers' caches are shared; `None`: depends on whom the daemon serves.
    pub driver_caches: Option<DriverCaches>,
    /// TCP ports that the processes may connect to; `None`: any.
    pub connect_ports: Option<Vec<u16>>,
    /// Further environment variables of the daemon that the processes inherit: names, or prefixes that end
    /// in `*`.
    pub environment: Vec<String>,
}

/// Which sessions share the compiler caches of drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverCaches {
    /// All sessions of the daemon share them, and so does the daemon's user.
    Shared,
    /// Each session has its own.
    Private,
}

/// User that the sessions' processes run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerUser {
    /// The user of the daemon.
    Daemon,
    /// The user of this name.
    Named {
        /// Name of the user.
        name: String,
        /// Supplementary groups of the user.
        groups: Groups,
    },
    /// Each process has a user id of this range to itself, and the group id of the same number.
    Range {
        /// The first user id.
        first: u32,
        /// Number of user ids.
        count: u32,
        /// Supplementary groups of all these users.
        groups: Groups,
    },
}

/// Names of groups that may open the devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The names.
    pub names: Vec<String>,
    /// Whether a group that this machine does not have is an error.
    pub must_exist: bool,
}

/// Groups that own the devices in common distributions.
const DEVICE_GROUPS: [&str; 2] = ["video", "render"];

pub(super) fn sandbox(flags: &Flags, file: &ConfigFile) -> Result<SandboxSettings, BadFile> {
    let table = &file.table.sandbox;
    Ok(SandboxSettings {
        enabled: table.enabled.unwrap_or(true) && !flags.no_sandbox,
        fall_back: table.fall_back.unwrap_or(false),
        read: paths(file, table.read.as_deref(), &flags.sandbox_read)?,
        write: paths(file, table.write.as_deref(), &flags.sandbox_write)?,
        directory: match &table.directory {
            None => None,
            Some(path) => Some(absolute(file, path)?),
        },
        driver_caches: table.driver_caches,
        connect_ports: table.connect_ports.clone(),
        environment: table.environment.clone().unwrap_or_default(),
    })
}

fn paths(
    file: &ConfigFile,
    listed: Option<&[Spanned<PathBuf>]>,
    given: &[PathBuf],
) -> Result<Vec<PathBuf>, BadFile> {
    let listed = listed.unwrap_or_default().iter();
    let mut paths: Vec<_> = listed
        .map(|path| absolute(file, path))
        .collect::<Result<_, _>>()?;
    // A relative path in a flag refers to the working directory.
    paths.extend(
        given
            .iter()
            .filter_map(|path| std::path::absolute(path).ok()),
    );
    Ok(paths)
}

fn absolute(file: &ConfigFile, path: &Spanned<PathBuf>) -> Result<PathBuf, BadFile> {
    if path.get_ref().is_absolute() {
        Ok(path.get_ref().clone())
    } else {
        let message = format!(
            "path {:?} is not absolute; write it from the root, e.g. /opt/driver",
            path.get_ref()
        );
        Err(file.wrong(path, &message))
    }
}

/// Returns the user for up to `workers` simultaneous processes.
pub(super) fn worker_user(file: &ConfigFile, workers: u32) -> Result<WorkerUser, BadFile> {
    let table = &file.table.sessions;
    let groups = match &table.groups {
        Some(names) => Groups {
            names: names.clone(),
            must_exist: true,
        },
        None => Groups {
            // A machine need not have the default groups. The administrator's own groups must exist.
            names: DEVICE_GROUPS.map(str::to_owned).to_vec(),
            must_exist: false,
        },
    };
    match (&table.user, &table.uid_range) {
        (None, None) => Ok(WorkerUser::Daemon),
        (Some(name), None) => Ok(WorkerUser::Named {
            name: name.clone(),
            groups,
        }),
        (None, Some(range)) => {
            let (first, count) =
                uid_range(range.get_ref(), workers).map_err(|error| file.wrong(range, &error))?;
            Ok(WorkerUser::Range {
                first,
                count,
                groups,
            })
        }
        (Some(_), Some(range)) => Err(file.wrong(
            range,
            &"user and uid_range are both set; set only one of them",
        )),
    }
}

/// Parses `FIRST-LAST`. Returns the first number and the count.
fn uid_range(text: &str, workers: u32) -> Result<(u32, u32), String> {
    let ends = text.split_once('-').and_then(|(first, last)| {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        Some((number(first)?, number(last)?))
    });
    let Some((first, last)) = ends.filter(|(first, last)| first <= last) else {
        return Err(format!(
            "invalid uid_range {text:?}; expected FIRST-LAST, e.g. 2000000000-2000000127"
        ));
    };
    // The highest number means "no user", and the one before it is excluded as well.
    if first == 0 || last >= u32::MAX - 1 {
        return Err(format!(
            "uid_range {text:?} contains root (0) or a reserved number (4294967294 and above); choose other numbers"
        ));
    }
    let count = last - first + 1;
    if count < workers {
        return Err(format!(
            "uid_range {text:?} has {count} numbers, but the configured sessions, spare workers and probes need \
             {workers}; enlarge it or lower [sessions] limit"
        ));
    }
    Ok((first, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> ConfigFile {
        ConfigFile::parse(Path::new("daemon.toml"), text.to_owned()).unwrap()
    }

    #[test]
    fn the_sandbox_is_on_and_can_be_widened_and_switched_off() {
        let settings = |flags: &Flags, text| sandbox(flags, &parse(text)).unwrap();
        let defaults = settings(&Flags::default(), "");
        assert!(defaults.enabled && !defaults.fall_back && defaults.driver_caches.is_none());
        let flags = Flags {
            sandbox_read: vec!["/r".into()],
            ..Flags::default()
        };
        let text = "[sandbox]\nread = [\"/a\"]\nwrite = [\"/w\"]\ndriver_caches = \"private\"\n";
        let wide = settings(&flags, text);
        assert_eq!(wide.read, [PathBuf::from("/a"), "/r".into()]);
        assert_eq!(wide.write, [PathBuf::from("/w")]);
        assert_eq!(wide.driver_caches, Some(DriverCaches::Private));
        let off = Flags {
            no_sandbox: true,
            ..Flags::default()
        };
        assert!(!settings(&off, "").enabled);
        assert!(!settings(&Flags::default(), "[sandbox]\nenabled = false\n").enabled);
        let relative = parse("[sandbox]\nread = [\"a\"]\n");
        let error = sandbox(&Flags::default(), &relative)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("daemon.toml:2: path \"a\" is not absolute"),
            "{error}"
        );
        let text = "[sandbox]\ndriver_caches = \"x\"\n";
        let error = ConfigFile::parse(Path::new("daemon.toml"), text.to_owned()).unwrap_err();
        let expected = "daemon.toml:2: unknown variant `x`, expected `shared` or `private` in `sandbox.driver_caches`";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn users_are_one_or_a_range_that_is_long_enough() {
        let user = |text: &str| worker_user(&parse(text), 4).map_err(|error| error.to_string());
        assert_eq!(user(""), Ok(WorkerUser::Daemon));
        let named = user("[sessions]\nuser = \"causeway\"\ngroups = [\"gpu\"]\n").unwrap();
        let WorkerUser::Named { name, groups } = named else {
            panic!("{named:?}");
        };
        assert_eq!((name.as_str(), groups.must_exist), ("causeway", true));
        let range = user("[sessions]\nuid_range = \"200000-200003\"\n").unwrap();
        let WorkerUser::Range {
            first,
            count,
            groups,
        } = range
        else {
            panic!("{range:?}");
        };
        assert_eq!((first, count), (200_000, 4));
        assert_eq!(groups.names, DEVICE_GROUPS);
        for range in ["5", "9-8", "0-99", "x-y", "7-9", "1-4294967295"] {
            let text = format!("[sessions]\nuid_range = \"{range}\"\n");
            let error = user(&text).unwrap_err();
            assert!(error.starts_with("daemon.toml:2: "), "{error}");
        }
        assert!(user("[sessions]\nuser = \"a\"\nuid_range = \"9-99\"\n").is_err());
    }
}
