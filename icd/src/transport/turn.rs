//! Whose turn it is to read a connection: pure.
//!
//! One of many waits for the connection's bytes: a thread of the application that waits for what they tell
//! anyway, or, when none does, the reading thread, which sleeps in the system until there is something.
//! A waiter that takes the turn has the reading thread *unarmed*: it sleeps on while bytes come, so
//! that nobody is woken but who reads. Who leaves arms it again, and what is unread then wakes it; a waiter
//! that has met nonsense closes the turn first, and shuts the connection, which wakes it too.
//!
//! What it is not: it reads nothing. Invariants: at most one has the turn, and whenever nobody has, the
//! reading thread is armed (both change together, under one lock, with what the system is told); behind
//! nonsense nothing is read, by nobody.

/// Who may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// The reading thread, which the system has woken because there is something.
    Thread,
    /// A thread that waits for something that may come.
    Waiter,
}

/// The state; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Turn {
    taken: Option<Who>,
    over: bool,
}

impl Turn {
    /// Takes the turn if it is free. Says whether; a waiter must then unarm the reading thread.
    pub(super) fn take(&mut self, who: Who) -> bool {
        let free = self.is_free();
        if free {
            self.taken = Some(who);
        }
        free
    }

    /// Whether it can be taken.
    pub(super) fn is_free(&self) -> bool {
        self.taken.is_none() && !self.over
    }

    /// Whether the reading thread has it, which hands on what is there and leaves.
    pub(super) fn is_the_threads(&self) -> bool {
        self.taken == Some(Who::Thread)
    }

    /// Gives the turn back. Says whether the reading thread must be armed.
    pub(super) fn leave(&mut self) -> bool {
        self.taken.take() == Some(Who::Waiter)
    }

    /// Who has the turn has met the end, or what no peer of ours sends: nobody reads any more. The
    /// reading thread, which buries the session, ends when it sees that.
    pub(super) fn close(&mut self) {
        self.over = true;
    }

    /// Whether it was closed.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    // The reading thread, as the system and the code around the turn have it.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum Thread {
        Asleep,
        // Woken; it has not asked for the turn yet.
        Woken,
        Reading,
        // It buries the session.
        Ended,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    struct World {
        turn: Turn,
        armed: bool,
        unread: bool,
        thread: Thread,
        reading: [bool; 2],
    }

    impl World {
        // All worlds that one step of somebody leads to.
        fn next(self) -> Vec<World> {
            let mut next = vec![World {
                unread: true,
                ..self
            }];
            match self.thread {
                Thread::Asleep if self.armed && self.unread => next.push(World {
                    thread: Thread::Woken,
                    ..self
                }),
                Thread::Asleep => {}
                Thread::Woken => {
                    let mut world = self;
                    world.thread = if world.turn.take(Who::Thread) {
                        Thread::Reading
                    } else if world.turn.is_over() && world.readers() == 0 {
                        Thread::Ended
                    } else {
                        Thread::Asleep
                    };
                    next.push(world);
                }
                Thread::Ended => {}
                Thread::Reading => {
                    next.push(World {
                        unread: false,
                        ..self
                    });
                    let mut world = self;
                    world.armed |= world.turn.leave();
                    world.thread = Thread::Asleep;
                    next.push(world);
                }
            }
            for waiter in 0..2 {
                let mut world = self;
                if self.reading[waiter] {
                    next.push(World {
                        unread: false,
                        ..self
                    });
                    world.armed |= world.turn.leave();
                    world.reading[waiter] = false;
                    next.push(world);
                    // Or because of nonsense: the connection is shut, which shows like bytes.
                    world = self;
                    world.turn.close();
                    world.unread = true;
                    world.armed |= world.turn.leave();
                    world.reading[waiter] = false;
                } else if world.turn.take(Who::Waiter) {
                    world.armed = false;
                    world.reading[waiter] = true;
                }
                next.push(world);
            }
            next
        }

        fn readers(&self) -> usize {
            let waiters = self.reading.iter().filter(|reading| **reading).count();
            waiters + usize::from(self.thread == Thread::Reading)
        }
    }

    // Every order of steps of the reading thread, two waiters and the peer.
    #[test]
    fn one_reads_and_no_byte_is_left_lying() {
        let begin = World {
            turn: Turn::default(),
            armed: true,
            unread: false,
            thread: Thread::Asleep,
            reading: [false; 2],
        };
        let mut seen = HashSet::from([begin]);
        let mut left = vec![begin];
        let mut edges: HashMap<World, Vec<World>> = HashMap::new();
        while let Some(world) = left.pop() {
            assert!(world.readers() <= 1, "{world:?}");
            // Behind nonsense nobody reads.
            assert!(!world.turn.is_over() || world.readers() == 0, "{world:?}");
            assert_eq!(world.readers() == 0, world.turn.taken.is_none());
            // Nobody reads: what lies there wakes the reading thread, or has.
            if world.readers() == 0 {
                assert!(world.armed, "{world:?}");
            }
            let next = world.next();
            for world in &next {
                if seen.insert(*world) {
                    left.push(*world);
                }
            }
            edges.insert(world, next);
        }
        // From everywhere there is a way to where all is read that needs no waiter to come.
        for begin in &seen {
            let mut reached = HashSet::from([*begin]);
            let mut left = vec![*begin];
            let mut good = false;
            while let Some(world) = left.pop() {
                good |= if world.turn.is_over() {
                    world.thread == Thread::Ended
                } else {
                    !world.unread
                };
                for next in &edges[&world] {
                    let comes = (0..2).any(|w| next.reading[w] && !world.reading[w]);
                    if !comes && reached.insert(*next) {
                        left.push(*next);
                    }
                }
            }
            assert!(good, "{begin:?}");
        }
    }

    #[test]
    fn after_the_end_nobody_reads() {
        let mut turn = Turn::default();
        assert!(turn.take(Who::Thread));
        turn.close();
        turn.leave();
        assert!(!turn.take(Who::Waiter));
        assert!(!turn.take(Who::Thread));
    }
}
