//! A daemon in managed mode: what the device manager has leased is served, and nothing else.
//!
//! - [`grants`]: who may have what now, pure; [`name`], [`word`]: its names, and what it hears and says;
//! - [`offer`]: the node's devices as the manager gets them, and as a lease is shown them;
//! - [`reach`]: where users are told to reach the node, pure;
//! - [`link`]: the connection to the manager, made anew for ever.
//!
//! What it is not: it decides nothing that the manager decides, and asks it nothing: who shows a lease's signed
//! credential is admitted by the table. It works on while the manager is away, for as long as each grant allows.
//! Invariant: a worker has a [`Place`] in a lease from before it is assigned until it has been reaped.

mod dial;
mod grants;
mod identity;
mod link;
mod name;
mod offer;
mod reach;
mod word;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use causeway_proto::control::Inventory;
use causeway_security::{LeaseVerifier, NotALease, VerifiedLease};
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::grants::Grants;
use self::name::{DeviceAt, Epoch, LeaseId, Time, Unit};
use self::offer::Offer;
use self::word::{Action, Claimed, Grant, NotAdmitted, Word};
use super::authentication::User;
use super::workers::Workers;
use crate::accounting::{Figures, Ledger};
use crate::config::{ManagerSettings, ShareSettings};
use crate::handover::{Leased, MAX_USER, Owner};

pub(super) use self::identity::node_uuid;
pub(super) use self::link::join;
pub(super) use self::name::PlaceNumber;

/// Managed mode.
#[derive(Clone)]
pub(super) struct Managed(Arc<Shared>);

struct Shared {
    settings: ManagerSettings,
    shares: Vec<ShareSettings>,
    node: [u8; 16],
    started: Instant,
    state: Mutex<State>,
    /// The next deadline may be another one.
    changed: Notify,
    /// A connection to the manager is over.
    parted: Notify,
    /// Whose sessions end with their leases.
    workers: Workers,
}

#[derive(Default)]
struct State {
    grants: Grants,
    /// Of the manager that was last heard; it stays while that is away.
    verifier: Option<LeaseVerifier>,
    /// To the manager, while there is a connection.
    manager: Option<link::Outgoing>,
    /// Where the sessions of each lease count.
    ledgers: HashMap<LeaseId, Arc<Ledger>>,
    /// Whose each lease is, as the log says, until what becomes of it is said.
    users: HashMap<LeaseId, String>,
}

/// What a lease uses here.
pub(super) struct LeaseUse {
    lease: LeaseId,
    figures: Figures,
    sessions: u32,
}

/// A credential that opens nothing here.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoLease {
    #[error("this node's devices are given out by a device manager: a lease is needed")]
    Missing,
    #[error("this node has not heard from its device manager yet")]
    NoManager,
    #[error(transparent)]
    Credential(#[from] NotALease),
    #[error("the lease has nothing of this node")]
    Elsewhere,
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    #[error("there is no memory to count in: {0}")]
    NoLedger(std::io::Error),
}

/// A session's place in a lease; dropped when its worker is gone.
pub(super) struct Place {
    managed: Managed,
    number: PlaceNumber,
    ledger: Arc<Ledger>,
    owner: Owner,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.managed.change(|grants, _| grants.left(self.number));
    }
}

impl Managed {
    pub(super) fn new(
        settings: ManagerSettings,
        shares: Vec<ShareSettings>,
        node: [u8; 16],
        workers: Workers,
    ) -> Managed {
        Managed(Arc::new(Shared {
            settings,
            shares,
            node,
            started: Instant::now(),
            state: Mutex::default(),
            changed: Notify::new(),
            parted: Notify::new(),
            workers,
        }))
    }

