//! The two sides of every comparison: the same program with the native driver,
//! and with Causeway's in front of a daemon over that driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::managed::Cluster;
use crate::mode::Mode;
use crate::options::{Carrier, Effort, Options};
use crate::places::{self, beside_or, fresh_scratch, vendors_of, with_slash};
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
    /// The device manager's program, where there is to be one.
    pub(crate) manager: Option<PathBuf>,
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
    /// Daemons of ours, one a node, and who gives their devices out.
    Own {
        daemons: Vec<Daemon>,
        vendors: PathBuf,
        cluster: Option<Box<Cluster>>,
    },
    /// `--server`; several with commas between them.
    Given { address: String, vendors: PathBuf },
}

impl Target {
    /// The same with so many daemons of its own, each made like the first one, and a cluster of their own.
    fn anew(
        &self,
        nodes: usize,
        like: impl Fn(&Daemon, usize) -> Daemon,
    ) -> Result<Target, SetupError> {
        Ok(match self {
            Target::Native => Target::Native,
            Target::Given { address, vendors } => Target::Given {
                address: address.clone(),
                vendors: vendors.clone(),
            },
            Target::Own {
                daemons,
                vendors,
                cluster,
            } => {
                let cluster = cluster.as_ref().map(|of| of.another()).transpose()?;
                let daemon = |number| {
                    let daemon = like(daemons.first()?, number);
                    Some(daemon.joining(cluster.as_ref(), number))
                };
                Target::Own {
                    daemons: (1..=nodes).filter_map(daemon).collect(),
                    vendors: vendors.clone(),
                    cluster: cluster.map(Box::new),
                }
            }
        })
    }
}

impl Sides {
    /// Finds drivers, library and daemon. The daemon starts with the first program.
    pub(crate) fn open(options: &Options) -> Result<Self, SetupError> {
        let scratch = fresh_scratch()?;
        let native_vendors = match &options.native_vendors {
            Some(given) => given.clone(),
            None => places::native_only(scratch.path())?,
        };
        let causeway = if options.against_itself {
            Target::Native
        } else {
            let beside = places::build(options)?;
            let library = beside_or(&options.library, &beside, "libcauseway.so");
            let vendors = vendors_of(&library, scratch.path())?;
            match &options.server {
                Some(address) => Target::Given {
                    address: address.clone(),
                    vendors,
                },
                None => {
                    let program = beside_or(&options.daemon, &beside, "causewayd");
                    let logs = places::work_directory().join("logs");
                    let manager = beside_or(&options.devmgr, &beside, "causeway-devmgr");
                    let cluster = match options.managed {
                        true => Some(Box::new(Cluster::start(&manager)?)),
                        false => None,
                    };
                    let daemon = Daemon::new(program, native_vendors.clone(), logs);
                    Target::Own {
                        daemons: vec![daemon.joining(cluster.as_deref(), 1)],
                        vendors,
                        cluster,
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
            other => other.anew(nodes, |first, number| first.another(number))?,
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
        if matches!(self.causeway, Target::Given { .. }) {
            return Ok(None);
        }
        // With a slash, for the loader takes a directory by it.
        let drivers = with_slash(&native_vendors);
        let causeway = self.causeway.anew(self.nodes, |first, number| {
            let logs = scratch.path().join(format!("logs/node-{number}"));
            first.over(drivers.clone(), logs, variables)
        })?;
        Ok(Some(self.with(
            native_vendors,
            causeway,
            scratch,
            self.nodes,
        )))
    }

    /// The same sides with one daemon that reads this configuration file, and no device manager: `None` where the daemon
    /// is not ours. To be dropped before these.
    pub(crate) fn configured(&self, file: &Path) -> Result<Option<Self>, SetupError> {
        let Target::Own {
            daemons, vendors, ..
        } = &self.causeway
        else {
            return Ok(None);
        };
        let scratch = fresh_scratch()?;
        let logs = scratch.path().join("logs");
        let causeway = Target::Own {
            daemons: daemons
                .first()
                .map(|daemon| daemon.configured(file, logs))
                .into_iter()
                .collect(),
            vendors: vendors.clone(),
            cluster: None,
        };
        Ok(Some(self.with(
            self.native_vendors.clone(),
            causeway,
            scratch,
            1,
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
            .env_remove("CAUSEWAY_REQUEST")
            .env_remove("CAUSEWAY_LEASE")
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
            (
                Side::Causeway,
                Target::Own {
                    daemons,
                    vendors,
                    cluster,
                },
            ) => {
                let addresses: Result<Vec<_>, _> = daemons.iter().map(Daemon::address).collect();
                let addresses = addresses?;
                command.env("OCL_ICD_VENDORS", with_slash(vendors));
                match cluster {
                    None => self.configure(&mut command, &addresses.join(","))?,
                    Some(cluster) => {
                        self.configure_by(&mut command, || {
                            cluster.client_settings(daemons.len(), self.carrier)
                        })?;
                        cluster.until_free()?;
                    }
                }
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
        self.configure_by(command, || {
            let carrier = self.carrier.name();
            let servers = addresses.split(',').map(|address| {
                format!("[[server]]\naddress = \"{address}\"\ncarrier = \"{carrier}\"\n")
            });
            Ok(servers.collect())
        })
    }

    // The same by a `servers.toml`, whose text is asked for once.
    fn configure_by(
        &self,
        command: &mut Command,
        text: impl FnOnce() -> Result<String, SetupError>,
    ) -> Result<(), SetupError> {
        let mut configuration = self.configuration.lock();
        if configuration.is_none() {
            let file = self.scratch.path().join("servers.toml");
            fs::write(&file, text()?)
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
            Target::Own {
                daemons,
                vendors,
                cluster,
            } => Some(Parts {
                daemon: daemons.first()?.program().to_owned(),
                client_vendors: vendors.clone(),
                native_vendors: self.native_vendors.clone(),
                manager: cluster.as_ref().map(|cluster| cluster.program().to_owned()),
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
