//! Where configuration is looked for, and whether it may be believed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::leasing::Variables;
use super::security::FILES;
use super::{Compression, Problem, ServerSettings, Settings, TlsSettings, file, list};

const CONFIG: &str = "CAUSEWAY_CONFIG";
const SHARED_MEMORY: &str = "CAUSEWAY_SHARED_MEMORY";
const COMPRESSION: &str = "CAUSEWAY_COMPRESSION";
const TOML: &str = "servers.toml";
const LIST: &str = "servers.list";
const SYSTEM: &str = "/etc/causeway";
/// No configuration is larger.
const MOST_BYTES: u64 = 1 << 20;

/// What decides which files are read.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    pub(super) config: Option<PathBuf>,
    pub(super) servers: Option<OsString>,
    pub(super) shared_memory: Option<OsString>,
    pub(super) compression: Option<OsString>,
    /// What goes for all servers whatever the files say.
    pub(super) tls: TlsSettings,
    /// Which manager, and what is asked of it.
    pub(super) leasing: Variables,
    pub(super) working_directory: Option<PathBuf>,
    pub(super) user: Option<PathBuf>,
    pub(super) system: PathBuf,
    pub(super) uid: u32,
}

impl Environment {
    /// The process's own, and before it these variables; `None` where there must not be any server.
    pub(super) fn of_process(variables: &[(&str, OsString)]) -> Option<Environment> {
        use rustix::process::{getegid, geteuid, getgid, getuid};
        let given = |name: &str| variables.iter().find(|(given, _)| *given == name);
        let set = |name: &str| {
            let value = given(name).map(|(_, value)| value.clone());
            let value = value.or_else(|| std::env::var_os(name));
            value.filter(|value| !value.is_empty())
        };
        if set(causeway_proto::RECURSION_GUARD).is_some() {
            return None;
        }
        let system = PathBuf::from(SYSTEM);
        let uid = geteuid().as_raw();
        if getuid() != geteuid() || getgid() != getegid() {
            return Some(Environment {
                system,
                uid,
                ..Environment::default()
            });
        }
        let home = || set("HOME").map(|home| Path::new(&home).join(".config"));
        let user = set("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(home);
        Some(Environment {
            config: set(CONFIG).map(PathBuf::from),
            servers: set(list::VARIABLE),
            shared_memory: set(SHARED_MEMORY),
            compression: set(COMPRESSION),
            tls: tls_of(set),
            leasing: Variables::of(set),
            working_directory: Some(PathBuf::from(".")),
            user: user.map(|user| user.join("causeway")),
            system,
            uid,
        })
    }

    /// Reads what there is.
    pub(super) fn load(&self) -> Settings {
        let mut settings = Settings::default();
        self.read_files(&mut settings);
        let mut settings = match &self.servers {
            Some(servers) => overridden(&servers.to_string_lossy(), settings),
            None => settings,
        };
        let mut tls = self.tls.clone();
        tls.or(&settings.tls);
        for server in &mut settings.servers {
            server.tls.or(&tls);
        }
        settings.tls = tls;
        self.leasing
            .resolve(&mut settings, |path| match self.text_of(path, false) {
                Ok(text) => Ok(text),
                Err(Unread::Absent) => Err("is not there".to_owned()),
                Err(Unread::Not(message)) => Err(message),
            });
        self.override_shared_memory(&mut settings);
        self.override_compression(&mut settings);
        settings
    }

    fn override_shared_memory(&self, settings: &mut Settings) {
        let shared = match self
            .shared_memory
            .as_ref()
            .map(|set| set.as_encoded_bytes())
        {
            None => return,
            Some(b"0") => false,
            Some(b"1") => true,
            Some(_) => {
                return settings.problems.push(Problem {
                    origin: SHARED_MEMORY.to_owned(),
                    line: None,
                    message: "neither 0 nor 1".to_owned(),
                });
            }
        };
        for server in all(settings) {
            server.shared_memory = shared;
        }
    }

    fn override_compression(&self, settings: &mut Settings) {
        let Some(set) = &self.compression else { return };
        match Compression::named(&set.to_string_lossy()) {
            Ok(compression) => {
                for server in all(settings) {
                    server.compression = compression;
                }
            }
            Err(message) => settings.problems.push(Problem {
                origin: COMPRESSION.to_owned(),
                line: None,
                message,
            }),
        }
    }

    fn read_files(&self, settings: &mut Settings) {
        if let Some(config) = &self.config {
            return self.read_named(config, settings);
        }
        let working = self.working_directory.as_ref().map(|path| (path, true));
        let user = self.user.as_ref().map(|path| (path, false));
        for (place, suspicious) in working
            .into_iter()
            .chain(user)
            .chain([(&self.system, false)])
        {
            if self.read_directory(place, suspicious, settings) {
                return;
            }
        }
    }

    // What CAUSEWAY_CONFIG names must be there.
    fn read_named(&self, config: &Path, settings: &mut Settings) {
        let found = if config.is_dir() {
            self.read_directory(config, false, settings)
        } else {
            self.read_file(config, false, settings)
        };
        if !found {
            let message = format!("{} is not there", config.display());
            settings.problems.push(Problem {
                origin: CONFIG.to_owned(),
                line: None,
                message,
            });
        }
    }

    fn read_directory(&self, place: &Path, suspicious: bool, settings: &mut Settings) -> bool {
        let toml = self.read_file(&place.join(TOML), suspicious, settings);
        let list = self.read_file(&place.join(LIST), suspicious, settings);
        toml || list
    }

    // Whether the file is there (readable or not).
    fn read_file(&self, path: &Path, suspicious: bool, settings: &mut Settings) -> bool {
        let origin = path.strip_prefix(".").unwrap_or(path).display().to_string();
        match self.text_of(path, suspicious) {
            Ok(text) => {
                if path
                    .extension()
                    .is_some_and(|extension| extension == "list")
                {
                    list::read(&text, &origin, settings);
                } else {
                    let folder = path.parent().unwrap_or(path);
                    file::read(&text, &origin, folder, settings);
                }
                settings.origins.push(origin);
                true
            }
            Err(Unread::Absent) => false,
            Err(Unread::Not(message)) => {
                settings.problems.push(Problem {
                    origin,
                    line: None,
                    message,
                });
                // A file that is not believed must not hide the user's own.
                !suspicious
            }
        }
    }

    fn text_of(&self, path: &Path, suspicious: bool) -> Result<String, Unread> {
        let file = open(path)?;
        let metadata = file.metadata().map_err(|error| Unread::from(&error))?;
        if suspicious && !(metadata.uid() == self.uid || metadata.uid() == 0) {
            return Err(Unread::Not(
                "not used: it belongs to another user".to_owned(),
            ));
        }
        if suspicious && metadata.mode() & 0o022 != 0 {
            return Err(Unread::Not("not used: others can write it".to_owned()));
        }
        if metadata.len() > MOST_BYTES {
            return Err(Unread::Not(format!(
                "not used: larger than {MOST_BYTES} bytes"
            )));
        }
        let mut text = String::new();
        match file.take(MOST_BYTES).read_to_string(&mut text) {
            Ok(_) => Ok(text),
            Err(error) => Err(Unread::from(&error)),
        }
    }
}

/// Whoever large transfers may go to: the servers, and the nodes that a manager gives.
fn all(settings: &mut Settings) -> impl Iterator<Item = &mut ServerSettings> {
    settings.servers.iter_mut().chain(&mut settings.manager)
}

fn tls_of(set: impl Fn(&str) -> Option<OsString>) -> TlsSettings {
    let mut tls = TlsSettings::default();
    for (key, variable) in FILES {
        if let (Some(value), Some(file)) = (set(variable), tls.file(key)) {
            *file = Some(value.into());
        }
    }
    tls
}

enum Unread {
    Absent,
    Not(String),
}

impl From<&io::Error> for Unread {
    fn from(error: &io::Error) -> Unread {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unread::Absent,
            _ => Unread::Not(format!("cannot be read: {error}")),
        }
    }
}

