//! Commands that mirrors have released, on their way to the session's `mirrors` thread.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use super::commands::Submitted;
use super::graph::FreedCommand;

/// The released commands.
#[derive(Default)]
pub(crate) struct Freed {
    state: Mutex<FreedState>,
    wake: Condvar,
}

#[derive(Default)]
struct FreedState {
    waiting: VecDeque<FreedCommand<Submitted>>,
    started: bool,
    is_over: bool,
}

impl Freed {
    /// Adds commands. Returns whether the caller has to start the thread.
    pub(super) fn put(&self, mut freed: VecDeque<FreedCommand<Submitted>>) -> bool {
        if freed.is_empty() {
            return false;
        }
        let mut state = self.state.lock();
        state.waiting.append(&mut freed);
        let is_first = !std::mem::replace(&mut state.started, true);
        drop(state);
        self.wake.notify_one();
        is_first
    }

    /// Takes all commands, and waits for some. Returns `None` when the session has ended.
    pub(super) fn take(&self) -> Option<VecDeque<FreedCommand<Submitted>>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.is_over {
            self.wake.wait(&mut state);
        }
        (!state.is_over).then(|| std::mem::take(&mut state.waiting))
    }

    /// Ends the thread, and drops the commands that wait.
    pub(super) fn stop(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.is_over = true;
            std::mem::take(&mut state.waiting)
        };
        self.wake.notify_all();
        // Dropped outside of the lock, because the drop may call the driver.
        drop(waiting);
    }
}
