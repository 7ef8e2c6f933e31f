//! Announces the manager on its networks: what is said, and the announcing process.
//!
//! `causeway_announcer` keeps the process running. The announced id is the cluster's, so it is the same for all managers of
//! a store. Standbys announce themselves too, once they have read that id. Invariant: the process is
//! sealed before it reads its first packet, and gets no variable of the manager's environment.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{ExitCode, Stdio};

use causeway_announcer::{Announcer, Order, Running, Start};
use causeway_discovery::{Announcement, Role};
use causeway_proto::metadata::ClusterId;
use causeway_proto::version::WireVersion;
use causeway_serving::logging::Logging;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};

use crate::settings::Settings;

/// The flag of the announcing process.
const FLAG: &str = "--internal-announce";

/// Announces the manager until the sender of `stop` is dropped, once its cluster is known. Returns after the goodbye. Does
/// nothing if the settings do not ask for it.
pub async fn announce(
    settings: Settings,
    addresses: Vec<SocketAddr>,
    mut cluster: watch::Receiver<Option<ClusterId>>,
    mut stop: oneshot::Receiver<()>,
) {
    let Some(announce) = &settings.announce else {
        return;
    };
    let id = tokio::select! {
        known = cluster.wait_for(Option::is_some) => known.ok().and_then(|known| *known),
        _ = &mut stop => None,
    };
    // Without a cluster, the manager stops.
    let Some(ClusterId(id)) = id else { return };
    let said = Announcement {
        role: Role::Manager,
        id,
        run: rand::random(),
        wire: WireVersion::CURRENT.number(),
        tls: settings.tls.is_some(),
        managed: false,
        ca: announce.ca,
    };
    let Some(order) = Order::of(announce, &said, &addresses) else {
        return;
    };
    let logging = settings.logging.clone();
    let announcer = Announcer::new(order, OwnBinary { logging });
    announcer.begin();
    // Ends when the sender is dropped.
    let _ = stop.await;
    announcer.end();
    announcer.ended().await;
}

/// Runs the announcing process; its entry point.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let done = causeway_confine::seal()
        .map_err(|error| error.to_string())
        .and_then(|(channel, lacking)| {
            for lack in lacking {
                tracing::warn!("{lack}");
            }
            causeway_announcer::announce(channel).map_err(|error| error.to_string())
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::warn!(
                error,
                cure = "with the package's service, install etc/causeway-devmgr-announce.conf as its drop-in",
                "the manager cannot be announced"
            );
            ExitCode::FAILURE
        }
    }
}

/// Starts the manager's own binary.
struct OwnBinary {
    logging: Logging,
}

impl Start for OwnBinary {
    type Process = Own;

    fn start(&self, channel: OwnedFd) -> io::Result<Own> {
        // This path refers to the running binary even if the file on disk was replaced.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("causeway-devmgr")
            .arg(FLAG)
            .env_clear()
            .envs(self.logging.environment())
            .stdin(Stdio::from(channel))
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        command.spawn().map(Own)
    }
}

struct Own(Child);

impl Running for Own {
    async fn wait(&mut self) -> String {
        match self.0.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    async fn end(mut self) {
        // It may have ended by itself just now.
        let _ = self.0.kill().await;
    }
}
