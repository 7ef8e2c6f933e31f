//! The places where configuration is searched, and the checks whether a file there can be trusted.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_security::check_settings;

use super::leasing::Variables;
use causeway_links::LinkMemory;

use super::remembered::{FILE as REMEMBERED, NodeMemory};
use super::{
    BadDuration, Compression, Hold, Problem, ServerSettings, Settings, TlsSettings, duration, file,
    list, wait,
};

const CONFIG: &str = "CAUSEWAY_CONFIG";
const SHARED_MEMORY: &str = "CAUSEWAY_SHARED_MEMORY";
const ISOLATED: &str = "CAUSEWAY_ISOLATED";
const COMPRESSION: &str = "CAUSEWAY_COMPRESSION";
const ANSWER_LIMIT: &str = "CAUSEWAY_ANSWER_LIMIT";
const RESUME: &str = "CAUSEWAY_RESUME";
const RESTART: &str = "CAUSEWAY_RESTART";
const REEXECUTE: &str = "CAUSEWAY_REEXECUTE";
const HOLD: &str = "CAUSEWAY_HOLD";
const DISCOVER: &str = "CAUSEWAY_DISCOVER";
const TOML: &str = "servers.toml";
const LIST: &str = "servers.list";
const SYSTEM: &str = "/etc/causeway";
/// Size limit of a configuration file, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// The environment that decides which files are read and what overrides them.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    pub(super) config: Option<PathBuf>,
    pub(super) servers: Option<OsString>,
    pub(super) shared_memory: Option<OsString>,
    pub(super) isolated: Option<OsString>,
    pub(super) compression: Option<OsString>,
    pub(super) answer_limit: Option<OsString>,
    pub(super) resume: Option<OsString>,
    pub(super) restart: Option<OsString>,
    pub(super) reexecute: Option<OsString>,
    pub(super) hold: Option<OsString>,
    pub(super) discover: Option<OsString>,
    /// TLS settings that override those of the files, for all servers.
    pub(super) tls: TlsSettings,
    /// The manager and the request to it.
    pub(super) leasing: Variables,
    pub(super) working_directory: Option<PathBuf>,
    pub(super) user: Option<PathBuf>,
    /// The user's folder for state.
    pub(super) state: Option<PathBuf>,
    pub(super) system: PathBuf,
    pub(super) uid: u32,
}

