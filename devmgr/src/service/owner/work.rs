//! Work that is carried out after its changes are stored.

use tokio::sync::oneshot;

use super::super::input::{Answer, Done, Reply, Watcher};
use crate::identity::NotChanged;
use crate::inventory::NodeId;
use crate::lease::{Action, Change, LeaseId, Outcome};
use crate::store::Write;

/// The effects of one input, to be carried out when its changes are durable.
pub(super) struct Work {
    pub(super) effects: Vec<Effect>,
}

/// One effect.
pub(super) enum Effect {
    /// An action of the lease manager.
    Act(Action),
    /// Registers a stream for a request.
    Listen { lease: LeaseId, watcher: Watcher },
    /// Answers a call about one lease.
    Answer(LeaseId, oneshot::Sender<Reply<Answer>>, Outcome),
    /// Reports that an order was carried out, or why not.
    Done(Done, Result<(), NotChanged>),
}

/// A subject of work. Works with a common subject keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Concern {
    /// A lease or a request.
    Lease(LeaseId),
    /// A node's row, and its welcome.
    Node(NodeId),
    /// Messages to a node that follow its welcome. Those about different leases need no order: a unit is
    /// granted again only after its node has reported it free.
    Words(NodeId),
    /// The range of epochs, which is durable before a message contains one of them.
    Epochs,
}

impl Work {
    /// The concerns that block later work until this work is done.
    pub(super) fn holds(&self, writes: &[Write]) -> Vec<Concern> {
        let effects = self.effects.iter().flat_map(Effect::holds);
        let writes = writes.iter().filter_map(written);
        effects.flatten().chain(writes).collect()
    }

    /// Whether one of the held concerns blocks this work.
    pub(super) fn waits_for(&self, is_held: impl Fn(&Concern) -> bool) -> bool {
        let awaited = self.effects.iter().flat_map(Effect::waits_for);
        awaited.flatten().any(|concern| is_held(&concern))
    }

    /// Whether this work takes something away, or denies it. If another manager may lead, such a work waits
    /// until a transaction has shown that none does. Works that give wait for their changes in any case.
    pub(super) fn takes(&self) -> bool {
        self.effects.iter().any(Effect::takes)
    }

    /// Whether this work answers an order. The answer comes after everything that was decided before.
    pub(super) fn tells_of_all(&self) -> bool {
        let is_order = |effect: &Effect| matches!(effect, Effect::Done(..));
        self.effects.iter().any(is_order)
    }
}

impl Effect {
    fn takes(&self) -> bool {
        match self {
            // A welcome voids grants that the node has not heard of, and counts as contact.
            Effect::Act(
                Action::Welcome { .. }
                | Action::Withdraw { .. }
                | Action::Ended { .. }
                | Action::Reduced { .. }
                // The node that the sessions leave serves them no longer.
                | Action::Move { .. }
                // Nor does the node that has taken them.
                | Action::Stay { .. }
                | Action::Moved { .. },
            ) => true,
            Effect::Act(Action::Tell { outcome, .. }) | Effect::Answer(_, _, outcome) => matches!(
                outcome,
                Outcome::Ended(_) | Outcome::Unknown | Outcome::Refused(_)
            ),
            // What is said to be done must not have been done by a later leader in another way.
            Effect::Done(..) => true,
            Effect::Act(Action::Drain { .. } | Action::Grant(_)) | Effect::Listen { .. } => false,
        }
    }

    fn holds(&self) -> [Option<Concern>; 2] {
        use Concern::{Lease, Node, Words};
        match self {
            Effect::Act(Action::Welcome { node, .. }) => [Some(Node(*node)), None],
            Effect::Act(Action::Drain { node, .. }) => [Some(Words(*node)), None],
            Effect::Act(Action::Grant(grant)) => {
                [Some(Words(grant.node)), Some(Lease(grant.lease))]
            }
            Effect::Act(
                Action::Withdraw { node, lease, .. }
                | Action::Move { node, lease, .. }
                | Action::Stay { node, lease, .. },
            ) => [Some(Words(*node)), Some(Lease(*lease))],
            Effect::Act(
                Action::Tell { lease, .. }
                | Action::Ended { lease, .. }
                | Action::Reduced { lease, .. }
                | Action::Moved { lease, .. },
            )
            | Effect::Listen { lease, .. }
            | Effect::Answer(lease, ..) => [Some(Lease(*lease)), None],
            Effect::Done(..) => [None, None],
        }
    }

    fn waits_for(&self) -> [Option<Concern>; 3] {
        use Concern::{Epochs, Lease, Node, Words};
        match self {
            Effect::Act(Action::Welcome { node, .. }) => {
                // The welcome's fence is an epoch, whose bound must be durable.
                [Some(Node(*node)), Some(Words(*node)), Some(Epochs)]
            }
            Effect::Act(Action::Grant(grant)) => [
                Some(Node(grant.node)),
                Some(Lease(grant.lease)),
                Some(Epochs),
            ],
            Effect::Act(
                Action::Withdraw { node, lease, .. }
                | Action::Move { node, lease, .. }
                | Action::Stay { node, lease, .. },
            ) => [Some(Node(*node)), Some(Lease(*lease)), None],
            Effect::Act(Action::Drain { node, .. }) => [Some(Node(*node)), None, None],
            other => {
                // All other effects wait for earlier ones about the same subject.
                let [first, second] = other.holds();
                [first, second, None]
            }
        }
    }
}

/// The concern of a change.
fn written(write: &Write) -> Option<Concern> {
    let Write::Lease(change) = write else {
        return None;
    };
    match change {
        Change::Epochs(_) => Some(Concern::Epochs),
        Change::PutLease(row) => Some(Concern::Lease(row.lease)),
        Change::PutWaiting(row) => Some(Concern::Lease(row.lease)),
        Change::DeleteLease(lease) | Change::DeleteWaiting(lease) => Some(Concern::Lease(*lease)),
        Change::PutNode(row) => Some(Concern::Node(row.node)),
        Change::DeleteNode(node) => Some(Concern::Node(*node)),
        Change::PutAbsence(_)
        | Change::DeleteAbsence(_)
        | Change::PutQuota(..)
        | Change::DeleteQuota(_)
        | Change::PutUse(_)
        | Change::DeleteUse(..)
        | Change::PutPolicy(_) => None,
    }
}
