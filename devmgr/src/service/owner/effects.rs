//! Carries out what was decided, once it is stored: sends, reports, answers.
//!
//! Nothing here waits: a receiver that does not read is disconnected.

use std::time::Duration;

use causeway_proto::manager::{
    Drain, Granted as SignedGrant, Move, Stay, ToNode, Welcome, to_node,
};
use causeway_proto::version::WireVersion;

use super::super::input::{Answer, News};
use super::super::watching::Counters;
use super::super::wire;
use super::Owner;
use super::work::{Effect, Work};
use crate::inventory::NodeId;
use crate::lease::{Action, Epoch, Granted, LeaseId, Outcome};
use crate::policy::UserName;
use crate::time::Span;

impl Owner {
    pub(super) fn carry_out(&mut self, work: Work) {
        for effect in work.effects {
            match effect {
                Effect::Act(action) => self.act(action),
                Effect::Listen { lease, watcher } => {
                    self.expect(lease, &watcher);
                    if let Some(earlier) = self.watchers.insert(lease, watcher) {
                        earlier.tell(News::Replaced);
                    }
                }
                Effect::Answer(lease, answer, outcome) => {
                    // The caller may be gone.
                    drop(answer.send(Ok(self.answer(lease, outcome))));
                }
                Effect::Done(done, result) => drop(done.send(result.map_err(Into::into))),
            }
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Welcome { node, fence } => self.welcome(node, fence),
            Action::Drain { node, draining } => {
                self.send(node, to_node::Message::Drain(Drain { draining }));
            }
            Action::Grant(grant) => {
                tracing::debug!(lease = ?grant.lease, user = %grant.user, node = ?grant.node, epoch = grant.epoch.0, "grant");
                self.send(grant.node, to_node::Message::Grant(wire::grant(&grant)));
            }
            Action::Withdraw {
                node,
                lease,
                epoch,
                reason,
            } => {
                let reason = reason.map(|reason| self.revoked.told(&lease, reason));
                self.withdraw(node, lease, epoch, reason.unwrap_or_default());
            }
            Action::Tell { lease, outcome } => self.tell(lease, outcome),
            Action::Reduced {
                lease,
                node,
                outcome,
            } => self.reduced(lease, node, outcome),
            Action::Move {
                node,
                lease,
                epoch,
                target,
                within,
            } => self.order_move(node, lease, epoch, &target, within),
            Action::Stay { node, lease, epoch } => self.order_stay(node, lease, epoch),
            Action::Moved {
                lease,
                from,
                to,
                outcome,
            } => self.moved(lease, (from, to), outcome),
            Action::Ended {
                lease,
                user,
                reason,
            } => {
                Counters::count(&self.counters.ended);
                tracing::info!(?lease, %user, %reason, "lease ended");
                self.tell(lease, Outcome::Ended(reason));
            }
        }
    }

    fn reduced(&mut self, lease: LeaseId, node: NodeId, outcome: Outcome) {
        let user = shown(self.book.user_of(&lease));
        match &outcome {
            Outcome::Leased(granted) if granted.units.is_empty() => tracing::warn!(
                ?lease,
                user,
                ?node,
                "a lease has lost its node, and waits for equal devices"
            ),
            _ => tracing::warn!(
                ?lease,
                user,
                ?node,
                "a lease has lost the devices of one node"
            ),
        }
        self.tell_as_it_is(lease, outcome);
    }

    fn order_stay(&mut self, node: NodeId, lease: LeaseId, epoch: Epoch) {
        tracing::info!(?lease, ?node, epoch = epoch.0, "stay");
        let word = Stay {
            lease_id: lease.0.to_vec().into(),
            epoch: epoch.0,
        };
        self.send(node, to_node::Message::Stay(word));
    }

    fn moved(&mut self, lease: LeaseId, (from, to): (NodeId, NodeId), outcome: Outcome) {
        let user = shown(self.book.user_of(&lease));
        match is_replaced(&outcome) {
            true => tracing::info!(
                ?lease,
                user,
                ?from,
                ?to,
                "equal devices have replaced those of a lost node"
            ),
            false => tracing::info!(?lease, user, ?from, ?to, "a lease has moved"),
        }
        self.tell_as_it_is(lease, outcome);
    }

    fn withdraw(&mut self, node: NodeId, lease: LeaseId, epoch: Epoch, reason: String) {
        let user = shown(self.manager.holder(epoch));
        tracing::debug!(?lease, user, ?node, epoch = epoch.0, "withdraw");
        let word = wire::withdraw(lease, epoch, reason);
        self.send(node, to_node::Message::Withdraw(word));
    }

