//! A replay: what it holds and touches, and what has changed since the worker heard of it last.
//!
//! Changes of launches travel with the replays that they are for, as arguments do with launches: a replay says what
//! differs from the one *sent* before it, in whatever order replays of several versions are sent. So an update sends
//! nothing by itself. Invariant: what a launch was changed to counts as known to the worker only after a replay with it
//! was sent.

use std::sync::{Arc, Weak};

use causeway_proto::command::{self, ChangedLaunch, enqueue};
use causeway_proto::id::CommandBufferId;
use cl_headers::types::CL_INVALID_MEM_OBJECT;
use parking_lot::{Mutex, MutexGuard};

use super::Current;
use crate::coherence::Access;
use crate::error::{ClResult, Status};
use crate::stub::kernel::{Dispatch, Snapshot};
use crate::stub::{Buffer, Hold, Site};

/// Launches that may change, each with its place among the commands.
pub(super) type Launches = Arc<[(u32, Arc<Dispatch>)]>;

/// What commands need when they run.
#[derive(Clone, Default)]
pub(super) struct Needs {
    arguments: Vec<Weak<Buffer>>,
    // By pointers in memory: what is gone is reached no more.
    reached: Vec<Weak<Buffer>>,
    // Of contexts of several sites.
    accesses: Vec<Access>,
}

impl Needs {
    /// Of a launch, in a context of `several` sites.
    pub(super) fn of(launch: &Snapshot, several: bool) -> ClResult<Needs> {
        let buffers = launch.buffers().map(|(buffer, _)| Arc::downgrade(buffer));
        let accesses = several.then(|| launch.accesses()).transpose()?;
        Ok(Needs {
            arguments: buffers.collect(),
            reached: launch.reached().iter().map(Arc::downgrade).collect(),
            accesses: accesses.unwrap_or_default(),
        })
    }

    /// Of what keeps its memory itself.
    pub(super) fn of_work(accesses: Vec<Access>) -> Needs {
        Needs {
            accesses,
            ..Needs::default()
        }
    }

    /// Adds what others need.
    pub(super) fn add(&mut self, others: &Needs) {
        self.arguments.extend_from_slice(&others.arguments);
        self.reached.extend_from_slice(&others.reached);
        self.accesses.extend_from_slice(&others.accesses);
    }

    /// Names everything once.
    pub(super) fn each_once(&mut self) {
        for list in [&mut self.arguments, &mut self.reached] {
            list.sort_unstable_by_key(Weak::as_ptr);
            list.dedup_by(|one, other| Weak::ptr_eq(one, other));
        }
        let mut seen = rustc_hash::FxHashSet::default();
        self.accesses.retain(|access| seen.insert(*access));
    }

    /// What a replay holds.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT` when an argument is gone.
    pub(super) fn hold(&self) -> ClResult<Hold> {
        let arguments = self.arguments.iter().map(Weak::upgrade);
        let arguments: Option<Hold> = arguments.collect();
        let mut hold = arguments.ok_or(Status(CL_INVALID_MEM_OBJECT))?;
        hold.extend(self.reached.iter().filter_map(Weak::upgrade));
        Ok(hold)
    }
}

/// All commands of a command buffer as they are now, to be enqueued as one.
#[derive(Clone)]
pub struct Replay {
    command_buffer: CommandBufferId,
    current: Current,
    told: Arc<Mutex<Launches>>,
}

/// Held from when a replay was made into a command until that is appended to the session: no other replay of the
/// command buffer gets between. Dropped without [`Commit::sent`], nothing was sent.
pub(crate) struct Commit<'a> {
    told: MutexGuard<'a, Launches>,
    launches: &'a Launches,
}

impl Replay {
    pub(super) fn new(
        command_buffer: CommandBufferId,
        current: Current,
        told: Arc<Mutex<Launches>>,
    ) -> Replay {
        Replay {
            command_buffer,
            current,
            told,
        }
    }

    /// What it reads and writes, in a context of several sites.
    pub(crate) fn accesses(&self) -> &[Access] {
        &self.current.needs.accesses
    }

    /// As a command for its site, naming the launches that differ from those of the replay sent before. It is to be
    /// appended to the site's session while the second result is held, which is then told.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost, and what making a buffer there says.
    pub(crate) fn operation(&self, site: &Site) -> ClResult<(enqueue::Operation, Commit<'_>)> {
        let (told, launches) = (self.told.lock(), &self.current.launches);
        let mut changed = Vec::new();
        if !Arc::ptr_eq(&told, launches) {
            for ((_, before), (place, now)) in told.iter().zip(launches.iter()) {
                if !Arc::ptr_eq(before, now) {
                    changed.push(ChangedLaunch {
                        place: *place,
                        launch: Some(now.news(before, site)?),
                    });
                }
            }
        }
        let operation = enqueue::Operation::Replay(command::Replay {
            command_buffer: self.command_buffer.0,
            changed,
        });
        Ok((operation, Commit { told, launches }))
    }
}

impl Commit<'_> {
    /// The command has been appended.
    pub(crate) fn sent(mut self) {
        *self.told = self.launches.clone();
    }
}
