//! Who leads, of several managers over one etcd: a pure state machine. Time and etcd's answers go in, actions
//! come out.
//!
//! ```text
//! standby ── the key is free ──► taking ── taken ──► loading ── loaded ──► leading
//!    ▲                             │                    │                     │
//!    └──── another was faster ─────┴───── deposed, the lease is over, told to stop ─────┘
//! ```
//! Every manager holds an etcd lease. The leader's key hangs on its lease, so etcd removes the key when the
//! leader is silent. This module reads no clock, knows no etcd client and decides nothing about leases of
//! devices.
//!
//! Invariant: [`Leadership::may_act`] is true only while the manager leads by its own clock. That time runs
//! from when the manager *sent* the last answered message about its lease. It is never longer than the time
//! for which etcd keeps the key, unless etcd itself errs. Then the comparison in each transaction decides.

use causeway_proto::metadata::Term;

use crate::time::{Span, Time};

#[cfg(test)]
mod tests;
pub mod turned_away;

/// Pause before something that failed is tried again.
const RETRY: Span = Span(200);
/// Time for which a manager that stepped aside leaves the key to others.
const ABSTAINS: Span = Span::seconds(5);
/// Time for which a manager leaves the key to one that most nodes reach. That one takes the key at once.
const YIELDS: Span = Span::seconds(2);
/// Number of keep-alives within the lease's time.
const KEEPS: u64 = 4;

/// etcd's number of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtcdLease(pub i64);

/// The create revision of the leader's key: each taking has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

/// One time of leading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reign {
    /// Its number.
    pub term: Term,
    /// The create revision of its key. Every transaction compares it.
    pub revision: Revision,
}

/// A manager's process: a random number that each start draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ManagerId(pub u64);

/// What the leader's key says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaderKey {
    /// The leader.
    pub manager: ManagerId,
    /// Where the leader is reached, as `HOST:PORT`.
    pub address: String,
    /// Its reign.
    pub reign: Reign,
    /// Whether the leader says that it serves.
    pub serves: bool,
}

impl LeaderKey {
    /// Whether another manager than this one has the lead, and serves.
    #[must_use]
    pub fn is_served_by_other(&self, than: ManagerId) -> bool {
        self.manager != than && self.serves
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// etcd has granted a lease, or prolonged it.
    Kept {
        /// The lease.
        lease: EtcdLease,
        /// When the request was sent.
        sent: Time,
        /// The lease's time, from then on at least.
        ttl: Span,
    },
    /// etcd does not know the lease any more.
    LeaseGone(EtcdLease),
    /// A request about a lease has failed: etcd did not answer.
    NotKept,
    /// The leader's key as it is, or that there is none.
    Seen(Option<LeaderKey>),
    /// The key was taken, and hangs on this lease.
    Taken(EtcdLease, Reign),
    /// The key was not taken for this lease: another has it, or etcd did not answer.
    NotTaken(EtcdLease),
    /// The key was not taken, because another manager shall have it. The next try counts.
    Yielded(EtcdLease),
    /// The rows of this reign were read, and a transaction after that has found the manager leading.
    Loaded(Reign),
    /// They could not be read.
    NotLoaded {
        /// The reign.
        reign: Reign,
        /// Whether they are damaged, so that trying again soon is of no use.
        damaged: bool,
    },
    /// A transaction of this reign was refused: the key is another's, or gone.
    Deposed(Reign),
    /// Gives up the lead, if others can take it. They have some time for that.
    StepDown,
    /// Gives up the lead for good: the process ends.
    Stop,
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Ask etcd for a lease.
    GrantLease,
    /// Prolong the lease.
    KeepAlive(EtcdLease),
    /// Try to take the key: it must not exist.
    Take(EtcdLease),
    /// Read all rows, finish what the last leader left, and confirm the lead.
    Load(Reign),
    /// Serve as the leader.
    Serve(Reign),
    /// Decide and send nothing more, and close all connections.
    Close(Reign, Why),
    /// Remove the key, if it is still this reign's.
    Resign(Reign),
}

/// Why a reign ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Why {
    /// A transaction found another leader, or none.
    #[error("deposed: the key `leader` in etcd is not this manager's any more")]
    Deposed,
    /// The lease's time is over by this manager's clock.
    #[error("etcd has not answered in time, so another manager may lead")]
    TimeOver,
    /// An administrator, or the manager itself, wanted another leader.
    #[error("stepped down")]
    SteppedDown,
    /// The process ends.
    #[error("the manager was told to stop")]
    Stopped,
    /// The state could not be read.
    #[error("the state could not be read from etcd")]
    NotLoaded,
}

