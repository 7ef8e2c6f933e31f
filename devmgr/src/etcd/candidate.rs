//! Carries out what [`Leadership`] decides: calls etcd, and reports the answers.
//!
//! One task owns the state machine. Each call to etcd ([`calls`]) is a task of its own, which reports by an event.
//! Invariant: the tenure of a reign ends before anything else is done about its end.

mod calls;

use std::sync::Arc;
use std::time::Duration;

use causeway_proto::metadata::{ClusterId, Term};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::client::Etcd;
use super::fault::Fault;
use super::keys::{Keys, Registration, leader_value};
use super::members::registrations;
use super::registering::Registering;
use super::store::EtcdStore;
use super::tenure::{Tenure, now};
use crate::leadership::turned_away::TurnedAway;
use crate::leadership::{Action, EtcdLease, Event, Leadership, ManagerId, Reign, View, Why};
use crate::store::rows::SCHEMA;
use crate::store::{StoreError, Stored};
use crate::time::{Span, Time, Wall};
use calls::{Take, compact, grant, keep_alive, load, look, register, resign, say_served};

/// Interval at which the leader's key is read again, whatever the watch says.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failed look at the leader's key.
const PAUSE: Duration = Duration::from_millis(200);

/// A manager that gives up the lead keeps its connections open in silence until another one serves, and for this time at
/// most. So nodes and clients find the next leader at once, instead of asking all managers while nobody leads.
pub const HAND_OVER: Duration = Duration::from_secs(1);

/// What the manager has to do about its role.
pub enum Order {
    /// Serve as the leader.
    Lead(Box<Lead>),
    /// Close everything of this reign and stand by.
    Close(Reign, Why),
}

/// The state of a new reign.
pub struct Lead {
    /// The reign.
    pub reign: Reign,
    /// Until when it lasts.
    pub tenure: Tenure,
    /// The store.
    pub store: EtcdStore,
    /// What the store has.
    pub stored: Stored,
}

/// What a standby says about itself and the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Where the leader is reached, if one is known.
    pub leader: Option<String>,
    /// The leader's process, if that is another one.
    pub other: Option<ManagerId>,
    /// Whether another process leads and serves.
    pub is_served: bool,
    /// The highest term that this manager has met since its start.
    pub met: Term,
    /// The cluster, if it is known.
    pub cluster: Option<ClusterId>,
    /// Why this manager, or every manager, cannot lead.
    pub problem: Option<Arc<str>>,
    /// Whether the latest look at the leader's key has succeeded.
    pub reaches_etcd: bool,
}

/// The nodes that this manager has turned away lately. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SharedTurnedAway(Arc<Mutex<TurnedAway>>);

impl SharedTurnedAway {
    /// A node has asked this manager, which stands by.
    pub fn note(&self, node: [u8; 16]) {
        self.0.lock().note(now(), node);
    }

    fn published(&self) -> u32 {
        self.0.lock().published(now())
    }
}

/// What a manager tells its candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Another manager shall lead.
    StepDown,
    /// A transaction of this reign was refused.
    Deposed(Reign),
    /// Callers reach the services of this reign.
    Serves(Reign),
    /// The process ends. The candidate's task ends when the lead is given up and another manager serves, or after
    /// [`HAND_OVER`].
    Stop,
}

/// The task that carries out what [`Leadership`] decides.
pub struct Candidate {
    etcd: Etcd,
    keys: Keys,
    id: ManagerId,
    address: String,
    dashboard: String,
    turned_away: SharedTurnedAway,
    machine: Leadership,
    events: mpsc::UnboundedSender<Happened>,
    happened: mpsc::UnboundedReceiver<Happened>,
    orders: mpsc::UnboundedSender<Order>,
    standing: watch::Sender<Standing>,
    tenure: Option<Tenure>,
    loaded: Option<(Reign, EtcdStore, Stored)>,
    ttl: Span,
    registering: Registering,
    since: Wall,
    leads: bool,
    compacting: JoinSet<()>,
    /// When this manager last gave up the lead by itself.
    gave_up_at: Option<Instant>,
    /// Removes the key of the last reign.
    resigning: Option<JoinHandle<()>>,
    /// Why etcd cannot be read.
    unreachable: Option<Arc<str>>,
    unfit: Option<Unfit>,
    /// Whose cluster etcd has, if it is not this manager's. Nothing is written there.
    foreign: Option<Arc<str>>,
    /// The term after which this manager has left the lead to another that most nodes reach. It does so once.
    yielded: Option<Term>,
}

