//! Several managers over one store: they take the lead from each other at any moment, and those that lost it
//! act on for a while without knowing. Nodes and clients talk to any of them.
//!
//! A manager decides a transition, stores it later, and sends its actions later still, one by one. Another manager
//! may take the lead in between. So etcd's lease decides nothing here (rule 5), and the own clock of a manager
//! only how long it acts on (rule 2). Rules 1, 3 and 4 can be switched off. Then a random search finds what
//! they prevent.
//!
//! Invariants: no unit is in two stored leases, or served for two. No client hears of an end that is not
//! stored, and none hears of a lease again after its end.

use std::collections::VecDeque;

use super::node::{SimNode, ToNode};
use super::random::device;
use super::store::Store;
use super::*;
use crate::inventory::Unit;
use crate::policy::ledger::Party;

/// The rules that are kept.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Rules {
    /// Rule 1: each transaction compares the leader's key.
    pub(super) written_by_leader: bool,
    /// Rule 3: what takes something away is confirmed.
    pub(super) confirmed: bool,
    /// Rule 4: nodes and clients hear no lower term than they have met.
    pub(super) terms: bool,
}

pub(super) const ALL: Rules = Rules {
    written_by_leader: true,
    confirmed: true,
    terms: true,
};

/// How long a manager acts on after another has taken the lead, by its own clock (rule 2).
const ACTS_ON: Span = Span::seconds(2);
const MANAGERS: u64 = 2;
const NODES: u64 = 2;
const LEASES: u64 = 2;

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    TwoLeases(Unit),
    ServedTwice(Unit),
    /// A client was told that its lease is over, and it is not.
    NotOver(LeaseId),
    /// A client was told of a lease that it knows to be over.
    NotGone(LeaseId),
    /// A node was granted a unit that it serves already.
    Panicked,
}

/// A manager that leads, or believes so.
#[derive(Clone, Hash)]
struct Leading {
    manager: Manager,
    term: u64,
    /// Transitions that are not stored yet, with the calls that they answer.
    decided: VecDeque<(Option<Call>, Transition)>,
    /// What may be carried out.
    outbox: VecDeque<Effect>,
    /// Since when another manager leads.
    deposed: Option<Time>,
    /// Welcomes of each node that are decided and not sent. Only the last one is for the node's connection.
    welcomes: BTreeMap<NodeId, u32>,
}

/// A client's call to a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Call {
    client: usize,
    number: u64,
}

/// What a manager carries out after a transition is stored.
#[derive(Clone, Hash)]
enum Effect {
    Act(Action),
    /// From now on the client of this call hears of its lease.
    Listen(Call),
}

/// A client of one lease.
#[derive(Clone, Default, Hash)]
struct SimClient {
    met: u64,
    /// The manager that it asks, and the call.
    asks: Option<(usize, Call)>,
    /// The call by which it hears of its lease.
    hears: Option<Call>,
    is_over: bool,
    has_asked: bool,
}

/// Managers, nodes and clients. See the module.
#[derive(Clone, Hash)]
pub(super) struct SeveralWorld {
    rules: Rules,
    time: Time,
    store: Store,
    /// The term of the leader's key.
    term: u64,
    managers: Vec<Option<Leading>>,
    nodes: Vec<SimNode>,
    /// The manager that each node is connected to, and the highest term that it has met.
    linked: Vec<Option<(usize, u64)>>,
    met: Vec<u64>,
    /// Whether each node was welcomed on its connection. Nothing else is sent before.
    welcomed: Vec<bool>,
    clients: Vec<SimClient>,
    calls: u64,
    random: u64,
    pub(super) fault: Option<Fault>,
}

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Request,
    Renew,
    Release,
}

fn lease(which: usize) -> LeaseId {
    LeaseId([which as u8 + 1; 16])
}

fn user(which: usize) -> UserName {
    format!("u{which}").as_str().into()
}

