//! The two sides of every comparison: the same program with the native driver,
//! and with Causeway's in front of a daemon over that driver.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::mode::Mode;
use crate::options::{Carrier, Effort, Options};
use crate::process::{self, Finished};
use crate::{SetupError, io_error};

/// Set for every program and the daemon: PoCL's memory sizes would follow those of a
/// virtual machine that grows and shrinks meanwhile, and the two sides would differ.
pub(crate) const STEADY: [(&str, &str); 1] = [("POCL_MEMORY_LIMIT", "4")];

/// Which driver a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The node's own.
    Native,
    /// The node's own with one device, whatever the mode.
    NativeAlone,
    /// Causeway's.
    Causeway,
}

/// A program to run on either side.
pub(crate) struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    directory: Option<PathBuf>,
    limit: Option<Duration>,
}

impl Launch {
    /// The program, without arguments, under the ordinary time limit.
    pub(crate) fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            limit: None,
        }
    }

    /// Adds arguments.
    pub(crate) fn args<I: IntoIterator<Item = S>, S: Into<String>>(mut self, more: I) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    /// Sets a variable for the program.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Where the program runs; otherwise in the run's scratch directory.
    pub(crate) fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// A limit of its own.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// Where the parts lie, for who starts daemons and programs of its own.
pub(crate) struct Parts {
    /// `causewayd`.
    pub(crate) daemon: PathBuf,
    /// The directory whose `.icd` file names `libcauseway.so`.
    pub(crate) client_vendors: PathBuf,
    /// The native drivers' directory.
    pub(crate) native_vendors: PathBuf,
}

/// Both sides, ready to run programs.
pub(crate) struct Sides {
    native_vendors: PathBuf,
    causeway: Target,
    scratch: TempDir,
    limit: Duration,
    carrier: Carrier,
    // The client's `servers.toml`, where it needs one.
    configuration: Mutex<Option<PathBuf>>,
    /// See `--against-spec`.
    pub(crate) against_spec: bool,
    /// How much random suites do.
    pub(crate) effort: Effort,
    /// Where the programs' devices lie.
    pub(crate) mode: Mode,
    /// How many nodes there are, with a device each.
    pub(crate) nodes: usize,
    /// For programs on either side.
    variables: Vec<(String, String)>,
}

enum Target {
    /// `--self`: the native driver again.
    Native,
    /// Daemons of ours, one a node.
    Own {
        daemons: Vec<Daemon>,
        vendors: PathBuf,
    },
    /// `--server`; several with commas between them.
    Given { address: String, vendors: PathBuf },
}

impl Sides {
    /// Finds drivers, library and daemon. The daemon starts with the first program.
    pub(crate) fn open(options: &Options) -> Result<Self, SetupError> {
        let scratch = fresh_scratch()?;
        let native_vendors = match &options.native_vendors {
            Some(given) => given.clone(),
            None => native_only(scratch.path())?,
        };
        let causeway = if options.against_itself {
            Target::Native
        } else {
            let beside = build_beside(options)?;
            let library = options
                .library
                .clone()
                .unwrap_or_else(|| beside.join("libcauseway.so"));
            let vendors = vendors_of(&library, scratch.path())?;
            match &options.server {
                Some(address) => Target::Given {
                    address: address.clone(),
                    vendors,
                },
                None => {
                    let program = options
                        .daemon
                        .clone()
                        .unwrap_or_else(|| beside.join("causewayd"));
                    let logs = work_directory().join("logs");
                    let daemon = Daemon::new(program, native_vendors.clone(), logs);
                    Target::Own {
                        daemons: vec![daemon],
                        vendors,
                    }
                }
            }
        };
        Ok(Self {
            native_vendors,
            causeway,
            scratch,
            limit: options.limit(),
            carrier: options.carrier,
            configuration: Mutex::default(),
            against_spec: options.against_spec,
            effort: options.effort(),
            mode: Mode::Plain,
            nodes: 1,
            variables: Vec::new(),
        })
    }

    /// The same sides in a mode of several nodes: `None` where `--server` names too few. `span` is
    /// the library to preload. To be dropped before these.
    pub(crate) fn in_mode(
        &self,
        mode: Mode,
        nodes: usize,
        span: &Path,
    ) -> Result<Option<Self>, SetupError> {
        let Some(mut sides) = self.on_nodes(nodes)? else {
            return Ok(None);
        };
        sides.mode = mode;
        sides.variables = mode.variables(nodes);
        let span = span.to_string_lossy().into_owned();
        sides.variables.push(("LD_PRELOAD".to_owned(), span));
        Ok(Some(sides))
    }

