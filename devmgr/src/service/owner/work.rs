//! What is to be done once something is written.

use tokio::sync::oneshot;

use super::super::input::{Answer, Done, Reply, Watcher};
use crate::identity::{IdentityChange, NotChanged};
use crate::inventory::NodeId;
use crate::lease::{Action, Change, LeaseId, Outcome};
use crate::store::Write;

/// What one input leads to, after its changes are durable.
pub(super) struct Work {
    pub(super) effects: Vec<Effect>,
}

/// One thing to be done.
pub(super) enum Effect {
    /// What the lease machine wants.
    Act(Action),
    /// This stream hears of the request from now on.
    Listen { lease: LeaseId, watcher: Watcher },
    /// An answer to a question.
    Answer(LeaseId, oneshot::Sender<Reply<Answer>>, Outcome),
    /// An order was carried out, or why it was not.
    Done(Ordered),
}

/// An order, and what is said to it.
pub(super) struct Ordered {
    pub(super) done: Done,
    pub(super) result: Result<(), NotChanged>,
    pub(super) meanwhile: Meanwhile,
}

/// What becomes of an order while it cannot be written.
pub(super) enum Meanwhile {
    /// It is done later.
    Nothing,
    /// These count at once, and are written later.
    Takes(Vec<IdentityChange>),
    /// It is of use only to who hears of it, and is undone by this.
    TakenBack(IdentityChange),
}

/// What two works may have in common: they keep their order then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Concern {
    /// A lease or a request.
    Lease(LeaseId),
    /// What a node is, and its welcome.
    Node(NodeId),
    /// Words to a node that come after its welcome. Those of different leases need no order: a unit is granted anew
    /// only when its node has said that it is free.
    Words(NodeId),
    /// The epochs that may be used, which are durable before somebody hears of one.
    Epochs,
}

impl Work {
    /// What nothing may pass that waits for one of these, while this is not done.
    pub(super) fn holds(&self, writes: &[Write]) -> Vec<Concern> {
        let effects = self.effects.iter().flat_map(Effect::holds);
        let writes = writes.iter().filter_map(written);
        effects.flatten().chain(writes).collect()
    }

    /// Whether it has to wait for one of those.
    pub(super) fn waits_for(&self, is_held: impl Fn(&Concern) -> bool) -> bool {
        let awaited = self.effects.iter().flat_map(Effect::waits_for);
        awaited.flatten().any(|concern| is_held(&concern))
    }

    /// Whether somebody is told that all is done which he asked for: that comes after whatever was before it.
    pub(super) fn tells_of_all(&self) -> bool {
        let is_order = |effect: &Effect| matches!(effect, Effect::Done(_));
        self.effects.iter().any(is_order)
    }
}

impl Effect {
    fn holds(&self) -> [Option<Concern>; 2] {
        use Concern::{Lease, Node, Words};
        match self {
            Effect::Act(Action::Welcome { node, .. }) => [Some(Node(*node)), None],
            Effect::Act(Action::Drain { node, .. }) => [Some(Words(*node)), None],
            Effect::Act(Action::Grant(grant)) => {
                [Some(Words(grant.node)), Some(Lease(grant.lease))]
            }
            Effect::Act(Action::Withdraw { node, lease, .. }) => {
                [Some(Words(*node)), Some(Lease(*lease))]
            }
            Effect::Act(
                Action::Tell { lease, .. }
                | Action::Ended { lease, .. }
                | Action::Reduced { lease, .. },
            )
            | Effect::Listen { lease, .. }
            | Effect::Answer(lease, ..) => [Some(Lease(*lease)), None],
            Effect::Done(_) => [None, None],
        }
    }

    fn waits_for(&self) -> [Option<Concern>; 3] {
        use Concern::{Epochs, Lease, Node, Words};
        match self {
            Effect::Act(Action::Welcome { node, .. }) => {
                [Some(Node(*node)), Some(Words(*node)), Some(Epochs)]
            }
            Effect::Act(Action::Grant(grant)) => [
                Some(Node(grant.node)),
                Some(Lease(grant.lease)),
                Some(Epochs),
            ],
            Effect::Act(Action::Withdraw { node, lease, .. }) => {
                [Some(Node(*node)), Some(Lease(*lease)), None]
            }
            Effect::Act(Action::Drain { node, .. }) => [Some(Node(*node)), None, None],
            other => {
                let [first, second] = other.holds();
                [first, second, None]
            }
        }
    }
}

/// What a change is about, as far as the order of works goes.
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
