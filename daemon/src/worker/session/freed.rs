//! Commands that mirrors have released, on their way to the session's `mirrors` thread.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use super::commands::Submitted;
use super::graph::Unheld;

/// The released commands.
#[derive(Default)]
pub(crate) struct Freed {
    steps: Mutex<Steps>,
    wake: Condvar,
}

#[derive(Default)]
struct Steps {
    waiting: VecDeque<Unheld<Submitted>>,
    started: bool,
    is_over: bool,
}

impl Freed {
    /// Adds commands. Returns whether the caller has to start the thread.
    pub(super) fn put(&self, mut steps: VecDeque<Unheld<Submitted>>) -> bool {
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

    /// Takes all commands, and waits for some. Returns `None` when the session has ended.
    pub(super) fn take(&self) -> Option<VecDeque<Unheld<Submitted>>> {
        let mut steps = self.steps.lock();
        while steps.waiting.is_empty() && !steps.is_over {
            self.wake.wait(&mut steps);
        }
        (!steps.is_over).then(|| std::mem::take(&mut steps.waiting))
    }

    /// Ends the thread, and drops the commands that wait.
    pub(super) fn stop(&self) {
        let waiting = {
            let mut steps = self.steps.lock();
            steps.is_over = true;
            std::mem::take(&mut steps.waiting)
        };
        self.wake.notify_all();
        // Dropped outside of the lock, because the drop may call the driver.
        drop(waiting);
    }
}
