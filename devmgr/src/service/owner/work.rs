//! What is to be done once something is written.

use tokio::sync::oneshot;

use super::super::input::{Answer, Reply, Watcher};
use crate::inventory::NodeId;
use crate::lease::{Action, LeaseId, Outcome};

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
    /// This stream hears one thing, and no more.
    TellOnce(Watcher, Outcome),
    /// An answer to a question.
    Answer(LeaseId, oneshot::Sender<Reply<Answer>>, Outcome),
    /// An order was carried out.
    Done(oneshot::Sender<Reply<()>>),
    /// Who is who has changed.
    Publish,
}

/// Whom something concerns: what concerns the same keeps its order.
#[derive(PartialEq, Eq)]
pub(super) enum Concern {
    Lease(LeaseId),
    Node(NodeId),
}

impl Effect {
    /// At most two are concerned.
    pub(super) fn concerns(&self) -> [Option<Concern>; 2] {
        let lease = |lease: &LeaseId| Some(Concern::Lease(*lease));
        let node = |node: &NodeId| Some(Concern::Node(*node));
        match self {
            Effect::Act(Action::Welcome { node: of, .. }) => [node(of), None],
            Effect::Act(Action::Grant(grant)) => [node(&grant.node), lease(&grant.lease)],
            Effect::Act(
                Action::Withdraw {
                    node: of,
                    lease: id,
                    ..
                }
                | Action::Reduced {
                    node: of,
                    lease: id,
                },
            ) => [node(of), lease(id)],
            Effect::Act(Action::Tell { lease: id, .. } | Action::Ended { lease: id, .. })
            | Effect::Listen { lease: id, .. }
            | Effect::Answer(id, ..) => [lease(id), None],
            Effect::TellOnce(..) | Effect::Done(_) | Effect::Publish => [None, None],
        }
    }
}

impl Work {
    /// Whether it must not come before `earlier`.
    pub(super) fn follows(&self, earlier: &Work) -> bool {
        let concerns = |work: &Work| -> Vec<Concern> {
            let all = work.effects.iter().flat_map(Effect::concerns);
            all.flatten().collect()
        };
        let ours = concerns(self);
        !ours.is_empty() && concerns(earlier).iter().any(|of| ours.contains(of))
    }
}
