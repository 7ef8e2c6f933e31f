//! Devices from a device manager: a reservation when the program enumerates, a lease from its first context
//! on.
//!
//! ```text
//! enumerate ──► reserve, ask the nodes ──► Offer, whose nodes become servers of the platform
//! context   ──► confirm ──► thread cw-lease: renews the lease and reports its end
//! exit      ──► release
//! ```
//! A program that only enumerates releases the reservation at exit, or lets it expire. A lease that
//! `CAUSEWAY_LEASE` names has another holder: this module renews it too, but does not release it.
//!
//! This module knows no OpenCL object. The platform decides which servers an offer becomes. Invariants:
//! - No lock is held during a call to the manager or a node.
//! - There is a thread only while there is a lease, and none at all where no manager is configured.
//! - A child of `fork` neither renews nor releases its parent's lease: it requests its own.
#![forbid(unsafe_code)]

mod life;
pub mod renewal;

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_proto::manager::{Granted, NodeShare};
use parking_lot::{Condvar, Mutex};

use self::life::{Life, Terms};
use self::renewal::Losses;
use crate::config::{LeaseSettings, LeaseWanted, Settings};
use crate::fork;
use crate::thread::{self, Stack};
use crate::transport::manager::{self, LeaseId, NoLease, Question};
use crate::transport::{self, Node, Reply, Target, WireError};

/// Timeout for a reservation. The manager may spend part of it on asking its nodes. It is longer than the
/// timeout for plain servers, because a program with a configured manager needs the devices.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two questions for a lease whose lost node is being replaced.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Timeout for the inventories of a lease's nodes. The manager has just been in contact with these nodes.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// Timeout for the confirmation: as long as opening a session may take.
const CONFIRM_LIMIT: Duration = Duration::from_secs(5);
/// Timeout for the confirmation with several managers: a change of leader passes meanwhile.
const CONFIRM_LIMIT_OF_SEVERAL: Duration = Duration::from_secs(8);
const RENEW_LIMIT: Duration = Duration::from_secs(5);
/// Timeout for a release at exit, which must not delay the program. A lease that is not released expires.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// The lease that is released when the process exits.
static HELD: OnceLock<Arc<Lease>> = OnceLock::new();

/// The process's lease, or the settings to obtain one.
#[derive(Debug)]
pub struct Lease {
    settings: &'static LeaseSettings,
    general: &'static Settings,
    held: Mutex<LeaseEntry>,
    changed: Condvar,
}

#[derive(Debug)]
struct LeaseEntry {
    life: Life,
    nodes: Vec<Arc<Node>>,
    losses: Losses,
    // Number of the lease's moves that are known.
    moves: usize,
    has_thread: bool,
    // Whether a thread is confirming the lease at present. Other threads wait for its result.
    is_confirming: bool,
    // Number of confirmations that got no answer from the manager.
    in_vain: u64,
    // The process that this state belongs to. A child of `fork` must not use its parent's.
    process: u32,
}

/// A reservation with its nodes.
#[derive(Debug)]
pub struct Offer {
    /// The id of the reservation, and later of its lease.
    pub lease: LeaseId,
    /// The signed lease, which the client shows to the nodes.
    pub credential: Bytes,
    /// The nodes.
    pub nodes: Vec<Offered>,
}

/// A node of an offer.
#[derive(Debug)]
pub struct Offered {
    /// The node's UUID.
    pub uuid: Bytes,
    /// The addresses at which the node answered, with its connection settings.
    pub target: Target,
    /// The node's answer, with its inventory.
    pub reply: Reply,
}

/// A request to the manager in progress.
#[derive(Debug)]
pub struct Enumeration(JoinHandle<Result<Option<Offer>, NoLease>>);

impl Enumeration {
    /// Waits for the offer, including the nodes' answers. Returns `None` if there is none, whatever the
    /// reason.
    #[must_use]
    pub fn finish(self) -> Option<Offer> {
        self.finish_or_why().ok().flatten()
    }

    /// As [`Enumeration::finish`], with the reason why there is no offer.
    ///
    /// # Errors
    /// [`NoLease`] says why the manager or a node gave nothing.
    pub fn finish_or_why(self) -> Result<Option<Offer>, NoLease> {
        // The panic of that thread was reported already.
        self.0.join().unwrap_or(Ok(None))
    }
}

/// The reason why a lease cannot be confirmed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unconfirmed {
    /// The reservation or lease has expired or was revoked. The manager may grant another.
    Over,
    /// The manager does not answer.
    NoAnswer,
}

impl Lease {
    /// The process's lease. `None` if the configuration has no request. Sends nothing yet.
    #[must_use]
    pub fn new(general: &'static Settings) -> Option<Arc<Lease>> {
        let settings = general.lease.as_ref()?;
        Some(Arc::new(Lease {
            settings,
            general,
            held: Mutex::new(LeaseEntry::of_this_process()),
            changed: Condvar::new(),
        }))
    }

