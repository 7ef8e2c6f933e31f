//! Two devices, each of a node of its own: commands that the client holds back, and the loss of a node.
//!
//! Both devices are named by the places of their queues. The results are processor times of the calling thread,
//! because it does the work, and because other programs do not disturb them.

use std::time::Duration;

use super::Devices;
use crate::opencl::ClError;
use crate::process;

/// The device whose node stays.
const STAYS: usize = 0;
/// The device whose node may be lost.
const LOST: usize = 1;

/// Bytes of a buffer.
const SIZE: usize = 256;

/// Number of the lost node's commands that use the same buffer.
const COMMANDS_A_BUFFER: usize = 5;

impl Devices {
    /// Enqueues `count` fills in turns, each behind a user event of its own; the cost to set all events and to
    /// wait for the fills.
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
        gates.iter().try_for_each(|gate| self.cl.complete(*gate))?;
        self.finish_all()?;
        let took = process::thread_time() - begin;
        self.forget_events();
        memory.iter().try_for_each(|memory| self.release(*memory))?;
        Ok(took)
    }

    /// Loses a node while `count` fills of buffers that both nodes have used are under way there. The result is
    /// the cost to enqueue the fills, to wait for their failures, and to run one command on the other node.
    ///
    /// A loss must cost as much as the commands touched, not commands times buffers
    /// (`icd/src/coherence/uses.rs`), which was 4.1 s for 2,000 buffers and 10,000 commands. The number of buffers
    /// grows with the commands, so the product shows as 4 for twice as many commands. With a constant number of
    /// buffers it would show as 2, which is linear.
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
}
