//! How the direct path of one link is made, breaks, and is given up. Pure.
//!
//! One end dials. If it fails, the other end dials. If both fail, the client forwards the link's bytes.
//! After a break, the end that reported it dials again, and so on.
//!
//! Before that, the ends make broken connections again by themselves, if the sessions outlive their connections. An end
//! that has tried for a while reports it. The path is *interrupted* until that end reports that it is up, or, after a
//! break, until it is made anew or given up.
//!
//! The reports of one end arrive in its own order: that the link is up, and later once that it is down. So
//! an end that has reported "up" must report "down" before it can report a failed dial, and the two are not
//! confused. The reports of the two ends may arrive in any order.
//!
//! Invariant: in the end, a path goes through the client, or is up, or is being dialled by the end that
//! [`PathAction::Dial`] named last. A path through the client stays one for ever.
#![forbid(unsafe_code)]

/// A path that has broken more often than this is given up as unreliable.
const MOST_BREAKS: u32 = 5;

/// The index of one of a link's two ends: 0 or 1.
pub(super) type EndIndex = usize;

/// The state of one link's direct path; see the module.
#[derive(Debug)]
pub(super) struct Path {
    state: PathState,
    // The latest report of each end.
    told_up: [bool; 2],
    // The ends that make broken connections again.
    mending: [bool; 2],
    breaks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathState {
    /// One end dials. `second`: the other end has failed already.
    Making {
        dialler: EndIndex,
        second: bool,
    },
    Up,
    ViaClient,
}

/// The action that the caller must take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum PathAction {
    /// Nothing to do.
    None,
    /// This end must dial.
    Dial(EndIndex),
    /// Both ends must go through the client.
    GiveUp,
}

impl Path {
    /// Makes a path that `dialler` has been asked to dial.
    pub(super) fn new(dialler: EndIndex) -> Path {
        Path::in_state(PathState::Making {
            dialler,
            second: false,
        })
    }

    /// Makes a path that goes through the client from the start.
    pub(super) fn via_client() -> Path {
        Path::in_state(PathState::ViaClient)
    }

    fn in_state(state: PathState) -> Path {
        Path {
            state,
            told_up: [false; 2],
            mending: [false; 2],
            breaks: 0,
        }
    }

    /// Whether the client forwards the link's bytes.
    pub(super) fn is_via_client(&self) -> bool {
        self.state == PathState::ViaClient
    }

    /// Whether the link was up and cannot be used now, although it may come back.
    pub(super) fn is_interrupted(&self) -> bool {
        match self.state {
            PathState::Up => self.mending.contains(&true),
            PathState::Making { .. } => self.breaks > 0,
            PathState::ViaClient => false,
        }
    }

    /// Applies an end's report that it makes broken connections again.
    pub(super) fn handle_mending(&mut self, end: EndIndex) {
        self.mending[end] = self.told_up[end];
    }

    /// Applies an end's report that the link is up.
    pub(super) fn handle_up(&mut self, end: EndIndex) {
        self.told_up[end] = true;
        self.mending[end] = false;
        if self.state != PathState::ViaClient {
            self.state = PathState::Up;
        }
    }

    /// Applies an end's report that the link is down, or that a dial failed.
    pub(super) fn handle_down(&mut self, end: EndIndex) -> PathAction {
        let was_up = std::mem::take(&mut self.told_up[end]);
        self.mending[end] = false;
        match self.state {
            PathState::ViaClient => PathAction::None,
            // The end failed to dial, but the other end's success was reported first.
            PathState::Up if !was_up => PathAction::None,
            PathState::Up => self.handle_break(end),
            // The other end has reported this break already. An end that still took the link for usable has
            // not begun to dial, so it must be asked again.
            PathState::Making { dialler, .. } if was_up && dialler == end => PathAction::Dial(end),
            PathState::Making { .. } if was_up => PathAction::None,
            PathState::Making { dialler, .. } if dialler != end => PathAction::None,
            PathState::Making { second: true, .. } => self.give_up(),
            PathState::Making { dialler, .. } => self.dial(1 - dialler, true),
        }
    }

    fn handle_break(&mut self, end: EndIndex) -> PathAction {
        self.breaks += 1;
        if self.breaks > MOST_BREAKS {
            return self.give_up();
        }
        self.dial(end, false)
    }

    fn dial(&mut self, dialler: EndIndex, second: bool) -> PathAction {
        self.state = PathState::Making { dialler, second };
        PathAction::Dial(dialler)
    }

