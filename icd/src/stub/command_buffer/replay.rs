//! A replay: the objects it keeps alive and the ranges it touches, and what has changed since the previous
//! replay.
//!
//! Changes of launches are sent with the replays that use them, as changed arguments are sent with
//! launches. A replay carries the differences from the replay *sent* before it, in whatever order replays
//! of several versions are sent. So an update sends nothing itself. Invariant: a change counts as known to
//! the worker only after a replay with it was sent.

use std::sync::{Arc, Weak};

use causeway_proto::command::{self, ChangedLaunch};
use causeway_proto::id::CommandBufferId;
use cl_headers::types::CL_INVALID_MEM_OBJECT;
use parking_lot::{Mutex, MutexGuard};

use super::Current;
use crate::coherence::Access;
use crate::error::{ClResult, Status};
use crate::stub::kernel::{Dispatch, Snapshot};
use crate::stub::{Buffer, Hold, Site};

/// Mutable launches, each with its place among the commands.
pub(super) type Launches = Arc<[(u32, Arc<Dispatch>)]>;

/// The needs of commands when they run.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs {
    arguments: Vec<Weak<Buffer>>,
    // Reached through pointers in memory; objects that no longer exist are ignored.
    reached: Vec<Weak<Buffer>>,
    // Used in contexts of several sites only.
    accesses: Vec<Access>,
}

impl Needs {
    /// Returns the needs of a launch. `several`: in a context of several sites.
    pub(super) fn of(launch: &Snapshot, several: bool) -> ClResult<Needs> {
        let buffers = launch.buffers().map(|(buffer, _)| Arc::downgrade(buffer));
        let accesses = several.then(|| launch.accesses()).transpose()?;
        Ok(Needs {
            arguments: buffers.collect(),
            reached: launch.reached().iter().map(Arc::downgrade).collect(),
            accesses: accesses.unwrap_or_default(),
        })
    }

    /// Returns the needs of a command that keeps its memory alive itself.
    pub(super) fn of_command(accesses: Vec<Access>) -> Needs {
        Needs {
            accesses,
            ..Needs::default()
        }
    }

    /// Adds the needs of others.
    pub(super) fn add(&mut self, others: &Needs) {
        self.arguments.extend_from_slice(&others.arguments);
        self.reached.extend_from_slice(&others.reached);
        self.accesses.extend_from_slice(&others.accesses);
    }

    /// Removes duplicates.
    pub(super) fn each_once(&mut self) {
        for list in [&mut self.arguments, &mut self.reached] {
            list.sort_unstable_by_key(Weak::as_ptr);
            list.dedup_by(|one, other| Weak::ptr_eq(one, other));
        }
        let mut seen = rustc_hash::FxHashSet::default();
        self.accesses.retain(|access| seen.insert(*access));
    }

    /// Returns the buffers that a replay must keep alive.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT` when an argument's buffer no longer exists.
    pub(super) fn hold(&self) -> ClResult<Hold> {
        let arguments = self.arguments.iter().map(Weak::upgrade);
        let arguments: Option<Hold> = arguments.collect();
        let mut hold = arguments.ok_or(Status(CL_INVALID_MEM_OBJECT))?;
        hold.extend(self.reached.iter().filter_map(Weak::upgrade));
        Ok(hold)
    }
}

/// All commands of a command buffer in their current version, enqueued as one.
#[derive(Clone, Debug)]
pub struct Replay {
    command_buffer: CommandBufferId,
    current: Current,
    told: Arc<Mutex<Launches>>,
}

/// Lock between making a command from a replay and appending it to the session, so that no other replay of
/// the command buffer comes between. If dropped without [`Commit::sent`], the replay counts as not sent.
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

    /// Returns the ranges that the replay reads and writes, in a context of several sites.
    pub(crate) fn accesses(&self) -> &[Access] {
        &self.current.needs.accesses
    }

    /// Returns the replay's message for its site, with the launches that differ from the previous replay.
    /// Append the message to the site's session while holding the [`Commit`], and then call
    /// [`Commit::sent`].
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost, and the errors of creating a buffer there.
    pub(crate) fn message(&self, site: &Site) -> ClResult<(command::Replay, Commit<'_>)> {
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
        let replay = command::Replay {
            command_buffer: self.command_buffer.0,
            changed,
        };
        Ok((replay, Commit { told, launches }))
    }
}

impl Commit<'_> {
    /// Records that the command was appended.
    pub(crate) fn sent(mut self) {
        *self.told = self.launches.clone();
    }
}
