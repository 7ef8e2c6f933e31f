//! `causeway run -- PROGRAM…`: the program sees Causeway's platform, without having been changed.
//!
//! Where devices of a device manager are asked for, they are leased first; program and children work with that lease
//! (`CAUSEWAY_LEASE`), which is kept as long as the program runs and given back then. With nothing configured, a
//! private daemon over this machine's own OpenCL runs for as long as the program does; a configuration of which no
//! entry can be used is an error. The tool ends as the program does: with its code, or by its signal.

use std::collections::HashMap;
use std::ffi::OsString;
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
use crate::held::{Change, Held};
use crate::json::Step;
use crate::progress::Progress;
use crate::say::say;
use crate::signals::{self, Came, end_as, end_by};
use crate::wish::{self, Terms, Wish};

/// What `run` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Show the system's own platforms to the program too
    #[arg(long)]
    with_local: bool,
    /// Use these servers (host:port, separated by commas) instead of the configured ones
    #[arg(long, value_name = "LIST")]
    servers: Option<OsString>,
    /// Lease these devices of the device manager first, such as '2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB' (as
    /// CAUSEWAY_REQUEST)
    #[arg(long, value_name = "DEVICES", help_heading = "Device manager")]
    request: Option<String>,
    /// Wait for the devices, in the fair queue
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

/// The tool itself has failed: as `env`, `timeout` and others say it, and the next two.
const FAILED: u8 = 125;
/// There is no device, so the program was not started.
const NO_DEVICE: u8 = 1;
/// The program is there, and cannot be started.
const NOT_STARTED: u8 = 126;
/// There is no such program.
const NOT_FOUND: u8 = 127;

/// Before a signal ends the giving back of a lease.
const IMPATIENCE: Duration = Duration::from_millis(500);

/// What to do where nothing is asked for.
const ASK: &str = "--request '1' asks for any one device; CAUSEWAY_REQUEST and [[request]] in servers.toml say it for good";

/// How it ended.
enum End {
    Program(ExitStatus),
    /// The tool was told to end before there was a program.
    Signal(i32),
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    match start(arguments, context)? {
        End::Program(status) => Ok(end_as(status)),
        End::Signal(number) => Ok(end_by(number)),
    }
}

fn start(arguments: &Arguments, context: &Context) -> Result<End, Failure> {
    if let Some(option) = arguments.command[0]
        .to_str()
        .filter(|word| word.starts_with('-'))
    {
        let failure = Failure::new(format!("there is no option {option}"));
        return Err(failure.code(USAGE).cure(format!(
            "causeway run --help names them; a program of that name is ./{option}"
        )));
    }
    let failed = |error: &dyn std::error::Error| Failure::new(error.to_string()).code(FAILED);
    let library = installation::library().map_err(|error| failed(&error))?;
    let settings = settings(arguments, context);
    let wish = wish(arguments, &settings)?;
    let vendors = Vendors::new(&library, arguments.with_local).map_err(|error| {
        Failure::new(format!("the folder of .icd files cannot be made: {error}")).code(FAILED)
    })?;
    let mut command = Command::new(&arguments.command[0]);
    command
        .args(&arguments.command[1..])
        .envs(context.variables())
        .envs(whole_paths(context))
        .env("OCL_ICD_VENDORS", vendors.path())
        // A Khronos loader would add what this names.
        .env_remove("OCL_ICD_FILENAMES");
    if let Some(servers) = &arguments.servers {
        command.env("CAUSEWAY_SERVERS", servers);
    }
    // Its end is this function's.
    let _private = match &wish {
        Some(_) => None,
        None => private_daemon(&settings, &vendors, &mut command)?,
    };
    // Before anything is asked for, so that no signal leaves it behind.
    let signals = signals::listen().map_err(|error| failed(&error))?;
    block_on(async {
        match wish {
            None => attend(command, None, signals, Progress::new(context.json())).await,
            Some(wish) => lease(arguments, context, &settings, &wish, command, signals).await,
        }
    })
    .map_err(|failure| failure.or_code(FAILED))
}

/// The files that options and environment name, as the program will find them wherever it goes.
fn whole_paths(context: &Context) -> Vec<(&'static str, PathBuf)> {
    let mut said: HashMap<_, _> = context.variables().into_iter().collect();
    let named = FILE_VARIABLES.into_iter().filter_map(|name| {
        let value = said.remove(name).or_else(|| std::env::var_os(name))?;
        let is_relative = !value.is_empty() && Path::new(&value).is_relative();
        // Where there is no working directory, it is left as it was said.
        let whole = is_relative.then(|| std::path::absolute(&value).ok())??;
        Some((name, whole))
    });
    named.collect()
}

fn settings(arguments: &Arguments, context: &Context) -> Settings {
    let mut variables = context.variables();
    variables.extend(
        arguments
            .servers
            .clone()
            .map(|servers| ("CAUSEWAY_SERVERS", servers)),
    );
    variables.extend(wish::variables(
        arguments.request.as_deref(),
        &arguments.terms,
    ));
    Settings::load_with(&variables)
}

fn wish(arguments: &Arguments, settings: &Settings) -> Result<Option<Wish>, Failure> {
    let wish = Wish::of(arguments.request.as_deref(), settings)?;
    // Those of a lease that somebody else holds need not be waited for.
    let has_none = wish.is_none() && settings.lease.is_none();
    if has_none && (arguments.wait || arguments.terms.are_given()) {
        for problem in &settings.problems {
            say!("causeway run: {problem}");
        }
        let failure = Failure::new(
            "--wait, --priority and --time-limit are about devices of a device manager, and none are asked for",
        );
        return Err(failure.code(FAILED).cure(ASK));
    }
    Ok(wish)
}

