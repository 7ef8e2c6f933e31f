//! Settings of what sessions' processes may reach, and whose they are.

use std::path::PathBuf;

use causeway_serving::BadFile;
use toml::Spanned;

use super::file::ConfigFile;
use super::flags::Flags;

/// What sessions' processes may reach.
#[derive(Clone, Debug)]
pub struct SandboxSettings {
    /// Whether there is one.
    pub enabled: bool,
    /// Whether the daemon goes on without it where drivers show devices only then.
    pub fall_back: bool,
    /// More to read and run; absolute.
    pub read: Vec<PathBuf>,
    /// More to write; absolute.
    pub write: Vec<PathBuf>,
    /// Where processes have their folders; `None`: where temporary files are.
    pub directory: Option<PathBuf>,
    /// Who shares the drivers' caches; `None`: as the daemon serves.
    pub driver_caches: Option<DriverCaches>,
    /// TCP ports that they may connect to; `None`: any.
    pub connect_ports: Option<Vec<u16>>,
    /// More of the daemon's variables that they have: names, or beginnings that end with `*`.
    pub environment: Vec<String>,
}

/// Who shares what drivers keep of the programs that they have compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverCaches {
    /// All sessions of the daemon, and its user.
    Shared,
    /// Nobody.
    Private,
}

/// Whose sessions' processes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerUser {
    /// The daemon's user.
    Daemon,
    /// This one.
    Named {
        /// Its name.
        name: String,
        /// Groups that it has as well.
        groups: Groups,
    },
    /// Each has one of these numbers, and its group, to itself.
    Range {
        /// The first number.
        first: u32,
        /// How many there are.
        count: u32,
        /// Groups that all have as well.
        groups: Groups,
    },
}

/// Groups that may open the devices, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Their names.
    pub names: Vec<String>,
    /// Whether a group that this machine does not have is a mistake.
    pub must_exist: bool,
}

/// Those that distributions give devices to.
const DEVICE_GROUPS: [&str; 2] = ["video", "render"];

pub(super) fn sandbox(flags: &Flags, file: &ConfigFile) -> Result<SandboxSettings, BadFile> {
    let table = &file.table.sandbox;
    let driver_caches = match &table.driver_caches {
        None => None,
        Some(word) => Some(match word.get_ref().as_str() {
            "shared" => DriverCaches::Shared,
            "private" => DriverCaches::Private,
            other => {
                let message = format!("driver_caches is \"shared\" or \"private\", not {other:?}");
                return Err(file.wrong(word, &message));
            }
        }),
    };
    Ok(SandboxSettings {
        enabled: table.enabled.unwrap_or(true) && !flags.no_sandbox,
        fall_back: table.fall_back.unwrap_or(false),
        read: paths(file, table.read.as_deref(), &flags.sandbox_read)?,
        write: paths(file, table.write.as_deref(), &flags.sandbox_write)?,
        directory: match &table.directory {
            None => None,
            Some(path) => Some(absolute(file, path)?),
        },
        driver_caches,
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
    // A flag is about where it is typed.
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
        let message = format!("{:?} is no path from the root", path.get_ref());
        Err(file.wrong(path, &message))
    }
}

/// Whose `workers` processes at a time are.
pub(super) fn worker_user(file: &ConfigFile, workers: u32) -> Result<WorkerUser, BadFile> {
    let table = &file.table.sessions;
    let groups = match &table.groups {
        Some(names) => Groups {
            names: names.clone(),
            must_exist: true,
        },
        None => Groups {
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
        (Some(_), Some(range)) => Err(file.wrong(range, &"say user or uid_range, not both")),
    }
}

/// Reads `FIRST-LAST`: the first number, and how many there are.
fn uid_range(text: &str, workers: u32) -> Result<(u32, u32), String> {
    let ends = text.split_once('-').and_then(|(first, last)| {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        Some((number(first)?, number(last)?))
    });
    let Some((first, last)) = ends.filter(|(first, last)| first <= last) else {
        return Err(format!(
            "{text:?} is no range of user numbers: write FIRST-LAST, such as 2000000000-2000000127"
        ));
    };
    // The last but one is nobody's on no system; the last means "none".
    if first == 0 || last >= u32::MAX - 1 {
        return Err(format!("{text:?}: neither root nor \"none\" may be in it"));
    }
    let count = last - first + 1;
    if count < workers {
        return Err(format!(
            "{text:?} has {count} numbers; so many sessions and spare workers, a listing and a build need {workers}"
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
        for (text, said) in [
            (
                "[sandbox]\nread = [\"a\"]\n",
                "daemon.toml:2: \"a\" is no path",
            ),
            (
                "[sandbox]\ndriver_caches = \"x\"\n",
                "daemon.toml:2: driver_caches is",
            ),
        ] {
            let error = sandbox(&Flags::default(), &parse(text)).unwrap_err();
            assert!(error.to_string().starts_with(said), "{error}");
        }
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
