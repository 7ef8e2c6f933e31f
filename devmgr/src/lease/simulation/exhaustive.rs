//! Every order of a few moves, in a cluster of one or two devices.
//!
//! A breadth-first search that remembers visited states by their hash. The random test runs long and
//! covers little of what is near the start. This search stays near the start and covers all of it. At
//! each moment each message is delivered, lost or repeated, each connection broken, and each process
//! killed. The search needs no crate, because the simulated world is a value with a hash already, and the
//! search is short.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::random::device;
use super::*;

/// A possible next step.
#[derive(Clone, Copy, Debug)]
enum Move {
    Request(u8),
    Confirm(u8),
    Release(u8),
    ToNode(usize),
    ToManager(usize),
    /// The moves from here to `Crash` are faults; each path has a limited number of them.
    Drop(usize, bool),
    Repeat(usize, bool),
    Lose(usize),
    Join(usize),
    Reboot(usize),
    Restart,
    Crash(bool),
    /// Advances the time to the manager's next deadline.
    Wake,
}

/// A world, with the numbers of faults and wakes that may still happen to it.
#[derive(Clone, Hash)]
struct ExploredState {
    world: World,
    faults: u8,
    wakes: u8,
}

fn lease(which: u8) -> LeaseId {
    LeaseId([which + 1; 16])
}

fn user(which: u8) -> UserName {
    format!("u{which}").as_str().into()
}

impl ExploredState {
    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for which in 0..2 {
            let standing = self.world.manager.leases.get(&lease(which));
            match standing {
                None if !self.world.told.contains_key(&lease(which)) => {
                    moves.push(Move::Request(which))
                }
                None => {}
                Some(_) => moves.push(Move::Release(which)),
            }
            if matches!(
                self.world.told.get(&lease(which)),
                Some(ClientView::Holds(_))
            ) {
                moves.push(Move::Confirm(which));
            }
        }
        for (at, node) in self.world.nodes.iter().enumerate() {
            let Some(link) = &node.link else {
                moves.push(Move::Join(at));
                continue;
            };
            if !link.to_node.is_empty() {
                moves.push(Move::ToNode(at));
            }
            if !link.to_manager.is_empty() {
                moves.push(Move::ToManager(at));
            }
            if self.faults > 0 {
                moves.extend([Move::Lose(at), Move::Reboot(at)]);
                for up in [false, true] {
                    moves.extend([Move::Drop(at, up), Move::Repeat(at, up)]);
                }
            }
        }
        if self.faults > 0 {
            moves.extend([Move::Restart, Move::Crash(false), Move::Crash(true)]);
        }
        if self.wakes > 0 {
            moves.push(Move::Wake);
        }
        moves
    }

    fn make(&mut self, next: Move) {
        let world = &mut self.world;
        let fault = matches!(
            next,
            Move::Drop(..)
                | Move::Repeat(..)
                | Move::Lose(_)
                | Move::Reboot(_)
                | Move::Restart
                | Move::Crash(_)
        );
        self.faults -= u8::from(fault);
        match next {
            Move::Request(which) => {
                let mut new = world.new_request(which, if which == 0 { "1" } else { "1; spread" });
                world.users.remove(&new.lease);
                (new.lease, new.reserve) = (lease(which), which == 0);
                new.replace = which == 1;
                world.users.insert(new.lease, new.party.user.clone());
                world.event(Event::Request(new));
            }
            Move::Confirm(which) => world.event(Event::Confirm {
                lease: lease(which),
                user: user(which),
            }),
            Move::Release(which) => world.event(Event::Release {
                lease: lease(which),
                user: user(which),
            }),
            Move::ToNode(at) => drop(world.deliver_to_node(at)),
            Move::ToManager(at) => drop(world.deliver_to_manager(at)),
            Move::Drop(at, up) => world.drop_message(at, up),
            Move::Repeat(at, up) => world.repeat_message(at, up),
            Move::Lose(at) => world.lose(at),
            Move::Join(at) => world.join(at),
            Move::Reboot(at) => {
                world.lose(at);
                world.nodes[at].reboot();
            }
            Move::Restart => world.restart(),
            Move::Crash(store) => {
                let how = if store {
                    Crash::BeforeActions
                } else {
                    Crash::BeforeStore
                };
                world.crash = Some(how);
            }
            Move::Wake => {
                self.wakes -= 1;
                if let Some(next) = world.manager.next_deadline() {
                    world.move_to(next.max(world.time));
                    world.event(Event::Tick);
                }
            }
        }
    }

    fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Checks every state up to `depth` moves away. For one state in `every`, also checks that all is free in
/// the end. Returns the number of states.
fn search(nodes: usize, depth: usize, faults: u8, every: u64) -> usize {
    let devices = vec![vec![device(0, true, 8, 1)]; nodes];
    let world = World::new(&devices, Rows::default());
    let start = ExploredState {
        world,
        faults,
        wakes: 2,
    };
    let mut seen = HashSet::from([start.mark()]);
    let mut layer = vec![start];
    for _ in 0..depth {
        let mut next = Vec::new();
        for state in &layer {
            for step in state.moves() {
                let mut after = state.clone();
                after.make(step);
                let mark = after.mark();
                if seen.insert(mark) {
                    if mark.is_multiple_of(every) {
                        after.world.clone().check_in_the_end();
                    }
                    next.push(after);
                }
            }
        }
        layer = next;
    }
    seen.len()
}

#[test]
fn every_order_of_a_few_moves_keeps_the_rules() {
    let one = search(1, 6, 2, 32);
    let two = search(2, 4, 1, 32);
    println!("{one} and {two} states");
    assert!(one > 1000 && two > 1000, "{one}, {two}");
}

/// Searches with more moves: minutes in a release build.
#[test]
#[ignore = "for a release build: cargo test --release -p causeway-devmgr --lib -- --ignored further"]
fn further_out_every_order_keeps_the_rules() {
    println!("{} states of one node", search(1, 11, 3, 64));
    println!("{} states of two nodes", search(2, 8, 2, 64));
}