    /// Gives a session a place in the lease that its client shows, and says what it may use.
    ///
    /// # Errors
    /// [`NoLease`].
    pub(super) fn admit(
        &self,
        credential: &[u8],
        user: &User,
    ) -> Result<(Place, Vec<Leased>), NoLease> {
        let now = self.now();
        let mut state = self.0.state.lock();
        let claimed = self.claimed(&state, credential, user)?;
        let sessions = self.0.workers.limit();
        let ledger = match state.ledgers.entry(claimed.lease) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(new) => {
                let ledger = Ledger::new(sessions).map_err(NoLease::NoLedger)?;
                Arc::clone(new.insert(ledger))
            }
        };
        let admitted = state.grants.admit(now, &claimed)?;
        drop(state);
        let place = Place {
            managed: self.clone(),
            number: admitted.place,
            ledger,
            owner: Owner {
                lease: Some(format!("{:?}", claimed.lease)),
                user: Some(claimed.user.chars().take(MAX_USER).collect()),
            },
        };
        let leased = admitted.devices.into_iter().map(|(at, memory)| Leased {
            platform: at.platform,
            device: at.device,
            memory,
        });
        Ok((place, leased.collect()))
    }

    /// The session has its worker, which may be ended from now on.
    pub(super) fn opened(&self, place: PlaceNumber) {
        self.change(|grants, _| grants.opened(place));
    }

    /// The inventory as who shows this may see it: without a lease no device, and why.
    pub(super) fn shown(&self, inventory: Inventory, credential: &[u8], user: &User) -> Inventory {
        match self.devices(credential, user) {
            Ok(devices) => offer::shown(inventory, &devices),
            Err(why) => {
                let mut inventory = offer::shown(inventory, &BTreeMap::new());
                inventory.problems.push(why.to_string());
                inventory
            }
        }
    }

    /// Whether there is a lease of this id here.
    pub(super) fn serves(&self, lease: [u8; 16]) -> bool {
        self.0.state.lock().grants.has(LeaseId(lease))
    }

    /// Whether a credential is a lease's that has something here.
    pub(super) fn knows(&self, credential: &[u8], user: &User) -> bool {
        self.devices(credential, user).is_ok()
    }

    fn devices(&self, credential: &[u8], user: &User) -> Result<BTreeMap<DeviceAt, u64>, NoLease> {
        let state = self.0.state.lock();
        let claimed = self.claimed(&state, credential, user)?;
        Ok(state.grants.devices(self.now(), &claimed)?)
    }

    fn claimed(
        &self,
        state: &State,
        credential: &[u8],
        User(user): &User,
    ) -> Result<Claimed, NoLease> {
        if credential.is_empty() {
            return Err(NoLease::Missing);
        }
        let verifier = state.verifier.ok_or(NoLease::NoManager)?;
        let verified = verifier.verify(credential, SystemTime::now())?;
        // Where callers have names here too, a lease is of no use to who has only found it.
        if user.as_ref().is_some_and(|user| user != verified.user()) {
            return Err(NotAdmitted::OtherUser.into());
        }
        claimed_of(&verified, &self.0.node).ok_or(NoLease::Elsewhere)
    }

    /// Leases that have a place here, and those that ever had.
    pub(super) fn leases(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.grants.running().len() as u64, state.grants.taken())
    }

    /// Whether there is a connection to the manager.
    pub(super) fn is_joined(&self) -> bool {
        self.0.state.lock().manager.is_some()
    }

    /// What the leases use that have a place here. What others used is forgotten.
    fn uses(&self) -> Vec<LeaseUse> {
        let mut state = self.0.state.lock();
        let running = state.grants.running();
        state
            .ledgers
            .retain(|lease, _| running.iter().any(|of| of.lease == *lease));
        let of = |of: word::Running| LeaseUse {
            lease: of.lease,
            figures: state
                .ledgers
                .get(&of.lease)
                .map_or_else(Figures::default, |ledger| ledger.figures()),
            sessions: of.sessions,
        };
        running.into_iter().map(of).collect()
    }

    /// Whether the manager wants no new leases here.
    pub(super) fn is_draining(&self) -> bool {
        self.0.state.lock().grants.is_draining()
    }

    /// The daemon was told to end: it takes no lease any more, and those who have some may finish.
    pub(super) fn stop(&self) {
        let mut state = self.0.state.lock();
        state.grants.stop();
        if let Some(manager) = &state.manager {
            manager.say_stopping();
        }
    }

    /// The daemon ends: so do all leases, at once where nobody uses them.
    pub(super) fn end_all(&self) {
        self.change(|grants, _| grants.end_all());
    }

    /// Leaves the manager, once it has heard all that was said, or after a while.
    pub(super) async fn leave(&self, limit: Duration) {
        let parted = self.0.parted.notified();
        tokio::pin!(parted);
        parted.as_mut().enable();
        match &self.0.state.lock().manager {
            Some(manager) => manager.say_no_more(),
            None => return,
        }
        // Who does not answer finds the node lost, and its leases over when it comes back.
        let _ = tokio::time::timeout(limit, parted).await;
    }

    /// The node's devices are these now.
    fn offer(&self, inventory: &Inventory) -> Offer {
        let mut offer = Offer::of(inventory, &self.0.shares);
        let devices = std::mem::take(&mut offer.devices);
        self.change(|grants, _| grants.offer(devices));
        offer
    }

    fn now(&self) -> Time {
        Time(self.0.started.elapsed())
    }

    /// A lease is to be served.
    fn grant(&self, grant: Grant) {
        self.change_state(|state, now| {
            let user = grant.user.chars().take(MAX_USER).collect();
            state.users.insert(grant.lease, user);
            state.grants.grant(now, grant)
        });
    }

    /// A lease is to be served no more.
    fn withdraw(&self, lease: LeaseId, epoch: Epoch, reason: &str) {
        self.change_state(|state, _| {
            let user = state.users.get(&lease);
            tracing::info!(?lease, user, reason, "the device manager withdraws a lease");
            state.grants.withdraw(lease, epoch, reason)
        });
    }

    /// Changes the table, and carries out what follows.
    fn change(&self, change: impl FnOnce(&mut Grants, Time) -> Vec<Action>) {
        self.change_state(|state, now| change(&mut state.grants, now));
    }

    fn change_state(&self, change: impl FnOnce(&mut State, Time) -> Vec<Action>) {
        let now = self.now();
        let mut ended = Vec::new();
        {
            let mut state = self.0.state.lock();
            for action in change(&mut state, now) {
                match action {
                    // In order, so while locked; what nobody hears now, the next join tells.
                    Action::Say(lease, epoch, word) => {
                        state.log(lease, epoch, &word);
                        if let Some(manager) = &state.manager {
                            manager.say(lease, epoch, word);
                        }
                    }
                    Action::End(places, why) => {
                        let reason = why.map_or_else(String::new, |why| format!(": {why}"));
                        ended.push((places, format!("the lease is over{reason}")));
                    }
                }
            }
        }
        // A place that is not there yet ends when it is opened.
        for (places, reason) in ended {
            self.0.workers.end_places(&places, &reason);
        }
        self.0.changed.notify_one();
    }

    /// Ends leases when their time comes, for ever.
    pub(super) async fn watch(self) {
        loop {
            let deadline = self.0.state.lock().grants.next_deadline();
            let deadline = deadline.and_then(|Time(at)| self.0.started.checked_add(at));
            let due = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => self.change(Grants::tick),
                () = self.0.changed.notified() => {}
            }
        }
    }
}