/// Why this manager could not lead when it tried.
struct Unfit {
    reason: Arc<str>,
    /// Whether the fault is that of a call. It says nothing once another manager leads.
    may_pass: bool,
}

/// An event, with what comes with it.
enum Happened {
    Event(Event),
    Granted(EtcdLease, Time, Span),
    Loaded(Reign, Box<(EtcdStore, Stored)>),
    /// A look at the leader's key has succeeded, and has found the cluster's id, none, or a row that cannot be read; or the
    /// look has failed.
    Looked(Result<Result<Option<ClusterId>, StoreError>, Fault>),
    /// This manager leaves the lead to another, because of a mark of this term.
    Yielded(EtcdLease, Term),
    /// This manager could lead as far as the store goes (`None`), or could not.
    Fit(Option<Fault>),
    /// Whether this manager was registered.
    Registered(bool),
    Instruction(Instruction),
}

/// Gives instructions to the candidate.
#[derive(Clone)]
pub struct Instructions(mpsc::UnboundedSender<Happened>);

impl Instructions {
    /// Tells the candidate. Without effect after its end.
    pub fn send(&self, instruction: Instruction) {
        let _ = self.0.send(Happened::Instruction(instruction));
    }
}

impl Candidate {
    /// A candidate that is reached at `address`. Orders arrive in their order.
    #[must_use]
    pub fn new(
        etcd: Etcd,
        address: String,
        wall: Wall,
        standing: watch::Sender<Standing>,
    ) -> (Candidate, mpsc::UnboundedReceiver<Order>, Instructions) {
        let (events, happened) = mpsc::unbounded_channel();
        let (orders, ordered) = mpsc::unbounded_channel();
        let instructions = Instructions(events.clone());
        let id = ManagerId(rand::random());
        let candidate = Candidate {
            keys: Keys::new(&etcd.access().prefix),
            ttl: etcd.access().ttl,
            etcd,
            id,
            address,
            dashboard: String::new(),
            turned_away: SharedTurnedAway::default(),
            machine: Leadership::new(id, now()),
            events,
            happened,
            orders,
            standing,
            tenure: None,
            loaded: None,
            registering: Registering::default(),
            since: wall,
            leads: false,
            compacting: JoinSet::new(),
            gave_up_at: None,
            resigning: None,
            unreachable: None,
            unfit: None,
            foreign: None,
            yielded: None,
        };
        (candidate, ordered, instructions)
    }

    /// Says where others reach this manager's dashboard.
    #[must_use]
    pub fn with_dashboard(self, url: String) -> Candidate {
        let dashboard = url;
        Candidate { dashboard, ..self }
    }

    /// Publishes how many nodes this manager has turned away.
    #[must_use]
    pub fn counting(self, turned_away: SharedTurnedAway) -> Candidate {
        Candidate {
            turned_away,
            ..self
        }
    }

    /// Runs until [`Instruction::Stop`], or until nobody takes orders any more. `wall` is the host's clock.
    pub async fn run(mut self, wall: impl Fn() -> Wall) {
        let watching = self.look_at_leader();
        let watching = tokio::spawn(watching);
        while !self.orders.is_closed() {
            let due = self.machine.next_deadline();
            let wait = due.map(|due| Duration::from_millis(due.since(now()).0));
            let happened = tokio::select! {
                happened = self.happened.recv() => happened,
                () = tokio::time::sleep(wait.unwrap_or(LOOK_EVERY)) => None,
            };
            let stops = matches!(happened, Some(Happened::Instruction(Instruction::Stop)));
            let event = happened.map_or(Some(Event::Tick), |happened| self.event(happened));
            if let Some(event) = event {
                let actions = self.machine.handle(now(), event);
                // Before the actions: what ends the reign must not wait for them.
                if let (Some(tenure), Some(until)) = (&self.tenure, self.machine.acts_until()) {
                    tenure.prolong(until);
                }
                for action in actions {
                    self.act(action, &wall);
                }
            }
            self.publish();
            if stops {
                let is_recent = |at: &Instant| at.elapsed() < HAND_OVER;
                self.gave_up_at = self.gave_up_at.filter(is_recent);
                let since = self.gave_up_at.unwrap_or_else(Instant::now);
                // etcd removes the key with the lease in any case.
                let _ = tokio::time::timeout_at(since + HAND_OVER, self.hand_over()).await;
                break;
            }
        }
        watching.abort();
    }