    /// Starts a request for devices. `None` if the program has a reservation or lease already, or should
    /// not ask now.
    #[must_use]
    pub fn enumerate(self: &Arc<Self>) -> Option<Enumeration> {
        // A child of a process with sessions cannot use OpenCL at all.
        fork::check().ok()?;
        let asked = Instant::now();
        let mut held = self.held();
        // A lost node may mean a lost lease: the renewal thread asks the manager sooner.
        if held.has_lost_touch() && held.life.hurry(asked) {
            self.changed.notify_all();
        }
        if !held.life.wants(asked) {
            return None;
        }
        drop(held);
        let lease = Arc::clone(self);
        let asking = thread::start("cw-lease-ask", Stack::Small, move || lease.ask(asked));
        let asking = asking.inspect_err(|error| {
            tracing::error!(
                "no devices are requested from the manager: its thread cannot be started: {error}"
            )
        });
        asking.ok().map(Enumeration)
    }

    /// Replaces the nodes of the lease by those of the last offer. Returns the previous nodes.
    pub fn replace_nodes(self: &Arc<Self>, nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
        for node in &nodes {
            let lease = Arc::downgrade(self);
            node.on_loss(Box::new(move || {
                if let Some(lease) = lease.upgrade() {
                    lease.look_soon();
                }
            }));
        }
        std::mem::replace(&mut self.held().nodes, nodes)
    }

    /// Called when a session on a node of the lease is lost: has the manager asked soon whether the lease
    /// is lost too. Does not block.
    fn look_soon(&self) {
        if self.held().life.hurry(Instant::now()) {
            self.changed.notify_all();
        }
    }

    /// Whether the node belongs to the lease.
    #[must_use]
    pub fn has(&self, node: &Arc<Node>) -> bool {
        let held = self.held();
        held.nodes.iter().any(|own| Arc::ptr_eq(own, node))
    }

    /// Turns the reservation into a lease, if that has not happened yet. Waits for the network only the
    /// first time. One thread asks the manager; threads that call meanwhile get the same result.
    ///
    /// # Errors
    /// [`Unconfirmed`] says whether the lease is over or the manager does not answer.
    pub fn confirm(self: &Arc<Self>) -> Result<(), Unconfirmed> {
        let mut held = self.held();
        let (in_vain, mut has_waited) = (held.in_vain, false);
        while held.is_confirming {
            self.changed.wait(&mut held);
            has_waited = true;
            if held.in_vain != in_vain {
                return Err(Unconfirmed::NoAnswer);
            }
        }
        let reserved = held.life.unconfirmed();
        if reserved.is_none() {
            let (_, lease) = held.life.renewal().ok_or(Unconfirmed::Over)?;
            if has_waited || !held.has_lost_touch() {
                return Ok(());
            }
            held.is_confirming = true;
            // The lock is released during the call. `is_confirming` makes other threads wait.
            drop(held);
            // A lost node may mean a lost lease. The manager's answer says so more clearly than the node's
            // refusal.
            self.renew(lease);
        } else {
            held.is_confirming = true;
            drop(held);
        }
        let heard = reserved.is_none_or(|lease| self.confirm_reserved(lease));
        let mut held = self.held.lock();
        held.is_confirming = false;
        held.in_vain += u64::from(!heard);
        let has = held.life.renewal().is_some();
        drop(held);
        self.changed.notify_all();
        match (heard, has) {
            (false, _) => Err(Unconfirmed::NoAnswer),
            (true, false) => Err(Unconfirmed::Over),
            (true, true) => Ok(()),
        }
    }

    // Returns whether the manager has answered.
    fn confirm_reserved(self: &Arc<Self>, lease: LeaseId) -> bool {
        let asked = Instant::now();
        let question = Question::Confirm(lease);
        let manager = &self.settings.manager;
        let limit = match manager.further.is_empty() && manager.sought.is_none() {
            true => CONFIRM_LIMIT,
            false => CONFIRM_LIMIT_OF_SEVERAL,
        };
        match manager::ask(&self.settings.manager, question, limit) {
            Ok(granted) => self.keep(asked, &granted),
            Err(NoLease::Over(reason)) => {
                tracing::info!("the reservation cannot be confirmed: {reason}");
                self.held().life.over(lease, Instant::now());
            }
            Err(error) => {
                tracing::warn!("the manager did not confirm the reservation: {error}");
                return false;
            }
        }
        true
    }

    /// Releases what the program has from the manager. The program requests nothing more afterwards.
    pub fn leave(&self) {
        let mut held = self.held();
        let left = held.life.leave();
        held.nodes.clear();
        drop(held);
        self.changed.notify_all();
        self.give_back(left);
    }

    // ---- the manager ------------------------------------------------------------

