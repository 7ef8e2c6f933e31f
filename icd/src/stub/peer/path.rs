//! How the direct path of one link comes about, breaks and is given up. Pure.
//!
//! One end dials; if it cannot, the other does; if neither can, the client carries what the link would
//! have. After a break the end that told of it dials again, and so on.
//!
//! What an end tells comes in its own order: that the link is up, and then once that it is not any more. So
//! an end that has told of the first owes the second before it can tell that it failed to dial, and the two
//! are not taken for each other. What the two ends tell may come in any order.
//!
//! Invariant: whatever comes, a path goes over the client at last, or is up, or is being dialled by the one
//! end that [`Step::Dial`] named last; and once it goes over the client nothing changes that.
#![forbid(unsafe_code)]

/// A path that has broken so often is given up: it holds too badly to be made again.
const MOST_BREAKS: u32 = 5;

/// One of the two ends of a link: 0 or 1.
pub(super) type End = usize;

/// See the module.
#[derive(Debug)]
pub(super) struct Path {
    state: State,
    // What each end has told last.
    told_up: [bool; 2],
    breaks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Being made. `second`: the other end could not.
    Making {
        dialler: End,
        second: bool,
    },
    Up,
    ViaClient,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Step {
    /// Nothing.
    None,
    /// This end shall dial.
    Dial(End),
    /// Both ends shall use the client.
    GiveUp,
}

impl Path {
    /// A path that `dialler` has been asked to make.
    pub(super) fn new(dialler: End) -> Path {
        Path::in_state(State::Making {
            dialler,
            second: false,
        })
    }

    /// A path that need not be tried.
    pub(super) fn via_client() -> Path {
        Path::in_state(State::ViaClient)
    }

    fn in_state(state: State) -> Path {
        Path {
            state,
            told_up: [false; 2],
            breaks: 0,
        }
    }

    /// Whether the client carries what belongs to the link.
    pub(super) fn is_via_client(&self) -> bool {
        self.state == State::ViaClient
    }

    /// An end says that the link can be used.
    pub(super) fn handle_up(&mut self, end: End) {
        self.told_up[end] = true;
        if self.state != State::ViaClient {
            self.state = State::Up;
        }
    }

    /// An end says that the link cannot be used (any more), or that it could not make it.
    pub(super) fn handle_down(&mut self, end: End) -> Step {
        let was_up = std::mem::take(&mut self.told_up[end]);
        match self.state {
            State::ViaClient => Step::None,
            // That the other end could make it came first.
            State::Up if !was_up => Step::None,
            State::Up => self.handle_break(end),
            // The other end has told of this break before. Who still took the link for usable has not
            // begun to dial.
            State::Making { dialler, .. } if was_up && dialler == end => Step::Dial(end),
            State::Making { .. } if was_up => Step::None,
            State::Making { dialler, .. } if dialler != end => Step::None,
            State::Making { second: true, .. } => self.give_up(),
            State::Making { dialler, .. } => self.dial(1 - dialler, true),
        }
    }

    fn handle_break(&mut self, end: End) -> Step {
        self.breaks += 1;
        if self.breaks > MOST_BREAKS {
            return self.give_up();
        }
        self.dial(end, false)
    }

    fn dial(&mut self, dialler: End, second: bool) -> Step {
        self.state = State::Making { dialler, second };
        Step::Dial(dialler)
    }

