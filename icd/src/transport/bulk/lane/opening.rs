//! Opens a session's lanes, and starts the two threads of each.
//!
//! Invariant: a lane that is open has both its threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::{self, Sender};
use std::time::Instant;

use causeway_lane::{Kept, Packer, Resumed, Stream};
use causeway_proto::preamble::ClientWord;
use causeway_proto::status::WireError;
use parking_lot::Mutex;

use super::super::attempts::Attempts;
use super::super::memory::Scratch;
use super::super::{Guard, Owner};
use super::{Lane, OPEN_LIMIT, Writing, broken, read, write};
use crate::thread::Stack;
use crate::transport::thread;

/// Opens the session's lanes of this generation on a separate thread. The first lane must open. The session does without
/// further lanes that the node refuses. With `ahead`, no transfer needs the lanes yet, and a failure is
/// no error until one does.
pub(in crate::transport::bulk) fn open_all(owner: &Arc<dyn Owner>, ahead: bool, generation: u64) {
    let opener = Arc::clone(owner);
    let started = thread::spawn("cw-bulk-open", Stack::Small, move || {
        if !open_shared(&opener, generation) {
            open_tcp(&opener, ahead, generation);
        }
    });
    if let Err(error) = started
        && owner.bulk().worker_generation() == generation
    {
        if ahead {
            tracing::debug!(%error, "cannot start a thread for bulk connections ahead of need");
            if owner.bulk().spare_lane(0, generation) {
                return;
            }
            // A transfer has started meanwhile, so try again.
            return open_all(owner, false, generation);
        }
        owner.fail(format!(
            "the client cannot start a thread for bulk connections: {error}"
        ));
    }
}

fn open_tcp(owner: &Arc<dyn Owner>, mut ahead: bool, generation: u64) {
    let mut lane = 0;
    let mut attempts = Attempts::new(owner.bulk(), 0);
    // The lanes of another generation are opened on another thread.
    while lane < owner.bulk().lane_count && owner.bulk().worker_generation() == generation {
        let begun = Instant::now();
        match open(owner, lane as u8, generation) {
            Ok(()) => {
                lane += 1;
                attempts = Attempts::new(owner.bulk(), lane as u8);
            }
            Err(WireError::Refused { reason, .. }) if lane > 0 => {
                tracing::debug!(lane, reason, "bulk lane refused");
                return;
            }
            Err(error) if std::mem::take(&mut ahead) => {
                tracing::debug!(lane, %error, "cannot open a bulk connection ahead of need");
                if owner.bulk().spare_lane(lane, generation) {
                    return;
                }
                // A transfer has started meanwhile, so the loop tries again.
            }
            Err(error)
                if owner.bulk().resumes() && attempts.goes_on(owner.bulk(), begun, &error) => {}
            // The session does without this lane and the following ones.
            Err(_) if owner.bulk().resumes() && lane > 0 => return,
            Err(error) => return cannot_open(&**owner, generation, &error),
        }
    }
}

/// Ends the session, unless the worker died during the last attempt: other threads open the lanes to the next worker.
pub(super) fn cannot_open(owner: &dyn Owner, generation: u64, error: &WireError) {
    if owner.bulk().worker_generation() != generation {
        return;
    }
    owner.fail(format!("the client cannot open a bulk connection: {error}"));
}

