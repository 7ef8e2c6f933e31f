//! Managed mode of the daemon: it serves exactly what the device manager has leased.
//!
//! - [`grants`]: the table of grants, pure; [`name`], [`message`]: its identifiers, events and reports;
//! - [`offer`]: the node's devices as they are offered to the manager, and as a lease sees them;
//! - [`reach`]: the addresses at which users are told to reach the node, pure;
//! - [`measuring`]: who may have links measured;
//! - [`moving`]: takes sessions to other nodes, and from them;
//! - [`remembered`]: the highest term that the node has met, as a file;
//! - [`link`]: the connection to the manager, re-established forever; [`leader`]: which of several managers
//!   it leads to; [`sought`]: finds one by its name; [`dial`]: one connection.
//!
//! This module takes no decision that is the manager's, and sends it no requests. The table of grants alone
//! decides whether a signed lease is admitted. The node continues to serve while the manager is away, as
//! long as each grant allows. Invariant: a worker has a [`LeasePlace`] in a lease from before its assignment
//! until it has been reaped.

mod dial;
mod grants;
mod leader;
mod link;
mod measuring;
mod message;
mod moving;
mod name;
mod offer;
mod reach;
mod remembered;
mod sought;

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use causeway_managers::{Disbelieved, HighestTerm, probe};
use causeway_proto::control::Inventory;
use causeway_proto::manager::MoveEnded;
use causeway_proto::preamble::{Introduction, PREAMBLE, Verdict};
use causeway_security::{EndKey, LeaseVerifier, NotALease, VerifiedLease};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::metadata::MetadataMap;

use self::grants::Grants;
pub(super) use self::message::LeaseEnd;
use self::message::{Action, Claimed, Grant, GrantReport, NotAdmitted, Why};
use self::name::{Time, Unit};
use self::offer::Offer;
use self::remembered::RememberedTerm;
use super::authentication::User;
use super::cluster_links::ClusterLinks;
use super::time_shares::TimePart;
use super::workers::Workers;
use crate::accounting::{Figures, Ledger};
use crate::config::{ManagerSettings, ShareSettings, Together};
use crate::handover::{Leased, MAX_USER, Owner};

pub(super) use self::link::join;
pub(super) use self::measuring::Measurer;
pub(super) use self::name::{DeviceAt, Epoch, LeaseId, PlaceNumber};
pub(super) use self::offer::{SharesExceed, check_memory, exclusive_share};

/// Managed mode. Clones share their state.
#[derive(Clone)]
pub(super) struct Managed(Arc<Shared>);

struct Shared {
    settings: ManagerSettings,
    shares: Vec<ShareSettings>,
    node: [u8; 16],
    started: Instant,
    state: Mutex<ManagedState>,
    /// Locked by threads that may block, because writing the file takes a moment.
    remembered: Mutex<RememberedTerm>,
    /// The file of `remembered`.
    term_file: Option<PathBuf>,
    /// Notified when the next deadline may have changed.
    changed: Notify,
    /// Notified when a connection to the manager has ended.
    parted: Notify,
    /// The workers whose sessions end with their leases.
    workers: Workers,
    /// The figures that the manager gets.
    links: ClusterLinks,
    /// Proves to other nodes that an end of a link is this node's.
    end_key: EndKey,
    /// What other nodes send of large sessions.
    transfers: moving::Transfers,
}

#[derive(Default)]
struct ManagedState {
    grants: Grants,
    /// Verifies signatures of the latest manager; kept while the manager is away.
    verifier: Option<LeaseVerifier>,
    /// The highest term of a manager that was met, and the cluster that the node belongs to.
    highest: HighestTerm,
    /// Sender of messages to the manager, while there is a connection.
    manager: Option<link::Outgoing>,
    /// Ledger of each lease, in which its sessions count.
    ledgers: HashMap<LeaseId, Arc<Ledger>>,
    /// Whose sessions may have one host process, by the shares of each device that has shares with such a
    /// setting.
    together: BTreeMap<DeviceAt, Together>,
    /// The shares' parts of the time, by device.
    times: BTreeMap<DeviceAt, offer::ShareTimes>,
    /// How the latest move of each lease has ended, until the manager withdraws the lease or moves it again.
    moved: HashMap<LeaseId, MoveEnded>,
    /// The moves that are under way.
    moves: HashMap<LeaseId, moving::Underway>,
    /// User of each lease, for the log; kept until the end of the lease is logged.
    users: HashMap<LeaseId, String>,
}

/// Usage of one lease on this node.
pub(super) struct LeaseUse {
    lease: LeaseId,
    figures: Figures,
    sessions: u32,
}