    fn give_up(&mut self) -> Step {
        self.state = State::ViaClient;
        Step::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn both_ends_are_tried_once_then_the_client_carries() {
        let mut path = Path::new(1);
        assert_eq!(path.handle_down(1), Step::Dial(0));
        assert!(!path.is_via_client());
        assert_eq!(path.handle_down(0), Step::GiveUp);
        assert!(path.is_via_client());
        path.handle_up(0);
        assert_eq!(path.handle_down(0), Step::None);
        assert!(path.is_via_client(), "for good");
    }

    #[test]
    fn what_the_second_end_has_made_stays() {
        let mut path = Path::new(0);
        assert_eq!(path.handle_down(0), Step::Dial(1));
        path.handle_up(1);
        path.handle_up(0);
        assert!(!path.is_via_client());
    }

    #[test]
    fn a_failure_that_crossed_the_other_ends_success_is_nothing() {
        let mut path = Path::new(0);
        path.handle_up(1);
        assert_eq!(path.handle_down(0), Step::None);
        // The break that comes later is one.
        assert_eq!(path.handle_down(1), Step::Dial(1));
    }

    #[test]
    fn a_break_is_told_by_both_ends_and_is_one() {
        let mut path = Path::new(0);
        path.handle_up(0);
        path.handle_up(1);
        assert_eq!(path.handle_down(0), Step::Dial(0));
        assert_eq!(path.handle_down(1), Step::None, "the same break");
        // Both try again before the client carries.
        assert_eq!(path.handle_down(0), Step::Dial(1));
        assert_eq!(path.handle_down(1), Step::GiveUp);
    }

    #[test]
    fn who_took_a_broken_link_for_usable_is_asked_again() {
        let mut path = Path::new(0);
        path.handle_up(0);
        path.handle_up(1);
        assert_eq!(path.handle_down(0), Step::Dial(0));
        assert_eq!(path.handle_down(0), Step::Dial(1));
        // End 1 has heard of the break only now, so it has not dialled.
        assert_eq!(path.handle_down(1), Step::Dial(1));
        assert_eq!(path.handle_down(1), Step::GiveUp);
    }

    #[test]
    fn a_path_that_holds_badly_is_given_up() {
        let mut path = Path::new(0);
        for _ in 0..MOST_BREAKS {
            path.handle_up(0);
            assert_eq!(path.handle_down(0), Step::Dial(0));
        }
        path.handle_up(0);
        assert_eq!(path.handle_down(0), Step::GiveUp);
    }

    // Two workers as they are, and what the client makes of their words, which come late. Each has a view of
    // its own, dials when asked unless it takes the link for up, and tells what it sees.
    struct World {
        path: Path,
        workers: [Worker; 2],
    }

    #[derive(Default)]
    struct Worker {
        up: bool,
        dialling: bool,
        told: VecDeque<bool>,
    }

    impl Worker {
        fn turn(&mut self, up: bool) {
            self.up = up;
            self.dialling &= !up;
            self.told.push_back(up);
        }
    }

    impl World {
        // Each of these says whether there was anything to do.
        fn hear(&mut self, end: End) -> bool {
            let Some(up) = self.workers[end].told.pop_front() else {
                return false;
            };
            if up {
                self.path.handle_up(end);
                return true;
            }
            match self.path.handle_down(end) {
                Step::None => {}
                Step::Dial(end) => self.workers[end].dialling |= !self.workers[end].up,
                Step::GiveUp => {
                    for worker in &mut self.workers {
                        worker.dialling = false;
                        if worker.up {
                            worker.turn(false);
                        }
                    }
                }
            }
            true
        }

        // It cannot succeed while the other end takes the link for up.
        fn finish_dial(&mut self, end: End, works: bool) -> bool {
            if !std::mem::take(&mut self.workers[end].dialling) {
                return false;
            }
            if works && !self.workers[1 - end].up {
                self.workers.iter_mut().for_each(|worker| worker.turn(true));
            } else {
                self.workers[end].told.push_back(false);
            }
            true
        }

        fn see_break(&mut self, end: End) -> bool {
            let up = self.workers[end].up;
            if up {
                self.workers[end].turn(false);
            }
            up
        }
    }

    proptest! {
        // However words, dials and breaks interleave: once the network is bad for good the path goes over
        // the client, and once it is good for good the path is up or goes over the client.
        #[test]
        fn every_path_settles(
            steps in proptest::collection::vec((0..6u8, any::<bool>(), 0..2usize), 0..200),
            good in any::<bool>(),
        ) {
            let mut world = World { path: Path::new(0), workers: Default::default() };
            world.workers[0].dialling = true;
            for (what, works, end) in steps {
                match what {
                    0..=2 => world.hear(end),
                    3 | 4 => world.finish_dial(end, works),
                    _ => world.see_break(end),
                };
            }
            let mut rounds = 0;
            let mut goes_on = true;
            while goes_on {
                goes_on = false;
                for end in 0..2 {
                    if !good || !world.workers[1 - end].up {
                        goes_on |= world.see_break(end);
                    }
                    goes_on |= world.finish_dial(end, good);
                    goes_on |= world.hear(end);
                }
                rounds += 1;
                prop_assert!(rounds < 2000);
            }
            let both_up = world.workers.iter().all(|worker| worker.up);
            prop_assert!(world.path.is_via_client() || (good && both_up), "{:?}", world.path);
        }
    }
}