    /// Waits until the key is given up and another manager serves, if this one has led a moment ago.
    async fn hand_over(&mut self) {
        if let Some(resigning) = self.resigning.take() {
            // A panic was already reported.
            let _ = resigning.await;
        }
        if self.gave_up_at.is_none() || self.standing.borrow().is_served {
            return;
        }
        // A manager that is alone has nobody to wait for.
        if let Ok(managers) = registrations(&self.etcd).await
            && managers.iter().all(|(id, _)| *id == self.id)
        {
            return;
        }
        while let Some(happened) = self.happened.recv().await {
            if let Happened::Event(Event::Seen(Some(key))) = happened
                && key.is_served_by_other(self.id)
            {
                return;
            }
        }
    }

    /// The event for the state machine, if it is one.
    fn event(&mut self, happened: Happened) -> Option<Event> {
        Some(match happened {
            Happened::Event(event) => {
                let another_leads =
                    matches!(&event, Event::Seen(Some(key)) if key.manager != self.id);
                if self
                    .unfit
                    .take_if(|of| of.may_pass && another_leads)
                    .is_some()
                {
                    self.tell_problem();
                }
                event
            }
            Happened::Granted(lease, sent, ttl) => {
                self.ttl = ttl;
                Event::Kept { lease, sent, ttl }
            }
            Happened::Loaded(reign, loaded) => {
                self.loaded = Some((reign, loaded.0, loaded.1));
                Event::Loaded(reign)
            }
            Happened::Looked(looked) => {
                self.note_look(looked);
                return None;
            }
            Happened::Yielded(lease, term) => {
                self.yielded = Some(term);
                Event::Yielded(lease)
            }
            Happened::Registered(is_done) => {
                self.registering.end(now(), is_done);
                return None;
            }
            Happened::Fit(fault) => {
                self.unfit = fault.map(|fault| Unfit {
                    may_pass: !matches!(fault, Fault::Store(_)),
                    reason: fault.to_string().into(),
                });
                self.tell_problem();
                return None;
            }
            Happened::Instruction(Instruction::StepDown) => Event::StepDown,
            Happened::Instruction(Instruction::Deposed(reign)) => Event::Deposed(reign),
            Happened::Instruction(Instruction::Serves(reign)) => {
                let value = leader_value(self.id, &self.address, reign.term, true);
                let (etcd, keys) = (self.etcd.clone(), self.keys.clone());
                tokio::spawn(say_served(etcd, keys, reign, value));
                return None;
            }
            Happened::Instruction(Instruction::Stop) => Event::Stop,
        })
    }

    // Notes what a look at the leader's key has found.
    fn note_look(&mut self, looked: Result<Result<Option<ClusterId>, StoreError>, Fault>) {
        if let Ok(found) = &looked {
            let access = self.etcd.access();
            let problem = match found {
                Ok(found) => access.check_cluster(*found).err().map(|of| of.to_string()),
                // Otherwise whoever leads reports the damaged row.
                Err(damaged) => access.cluster.map(|_| damaged.to_string()),
            };
            self.foreign = problem.map(Arc::from);
        }
        if let (Ok(Ok(Some(cluster))), None) = (&looked, &self.foreign) {
            let cluster = Some(*cluster);
            self.standing.send_if_modified(|standing| {
                std::mem::replace(&mut standing.cluster, cluster) != cluster
            });
        }
        let fault = looked.err();
        let reaches = fault.is_none();
        self.standing.send_if_modified(|standing| {
            std::mem::replace(&mut standing.reaches_etcd, reaches) != reaches
        });
        self.unreachable = fault.map(|fault| Arc::from(fault.to_string()));
        self.tell_problem();
    }