    /// The same sides with so many nodes, and natively as many devices.
    pub(crate) fn on_nodes(&self, nodes: usize) -> Result<Option<Self>, SetupError> {
        let causeway = match &self.causeway {
            Target::Given { address, .. } if address.split(',').count() < nodes => return Ok(None),
            Target::Given { address, vendors } => Target::Given {
                address: address.clone(),
                vendors: vendors.clone(),
            },
            Target::Native => Target::Native,
            Target::Own { daemons, vendors } => Target::Own {
                daemons: (1..=nodes)
                    .filter_map(|number| Some(daemons.first()?.another(number)))
                    .collect(),
                vendors: vendors.clone(),
            },
        };
        Ok(Some(self.with(
            self.native_vendors.clone(),
            causeway,
            fresh_scratch()?,
            nodes,
        )))
    }

    fn with(
        &self,
        native_vendors: PathBuf,
        causeway: Target,
        scratch: TempDir,
        nodes: usize,
    ) -> Self {
        Self {
            native_vendors,
            causeway,
            scratch,
            limit: self.limit,
            carrier: self.carrier,
            configuration: Mutex::default(),
            against_spec: self.against_spec,
            effort: self.effort,
            mode: self.mode,
            nodes,
            variables: self.variables.clone(),
        }
    }

    /// The same sides over another native driver, with variables for who loads it: `None` where
    /// the daemon is not ours. To be dropped before these.
    pub(crate) fn over(
        &self,
        driver: &Path,
        variables: &[(&str, String)],
    ) -> Result<Option<Self>, SetupError> {
        let scratch = fresh_scratch()?;
        let native_vendors = vendors_of(driver, scratch.path())?;
        let causeway = match &self.causeway {
            Target::Given { .. } => return Ok(None),
            Target::Native => Target::Native,
            Target::Own { daemons, vendors } => Target::Own {
                // With a slash, for the loader takes a directory by it.
                daemons: (1..)
                    .zip(daemons)
                    .map(|(number, daemon)| {
                        let logs = scratch.path().join(format!("logs/node-{number}"));
                        daemon.over(with_slash(&native_vendors), logs, variables)
                    })
                    .collect(),
                vendors: vendors.clone(),
            },
        };
        Ok(Some(self.with(
            native_vendors,
            causeway,
            scratch,
            self.nodes,
        )))
    }

    /// Runs the program on one side.
    pub(crate) fn run(&self, side: Side, launch: &Launch) -> Result<Finished, SetupError> {
        let directory = launch.directory.as_deref().unwrap_or(self.scratch.path());
        let mode = match side {
            Side::NativeAlone => &[],
            _ => self.variables.as_slice(),
        };
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.arguments)
            .envs(STEADY)
            .envs(mode.iter().map(|(name, value)| (name, value)))
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .env_remove("CAUSEWAY_CONFIG")
            .env_remove("CAUSEWAY_SERVERS")
            .current_dir(directory);
        match (side, &self.causeway) {
            (Side::NativeAlone, _) => {
                command.env("OCL_ICD_VENDORS", with_slash(&self.native_vendors));
            }
            (Side::Native, _) | (Side::Causeway, Target::Native) => {
                command.env("OCL_ICD_VENDORS", with_slash(&self.native_vendors));
                if self.nodes > 1 {
                    command.env("POCL_DEVICES", ["pthread"].repeat(self.nodes).join(" "));
                }
            }
            (Side::Causeway, Target::Own { daemons, vendors }) => {
                let addresses: Result<Vec<_>, _> = daemons.iter().map(Daemon::address).collect();
                command.env("OCL_ICD_VENDORS", with_slash(vendors));
                self.configure(&mut command, &addresses?.join(","))?;
            }
            (Side::Causeway, Target::Given { address, vendors }) => {
                command.env("OCL_ICD_VENDORS", with_slash(vendors));
                self.configure(&mut command, address)?;
            }
        }
        process::run(&mut command, launch.limit.unwrap_or(self.limit))
            .map_err(io_error(format!("cannot run {}", launch.program.display())))
    }

    // Tells the client of the nodes.
    fn configure(&self, command: &mut Command, addresses: &str) -> Result<(), SetupError> {
        if self.carrier == Carrier::Direct {
            command.env("CAUSEWAY_SERVERS", addresses);
            return Ok(());
        }
        let mut configuration = self.configuration.lock();
        if configuration.is_none() {
            let servers = addresses.split(',').map(|address| {
                format!("[[server]]\naddress = \"{address}\"\ncarrier = \"grpc\"\n")
            });
            let file = self.scratch.path().join("servers.toml");
            fs::write(&file, servers.collect::<String>())
                .map_err(io_error(format!("cannot write {}", file.display())))?;
            *configuration = Some(file);
        }
        command.envs(configuration.iter().map(|file| ("CAUSEWAY_CONFIG", file)));
        Ok(())
    }

    /// Whether the second side is Causeway at all.
    pub(crate) fn is_causeway(&self) -> bool {
        !matches!(self.causeway, Target::Native)
    }

    /// The parts, where the daemon is ours to start.
    pub(crate) fn parts(&self) -> Option<Parts> {
        match &self.causeway {
            Target::Own { daemons, vendors } => Some(Parts {
                daemon: daemons.first()?.program().to_owned(),
                client_vendors: vendors.clone(),
                native_vendors: self.native_vendors.clone(),
            }),
            _ => None,
        }
    }

    /// How our daemon died, if it has.
    pub(crate) fn obituary(&self) -> Option<String> {
        match &self.causeway {
            Target::Own { daemons, .. } => daemons.iter().find_map(Daemon::obituary),
            _ => None,
        }
    }

    /// A fresh directory of the run; removed with it.
    pub(crate) fn fresh_directory(&self) -> Result<PathBuf, SetupError> {
        tempfile::Builder::new()
            .tempdir_in(self.scratch.path())
            .map(TempDir::keep)
            .map_err(io_error("no temporary directory"))
    }
}

