//! Finds the device manager that the settings name, by its announcements.
//!
//! A confined process hears the announcements. `causeway_managers::sought` decides which addresses count. Invariants: an
//! address counts only if the CA has signed the certificate there for the name. No token is shown before that.

use std::io;
use std::time::Duration;

use causeway_managers::sought::{self, NotFound};
use causeway_proto::metadata::ClusterId;
use causeway_security::ClientTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::Managed;
use super::dial;
use crate::config::{ManagerAddress, SoughtManager};
use crate::handover::found::{self, Announced, MOST_FOUND, Wanted};
use crate::supervisor::process::{Processes, Role};

/// Time limit for the process, which asks for a second.
const HEARD_WITHIN: Duration = Duration::from_secs(10);
/// Time limit for the answer of an announced address.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// Why no manager is used.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSought {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error("{not} ({fault})")]
    Deaf { not: NotFound, fault: String },
    #[error("the process that looks for the device manager has failed: {0}")]
    Process(io::Error),
}

/// Looks for the manager. Returns its addresses, with the name that its certificate has.
pub(super) async fn find(
    managed: &Managed,
    processes: &Processes,
    wanted: &SoughtManager,
) -> Result<Vec<ManagerAddress>, NotSought> {
    let heard = tokio::time::timeout(HEARD_WITHIN, hear(processes, wanted)).await;
    let heard = heard.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let heard = heard.map_err(NotSought::Process)?;
    let address = |text: &String| {
        let mut address = ManagerAddress::parse(text)?;
        address.name = Some(wanted.name.clone());
        Some(address)
    };
    let claims = heard.claims.iter().map(|of| {
        let addresses = of.addresses.iter().filter_map(address).collect();
        (ClusterId(of.id), addresses)
    });
    let claims = sought::asked_in_turn(claims.collect());
    let tls = &managed.0.settings.tls;
    let ask = |address: &ManagerAddress| cluster_at(address.clone(), tls.clone());
    let asked = sought::ask_all(claims, ASKED_WITHIN, ask).await;
    let chosen = sought::choose(&wanted.name, asked);
    chosen.map_err(|not| match heard.fault {
        Some(fault) => NotSought::Deaf { not, fault },
        None => not.into(),
    })
}

async fn hear(processes: &Processes, wanted: &SoughtManager) -> io::Result<Announced> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut process = processes.start(Role::Find, theirs.into())?;
    let question = Wanted {
        name: wanted.name.clone(),
        cas: wanted.cas.clone(),
    };
    let mut channel = UnixStream::from_std(ours)?;
    let question = found::encode(&question).map_err(io::Error::other)?;
    channel.write_all(&question).await?;
    channel.shutdown().await?;
    let mut answer = Vec::new();
    channel.take(MOST_FOUND).read_to_end(&mut answer).await?;
    // It ends by itself after the answer, and at the latest when it is dropped.
    process.wait().await?;
    match answer.is_empty() {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => found::decode(&answer).map_err(io::Error::other),
    }
}

/// Asks which cluster the manager at an address belongs to. Shows no token.
async fn cluster_at(
    address: ManagerAddress,
    tls: Option<ClientTls>,
) -> Result<Option<ClusterId>, String> {
    let channel = dial::dial(&address, tls.as_ref()).await;
    let channel = channel.map_err(|error| error.at_node())?;
    let cluster = sought::cluster_at(channel).await;
    cluster.map_err(|error| error.to_string())
}