    fn tell_problem(&self) {
        let unfit = self.unfit.as_ref().map(|of| &of.reason);
        let foreign = self.foreign.as_ref();
        let problem = foreign.or(unfit).or(self.unreachable.as_ref()).cloned();
        self.standing.send_if_modified(|standing| {
            if standing.problem == problem {
                return false;
            }
            match &problem {
                Some(problem) => tracing::warn!(%problem, "this manager cannot lead"),
                None => tracing::info!("this manager can lead again"),
            }
            standing.problem = problem;
            true
        });
    }

    fn act(&mut self, action: Action, wall: &impl Fn() -> Wall) {
        match action {
            Action::GrantLease => self.spawn(grant(self.etcd.clone(), self.ttl)),
            Action::KeepAlive(lease) => {
                self.spawn(keep_alive(self.etcd.clone(), lease, self.ttl));
            }
            Action::Take(lease) => {
                let take = Take {
                    etcd: self.etcd.clone(),
                    keys: self.keys.clone(),
                    id: self.id,
                    address: self.address.clone(),
                    yielded: self.yielded,
                };
                let events = self.events.clone();
                tokio::spawn(async move { take.run(lease, &events).await });
            }
            Action::Load(reign) => {
                tracing::info!(term = reign.term.0, "the lead is taken; reading the state");
                let (etcd, events) = (self.etcd.clone(), self.events.clone());
                tokio::spawn(async move { load(etcd, reign, &events).await });
            }
            Action::Serve(reign) => self.serve(reign, wall),
            Action::Close(reign, why) => {
                if let Some(tenure) = self.tenure.take() {
                    tenure.end();
                }
                self.loaded = None;
                self.compacting.abort_all();
                if self.leads {
                    tracing::warn!(term = reign.term.0, %why, "this manager no longer leads");
                    let by_itself = matches!(why, Why::SteppedDown | Why::Stopped);
                    self.gave_up_at = by_itself.then(Instant::now);
                }
                self.set_leads(false, wall);
                // The receiver may be gone at the end.
                let _ = self.orders.send(Order::Close(reign, why));
            }
            Action::Resign(reign) => {
                // The process does not end before; see `hand_over`.
                let resign = resign(self.etcd.clone(), self.keys.clone(), reign);
                self.resigning = Some(tokio::spawn(resign));
            }
        }
    }

    fn serve(&mut self, reign: Reign, wall: &impl Fn() -> Wall) {
        let Some((of, store, stored)) = self.loaded.take().filter(|(of, ..)| *of == reign) else {
            return;
        };
        let until = self.machine.acts_until().unwrap_or(Time(0));
        let tenure = Tenure::until(until);
        self.tenure = Some(tenure.clone());
        self.set_leads(true, wall);
        tracing::info!(term = of.term.0, "this manager leads");
        self.compacting
            .spawn(compact(self.etcd.clone(), self.keys.clone()));
        let lead = Lead {
            reign,
            tenure,
            store,
            stored,
        };
        let _ = self.orders.send(Order::Lead(Box::new(lead)));
    }

    fn set_leads(&mut self, leads: bool, wall: &impl Fn() -> Wall) {
        if self.leads != leads {
            self.leads = leads;
            self.since = wall();
        }
    }

    fn spawn(&self, call: impl Future<Output = Happened> + Send + 'static) {
        let events = self.events.clone();
        tokio::spawn(async move {
            // Fails only after the candidate's end.
            let _ = events.send(call.await);
        });
    }

    /// Publishes the standing, here and in etcd.
    fn publish(&mut self) {
        let (leader, other, is_served) = match self.machine.view() {
            View::Standby(Some(key)) => {
                let is_served = key.is_served_by_other(self.id);
                (Some(key.address.clone()), Some(key.manager), is_served)
            }
            View::Standby(None) => (None, None, false),
            View::Loading(_) | View::Leading(_) => (Some(self.address.clone()), None, false),
        };
        // The leader of another cluster is nobody's.
        let leader = leader.filter(|address| !address.is_empty() && self.foreign.is_none());
        let met = self.machine.met();
        self.standing.send_if_modified(|standing| {
            let before = standing.clone();
            (standing.leader, standing.other) = (leader, other);
            (standing.is_served, standing.met) = (is_served, met);
            before != *standing
        });
        let registration = Registration {
            address: self.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            since_unix_ms: self.since.0,
            problem: self
                .standing
                .borrow()
                .problem
                .as_deref()
                .unwrap_or_default()
                .to_owned(),
            dashboard: self.dashboard.clone(),
            turned_away: self.turned_away.published(),
        };
        let Some(lease) = self.machine.lease().filter(|_| self.may_register()) else {
            return;
        };
        let wanted = (lease, registration);
        if self.registering.begin(now(), &wanted) {
            let (etcd, key) = (self.etcd.clone(), self.keys.manager(self.id));
            self.spawn(register(etcd, key, wanted));
        }
    }