impl Place {
    /// Its name.
    pub(super) fn number(&self) -> PlaceNumber {
        self.number
    }

    /// Where all sessions of its lease count.
    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Whose it is.
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// What a verified lease has of this node; `None`: nothing.
fn claimed_of(verified: &VerifiedLease, node: &[u8; 16]) -> Option<Claimed> {
    let here = verified.on_node(node)?;
    Some(Claimed {
        lease: LeaseId(verified.lease()),
        epoch: Epoch(here.epoch),
        user: verified.user().to_owned(),
        units: here.units.iter().map(Unit::from).collect(),
    })
}

impl State {
    fn log(&mut self, lease: LeaseId, epoch: Epoch, word: &Word) {
        let (user, epoch) = (self.users.get(&lease), epoch.0);
        match word {
            Word::Acknowledged => tracing::info!(?lease, user, epoch, "a lease is served"),
            Word::Refused(why) => {
                tracing::warn!(?lease, user, epoch, %why, "a lease is refused");
            }
            Word::Withdrawn => tracing::info!(?lease, user, epoch, "a lease is served no more"),
            Word::Sessions(count) => tracing::debug!(?lease, user, count, "sessions of a lease"),
        }
        if matches!(word, Word::Refused(_) | Word::Withdrawn) && !self.grants.has(lease) {
            self.users.remove(&lease);
        }
    }
}
