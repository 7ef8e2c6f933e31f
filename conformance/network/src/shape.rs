//! What one direction of a link does to packets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::units::Rate;

/// What one direction of a link does to packets. The default does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// How long each packet is under way, one way. Never less; more by what the machine needs to wake a thread
    /// (50 µs when it is idle).
    pub delay: Duration,
    /// Up to this much is added to the delay of each packet, evenly distributed. Packets keep their order.
    pub jitter: Duration,
    /// The share of packets that vanish, 0 to 1.
    pub loss: f64,
    /// The share of packets that come [`late`](Self::late), 0 to 1, so that others overtake them.
    pub reorder: f64,
    /// How much later a reordered packet comes.
    pub late: Duration,
    /// How many bits a second fit through; `None` for as many as the machine carries.
    pub rate: Option<Rate>,
    /// How many bytes wait for `rate` before more are lost; `None` for 5 ms worth or what is under way,
    /// whichever is more, and at least 256 KiB.
    pub queue: Option<u64>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            reorder: 0.0,
            late: Duration::from_millis(1),
            rate: None,
            queue: None,
        }
    }
}

impl Shape {
    /// Only a delay, one way.
    #[must_use]
    pub fn delayed(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Checks that shares are shares.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] names what is not.
    pub fn check(&self) -> Result<()> {
        for (name, share) in [("loss", self.loss), ("reorder", self.reorder)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::Setting(format!(
                    "{name}: {share} is not between 0 and 1"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn queue_bytes(&self) -> u64 {
        let deep = self.delay.max(Duration::from_millis(5));
        let enough = |rate: Rate| rate.bytes_in(deep).max(256 << 10);
        self.queue.or(self.rate.map(enough)).unwrap_or(u64::MAX)
    }
}