/// The state machine. See the module.
#[derive(Clone, Debug, Hash)]
pub struct Leadership {
    id: ManagerId,
    role: Role,
    lease: Option<Lease>,
    /// Whether a request about the lease is under way, and when the next one is due.
    asking: bool,
    ask_at: Time,
    leader: Option<LeaderKey>,
    /// Whether [`Event::Seen`] was ever received.
    has_seen: bool,
    /// The earliest time of the next try to take the key.
    take_at: Time,
    met: Term,
    stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lease {
    id: EtcdLease,
    until: Time,
    ttl: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Standby,
    /// A transaction that takes the key is under way, for this lease.
    Taking(EtcdLease),
    Loading(Reign),
    Leading(Reign),
}

/// The role, for those who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View<'a> {
    /// Another leads, if one is known.
    Standby(Option<&'a LeaderKey>),
    /// This manager has the key, and is about to serve.
    Loading(Reign),
    /// This manager leads.
    Leading(Reign),
}

impl Leadership {
    /// A manager that starts at `now`.
    #[must_use]
    pub fn new(id: ManagerId, now: Time) -> Leadership {
        Leadership {
            id,
            role: Role::Standby,
            lease: None,
            asking: false,
            ask_at: now,
            leader: None,
            has_seen: false,
            take_at: now,
            met: Term(0),
            stopped: false,
        }
    }

    /// Whether the manager may take in, decide or send anything now.
    #[must_use]
    pub fn may_act(&self, now: Time) -> bool {
        matches!(self.role, Role::Leading(_)) && self.lease_holds(now)
    }

    /// Until when the manager may act, if nothing else happens. `None`: it does not lead.
    #[must_use]
    pub fn acts_until(&self) -> Option<Time> {
        match self.role {
            Role::Leading(_) => self.lease.map(|lease| lease.until),
            _ => None,
        }
    }

    /// The highest term that the manager has met.
    #[must_use]
    pub fn met(&self) -> Term {
        self.met
    }

    /// The etcd lease, if there is one.
    #[must_use]
    pub fn lease(&self) -> Option<EtcdLease> {
        self.lease.map(|lease| lease.id)
    }

