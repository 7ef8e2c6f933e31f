//! `causeway run -- PROGRAM…`: runs an unchanged program with Causeway's platform.
//!
//! If devices of a device manager are requested, they are leased first. The program and its children use
//! this lease (`CAUSEWAY_LEASE`). The tool keeps it while the program runs, and releases it after that.
//! If nothing is configured, a private daemon for this machine's own OpenCL runs as long as the program.
//! A configuration without any usable entry is an error. The tool ends like the program: with its exit
//! code, or by its signal.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use causeway::config::{FILE_VARIABLES, Settings, TlsSettings};
use causeway_devmgr::environment::Vendors;
use causeway_devmgr::installation;
use causeway_devmgr::private_daemon::{PrivateDaemon, StartError};
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::{mpsc, oneshot};

use crate::connection::block_on;
use crate::context::Context;
use crate::failure::{Failure, Outcome, USAGE};
use crate::json::RunEvent;
use crate::lease_guard::LeaseGuard;
use crate::progress::Progress;
use crate::request_options::{self, RequestOptions, Terms};
use crate::say::say;
use crate::session_reports::SessionReports;
use crate::signals::{self, Came, end_as, end_by};
use crate::trace_file::{Format, TraceFile};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write a timeline to this file, as `causeway trace` does; Chrome's format if it ends in .json
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    program: Program,
}

