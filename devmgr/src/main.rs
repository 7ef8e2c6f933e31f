//! `causeway-devmgr`, the device manager: reads its settings, starts the log, serves, and stops on a
//! signal.
#![forbid(unsafe_code)]

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use causeway_devmgr::announcing;
use causeway_devmgr::etcd::Etcd;
use causeway_devmgr::service::{self, CannotStart, RunningManager, Task};
use causeway_devmgr::settings::{Flags, Settings};
use causeway_devmgr::store::RedbStore;
use causeway_serving::{complain, is_loopback, notify, raise_descriptors};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Exit status for a wrong flag or configuration file; clap uses the same one.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let flags = Flags::parse();
    if flags.internal_announce {
        return announcing::main();
    }
    let settings = match Settings::from_flags(&flags) {
        Ok(settings) => settings,
        Err(error) => {
            complain("causeway-devmgr", &error);
            return ExitCode::from(USAGE);
        }
    };
    settings.logging.start();
    raise_descriptors();
    let done = match task(&flags) {
        Some(task) => service::offline(&settings, &task).map(|done| println!("{done}")),
        None => serve(&settings),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("causeway-devmgr", &error);
            ExitCode::FAILURE
        }
    }
}

/// What is to be done instead of serving, if anything is. Write access to the store is the only permission
/// needed.
fn task(flags: &Flags) -> Option<Task> {
    let export = flags.export.clone().map(Task::Export);
    let import = flags.import.clone().map(Task::Import);
    let restored = flags.after_restore.then_some(Task::AfterRestore);
    let token = flags.new_admin_token.then_some(Task::NewAdminToken);
    export.or(import).or(restored).or(token)
}

fn open(settings: &Settings) -> Result<RedbStore, CannotStart> {
    RedbStore::open(&settings.store).map_err(CannotStart::store(&settings.store))
}

#[tokio::main]
async fn serve(settings: &Settings) -> Result<(), CannotStart> {
    // The handlers are installed first, so that no signal is missed.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut running = match &settings.etcd {
        Some(access) => service::start_shared(settings, Etcd::new(access.clone())).await?,
        None => service::start(settings, Box::new(open(settings)?)).await?,
    };
    for address in &running.addresses {
        warn(settings, address);
    }
    tell(&running);
    let (stop, stopping) = oneshot::channel();
    let announced = tokio::spawn(announcing::announce(
        settings.clone(),
        running.addresses.clone(),
        running.cluster.clone(),
        stopping,
    ));
    notify("READY=1");
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        failure = running.failed() => return Err(failure),
    };
    tracing::info!(signal = name, "shutting down");
    notify("STOPPING=1");
    drop(stop);
    running.stop().await;
    // A panic was already reported.
    let _ = announced.await;
    Ok(())
}

/// Prints one line per listener to standard output, so that the parent process can read the chosen port.
fn tell(running: &RunningManager) {
    let mut out = std::io::stdout().lock();
    for address in &running.addresses {
        tracing::info!(%address, "listening");
        // A closed standard output must not keep the manager from serving.
        let _ = writeln!(out, "listening on {address}");
    }
    if let Some(address) = running.watched_at {
        tracing::info!(%address, "metrics");
        let _ = writeln!(out, "metrics on {address}");
    }
    if let Some(address) = running.dashboard_at {
        tracing::info!(%address, "dashboard");
        let _ = writeln!(out, "dashboard on {address}");
    }
    let _ = out.flush();
}

fn warn(settings: &Settings, address: &SocketAddr) {
    if !is_loopback(address) && settings.exposed().is_some() {
        tracing::warn!(
            %address,
            "INSECURE: serving other machines without both TLS and authentication (--insecure)"
        );
    }
    if !settings.authenticate {
        tracing::warn!(
            %address,
            "everyone who can reach this address may administrate, under any name: set authenticate = true to ask for tokens or certificates"
        );
    }
}
