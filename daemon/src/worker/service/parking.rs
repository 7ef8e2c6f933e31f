//! Parks the session when the supervisor asks for it, on a thread of its own.
#![forbid(unsafe_code)]

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::carrier::Carrier;
use super::ending::Ending;
use super::stage::Stage;
use crate::handover::{Restores, ToSupervisor};
use crate::worker::session::parking::{Outcome, Way};

/// Time for the client to leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Starts to park the session. `contents` is the file for what it consists of.
pub(super) fn start(stage: &Arc<Stage>, contents: File) {
    let of_thread = Arc::clone(stage);
    let started = stage
        .scope
        .try_spawn("park", move || park(&of_thread, &contents));
    if let Err(error) = started {
        stage.report(&ToSupervisor::NotParked {
            reason: format!("the worker cannot start a thread: {error}"),
        });
    }
}

fn park(stage: &Arc<Stage>, contents: &File) {
    // The client may just be connecting.
    let Some((session, carrier)) = stage.session().zip(stage.carrier()) else {
        return;
    };
    while session.wants_record() && !stage.is_closed() {
        std::thread::sleep(LOOK_EVERY);
    }
    let way = OfStage { stage, carrier };
    match session.park(contents, &way) {
        Outcome::Parked { applied, events } => {
            stage.note_parked();
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

struct OfStage<'a> {
    stage: &'a Stage,
    carrier: Arc<dyn Carrier>,
}

impl Way for OfStage<'_> {
    fn is_over(&self) -> bool {
        self.stage.is_closed()
    }

    fn heard(&self) -> Option<u64> {
        self.carrier.heard()
    }

    fn last(&self) -> u64 {
        self.carrier.last()
    }
}
