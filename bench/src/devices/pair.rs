//! Two devices, each of a node of its own: commands that the client holds back, and the loss of a node.
//!
//! Both are named by the places of their queues. What is told is processor time of the calling thread: it does the
//! work, and other programs do not disturb that. Invariant: as the whole's.

use std::time::Duration;

use cl_headers::types::*;

use super::{Devices, Event};
use crate::opencl::{ClError, check};
use crate::process;

/// The device whose node stays.
const STAYS: usize = 0;
/// The device whose node may be lost.
const LOST: usize = 1;

/// Bytes of a buffer.
const SIZE: usize = 256;

/// How many commands of the lost node use the same buffer.
const COMMANDS_A_BUFFER: usize = 5;

impl Devices {
    /// Enqueues `count` fills in turns, each behind a user event of its own. What it costs to set all of them and
    /// to wait for the fills.
    pub(super) fn set_user_events(&self, count: usize) -> Result<Duration, ClError> {
        let devices = [STAYS, LOST];
        let memory = [self.buffer(SIZE)?, self.buffer(SIZE)?];
        let gates = (0..count).map(|_| self.user_event());
        let gates = gates.collect::<Result<Vec<_>, _>>()?;
        for (turn, gate) in gates.iter().enumerate() {
            let at = turn % devices.len();
            self.zero(devices[at], memory[at], SIZE, &[*gate])?;
        }
        let begin = process::thread_time();
        gates.iter().try_for_each(|gate| self.complete(*gate))?;
        self.finish_all()?;
        let took = process::thread_time() - begin;
        self.forget_events();
        memory.iter().try_for_each(|memory| self.release(*memory))?;
        Ok(took)
    }

    /// `count` fills of buffers that both nodes have used are under way on a node that is lost. What it costs to
    /// enqueue them, to learn of their failures, and to run one command on the other node, which takes them in.
    ///
    /// A loss must cost what the commands touched, not commands times buffers (`icd/src/coherence/uses.rs`), which was
    /// 4.1 s for 2,000 buffers and 10,000 commands. The buffers grow in number with the commands, so that the product
    /// shows as 4 for twice as many commands. With a constant number of buffers it would show as 2, which is linear.
    pub(super) fn lose_a_node(
        &self,
        count: usize,
        lose: impl FnOnce(),
    ) -> Result<Duration, ClError> {
        let buffers = (0..count / COMMANDS_A_BUFFER).map(|_| self.buffer(SIZE));
        let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
        for memory in &buffers {
            self.zero(STAYS, *memory, SIZE, &[])?;
        }
        self.finish(STAYS)?;
        self.forget_events();
        let own = self.buffer(SIZE)?;
        let mut events = vec![self.occupy("hang", LOST, own)?];
        let begin = process::thread_time();
        for memory in buffers.iter().cycle().take(count) {
            events.push(self.zero(LOST, *memory, SIZE, &[])?);
        }
        self.flush(LOST)?;
        lose();
        // All of them fail.
        let _ = self.wait(&events);
        self.zero(STAYS, buffers[0], SIZE, &[])?;
        self.finish(STAYS)?;
        Ok(process::thread_time() - begin)
    }

    /// A user event, released with the events of the commands.
    fn user_event(&self) -> Result<Event, ClError> {
        let mut code = 0;
        // SAFETY: a live context.
        let event = unsafe { (self.cl.clCreateUserEvent)(self.context, &raw mut code) };
        check("clCreateUserEvent", code)?;
        self.made.borrow_mut().events.push(event);
        Ok(Event(event))
    }

    /// Sets a user event.
    fn complete(&self, event: Event) -> Result<(), ClError> {
        // SAFETY: a live user event that has not been set.
        check("clSetUserEventStatus", unsafe {
            (self.cl.clSetUserEventStatus)(event.0, CL_COMPLETE)
        })
    }
}
