//! Finds the device manager that the settings name, by its announcements.
//!
//! An announcement says where to dial. `causeway_managers::sought` decides which addresses count. Invariants: an address
//! counts only if the CA has signed the certificate there for the name. No token is shown before that.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use causeway_discovery::{Found, Role};
use causeway_managers::sought;
use causeway_proto::endpoint::KeepAlive;
use causeway_proto::metadata::ClusterId;
use causeway_proto::status::WireError;
use parking_lot::Mutex;

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

/// Looks for the manager; takes `limit` at most.
///
/// # Errors
/// [`WireError::Unreachable`] says why it is not used.
pub(super) async fn find(
    manager: &ServerSettings,
    sought: &Sought,
    limit: Duration,
) -> Result<ServerSettings, WireError> {
    let found = tokio::time::timeout(limit, look(manager, sought, limit)).await;
    found.unwrap_or_else(|_| {
        Err(WireError::Unreachable {
            address: manager.all_addresses(),
            reason: format!("the search was not over within {} ms", limit.as_millis()),
        })
    })
}

async fn look(
    manager: &ServerSettings,
    sought: &Sought,
    limit: Duration,
) -> Result<ServerSettings, WireError> {
    let until = Instant::now() + limit;
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
    // Whoever is silent must not use up the time of those that answer.
    let within = until.saturating_duration_since(Instant::now()) * 3 / 4;
    let claims = claims(&heard, &sought.name);
    let ask = |address: &Address| cluster_at(without_token(address, manager));
    let asked = sought::ask_all(claims, within.min(ASKED_WITHIN), ask).await;
    let addresses = sought::choose(&sought.name, asked).map_err(|not| {
        let faults = [&heard.fault, &heard.domain_fault].into_iter().flatten();
        let faults: String = faults.map(|fault| format!(" ({fault})")).collect();
        unreachable(format!("{not}{faults}"))
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
    let has_name = |of: &&Found| of.announcement.role == Role::Manager && of.name == name;
    let claims = heard.found.iter().filter(has_name).map(|found| {
        let addresses = dialled(found, &heard.interfaces);
        (ClusterId(found.announcement.id), addresses)
    });
    sought::asked_in_turn(claims.collect())
}

/// The settings by which an announced address is asked: without a token.
fn without_token(address: &Address, manager: &ServerSettings) -> ServerSettings {
    ServerSettings {
        address: address.clone(),
        further: Vec::new(),
        sought: None,
        tls: TlsSettings {
            token_file: None,
            ..manager.tls.clone()
        },
        ..manager.clone()
    }
}

async fn cluster_at(server: ServerSettings) -> Result<Option<ClusterId>, String> {
    let reached = Reached::at(&server, ASKED_WITHIN, 0, KeepAlive::OF_SEVERAL).await;
    let reached = reached.map_err(|error| match error {
        WireError::Unreachable { reason, .. } => reason,
        error => error.to_string(),
    })?;
    let answered = sought::cluster_at(reached.channel).await;
    answered.map_err(|error| error.to_string())
}
