//! Every order of a few moves, with two managers over one store.
//!
//! As `exhaustive`, with the world of `several`: one node with one device, and two clients that want it. The search begins
//! where the managers' rules matter, and covers all of what is near. Rules 1, 3 and 4, switched off, are found out there.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::several::{ALL, Fault, Question, Rules, SeveralWorld};

const MANAGERS: usize = 2;
const CLIENTS: usize = 2;
const NODE: usize = 0;

/// A possible next step.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// The other manager takes the lead.
    Take(usize),
    Commit(usize),
    Send(usize),
    /// A manager and its node do all that is to be done.
    Settle(usize),
    ToNode,
    ToManager,
    /// The node leaves its manager, if it has one, and joins another.
    Join(usize),
    Lose,
    Ask(usize, usize, Question),
    GiveUp(usize),
}

/// A world, with the numbers of changes of leader and of questions that may still happen to it.
#[derive(Clone, Hash)]
struct ExploredState {
    world: SeveralWorld,
    takes: u8,
    asks: u8,
}

impl ExploredState {
    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for at in 0..MANAGERS {
            let (decided, outbox) = self.world.has_work(at);
            moves.extend(decided.then_some(Move::Commit(at)));
            moves.extend(outbox.then_some(Move::Send(at)));
            let linked = self.world.link_of(NODE);
            let has_mail = linked.is_some_and(|(to, down, up)| to == at && (down || up));
            moves.extend((decided || outbox || has_mail).then_some(Move::Settle(at)));
            moves.extend(
                linked
                    .is_none_or(|(to, ..)| to != at)
                    .then_some(Move::Join(at)),
            );
            if self.takes > 0 && !self.world.leads(at) {
                moves.push(Move::Take(at));
            }
        }
        if let Some((_, down, up)) = self.world.link_of(NODE) {
            moves.extend(down.then_some(Move::ToNode));
            moves.extend(up.then_some(Move::ToManager));
            moves.push(Move::Lose);
        }
        for which in 0..CLIENTS {
            moves.push(Move::GiveUp(which));
            if self.asks == 0 {
                continue;
            }
            for question in [Question::Request, Question::Renew, Question::Release] {
                let asked = (0..MANAGERS).filter(|at| self.world.may_ask(which, *at, question));
                moves.extend(asked.map(|at| Move::Ask(which, at, question)));
            }
        }
        moves
    }

    fn make(&mut self, next: Move) {
        let world = &mut self.world;
        match next {
            Move::Take(at) => {
                self.takes -= 1;
                world.take(at);
            }
            Move::Commit(at) => world.commit(at),
            Move::Send(at) => world.send(at),
            Move::Settle(at) => world.settle(at),
            Move::ToNode => world.deliver_to_node(NODE),
            Move::ToManager => world.deliver_to_manager(NODE),
            Move::Join(at) => {
                world.lose(NODE);
                world.join(NODE, at);
            }
            Move::Lose => world.lose(NODE),
            Move::Ask(which, at, question) => {
                self.asks -= 1;
                world.ask(which, at, question);
            }
            Move::GiveUp(which) => {
                world.give_up(which);
            }
        }
        world.check();
    }

    fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Where the search begins: the first manager leads, and the node has joined it.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// Nothing is leased.
    Idle,
    /// The node serves what the second client has asked for, and the lease is not stored yet.
    Decided,
    /// The first client has its lease.
    Leased,
}

fn start(rules: Rules, at: Start) -> SeveralWorld {
    let mut world = SeveralWorld::new(rules, 1, 1);
    world.take(0);
    world.join(NODE, 0);
    world.settle(0);
    match at {
        Start::Idle => {}
        Start::Decided => {
            world.ask(1, 0, Question::Request);
            world.commit(0);
            while world.has_work(0).1 {
                world.send(0);
            }
            world.deliver_to_node(NODE);
            world.deliver_to_manager(NODE);
            assert!(world.has_work(0).0, "the lease is decided");
        }
        Start::Leased => {
            world.ask(0, 0, Question::Request);
            world.settle(0);
        }
    }
    assert_eq!(world.fault, None);
    world
}

/// Tries every state up to `depth` moves away. Returns the number of states, and the first fault that was found.
fn search(rules: Rules, from: Start, depth: usize) -> (usize, Option<Fault>) {
    let first = ExploredState {
        world: start(rules, from),
        takes: 2,
        asks: 3,
    };
    let mut seen = HashSet::from([first.mark()]);
    let mut layer = vec![first];
    for _ in 0..depth {
        let mut next = Vec::new();
        for state in &layer {
            for step in state.moves() {
                let mut after = state.clone();
                // A node panics over a grant of what it serves.
                let made = catch_unwind(AssertUnwindSafe(|| after.make(step)));
                let fault = after.world.fault.take();
                let fault = fault.or(made.err().map(|_| Fault::Panicked));
                if fault.is_some() {
                    return (seen.len(), fault);
                }
                if seen.insert(after.mark()) {
                    next.push(after);
                }
            }
        }
        layer = next;
    }
    (seen.len(), None)
}

#[test]
fn every_order_of_a_few_moves_keeps_the_rules_of_several_managers() {
    for from in [Start::Idle, Start::Decided, Start::Leased] {
        let (states, fault) = search(ALL, from, 5);
        println!("{from:?}: {states} states");
        assert!(fault.is_none() && states > 1000, "{states} {fault:?}");
    }
}

/// Searches with more moves: minutes in a release build.
#[test]
#[ignore = "for a release build: cargo test --release -p causeway-devmgr --lib -- --ignored orders"]
fn further_out_every_order_keeps_the_rules_of_several_managers() {
    for from in [Start::Idle, Start::Decided, Start::Leased] {
        let (states, fault) = search(ALL, from, 7);
        println!("{from:?}: {states} states");
        assert_eq!(fault, None);
    }
}

#[test]
fn a_rule_that_is_switched_off_is_found_out_by_some_order() {
    let written = Rules {
        written_by_leader: false,
        ..ALL
    };
    let confirmed = Rules {
        confirmed: false,
        ..ALL
    };
    let terms = Rules {
        terms: false,
        ..ALL
    };
    for (rules, from) in [
        (written, Start::Decided),
        (confirmed, Start::Idle),
        (terms, Start::Leased),
    ] {
        let (states, fault) = search(rules, from, 6);
        println!("{rules:?}: {fault:?} after {states} states");
        assert!(fault.is_some(), "{rules:?}");
    }
}
