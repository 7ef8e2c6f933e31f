//! A semaphore (`cl_khr_semaphore`): a stub of the client's alone, over the events of the commands that signal it and
//! wait for it.
//!
//! A signal is a command that does nothing but end after its wait list; the next wait is another that has the
//! signal's event in its list. So the node's driver needs no semaphores, nothing blocks, and whatever ends the
//! signal's command otherwise, a lost node too, fails the wait. Only a wait that is enqueued before its signal, which
//! the specification leaves undefined, has a user event in the signal's place; the callback thread sets it when the
//! signal has ended, and it fails when the semaphore goes first. Invariant: no lock is held while a command is
//! enqueued.
#![forbid(unsafe_code)]

mod binary;

use std::sync::Arc;

use cl_headers::types::{
    CL_COMMAND_SEMAPHORE_SIGNAL_KHR, CL_COMMAND_SEMAPHORE_WAIT_KHR, CL_COMPLETE,
    CL_INVALID_SEMAPHORE_KHR,
};
use parking_lot::Mutex;

use self::binary::{Binary, Command, Waiting};
use super::{Binding, Context, Device, Event, Hold, Queue, nothing};
use crate::error::{ClResult, Status};

/// See the module.
#[derive(Debug)]
pub struct Semaphore {
    pub(crate) binding: Binding,
    context: Arc<Context>,
    device: Arc<Device>,
    properties: Vec<u64>,
    state: Mutex<State>,
}

/// Its gates are user events.
type State = Binary<Arc<Event>, Arc<Event>>;

impl Command for Arc<Event> {
    fn is_complete(&self) -> bool {
        self.status() == CL_COMPLETE
    }

    fn has_failed(&self) -> bool {
        self.status() < 0
    }
}

impl Semaphore {
    /// A binary semaphore, not signalled; `properties` as the application gave them, with their 0.
    #[must_use]
    pub fn new(context: Arc<Context>, device: Arc<Device>, properties: Vec<u64>) -> Arc<Semaphore> {
        Arc::new(Semaphore {
            binding: Binding::default(),
            context,
            device,
            properties,
            state: Mutex::default(),
        })
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The device whose queues may signal it and wait for it.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// `CL_SEMAPHORE_PROPERTIES_KHR`, with its 0.
    #[must_use]
    pub fn properties(&self) -> &[u64] {
        &self.properties
    }

    /// Whether it is signalled at this moment: `CL_SEMAPHORE_PAYLOAD_KHR`.
    #[must_use]
    pub fn is_signalled(&self) -> bool {
        self.state.lock().is_signalled()
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, spent) = {
            let mut state = self.state.lock();
            (change(&mut state), state.spent())
        };
        // The last references to events, and perhaps to their queues: that is said to the node.
        drop(spent);
        result
    }

    fn signalled_by(&self, signal: &Arc<Event>) {
        let gate = self.change(|state| state.signal(signal.clone()));
        if let Some(gate) = gate {
            open_with(signal, gate);
        }
    }

    // Waits that have no signal fail, and with them what waits for them.
    fn give_up(&self, status: Status) {
        let gates: Vec<Arc<Event>> = self.change(|state| state.give_up().collect());
        for gate in gates {
            // Nobody else sets it: `open_with` is given none of these.
            let _ = gate.set_user_status(status.0);
        }
    }
}

/// Enqueues a command that signals the semaphores, no two the same, of the queue's context and device.
///
/// # Errors
/// As [`Queue::submit`].
pub fn signal(
    queue: &Arc<Queue>,
    semaphores: &[Arc<Semaphore>],
    wait: Vec<Arc<Event>>,
) -> ClResult<Arc<Event>> {
    // Whoever waits for it sees its end, whether the application has its event or not.
    let command = CL_COMMAND_SEMAPHORE_SIGNAL_KHR;
    let signalled = nothing(queue, command, wait, Hold::new(), None, true);
    match &signalled {
        Ok(signal) => {
            for semaphore in semaphores {
                semaphore.signalled_by(signal);
            }
        }
        // Its device is gone, and no other has it.
        Err(status) if *status == Status::DEVICE_NOT_AVAILABLE => {
            for semaphore in semaphores {
                semaphore.give_up(*status);
            }
        }
        Err(_) => {}
    }
    signalled
}

/// Enqueues a command that waits for the semaphores, no two the same, of the queue's context and device.
///
/// # Errors
/// As [`Queue::submit`].
pub fn wait_for(
    queue: &Arc<Queue>,
    semaphores: &[Arc<Semaphore>],
    mut wait: Vec<Arc<Event>>,
) -> ClResult<Arc<Event>> {
    let mut taken = Vec::with_capacity(semaphores.len());
    let enqueued = enqueue_wait(queue, semaphores, &mut wait, &mut taken);
    for (semaphore, awaited) in semaphores.iter().zip(taken) {
        semaphore.waited(awaited, enqueued.as_ref().ok());
    }
    enqueued
}

/// What a wait has of one semaphore.
enum Awaited {
    Signal(Arc<Event>),
    // There was none.
    Gate(Arc<Event>),
}

fn enqueue_wait(
    queue: &Arc<Queue>,
    semaphores: &[Arc<Semaphore>],
    wait: &mut Vec<Arc<Event>>,
    taken: &mut Vec<Awaited>,
) -> ClResult<Arc<Event>> {
    for semaphore in semaphores {
        let signal = semaphore.change(Binary::take);
        let (on, awaited) = match signal {
            Some(signal) => (signal.clone(), Awaited::Signal(signal)),
            None => {
                // No signal could come to open it.
                if let Some(lost) = queue.site().session().is_lost() {
                    return Err(lost.into());
                }
                let gate = Event::user(queue.context())?;
                (gate.clone(), Awaited::Gate(gate))
            }
        };
        wait.push(on);
        taken.push(awaited);
    }
    let command = CL_COMMAND_SEMAPHORE_WAIT_KHR;
    let wait = std::mem::take(wait);
    // As with signals: whether they have been taken is asked of its event.
    nothing(queue, command, wait, Hold::new(), None, true)
}

impl Semaphore {
    // The wait was enqueued, or not.
    fn waited(&self, awaited: Awaited, wait: Option<&Arc<Event>>) {
        let let_through = self.change(|state| match (awaited, wait.cloned()) {
            (Awaited::Signal(signal), Some(wait)) => {
                state.taken(signal, wait);
                None
            }
            (Awaited::Signal(signal), None) => {
                let gate = state.give_back(signal.clone());
                gate.map(|gate| (signal, gate))
            }
            (Awaited::Gate(gate), Some(wait)) => state.wait(Waiting { wait, gate }),
            (Awaited::Gate(_), None) => None,
        });
        if let Some((signal, gate)) = let_through {
            open_with(&signal, gate);
        }
    }
}

// The gate ends as the signal does.
fn open_with(signal: &Arc<Event>, gate: Arc<Event>) {
    let set = move |_: &Arc<Event>, status: i32| {
        // Nobody else sets it.
        let _ = gate.set_user_status(status);
    };
    signal.on_status(CL_COMPLETE, Box::new(set));
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        self.give_up(Status(CL_INVALID_SEMAPHORE_KHR));
    }
}
