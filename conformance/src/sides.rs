//! The two sides of every comparison: the same program with the native driver, and with Causeway's in
//! front of a daemon over that driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use causeway_cutter::Plan;
use parking_lot::Mutex;
use rustix::process::Pid;
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::managed::{Cluster, Manner};
use crate::mode::Mode;
use crate::options::{Carrier, Effort, Options, Survival};
use crate::places::{self, beside_or, fresh_scratch, vendors_of, with_slash};
use crate::process::{self, Finished};
use crate::{SetupError, io_error};

/// Variables for every program and the daemon. PoCL's memory sizes would otherwise follow those of a
/// virtual machine that grows and shrinks, and the two sides would differ.
pub(crate) const STEADY: [(&str, &str); 1] = [("POCL_MEMORY_LIMIT", "4")];

/// How long a program's sessions survive.
pub(crate) const RESUME: &str = "CAUSEWAY_RESUME";

/// The driver that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The node's own driver.
    Native,
    /// The node's own driver with one device, whatever the mode.
    NativeAlone,
    /// Causeway's driver.
    Causeway,
}

/// A program to run on either side.
pub(crate) struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    directory: Option<PathBuf>,
    limit: Option<Duration>,
    /// The client's servers instead of the runner's own addresses.
    servers: Option<String>,
}

