//! Moves the sessions of a lease to another node, and takes over those of other nodes.
//!
//! ```text
//! manager -- Move --> old node: parks all sessions of the lease (`workers::moving`)
//!                     old node -- TakeSessions: lease, then each session's contents, and its ticket --> new node
//!                     old node <----------------------- SessionsTaken ---------------------- places, sessions
//! manager <-- MoveEnded -- old node
//! manager -- Withdraw --> old node: releases the sessions; or Stay: they go on there
//! ```
//!
//! This module decides nothing about leases: the manager has granted the new node's units before, and withdraws the
//! grant of either node afterwards. Contents leave while the worker writes them: a session's first file in the call
//! ([`send`], [`take`]), and further files over connections of their own ([`send_file`], [`take_file`]). [`further`] has
//! what both ends know of these.
//!
//! Invariants: a session's contents are released here only when the manager withdraws the lease. One move of a lease is
//! under way at a time. No thread sends for a move that has ended.

mod further;
mod send;
mod send_file;
mod take;
mod take_file;
#[cfg(test)]
mod tests;

use std::time::Duration;

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::manager::{Move, MoveEnded, from_node};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::name::{Epoch, LeaseId};
use super::{Managed, dial};
use crate::config::ManagerAddress;

pub(super) use self::take_file::Transfers;

/// How often the contents of a session that is being parked are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A sender that waits for a session says so this often.
const STILL_WAITS: Duration = Duration::from_secs(5);
/// Longest time without any part of a session.
const SILENT_FOR: Duration = Duration::from_secs(30);
/// Time for the other node to say that it has everything, after the last byte.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// Why the sessions of a lease have not moved.
#[derive(Debug)]
struct NotMoved {
    reason: String,
    /// Whether another node may take them.
    elsewhere: bool,
}

impl NotMoved {
    fn stays(reason: impl Into<String>) -> NotMoved {
        NotMoved {
            reason: reason.into(),
            elsewhere: false,
        }
    }

    fn not_taken(reason: impl Into<String>) -> NotMoved {
        NotMoved {
            reason: reason.into(),
            elsewhere: true,
        }
    }

    fn not_read(error: &std::io::Error) -> NotMoved {
        NotMoved::stays(format!("the contents of a session cannot be read: {error}"))
    }
}