impl Environment {
    /// The process's environment, overridden by these variables. `None` where no server may be used (inside
    /// a daemon).
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
        // In a setuid program the user controls the environment, so only the system's files count.
        if getuid() != geteuid() || getgid() != getegid() {
            return Some(Environment {
                system,
                uid,
                ..Environment::default()
            });
        }
        Some(Environment {
            config: set(CONFIG).map(PathBuf::from),
            servers: set(list::VARIABLE),
            shared_memory: set(SHARED_MEMORY),
            isolated: set(ISOLATED),
            compression: set(COMPRESSION),
            answer_limit: set(ANSWER_LIMIT),
            resume: set(RESUME),
            restart: set(RESTART),
            reexecute: set(REEXECUTE),
            hold: set(HOLD),
            discover: set(DISCOVER),
            tls: TlsSettings::of(set),
            leasing: Variables::of(set),
            working_directory: Some(PathBuf::from(".")),
            user: user_folder(set),
            state: folder(set, "XDG_STATE_HOME", ".local/state"),
            system,
            uid,
        })
    }

    /// Reads the files and applies the environment.
    pub(super) fn load(&self) -> Settings {
        let mut settings = Settings::default();
        self.read_files(&mut settings);
        let mut settings = match &self.servers {
            Some(servers) => overridden(&servers.to_string_lossy(), settings),
            None => settings,
        };
        // The environment wins over `[tls]`, and a server's own keys win over both.
        let mut tls = self.tls.clone();
        tls.or(&settings.tls);
        for server in &mut settings.servers {
            server.tls.or(&tls);
        }
        settings.discovery.like.tls = tls.clone();
        let memory = self.state.as_ref().map(|folder| folder.join(REMEMBERED));
        settings.discovery.memory = memory.map(NodeMemory::at);
        settings.tls = tls;
        self.leasing
            .resolve(&mut settings, |path| match self.text_of(path, false) {
                Ok(text) => Ok(text),
                Err(Unread::Absent) => Err("file does not exist".to_owned()),
                Err(Unread::Not(message)) => Err(message),
            });
        // The manager, whose settings its nodes get, is known only now.
        let (resume, keep, restart) = (settings.resume, settings.keep, settings.restart);
        for server in all(&mut settings) {
            server.resume = server.resume.or(resume);
            server.keep = server.keep.or(keep);
            server.restart = server.restart.or(restart);
        }
        self.override_shared_memory(&mut settings);
        self.override_isolated(&mut settings);
        self.override_compression(&mut settings);
        self.override_answer_limit(&mut settings);
        self.override_resume(&mut settings);
        self.override_restart(&mut settings);
        self.override_survival(&mut settings);
        let discover = Environment::switch(&mut settings, DISCOVER, self.discover.as_ref());
        settings.discover = discover.unwrap_or(settings.discover);
        settings
    }

    /// Reads a variable that is `0` or `1`. Anything else is a problem, and overrides nothing.
    fn switch(settings: &mut Settings, name: &str, set: Option<&OsString>) -> Option<bool> {
        let set = set?;
        match set.as_encoded_bytes() {
            b"0" => Some(false),
            b"1" => Some(true),
            _ => {
                settings.problems.push(Problem {
                    origin: name.to_owned(),
                    line: None,
                    message: format!("invalid value `{}`; expected 0 or 1", set.display()),
                });
                None
            }
        }
    }

    fn override_shared_memory(&self, settings: &mut Settings) {
        let set = self.shared_memory.as_ref();
        if let Some(shared) = Environment::switch(settings, SHARED_MEMORY, set) {
            all(settings).for_each(|server| server.shared_memory = shared);
        }
    }

    fn override_isolated(&self, settings: &mut Settings) {
        let set = self.isolated.as_ref();
        if let Some(isolated) = Environment::switch(settings, ISOLATED, set) {
            all(settings).for_each(|server| server.isolated = isolated);
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
            Err(error) => settings.problems.push(Problem {
                origin: COMPRESSION.to_owned(),
                line: None,
                message: error.to_string(),
            }),
        }
    }

    fn override_answer_limit(&self, settings: &mut Settings) {
        let limit = Environment::time(settings, ANSWER_LIMIT, self.answer_limit.as_ref(), duration);
        if let Some(limit) = limit {
            all(settings).for_each(|server| server.answer_limit = limit);
        }
    }

    fn override_resume(&self, settings: &mut Settings) {
        if let Some(limit) = Environment::time(settings, RESUME, self.resume.as_ref(), wait) {
            all(settings).for_each(|server| server.resume = Some(limit));
        }
    }

    fn override_restart(&self, settings: &mut Settings) {
        let set = self.restart.as_ref();
        if let Some(limit) = Environment::time(settings, RESTART, set, wait) {
            all(settings).for_each(|server| server.restart = Some(limit));
        }
    }

    fn override_survival(&self, settings: &mut Settings) {
        let set = self.reexecute.as_ref();
        if let Some(reexecute) = Environment::switch(settings, REEXECUTE, set) {
            settings.survival.reexecute = reexecute;
        }
        match self
            .hold
            .as_ref()
            .map(|of| Hold::read(&of.to_string_lossy()))
        {
            None => {}
            Some(Ok(hold)) => settings.survival.hold = hold,
            Some(Err(error)) => settings.problems.push(Problem {
                origin: HOLD.to_owned(),
                line: None,
                message: error.to_string(),
            }),
        }
        let survival = settings.survival;
        all(settings).for_each(|server| server.survival = survival);
    }

    /// Reads a variable that is a duration. Anything else is a problem, and overrides nothing.
    fn time(
        settings: &mut Settings,
        name: &str,
        set: Option<&OsString>,
        read: fn(&str) -> Result<Duration, BadDuration>,
    ) -> Option<Duration> {
        match read(&set?.to_string_lossy()) {
            Ok(time) => Some(time),
            Err(error) => {
                settings.problems.push(Problem {
                    origin: name.to_owned(),
                    line: None,
                    message: error.to_string(),
                });
                None
            }
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

    // A file or directory that CAUSEWAY_CONFIG names must exist.
    fn read_named(&self, config: &Path, settings: &mut Settings) {
        let found = if config.is_dir() {
            self.read_directory(config, false, settings)
        } else {
            self.read_file(config, false, settings)
        };
        if !found {
            let message = format!(
                "{} does not exist; correct CAUSEWAY_CONFIG",
                config.display()
            );
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

    // Returns whether the file exists, even if it cannot be used.
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
                // An untrusted file in the working directory must not hide the user's own files.
                !suspicious
            }
        }
    }

    fn text_of(&self, path: &Path, suspicious: bool) -> Result<String, Unread> {
        let file = open(path)?;
        let metadata = file.metadata().map_err(|error| Unread::from(&error))?;
        if suspicious && !(metadata.uid() == self.uid || metadata.uid() == 0) {
            return Err(Unread::Not(
                "file ignored: it belongs to another user; change its owner".to_owned(),
            ));
        }
        if suspicious && metadata.mode() & 0o022 != 0 {
            return Err(Unread::Not(
                "file ignored: other users can write it; run chmod go-w".to_owned(),
            ));
        }
        check_settings(path).map_err(|bad| Unread::Not(bad.problem().to_owned()))?;
        if metadata.len() > MOST_BYTES {
            return Err(Unread::Not(format!(
                "file ignored: it is larger than {MOST_BYTES} bytes"
            )));
        }
        let mut text = String::new();
        match file.take(MOST_BYTES).read_to_string(&mut text) {
            Ok(_) => Ok(text),
            Err(error) => Err(Unread::from(&error)),
        }
    }
}

