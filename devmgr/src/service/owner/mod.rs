//! The owner of the manager's state: one task that takes inputs and carries out actions.
//!
//! In each turn the owner takes all inputs that have arrived and lets the lease manager handle each. It
//! writes all their changes in one transaction ([`writing`]), and carries out the actions only after that
//! ([`effects`]). During a transaction it handles further inputs, whose changes go into the next one. So
//! the more inputs arrive, the more of them share a transaction. While the store fails, it refuses changes
//! ([`refusing`]); when that lasts too long, it ends ([`store_health`]).
//!
//! Invariant: no message contains anything that a crash could undo. Messages about one lease or to one
//! node are sent in the order of the decisions.

mod effects;
mod refusing;
mod revalidate;
mod revoked;
mod store_health;
mod work;
mod writer;
mod writing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::control::Client;
use causeway_proto::metadata::{ClusterId, Term};
use causeway_security::LeaseKey;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::authentication::{SharedDirectory, wall_now};
use super::book::{Book, Now, Sight};
use super::certified::Certified;
use super::input::{
    Answer, Ask, ConnectionId, Done, Input, News, NodeLink, NotJoined, Problem, Reply, Watcher,
    WatcherId,
};
use super::watching::Counters;
use super::wire;
use crate::etcd::Tenure;
use crate::identity::{Caller, Directory, IdentityChange, User};
use crate::inventory::NodeId;
use crate::inventory::limits::TooMuch;
use crate::lease::{
    Action, EndReason, Event, Joined, LeaseId, Manager, NewRequest, Outcome, Transition,
};
use crate::store::{Store, Write};
use crate::time::{Calendar, Span, Time};
use revalidate::Revalidation;
use revoked::Revoked;
pub(crate) use store_health::StoreLost;
use work::{Effect, Work};
pub(crate) use writer::Writer;
use writing::Writing;

/// Maximum number of inputs that share one transaction, so that the first of them does not wait for long.
const AT_ONCE: usize = 1024;
/// Length of the input queue; senders wait when it is full.
pub(crate) const INBOX: usize = 4096;

/// The owner of the state. See the module.
pub(crate) struct Owner {
    manager: Manager,
    clock: Clock,
    book: Book,
    /// Users and tokens, as decided.
    directory: Directory,
    /// Users and tokens, as durable.
    shared_directory: SharedDirectory,
    certified: Certified,
    key: Arc<LeaseKey>,
    /// The cluster, and the term in which this manager leads.
    standing: (ClusterId, Term),
    tenure: Tenure,
    heartbeat: (Duration, Duration),
    links: HashMap<NodeId, NodeLink>,
    /// Numbers of welcomes that are decided and not sent. Only a node's last one is for its present link.
    welcomes: HashMap<NodeId, u32>,
    watchers: HashMap<LeaseId, Watcher>,
    writing: Writing,
    counters: Arc<Counters>,
    revoked: Revoked,
    revalidation: Revalidation,
    /// Nodes whose outbound queue is full, to be disconnected.
    cut_off: Vec<(ConnectionId, NodeId)>,
}

/// The owner's initial state.
pub(crate) struct Beginning {
    pub(crate) manager: Manager,
    pub(crate) clock: Clock,
    pub(crate) book: Book,
    pub(crate) directory: Directory,
    pub(crate) shared_directory: SharedDirectory,
    pub(crate) certified: Certified,
    pub(crate) key: Arc<LeaseKey>,
    pub(crate) standing: (ClusterId, Term),
    pub(crate) tenure: Tenure,
    pub(crate) heartbeat: (Duration, Duration),
    pub(crate) writer: Writer,
    pub(crate) store: Box<dyn Store>,
    pub(crate) store_failure_limit: Span,
    pub(crate) health: watch::Sender<Health>,
    pub(crate) counters: Arc<Counters>,
}

/// Why the owner ends without being told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerEnd {
    /// The store has failed for too long.
    StoreLost(StoreLost),
    /// Another manager has taken the store over.
    Deposed,
    /// The time is over for which this manager may act.
    TenureOver,
}

/// Whether the manager can store changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// The cause, if it cannot.
    pub(crate) problem: Option<Problem>,
}

