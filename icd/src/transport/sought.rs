//! Finds the device manager that the settings name, by its announcements.
//!
//! An announcement says where to dial. `causeway_managers::sought` decides which addresses count. Invariants: an address
//! counts only if the CA has signed the certificate there for the name. No token is shown before that.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_discovery::{Found, Role};
use causeway_managers::sought::{self, Asked};
use causeway_proto::metadata::ClusterId;
use causeway_proto::status::WireError;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::control::Reached;
use super::finder::{Finder, Snapshot};
use crate::config::{Address, MOST_ADDRESSES, ServerSettings, Sought, TlsSettings, dialled};

/// Time limit for connecting to an announced address, and for its answer.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// Where managers were found, by their names. A process knows one, or a few in tests.
static FOUND: Mutex<BTreeMap<String, Vec<Address>>> = Mutex::new(BTreeMap::new());

/// The manager at the addresses where it was found last. `None`: it has not been found, or it was forgotten.
pub(super) fn known(manager: &ServerSettings, sought: &Sought) -> Option<ServerSettings> {
    let addresses = FOUND.lock().get(&sought.name).cloned()?;
    at(manager, addresses)
}

/// Forgets where the manager was found, because it does not answer there.
pub(super) fn forget(sought: &Sought) {
    FOUND.lock().remove(&sought.name);
}

/// Looks for the manager.
///
/// # Errors
/// [`WireError::Unreachable`] says why it is not used.
pub(super) async fn find(
    manager: &ServerSettings,
    sought: &Sought,
) -> Result<ServerSettings, WireError> {
    let unreachable = |reason: String| WireError::Unreachable {
        address: manager.all_addresses(),
        reason,
    };
    let finder = Finder::of_manager(manager, sought);
    let heard = tokio::task::spawn_blocking(move || {
        finder.begin();
        // Also the last answers, because a second manager of this name must not stay unknown.
        finder.wait_for_all();
        finder.snapshot()
    });
    let heard = heard
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    let asked = ask_all(manager, claims(&heard, &sought.name)).await;
    let addresses = sought::choose(&sought.name, asked).map_err(|not| {
        let fault = heard.fault.as_ref().map(|fault| format!(" ({fault})"));
        unreachable(format!("{not}{}", fault.unwrap_or_default()))
    })?;
    tracing::debug!("the device manager {} is at {addresses:?}", sought.name);
    FOUND.lock().insert(sought.name.clone(), addresses.clone());
    at(manager, addresses).ok_or_else(|| unreachable("no address was found".to_owned()))
}

fn at(manager: &ServerSettings, addresses: Vec<Address>) -> Option<ServerSettings> {
    let mut addresses = addresses.into_iter().take(MOST_ADDRESSES);
    Some(ServerSettings {
        address: addresses.next()?,
        further: addresses.collect(),
        sought: None,
        ..manager.clone()
    })
}

/// The announced addresses of managers of this name.
fn claims(heard: &Snapshot, name: &str) -> Vec<(ClusterId, Address)> {
    let is_it = |of: &&Found| of.announcement.role == Role::Manager && of.name == name;
    let mut claims = Vec::new();
    for found in heard.found.iter().filter(is_it) {
        for address in dialled(found, &heard.interfaces) {
            let claim = (ClusterId(found.announcement.id), address);
            if !claims.contains(&claim) {
                claims.push(claim);
            }
        }
    }
    claims
}

/// Asks all addresses at the same time. Results are in the order of the addresses.
async fn ask_all(
    manager: &ServerSettings,
    claims: Vec<(ClusterId, Address)>,
) -> Vec<Asked<Address>> {
    let mut asking = JoinSet::new();
    for (position, (claimed, address)) in claims.into_iter().enumerate() {
        let server = ServerSettings {
            address: address.clone(),
            further: Vec::new(),
            sought: None,
            tls: TlsSettings {
                token_file: None,
                ..manager.tls.clone()
            },
            ..manager.clone()
        };
        asking.spawn(async move {
            let answered = tokio::time::timeout(ASKED_WITHIN, cluster_at(&server)).await;
            let answered = answered.unwrap_or_else(|_| Err("no answer".to_owned()));
            let asked = Asked {
                claimed,
                address,
                answered,
            };
            (position, asked)
        });
    }
    let mut asked = asking.join_all().await;
    asked.sort_by_key(|(position, _)| *position);
    asked.into_iter().map(|(_, asked)| asked).collect()
}

async fn cluster_at(server: &ServerSettings) -> Result<Option<ClusterId>, String> {
    let reached = Reached::at(server, ASKED_WITHIN, 0).await;
    let reached = reached.map_err(|error| match error {
        WireError::Unreachable { reason, .. } => reason,
        error => error.to_string(),
    })?;
    let answered = sought::cluster_at(reached.channel).await;
    answered.map_err(|error| error.to_string())
}