/// The runner's own place under `target/`, or under the system's temporary
/// directory where the runner lies somewhere else.
pub(crate) fn work_directory() -> PathBuf {
    let beside = beside_runner();
    match beside.parent() {
        Some(target) if target.file_name() == Some(OsStr::new("target")) => {
            target.join("conformance")
        }
        _ => env::temp_dir().join("causeway-conformance"),
    }
}

/// Where the fake driver lies: beside the runner.
pub(crate) fn fake_driver() -> PathBuf {
    beside_runner().join("libfake_opencl.so")
}

/// The tool `causeway`: beside the runner.
pub(crate) fn tool() -> PathBuf {
    beside_runner().join("causeway")
}

fn beside_runner() -> PathBuf {
    let runner = env::current_exe().unwrap_or_default();
    runner.parent().unwrap_or(Path::new(".")).to_owned()
}

fn fresh_scratch() -> Result<TempDir, SetupError> {
    tempfile::Builder::new()
        .prefix("causeway-conformance-")
        .tempdir()
        .map_err(io_error("no temporary directory"))
}

/// Loaders take a directory by its trailing slash.
fn with_slash(directory: &Path) -> PathBuf {
    directory.join("")
}

/// The directory of library and daemon: the runner's. Run by cargo, brings them up
/// to date first, so that a stale daemon is never what gets tested.
fn build_beside(options: &Options) -> Result<PathBuf, SetupError> {
    let beside = beside_runner();
    let manifest = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    let parts = ["libcauseway.so", "causewayd"];
    let complete = parts.iter().all(|part| beside.join(part).exists());
    let given = options.library.is_some() && (options.daemon.is_some() || options.server.is_some());
    if given || !manifest.exists() || (complete && env::var_os("CARGO").is_none()) {
        return Ok(beside);
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args([
        "build",
        "--quiet",
        "--package",
        "causewayd",
        "--package",
        "causeway-icd",
        "--package",
        "causeway-devmgr",
        "--package",
        "fake-driver",
    ]);
    build.arg("--manifest-path").arg(manifest);
    if beside.file_name() == Some(OsStr::new("release")) {
        build.arg("--release");
    }
    let output = build.output().map_err(io_error("cannot run cargo"))?;
    if !output.status.success() {
        return Err(SetupError::Build {
            program: "causewayd and libcauseway.so".into(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    Ok(beside)
}

/// A directory with an `.icd` file that names the library.
pub(crate) fn vendors_of(library: &Path, scratch: &Path) -> Result<PathBuf, SetupError> {
    let library = fs::canonicalize(library)
        .map_err(|_| SetupError::Missing(format!("there is no {}", library.display())))?;
    let vendors = scratch.join("causeway-vendors");
    fs::create_dir(&vendors).map_err(io_error("cannot make the vendors directory"))?;
    fs::write(
        vendors.join("causeway.icd"),
        format!("{}\n", library.display()),
    )
    .map_err(io_error("cannot write causeway.icd"))?;
    Ok(vendors)
}

/// A directory with the system's drivers, but without an installed Causeway:
/// PoCL alone where it is, else all others.
fn native_only(scratch: &Path) -> Result<PathBuf, SetupError> {
    let vendors = scratch.join("native-vendors");
    fs::create_dir(&vendors).map_err(io_error("cannot make the vendors directory"))?;
    let system = Path::new("/etc/OpenCL/vendors");
    let mut drivers: Vec<(PathBuf, String)> = fs::read_dir(system)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new("icd")))
        .filter_map(|path| fs::read_to_string(&path).ok().map(|text| (path, text)))
        .filter(|(_, text)| !text.contains("libcauseway"))
        .collect();
    if drivers.iter().any(|(_, text)| text.contains("pocl")) {
        drivers.retain(|(_, text)| text.contains("pocl"));
    }
    if drivers.is_empty() {
        return Err(SetupError::Missing(format!(
            "no driver in {}; name a directory with --native-vendors",
            system.display()
        )));
    }
    for (path, text) in drivers {
        if let Some(name) = path.file_name() {
            fs::write(vendors.join(name), text).map_err(io_error("cannot copy an .icd file"))?;
        }
    }
    Ok(vendors)
}
