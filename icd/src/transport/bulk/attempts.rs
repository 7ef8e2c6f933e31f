//! Repeated attempts to open one lane.
//!
//! Only time in which the session has its other connections counts. If a lane cannot be opened for as long as a session
//! may be away, the session ends: transfers that need the lane would wait for ever.

use std::time::{Duration, Instant};

use causeway_proto::status::WireError;

use super::Bulk;
use super::lane::OPEN_LIMIT;
use crate::transport::patience::Patience;

/// A lane that cannot be opened for longer is reported in the log.
const REPORTED: Duration = Duration::from_secs(1);

/// The attempts to open a lane; see the module.
pub(super) struct Attempts {
    lane: u8,
    patience: Patience,
    is_reported: bool,
}

impl Attempts {
    pub(super) fn new(bulk: &Bulk, lane: u8) -> Attempts {
        Attempts {
            lane,
            patience: Patience::new(bulk.resume),
            is_reported: false,
        }
    }

    /// Handles that the attempt failed which began at `begun`. Waits until the next one is due. Returns false if no
    /// time is left, or if the session is over.
    pub(super) fn goes_on(&mut self, bulk: &Bulk, begun: Instant, error: &WireError) -> bool {
        // Network trouble may have ended during the attempt that used up the time, so another one follows.
        let is_last = !self.patience.has_time();
        self.patience.count(OPEN_LIMIT, begun.elapsed());
        let lane = self.lane;
        tracing::debug!(lane, %error, "cannot open a bulk connection yet");
        if !self.is_reported && self.patience.spent() >= REPORTED {
            self.is_reported = true;
            let address = &bulk.dialer.address;
            tracing::warn!(address, lane, %error, "a bulk connection cannot be opened; transfers may wait");
        }
        if is_last {
            return false;
        }
        let pause = self.patience.pause().unwrap_or_default();
        self.patience.count(pause, pause);
        bulk.wait_to_open(pause)
    }
}