// Opening anything but a regular file could block or do harm.
fn open(path: &Path) -> Result<File, Unread> {
    let metadata = fs::metadata(path).map_err(|error| Unread::from(&error))?;
    if !metadata.is_file() {
        return Err(Unread::Not("not used: it is not a regular file".to_owned()));
    }
    File::open(path).map_err(|error| Unread::from(&error))
}

// The variable's servers, with what the files say about them.
fn overridden(servers: &str, files: Settings) -> Settings {
    let mut settings = Settings {
        problems: files.problems,
        tls: files.tls,
        const_is_read: files.const_is_read,
        draft: files.draft,
        ..Settings::default()
    };
    list::read_variable(servers, &mut settings);
    for server in &mut settings.servers {
        if let Some(known) = files
            .servers
            .iter()
            .find(|known| known.address == server.address)
        {
            *server = known.clone();
        }
    }
    settings.origins = vec![list::VARIABLE.to_owned()];
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Carrier;
    use std::os::unix::fs::PermissionsExt;

    struct Places {
        root: tempfile::TempDir,
        environment: Environment,
    }

    impl Places {
        fn new() -> Places {
            let root = tempfile::tempdir().unwrap();
            let at = |name: &str| {
                let path = root.path().join(name);
                fs::create_dir(&path).unwrap();
                path
            };
            let environment = Environment {
                working_directory: Some(at("cwd")),
                user: Some(at("user")),
                system: at("system"),
                uid: rustix::process::geteuid().as_raw(),
                ..Environment::default()
            };
            Places { root, environment }
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.root.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            path
        }

        fn addresses(&self) -> Vec<String> {
            self.environment
                .load()
                .servers
                .iter()
                .map(|server| server.address.to_string())
                .collect()
        }
    }

    // `etc/servers.toml` as it is, and with its examples.
    #[test]
    fn the_sample_is_understood() {
        let sample = include_str!("../../../etc/servers.toml");
        let places = Places::new();
        places.write("system/servers.toml", sample);
        assert_eq!(places.addresses(), ["127.0.0.1:7079"]);
        let plain = places.environment.load();
        assert_eq!(
            (plain.problems, plain.lease.is_none()),
            (Vec::new(), true),
            "as it is"
        );
        places.write("system/servers.toml", &sample.replace("#: ", ""));
        let settings = places.environment.load();
        assert_eq!(settings.problems, []);
        assert_eq!(settings.servers.len(), 2);
        assert!(settings.tls.ca.is_some() && settings.lease.is_some());
    }

    #[test]
    fn the_variable_overrides_whether_memory_is_shared() {
        let mut places = Places::new();
        let two =
            "[[server]]\naddress = \"a\"\nshared_memory = false\n[[server]]\naddress = \"b\"\n";
        places.write("system/servers.toml", two);
        for (set, expected, problems) in [
            (None, [false, true], 0),
            (Some("0"), [false, false], 0),
            (Some("1"), [true, true], 0),
            (Some("off"), [false, true], 1),
        ] {
            places.environment.shared_memory = set.map(OsString::from);
            let settings = places.environment.load();
            let shared: Vec<_> = settings.servers.iter().map(|s| s.shared_memory).collect();
            assert_eq!(shared, expected, "{set:?}");
            assert_eq!(settings.problems.len(), problems, "{set:?}");
        }
    }

    #[test]
    fn the_variable_overrides_what_is_compressed() {
        let mut places = Places::new();
        let two =
            "[[server]]\naddress = \"a\"\ncompression = \"lz4\"\n[[server]]\naddress = \"b\"\n";
        places.write("system/servers.toml", two);
        let (off, lz4) = (Compression::Off, Compression::Lz4);
        for (set, expected, problems) in [
            (None, [lz4, off], 0),
            (Some("lz4"), [lz4, lz4], 0),
            (Some("off"), [off, off], 0),
            (Some("1"), [lz4, off], 1),
        ] {
            places.environment.compression = set.map(OsString::from);
            let settings = places.environment.load();
            let found: Vec<_> = settings.servers.iter().map(|s| s.compression).collect();
            assert_eq!(found, expected, "{set:?}");
            assert_eq!(settings.problems.len(), problems, "{set:?}");
        }
    }

    #[test]
    fn who_to_believe_is_said_by_the_server_the_environment_and_the_file() {
        let mut places = Places::new();
        let text = "[tls]\nca = \"ca\"\ncertificate = \"c\"\nkey = \"k\"\n[[server]]\naddress = \"a\"\n\
                    [[server]]\naddress = \"b\"\nca = \"/own\"\ncertificate = \"/c\"\nkey = \"/k\"\n";
        places.write("system/servers.toml", text);
        places.environment.tls.ca = Some("/environment".into());
        places.environment.servers = Some("a,b,c".into());
        let settings = places.environment.load();
        assert_eq!(settings.problems, []);
        let said: Vec<_> = settings.servers.iter().map(|server| &server.tls).collect();
        let system = &places.environment.system;
        for (tls, ca, key) in [
            (said[0], "/environment".into(), system.join("k")),
            (said[1], PathBuf::from("/own"), "/k".into()),
            (said[2], "/environment".into(), system.join("k")),
        ] {
            assert_eq!((tls.ca.as_ref(), tls.key.as_ref()), (Some(&ca), Some(&key)));
        }
        assert_eq!(settings.tls.certificate, Some(system.join("c")));
    }

    #[test]
    fn nothing_configured_says_nothing() {
        assert_eq!(Places::new().environment.load(), Settings::default());
    }

    #[test]
    fn the_first_place_that_says_anything_counts() {
        let mut places = Places::new();
        places.write("system/servers.list", "system\n");
        assert_eq!(places.addresses(), ["system:7079"]);
        places.write("user/servers.toml", "[[server]]\naddress = \"user\"\n");
        places.write("user/servers.list", "user2\n");
        assert_eq!(places.addresses(), ["user:7079", "user2:7079"]);
        places.write("cwd/servers.list", "here\n");
        assert_eq!(places.addresses(), ["here:7079"]);
        places.environment.config = Some(places.write("named.list", "named\n"));
        assert_eq!(places.addresses(), ["named:7079"]);
        places.environment.config = Some(places.root.path().join("system"));
        assert_eq!(places.addresses(), ["system:7079"]);
    }

    #[test]
    fn a_named_file_must_be_there() {
        let mut places = Places::new();
        places.write("user/servers.list", "user\n");
        places.environment.config = Some(PathBuf::from("/nowhere/servers.toml"));
        let settings = places.environment.load();
        assert_eq!(settings.servers, []);
        assert_eq!(
            settings.problems[0].to_string(),
            "CAUSEWAY_CONFIG: /nowhere/servers.toml is not there"
        );
    }

    #[test]
    fn a_file_in_the_working_directory_that_others_can_write_is_passed_over() {
        let mut places = Places::new();
        places.write("user/servers.list", "user\n");
        let path = places.write("cwd/servers.toml", "[[server]]\naddress = \"evil\"\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let settings = places.environment.load();
        assert_eq!(settings.servers[0].address.as_str(), "user:7079");
        assert!(
            settings.problems[0]
                .to_string()
                .contains("others can write it")
        );
        // As root's files are believed, another user can only be tried with one that is not root's.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            places.environment.uid = 54321;
            assert!(
                places.environment.load().problems[0]
                    .to_string()
                    .contains("another user")
            );
        }
    }

    #[test]
    fn the_variable_overrides_and_keeps_what_the_file_says() {
        let mut places = Places::new();
        places.write(
            "user/servers.toml",
            "[[server]]\naddress = \"a\"\ncarrier = \"grpc\"\n[[server]]\naddress = \"b\"\n",
        );
        places.environment.servers = Some("c,a".into());
        let settings = places.environment.load();
        assert_eq!(places.addresses(), ["c:7079", "a:7079"]);
        assert_eq!(settings.servers[1].carrier, Carrier::Grpc);
        assert_eq!(settings.origins, ["CAUSEWAY_SERVERS"]);
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let places = Places::new();
        fs::create_dir(places.root.path().join("user/servers.toml")).unwrap();
        assert!(
            places.environment.load().problems[0]
                .to_string()
                .contains("not a regular file")
        );
    }
}