// Opens lanes through shared memory, at most one for every two processors, since both ends need one to
// copy. Returns false if there is none; the reason appears only in the debug log.
fn open_shared(owner: &Arc<dyn Owner>, generation: u64) -> bool {
    if !owner.bulk().dialer.shares_memory() {
        return false;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = owner.bulk().lane_count.min(processors as u32 / 2).max(1);
    for lane in 0..lanes {
        let opened = Crew::start(owner).and_then(|crew| {
            let deadline = Instant::now() + OPEN_LIMIT;
            let dialer = &owner.bulk().dialer;
            let shared = dialer.open_shared(lane as u8, generation, deadline)?;
            Ok((crew, shared))
        });
        match opened {
            Ok((crew, shared)) => {
                crew.take(owner, lane as u8, generation, 0, Stream::Shared(shared));
            }
            Err(error) => {
                tracing::debug!(lane, %error, "cannot open a bulk lane through shared memory");
                return lane > 0;
            }
        }
    }
    tracing::debug!(lanes, "bulk goes through shared memory");
    true
}

fn open(owner: &Arc<dyn Owner>, lane: u8, generation: u64) -> Result<(), WireError> {
    let crew = Crew::start(owner)?;
    let deadline = Instant::now() + OPEN_LIMIT;
    let dialer = &owner.bulk().dialer;
    let word = ClientWord {
        generation,
        ..ClientWord::default()
    };
    let (line, rail, _) = dialer.open_lane(lane, word, deadline)?;
    crew.take(owner, lane, generation, rail, line.into());
    Ok(())
}

// The threads of a lane. They start before the lane is opened, and end if it does not open. Once a lane
// is open the worker sends on it, so a thread must be there to read.
struct Crew {
    reader: Sender<Arc<Lane>>,
    writer: Sender<Arc<Lane>>,
}

impl Crew {
    fn start(owner: &Arc<dyn Owner>) -> Result<Crew, WireError> {
        let no_thread = |error: io::Error| WireError::Refused {
            address: owner.bulk().dialer.address.clone(),
            reason: format!("the client cannot start another thread: {error}"),
        };
        let reader = hire(owner, "cw-bulk-in", |owner, lane| {
            let ended = read(owner, lane);
            lane.end(&**owner, ended);
        });
        let writer = hire(owner, "cw-bulk-out", |owner, lane| {
            if let Err(error) = write(&**owner, lane) {
                lane.end(&**owner, broken("failed", &error));
            }
        });
        Ok(Crew {
            reader: reader.map_err(no_thread)?,
            writer: writer.map_err(no_thread)?,
        })
    }

    // Gives the opened lane to the threads.
    fn take(
        self,
        owner: &Arc<dyn Owner>,
        number: u8,
        generation: u64,
        rail: usize,
        stream: Stream,
    ) {
        let writing = Mutex::new(Writing {
            scratch: Scratch::default(),
            pace: owner.bulk().pace(&stream),
            packer: owner.bulk().compresses(&stream).then(Packer::default),
        });
        let stream = if owner.bulk().resumes() && !stream.is_shared() {
            let of = Arc::downgrade(owner);
            let broke = move |_| {
                if let Some(owner) = of.upgrade() {
                    // Taking the lock ensures that a thread between its check and its wait does not miss this.
                    drop(owner.bulk().state.lock());
                    owner.bulk().work.notify_all();
                }
            };
            Stream::Resumed(Box::new(Resumed::new(stream, broke)))
        } else {
            stream
        };
        let lane = Arc::new(Lane {
            number,
            generation,
            rail: AtomicUsize::new(rail),
            watch: Mutex::default(),
            answers: AtomicU64::new(0),
            stream,
            writing,
            kept: Kept::default(),
            is_retired: AtomicBool::new(false),
        });
        {
            let mut state = owner.bulk().state.lock();
            if state.table.is_closed() || owner.bulk().worker_generation() != generation {
                // The session or its worker ended while the lane was being opened, and did not find the lane.
                lane.stream().shut_down();
                return;
            }
            state.lanes.push(Arc::clone(&lane));
        }
        for thread in [self.reader, self.writer] {
            // The thread is waiting for the lane, so the send succeeds.
            let _ = thread.send(Arc::clone(&lane));
        }
    }
}

// Starts a thread that runs `work` with the lane that it receives.
fn hire(
    owner: &Arc<dyn Owner>,
    name: &str,
    work: impl FnOnce(&Arc<dyn Owner>, &Lane) + Send + 'static,
) -> io::Result<Sender<Arc<Lane>>> {
    let (sender, lanes) = mpsc::channel::<Arc<Lane>>();
    let owner = Arc::clone(owner);
    thread::spawn(name, Stack::Small, move || {
        let _guard = Guard(&*owner);
        if let Ok(lane) = lanes.recv() {
            work(&owner, &lane);
        }
    })?;
    Ok(sender)
}