impl SeveralWorld {
    pub(super) fn new(rules: Rules, nodes: u64, seed: u64) -> SeveralWorld {
        let node = |at| SimNode::new(at as usize, vec![device(0, true, 8, 1)]);
        SeveralWorld {
            rules,
            time: Time(1_000_000),
            store: Store::from(Rows::default()),
            term: 0,
            managers: (0..MANAGERS).map(|_| None).collect(),
            nodes: (0..nodes).map(node).collect(),
            linked: vec![None; nodes as usize],
            met: vec![0; nodes as usize],
            welcomed: vec![false; nodes as usize],
            clients: (0..LEASES).map(|_| SimClient::default()).collect(),
            calls: 0,
            // Marsaglia's xorshift needs a state other than 0.
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            fault: None,
        }
    }

    fn below(&mut self, most: u64) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % most) as usize
    }

    /// One random move.
    fn turn(&mut self) {
        match self.below(40) {
            0 => {
                let at = self.below(MANAGERS);
                self.take(at);
            }
            1..=5 => {
                let at = self.below(MANAGERS);
                self.commit(at);
            }
            6..=10 => {
                let at = self.below(MANAGERS);
                self.send(at);
            }
            11..=14 => {
                let at = self.below(NODES);
                self.deliver_to_node(at);
            }
            15..=18 => {
                let at = self.below(NODES);
                self.deliver_to_manager(at);
            }
            19..=20 => {
                let (at, to) = (self.below(NODES), self.below(MANAGERS));
                self.join(at, to);
            }
            21 => {
                let at = self.below(NODES);
                self.lose(at);
            }
            22..=26 => self.ask_something(),
            27 => {
                // The client gives its call up: it got no answer.
                let which = self.below(LEASES);
                self.give_up(which);
            }
            28 => {
                let span = self.below(400) as u64;
                self.pass(Span(span));
            }
            29 => {
                let span = self.below(40_000) as u64;
                self.pass(Span(span));
            }
            30..=31 => {
                let at = self.below(MANAGERS);
                self.tick(at);
            }
            _ => {
                let at = self.below(MANAGERS);
                self.settle(at);
            }
        }
        self.check();
    }

    /// A manager and its nodes do all that is to be done.
    pub(super) fn settle(&mut self, at: usize) {
        for _ in 0..30 {
            self.commit(at);
            self.send(at);
            for node in 0..self.nodes.len() {
                if self.linked[node].is_some_and(|(to, _)| to == at) {
                    self.deliver_to_node(node);
                    self.deliver_to_manager(node);
                }
            }
        }
    }

    /// A manager takes the lead, whatever etcd has promised to the last one.
    pub(super) fn take(&mut self, at: usize) {
        if self.managers[at]
            .as_ref()
            .is_some_and(|of| of.deposed.is_none())
        {
            return;
        }
        self.close(at);
        for other in self.managers.iter_mut().flatten() {
            other.deposed.get_or_insert(self.time);
        }
        self.term += 1;
        let calendar = Calendar {
            time: self.time,
            wall: Wall(1_700_000_000_000 + self.time.0),
        };
        self.managers[at] = Some(Leading {
            manager: Manager::load(self.store.rows(), calendar),
            term: self.term,
            decided: VecDeque::new(),
            outbox: VecDeque::new(),
            deposed: None,
            welcomes: BTreeMap::new(),
        });
    }

    /// A manager leads no longer, and all its connections break.
    fn close(&mut self, at: usize) {
        self.managers[at] = None;
        for node in 0..self.nodes.len() {
            if self.linked[node].is_some_and(|(of, _)| of == at) {
                self.linked[node] = None;
                self.nodes[node].break_link();
            }
        }
        for client in &mut self.clients {
            if client.asks.is_some_and(|(of, _)| of == at) {
                client.asks = None;
            }
        }
    }

    fn event(&mut self, at: usize, event: Event) {
        self.call(at, None, event);
    }

    fn call(&mut self, at: usize, call: Option<Call>, event: Event) {
        let time = self.time;
        if let Some(leading) = &mut self.managers[at] {
            let transition = leading.manager.handle(time, event);
            leading.decided.push_back((call, transition));
        }
    }

    /// Stores the first transition that is not stored yet.
    pub(super) fn commit(&mut self, at: usize) {
        let (rules, now) = (self.rules, self.term);
        let Some(leading) = &mut self.managers[at] else {
            return;
        };
        let Some((call, transition)) = leading.decided.pop_front() else {
            return;
        };
        let leads = leading.term == now;
        let writes = !transition.changes.is_empty();
        let takes = transition.actions.iter().any(takes);
        if !leads && ((writes && rules.written_by_leader) || (!writes && takes && rules.confirmed))
        {
            return self.close(at);
        }
        leading.outbox.extend(call.map(Effect::Listen));
        leading
            .outbox
            .extend(transition.actions.into_iter().map(Effect::Act));
        self.store.apply(&transition.changes);
    }

    /// Carries out the next action.
    pub(super) fn send(&mut self, at: usize) {
        let Some(leading) = &mut self.managers[at] else {
            return;
        };
        let term = leading.term;
        let action = match leading.outbox.pop_front() {
            Some(Effect::Act(action)) => action,
            Some(Effect::Listen(call)) => {
                self.clients[call.client].hears = Some(call);
                return;
            }
            None => return,
        };
        match action {
            Action::Welcome { node, fence } => {
                let due = leading.welcomes.entry(node).or_default();
                *due -= 1;
                if *due == 0 {
                    self.say_to_node(at, node, ToNode::Welcome(fence));
                }
            }
            Action::Drain { node, draining } => self.say_to_node(at, node, ToNode::Drain(draining)),
            Action::Grant(grant) => self.say_to_node(at, grant.node, ToNode::Grant(grant)),
            Action::Withdraw {
                node, lease, epoch, ..
            } => self.say_to_node(at, node, ToNode::Withdraw(lease, epoch)),
            Action::Tell { lease, outcome }
            | Action::Reduced { lease, outcome, .. }
            | Action::Moved { lease, outcome, .. } => {
                self.tell(at, term, lease, &outcome);
            }
            Action::Ended { lease, reason, .. } => {
                self.tell(at, term, lease, &Outcome::Ended(reason));
            }
            Action::Move { .. } | Action::Stay { .. } => {
                unreachable!("no node of this world is drained with a move")
            }
        }
    }

    fn say_to_node(&mut self, from: usize, node: NodeId, message: ToNode) {
        let at = self.nodes.iter().position(|of| of.id == node);
        let Some(at) = at.filter(|at| self.linked[*at].is_some_and(|(to, _)| to == from)) else {
            return;
        };
        self.welcomed[at] |= matches!(message, ToNode::Welcome(_));
        if let Some(link) = &mut self.nodes[at].link
            && self.welcomed[at]
        {
            link.to_node.push_back(message);
        }
    }

    /// A client hears from the manager that it asked.
    fn tell(&mut self, from: usize, term: u64, id: LeaseId, outcome: &Outcome) {
        let which = usize::from(id.0[0]) - 1;
        let client = &mut self.clients[which];
        let asks = client
            .asks
            .filter(|(of, call)| *of == from && client.hears == Some(*call));
        if asks.is_none() || (self.rules.terms && term < client.met) {
            return;
        }
        client.met = client.met.max(term);
        match outcome {
            Outcome::Unknown | Outcome::Ended(_) => {
                let stored = self.store.leases.contains_key(&id);
                if stored || self.store.waiting.contains_key(&id) {
                    self.fault = Some(Fault::NotOver(id));
                }
                (client.is_over, client.asks) = (true, None);
            }
            Outcome::Leased(_) | Outcome::Reserved(_) if client.is_over => {
                self.fault = Some(Fault::NotGone(id));
            }
            Outcome::Leased(_) | Outcome::Reserved(_) | Outcome::Refused(_) => client.asks = None,
            _ => {}
        }
    }

    pub(super) fn join(&mut self, at: usize, to: usize) {
        let Some(leading) = &mut self.managers[to] else {
            return;
        };
        let term = leading.term;
        // A node hangs up on a lower term.
        if self.linked[at].is_some() || (self.rules.terms && term < self.met[at]) {
            return;
        }
        *leading.welcomes.entry(self.nodes[at].id).or_default() += 1;
        self.linked[at] = Some((to, term));
        self.welcomed[at] = false;
        let joined = self.nodes[at].hello();
        self.event(to, Event::NodeJoined(joined));
    }

    pub(super) fn lose(&mut self, at: usize) {
        if let Some((from, _)) = self.linked[at].take() {
            self.nodes[at].break_link();
            let node = self.nodes[at].id;
            self.event(from, Event::NodeLost { node });
        }
    }

    pub(super) fn deliver_to_node(&mut self, at: usize) {
        let Some((_, term)) = self.linked[at] else {
            return;
        };
        let node = &mut self.nodes[at];
        let Some(message) = node.link.as_mut().and_then(|link| link.to_node.pop_front()) else {
            return;
        };
        if matches!(message, ToNode::Welcome(_)) {
            self.met[at] = self.met[at].max(term);
        }
        node.on_message(message, self.time);
    }

    pub(super) fn deliver_to_manager(&mut self, at: usize) {
        let Some((to, _)) = self.linked[at] else {
            return;
        };
        let link = self.nodes[at].link.as_mut();
        if let Some(event) = link.and_then(|link| link.to_manager.pop_front()) {
            self.event(to, event);
        }
    }

    fn ask_something(&mut self) {
        let (which, at) = (self.below(LEASES), self.below(MANAGERS));
        let question = match self.below(8) {
            0..=3 => Question::Request,
            4..=5 => Question::Renew,
            _ => Question::Release,
        };
        self.ask(which, at, question);
    }

    /// Whether a client would ask this. It waits for one answer at a time.
    pub(super) fn may_ask(&self, which: usize, at: usize, question: Question) -> bool {
        let client = &self.clients[which];
        let has_reason = match question {
            Question::Request => !client.is_over,
            Question::Renew | Question::Release => client.has_asked,
        };
        client.asks.is_none() && self.managers[at].is_some() && has_reason
    }

    /// A client asks a manager about its lease.
    pub(super) fn ask(&mut self, which: usize, at: usize, question: Question) {
        if !self.may_ask(which, at, question) {
            return;
        }
        let (lease, user) = (lease(which), user(which));
        let event = match question {
            Question::Request => Event::Request(new_request(which)),
            Question::Renew => Event::Renew { lease, user },
            Question::Release => Event::Release { lease, user },
        };
        self.calls += 1;
        let call = Call {
            client: which,
            number: self.calls,
        };
        let client = &mut self.clients[which];
        client.has_asked = true;
        client.asks = Some((at, call));
        self.call(at, Some(call), event);
    }

    /// A client gives its call up: it got no answer. Returns whether there was one.
    pub(super) fn give_up(&mut self, which: usize) -> bool {
        self.clients[which].asks.take().is_some()
    }

    /// Whether a manager has a transition to store, and an action to carry out.
    pub(super) fn has_work(&self, at: usize) -> (bool, bool) {
        let leading = self.managers[at].as_ref();
        leading.map_or((false, false), |of| {
            (!of.decided.is_empty(), !of.outbox.is_empty())
        })
    }

    /// Whether this manager has the lead, as the store sees it.
    pub(super) fn leads(&self, at: usize) -> bool {
        let leading = self.managers[at].as_ref();
        leading.is_some_and(|of| of.deposed.is_none())
    }

    /// The manager to which a node is connected, and whether messages are under way to the node and from it.
    pub(super) fn link_of(&self, at: usize) -> Option<(usize, bool, bool)> {
        let (to, _) = self.linked[at]?;
        let link = self.nodes[at].link.as_ref()?;
        Some((to, !link.to_node.is_empty(), !link.to_manager.is_empty()))
    }

    pub(super) fn pass(&mut self, span: Span) {
        self.time = self.time.after(span);
        for node in &mut self.nodes {
            node.time_is(self.time);
        }
        for at in 0..self.managers.len() {
            let deposed = self.managers[at].as_ref().and_then(|of| of.deposed);
            if deposed.is_some_and(|since| self.time.since(since) >= ACTS_ON) {
                self.close(at);
            }
        }
    }

    pub(super) fn tick(&mut self, at: usize) {
        let next = self.managers[at]
            .as_ref()
            .and_then(|of| of.manager.next_deadline());
        if next.is_some_and(|due| due <= self.time) {
            self.event(at, Event::Tick);
        }
    }

    pub(super) fn check(&mut self) {
        let mut taken = BTreeSet::new();
        for row in self.store.leases.values() {
            for (node, units) in &row.units {
                for of in units {
                    if !taken.insert((*node, of.unit)) {
                        self.fault = Some(Fault::TwoLeases(of.unit));
                    }
                }
            }
        }
        for node in &self.nodes {
            let mut served = BTreeSet::new();
            for unit in node.serving.values().flat_map(|of| &of.units) {
                if !served.insert(*unit) {
                    self.fault = Some(Fault::ServedTwice(*unit));
                }
            }
        }
    }
}