/// Reasons for which a credential is not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoLease {
    #[error(
        "this node requires a lease, because a device manager assigns its devices; request one (causeway run, or a \
         servers.toml with the manager)"
    )]
    Missing,
    #[error("this node has not joined its device manager yet; try again later")]
    NoManager,
    #[error(transparent)]
    Credential(#[from] NotALease),
    #[error("the lease contains no device of this node")]
    Elsewhere,
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    #[error("cannot allocate the accounting memory of the lease: {0}")]
    NoLedger(std::io::Error),
}

/// A session's place in a lease; dropped when its worker has been reaped.
pub(super) struct LeasePlace {
    managed: Managed,
    number: PlaceNumber,
    ledger: Arc<Ledger>,
    owner: Owner,
    /// The lease's devices, each with the `together` of its share.
    devices: BTreeMap<DeviceAt, Option<Together>>,
    lease: LeaseId,
    epoch: Epoch,
    /// The lease's parts of the devices' time, as far as their shares have such parts.
    times: BTreeMap<DeviceAt, TimePart>,
    resume: Option<Duration>,
}

/// Tells that the session of a place has a worker.
pub(super) struct Opened {
    managed: Managed,
    number: PlaceNumber,
}

impl Opened {
    pub(super) fn tell(self) {
        self.managed.opened(self.number);
    }
}