/// A move of a lease that is under way.
pub(super) struct Underway {
    pub(super) epoch: Epoch,
    target: u64,
    /// Dropped to stop the move.
    _goes_on: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Managed {
    /// Handles the manager's order to move a lease. Reports the result to the manager.
    pub(super) fn begin_move(&self, lease: LeaseId, order: Move) {
        let until = Instant::now() + Duration::from_millis(order.within_ms);
        let (goes_on, stopped) = oneshot::channel();
        let (epoch, target) = (Epoch(order.epoch), order.target_epoch);
        let mut state = self.0.state.lock();
        if !state.grants.serves(lease, epoch) {
            drop(state);
            let not = NotMoved::stays("the node does not serve this grant of it");
            return self.end_move(lease, epoch, target, Err(not));
        }
        state.moved.remove(&lease);
        let before = state.moves.remove(&lease);
        let managed = self.clone();
        let task = tokio::spawn(async move {
            if let Some(Underway { _goes_on, task, .. }) = before {
                drop(_goes_on);
                let _ = task.await;
            }
            let moved = managed.move_lease(lease, order, until, stopped).await;
            managed.end_move(lease, epoch, target, moved);
        });
        let underway = Underway {
            epoch,
            target,
            _goes_on: goes_on,
            task,
        };
        state.moves.insert(lease, underway);
    }

    fn end_move(&self, lease: LeaseId, epoch: Epoch, target: u64, moved: Result<(), NotMoved>) {
        match &moved {
            Ok(()) => tracing::info!(?lease, "another node has taken the lease's sessions"),
            Err(not) => tracing::warn!(?lease, reason = not.reason, "the lease has not moved"),
        }
        let (reason, elsewhere) = match moved {
            Ok(()) => (String::new(), false),
            Err(not) => (not.reason, not.elsewhere),
        };
        let ended = MoveEnded {
            lease_id: lease.0.to_vec().into(),
            epoch: epoch.0,
            reason,
            elsewhere,
            target_epoch: target,
        };
        let mut state = self.0.state.lock();
        if let Some(manager) = &state.manager {
            manager.push(from_node::Message::MoveEnded(ended.clone()));
        }
        // A later order may be waiting for this end.
        if state
            .moves
            .get(&lease)
            .is_some_and(|of| of.target == target)
        {
            state.moves.remove(&lease);
        }
        // Repeated after the next hello, in case that this message is lost. The grant's withdrawal removes it.
        let is_served = state.grants.serves(lease, epoch);
        if is_served {
            state.moved.insert(lease, ended);
        }
        drop(state);
        // The grant may have ended before the sessions were told to leave.
        if !is_served {
            self.0.workers.grant_ended(lease, epoch);
        }
    }

    /// Handles that the sessions of a lease go on here, whatever has become of its move.
    pub(super) fn stay(&self, lease: LeaseId, epoch: Epoch) {
        {
            let mut state = self.0.state.lock();
            if !state.grants.serves(lease, epoch) {
                return;
            }
            if state.moves.get(&lease).is_some_and(|of| of.epoch == epoch) {
                // Stops the move, which then lets the sessions go on.
                state.moves.remove(&lease);
                return;
            }
            let has_sent = |ended: &MoveEnded| ended.reason.is_empty();
            if state.moved.remove(&lease).is_none_or(|of| !has_sent(&of)) {
                return;
            }
        }
        tracing::warn!(
            ?lease,
            "the other node is lost; the lease's sessions go on here"
        );
        self.0.workers.stay(lease);
    }

    // Moves a lease until then, unless it is `stopped`. Its sessions are sent then, or go on here.
    async fn move_lease(
        &self,
        lease: LeaseId,
        order: Move,
        until: Instant,
        stopped: oneshot::Receiver<()>,
    ) -> Result<(), NotMoved> {
        let moved = tokio::select! {
            moved = self.park_and_send(lease, order, until) => moved,
            _ = stopped => Err(NotMoved::not_taken("the manager has called this move off")),
        };
        match moved {
            Ok(()) => self.0.workers.have_sent(lease),
            Err(_) => self.0.workers.stay(lease),
        }
        moved
    }

    // May be dropped at any time. The sessions of the lease leave from then on, until `have_sent` or `stay`.
    async fn park_and_send(
        &self,
        lease: LeaseId,
        order: Move,
        until: Instant,
    ) -> Result<(), NotMoved> {
        let target = order.target.unwrap_or_default();
        // Before any session stands still.
        drop(self.reach(&target.addresses, until).await?);
        let (workers, epoch) = (&self.0.workers, Epoch(order.epoch));
        let leaving = workers.begin_to_park(lease, epoch).await;
        let mut leaving = leaving.map_err(NotMoved::stays)?;
        let departing = std::mem::take(&mut leaving.sessions);
        let parked = workers.wait_until_parked(&leaving, until.into_std());
        let parked = async { parked.await.map_err(NotMoved::stays) };
        let sent = self.send(&target, order.credential, departing, until);
        tokio::try_join!(parked, sent).map(drop)
    }

    async fn reach(
        &self,
        addresses: &[String],
        until: Instant,
    ) -> Result<(NodeClient<tonic::transport::Channel>, ManagerAddress), NotMoved> {
        let mut last = "it has no address".to_owned();
        for address in addresses {
            let Some(address) = ManagerAddress::parse(address) else {
                continue;
            };
            let dialed = dial::dial(&address, self.0.settings.tls.as_ref());
            match tokio::time::timeout_at(until, dialed).await {
                Ok(Ok(channel)) => return Ok((NodeClient::new(channel), address)),
                Ok(Err(error)) => last = error.at_node(),
                Err(_) => last = "it did not answer in time".to_owned(),
            }
        }
        Err(NotMoved::not_taken(format!(
            "the other node cannot be reached: {last}"
        )))
    }
}
