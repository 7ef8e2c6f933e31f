//! What the two carriers of commands and events have in common.
//!
//! A carrier outlives its connections if the session does. [`Carrier::switch`] gives it a new one. Events go over the
//! new connection at once. The `session` thread reads from it when the old one ends, or when it comes back from the
//! driver.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{CommandBatch, Holder};
use causeway_security::Line;

use super::ending::{Ending, Endings};
use super::parking;
use super::stage::Stage;
use super::window::BadNumber;
use crate::handover;
use crate::worker::session::{Session, Violation};

/// With more event bytes than this that wait or are not acknowledged, no further commands are read.
pub(super) const HIGH: usize = 64 << 20;
/// With fewer such bytes than this, commands are read again.
pub(super) const LOW: usize = 32 << 20;
/// With more such bytes than this, the client is given up. The commands that it sent still produce events.
pub(super) const GIVE_UP: usize = 512 << 20;
/// The same in a host, where the bytes would be taken from the neighbours.
pub(super) const GIVE_UP_IN_HOST: usize = 128 << 20;

/// A command connection that has its place.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) line: Line,
    /// Number of the connection in its place. A later connection has a greater number.
    pub(super) number: u64,
    /// Number of the last event batch that the client has handled.
    pub(super) position: u64,
}

/// The way of a session's events and commands.
pub(super) trait Carrier: Send + Sync {
    /// Goes on over a new connection. Does nothing if a later one has arrived meanwhile. Never waits for the session.
    fn switch(&self, arrived: Arrived);

    /// Handles that the client has handled all event batches up to `number`.
    fn acknowledge(&self, number: u64) -> Result<(), BadNumber>;

    /// The number of the last event batch, if the client has handled it.
    fn heard(&self) -> Option<u64>;

    /// The number of the last event batch.
    fn last(&self) -> u64;

    /// Ends the waits of all threads, because the session ends and its host goes on.
    fn close(&self);
}

/// Returns the number of the event batch that the events of a parked session follow; `None` for another session.
///
/// # Errors
/// The client has handled other batches than the worker that has parked the session has sent.
pub(super) fn begins_behind(stage: &Stage, first: &Arrived) -> Result<Option<u64>, Ending> {
    let Some(restores) = stage.restores() else {
        return Ok(None);
    };
    if restores.reexecutes {
        // The client begins anew with this worker, whatever it has heard of the one before.
        return Ok(Some(first.position));
    }
    // The last batch says that the session is parked, and may have been lost.
    match restores.events.checked_sub(first.position) {
        Some(0 | 1) => Ok(Some(first.position)),
        _ => Err(Ending::Violation(
            "the client has other events than its session".to_owned(),
        )),
    }
}

/// Has the commands of one connection after the other applied, until the session is over. `next` waits for a connection
/// and returns its number, too. `read` applies its commands, and returns how it ended.
pub(super) fn read_all<R>(
    stage: &Arc<Stage>,
    session: &Session,
    next: impl Fn() -> Option<(u64, R)>,
    mut read: impl FnMut(R) -> Ending,
) -> Ending {
    while let Some((number, reading)) = next() {
        if number > 1 {
            session.skip_applied();
        }
        match read(reading) {
            lost @ (Ending::ClientClosed | Ending::ClientLost { .. }) if stage.resumes() => {
                stage.ended(handover::SessionLine::Commands, number, lost);
            }
            ending => return ending,
        }
    }
    Ending::SupervisorGone
}

/// Applies a batch. Returns the ending of a session that is over.
pub(super) fn apply(
    stage: &Arc<Stage>,
    session: &Session,
    batch: &mut CommandBatch,
) -> Option<Ending> {
    match session.apply(batch) {
        Ok(()) => {}
        Err(Violation::NotRestored(why)) => {
            let reason = format!("the session cannot go on in another process: {why}");
            return Some(Ending::ToldToEnd(reason));
        }
        Err(violation) => return Some(Ending::Violation(violation.to_string())),
    }
    if batch.checkpoint {
        parking::start_checkpoint(stage, batch.may_hold);
    }
    match batch.holder() {
        Holder::Unknown => {}
        holder => session.client_decides(holder),
    }
    if batch.stands {
        session.client_stands();
    }
    batch.closes.then_some(Ending::Farewell)
}

/// Where a carrier reports the end of a connection. Called without a lock of the carrier.
pub(super) trait Losses: Send + Sync {
    /// The connection with this number has ended. The session ends too, unless it outlives its connections.
    fn lost(&self, number: u64, ending: Ending);

    /// The session must end.
    fn end(&self, ending: Ending);
}

impl Losses for Endings {
    fn lost(&self, _: u64, ending: Ending) {
        Endings::end(self, ending);
    }

    fn end(&self, ending: Ending) {
        Endings::end(self, ending);
    }
}
