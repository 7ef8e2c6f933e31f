//! The effect of one direction of a link on packets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::units::Rate;

/// The effect of one direction of a link on packets. The default has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Delay of each packet in one direction. Never less, and more by the time to wake a
    /// thread (50 µs on an idle machine).
    pub delay: Duration,
    /// Maximum random addition to the delay of each packet, evenly distributed. Packets keep their order.
    pub jitter: Duration,
    /// Share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// Share of packets that come [`late`](Self::late), 0 to 1, so that others overtake them.
    pub reorder: f64,
    /// Additional delay of a reordered packet.
    pub late: Duration,
    /// Rate limit; `None` for the machine's speed.
    pub rate: Option<Rate>,
    /// Number of bytes that may wait for `rate`; more are lost. `None` means 5 ms at that rate or the
    /// bytes in flight, whichever is more, and at least 256 KiB.
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
    /// Makes a shape that only delays, in one direction.
    #[must_use]
    pub fn delayed(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Checks that the shares are between 0 and 1.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] names the invalid share.
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