fn new_request(which: usize) -> NewRequest {
    NewRequest {
        lease: lease(which),
        party: Party {
            user: user(which),
            groups: Vec::new(),
        },
        devices: "1".parse().expect("a request"),
        class: Default::default(),
        limit: None,
        wait: true,
        reserve: false,
        replace: which == 0,
    }
}

/// As `Work::takes` of the service.
fn takes(action: &Action) -> bool {
    match action {
        Action::Welcome { .. }
        | Action::Withdraw { .. }
        | Action::Ended { .. }
        | Action::Reduced { .. }
        | Action::Move { .. }
        | Action::Stay { .. }
        | Action::Moved { .. } => true,
        Action::Tell { outcome, .. } => matches!(
            outcome,
            Outcome::Ended(_) | Outcome::Unknown | Outcome::Refused(_)
        ),
        Action::Drain { .. } | Action::Grant(_) => false,
    }
}

/// Searches this many cases, of this many moves each, for a fault. A node that panics over a grant has found
/// one, too.
fn search(rules: Rules, cases: u64, moves: usize) -> Option<(u64, Fault)> {
    (1..=cases).find_map(|seed| {
        let run = || {
            let mut world = SeveralWorld::new(rules, NODES, seed);
            (0..moves).find_map(|_| {
                world.turn();
                world.fault.take()
            })
        };
        let fault = match std::panic::catch_unwind(run) {
            Ok(fault) => fault,
            Err(_) => Some(Fault::Panicked),
        };
        fault.map(|fault| (seed, fault))
    })
}

