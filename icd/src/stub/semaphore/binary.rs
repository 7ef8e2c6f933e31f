//! The state of a binary semaphore: which signal the next wait follows, and which waits were enqueued
//! before their signals.
//!
//! Signals and waits are commands whose ends are known elsewhere, so nothing here waits or is notified. The
//! specification wants them to alternate, a signal first. Undefined cases are made harmless: of two signals
//! the later counts, and a wait without a signal takes the first one that comes. Invariant: a signal lets
//! one wait through. While a wait is stored for lack of a signal, no unused signal exists.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use smallvec::SmallVec;

/// The queries that this module needs of a signal or wait.
pub(super) trait Command: Clone {
    /// Whether the command has succeeded.
    fn is_complete(&self) -> bool;
    /// Whether the command has failed.
    fn has_failed(&self) -> bool;
}

/// A wait that was enqueued before its signal.
#[derive(Debug)]
pub(super) struct PendingWait<C, G> {
    /// The command of the wait.
    pub(super) wait: C,
    /// The gate that holds the command back until a signal comes.
    pub(super) gate: G,
}

/// The state of a binary semaphore; see the module.
#[derive(Debug)]
pub(super) struct Binary<C, G> {
    // A signal that was enqueued and that no wait has taken.
    signal: Option<C>,
    // Waits without a signal, oldest first.
    waiting: VecDeque<PendingWait<C, G>>,
    // The last signal that was taken, and the wait that took it.
    last: Option<(C, C)>,
    spent: Spent<C>,
}

/// Commands that are no longer needed.
pub(super) type Spent<C> = SmallVec<[C; 4]>;

impl<C, G> Default for Binary<C, G> {
    fn default() -> Binary<C, G> {
        Binary {
            signal: None,
            waiting: VecDeque::new(),
            last: None,
            spent: Spent::new(),
        }
    }
}

impl<C: Command, G> Binary<C, G> {
    /// Takes the signal that a wait about to be enqueued follows; `None` if there is none yet.
    pub(super) fn take(&mut self) -> Option<C> {
        if self.signal.is_some() {
            return self.signal.take();
        }
        // A wait that failed does not consume the signal.
        let is_left = |(signal, wait): &mut (C, C)| signal.is_complete() && wait.has_failed();
        let (signal, wait) = self.last.take_if(is_left)?;
        self.spent.push(wait);
        Some(signal)
    }

    /// Records that a wait was enqueued behind this signal.
    pub(super) fn taken(&mut self, signal: C, wait: C) {
        let over = self.last.replace((signal, wait));
        self.spent.extend(over.into_iter().flat_map(<[C; 2]>::from));
    }

    /// Returns a signal whose wait could not be enqueued. The next wait gets the signal, unless there is a
    /// later signal. If a wait was stored meanwhile, returns its gate, which the signal opens.
    pub(super) fn give_back(&mut self, signal: C) -> Option<G> {
        if self.signal.is_some() {
            self.spent.push(signal);
            return None;
        }
        self.signal(signal)
    }

    /// Records that a signal was enqueued. If a wait came before it, returns the wait's gate, which the
    /// signal opens.
    pub(super) fn signal(&mut self, signal: C) -> Option<G> {
        let Some(PendingWait { wait, gate }) = self.waiting.pop_front() else {
            self.spent.extend(self.signal.replace(signal));
            return None;
        };
        self.taken(signal, wait);
        Some(gate)
    }

    /// Records a wait that found no signal. If a signal has come meanwhile, returns that signal and the
    /// gate; otherwise stores the wait.
    pub(super) fn wait(&mut self, waiting: PendingWait<C, G>) -> Option<(C, G)> {
        let Some(signal) = self.signal.take() else {
            self.waiting.push_back(waiting);
            return None;
        };
        self.taken(signal.clone(), waiting.wait);
        Some((signal, waiting.gate))
    }

    /// Returns commands that are no longer needed, so that the caller can drop them without a lock.
    pub(super) fn spent(&mut self) -> Spent<C> {
        std::mem::take(&mut self.spent)
    }

