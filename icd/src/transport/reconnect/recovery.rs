//! Recovers a session whose node or daemon is lost, if its commands can be executed again from the first one on, or from a
//! checkpoint that the program holds.
//!
//! The session is opened again at its node's next daemon. A broken connection alone changes nothing. The program waits for
//! longer than the node keeps the session only if the session is known to be lost: the node's daemon does not know it, or
//! nothing listens where it was.
//!
//! A session of a lease is opened again only at a node that serves the lease: mostly one with equal devices that the device
//! manager names in place of the lost ones. Only the manager knows whether a silent node is lost, so the program waits for
//! longer then, too. Invariants: sessions that a daemon has ended stay lost, unless it had to end their lease. After
//! [`HASTY`] sessions that ended at once, none is opened again.

use std::time::{Duration, Instant};

use super::{Core, Failed, Patience, Redialer, Stops, clock};
use crate::transport::control::NotReopened;

/// Number of sessions in a row that may end at once.
pub(super) const HASTY: u32 = 8;
/// A session that has lasted for so long has not ended at once.
const LASTING: Duration = Duration::from_secs(1);

/// What was done to recover the session.
#[derive(Debug, Default)]
pub(in crate::transport) struct Recovery {
    /// Whether the program waits for a daemon that is started anew, or for other devices.
    is_longer: bool,
    /// Whether the node was asked how the session has ended.
    has_asked: bool,
    /// Whether the session was opened again.
    is_anew: bool,
    /// Whether the session was opened again, and not tried since.
    has_just_opened: bool,
    /// Whether the session may have been opened again, because the reply was lost. Only another call tells its new
    /// certificate.
    may_be_open: bool,
    /// How often the session was opened again since it has lasted for a while.
    opened: u32,
}

impl Recovery {
    /// Handles a break of connections that have lasted for this time.
    pub(super) fn begin(&mut self, lasted: Duration) {
        (self.is_longer, self.is_anew, self.has_just_opened) = (false, false, false);
        (self.may_be_open, self.has_asked) = (false, false);
        if lasted >= LASTING {
            self.opened = 0;
        }
    }

    /// Whether the program waits for another session than the one that it had.
    pub(super) fn is_longer(&self) -> bool {
        self.is_longer
    }

    /// Whether the session may have been opened again.
    pub(super) fn may_be_open(&self) -> bool {
        self.may_be_open
    }

    /// Whether the session was opened again since the last call, so that the next attempt needs no pause.
    pub(super) fn has_just_opened(&mut self) -> bool {
        std::mem::take(&mut self.has_just_opened)
    }

    /// Whether too many sessions have ended at once.
    pub(super) fn is_hasty(&self) -> bool {
        self.opened >= HASTY
    }

    /// Whether the session was opened again.
    pub(super) fn is_anew(&self) -> bool {
        self.is_anew
    }
}

impl Redialer {
    /// Whether the session can be opened again.
    pub(super) fn may_reopen(&self, core: &Core) -> bool {
        let waits = !self.server.restart().is_zero() && !self.recovery.is_hasty();
        waits && core.begins_anywhere()
    }

    /// Whether the device manager may name other devices for the session.
    pub(super) fn may_be_replaced(&self, core: &Core) -> bool {
        core.may_be_replaced() && self.may_reopen(core)
    }

    /// Handles a final failure, or any if the session may have been opened again. Returns why the session has no connection
    /// yet, or the failure if it is final.
    pub(super) fn recover(
        &mut self,
        core: &Core,
        last: Failed,
        patience: &mut Patience,
        stops: &mut Stops,
    ) -> Result<String, Failed> {
        if !self.may_reopen(core) {
            return match last {
                Failed::ForNow(why) | Failed::Parked(why) => Ok(why),
                last => Err(last),
            };
        }
        let begun = Instant::now();
        let is_unknown = matches!(last, Failed::Unknown(_));
        match last {
            Failed::Unknown(why) | Failed::ForNow(why) | Failed::Parked(why) => {
                let is_over = is_unknown && core.may_be_replaced() && self.has_ended();
                let reopened = match is_over {
                    true => Err(Failed::Unknown(why)),
                    false => self.reopen(core, why, patience),
                };
                let spent = begun.elapsed();
                // This step has its own limits, and is no time in which the process was stopped.
                patience.count(spent, spent);
                stops.look(clock::since_boot(), spent);
                reopened
            }
            Failed::NoDaemon(why) => {
                self.wait_longer(core, patience);
                Ok(why)
            }
            last => Err(last),
        }
    }

    // Whether the node has ended a lease's session for good, as far as it says.
    fn has_ended(&mut self) -> bool {
        let is_asked = !self.recovery.has_asked && !self.dialer.rails.begins_anew();
        self.recovery.has_asked |= is_asked;
        is_asked && self.end().is_some_and(|end| !end.lease_lost)
    }

    fn reopen(
        &mut self,
        core: &Core,
        why: String,
        patience: &mut Patience,
    ) -> Result<String, Failed> {
        let Some(node) = self.node.upgrade() else {
            return Err(Failed::Unknown(why));
        };
        let is_wanted = || !core.is_failed();
        let changes = node.changes();
        let reopened = node.reopen(self.dialer.session, &self.dialer.secret, is_wanted);
        self.recovery.may_be_open = matches!(reopened, Err(NotReopened::NotReached(_)));
        match reopened {
            // Perhaps this is not the node that had the session. Without a lease, only that node may open it.
            Err(NotReopened::NotReached(_)) if !core.may_be_replaced() => {}
            _ => self.wait_longer(core, patience),
        }
        match reopened {
            Ok((changes, fingerprint)) => {
                self.dialer.rails.note_reopened(changes, fingerprint);
                self.recovery.opened += 1;
                (self.recovery.is_anew, self.recovery.has_just_opened) = (true, true);
                Ok("the session was opened again".to_owned())
            }
            // Meanwhile, the manager may have named others.
            Err(not @ NotReopened::ForGood(_)) if node.changes() == changes => {
                Err(Failed::ForGood(not.to_string()))
            }
            Err(not) => Ok(not.to_string()),
        }
    }

    /// Waits for as long as for a daemon that is started anew, or until the device manager must have named other devices.
    pub(super) fn wait_longer(&mut self, core: &Core, patience: &mut Patience) {
        if !self.recovery.is_longer {
            self.recovery.is_longer = true;
            // The time of the latest renewal.
            let node = self.node.upgrade().filter(|_| core.may_be_replaced());
            let replaced = node.map_or(Duration::ZERO, |node| node.replaced_within());
            let limit = self.server.restart_or_replacement(replaced);
            tracing::debug!(
                ?limit,
                "the program waits for a daemon that is started anew, or for other devices"
            );
            patience.extend(limit);
        }
    }
}