    /// Whether etcd is known to have this manager's cluster, if the settings name it.
    fn may_register(&self) -> bool {
        let access = self.etcd.access();
        self.foreign.is_none() && access.check_cluster(self.standing.borrow().cluster).is_ok()
    }

    /// Follows the leader's key: by a watch, and by reading it now and then, because a member that hangs
    /// reports nothing.
    fn look_at_leader(&self) -> impl Future<Output = ()> + Send + 'static {
        let (etcd, keys, events) = (self.etcd.clone(), self.keys.clone(), self.events.clone());
        async move {
            loop {
                if let Err(fault) = look(&etcd, &keys, &events).await {
                    if events.send(Happened::Looked(Err(fault))).is_err() {
                        return;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::calls::ANSWERS_WITHIN;
    use super::*;
    use crate::etcd::Access;
    use crate::etcd::keys::leader_of;

    fn candidate() -> (Candidate, watch::Receiver<Standing>) {
        let etcd = Etcd::new(Access {
            endpoints: vec!["http://127.0.0.1:1".to_owned()],
            prefix: "/test/".to_owned(),
            cluster: None,
            tls: None,
            login: None,
            ttl: Span::seconds(2),
        });
        let (standing, stands) = watch::channel(Standing::default());
        let (candidate, ..) = Candidate::new(etcd, String::new(), Wall(0), standing);
        (candidate, stands)
    }

    /// Else it would count as unfit until the next time that nobody leads.
    #[test]
    fn a_call_that_failed_says_nothing_once_another_manager_leads() {
        let (mut candidate, stands) = candidate();
        let late = Fault::Late {
            endpoint: "etcd1".to_owned(),
            limit: ANSWERS_WITHIN,
        };
        candidate.event(Happened::Fit(Some(late)));
        candidate.event(Happened::Event(Event::Seen(None)));
        assert!(stands.borrow().problem.is_some());
        let leader = leader_of(b"{}", 1);
        candidate.event(Happened::Event(Event::Seen(Some(leader))));
        assert_eq!(stands.borrow().problem, None);
    }

    /// As an administrator does who restarts a manager after a step-down.
    #[tokio::test]
    async fn a_manager_that_is_told_to_stop_after_a_step_down_still_waits_for_the_next_leader() {
        let (mut candidate, _stands) = candidate();
        candidate.gave_up_at = Some(Instant::now());
        let id = candidate.id;
        let served = |manager, serves| {
            let key = format!(
                r#"{{"manager":"{manager:016x}","address":"","term":1,"serves":{serves}}}"#
            );
            Happened::Event(Event::Seen(Some(leader_of(key.as_bytes(), 1))))
        };
        let other = id.0 ^ 1;
        for (manager, serves) in [(id.0, true), (other, false)] {
            candidate.events.send(served(manager, serves)).unwrap();
        }
        let waits = tokio::time::timeout(Duration::from_millis(300), candidate.hand_over()).await;
        assert!(waits.is_err());
        candidate.events.send(served(other, true)).unwrap();
        candidate.hand_over().await;
    }

    #[test]
    fn a_store_that_this_manager_cannot_use_is_a_problem_whoever_leads() {
        let (mut candidate, stands) = candidate();
        let schema = StoreError::Schema { found: 9, known: 2 };
        candidate.event(Happened::Fit(Some(schema.into())));
        let leader = leader_of(b"{}", 1);
        candidate.event(Happened::Event(Event::Seen(Some(leader))));
        assert!(stands.borrow().problem.is_some());
    }
}
