//! `causeway-devmgr`, the device manager: settings, log, serve, stop.
#![forbid(unsafe_code)]

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use causeway_devmgr::service::{self, CannotStart, Running};
use causeway_devmgr::settings::{Flags, Settings};
use causeway_devmgr::store::RedbStore;
use causeway_serving::{complain, is_loopback, notify, raise_descriptors};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// A wrong flag or file, as clap's own errors.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let flags = Flags::parse();
    let settings = match Settings::from_flags(&flags) {
        Ok(settings) => settings,
        Err(error) => {
            complain("causeway-devmgr", &error);
            return ExitCode::from(USAGE);
        }
    };
    settings.logging.start();
    raise_descriptors();
    let done = match flags.new_admin_token {
        true => renew_admin(&settings),
        false => serve(&settings),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("causeway-devmgr", &error);
            ExitCode::FAILURE
        }
    }
}

/// For who has lost the last token. Whoever may write the store may do so.
fn renew_admin(settings: &Settings) -> Result<(), CannotStart> {
    // A new store would help nobody.
    std::fs::metadata(&settings.store)
        .map_err(|error| std::io::Error::other(format!("{}: {error}", settings.store.display())))?;
    let mut store = open(settings)?;
    let file = service::renew_admin(&settings.store, &mut store)?;
    println!("the administrator's token is in {}", file.display());
    Ok(())
}

fn open(settings: &Settings) -> Result<RedbStore, CannotStart> {
    RedbStore::open(&settings.store).map_err(|error| CannotStart::Opening {
        path: settings.store.clone(),
        error,
    })
}

#[tokio::main]
async fn serve(settings: &Settings) -> Result<(), CannotStart> {
    // Before anything else, so that none is missed.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let store = open(settings)?;
    let mut running = service::start(settings, Box::new(store)).await?;
    for address in &running.addresses {
        warn(settings, address);
    }
    announce(&running);
    notify("READY=1");
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        () = running.failed() => return Err(CannotStart::Failed),
    };
    tracing::info!(signal = name, "shutting down");
    notify("STOPPING=1");
    running.stop().await;
    Ok(())
}

/// One line for each listener on standard output: who started us may read there which port was taken.
fn announce(running: &Running) {
    let mut out = std::io::stdout().lock();
    for address in &running.addresses {
        tracing::info!(%address, "listening");
        // A closed standard output is no reason not to serve.
        let _ = writeln!(out, "listening on {address}");
    }
    if let Some(address) = running.watched_at {
        tracing::info!(%address, "metrics");
        let _ = writeln!(out, "metrics on {address}");
    }
    let _ = out.flush();
}

fn warn(settings: &Settings, address: &SocketAddr) {
    if !is_loopback(address) && settings.exposed().is_some() {
        tracing::warn!(
            %address,
            "INSECURE: --insecure asked to serve other machines without both TLS and authentication"
        );
    }
    if !settings.authenticate {
        tracing::warn!(
            %address,
            "everyone who can reach this address may administrate, under any name: set authenticate = true to ask for tokens or certificates"
        );
    }
}
