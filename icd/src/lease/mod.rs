//! Devices of a device manager: a reservation when the program enumerates, a lease from its first context on.
//!
//! ```text
//! enumerate ──► reserve, ask the nodes ──► Offer, whose nodes become servers of the platform
//! context   ──► confirm ──► thread cw-lease: renews, and says when it is over
//! the end   ──► give back
//! ```
//! A program that only looks gives the reservation back at its end, or lets it run out. A lease that
//! `CAUSEWAY_LEASE` names is somebody else's: it is renewed here as well, and not given back.
//!
//! What it is not: it knows no OpenCL object; which servers come of an offer is the platform's. Invariants:
//! - No lock is held while the manager or a node is spoken to.
//! - No thread without a lease; none at all where no manager is configured.
//! - A child of `fork` neither renews nor gives back what its parent has: it asks for its own.
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
use crate::config::{LeaseSettings, Settings, Wish};
use crate::thread::{self, Stack};
use crate::transport::manager::{self, LeaseId, NoLease, Question};
use crate::transport::{self, Node, Reply, Target, WireError};

/// For the manager to say what it can give: its nodes may take a part of that. Who has configured a manager has asked
/// for devices, and waits for them longer than for servers that may be there or not.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// For the nodes of a lease to say what they have; the manager has heard of them just now.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// As long as a session may take to be opened.
const CONFIRM_LIMIT: Duration = Duration::from_secs(5);
const RENEW_LIMIT: Duration = Duration::from_secs(5);
/// At the end of the program nothing waits for long; what is not given back runs out.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);
/// Of one node: who has more is not looked for at all of them.
const MOST_ADDRESSES: usize = 8;

/// The one whose end is the process's.
static HELD: OnceLock<Arc<Lease>> = OnceLock::new();

/// See the module.
#[derive(Debug)]
pub struct Lease {
    settings: &'static LeaseSettings,
    general: &'static Settings,
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug)]
struct Held {
    life: Life,
    nodes: Vec<Arc<Node>>,
    losses: Losses,
    has_thread: bool,
    // A thread is asking the manager for what all need.
    is_confirming: bool,
    // How often that got no answer.
    in_vain: u64,
    // Whose it is.
    process: u32,
}

/// What was set aside.
#[derive(Debug)]
pub struct Offer {
    /// What was set aside, as programs name it to each other.
    pub lease: LeaseId,
    /// What its nodes are to be shown.
    pub credential: Bytes,
    /// The nodes.
    pub nodes: Vec<Offered>,
}

/// A node of an offer.
#[derive(Debug)]
pub struct Offered {
    /// Who it is.
    pub uuid: Bytes,
    /// Where it is.
    pub target: Target,
    /// What it has.
    pub reply: Reply,
}

/// The manager is being asked.
#[derive(Debug)]
pub struct Enumeration(JoinHandle<Result<Option<Offer>, NoLease>>);

impl Enumeration {
    /// What came of it, with the nodes' answers.
    #[must_use]
    pub fn finish(self) -> Option<Offer> {
        self.finish_or_why().ok().flatten()
    }

    /// The same, with the reason where there is nothing.
    ///
    /// # Errors
    /// [`NoLease`].
    pub fn finish_or_why(self) -> Result<Option<Offer>, NoLease> {
        // Its panic has been told.
        self.0.join().unwrap_or(Ok(None))
    }
}

/// A lease that cannot be had now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unconfirmed {
    /// It has run out, or was taken away; another may be had.
    Over,
    /// The manager is not heard.
    Unheard,
}

impl Lease {
    /// Of the process; none where nothing is asked of a manager. Asks nobody yet.
    #[must_use]
    pub fn new(general: &'static Settings) -> Option<Arc<Lease>> {
        let settings = general.lease.as_ref()?;
        Some(Arc::new(Lease {
            settings,
            general,
            held: Mutex::new(Held::of_this_process()),
            changed: Condvar::new(),
        }))
    }

