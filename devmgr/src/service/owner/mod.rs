//! The owner of the manager's state: one task; inputs in, actions out.
//!
//! It takes all inputs that are there, lets the lease machine handle each, writes all their changes in one
//! transaction ([`writing`]), and only then does what they lead to ([`carrying`]). While that is written it takes
//! the inputs that come, whose changes are the next transaction's: the busier it gets, the more of them share one.
//!
//! Invariant: nobody is told or sent anything that a crash could undo, and what one lease or one node is told
//! comes in the order in which it was decided.

mod carrying;
mod judging;
mod revoked;
mod trouble;
mod work;
mod writer;
mod writing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::control::Client;
use causeway_security::LeaseKey;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::book::{Book, Now, Sight};
use super::certified::Certified;
use super::gate::{SharedDirectory, wall_now};
use super::input::{
    Answer, Ask, ConnectionId, Done, Input, News, NodeLink, NotJoined, Problem, Reply, Unwritten,
    Watcher, WatcherId, Wish,
};
use super::watching::Counters;
use super::wire;
use crate::identity::{Caller, Directory, IdentityChange, User};
use crate::inventory::NodeId;
use crate::inventory::limits::TooMuch;
use crate::lease::{
    Action, Calendar, EndReason, Event, Joined, LeaseId, Manager, NewRequest, Outcome, Step, Time,
};
use crate::store::{Store, Write};
use judging::Judging;
use revoked::Revoked;
use work::{Effect, Meanwhile, Ordered, Work};
pub(crate) use writer::Writer;
use writing::Writing;

/// Inputs that share one transaction at most: so that the first of them need not wait for long.
const AT_ONCE: usize = 1024;
/// Inputs that wait to be handled; who has more waits.
pub(crate) const INBOX: usize = 4096;

/// See the module.
pub(crate) struct Owner {
    manager: Manager,
    clock: Clock,
    book: Book,
    /// Who is who, as it was decided.
    directory: Directory,
    /// The same, as far as it is durable, without what [`trouble`] has made count before.
    shared_directory: SharedDirectory,
    certified: Certified,
    /// That, in its order.
    early: Vec<IdentityChange>,
    key: LeaseKey,
    heartbeat: (Duration, Duration),
    links: HashMap<NodeId, NodeLink>,
    watchers: HashMap<LeaseId, Watcher>,
    writing: Writing,
    counters: Arc<Counters>,
    revoked: Revoked,
    judging: Judging,
    /// Nodes that do not read what they are sent.
    cut_off: Vec<(ConnectionId, NodeId)>,
}

/// What the owner begins with.
pub(crate) struct Beginning {
    pub(crate) manager: Manager,
    pub(crate) clock: Clock,
    pub(crate) book: Book,
    pub(crate) directory: Directory,
    pub(crate) shared_directory: SharedDirectory,
    pub(crate) certified: Certified,
    pub(crate) key: LeaseKey,
    pub(crate) heartbeat: (Duration, Duration),
    pub(crate) writer: Writer,
    pub(crate) store: Box<dyn Store>,
    pub(crate) health: watch::Sender<Health>,
    pub(crate) counters: Arc<Counters>,
}

/// Whether the manager can do its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// Why not.
    pub(crate) problem: Option<Problem>,
}