impl Drop for LeasePlace {
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
        term_file: Option<PathBuf>,
        (links, end_key): (ClusterLinks, EndKey),
    ) -> Managed {
        let remembered = RememberedTerm::open(term_file.clone());
        let state = ManagedState {
            highest: remembered.highest(),
            ..ManagedState::default()
        };
        Managed(Arc::new(Shared {
            settings,
            shares,
            node,
            started: Instant::now(),
            state: Mutex::new(state),
            remembered: Mutex::new(remembered),
            term_file,
            changed: Notify::new(),
            parted: Notify::new(),
            workers,
            links,
            end_key,
            transfers: moving::Transfers::default(),
        }))
    }

    /// Gives a session a place in the lease that its client's credential proves. Returns the place and the
    /// devices that the session may use.
    ///
    /// # Errors
    /// [`NoLease`].
    pub(super) fn admit(
        &self,
        credential: &[u8],
        user: &User,
    ) -> Result<(LeasePlace, Vec<Leased>), NoLease> {
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
        let of_share = |at: &DeviceAt| (*at, state.together.get(at).cloned());
        let devices = admitted.devices.keys().map(of_share).collect();
        let times = times_of(&state.times, &claimed);
        // Dropping a `LeasePlace` locks the state, so the lock is released before one exists.
        drop(state);
        let place = LeasePlace {
            managed: self.clone(),
            number: admitted.place,
            ledger,
            owner: Owner {
                lease: Some(format!("{:?}", claimed.lease)),
                user: Some(claimed.user),
            },
            devices,
            lease: claimed.lease,
            epoch: claimed.epoch,
            times,
            resume: admitted.resume,
        };
        let leased = admitted.devices.into_iter().map(|(at, memory)| Leased {
            platform: at.platform,
            device: at.device,
            memory,
            is_timed: place.times.contains_key(&at),
        });
        let leased: Vec<Leased> = leased.collect();
        Ok((place, leased))
    }

    /// Passes a connection to the transfer of sessions that it names.
    ///
    /// # Errors
    /// The connection, with the reason to refuse it.
    pub(super) fn pass(
        &self,
        preamble: &Introduction,
        bytes: [u8; PREAMBLE],
        socket: OwnedFd,
    ) -> Result<(), (OwnedFd, Verdict)> {
        self.0.transfers.pass(preamble, bytes, socket)
    }

    /// Notes that the session has a worker. From now on, its lease's end also ends the session.
    pub(super) fn opened(&self, place: PlaceNumber) {
        self.change(|grants, _| grants.opened(place));
    }

    /// Returns the inventory as the holder of this credential may see it. Without a lease it contains no
    /// devices, and a problem that says why.
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

    /// Returns whether a credential proves a lease with devices on this node.
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
        state: &ManagedState,
        credential: &[u8],
        User(user): &User,
    ) -> Result<Claimed, NoLease> {
        if credential.is_empty() {
            return Err(NoLease::Missing);
        }
        let verifier = state.verifier.ok_or(NoLease::NoManager)?;
        let verified = verifier.verify(credential, SystemTime::now())?;
        // Where callers also authenticate, a stolen credential is useless to other users.
        if user.as_ref().is_some_and(|user| user != verified.user()) {
            return Err(NotAdmitted::OtherUser.into());
        }
        claimed_of(&verified, &self.0.node).ok_or(NoLease::Elsewhere)
    }

    /// Returns the number of current leases, and the number of leases since the daemon started.
    pub(super) fn leases(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.grants.running().len() as u64, state.grants.taken())
    }

    /// Returns whether there is a connection to the manager.
    pub(super) fn is_joined(&self) -> bool {
        self.0.state.lock().manager.is_some()
    }

    /// Returns the usage of the current leases. Drops the ledgers of leases that have ended.
    fn uses(&self) -> Vec<LeaseUse> {
        let mut state = self.0.state.lock();
        let running = state.grants.running();
        state
            .ledgers
            .retain(|lease, _| running.iter().any(|of| of.lease == *lease));
        let of = |of: message::LeaseInUse| LeaseUse {
            lease: of.lease,
            figures: state
                .ledgers
                .get(&of.lease)
                .map_or_else(Figures::default, |ledger| ledger.figures()),
            sessions: of.sessions,
        };
        running.into_iter().map(of).collect()
    }

    /// Returns whether the manager is draining this node.
    pub(super) fn is_draining(&self) -> bool {
        self.0.state.lock().grants.is_draining()
    }

    /// Notes that the daemon was asked to end: it accepts no more grants. Current leases may finish.
    pub(super) fn stop(&self) {
        let mut state = self.0.state.lock();
        state.grants.stop();
        if let Some(manager) = &state.manager {
            manager.say_stopping();
        }
    }

    /// Ends all leases, because the daemon ends. Leases without sessions end at once.
    pub(super) fn end_all(&self) {
        self.change(|grants, _| grants.end_all());
    }

    /// Closes the connection to the manager when all queued messages are delivered, or after `limit`.
    pub(super) async fn leave(&self, limit: Duration) {
        let parted = self.0.parted.notified();
        tokio::pin!(parted);
        // Registered before the stream is ended, so that the notification cannot be missed.
        parted.as_mut().enable();
        match &self.0.state.lock().manager {
            Some(manager) => manager.say_no_more(),
            None => return,
        }
        // If the manager does not answer, it treats the node as lost, and its leases as ended once the node
        // comes back.
        let _ = tokio::time::timeout(limit, parted).await;
    }

    /// Sets the node's devices, and returns the offer for the manager.
    fn offer(&self, inventory: &Inventory) -> Offer {
        let mut offer = Offer::of(inventory, &self.0.shares);
        let devices = std::mem::take(&mut offer.devices);
        self.change_state(|state, _| {
            state.together = std::mem::take(&mut offer.together);
            state.times = std::mem::take(&mut offer.times);
            state.grants.offer(devices)
        });
        offer
    }

    /// Returns the highest term of a manager that was met.
    fn highest(&self) -> HighestTerm {
        self.0.state.lock().highest
    }

    /// Decides whether a manager's answer is believed, by its metadata.
    fn hear(&self, metadata: &MetadataMap, stands_by: bool) -> Result<(), Disbelieved> {
        let has_risen = {
            let highest = &mut self.0.state.lock().highest;
            let before = *highest;
            probe::hear(highest, metadata, stands_by)?;
            *highest != before
        };
        if has_risen {
            self.keep_term();
        }
        Ok(())
    }

    /// Writes the highest known term down, for the next start.
    fn keep_term(&self) {
        let managed = self.clone();
        // The folder may lie on a server that hangs, and the daemon has one thread. Terms that overtake each other
        // do no harm, because a lower one is not written.
        tokio::task::spawn_blocking(move || {
            // Read under the file's lock, so that a later task has the latest term.
            let mut remembered = managed.0.remembered.lock();
            let highest = managed.highest();
            remembered.keep(&highest);
        });
    }

    /// What to do if the managers' term is lower than the known one.
    fn cure_of_lower_term(&self) -> Option<Cow<'static, str>> {
        let file = self.0.term_file.as_ref()?.display();
        Some(Cow::Owned(format!(
            "if the term of before was an error, remove {file} and then restart this daemon"
        )))
    }

    fn now(&self) -> Time {
        Time(self.0.started.elapsed())
    }

    /// Handles a grant of the manager.
    fn grant(&self, grant: Grant) {
        self.change_state(|state, now| {
            let user = grant.user.chars().take(MAX_USER).collect();
            state.users.insert(grant.lease, user);
            state.grants.grant(now, grant)
        });
    }

    /// Handles a withdrawal of the manager.
    fn withdraw(&self, lease: LeaseId, epoch: Epoch, reason: &str) {
        self.change_state(|state, _| {
            // The withdrawal may be an old one, which comes again.
            if state
                .moved
                .get(&lease)
                .is_some_and(|of| of.epoch <= epoch.0)
            {
                state.moved.remove(&lease);
            }
            if state.moves.get(&lease).is_some_and(|of| of.epoch <= epoch) {
                // Stops a move that is under way.
                state.moves.remove(&lease);
            }
            let user = state.users.get(&lease);
            tracing::info!(?lease, user, reason, "the device manager withdraws a lease");
            state.grants.withdraw(lease, epoch, reason)
        });
    }

    /// Changes the table and carries out the resulting actions.
    fn change(&self, change: impl FnOnce(&mut Grants, Time) -> Vec<Action>) {
        self.change_state(|state, now| change(&mut state.grants, now));
    }

    fn change_state(&self, change: impl FnOnce(&mut ManagedState, Time) -> Vec<Action>) {
        let now = self.now();
        let (mut ended, mut over) = (Vec::new(), Vec::new());
        {
            let mut state = self.0.state.lock();
            for action in change(&mut state, now) {
                match action {
                    // Reports are queued under the lock, so that they stay in order. Reports without a
                    // connection are dropped; the next hello contains the state.
                    Action::Report(lease, epoch, message) => {
                        state.log(lease, epoch, &message);
                        if matches!(message, GrantReport::Withdrawn) {
                            over.push((lease, epoch));
                        }
                        if let Some(manager) = &state.manager {
                            manager.report(lease, epoch, message);
                        }
                    }
                    Action::End(places, why) => {
                        let end = why.as_ref().map_or(LeaseEnd::Here, Why::end);
                        let reason = why.map_or_else(String::new, |why| format!(": {why}"));
                        ended.push((places, format!("the lease has ended{reason}"), end));
                    }
                }
            }
        }
        // The lock is released here, because ending sessions locks the workers' table. A session that is
        // not open yet is ended in `opened`.
        for (places, reason, end) in ended {
            self.0.workers.end_places(&places, &reason, end);
        }
        for (lease, epoch) in over {
            self.0.workers.grant_ended(lease, epoch);
        }
        self.0.changed.notify_one();
    }

    /// Ends leases at their deadlines, forever.
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