/// The user's folder for configuration.
fn user_folder(set: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    folder(set, "XDG_CONFIG_HOME", ".config")
}

/// One of the user's folders: in the folder of this variable, else at this place in the user's home.
fn folder(
    set: impl Fn(&str) -> Option<OsString>,
    variable: &str,
    in_home: &str,
) -> Option<PathBuf> {
    let home = || set("HOME").map(|home| Path::new(&home).join(in_home));
    let folder = set(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(home);
    folder.map(|folder| folder.join("causeway"))
}

/// The file into which the user's own servers are written: the one that `CAUSEWAY_CONFIG` names, else `servers.toml` in the
/// user's folder. `None`: there is no such folder.
#[must_use]
pub fn own_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let named = set(CONFIG).map(PathBuf::from);
    named.or_else(|| Some(user_folder(set)?.join(TOML)))
}

/// This machine's file of figures of measured links, beside that of remembered nodes. `None`: the user has no folder for state.
#[must_use]
pub fn link_memory() -> Option<LinkMemory> {
    let state = Environment::of_process(&[])?.state?;
    Some(LinkMemory::of_programs(&state))
}

/// All settings that apply to data connections: those of the servers, those of the manager for its nodes, and those of
/// nodes that are found.
fn all(settings: &mut Settings) -> impl Iterator<Item = &mut ServerSettings> {
    let found = std::iter::once(&mut settings.discovery.like);
    settings
        .servers
        .iter_mut()
        .chain(&mut settings.manager)
        .chain(found)
}

enum Unread {
    Absent,
    Not(String),
}

impl From<&io::Error> for Unread {
    fn from(error: &io::Error) -> Unread {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unread::Absent,
            _ => Unread::Not(format!("file cannot be read: {error}")),
        }
    }
}

// Opening anything but a regular file could block or have side effects.
fn open(path: &Path) -> Result<File, Unread> {
    let metadata = fs::metadata(path).map_err(|error| Unread::from(&error))?;
    if !metadata.is_file() {
        return Err(Unread::Not(
            "file ignored: it is not a regular file".to_owned(),
        ));
    }
    File::open(path).map_err(|error| Unread::from(&error))
}

// The variable's servers, each with the settings that the files have for it.
fn overridden(servers: &str, files: Settings) -> Settings {
    let mut settings = Settings {
        servers: Vec::new(),
        // The variable names all servers.
        discover: false,
        ..files
    };
    list::read_variable(servers, &mut settings);
    for server in std::mem::take(&mut settings.servers) {
        let known = |known: &&ServerSettings| known.is_at(&server.address);
        let server = files.servers.iter().find(known).cloned().unwrap_or(server);
        // The variable may name several addresses of one server.
        if !settings.servers.iter().any(|of| of.is_at(&server.address)) {
            settings.servers.push(server);
        }
    }
    settings.origins = vec![list::VARIABLE.to_owned()];
    settings
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