    /// Asks for devices, if the program has none of the manager.
    #[must_use]
    pub fn enumerate(self: &Arc<Self>) -> Option<Enumeration> {
        // A child of a process with sessions has no OpenCL at all.
        transport::check_not_forked().ok()?;
        let asked = Instant::now();
        let mut held = self.held();
        if held.has_lost_touch() && held.life.hurry(asked) {
            self.changed.notify_all();
        }
        if !held.life.wants(asked) {
            return None;
        }
        drop(held);
        let lease = Arc::clone(self);
        let asking = thread::start("cw-lease-ask", Stack::Small, move || lease.ask(asked));
        let asking =
            asking.inspect_err(|error| tracing::error!("the manager is not asked: {error}"));
        asking.ok().map(Enumeration)
    }

    /// The nodes of the last offer, which the program sees as servers now; and those of the one before.
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

    /// A session on one of its nodes is lost: the manager knows whether the lease is, and why. Waits for nobody.
    fn look_soon(&self) {
        if self.held().life.hurry(Instant::now()) {
            self.changed.notify_all();
        }
    }

    /// Whether the node is one of its.
    #[must_use]
    pub fn has(&self, node: &Arc<Node>) -> bool {
        let held = self.held();
        held.nodes.iter().any(|own| Arc::ptr_eq(own, node))
    }

    /// Makes a lease of the reservation, if it is none yet. Waits for the network only the first time; of many threads
    /// one asks, and the others have its answer.
    ///
    /// # Errors
    /// [`Unconfirmed`].
    pub fn confirm(self: &Arc<Self>) -> Result<(), Unconfirmed> {
        let mut held = self.held();
        let (in_vain, mut has_waited) = (held.in_vain, false);
        while held.is_confirming {
            self.changed.wait(&mut held);
            has_waited = true;
            if held.in_vain != in_vain {
                return Err(Unconfirmed::Unheard);
            }
        }
        let reserved = held.life.unconfirmed();
        if reserved.is_none() {
            let (_, lease) = held.life.renewal().ok_or(Unconfirmed::Over)?;
            if has_waited || !held.has_lost_touch() {
                return Ok(());
            }
            held.is_confirming = true;
            drop(held);
            // A lost node may mean a lost lease, which its own refusal would not tell so well.
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
            (false, _) => Err(Unconfirmed::Unheard),
            (true, false) => Err(Unconfirmed::Over),
            (true, true) => Ok(()),
        }
    }

    // Whether the manager has said something.
    fn confirm_reserved(self: &Arc<Self>, lease: LeaseId) -> bool {
        let asked = Instant::now();
        let question = Question::Confirm(lease);
        match manager::ask(&self.settings.manager, question, CONFIRM_LIMIT) {
            Ok(granted) => self.keep(asked, &granted),
            Err(NoLease::Over(reason)) => {
                tracing::info!("the reservation cannot be confirmed: {reason}");
                self.held().life.over(lease, Instant::now());
            }
            Err(error) => {
                tracing::warn!("{error}");
                return false;
            }
        }
        true
    }