    fn ask(self: &Arc<Self>, asked: Instant) -> Result<Option<Offer>, NoLease> {
        let question = match &self.settings.wanted {
            LeaseWanted::Devices(devices) => Question::Reserve {
                request: devices.to_string(),
                terms: self.settings.terms,
                replace: self.general.survival.reexecute,
            },
            LeaseWanted::Lease(lease) => Question::Renew(*lease),
        };
        let offered = self.granted(question).and_then(|granted| {
            // The program may have called `leave` meanwhile, or another thread may have got a lease.
            // Then this one is superfluous.
            let terms = terms(&granted);
            if !self.reserved(asked, terms, &granted) {
                self.give_back(Some(terms.lease));
                return Ok(None);
            }
            if HELD.set(Arc::clone(self)).is_ok() {
                transport::at_end(at_end);
            }
            let looked = self.look(granted);
            if looked.is_err() {
                self.held().life.over(terms.lease, Instant::now());
                self.give_back(Some(terms.lease));
            }
            looked.map(Some)
        });
        if let Err(error) = &offered
            && self.held().life.refused(asked, Instant::now())
        {
            tracing::warn!(
                "{error}; the program runs without the devices requested from the manager at {}",
                self.settings.manager.all_addresses()
            );
        }
        offered
    }

    // Asks until the lease has nodes, for a while. It has none while the manager seeks equal devices for those of a lost node.
    fn granted(&self, question: Question) -> Result<Granted, NoLease> {
        let until = Instant::now() + ASK_LIMIT;
        loop {
            let granted = manager::ask(&self.settings.manager, question.clone(), ASK_LIMIT)?;
            if !granted.nodes.is_empty() {
                return Ok(granted);
            }
            if Instant::now() + ASK_AGAIN >= until {
                return Err(NoLease::Replacing(self.settings.manager.all_addresses()));
            }
            self.changed.wait_for(&mut self.held(), ASK_AGAIN);
        }
    }

    fn reserved(&self, asked: Instant, terms: Terms, granted: &Granted) -> bool {
        let mut held = self.held();
        let is_wanted = held.life.reserved(asked, terms);
        if is_wanted {
            held.losses = Losses::default();
            // Losses from before this program joined another holder's lease are not news to it.
            drop(held.losses.news(granted));
            held.moves = granted.moves.len();
        }
        is_wanted
    }

    // Asks all nodes for their inventories. Without an answer from each of them, the devices are not those
    // requested.
    fn look(&self, granted: Granted) -> Result<Offer, NoLease> {
        let lease = terms(&granted).lease;
        let credential = granted.signed_lease;
        let mut nodes = Vec::with_capacity(granted.nodes.len());
        for share in &granted.nodes {
            let Some(target) = self.target(share, &credential) else {
                return Err(NoLease::OutOfReach(WireError::Unreachable {
                    address: "one of the lease's nodes".to_owned(),
                    reason: "the manager reports no address for this node".to_owned(),
                }));
            };
            nodes.push((share.node_uuid.clone(), target));
        }
        let uuids: Vec<Bytes> = nodes.iter().map(|(uuid, _)| uuid.clone()).collect();
        let found = transport::ask_by_uuid(nodes, LOOK_LIMIT);
        let mut offered = Vec::with_capacity(found.len());
        for (uuid, (target, reply)) in uuids.into_iter().zip(found) {
            if let Err(error) = reply.inventory {
                return Err(NoLease::OutOfReach(error));
            }
            offered.push(Offered {
                uuid,
                target,
                reply,
            });
        }
        Ok(Offer {
            lease,
            credential,
            nodes: offered,
        })
    }

    // `None` if the manager has reported no address.
    fn target(&self, share: &NodeShare, credential: &Bytes) -> Option<Target> {
        Some(Target {
            server: self.general.server_at(&share.addresses, &share.name)?,
            credential: credential.clone(),
        })
    }

    // Records that the lease runs, gives its nodes the newer signed lease, and starts the renewal thread.
    fn keep(self: &Arc<Self>, asked: Instant, granted: &Granted) {
        let mut held = self.held();
        if !held.life.running(asked, terms(granted)) {
            return;
        }
        for node in &held.nodes {
            node.set_replaced_within(Duration::from_millis(granted.replaced_within_ms));
            // A session must not show a lost node the credential for another one.
            if granted.moves.len() == held.moves {
                node.set_credential(granted.signed_lease.clone());
            }
        }
        if !held.has_thread {
            let lease = Arc::clone(self);
            // Without the thread the lease expires in its time. The program then sees that as a lost lease.
            held.has_thread = thread::spawn("cw-lease", Stack::Runtime, move || lease.renewals());
        }
        let (lost, nodes) = (held.losses.news(granted), held.nodes.clone());
        let known = std::mem::replace(&mut held.moves, granted.moves.len());
        drop(held);
        if known != granted.moves.len() {
            self.follow(granted, known, &nodes);
        }
        for share in lost {
            let is_it = |node: &&Arc<Node>| node.is(&share.node_uuid);
            if let Some(node) = nodes.iter().find(is_it) {
                part_lost(node, &share);
            }
        }
    }

