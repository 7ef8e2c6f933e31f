//! Commands that mirrors have released, on their way to the session's `mirrors` thread.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use super::commands::Submitted;
use super::graph::Step;

/// The released commands.
#[derive(Default)]
pub(crate) struct Freed {
    steps: Mutex<Steps>,
    wake: Condvar,
}

#[derive(Default)]
struct Steps {
    waiting: VecDeque<Step<Submitted>>,
    started: bool,
}

impl Freed {
    /// Adds commands. Returns whether the caller has to start the thread.
    pub(super) fn put(&self, mut steps: VecDeque<Step<Submitted>>) -> bool {
        if steps.is_empty() {
            return false;
        }
        let mut waiting = self.steps.lock();
        waiting.waiting.append(&mut steps);
        let is_first = !std::mem::replace(&mut waiting.started, true);
        drop(waiting);
        self.wake.notify_one();
        is_first
    }

    /// Takes all commands, and waits for some.
    pub(super) fn take(&self) -> VecDeque<Step<Submitted>> {
        let mut steps = self.steps.lock();
        while steps.waiting.is_empty() {
            self.wake.wait(&mut steps);
        }
        std::mem::take(&mut steps.waiting)
    }
}