    /// Returns the gates of all stored waits, because no signal will come any more.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = G> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|waiting| waiting.gate)
    }

    /// Whether the semaphore is signalled: a signal has succeeded, and no successful wait has taken it.
    pub(super) fn is_signalled(&self) -> bool {
        let taken = |(signal, wait): &(C, C)| signal.is_complete() && !wait.is_complete();
        self.signal.as_ref().is_some_and(C::is_complete) || self.last.as_ref().is_some_and(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    // 1: incomplete, 0: complete, negative: failed.
    type Fake = Rc<Cell<i32>>;

    impl Command for Fake {
        fn is_complete(&self) -> bool {
            self.get() == 0
        }

        fn has_failed(&self) -> bool {
            self.get() < 0
        }
    }

    fn command() -> Fake {
        Rc::new(Cell::new(1))
    }

    fn is(one: Option<Fake>, other: &Fake) -> bool {
        one.is_some_and(|one| Rc::ptr_eq(&one, other))
    }

    #[test]
    fn a_signal_lets_one_wait_through_again_and_again() {
        let mut state = Binary::<Fake, ()>::default();
        assert!(!state.is_signalled());
        for _ in 0..3 {
            let (signal, wait) = (command(), command());
            assert!(state.signal(signal.clone()).is_none());
            assert!(!state.is_signalled(), "not before it has ended");
            assert!(is(state.take(), &signal));
            state.taken(signal.clone(), wait.clone());
            signal.set(0);
            assert!(state.is_signalled(), "until the wait has ended");
            wait.set(0);
            assert!(!state.is_signalled());
            assert!(state.take().is_none());
        }
    }

    #[test]
    fn a_wait_before_its_signal_goes_with_the_first_that_comes() {
        let mut state = Binary::default();
        for gate in ["first", "second"] {
            assert!(state.take().is_none());
            let wait = command();
            assert!(state.wait(PendingWait { wait, gate }).is_none());
        }
        let (first, second) = (command(), command());
        assert_eq!(state.signal(first), Some("first"));
        assert_eq!(state.signal(second.clone()), Some("second"));
        second.set(0);
        assert!(state.is_signalled(), "its wait is under way");
        assert!(state.take().is_none());
    }

    #[test]
    fn a_signal_that_comes_while_a_wait_is_enqueued_is_its_own() {
        let mut state = Binary::default();
        assert!(state.take().is_none());
        let (signal, wait) = (command(), command());
        assert_eq!(state.signal(signal.clone()), None);
        let gate = "gate";
        let (found, gate) = state.wait(PendingWait { wait, gate }).expect("a signal");
        assert!(Rc::ptr_eq(&found, &signal) && gate == "gate");
        assert!(state.take().is_none());
    }

    #[test]
    fn a_wait_that_was_not_enqueued_or_failed_leaves_its_signal() {
        let mut state = Binary::default();
        let (signal, later) = (command(), command());
        assert_eq!(state.signal(signal.clone()), None);
        let taken = state.take().expect("the signal");
        assert_eq!(state.give_back(taken), None);
        let taken = state.take().expect("the signal again");
        // Another wait came between, and was stored.
        let wait = command();
        let gate = "gate";
        assert!(
            state
                .wait(PendingWait {
                    wait: wait.clone(),
                    gate
                })
                .is_none()
        );
        assert_eq!(state.give_back(taken), Some("gate"));
        signal.set(0);
        wait.set(-14);
        assert!(state.is_signalled());
        assert!(is(state.take(), &signal));
        assert!(state.take().is_none(), "once");
        // The later signal counts.
        assert_eq!(state.signal(later.clone()), None);
        assert_eq!(state.give_back(signal), None);
        assert!(is(state.take(), &later));
    }

    #[test]
    fn a_signal_that_failed_signals_nothing() {
        let mut state = Binary::<Fake, ()>::default();
        let (signal, wait) = (command(), command());
        signal.set(-1);
        state.signal(signal.clone());
        assert!(!state.is_signalled());
        let taken = state.take().expect("the wait fails with its signal");
        state.taken(taken, wait.clone());
        wait.set(-14);
        assert!(!state.is_signalled());
        assert!(state.take().is_none(), "the next needs another");
    }

    #[test]
    fn of_two_signals_the_later_counts_and_waits_are_given_up() {
        let mut state = Binary::default();
        let (first, second) = (command(), command());
        assert_eq!(state.signal(first.clone()), None);
        assert_eq!(state.signal(second.clone()), None);
        assert!(is(state.spent().pop(), &first) && state.spent().is_empty());
        assert!(is(state.take(), &second));
        for gate in [1, 2] {
            let wait = command();
            assert!(state.wait(PendingWait { wait, gate }).is_none());
        }
        assert_eq!(state.give_up().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(state.signal(command()), None, "no wait is left");
    }
}