/// Leases devices, runs the program with them, gives them back.
async fn lease(
    arguments: &Arguments,
    context: &Context,
    settings: &Settings,
    wish: &Wish,
    mut command: Command,
    mut signals: mpsc::UnboundedReceiver<Came>,
) -> Result<End, Failure> {
    let program = Path::new(&arguments.command[0]).file_name();
    let program = program.unwrap_or(&arguments.command[0]).to_string_lossy();
    let mut request = wish.message(&program);
    request.wait = arguments.wait;
    let mut progress = Progress::new(context.json());
    let mut held = Held::new(context);
    let signal = tokio::select! {
        acquired = held.acquire(request, &mut progress) => acquired.map(|()| None)?,
        Some(came) = signals.recv() => Some(came),
    };
    if let Some(came) = signal {
        give_back(&mut held, &mut progress, &mut signals).await;
        return Ok(End::Signal(came.number));
    }
    command.env("CAUSEWAY_LEASE", held.id());
    // Also where the request itself has said who the manager is.
    if let Some(manager) = &settings.manager {
        command.env("CAUSEWAY_MANAGER", manager.address.to_string());
    }
    attend(command, Some(held), signals, progress).await
}

/// Runs the program to its end; passes signals on, keeps the lease and gives it back.
async fn attend(
    mut command: Command,
    mut held: Option<Held<'_>>,
    mut signals: mpsc::UnboundedReceiver<Came>,
    mut progress: Progress,
) -> Result<End, Failure> {
    // Ctrl-C before there was a program has reached nobody else.
    let end = match signals.try_recv() {
        Ok(came) => Ok(End::Signal(came.number)),
        Err(_) => match spawn(&mut command) {
            Ok(child) => watch(child, held.as_mut(), &mut signals, &mut progress)
                .await
                .map(End::Program),
            Err(failure) => Err(failure),
        },
    };
    if let Some(held) = &mut held {
        give_back(held, &mut progress, &mut signals).await;
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
    mut held: Option<&mut Held<'_>>,
    signals: &mut mpsc::UnboundedReceiver<Came>,
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
                    // It has not been reaped, so this is nobody else's number.
                    let _ = kill_process(program, signal);
                }
            }
            change = change => match change {
                Change::Reduced(reduced) => progress.say(reduced.into()),
                Change::Over(reason) => {
                    progress.say(Step::Over { reason });
                    held = None;
                }
            },
        }
    }
    let status = child.wait();
    status.map_err(|error| Failure::new(format!("the program cannot be waited for: {error}")))
}

/// Tells when the program has ended, without reaping it.
fn end_of(program: Pid) -> Result<oneshot::Receiver<()>, Failure> {
    let (tell, told) = oneshot::channel();
    let wait = move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(program), options) {}
        // Whoever asked may have given up.
        let _ = tell.send(());
    };
    let thread = std::thread::Builder::new().name("program".to_owned());
    let started = thread.spawn(wait);
    started.map_err(|error| Failure::new(error.to_string()))?;
    Ok(told)
}

/// Also the user who is tired of waiting for a network that is down ends it: the lease runs out by itself.
async fn give_back(
    held: &mut Held<'_>,
    progress: &mut Progress,
    signals: &mut mpsc::UnboundedReceiver<Came>,
) {
    progress.end_line();
    // Those were for the program, or have ended the waiting.
    while signals.try_recv().is_ok() {}
    let impatience = async {
        // The one that ended the program may be on its way yet.
        tokio::time::sleep(IMPATIENCE).await;
        while signals.try_recv().is_ok() {}
        signals.recv().await
    };
    let failure = tokio::select! {
        given_back = held.give_back() => given_back.err(),
        Some(_) = impatience => Some(Failure::new("a signal has ended the wait for the device manager")),
    };
    if let Some(failure) = failure {
        say!("causeway run: the lease is not given back, so it has to run out: {failure}");
    }
}

fn private_daemon(
    settings: &Settings,
    vendors: &Vendors,
    command: &mut Command,
) -> Result<Option<PrivateDaemon>, Failure> {
    if !settings.servers.is_empty() || settings.lease.is_some() {
        return Ok(None);
    }
    // Who names servers and mistypes them all does not want this machine's devices in their place.
    if !settings.problems.is_empty() {
        for problem in &settings.problems {
            say!("causeway run: {problem}");
        }
        let failure = Failure::new("the configuration cannot be used");
        return Err(failure.code(FAILED));
    }
    if let Some(manager) = &settings.manager {
        let failure = Failure::new(format!(
            "no devices are asked for of the device manager at {}",
            manager.address
        ));
        return Err(failure.code(FAILED).cure(ASK));
    }
    let failed = |error: &dyn std::error::Error| Failure::new(error.to_string()).code(FAILED);
    let path = installation::daemon().map_err(|error| failed(&error))?;
    let daemon = PrivateDaemon::start(&path).map_err(|error| match error {
        StartError::NoDevice(_) => Failure::new(format!(
            "no server is configured, and {error}: install its OpenCL driver, or name a node (CAUSEWAY_SERVERS=host, \
             servers.toml); `causeway doctor` looks at both"
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
        // It is on this machine, for this program, and in the clear.
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