    /// The role.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        match self.role {
            Role::Standby | Role::Taking(_) => View::Standby(self.leader.as_ref()),
            Role::Loading(reign) => View::Loading(reign),
            Role::Leading(reign) => View::Leading(reign),
        }
    }

    /// When [`Event::Tick`] is needed at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let ask = (!self.asking && !self.stopped).then_some(self.ask_at);
        let over = self.lease.map(|lease| lease.until);
        let take = (self.may_take() || self.forgotten().is_some()).then_some(self.take_at);
        [ask, over, take].into_iter().flatten().min()
    }

    /// Handles one event.
    pub fn handle(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        // First of all, so that a manager that was stopped meanwhile does nothing else.
        self.look_at_clock(now, &mut actions);
        self.apply(now, event, &mut actions);
        // An answer may be so late that the lease's time is over already.
        self.look_at_clock(now, &mut actions);
        self.act(now, &mut actions);
        actions
    }

    fn lease_holds(&self, now: Time) -> bool {
        self.lease.is_some_and(|lease| now < lease.until)
    }

    /// Whether the key is free for this manager, as far as it knows.
    fn may_take(&self) -> bool {
        let is_vacant = self.has_seen && self.leader.is_none();
        self.role == Role::Standby && is_vacant && self.lease.is_some() && !self.stopped
    }

    /// A reign of this process that it does not lead any more, while its key is still there. It hangs on a
    /// lease that this process may be keeping, so nobody else would remove it.
    fn forgotten(&self) -> Option<Reign> {
        let key = self.leader.as_ref().filter(|key| key.manager == self.id)?;
        (self.role == Role::Standby).then_some(key.reign)
    }

    fn look_at_clock(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.lease.is_some() && !self.lease_holds(now) {
            self.lease_over(now, actions);
        }
    }

    /// The lease is over, by the manager's clock or by etcd's word. A new one is needed: the old one may
    /// end at any moment, and keys that hang on it with it.
    fn lease_over(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.lease = None;
        self.ask_at = now;
        self.end(now, Why::TimeOver, actions);
    }

    /// Ends the reign, if there is one.
    fn end(&mut self, now: Time, why: Why, actions: &mut Vec<Action>) {
        let (Role::Loading(reign) | Role::Leading(reign)) = self.role else {
            if matches!(self.role, Role::Taking(_)) && why == Why::TimeOver {
                // Whatever the transaction does: its key hangs on a lease that is given up.
                self.role = Role::Standby;
            }
            return;
        };
        self.role = Role::Standby;
        self.take_at = now.after(RETRY);
        actions.push(Action::Close(reign, why));
        if why != Why::Deposed {
            // Also if the time is over: the key would keep others waiting.
            actions.push(Action::Resign(reign));
        }
    }

    fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Kept { lease, sent, ttl } => self.kept(lease, sent, ttl),
            Event::LeaseGone(lease) => {
                self.asking = false;
                if self.lease.is_some_and(|of| of.id == lease) {
                    self.lease_over(now, actions);
                }
            }
            Event::NotKept => {
                self.asking = false;
                self.ask_at = now.after(RETRY);
            }
            Event::Seen(leader) => self.seen(now, leader, actions),
            Event::Taken(lease, reign) => self.taken(lease, reign, actions),
            Event::NotTaken(lease) if self.role == Role::Taking(lease) => {
                self.role = Role::Standby;
                self.take_at = now.after(RETRY);
            }
            Event::Yielded(lease) if self.role == Role::Taking(lease) => {
                self.role = Role::Standby;
                self.take_at = now.after(YIELDS);
            }
            Event::Loaded(reign) if self.role == Role::Loading(reign) => {
                self.role = Role::Leading(reign);
                actions.push(Action::Serve(reign));
            }
            Event::NotLoaded { reign, damaged } if self.role == Role::Loading(reign) => {
                self.end(now, Why::NotLoaded, actions);
                if damaged {
                    self.take_at = now.after(ABSTAINS);
                }
            }
            Event::Deposed(reign) if self.reign() == Some(reign) => {
                self.end(now, Why::Deposed, actions);
            }
            Event::StepDown => {
                if self.reign().is_some() {
                    self.end(now, Why::SteppedDown, actions);
                    self.take_at = now.after(ABSTAINS);
                }
            }
            Event::Stop => {
                self.stopped = true;
                self.end(now, Why::Stopped, actions);
            }
            // Of an earlier reign, or for an earlier lease.
            Event::NotTaken(_)
            | Event::Yielded(_)
            | Event::Loaded(_)
            | Event::NotLoaded { .. }
            | Event::Deposed(_) => {}
            Event::Tick => {}
        }
    }

    fn kept(&mut self, id: EtcdLease, sent: Time, ttl: Span) {
        self.asking = false;
        let until = sent.after(ttl);
        match &mut self.lease {
            Some(lease) if lease.id == id => {
                // Answers may overtake each other.
                lease.until = lease.until.max(until);
                lease.ttl = ttl;
            }
            // A lease that was given up.
            Some(_) => {}
            None => self.lease = Some(Lease { id, until, ttl }),
        }
        self.ask_at = sent.after(Span(ttl.0 / KEEPS));
    }

    fn seen(&mut self, now: Time, leader: Option<LeaderKey>, actions: &mut Vec<Action>) {
        if let Some(key) = &leader {
            self.met = self.met.max(key.reign.term);
        }
        self.has_seen = true;
        if let Some(reign) = self.reign() {
            // Sightings may be older than the reign, and then say nothing.
            let is_newer = |key: &LeaderKey| key.reign.revision > reign.revision;
            if leader.as_ref().is_some_and(is_newer) {
                self.end(now, Why::Deposed, actions);
            }
        }
        if leader.as_ref().is_some_and(|key| key.manager != self.id) {
            // Another has led since this one stepped aside, so it need not stay aside any longer.
            self.take_at = self.take_at.min(now);
        }
        self.leader = leader;
    }

    fn taken(&mut self, lease: EtcdLease, reign: Reign, actions: &mut Vec<Action>) {
        self.met = self.met.max(reign.term);
        let is_kept = self.lease.is_some_and(|of| of.id == lease);
        if self.role == Role::Taking(lease) && is_kept && !self.stopped {
            self.role = Role::Loading(reign);
            actions.push(Action::Load(reign));
        } else {
            // Too late.
            actions.push(Action::Resign(reign));
        }
    }

    fn reign(&self) -> Option<Reign> {
        match self.role {
            Role::Loading(reign) | Role::Leading(reign) => Some(reign),
            Role::Standby | Role::Taking(_) => None,
        }
    }

    /// Begins what is due.
    fn act(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.stopped {
            return;
        }
        if !self.asking && now >= self.ask_at {
            self.asking = true;
            actions.push(match self.lease {
                Some(lease) => Action::KeepAlive(lease.id),
                None => Action::GrantLease,
            });
        }
        if now < self.take_at {
            return;
        }
        if let Some(reign) = self.forgotten() {
            self.take_at = now.after(RETRY);
            actions.push(Action::Resign(reign));
        } else if let Some(lease) = self.lease
            && self.may_take()
        {
            self.role = Role::Taking(lease.id);
            actions.push(Action::Take(lease.id));
        }
    }
}