    // Orders a node to move the sessions of its grant to the node of the target.
    fn order_move(
        &mut self,
        node: NodeId,
        lease: LeaseId,
        epoch: Epoch,
        target: &Granted,
        within: Span,
    ) {
        let target_epoch = target.epoch.0;
        let target = self.sign(lease, target, false);
        tracing::info!(?lease, ?node, epoch = epoch.0, to = ?target.nodes.first().map(|of| &of.name), "move");
        let word = Move {
            lease_id: lease.0.to_vec().into(),
            epoch: epoch.0,
            target: target.nodes.into_iter().next(),
            credential: target.signed_lease,
            within_ms: within.0,
            target_epoch,
        };
        self.send(node, to_node::Message::Move(word));
    }

    fn welcome(&mut self, node: NodeId, fence: Epoch) {
        let milliseconds = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
        let welcome = Welcome {
            wire_version: u32::from(WireVersion::CURRENT.number()),
            epoch: fence.0,
            public_key: self.key.verifier().public_key().to_vec().into(),
            heartbeat_interval_ms: milliseconds(self.heartbeat.0),
            heartbeat_limit_ms: milliseconds(self.heartbeat.1),
            term: self.standing.1.0,
            cluster_id: self.standing.0.0.to_vec().into(),
        };
        // The node may have joined again while this waited. What was decided for its last connection, and the
        // welcome first of all, must not reach it on the new one: grants in between may have failed.
        let due = self.welcomes.remove(&node).unwrap_or(1);
        if due > 1 {
            self.welcomes.insert(node, due - 1);
            return;
        }
        if let Some(link) = self.links.get_mut(&node) {
            link.is_welcomed = true;
        }
        // Marked as welcomed before, because `send` drops messages to nodes that are not.
        self.send(node, to_node::Message::Welcome(welcome));
    }

    fn send(&mut self, node: NodeId, message: to_node::Message) {
        let Some(link) = self.links.get(&node).filter(|link| link.is_welcomed) else {
            // The node has disconnected, and the lease manager knows or is about to.
            return;
        };
        let message = ToNode {
            message: Some(message),
        };
        if link.outbound.try_send(message).is_err() {
            self.cut_off.push((link.connection, node));
        }
    }

    fn tell(&mut self, lease: LeaseId, outcome: Outcome) {
        if let Outcome::Leased(_) | Outcome::Reserved(_) = &outcome {
            Counters::count(&self.counters.granted);
            let watcher = self.watchers.get_mut(&lease);
            if let Some(asked) = watcher.and_then(|of| of.asked.take()) {
                self.counters.grant(asked.elapsed());
            }
            tracing::info!(
                ?lease,
                user = shown(self.book.user_of(&lease)),
                reserved = matches!(outcome, Outcome::Reserved(_)),
                "granted"
            );
        }
        self.tell_as_it_is(lease, outcome);
    }

    fn tell_as_it_is(&mut self, lease: LeaseId, outcome: Outcome) {
        let (news, is_last) = match outcome {
            Outcome::Offered | Outcome::Unknown => return,
            Outcome::Waiting {
                position,
                of,
                shortfall,
                reasons,
            } => (
                News::Waiting {
                    position,
                    of,
                    shortfall,
                    reasons,
                },
                false,
            ),
            Outcome::Reserved(granted) => (News::Granted(self.sign(lease, &granted, true)), false),
            Outcome::Leased(granted) => (News::Granted(self.sign(lease, &granted, false)), false),
            Outcome::Refused(refused) => (News::Refused(refused), true),
            Outcome::Ended(reason) => (News::Ended(self.revoked.told(&lease, reason)), true),
        };
        if let Some(watcher) = self.watchers.get(&lease) {
            watcher.tell(news);
        }
        if is_last {
            self.watchers.remove(&lease);
            // No row is left whose deletion would remove the client's description.
            if !self.book.knows(&lease) {
                self.book.clients.remove(&lease);
            }
        }
    }

    pub(super) fn answer(&self, lease: LeaseId, outcome: Outcome) -> Answer {
        match outcome {
            Outcome::Leased(granted) => Answer::Granted(self.sign(lease, &granted, false)),
            Outcome::Reserved(granted) => Answer::Granted(self.sign(lease, &granted, true)),
            Outcome::Ended(reason) => Answer::Over(self.revoked.told(&lease, reason)),
            other => Answer::Other(other),
        }
    }

    fn sign(&self, lease: LeaseId, granted: &Granted, reserved: bool) -> SignedGrant {
        let now = self.clock.now();
        wire::granted(&self.key, &self.book, now, lease, granted, reserved)
    }
}

/// Whether the last move of a lease has replaced a lost node.
fn is_replaced(outcome: &Outcome) -> bool {
    let (Outcome::Leased(granted) | Outcome::Reserved(granted)) = outcome else {
        return false;
    };
    granted.moves.last().is_some_and(|of| of.replaced)
}

/// A user's name for the log.
fn shown(user: Option<&UserName>) -> Option<&str> {
    user.map(|user| &*user.0)
}