/// Cases within which the absence of a rule has to be found.
const FOUND_WITHIN: u64 = 100_000;
const MOVES: usize = 150;

#[test]
fn several_managers_keep_the_rules() {
    assert_eq!(search(ALL, 5_000, MOVES), None);
}

#[test]
#[ignore = "for a release build: cargo test --release -p causeway-devmgr --lib -- --ignored several"]
fn several_managers_keep_the_rules_for_long() {
    assert_eq!(search(ALL, 1_000_000, MOVES), None);
}

#[test]
fn a_leader_that_writes_on_is_found_out() {
    let rules = Rules {
        written_by_leader: false,
        ..ALL
    };
    let found = search(rules, FOUND_WITHIN, MOVES);
    println!("{found:?}");
    assert!(found.is_some());
}

#[test]
fn an_end_that_is_not_confirmed_is_found_out() {
    let rules = Rules {
        confirmed: false,
        ..ALL
    };
    let found = search(rules, FOUND_WITHIN, MOVES);
    println!("{found:?}");
    assert!(matches!(found, Some((_, Fault::NotOver(_)))), "{found:?}");
}

#[test]
fn a_lower_term_that_is_believed_is_found_out() {
    let rules = Rules {
        terms: false,
        ..ALL
    };
    let found = search(rules, FOUND_WITHIN, MOVES);
    println!("{found:?}");
    assert!(matches!(found, Some((_, Fault::NotGone(_)))), "{found:?}");
}