/// The program that runs, and the devices that it gets.
#[derive(Debug, clap::Args)]
pub(crate) struct Program {
    /// Show the system's own platforms to the program too
    #[arg(long)]
    with_local: bool,
    /// Use these servers (host:port, separated by commas) instead of the configured ones
    #[arg(long, value_name = "LIST")]
    servers: Option<OsString>,
    /// Also use nodes that announce themselves on this machine's networks (CAUSEWAY_DISCOVER=1)
    #[arg(long)]
    discover: bool,
    /// Execute the program's commands again if a node's process dies or a leased node is lost;
    /// CAUSEWAY_REEXECUTE=1
    #[arg(long)]
    survive: bool,
    /// Lease these devices first, such as '2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB'; overrides
    /// CAUSEWAY_REQUEST
    #[arg(long, value_name = "DEVICES", help_heading = "Device manager")]
    request: Option<String>,
    /// Wait in the queue until the devices are free
    #[arg(long, help_heading = "Device manager")]
    wait: bool,
    #[command(flatten, next_help_heading = "Device manager")]
    terms: Terms,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// Exit code if the tool itself fails. `env`, `timeout` and others use this code and the two for programs
/// below.
const FAILED: u8 = 125;
/// Exit code if there is no device, so that the program was not started.
const NO_DEVICE: u8 = 1;
/// Exit code if the program exists and cannot be started.
const NOT_STARTED: u8 = 126;
/// Exit code if the program does not exist.
const NOT_FOUND: u8 = 127;

/// Time after which another signal ends the wait for the release.
const IMPATIENCE: Duration = Duration::from_millis(500);

/// The cure if no devices are requested.
const ASK: &str = "--request '1' requests any one device; CAUSEWAY_REQUEST or [[request]] in servers.toml makes a \
                   request the default";

/// How a run ended.
enum RunEnd {
    Program(ExitStatus),
    /// The tool got a signal before the program was started.
    Signal(i32),
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let trace = arguments.trace.as_deref();
    let trace = trace.map(|path| (path, Format::of(path)));
    run_program(&arguments.program, trace, context)
}

/// Runs the program, and writes a trace of it to a file.
pub(crate) fn run_program(
    program: &Program,
    trace: Option<(&Path, Format)>,
    context: &Context,
) -> Outcome {
    let begin = |(path, format)| TraceFile::begin(path, format);
    let trace = trace.map(begin).transpose();
    let trace = trace.map_err(|failure| failure.code(FAILED))?;
    let end = start(program, trace.as_ref(), context)?;
    if let Some(trace) = trace {
        trace.end(context.json());
    }
    match end {
        RunEnd::Program(status) => Ok(end_as(status)),
        RunEnd::Signal(number) => Ok(end_by(number)),
    }
}

impl Program {
    /// The program's name, as it was given.
    pub(crate) fn name(&self) -> &OsStr {
        &self.command[0]
    }
}

fn start(
    arguments: &Program,
    trace: Option<&TraceFile>,
    context: &Context,
) -> Result<RunEnd, Failure> {
    check_name(arguments)?;
    let failed = |error: &dyn std::error::Error| Failure::new(error.to_string()).code(FAILED);
    let library = installation::library().map_err(|error| failed(&error))?;
    let settings = settings(arguments, context);
    let options = options(arguments, &settings)?;
    let vendors = Vendors::new(&library, arguments.with_local).map_err(|error| {
        Failure::new(format!("the folder of .icd files cannot be made: {error}")).code(FAILED)
    })?;
    let mut command = command(arguments, trace, context, &vendors);
    // The daemon runs until this function returns.
    let _private = match &options {
        Some(_) => None,
        None => private_daemon(&settings, &vendors, &mut command)?,
    };
    // Before devices are requested, so that no signal can end the tool with a lease.
    let signals = signals::listen().map_err(|error| failed(&error))?;
    block_on(async {
        // The library logs what it would report, so only machines need the reports.
        let reports = match context.json() {
            true => reports(&vendors, &mut command)?,
            false => SessionReports::none(),
        };
        let running = ProgramInputs { signals, reports };
        match options {
            None => attend(command, None, running, Progress::new(context.json())).await,
            Some(options) => lease(arguments, context, &settings, &options, command, running).await,
        }
    })
    .map_err(|failure| failure.or_code(FAILED))
}

fn check_name(arguments: &Program) -> Result<(), Failure> {
    let name = arguments.command[0].to_str();
    let Some(option) = name.filter(|word| word.starts_with('-')) else {
        return Ok(());
    };
    let failure = Failure::new(format!("unknown option {option}"));
    Err(failure.code(USAGE).cure(format!(
        "causeway run --help names them; a program of that name is ./{option}"
    )))
}

/// The program's command, in an environment with Causeway's platform.
fn command(
    arguments: &Program,
    trace: Option<&TraceFile>,
    context: &Context,
    vendors: &Vendors,
) -> Command {
    let mut command = Command::new(&arguments.command[0]);
    command
        .args(&arguments.command[1..])
        .envs(context.variables())
        .envs(whole_paths(context))
        .env("OCL_ICD_VENDORS", vendors.path())
        // A Khronos loader would load the drivers that this variable names in addition.
        .env_remove("OCL_ICD_FILENAMES");
    if let Some(servers) = &arguments.servers {
        command.env("CAUSEWAY_SERVERS", servers);
    }
    if arguments.survive {
        command.env("CAUSEWAY_REEXECUTE", "1");
    }
    if let Some(trace) = trace {
        trace.ask_of(&mut command);
    }
    if arguments.discover {
        command.env("CAUSEWAY_DISCOVER", "1");
    }
    command
}

/// The paths in options and environment, made absolute, because the program may change its working
/// directory.
fn whole_paths(context: &Context) -> Vec<(&'static str, PathBuf)> {
    let mut said: HashMap<_, _> = context.variables().into_iter().collect();
    let names = FILE_VARIABLES
        .into_iter()
        .chain([causeway::trace::VARIABLE]);
    let named = names.filter_map(|name| {
        let value = said.remove(name).or_else(|| std::env::var_os(name))?;
        let is_relative = !value.is_empty() && Path::new(&value).is_relative();
        // Without a working directory, the path stays as it is.
        let whole = is_relative.then(|| std::path::absolute(&value).ok())??;
        Some((name, whole))
    });
    named.collect()
}

fn settings(arguments: &Program, context: &Context) -> Settings {
    let mut variables = context.variables();
    variables.extend(
        arguments
            .servers
            .clone()
            .map(|servers| ("CAUSEWAY_SERVERS", servers)),
    );
    variables.extend(
        arguments
            .discover
            .then(|| ("CAUSEWAY_DISCOVER", "1".into())),
    );
    variables.extend(request_options::variables(
        arguments.request.as_deref(),
        &arguments.terms,
    ));
    Settings::load_with(&variables)
}

fn options(arguments: &Program, settings: &Settings) -> Result<Option<RequestOptions>, Failure> {
    let options = RequestOptions::of(arguments.request.as_deref(), settings)?;
    // The devices of an inherited lease need no waiting.
    let has_none = options.is_none() && settings.lease.is_none();
    if has_none && (arguments.wait || arguments.terms.are_given()) {
        for problem in &settings.problems {
            say!("causeway run: {problem}");
        }
        let failure = Failure::new(
            "--wait, --priority and --time-limit need a request for devices of a device manager",
        );
        return Err(failure.code(FAILED).cure(ASK));
    }
    Ok(options)
}

/// What reaches the tool while the program runs.
struct ProgramInputs {
    signals: mpsc::UnboundedReceiver<Came>,
    reports: SessionReports,
}

fn reports(vendors: &Vendors, command: &mut Command) -> Result<SessionReports, Failure> {
    let listening = SessionReports::listen(vendors.path());
    let (reports, path) = listening.map_err(|error| {
        Failure::new(format!(
            "the socket for the library's reports cannot be made: {error}"
        ))
    })?;
    command.env(causeway::transport::report::VARIABLE, path);
    Ok(reports)
}

/// Leases devices, runs the program with them, and releases them.
async fn lease(
    arguments: &Program,
    context: &Context,
    settings: &Settings,
    options: &RequestOptions,
    mut command: Command,
    mut running: ProgramInputs,
) -> Result<RunEnd, Failure> {
    let program = Path::new(&arguments.command[0]).file_name();
    let program = program.unwrap_or(&arguments.command[0]).to_string_lossy();
    let mut request = options.message(&program);
    request.wait = arguments.wait;
    request.replace = arguments.survive || settings.survival.reexecute;
    let mut progress = Progress::new(context.json());
    let mut held = LeaseGuard::new(context);
    let signal = tokio::select! {
        acquired = held.acquire(request, &mut progress) => acquired.map(|()| None)?,
        Some(came) = running.signals.recv() => Some(came),
    };
    if let Some(came) = signal {
        give_back(&mut held, &mut progress, &mut running.signals).await;
        return Ok(RunEnd::Signal(came.number));
    }
    command.env("CAUSEWAY_LEASE", held.id());
    // Set also if the manager's address comes from the request's configuration.
    if let Some(manager) = &settings.manager {
        command.env("CAUSEWAY_MANAGER", manager.all_addresses());
    }
    attend(command, Some(held), running, progress).await
}

/// Runs the program to its end, passes signals on, keeps the lease, and releases it.
async fn attend(
    mut command: Command,
    mut held: Option<LeaseGuard<'_>>,
    mut running: ProgramInputs,
    mut progress: Progress,
) -> Result<RunEnd, Failure> {
    // A signal that came before the program was started has reached no other process.
    let end = match running.signals.try_recv() {
        Ok(came) => Ok(RunEnd::Signal(came.number)),
        Err(_) => match spawn(&mut command) {
            Ok(child) => watch(child, held.as_mut(), &mut running, &mut progress)
                .await
                .map(RunEnd::Program),
            Err(failure) => Err(failure),
        },
    };
    if let Some(held) = &mut held {
        give_back(held, &mut progress, &mut running.signals).await;
    }
    end
}

fn spawn(command: &mut Command) -> Result<Child, Failure> {
    command.spawn().map_err(|error| {
        let name = command.get_program().display().to_string();
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_STARTED,
        };
        Failure::new(format!("{name} cannot be started: {error}")).code(code)
    })
}

