//! `causeway run -- PROGRAM…`: the program sees Causeway's platform, without having been changed.
//!
//! With nothing configured, a private daemon over this machine's own OpenCL runs for as long as the
//! program does; a configuration of which no entry can be used is an error. The program's exit code is the tool's; signals of the terminal go to the program, and the
//! tool ends after it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};

use causeway::config::Settings;
use causeway_devmgr::environment::Vendors;
use causeway_devmgr::installation;
use causeway_devmgr::private_daemon::PrivateDaemon;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// What `run` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Show the system's own platforms to the program too
    #[arg(long)]
    with_local: bool,
    /// Use these servers (host:port, separated by commas) instead of the configured ones
    #[arg(long, value_name = "LIST")]
    servers: Option<String>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// What a shell answers when a program cannot be started.
const NOT_STARTED: u8 = 127;

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match start(arguments) {
        Ok(status) => exit_code(status),
        Err(message) => {
            eprintln!("causeway run: {message}");
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn start(arguments: &Arguments) -> Result<ExitStatus, String> {
    let library = installation::library().map_err(|error| error.to_string())?;
    let vendors = Vendors::new(&library, arguments.with_local)
        .map_err(|error| format!("the folder of .icd files cannot be made: {error}"))?;
    let mut command = Command::new(&arguments.command[0]);
    command
        .args(&arguments.command[1..])
        .env("OCL_ICD_VENDORS", vendors.path());
    // A Khronos loader would add what this names.
    command.env_remove("OCL_ICD_FILENAMES");
    let private = private_daemon(arguments)?;
    if let Some(servers) = private
        .as_ref()
        .map(PrivateDaemon::address)
        .or(arguments.servers.as_deref())
    {
        command.env("CAUSEWAY_SERVERS", servers);
    }
    // Before the program starts, so that no signal finds the tool without its handlers.
    let signals =
        Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP]).map_err(|error| error.to_string())?;
    let name = arguments.command[0].display();
    let mut child = command
        .spawn()
        .map_err(|error| format!("{name} cannot be started: {error}"))?;
    pass_on(signals, &child);
    child
        .wait()
        .map_err(|error| format!("{name} cannot be waited for: {error}"))
}

// Ctrl-C reaches the program by itself, as one of the terminal's foreground group; the tool only has to
// stay until the program has ended. What is sent to the tool alone is passed on.
fn pass_on(mut signals: Signals, child: &Child) {
    let program = Pid::from_child(child);
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let passed = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                _ => continue,
            };
            // It may have ended in between.
            let _ = kill_process(program, passed);
        }
    });
}

fn private_daemon(arguments: &Arguments) -> Result<Option<PrivateDaemon>, String> {
    if arguments.servers.is_some() {
        return Ok(None);
    }
    let settings = Settings::load();
    if !settings.servers.is_empty() {
        return Ok(None);
    }
    // Who names servers and mistypes them all does not want this machine's devices in their place.
    if !settings.problems.is_empty() {
        for problem in &settings.problems {
            eprintln!("causeway run: {problem}");
        }
        return Err("the configuration names no server that can be used".to_owned());
    }
    let path = installation::daemon().map_err(|error| error.to_string())?;
    let daemon = PrivateDaemon::start(&path).map_err(|error| error.to_string())?;
    eprintln!(
        "causeway run: no server is configured; using this machine's own devices through {}",
        daemon.address()
    );
    Ok(Some(daemon))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
