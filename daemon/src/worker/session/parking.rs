//! Parks the session, because the daemon ends, and puts a parked session together again.
//!
//! To park: the client is told to stand, and says when it does. What the worker has begun ends. If a command waits for
//! an event that only the client can end, the client goes on, and the worker tries again. When the client has
//! acknowledged everything, the state and the contents of memory are written ([`park`], [`file`]). A client that stands
//! acknowledges the end of a transfer when it has the bytes, so none is on its way when the worker ends.
//!
//! A client that is away is waited for, as long as it may be away. Without it, nothing can be parked consistently:
//! it has commands that it wrote and the worker has not applied, whose objects its record may leave out already; transfers
//! that have begun end only with it; and the bytes in its lanes exist nowhere but here.
//!
//! To put together ([`restore`]): the client's record creates the objects under their ids. Then arguments, events and
//! contents come from the file. Commands follow only after that.
//!
//! A *checkpoint* is the same without the end: when everything is written, the client goes on. If the worker dies later,
//! another one begins with the checkpoint, and the client sends again what came behind it. If the client holds the
//! checkpoint, the client goes on when everything is copied. A later worker gets the checkpoint before the record
//! ([`arriving`]).
//!
//! Invariants: a session is parked only if nothing of it is lost by that. No command is applied before the session is
//! whole again.
#![forbid(unsafe_code)]

mod arriving;
mod file;
pub(super) mod park;
pub(super) mod restore;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_proto::command::Holder;
use causeway_proto::command::command::Kind;
use causeway_proto::status::Status;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::tables::Objects;
use crate::worker::connection::Source;

/// How often the worker looks whether what it has begun has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Why a session with links, or with sites that exchange data, is never parked.
pub(super) const SITES: &str = "it exchanges data between several nodes or platforms";

/// Whether this is the file of a session without memory. Everything of a file is read but memory's contents, of which
/// only the driver knows the length.
#[must_use]
pub fn is_whole(file: &[u8]) -> bool {
    let whole = file::Reader::open(file).and_then(file::Reader::finish);
    whole.is_ok_and(|state| state.memory.is_empty())
}

/// Whether and how far a session is parked or put together again.
pub(crate) struct Parking {
    /// Why the session is never parked.
    never: OnceLock<&'static str>,
    turn: Mutex<()>,
    stands: Mutex<bool>,
    stood: Condvar,
    /// Who holds the checkpoint that is copied, once the client has said so.
    holder: Mutex<Option<Holder>>,
    decided: Condvar,
    /// Most bytes of a checkpoint that the client holds.
    most: u64,
    is_restoring: AtomicBool,
    /// Whether created memory gets its contents from a file.
    fills: AtomicBool,
    restoring: Mutex<Option<Restoring>>,
}

struct Restoring {
    from: Source,
    /// The checkpoint that comes from the client.
    arriving: Option<arriving::Arriving>,
    /// Number of the last command that a checkpoint of the client covers.
    applied: Option<u64>,
    /// Number of the next command of the record.
    next: u64,
    /// Whether the host clock goes on where that of the worker before was.
    has_clock: bool,
    /// When the first command of the record came.
    begun: Instant,
}

/// Has the turn to park the session or to make a checkpoint. The client must hear the end of one before the other begins:
/// otherwise the word that ends a checkpoint lets a parked client go on.
pub(crate) struct Turn<'a> {
    _turn: MutexGuard<'a, ()>,
}

/// The client's side of a session that is parked.
pub(crate) trait ParkingClient {
    /// Whether the session ends otherwise.
    fn is_over(&self) -> bool;
    /// The number of the last event batch, if the client has handled it.
    fn heard(&self) -> Option<u64>;
    /// The number of the last event batch.
    fn last(&self) -> u64;
    /// Accepts no further connection, because the session is parked.
    fn note_parked(&self);
}

/// How the attempt to park a session ends.
pub(crate) enum Outcome {
    /// The session is written. The client has handled all event batches up to this one, and has applied so many commands.
    Parked { applied: u64, events: u64 },
    /// The session cannot be parked, and goes on.
    Never(String),
    /// The session ends otherwise.
    Over,
}