async fn watch(
    mut child: Child,
    mut held: Option<&mut LeaseGuard<'_>>,
    ProgramInputs { signals, reports }: &mut ProgramInputs,
    progress: &mut Progress,
) -> Result<ExitStatus, Failure> {
    let program = Pid::from_child(&child);
    let mut ended = end_of(program)?;
    loop {
        let change = async {
            match &mut held {
                Some(held) => held.keep().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = &mut ended => break,
            Some(came) = signals.recv() => {
                if let Some(signal) = came.to_pass_on() {
                    // The process has not been reaped, so this is still its id.
                    let _ = kill_process(program, signal);
                }
            }
            report = reports.next() => progress.say(report),
            change = change => {
                if let RunEvent::Over { .. } = change {
                    held = None;
                }
                progress.say(change);
            },
        }
    }
    while let Some(report) = reports.poll_next() {
        progress.say(report);
    }
    let status = child.wait();
    status.map_err(|error| Failure::new(format!("the program cannot be waited for: {error}")))
}

/// Waits for the program's end on a thread, without reaping the process.
fn end_of(program: Pid) -> Result<oneshot::Receiver<()>, Failure> {
    let (tell, told) = oneshot::channel();
    let wait = move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(program), options) {}
        // The receiver may be gone.
        let _ = tell.send(());
    };
    let thread = std::thread::Builder::new().name("program".to_owned());
    let started = thread.spawn(wait);
    started.map_err(|error| Failure::new(error.to_string()))?;
    Ok(told)
}

