//! A semaphore (`cl_khr_semaphore`). It exists in the client only, and works with the events of signals and
//! waits.
//!
//! A signal is a command that does nothing but end after its wait list. The next wait is another such
//! command, with the signal's event in its wait list. So the node's driver needs no semaphores, nothing
//! blocks, and a failed signal fails the wait, also when a node is lost. The specification leaves a wait
//! before its signal undefined. Such a wait gets a user event, which the callback thread sets when the
//! signal has ended. That event fails when the semaphore is destroyed first. Invariant: no lock is held
//! while a command is enqueued.
#![forbid(unsafe_code)]

mod binary;

use std::sync::Arc;

use cl_headers::types::{
    CL_COMMAND_SEMAPHORE_SIGNAL_KHR, CL_COMMAND_SEMAPHORE_WAIT_KHR, CL_COMPLETE,
    CL_INVALID_SEMAPHORE_KHR,
};
use parking_lot::Mutex;

use self::binary::{Binary, Command, PendingWait};
use crate::error::{ClResult, Status};
use crate::stub::{Binding, Context, Device, Event, Hold, Queue, nothing};

/// A semaphore; see the module.
#[derive(Debug)]
pub struct Semaphore {
    pub(crate) binding: Binding,
    context: Arc<Context>,
    device: Arc<Device>,
    properties: Vec<u64>,
    state: Mutex<State>,
}

/// The gates are user events.
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
    /// Makes a binary semaphore that is not signalled; `properties` are as the application gave them, with
    /// the terminating 0.
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

    /// Returns the semaphore's context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the device whose queues may signal the semaphore and wait for it.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns `CL_SEMAPHORE_PROPERTIES_KHR`, with the terminating 0.
    #[must_use]
    pub fn properties(&self) -> &[u64] {
        &self.properties
    }

    /// Whether the semaphore is signalled at this moment: `CL_SEMAPHORE_PAYLOAD_KHR`.
    #[must_use]
    pub fn is_signalled(&self) -> bool {
        self.state.lock().is_signalled()
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, spent) = {
            let mut state = self.state.lock();
            (change(&mut state), state.spent())
        };
        // Dropped without the lock: these may be the last references to events and queues, and dropping
        // them sends releases.
        drop(spent);
        result
    }

    fn signalled_by(&self, signal: &Arc<Event>) {
        let gate = self.change(|state| state.signal(signal.clone()));
        if let Some(gate) = gate {
            open_with(signal, gate);
        }
    }

    // Fails the waits that have no signal, and so the commands that wait for them.
    fn give_up(&self, status: Status) {
        let gates: Vec<Arc<Event>> = self.change(|state| state.give_up().collect());
        for gate in gates {
            // Nothing else sets these gates: `open_with` gets only gates that `signal` or `wait` has
            // returned.
            let _ = gate.set_user_status(status.0);
        }
    }
}

/// Enqueues a command that signals `semaphores`. They must be distinct, and belong to the queue's context
/// and device.
///
/// # Errors
/// Those of [`Queue::enqueue`].
pub fn signal(
    queue: &Arc<Queue>,
    semaphores: &[Arc<Semaphore>],
    wait: Vec<Arc<Event>>,
) -> ClResult<Arc<Event>> {
    // Visible, because waits observe the signal's end even if the application has no event of it.
    let command = CL_COMMAND_SEMAPHORE_SIGNAL_KHR;
    let signalled = nothing(queue, command, wait, Hold::new(), None, true);
    match &signalled {
        Ok(signal) => {
            for semaphore in semaphores {
                semaphore.signalled_by(signal);
            }
        }
        // The semaphores' device is lost, so no other signal can come.
        Err(status) if *status == Status::DEVICE_NOT_AVAILABLE => {
            for semaphore in semaphores {
                semaphore.give_up(*status);
            }
        }
        Err(_) => {}
    }
    signalled
}

/// Enqueues a command that waits for `semaphores`. They must be distinct, and belong to the queue's context
/// and device.
///
/// # Errors
/// Those of [`Queue::enqueue`].
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

/// The event that a wait has taken from one semaphore.
enum Awaited {
    Signal(Arc<Event>),
    // There was no signal, so the wait gets a gate.
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
                // With a lost session no signal could ever open a gate.
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
    // Visible, as for signals: the semaphore's state depends on the end of this wait.
    nothing(queue, command, wait, Hold::new(), None, true)
}

impl Semaphore {
    // Updates the semaphore after a wait was enqueued, or failed to be enqueued.
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
            (Awaited::Gate(gate), Some(wait)) => state.wait(PendingWait { wait, gate }),
            (Awaited::Gate(_), None) => None,
        });
        if let Some((signal, gate)) = let_through {
            open_with(&signal, gate);
        }
    }
}

// Ends the gate with the status of the signal.
fn open_with(signal: &Arc<Event>, gate: Arc<Event>) {
    let set = move |_: &Arc<Event>, status: i32| {
        // Nothing else sets this gate, so this cannot fail.
        let _ = gate.set_user_status(status);
    };
    signal.on_status(CL_COMPLETE, Box::new(set));
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        self.give_up(Status(CL_INVALID_SEMAPHORE_KHR));
    }
}