impl Launch {
    /// Makes a launch of the program, without arguments, with the ordinary time limit.
    pub(crate) fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            limit: None,
            servers: None,
        }
    }

    /// Names the client's servers in another way than by the addresses of the daemons.
    pub(crate) fn servers(mut self, servers: String) -> Self {
        self.servers = Some(servers);
        self
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

    /// Sets the working directory. The default is the run's scratch directory.
    pub(crate) fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets a special time limit.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// Paths of the parts, for suites that start their own daemons and programs.
pub(crate) struct Parts {
    /// The program `causewayd`.
    pub(crate) daemon: PathBuf,
    /// The directory whose `.icd` file names `libcauseway.so`.
    pub(crate) client_vendors: PathBuf,
    /// The native drivers' directory.
    pub(crate) native_vendors: PathBuf,
    /// How nodes are managed, if the run uses device managers.
    pub(crate) manager: Option<Manner>,
}

/// Says who holds the programs' checkpoints. Programs that execute their commands again then ask for one each second.
pub(crate) const HOLD: &str = "CAUSEWAY_HOLD";
const OFTEN: &str = "[survival]\ninterval = \"1s\"\n";

/// Both sides, ready to run programs.
pub(crate) struct Sides {
    native_vendors: PathBuf,
    causeway: Target,
    scratch: TempDir,
    limit: Duration,
    carrier: Carrier,
    // The client's `servers.toml`, if it needs one.
    configuration: Mutex<Option<PathBuf>>,
    /// See `--against-spec`.
    pub(crate) against_spec: bool,
    /// The daemons' setting `together`, if their sessions have hosts.
    together: Option<String>,
    /// Whether several programs can lease the device at the same time.
    shares_devices: bool,
    /// Length of the random suites.
    pub(crate) effort: Effort,
    /// The settings of `survival`.
    pub(crate) survival: Survival,
    /// The place of the programs' devices.
    pub(crate) mode: Mode,
    /// Number of nodes, with one device each.
    pub(crate) nodes: usize,
    /// Variables for programs on either side.
    variables: Vec<(String, String)>,
}

enum Target {
    /// `--self`: the native driver again.
    Native,
    /// The runner's own daemons, one per node, and the device manager, if any.
    Own {
        daemons: Vec<Daemon>,
        vendors: PathBuf,
        cluster: Option<Box<Cluster>>,
    },
    /// `--server`: one address, or several with commas between them.
    Given { address: String, vendors: PathBuf },
}

impl Target {
    /// Makes the same target with `nodes` new daemons, each made by `like` from the first
    /// one, and a cluster of their own.
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
                        true => Some(Box::new(Cluster::start(&options.manner(manager))?)),
                        false => None,
                    };
                    let mut daemon = Daemon::new(program, native_vendors.clone(), logs)
                        .together(options.together())
                        .cut(options.plan());
                    if let (Some(domain), true) = (options.together(), options.managed) {
                        let file = scratch.path().join("daemon.toml");
                        fs::write(&file, Cluster::shares(domain))
                            .map_err(io_error(format!("cannot write {}", file.display())))?;
                        daemon = daemon.with_file(&file);
                    }
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
            together: options.together().map(str::to_owned),
            shares_devices: options.managed && options.together().is_some(),
            effort: options.effort(),
            survival: options.survival(),
            mode: Mode::Plain,
            nodes: 1,
            variables: Vec::new(),
        })
    }

    /// Makes the same sides in a mode with several nodes; `None` if `--server` names too few. `span` is
    /// the library to preload. The result must be dropped before `self`.
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

    /// Makes the same sides with this number of nodes, and as many native devices.
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

    /// Makes the same sides with daemons and a device manager of their own, so that this job's programs find
    /// their devices free. The result must be dropped before `self`.
    pub(crate) fn for_job(&self, suite: &str, job: usize) -> Result<Self, SetupError> {
        let vendors = self.native_vendors.clone();
        let causeway = self.causeway.anew(self.nodes, |first, number| {
            let logs = format!("logs/{suite}/job-{job}/node-{number}");
            first.over(vendors.clone(), places::work_directory().join(logs), &[])
        })?;
        let scratch = fresh_scratch()?;
        Ok(self.with(vendors, causeway, scratch, self.nodes))
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
            together: self.together.clone(),
            // Other daemons than the first offer whole devices.
            shares_devices: false,
            effort: self.effort,
            survival: self.survival,
            mode: self.mode,
            nodes,
            variables: self.variables.clone(),
        }
    }

    /// Makes the same sides over another native driver, with variables for its users. `None` if the
    /// daemon is given by `--server`. The result must be dropped before `self`.
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
        // The loader recognises a directory by its trailing slash.
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

    /// Makes the same sides for programs that use the first of these numbers of nodes, with the second number of
    /// daemons, each behind a forwarder that a test controls. The daemons read this configuration file, and have no
    /// spare workers. `driver` is another driver, with its settings.
    /// `None` if the daemon is given. The result must be dropped before `self`.
    pub(crate) fn forwarded(
        &self,
        name: &str,
        (nodes, daemons): (usize, usize),
        driver: Option<(&Path, &str)>,
        file: &Path,
    ) -> Result<Option<Self>, SetupError> {
        if !matches!(self.causeway, Target::Own { .. }) {
            return Ok(None);
        }
        let scratch = fresh_scratch()?;
        let vendors = match driver {
            Some((driver, _)) => with_slash(&vendors_of(driver, scratch.path())?),
            None => self.native_vendors.clone(),
        };
        let temporary = scratch.path().join("tmp");
        fs::create_dir(&temporary).map_err(io_error("cannot make a temporary directory"))?;
        let causeway = self.causeway.anew(daemons, |first, number| {
            let logs = places::work_directory().join(format!("logs/{name}/node-{number}"));
            let cache = scratch.path().join(format!("pocl-{number}"));
            let mut variables = vec![
                ("POCL_DEVICES", "pthread".to_owned()),
                ("POCL_CACHE_DIR", cache.display().to_string()),
                ("TMPDIR", temporary.display().to_string()),
            ];
            variables.extend(driver.map(|(_, text)| ("FAKE_OPENCL_CONFIG", text.to_owned())));
            let daemon = first.over(vendors.clone(), logs, &variables);
            let daemon = daemon.with_file(file).without_spares();
            daemon.cut(Some(Plan::Whole))
        })?;
        Ok(Some(self.with(vendors, causeway, scratch, nodes)))
    }

    /// The directory for temporary files of daemons that [`Self::forwarded`] made.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.scratch.path().join("tmp")
    }

    /// The runner's own daemons.
    pub(crate) fn daemons(&self) -> &[Daemon] {
        match &self.causeway {
            Target::Own { daemons, .. } => daemons,
            _ => &[],
        }
    }

    /// The device manager, if the run uses one.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        match &self.causeway {
            Target::Own { cluster, .. } => cluster.as_deref(),
            _ => None,
        }
    }

    /// Number of connections that forwarders have cut.
    pub(crate) fn cuts(&self) -> u64 {
        let forwarders = self.daemons().iter().filter_map(Daemon::forwarder);
        forwarders.map(|forwarder| forwarder.counts().cuts).sum()
    }

    /// Whether the connections of programs are cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.daemons().iter().any(Daemon::is_cut)
    }

    /// Makes the same sides with one daemon that reads this configuration file, and no device manager.
    /// `None` if the daemon is given by `--server`. The result must be dropped before `self`.
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
        self.run_watched(side, launch, |_| {})
    }

    /// As [`Self::run`]; calls `started` when the program runs.
    pub(crate) fn run_watched(
        &self,
        side: Side,
        launch: &Launch,
        started: impl FnOnce(Pid),
    ) -> Result<Finished, SetupError> {
        let mut command = self.command(side, launch)?;
        let limit = launch.limit.unwrap_or(self.limit);
        process::run_watched(&mut command, limit, started)
            .map_err(io_error(format!("cannot run {}", launch.program.display())))
    }

    fn command(&self, side: Side, launch: &Launch) -> Result<Command, SetupError> {
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
                command.env("OCL_ICD_VENDORS", with_slash(vendors));
                self.use_own(&mut command, launch, daemons, cluster.as_deref())?;
            }
            (Side::Causeway, Target::Given { address, vendors }) => {
                command.env("OCL_ICD_VENDORS", with_slash(vendors));
                self.configure(&mut command, address)?;
            }
        }
        Ok(command)
    }

    // Has the client use the daemons of this run.
    fn use_own(
        &self,
        command: &mut Command,
        launch: &Launch,
        daemons: &[Daemon],
        cluster: Option<&Cluster>,
    ) -> Result<(), SetupError> {
        if self.is_cut() {
            let has_own = launch.environment.iter().any(|(name, _)| name == RESUME);
            if !has_own {
                // A program that is killed leaves its session, and its lease, behind for this time.
                command.env(RESUME, "20s");
            }
            command.env("CAUSEWAY_SHARED_MEMORY", "0");
        }
        // Starts the daemons that do not run, also those of a cluster.
        let addresses: Result<Vec<_>, _> = daemons.iter().map(Daemon::address).collect();
        let own = addresses?.join(",");
        let Some(cluster) = cluster else {
            return self.configure(command, launch.servers.as_ref().unwrap_or(&own));
        };
        if self.shares_devices {
            return self.configure_by(command, || cluster.settings_of(1, self.carrier, 1));
        }
        self.configure_by(command, || match daemons.len() > self.nodes {
            // The other nodes are there for leases to move to.
            true => cluster.settings_of(daemons.len(), self.carrier, self.nodes),
            false => cluster.client_settings(daemons.len(), self.carrier),
        })?;
        cluster.until_free()
    }

    // Gives the client the nodes' addresses.
    fn configure(&self, command: &mut Command, addresses: &str) -> Result<(), SetupError> {
        let holds = std::env::var_os(HOLD).is_some();
        if self.carrier == Carrier::Direct && !holds {
            command.env("CAUSEWAY_SERVERS", addresses);
            return Ok(());
        }
        self.configure_by(command, || {
            let carrier = self.carrier.name();
            let servers = addresses.split(',').map(|address| {
                format!("[[server]]\naddress = \"{address}\"\ncarrier = \"{carrier}\"\n")
            });
            let survival = if holds { OFTEN } else { "" };
            Ok(servers.chain([survival.to_owned()]).collect())
        })
    }

    // Configures the client by a `servers.toml`, whose text is computed once.
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

    /// The daemons' setting `together`, if their sessions have hosts.
    pub(crate) fn together(&self) -> Option<&str> {
        self.together.as_deref()
    }

    /// Whether the programs lease shares of the device.
    pub(crate) fn shares_devices(&self) -> bool {
        self.shares_devices
    }

    /// Whether several programs can use the device at the same time.
    pub(crate) fn serves_several(&self) -> bool {
        self.shares_devices
            || !matches!(
                &self.causeway,
                Target::Own {
                    cluster: Some(_),
                    ..
                }
            )
    }

    /// Whether the second side is Causeway.
    pub(crate) fn is_causeway(&self) -> bool {
        !matches!(self.causeway, Target::Native)
    }

    /// Returns the paths of the parts, if the runner starts the daemon.
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
                manager: cluster.as_ref().map(|cluster| cluster.manner().clone()),
            }),
            _ => None,
        }
    }

    /// Returns how one of the runner's daemons died, if one has.
    pub(crate) fn obituary(&self) -> Option<String> {
        match &self.causeway {
            Target::Own { daemons, .. } => daemons.iter().find_map(Daemon::obituary),
            _ => None,
        }
    }

    /// Makes a new directory, which is removed with the run's scratch directory.
    pub(crate) fn fresh_directory(&self) -> Result<PathBuf, SetupError> {
        tempfile::Builder::new()
            .tempdir_in(self.scratch.path())
            .map(TempDir::keep)
            .map_err(io_error("no temporary directory"))
    }
}
