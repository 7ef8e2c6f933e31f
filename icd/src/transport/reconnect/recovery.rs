//! Recovers a session whose node is lost, if its commands can be executed again from the first one on.
//!
//! The session is opened again where its devices are now: at its node's next daemon, or where its lease has equal devices.
//! While it has no connection, the holder of the lease asks the manager for such devices.
//!
//! A broken connection alone changes nothing. The program waits for longer than the node keeps the session only if the
//! session is known to be lost: the daemon that answers does not know it, nothing listens where it was, or the manager has
//! lost the node, too. Invariant: after [`HASTY`] sessions that ended at once, none is opened again.

use std::time::{Duration, Instant};

use super::{Core, Failed, Patience, REPORTED, Redialer, Stops, clock};
use crate::transport::control::NotReopened;

/// Number of sessions in a row that may end at once.
const HASTY: u32 = 8;
/// A session that has lasted for so long has not ended at once.
const LASTING: Duration = Duration::from_secs(1);

/// What was done to recover the session.
#[derive(Debug, Default)]
pub(in crate::transport) struct Recovery {
    /// Whether the program waits for as long as for a daemon that is started anew.
    is_longer: bool,
    /// Whether the session was opened again.
    is_anew: bool,
    /// Whether the session was opened again, and not tried since.
    has_just_opened: bool,
    /// How often the session was opened again since it has lasted for a while.
    opened: u32,
}

impl Recovery {
    /// Handles a break of connections that have lasted for this time.
    pub(super) fn begin(&mut self, lasted: Duration) {
        (self.is_longer, self.is_anew, self.has_just_opened) = (false, false, false);
        if lasted >= LASTING {
            self.opened = 0;
        }
    }

    /// Whether the program waits for another session than the one that it had.
    pub(super) fn is_longer(&self) -> bool {
        self.is_longer
    }

    /// Whether the session was opened again since the last call, so that the next attempt needs no pause.
    pub(super) fn has_just_opened(&mut self) -> bool {
        std::mem::take(&mut self.has_just_opened)
    }

    /// Whether the session was opened again.
    pub(super) fn is_anew(&self) -> bool {
        self.is_anew
    }
}

impl Redialer {
    /// Whether the session can be opened again.
    pub(super) fn may_reopen(&self, core: &Core) -> bool {
        let (waits, hasty) = (!self.server.restart().is_zero(), self.recovery.opened);
        waits && hasty < HASTY && core.begins_anywhere()
    }

    /// Handles a final failure. Returns why the session has no connection yet, or the failure if it is final.
    pub(super) fn recover(
        &mut self,
        core: &Core,
        last: Failed,
        patience: &mut Patience,
        stops: &mut Stops,
    ) -> Result<String, Failed> {
        if !self.may_reopen(core) {
            return Err(last);
        }
        match last {
            Failed::Unknown(why) => {
                self.wait_longer(patience);
                let begun = Instant::now();
                let reopened = self.reopen(why);
                let spent = begun.elapsed();
                // This step has its own limits, and is no time in which the process was stopped.
                patience.count(spent, spent);
                stops.look(clock::since_boot(), spent);
                reopened
            }
            Failed::NoDaemon(why) => {
                self.wait_longer(patience);
                Ok(why)
            }
            last => Err(last),
        }
    }

    fn reopen(&mut self, why: String) -> Result<String, Failed> {
        let Some(node) = self.node.upgrade() else {
            return Err(Failed::Unknown(why));
        };
        match node.reopen(self.dialer.session, &self.dialer.secret) {
            Ok(fingerprint) => {
                self.dialer.rails.set_fingerprint(fingerprint);
                self.recovery.opened += 1;
                (self.recovery.is_anew, self.recovery.has_just_opened) = (true, true);
                Ok("the session was opened again".to_owned())
            }
            Err(not @ NotReopened::ForNow(_)) => Ok(not.to_string()),
            Err(not @ NotReopened::ForGood(_)) => Err(Failed::ForGood(not.to_string())),
        }
    }

    /// Has the lease's holder ask the manager for other devices if the session has been away for a while.
    pub(super) fn look_for_devices(
        &mut self,
        core: &Core,
        away: Duration,
        patience: &mut Patience,
    ) {
        let Some(node) = self.node.upgrade().filter(|node| node.is_leased()) else {
            return;
        };
        let is_late = self.recovery.is_longer || away >= REPORTED;
        let lacks = is_late && self.may_reopen(core);
        node.set_lacking(lacks);
        if lacks {
            node.looks_for_news();
        }
        if node.is_replaced() {
            self.wait_longer(patience);
        }
    }

    /// Has nobody look for other devices any more.
    pub(super) fn end_recovery(&self) {
        if let Some(node) = self.node.upgrade() {
            node.set_lacking(false);
        }
    }

    /// What a loss says of the devices that were looked for.
    pub(super) fn sought(&self) -> &'static str {
        match self.node.upgrade().is_some_and(|node| node.is_replaced()) {
            true => {
                "; the device manager has lost the node, and no equal device was free in its place"
            }
            false => "",
        }
    }

    fn wait_longer(&mut self, patience: &mut Patience) {
        if !self.recovery.is_longer {
            self.recovery.is_longer = true;
            patience.begin_anew(self.server.restart());
        }
    }
}
