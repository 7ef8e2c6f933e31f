//! Parks the session when the supervisor asks for it, and makes a checkpoint when the client does. Each has a thread of its
//! own.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::command::{Holder, Parking};
use rustix::fs::{MemfdFlags, SealFlags};

use super::carrier::Carrier;
use super::ending::Ending;
use super::stage::Stage;
use crate::handover::{Restores, ToSupervisor};
use crate::worker::session::Session;
use crate::worker::session::parking::{Outcome, ParkingClient};

/// Time for the client to leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Starts to park the session. `contents` are the files for what it consists of.
pub(super) fn start(stage: &Arc<Stage>, contents: Vec<OwnedFd>) {
    let of_thread = Arc::clone(stage);
    let contents: Vec<_> = contents.into_iter().map(File::from).collect();
    let started = stage
        .scope
        .try_spawn("park", move || park(&of_thread, &contents));
    if let Err(error) = started {
        stage.report(&ToSupervisor::NotParked {
            reason: format!("the worker cannot start a thread: {error}"),
        });
    }
}

fn park(stage: &Arc<Stage>, contents: &[File]) {
    // The client may just be connecting.
    let Some((session, carrier)) = stage.session().zip(stage.carrier()) else {
        return;
    };
    while session.wants_record() && !stage.is_closed() {
        std::thread::sleep(LOOK_EVERY);
    }
    let client = OfStage { stage, carrier };
    let turn = session.parking_turn();
    match session.park(&turn, contents, &client) {
        Outcome::Parked { applied, events } => {
            drop(turn);
            stage.report(&ToSupervisor::Parked(Restores {
                applied,
                events,
                reexecutes: false,
            }));
            let until = Instant::now() + LEAVE_WITHIN;
            while !stage.is_away() && !stage.is_closed() && Instant::now() < until {
                std::thread::sleep(LOOK_EVERY);
            }
            stage.endings.end(Ending::Parked);
        }
        Outcome::Never(reason) => stage.report(&ToSupervisor::NotParked { reason }),
        Outcome::Over => {}
    }
}

/// Starts to make a checkpoint of the session, unless one is being made, or sent to the client. `may_hold`: the client may
/// hold it.
pub(super) fn start_checkpoint(stage: &Arc<Stage>, may_hold: bool) {
    if !stage.begins_checkpoint() {
        return;
    }
    let of_thread = Arc::clone(stage);
    let started = stage.scope.try_spawn("checkpoint", move || {
        if !checkpoint(&of_thread, may_hold) {
            of_thread.ends_checkpoint();
        }
    });
    if let Err(error) = started {
        stage.ends_checkpoint();
        tracing::warn!(%error, "a checkpoint is not made");
    }
}

// Returns whether the checkpoint is being sent to the client.
fn checkpoint(stage: &Arc<Stage>, may_hold: bool) -> bool {
    let Some((session, carrier)) = stage.session().zip(stage.carrier()) else {
        return false;
    };
    // Also before it is refused: a refusal lets the client go on, which it must not while the session is parked.
    let turn = session.parking_turn();
    if stage.is_parked() {
        return false;
    }
    let most = stage.assignment().map_or(0, |of| of.checkpoint_bytes);
    if most == 0 {
        let keys = "`held` and `held_per_user` below [survival] in daemon.toml";
        tracing::info!("the session has no checkpoints: the node has no memory for them ({keys})");
        session.tell_parking(Parking::Unable);
        return false;
    }
    let client = OfStage { stage, carrier };
    let begun = Instant::now();
    let made = memory_file().map_err(|error| error.to_string());
    let outcome = match &made {
        Ok(contents) => session.checkpoint(&turn, std::slice::from_ref(contents), most, &client),
        Err(error) => Outcome::Never(error.clone()),
    };
    let sealed = |contents: File| seal(contents).map_err(|error| error.to_string());
    match (outcome, made.and_then(sealed)) {
        (Outcome::Over, _) => {}
        (Outcome::Parked { applied, events }, Ok((contents, bytes))) => {
            let took = begun.elapsed();
            let holder = match may_hold {
                true => session.ask_holder(&turn, bytes, &client),
                false => Some(Holder::Node),
            };
            match holder {
                Some(Holder::Node) => {
                    give_to_supervisor(stage, (applied, events), contents);
                    session.tell_parking(Parking::Checkpoint);
                    tracing::debug!(applied, ?took, "a checkpoint is made");
                }
                Some(Holder::Client) => {
                    drop(turn);
                    tracing::debug!(applied, ?took, "a checkpoint is copied for the client");
                    send(stage, &session, contents, bytes);
                    return true;
                }
                Some(Holder::Nobody | Holder::Unknown) | None => {}
            }
        }
        (Outcome::Never(reason), _) | (_, Err(reason)) => {
            tracing::info!(reason, "no checkpoint can be made of the session");
            session.tell_parking(Parking::Unable);
        }
    }
    false
}

// The supervisor has the checkpoint before the client forgets what came before it.
fn give_to_supervisor(stage: &Stage, (applied, events): (u64, u64), contents: File) {
    let restores = Restores {
        applied,
        events,
        reexecutes: true,
    };
    stage.report(&ToSupervisor::Checkpoint {
        restores,
        contents: OwnedFd::from(contents).into(),
    });
}

// Sends the checkpoint to the client. The end of that is the end of the checkpoint.
fn send(stage: &Arc<Stage>, session: &Session, contents: File, bytes: u64) {
    let stage = Arc::downgrade(stage);
    session.send_checkpoint(contents, bytes, move || {
        if let Some(stage) = stage.upgrade() {
            stage.ends_checkpoint();
        }
    });
}

fn memory_file() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(rustix::fs::memfd_create("checkpoint", flags)?.into())
}

// Returns the file and its length, which nobody can change any more.
fn seal(contents: File) -> io::Result<(File, u64)> {
    rustix::fs::fcntl_add_seals(
        &contents,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK,
    )?;
    let bytes = contents.metadata()?.len();
    Ok((contents, bytes))
}

struct OfStage<'a> {
    stage: &'a Stage,
    carrier: Arc<dyn Carrier>,
}

impl ParkingClient for OfStage<'_> {
    fn is_over(&self) -> bool {
        self.stage.is_closed()
    }

    fn heard(&self) -> Option<u64> {
        self.carrier.heard()
    }

    fn last(&self) -> u64 {
        self.carrier.last()
    }

    fn note_parked(&self) {
        self.stage.note_parked();
    }
}