/// The lease machine's clock: milliseconds since this process began, which no setting of the host's clock moves.
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

    /// The moment of the beginning by both clocks.
    pub(crate) fn calendar(&self) -> Calendar {
        self.calendar
    }

    fn now(&self) -> Time {
        let since = self.begin.elapsed().as_millis();
        Time(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn instant(&self, time: Time) -> Instant {
        // No later than a day: a timer of a thousand years is none.
        let ahead = time.since(self.now()).0.min(86_400_000);
        Instant::now() + Duration::from_millis(ahead)
    }
}

impl Owner {
    pub(crate) fn new(beginning: Beginning) -> Owner {
        Owner {
            judging: Judging::at_start(&beginning.directory),
            manager: beginning.manager,
            clock: beginning.clock,
            book: beginning.book,
            directory: beginning.directory,
            shared_directory: beginning.shared_directory,
            certified: beginning.certified,
            early: Vec::new(),
            key: beginning.key,
            heartbeat: beginning.heartbeat,
            links: HashMap::new(),
            watchers: HashMap::new(),
            writing: Writing::new(beginning.writer, beginning.store, beginning.health),
            counters: beginning.counters,
            revoked: Revoked::default(),
            cut_off: Vec::new(),
        }
    }

    /// Works until it is told to stop, when what was decided by then is written, or until the store is lost.
    pub(crate) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Input>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut inputs = Vec::with_capacity(AT_ONCE);
        loop {
            let (wake, has_room) = (self.wake(), self.writing.has_room());
            // In this order: a transaction that has ended is not late.
            tokio::select! {
                biased;
                ended = self.writing.ended() => self.end_writing(ended),
                _ = stopping.wait_for(|&stop| stop) => break,
                taken = inbox.recv_many(&mut inputs, AT_ONCE), if has_room => if taken == 0 {
                    break;
                },
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
            if self.writing.is_lost() {
                return;
            }
            self.judge_again();
            for input in inputs.drain(..) {
                self.take(input);
            }
            self.tick();
            while let Some((connection, node)) = self.cut_off.pop() {
                tracing::warn!(
                    ?node,
                    "a node does not read what it is sent, and is cut off"
                );
                self.left(connection, node);
            }
            self.begin_to_write();
        }
        self.write_all().await;
    }

    fn wake(&self) -> Option<Instant> {
        let due = self
            .manager
            .next_deadline()
            .map(|due| self.clock.instant(due));
        let judging = self.judging.is_due().then(Instant::now);
        let due = due.into_iter().chain(self.writing.wake_at());
        due.chain(judging).min()
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Joined(joined, link, answer) => {
                // Who joins may have gone meanwhile; then its reader says that it left.
                let _ = answer.send(self.joined(joined, link));
            }
            Input::FromNode(connection, node, event) => {
                if !self.is_current(connection, node) {
                    return;
                }
                if let Err(too_much) = self.may_change(node, &event) {
                    tracing::warn!(?node, %too_much, "a node is cut off");
                    self.left(connection, node);
                    return;
                }
                self.book.heard(node, &event);
                self.handle(event);
            }
            Input::Left(connection, node) => self.left(connection, node),
            Input::Request(request, client, watcher) => self.request(request, client, watcher),
            Input::Consider(request, answer) => {
                self.tick();
                let units = self.manager.consider(request);
                let shares = units.map(|units| wire::shares(&self.book, &units));
                // Who asked may have gone meanwhile.
                drop(answer.send(shares));
            }
            Input::RequestLost(lease, id) => self.request_lost(lease, id),
            Input::Ask(ask, answer) => self.ask(&ask, answer),
            Input::Order(event, done) => {
                let takes_away = matches!(event, Event::Drain { draining: true, .. });
                if let Some(done) = self.may_order(takes_away, done) {
                    self.order(event, done);
                }
            }
            Input::Forget(node, force, done) => {
                self.tick();
                match self.manager.may_forget(node, force) {
                    Err(not) => drop(done.send(Err(not.into()))),
                    Ok(()) => self.take(Input::Order(Event::ForgetNode { node, force }, done)),
                }
            }
            Input::Revoke(lease, reason, done) => {
                self.remember_revoked(lease, reason);
                self.order(Event::Revoke { lease }, done);
            }
            Input::Identity(wanted, done) => {
                let takes_away = self.directory.takes_away(&wanted);
                if let Some(done) = self.may_order(takes_away, done) {
                    self.identity(wanted, takes_away, done);
                }
            }
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
                joined.account = None;
            } else if self.directory.user(known).is_some_and(is_node) {
                tracing::warn!(node = ?joined.node, %account, %known, "a node is another account's");
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
        self.book.connect(&joined, &link);
        self.links.insert(joined.node, link);
        self.handle(Event::NodeJoined(joined));
        Ok(())
    }

    /// Whether a node may have the devices that it says it has now.
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

    /// Lets the lease machine handle an event of which nobody awaits an answer.
    fn handle(&mut self, event: Event) {
        let step = self.step(event);
        self.do_later(step, Vec::new());
    }

    /// What an event leads to; what the time leads to comes before it, as a step of its own.
    fn step(&mut self, event: Event) -> Step {
        self.tick();
        self.manager.handle(self.clock.now(), event)
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        if self.manager.next_deadline().is_some_and(|due| due <= now) {
            let step = self.manager.handle(now, Event::Tick);
            self.do_later(step, Vec::new());
        }
    }

    fn do_later(&mut self, step: Step, first: Vec<Effect>) {
        let writes = step.changes.into_iter().map(Write::Lease).collect();
        let mut effects = first;
        effects.extend(step.actions.into_iter().map(Effect::Act));
        self.push(writes, Work { effects });
    }

    fn request(&mut self, mut request: NewRequest, client: Client, watcher: Watcher) {
        if let Some(problem) = self.writing.problem() {
            watcher.tell(News::NotWritten(Unwritten::NotDone(problem)));
            return;
        }
        if let Err(not) = self.again(&watcher.caller) {
            watcher.tell(News::NotKnown(not));
            return;
        }
        Counters::count(&self.counters.requests);
        // Whoever asks by the id of another's is served as by an id that there is not.
        if self.manager.is_anothers(request.lease, &request.user) {
            request.lease = LeaseId(rand::random());
        }
        let lease = request.lease;
        let mut step = self.step(Event::Request(request));
        let outcome = take_answer(&mut step, lease);
        self.book.clients.insert(lease, client);
        let effects = vec![
            Effect::Listen { lease, watcher },
            Effect::Act(Action::Tell { lease, outcome }),
        ];
        self.do_later(step, effects);
    }

    /// Somebody listens no more to what becomes of his request; another may have come in his place.
    fn request_lost(&mut self, lease: LeaseId, id: WatcherId) {
        let is_it = |of: &Watcher| of.id == id;
        // A request by the id of another's has got an id of its own.
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
        // To confirm is to write; the others must go on while nothing can be written.
        if ask.wish == Wish::Confirm
            && let Some(problem) = self.writing.problem()
        {
            drop(answer.send(Err(Unwritten::NotDone(problem))));
            return;
        }
        let mut step = self.step(ask.event());
        let mut outcome = take_answer(&mut step, ask.lease);
        if outcome == Outcome::Unknown && self.revoked.was_of(&ask.lease, &ask.user) {
            outcome = Outcome::Ended(EndReason::Revoked);
        }
        let effects = vec![Effect::Answer(ask.lease, answer, outcome)];
        self.do_later(step, effects);
    }

    /// While nothing can be written, an order is carried out only if it takes something away.
    fn may_order(&self, takes_away: bool, done: Done) -> Option<Done> {
        match self.writing.problem() {
            Some(problem) if !takes_away => {
                drop(done.send(Err(Unwritten::NotDone(problem).into())));
                None
            }
            _ => Some(done),
        }
    }

    fn order(&mut self, event: Event, done: Done) {
        let step = self.step(event);
        let ordered = Ordered {
            done,
            result: Ok(()),
            meanwhile: Meanwhile::Nothing,
        };
        self.do_later(step, vec![Effect::Done(ordered)]);
    }

    /// So that its user can be told, also when he asks for it later.
    fn remember_revoked(&mut self, lease: LeaseId, reason: Arc<str>) {
        if let Some(user) = self.book.whose(&lease) {
            self.revoked.remember(lease, user.clone(), reason);
        }
    }

    fn identity(&mut self, wanted: IdentityChange, takes_away: bool, done: Done) {
        let made = match &wanted {
            IdentityChange::PutToken(row) => Some(row.id.clone()),
            _ => None,
        };
        let (changes, result) = match self.directory.decide(wanted, wall_now()) {
            Ok(changes) => (changes, Ok(())),
            Err(not) => (Vec::new(), Err(not)),
        };
        let decided = changes.iter().cloned();
        decided.for_each(|change| self.directory.apply(change));
        let meanwhile = match made {
            _ if takes_away => Meanwhile::Takes(changes.clone()),
            Some(token) => Meanwhile::TakenBack(IdentityChange::DeleteToken(token)),
            None => Meanwhile::Nothing,
        };
        let ordered = Ordered {
            done,
            result,
            meanwhile,
        };
        let writes = changes.into_iter().map(Write::Identity).collect();
        let effects = vec![Effect::Done(ordered)];
        self.push(writes, Work { effects });
    }
}

/// The answer to an event about one lease: the first that is told of it.
fn take_answer(step: &mut Step, lease: LeaseId) -> Outcome {
    let is_answer =
        |action: &Action| matches!(action, Action::Tell { lease: of, .. } if *of == lease);
    match step.actions.iter().position(is_answer) {
        Some(at) => match step.actions.remove(at) {
            Action::Tell { outcome, .. } => outcome,
            _ => Outcome::Unknown,
        },
        None => Outcome::Unknown,
    }
}