/// The lease manager's clock: milliseconds since the start of this process. Changes of the host's clock
/// do not move it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begin: Instant,
    calendar: Calendar,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            begin: Instant::now(),
            calendar: Calendar {
                time: Time(0),
                wall: wall_now(),
            },
        }
    }

    /// The moment of the start by both clocks.
    pub(crate) fn calendar(&self) -> Calendar {
        self.calendar
    }

    fn now(&self) -> Time {
        let since = self.begin.elapsed().as_millis();
        Time(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn instant(&self, time: Time) -> Instant {
        // At most a day ahead, because timers cannot be set arbitrarily far.
        let ahead = time.since(self.now()).0.min(86_400_000);
        Instant::now() + Duration::from_millis(ahead)
    }
}

impl Owner {
    pub(crate) fn new(beginning: Beginning) -> Owner {
        Owner {
            revalidation: Revalidation::at_start(&beginning.directory),
            manager: beginning.manager,
            clock: beginning.clock,
            book: beginning.book,
            directory: beginning.directory,
            shared_directory: beginning.shared_directory,
            certified: beginning.certified,
            key: beginning.key,
            standing: beginning.standing,
            tenure: beginning.tenure,
            heartbeat: beginning.heartbeat,
            links: HashMap::new(),
            welcomes: HashMap::new(),
            watchers: HashMap::new(),
            writing: Writing::new(
                beginning.writer,
                beginning.store,
                beginning.store_failure_limit,
                beginning.health,
            ),
            counters: beginning.counters,
            revoked: Revoked::default(),
            cut_off: Vec::new(),
        }
    }

    /// Runs until it is stopped and everything decided is written.
    ///
    /// # Errors
    /// [`OwnerEnd`]. What was decided since the last transaction may not be durable, and nothing has acted
    /// upon it.
    pub(crate) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Input>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), OwnerEnd> {
        let mut inputs = Vec::with_capacity(AT_ONCE);
        loop {
            let (wake, has_room) = (self.wake(), self.writing.has_room());
            // In this order, so that a transaction that has ended is not reported as late.
            tokio::select! {
                biased;
                () = self.tenure.ended() => return Err(OwnerEnd::TenureOver),
                ended = self.writing.ended() => if self.tenure.holds() {
                    self.end_writing(ended);
                },
                _ = stopping.wait_for(|&stop| stop) => break,
                taken = inbox.recv_many(&mut inputs, AT_ONCE), if has_room => if taken == 0 {
                    break;
                },
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
            // Before anything else: the process may have been stopped for a while.
            if !self.tenure.holds() {
                return Err(OwnerEnd::TenureOver);
            }
            if self.writing.is_deposed() {
                return Err(OwnerEnd::Deposed);
            }
            // Before the inputs, so that none is handled with permissions that have ended.
            self.revalidate();
            for input in inputs.drain(..) {
                self.take(input);
            }
            self.tick();
            // `send` only collects these nodes, because the loss of a node is an event of its own.
            while let Some((connection, node)) = self.cut_off.pop() {
                tracing::warn!(?node, "a node does not read its messages; disconnecting it");
                self.left(connection, node);
            }
            self.begin_to_write();
            if let Some(lost) = self.writing.lost(self.clock.now()) {
                return Err(OwnerEnd::StoreLost(lost));
            }
        }
        // Of a shared store, the next leader decides anew what nobody was told of.
        if !self.writing.is_shared() {
            self.write_all().await;
        }
        Ok(())
    }

    fn wake(&self) -> Option<Instant> {
        let revalidation = self.revalidation.is_due().then(Instant::now);
        let due = [self.manager.next_deadline(), self.writing.wake_at()];
        let due = due.into_iter().flatten();
        let due = due.map(|due| self.clock.instant(due));
        due.chain(revalidation).min()
    }

    fn take(&mut self, input: Input) {
        let Some(input) = self.refuse_change(input) else {
            return;
        };
        match input {
            Input::Joined(joined, link, answer) => {
                // If the caller is gone, its reader will report that the node left.
                let _ = answer.send(self.joined(joined, link));
            }
            Input::FromNode(connection, node, event) => self.hear(connection, node, event),
            Input::Left(connection, node) => self.left(connection, node),
            Input::Request(request, client, watcher) => self.request(request, client, watcher),
            Input::Consider(request, answer) => {
                self.tick();
                // Due alarms are handled by now, so the answer is that of a request made at this moment.
                let units = self.manager.consider(&request);
                let shares = units.map(|units| wire::shares(&self.book, &units));
                // The caller may be gone.
                drop(answer.send(shares));
            }
            Input::RequestLost(lease, id) => self.request_lost(lease, id),
            Input::Ask(ask, answer) => self.ask(&ask, answer),
            Input::Order(event, done) => self.order(event, done),
            Input::Forget(node, force, done) => {
                self.tick();
                // Due alarms are handled by now: the time for which the node may serve leases may have just
                // ended.
                match self.manager.may_forget(node, force) {
                    Err(not) => drop(done.send(Err(not.into()))),
                    Ok(()) => self.order(Event::ForgetNode { node, force }, done),
                }
            }
            Input::Revoke(lease, reason, done) => {
                self.remember_revoked(lease, reason);
                self.order(Event::Revoke { lease }, done);
            }
            Input::Identity(wanted, done) => self.identity(wanted, done),
            // The question counts as asked until here.
            Input::ConfirmLead(_question) => self.confirm_lead(),
            Input::Read(look) => {
                let now = Now {
                    time: self.clock.now(),
                    wall: wall_now(),
                };
                look(&Sight {
                    book: &self.book,
                    manager: &self.manager,
                    now,
                });
            }
        }
    }

    fn joined(&mut self, mut joined: Joined, link: NodeLink) -> Result<(), NotJoined> {
        if !self.may(&link.caller, Caller::may_join) {
            return Err(NotJoined::NoNode);
        }
        if let (Some(account), Some(known)) =
            (&joined.account, self.manager.account_of(joined.node))
            && account != known
        {
            let is_node = |user: &User| user.node || user.admin;
            if link.caller.admin {
                // An administrator may join as any node, and the node keeps its account.
                joined.account = None;
            } else if self.directory.user(known).is_some_and(is_node) {
                // Once the earlier account may no longer join, the new one takes the node over.
                tracing::warn!(
                    node = ?joined.node,
                    %account,
                    %known,
                    "rejected a node that belongs to another account"
                );
                return Err(NotJoined::AnothersNode);
            }
        }
        if !self.manager.has_room(joined.node, joined.account.as_ref()) {
            return Err(NotJoined::TooMany);
        }
        let known = self.manager.account_of(joined.node);
        let account = joined.account.as_ref().or(known);
        self.manager
            .may_have(joined.node, account, &joined.devices)?;
        // The link is registered first, because handling the event sends the welcome to it.
        self.book.connect(&joined, &link);
        self.links.insert(joined.node, link);
        *self.welcomes.entry(joined.node).or_default() += 1;
        self.handle(Event::NodeJoined(joined));
        Ok(())
    }

    /// Handles a message of a node, unless it comes from an earlier connection.
    fn hear(&mut self, connection: ConnectionId, node: NodeId, event: Event) {
        if !self.is_current(connection, node) {
            return;
        }
        if self.writing.is_full() {
            tracing::warn!(
                ?node,
                "too much waits for the failing store; disconnecting a node that reports more"
            );
            self.left(connection, node);
            return;
        }
        if let Err(too_much) = self.may_change(node, &event) {
            tracing::warn!(?node, %too_much, "a node exceeds its limits; disconnecting it");
            self.left(connection, node);
            return;
        }
        self.book.heard(node, &event);
        self.handle(event);
    }

    /// Checks that a node may have the devices that it reports now.
    fn may_change(&self, node: NodeId, event: &Event) -> Result<(), TooMuch> {
        match event {
            Event::NodeChanged { devices, .. } => {
                let account = self.manager.account_of(node);
                self.manager.may_have(node, account, devices)
            }
            _ => Ok(()),
        }
    }

    fn is_current(&self, connection: ConnectionId, node: NodeId) -> bool {
        let link = self.links.get(&node);
        link.is_some_and(|link| link.connection == connection)
    }

    fn left(&mut self, connection: ConnectionId, node: NodeId) {
        if self.is_current(connection, node) {
            self.links.remove(&node);
            self.book.connected.remove(&node);
            self.handle(Event::NodeLost { node });
        }
    }

    /// Passes an event to the lease manager, if no caller waits for an answer.
    fn handle(&mut self, event: Event) {
        let transition = self.transition(event);
        self.do_later(transition, Vec::new());
    }

    /// The transition of an event. Alarms that are due are handled before, as a transition of their own.
    fn transition(&mut self, event: Event) -> Transition {
        self.tick();
        self.manager.handle(self.clock.now(), event)
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        if self.manager.next_deadline().is_some_and(|due| due <= now) {
            let transition = self.manager.handle(now, Event::Tick);
            self.do_later(transition, Vec::new());
        }
    }

    fn do_later(&mut self, transition: Transition, first: Vec<Effect>) {
        let writes = transition.changes.into_iter().map(Write::Lease).collect();
        let mut effects = first;
        effects.extend(transition.actions.into_iter().map(Effect::Act));
        self.push(writes, Work { effects });
    }

    fn request(&mut self, mut request: NewRequest, client: Client, mut watcher: Watcher) {
        if let Err(not) = self.again(&watcher.caller) {
            watcher.tell(News::NotKnown(not));
            return;
        }
        Counters::count(&self.counters.requests);
        // Another user's id is replaced by a new one, so that the caller does not learn that it exists.
        if self.manager.is_anothers(request.lease, &request.party.user) {
            request.lease = LeaseId(rand::random());
        }
        let lease = request.lease;
        let mut transition = self.transition(Event::Request(request));
        let outcome = take_answer(&mut transition, lease);
        watcher.asked = self.asked(lease, &outcome, &watcher);
        self.book.clients.insert(lease, client);
        let effects = vec![
            Effect::Listen { lease, watcher },
            Effect::Act(Action::Tell { lease, outcome }),
        ];
        self.do_later(transition, effects);
    }

    /// When a request was made that got this answer. `None`: its lease was granted before, to another stream.
    fn asked(&self, lease: LeaseId, outcome: &Outcome, watcher: &Watcher) -> Option<Instant> {
        if let Outcome::Leased(_) | Outcome::Reserved(_) = outcome {
            return None;
        }
        // A client that reconnects has waited since its first request.
        let before = self
            .waited(&lease)
            .and_then(|waited| Instant::now().checked_sub(waited));
        before.or(watcher.asked)
    }

    /// For how long a request has been in the queue, if it is there.
    fn waited(&self, lease: &LeaseId) -> Option<Duration> {
        let since = self.book.waiting_since(lease)?;
        Some(Duration::from_millis(wall_now().since(since).0))
    }

    /// Handles the end of a request's stream, unless another stream has replaced it.
    fn request_lost(&mut self, lease: LeaseId, id: WatcherId) {
        let is_it = |of: &Watcher| of.id == id;
        // A request with another user's id was given a new id.
        let lease = match self.watchers.get(&lease).is_some_and(is_it) {
            true => Some(lease),
            false => self
                .watchers
                .iter()
                .find(|(_, of)| is_it(of))
                .map(|(lease, _)| *lease),
        };
        if let Some(lease) = lease {
            self.watchers.remove(&lease);
            self.handle(Event::RequestLost { lease });
        }
    }

    fn ask(&mut self, ask: &Ask, answer: oneshot::Sender<Reply<Answer>>) {
        let mut transition = self.transition(ask.event());
        let mut outcome = take_answer(&mut transition, ask.lease);
        if outcome == Outcome::Unknown && self.revoked.was_of(&ask.lease, &ask.user) {
            outcome = Outcome::Ended(EndReason::Revoked);
        }
        if let (Some(_), Outcome::Leased(granted)) = (self.writing.problem(), &mut outcome) {
            self.shorten(granted);
        }
        let effects = vec![Effect::Answer(ask.lease, answer, outcome)];
        self.do_later(transition, effects);
    }

    fn order(&mut self, event: Event, done: Done) {
        let transition = self.transition(event);
        self.do_later(transition, vec![Effect::Done(done, Ok(()))]);
    }

    /// Remembers the reason of a revocation, so that the user is told it, also later.
    fn remember_revoked(&mut self, lease: LeaseId, reason: Arc<str>) {
        if let Some(user) = self.book.whose(&lease) {
            self.revoked.remember(lease, user.clone(), reason);
        }
    }

    fn identity(&mut self, wanted: IdentityChange, done: Done) {
        let (changes, result) = match self.directory.decide(wanted, wall_now()) {
            Ok(changes) => (changes, Ok(())),
            Err(not_changed) => (Vec::new(), Err(not_changed)),
        };
        // In effect for further decisions at once. Callers are authenticated by the shared directory, which
        // follows when the changes are durable.
        let decided = changes.iter().cloned();
        decided.for_each(|change| self.directory.apply(change));
        let writes = changes.into_iter().map(Write::Identity).collect();
        let effects = vec![Effect::Done(done, result)];
        self.push(writes, Work { effects });
    }
}

/// Removes and returns the answer to an event about one lease: the first `Tell` for it.
fn take_answer(transition: &mut Transition, lease: LeaseId) -> Outcome {
    let is_answer =
        |action: &Action| matches!(action, Action::Tell { lease: of, .. } if *of == lease);
    match transition.actions.iter().position(is_answer) {
        Some(at) => match transition.actions.remove(at) {
            Action::Tell { outcome, .. } => outcome,
            _ => Outcome::Unknown,
        },
        None => Outcome::Unknown,
    }
}