    fn give_up(&mut self) -> PathAction {
        self.state = PathState::ViaClient;
        PathAction::GiveUp
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
        assert_eq!(path.handle_down(1), PathAction::Dial(0));
        assert!(!path.is_via_client());
        assert_eq!(path.handle_down(0), PathAction::GiveUp);
        assert!(path.is_via_client());
        path.handle_up(0);
        assert_eq!(path.handle_down(0), PathAction::None);
        assert!(path.is_via_client(), "for good");
    }

    #[test]
    fn what_the_second_end_has_made_stays() {
        let mut path = Path::new(0);
        assert_eq!(path.handle_down(0), PathAction::Dial(1));
        path.handle_up(1);
        path.handle_up(0);
        assert!(!path.is_via_client());
    }

    #[test]
    fn a_failure_that_crossed_the_other_ends_success_is_nothing() {
        let mut path = Path::new(0);
        path.handle_up(1);
        assert_eq!(path.handle_down(0), PathAction::None);
        // The later break is a real one.
        assert_eq!(path.handle_down(1), PathAction::Dial(1));
    }

    #[test]
    fn a_break_is_told_by_both_ends_and_is_one() {
        let mut path = Path::new(0);
        path.handle_up(0);
        path.handle_up(1);
        assert_eq!(path.handle_down(0), PathAction::Dial(0));
        assert_eq!(path.handle_down(1), PathAction::None, "the same break");
        // Both ends dial again before the client forwards.
        assert_eq!(path.handle_down(0), PathAction::Dial(1));
        assert_eq!(path.handle_down(1), PathAction::GiveUp);
    }

    #[test]
    fn who_took_a_broken_link_for_usable_is_asked_again() {
        let mut path = Path::new(0);
        path.handle_up(0);
        path.handle_up(1);
        assert_eq!(path.handle_down(0), PathAction::Dial(0));
        assert_eq!(path.handle_down(0), PathAction::Dial(1));
        // End 1 has learned of the break only now, so it has not dialled.
        assert_eq!(path.handle_down(1), PathAction::Dial(1));
        assert_eq!(path.handle_down(1), PathAction::GiveUp);
    }

    #[test]
    fn a_path_that_holds_badly_is_given_up() {
        let mut path = Path::new(0);
        for _ in 0..MOST_BREAKS {
            path.handle_up(0);
            assert_eq!(path.handle_down(0), PathAction::Dial(0));
        }
        path.handle_up(0);
        assert_eq!(path.handle_down(0), PathAction::GiveUp);
    }

    #[test]
    fn a_path_is_interrupted_until_both_ends_have_mended_it() {
        let mut path = Path::new(0);
        path.handle_mending(0);
        assert!(!path.is_interrupted(), "nothing was up");
        path.handle_up(0);
        path.handle_up(1);
        path.handle_mending(0);
        path.handle_mending(1);
        path.handle_up(1);
        assert!(path.is_interrupted());
        path.handle_up(0);
        assert!(!path.is_interrupted());
        path.handle_mending(1);
        assert_eq!(path.handle_down(1), PathAction::Dial(1));
        assert_eq!(path.handle_down(0), PathAction::None);
        assert!(path.is_interrupted(), "it is made anew");
        path.handle_up(1);
        assert!(!path.is_interrupted());
        assert_eq!(path.handle_down(1), PathAction::Dial(1));
        assert_eq!(path.handle_down(1), PathAction::Dial(0));
        assert_eq!(path.handle_down(0), PathAction::GiveUp);
        assert!(!path.is_interrupted());
    }

    // Simulates two workers and the client's view of their reports, which arrive late. Each worker has its
    // own state, dials when asked unless it takes the link for up, and reports its changes.
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
        // Each of these returns whether there was anything to do.
        fn hear(&mut self, end: EndIndex) -> bool {
            let Some(up) = self.workers[end].told.pop_front() else {
                return false;
            };
            if up {
                self.path.handle_up(end);
                return true;
            }
            match self.path.handle_down(end) {
                PathAction::None => {}
                PathAction::Dial(end) => self.workers[end].dialling |= !self.workers[end].up,
                PathAction::GiveUp => {
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

        // A dial cannot succeed while the other end takes the link for up.
        fn finish_dial(&mut self, end: EndIndex, works: bool) -> bool {
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

        fn see_break(&mut self, end: EndIndex) -> bool {
            let up = self.workers[end].up;
            if up {
                self.workers[end].turn(false);
            }
            up
        }
    }

    proptest! {
        // For any order of reports, dials and breaks: once the network stays bad, the path goes through the
        // client. Once it stays good, the path is up or goes through the client.
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