/// Releases the lease. The user can end the wait with a signal, for example if the network is down. The
/// lease expires then.
async fn give_back(
    held: &mut LeaseGuard<'_>,
    progress: &mut Progress,
    signals: &mut mpsc::UnboundedReceiver<Came>,
) {
    progress.end_line();
    // Earlier signals were for the program, or ended the wait for devices.
    while signals.try_recv().is_ok() {}
    let impatience = async {
        // The signal that ended the program may still arrive here.
        tokio::time::sleep(IMPATIENCE).await;
        while signals.try_recv().is_ok() {}
        signals.recv().await
    };
    let failure = tokio::select! {
        given_back = held.give_back() => given_back.err(),
        Some(_) = impatience => Some(Failure::new("interrupted by a signal")),
    };
    if let Some(failure) = failure {
        say!("causeway run: the lease could not be released and expires by itself: {failure}");
    }
}

fn private_daemon(
    settings: &Settings,
    vendors: &Vendors,
    command: &mut Command,
) -> Result<Option<PrivateDaemon>, Failure> {
    if !settings.servers.is_empty() || settings.lease.is_some() || settings.discover {
        return Ok(None);
    }
    // A user who mistyped all servers does not want this machine's devices instead.
    if !settings.problems.is_empty() {
        for problem in &settings.problems {
            say!("causeway run: {problem}");
        }
        let failure =
            Failure::new("the configuration has no usable server; correct the settings above");
        return Err(failure.code(FAILED));
    }
    if let Some(manager) = &settings.manager {
        let failure = Failure::new(format!(
            "a device manager is configured ({}), but no devices are requested",
            manager.all_addresses()
        ));
        return Err(failure.code(FAILED).cure(ASK));
    }
    let failed = |error: &dyn std::error::Error| Failure::new(error.to_string()).code(FAILED);
    let path = installation::daemon().map_err(|error| failed(&error))?;
    let daemon = PrivateDaemon::start(&path).map_err(|error| match error {
        StartError::NoDevice(_) => Failure::new(format!(
            "no server is configured, and {error}: install its OpenCL driver, or name a node (CAUSEWAY_SERVERS=host, \
             servers.toml); `clinfo -l` shows which drivers this machine has"
        ))
        .code(NO_DEVICE),
        error => failed(&error),
    })?;
    say!(
        "causeway run: no server is configured; using this machine's own devices through {}",
        daemon.address()
    );
    command.env("CAUSEWAY_SERVERS", daemon.address());
    if settings.tls != TlsSettings::default() {
        // The private daemon is on this machine and speaks without TLS.
        for name in FILE_VARIABLES {
            command.env_remove(name);
        }
        command.env(
            "CAUSEWAY_CONFIG",
            vendors.no_settings().map_err(|error| failed(&error))?,
        );
    }
    Ok(Some(daemon))
}