impl LeasePlace {
    /// Returns what tells the table of grants that the session has a worker.
    pub(super) fn opened(&self) -> Opened {
        Opened {
            managed: self.managed.clone(),
            number: self.number,
        }
    }

    /// Returns the number of the place.
    pub(super) fn number(&self) -> PlaceNumber {
        self.number
    }

    /// Returns the ledger that all sessions of the lease share.
    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Returns the devices of the lease, each with the `together` of its share.
    pub(super) fn devices(&self) -> &BTreeMap<DeviceAt, Option<Together>> {
        &self.devices
    }

    /// Returns the lease.
    pub(super) fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Returns the lease, and the node's grant of it.
    pub(super) fn grant(&self) -> (LeaseId, Epoch) {
        (self.lease, self.epoch)
    }

    /// Returns the lease's parts of the devices' time.
    pub(super) fn times(&self) -> &BTreeMap<DeviceAt, TimePart> {
        &self.times
    }

    /// Returns the longest time for which the session is kept while it is away, if the manager limits it.
    pub(super) fn resume(&self) -> Option<Duration> {
        self.resume
    }

    /// Returns the lease and user of the session.
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// Returns the parts of the devices' time that the claimed units have.
fn times_of(
    times: &BTreeMap<DeviceAt, offer::ShareTimes>,
    claimed: &Claimed,
) -> BTreeMap<DeviceAt, TimePart> {
    let of_device = |(at, times): (&DeviceAt, &offer::ShareTimes)| {
        let units = claimed.units.iter().filter(|unit| unit.device == *at);
        let mut shares = units.map(|unit| unit.share).peekable();
        shares.peek().is_some().then(|| (*at, times.of(shares)))
    };
    times.iter().filter_map(of_device).collect()
}

/// Returns what a verified lease claims on this node; `None` if nothing.
fn claimed_of(verified: &VerifiedLease, node: &[u8; 16]) -> Option<Claimed> {
    let here = verified.on_node(node)?;
    Some(Claimed {
        lease: LeaseId(verified.lease()),
        epoch: Epoch(here.epoch),
        user: verified.user().to_owned(),
        units: here.units.iter().map(Unit::from).collect(),
    })
}

impl ManagedState {
    fn log(&mut self, lease: LeaseId, epoch: Epoch, message: &GrantReport) {
        let (user, epoch) = (self.users.get(&lease), epoch.0);
        match message {
            GrantReport::Acknowledged => tracing::info!(?lease, user, epoch, "a lease is served"),
            GrantReport::Refused(why) => {
                tracing::warn!(?lease, user, epoch, %why, "a lease is refused");
            }
            GrantReport::Withdrawn => tracing::info!(?lease, user, epoch, "a lease has ended"),
            GrantReport::Sessions(count) => {
                tracing::debug!(?lease, user, count, "sessions of a lease")
            }
        }
        if matches!(message, GrantReport::Refused(_) | GrantReport::Withdrawn)
            && !self.grants.has(lease)
        {
            self.users.remove(&lease);
        }
    }
}