impl Parking {
    /// `source`: of a session that another worker had before. `most`: bytes of a checkpoint.
    pub(super) fn new(source: Option<Source>, most: u64) -> Parking {
        let fills = matches!(source, Some(Source::Files(_)));
        let restoring = source.map(|from| Restoring {
            from,
            arriving: None,
            applied: None,
            next: 1,
            has_clock: false,
            begun: Instant::now(),
        });
        Parking {
            never: OnceLock::new(),
            turn: Mutex::default(),
            stands: Mutex::new(false),
            stood: Condvar::new(),
            holder: Mutex::default(),
            decided: Condvar::new(),
            most,
            is_restoring: AtomicBool::new(restoring.is_some()),
            fills: AtomicBool::new(fills),
            restoring: Mutex::new(restoring),
        }
    }

    /// Waits for the turn.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn {
            _turn: self.turn.lock(),
        }
    }

    /// Notes why the session is never parked. The first reason counts.
    pub(super) fn never(&self, why: &'static str) {
        let _ = self.never.set(why);
    }

    /// Whether the session is not whole yet.
    pub(super) fn is_restoring(&self) -> bool {
        self.is_restoring.load(Ordering::Acquire)
    }

    /// Whether memory that is created now gets its contents later, so that nobody sees what was there before.
    pub(super) fn fills(&self) -> bool {
        self.fills.load(Ordering::Acquire)
    }

    /// Handles that the client sends nothing until it is told to go on.
    pub(super) fn client_stands(&self) {
        *self.stands.lock() = true;
        self.stood.notify_all();
    }

    /// Handles that the client has said who holds a checkpoint. It may say so again after a break.
    pub(super) fn client_decides(&self, holder: Holder) {
        *self.holder.lock() = Some(holder);
        self.decided.notify_all();
    }

    /// Tells the client by `tell` that a checkpoint is copied, and waits until the client says who holds it. `None` if the
    /// session ends before.
    pub(super) fn ask_holder(
        &self,
        client: &dyn ParkingClient,
        tell: impl FnOnce(),
    ) -> Option<Holder> {
        *self.holder.lock() = None;
        tell();
        let mut holder = self.holder.lock();
        while holder.is_none() && !client.is_over() {
            self.decided.wait_for(&mut holder, LOOK_EVERY * 10);
        }
        *holder
    }

    /// Waits until the client stands. Returns false if the session ends before.
    fn wait_until_client_stands(&self, client: &dyn ParkingClient) -> bool {
        let mut stands = self.stands.lock();
        while !*stands {
            if client.is_over() {
                return false;
            }
            self.stood.wait_for(&mut stands, LOOK_EVERY * 10);
        }
        true
    }
}

/// Returns why a session with this command is never parked: nobody can read the state of what the command makes, or put
/// it together again.
pub(super) fn prevents(kind: Option<&Kind>) -> Option<&'static str> {
    match kind? {
        Kind::CreateSvm(_) => {
            Some("it has used shared virtual memory, whose addresses the driver chooses")
        }
        Kind::CreatePipe(_) => Some("it has used a pipe, which nobody can read"),
        Kind::CreateDeviceQueue(_) => Some("it has used a device queue, which nobody can read"),
        Kind::CreateCommandBuffer(_) => Some("it has used a command buffer"),
        Kind::AddLink(_) | Kind::CreateMirror(_) | Kind::TellEvent(_) => Some(SITES),
        _ => None,
    }
}

// Describes an object that could not be made.
fn broken(objects: &Objects) -> Option<String> {
    let contexts = objects
        .contexts
        .iter()
        .map(|(id, of)| (id.0, "context", of.native().err()));
    let queues = objects
        .queues
        .iter()
        .map(|(id, of)| (id.0, "command queue", of.native().err()));
    let memory = objects
        .memory
        .iter()
        .map(|(id, of)| (id.0, "memory object", of.native().err()));
    let status = |native: Option<&Status>| native.copied();
    let kernels = objects.kernels.iter();
    let kernels = kernels.map(|(id, of)| (id.0, "kernel", status(of.native.as_ref().err())));
    let samplers = objects.samplers.iter();
    let samplers = samplers.map(|(id, of)| (id.0, "sampler", status(of.native.as_ref().err())));
    let sub_devices = objects.sub_devices.iter();
    let sub_devices = sub_devices.map(|((_, id), of)| {
        (
            u64::from(id.0),
            "sub-device",
            status(of.native.as_ref().err()),
        )
    });
    let mut all = contexts
        .chain(queues)
        .chain(memory)
        .chain(kernels)
        .chain(samplers)
        .chain(sub_devices);
    let (id, noun, status) = all.find_map(|(id, noun, status)| Some((id, noun, status?)))?;
    Some(format!("the node could not create {noun} {id}: {status}"))
}