    // Has the nodes follow the lease's moves behind the `known` ones.
    fn follow(&self, granted: &Granted, known: usize, nodes: &[Arc<Node>]) {
        for change in granted.moves.iter().skip(known) {
            let (Some(from), Some(to)) = (&change.from, &change.to) else {
                continue;
            };
            let is_it = |node: &&Arc<Node>| node.is(&from.node_uuid);
            let server = self.general.server_at(&to.addresses, &to.name);
            if let (Some(node), Some(server)) = (nodes.iter().find(is_it), server) {
                let credential = granted.signed_lease.clone();
                node.follow(to.node_uuid.clone(), server, credential, change.replaced);
            }
        }
        for node in nodes {
            node.set_credential(granted.signed_lease.clone());
        }
    }

    fn renewals(self: &Arc<Self>) {
        let mut held = self.held.lock();
        while let Some((at, lease)) = held.life.renewal() {
            if Instant::now() < at {
                self.changed.wait_until(&mut held, at);
                continue;
            }
            drop(held);
            self.renew(lease);
            held = self.held.lock();
        }
        held.has_thread = false;
    }

    fn renew(self: &Arc<Self>, lease: LeaseId) {
        let asked = Instant::now();
        match manager::ask(&self.settings.manager, Question::Renew(lease), RENEW_LIMIT) {
            Ok(granted) => self.keep(asked, &granted),
            Err(NoLease::Over(reason)) => {
                let mut held = self.held.lock();
                if !held.life.over(lease, Instant::now()) {
                    return;
                }
                let nodes = held.nodes.clone();
                drop(held);
                tracing::warn!("the device manager has ended the lease: {reason}");
                for node in nodes {
                    node.disconnect_because(&reason);
                }
            }
            Err(error) => {
                tracing::info!("the lease could not be renewed ({error}); retrying");
                self.held.lock().life.unheard(Instant::now());
            }
        }
    }

    fn give_back(&self, lease: Option<LeaseId>) {
        let (Some(lease), LeaseWanted::Devices(_)) = (lease, &self.settings.wanted) else {
            return;
        };
        if let Err(error) = manager::release(&self.settings.manager, lease, RELEASE_LIMIT) {
            tracing::info!("the lease could not be released ({error}); it will expire");
        }
    }

    // Locks the state of this process. In a child of `fork`, starts from an empty state.
    fn held(&self) -> parking_lot::MutexGuard<'_, LeaseEntry> {
        let mut held = self.held.lock();
        if held.process != std::process::id() {
            // The nodes stay: the child's platform still has them as servers.
            let nodes = std::mem::take(&mut held.nodes);
            *held = LeaseEntry {
                nodes,
                ..LeaseEntry::of_this_process()
            };
        }
        held
    }
}

impl LeaseEntry {
    /// Whether a node of the lease is unavailable: then the lease may be lost too. Nodes that were
    /// disconnected on purpose do not count.
    fn has_lost_touch(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| !node.is_available() && !node.is_disconnected())
    }

    fn of_this_process() -> LeaseEntry {
        LeaseEntry {
            life: Life::default(),
            nodes: Vec::new(),
            losses: Losses::default(),
            moves: 0,
            has_thread: false,
            is_confirming: false,
            in_vain: 0,
            process: std::process::id(),
        }
    }
}

/// Handles the loss of one node's devices from a lease that otherwise continues. The node would refuse
/// every session, and what still runs there fails.
fn part_lost(node: &Arc<Node>, share: &NodeShare) {
    let name = match &*share.name {
        "" => node.name(),
        name => name,
    };
    tracing::warn!(
        "the lease has lost the devices of node {name}: commands there fail with OpenCL errors; the program's other \
         devices are not affected"
    );
    node.disconnect_because("the lease has lost this node's devices");
}

fn terms(granted: &Granted) -> Terms {
    let mut lease = [0; 16];
    // `manager::ask` has checked the length.
    lease.copy_from_slice(&granted.lease_id);
    Terms {
        lease,
        lifetime: Duration::from_millis(granted.lifetime_ms),
    }
}

fn at_end() {
    let Some(lease) = HELD.get() else { return };
    // A signal handler may have called exit() while its thread holds the lock, so this does not wait for
    // long.
    let Some(mut held) = lease.held.try_lock_for(RELEASE_LIMIT / 10) else {
        return;
    };
    if held.process != std::process::id() {
        return;
    }
    let left = held.life.leave();
    drop(held);
    lease.give_back(left);
}