    /// The program wants nothing of the manager any more: what it has is given back.
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
        let question = match &self.settings.wish {
            Wish::Devices(devices) => Question::Reserve(devices.to_string(), self.settings.terms),
            Wish::Lease(lease) => Question::Renew(*lease),
        };
        let offered =
            manager::ask(&self.settings.manager, question, ASK_LIMIT).and_then(|granted| {
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
                "{error}; the devices asked of the manager at {} are left out",
                self.settings.manager.address
            );
        }
        offered
    }

    fn reserved(&self, asked: Instant, terms: Terms, granted: &Granted) -> bool {
        let mut held = self.held();
        let is_wanted = held.life.reserved(asked, terms);
        if is_wanted {
            held.losses = Losses::default();
            // What another's lease had lost before, this program never had.
            drop(held.losses.news(granted));
        }
        is_wanted
    }

    // What the nodes have: of all of them, or it is not what was asked for.
    fn look(&self, granted: Granted) -> Result<Offer, NoLease> {
        let lease = terms(&granted).lease;
        let credential = granted.signed_lease;
        let nodes: Vec<(Bytes, Vec<Target>)> = granted
            .nodes
            .into_iter()
            .map(|share| (share.node_uuid.clone(), self.targets(&share, &credential)))
            .collect();
        let found = transport::ask_any(&nodes, LOOK_LIMIT);
        let mut offered = Vec::with_capacity(nodes.len());
        for ((uuid, _), found) in nodes.into_iter().zip(found) {
            let Some((target, reply)) = found else {
                return Err(NoLease::OutOfReach(WireError::Unreachable {
                    address: "one of its nodes".to_owned(),
                    reason: "the manager says no address of it".to_owned(),
                }));
            };
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

    fn targets(&self, share: &NodeShare, credential: &Bytes) -> Vec<Target> {
        let addresses = share.addresses.iter().take(MOST_ADDRESSES);
        addresses
            .filter_map(|address| address.parse().ok())
            .map(|address| Target {
                server: self.general.server_at(address, &share.name),
                credential: credential.clone(),
            })
            .collect()
    }

    // It runs. Its nodes are to be shown what is good for longer.
    fn keep(self: &Arc<Self>, asked: Instant, granted: &Granted) {
        let mut held = self.held();
        if !held.life.running(asked, terms(granted)) {
            return;
        }
        for node in &held.nodes {
            node.set_credential(granted.signed_lease.clone());
        }
        if !held.has_thread {
            let lease = Arc::clone(self);
            // Without a thread the lease runs out in its time, which is said as any loss is.
            held.has_thread = thread::spawn("cw-lease", Stack::Runtime, move || lease.renewals());
        }
        let (lost, nodes) = (held.losses.news(granted), held.nodes.clone());
        drop(held);
        for share in lost {
            let is_it = |node: &&Arc<Node>| node.is(&share.node_uuid);
            if let Some(node) = nodes.iter().find(is_it) {
                part_lost(node, &share);
            }
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
                tracing::info!("the lease is not renewed yet: {error}");
                self.held.lock().life.unheard(Instant::now());
            }
        }
    }

    fn give_back(&self, lease: Option<LeaseId>) {
        let (Some(lease), Wish::Devices(_)) = (lease, &self.settings.wish) else {
            return;
        };
        if let Err(error) = manager::release(&self.settings.manager, lease, RELEASE_LIMIT) {
            tracing::info!("not given back, so it has to run out: {error}");
        }
    }

    // What this process has.
    fn held(&self) -> parking_lot::MutexGuard<'_, Held> {
        let mut held = self.held.lock();
        if held.process != std::process::id() {
            let nodes = std::mem::take(&mut held.nodes);
            *held = Held {
                nodes,
                ..Held::of_this_process()
            };
        }
        held
    }
}

impl Held {
    /// Whether a node of it is not heard, or has lost a session: then the lease may be lost too. Of those that were let
    /// go, with or without the program's wish, it is known.
    fn has_lost_touch(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| !node.is_available() && !node.is_disconnected())
    }

    fn of_this_process() -> Held {
        Held {
            life: Life::default(),
            nodes: Vec::new(),
            losses: Losses::default(),
            has_thread: false,
            is_confirming: false,
            in_vain: 0,
            process: std::process::id(),
        }
    }
}

/// The lease goes on without this node: it would refuse every session, and what still runs there is over.
fn part_lost(node: &Arc<Node>, share: &NodeShare) {
    let name = match &*share.name {
        "" => node.name(),
        name => name,
    };
    tracing::warn!(
        "the lease has lost the devices of node {name}: what the program does there ends in OpenCL errors, its other \
         devices go on"
    );
    node.disconnect_because("the lease has lost this node's devices");
}

fn terms(granted: &Granted) -> Terms {
    let mut lease = [0; 16];
    // The conversation has seen to its length.
    lease.copy_from_slice(&granted.lease_id);
    Terms {
        lease,
        lifetime: Duration::from_millis(granted.lifetime_ms),
    }
}

fn at_end() {
    let Some(lease) = HELD.get() else { return };
    // exit() may have been called by a signal handler on top of whoever has the lock.
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
