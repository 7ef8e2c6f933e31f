//! Decides who has the role to read a connection. Pure: it reads nothing.
//!
//! One of many threads waits for the connection's bytes. That is a thread of the application which waits
//! for their effects anyway. If there is none, it is the reading thread, which sleeps in the kernel until
//! there are bytes. A waiter that takes the role *disarms* the reading thread, which then sleeps on while
//! bytes arrive. When the waiter leaves, it arms the reading thread again, and unread bytes wake it. A
//! waiter that reads malformed data first closes the role and shuts the connection, which also wakes the
//! reading thread. While a session has no connection, the role is paused.
//!
//! Invariants: at most one thread has the role. Whenever no thread has it and it is not paused, the reading
//! thread is armed (role and epoll change together, under one lock). While it is paused, epoll does not have
//! the socket. Nothing after malformed data is read.

/// A thread that may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// The reading thread, which the kernel has woken because there are bytes.
    Thread,
    /// A thread that waits for something that the bytes may bring.
    Waiter,
}

/// The state of the role; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct ReaderRole {
    taken: Option<Who>,
    over: bool,
    paused: bool,
}

impl ReaderRole {
    /// Takes the role if it is free, and returns whether it was. A waiter must then disarm the reading
    /// thread.
    pub(super) fn take(&mut self, who: Who) -> bool {
        let free = self.is_free();
        if free {
            self.taken = Some(who);
        }
        free
    }

    /// Whether the role can be taken.
    pub(super) fn is_free(&self) -> bool {
        self.taken.is_none() && !self.over && !self.paused
    }

    /// Whether the reading thread has the role. It passes on the available bytes and leaves.
    pub(super) fn is_the_threads(&self) -> bool {
        self.taken == Some(Who::Thread)
    }

    /// Gives the role back. Returns whether the reading thread must be armed.
    pub(super) fn leave(&mut self) -> bool {
        self.taken.take() == Some(Who::Waiter)
    }

    /// Closes the role for good, because its owner met the end of the stream or malformed data. The
    /// reading thread ends when it sees that, and tears the session down.
    pub(super) fn close(&mut self) {
        self.over = true;
    }

    /// Whether a thread has the role.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// Gives the role to nobody until [`ReaderRole::go_on`], because the connection has ended.
    pub(super) fn pause(&mut self) {
        self.paused = true;
    }

    /// Undoes [`ReaderRole::pause`], because there is another connection.
    pub(super) fn go_on(&mut self) {
        self.paused = false;
    }

    /// Whether the role is closed.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    // The reading thread, as the kernel and the code around the role treat it.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum Thread {
        Asleep,
        // Woken, but has not asked for the role yet.
        Woken,
        Reading,
        // The thread has ended, and tears the session down.
        Ended,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    struct World {
        role: ReaderRole,
        armed: bool,
        unread: bool,
        thread: Thread,
        reading: [bool; 2],
        // Whether the connection was replaced. One replacement leads everywhere where more would.
        is_second: bool,
    }

    impl World {
        // A thread that reads meets the end of the connection.
        fn broken(self) -> World {
            let mut world = self;
            world.role.leave();
            world.role.pause();
            world.armed = false;
            world
        }

        // The session goes on over another connection, on which bytes have come.
        fn replaced(self) -> World {
            let mut world = self;
            world.role.go_on();
            world.armed = true;
            world.unread = true;
            world.is_second = true;
            world
        }

        // All worlds that one step of any participant leads to.
        fn next(self) -> Vec<World> {
            let mut next = vec![World {
                unread: true,
                ..self
            }];
            if !self.is_second && !self.role.is_taken() {
                next.push(self.replaced());
            }
            match self.thread {
                Thread::Asleep if self.armed && self.unread => next.push(World {
                    thread: Thread::Woken,
                    ..self
                }),
                Thread::Asleep => {}
                Thread::Woken => {
                    let mut world = self;
                    world.thread = if world.role.take(Who::Thread) {
                        Thread::Reading
                    } else if world.role.is_over() && world.readers() == 0 {
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
                    world.armed |= world.role.leave();
                    world.thread = Thread::Asleep;
                    next.push(world);
                    if !self.is_second {
                        let thread = Thread::Asleep;
                        next.push(World { thread, ..self }.broken());
                    }
                }
            }
            for waiter in 0..2 {
                let mut world = self;
                if self.reading[waiter] {
                    next.push(World {
                        unread: false,
                        ..self
                    });
                    world.armed |= world.role.leave();
                    world.reading[waiter] = false;
                    next.push(world);
                    if !self.is_second {
                        let reading = world.reading;
                        next.push(World { reading, ..self }.broken());
                    }
                    // The waiter may also leave because of malformed data. The connection is then shut,
                    // which shows like bytes.
                    world = self;
                    world.role.close();
                    world.unread = true;
                    world.armed |= world.role.leave();
                    world.reading[waiter] = false;
                } else if world.role.take(Who::Waiter) {
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

    // Tries every order of steps of the reading thread, two waiters, the peer, and a connection that breaks and is
    // replaced.
    #[test]
    fn one_reads_and_no_byte_is_left_lying() {
        let begin = World {
            role: ReaderRole::default(),
            armed: true,
            unread: false,
            thread: Thread::Asleep,
            reading: [false; 2],
            is_second: false,
        };
        let mut seen = HashSet::from([begin]);
        let mut left = vec![begin];
        let mut edges: HashMap<World, Vec<World>> = HashMap::new();
        while let Some(world) = left.pop() {
            assert!(world.readers() <= 1, "{world:?}");
            // Nothing after malformed data is read.
            assert!(!world.role.is_over() || world.readers() == 0, "{world:?}");
            assert_eq!(world.readers() == 0, world.role.taken.is_none());
            // While no thread reads, unread bytes wake the reading thread or have done so.
            if world.readers() == 0 {
                assert_ne!(world.armed, world.role.paused, "{world:?}");
            }
            let next = world.next();
            for world in &next {
                if seen.insert(*world) {
                    left.push(*world);
                }
            }
            edges.insert(world, next);
        }
        // From every world, some path without a new waiter leads to one where everything is read. Only a connection
        // that broke must be replaced for that.
        for begin in &seen {
            let mut reached = HashSet::from([*begin]);
            let mut left = vec![*begin];
            let mut good = false;
            while let Some(world) = left.pop() {
                good |= if world.role.is_over() {
                    world.thread == Thread::Ended
                } else {
                    !world.unread && !world.role.paused
                };
                for next in &edges[&world] {
                    let comes = (0..2).any(|w| next.reading[w] && !world.reading[w]);
                    let helps = next.is_second && !world.is_second && !world.role.paused;
                    if !comes && !helps && reached.insert(*next) {
                        left.push(*next);
                    }
                }
            }
            assert!(good, "{begin:?}");
        }
    }

    #[test]
    fn after_the_end_nobody_reads() {
        let mut role = ReaderRole::default();
        assert!(role.take(Who::Thread));
        role.close();
        role.leave();
        assert!(!role.take(Who::Waiter));
        assert!(!role.take(Who::Thread));
    }
}
