//! Answers waiting callers while the store fails.
//!
//! The rule: whatever gives something is not done, neither now nor later. Whatever takes something away
//! is in effect at once, and is stored when the store works again. The answer says which. Other decisions
//! that the lease manager made before the failure was noticed are carried out later. A crash meanwhile
//! undoes early changes. A lease that its nodes have withdrawn ends again when they report that. A user
//! or token stays until it is removed again, as its answer says.
//!
//! Invariant: once the failure is known, no caller waits for the store.

use std::mem::take;

use super::super::input::{Answer, News, Problem, Unwritten};
use super::Owner;
use super::work::{Effect, Meanwhile, Ordered, Work};
use crate::identity::IdentityChange;
use crate::lease::{Action, EndReason, Event, LeaseId, Outcome};
use crate::store::Write;

/// A decision to revert, because no caller will know of it.
enum Off {
    Event(Event),
    Identity(IdentityChange),
}

impl Owner {
    /// Answers all waiting callers now, and reverts decisions that they will not know of.
    pub(super) fn answer_what_waits(&mut self) {
        let Some(problem) = self.writing.problem() else {
            return;
        };
        let mut off = Vec::new();
        let mut waiting = self.writing.take_waiting();
        for held in waiting.0.iter_mut().chain(&mut waiting.1) {
            let effects = take(&mut held.work.effects).into_iter();
            let effects = effects.filter_map(|effect| self.meanwhile(effect, &problem, &mut off));
            held.work.effects = effects.collect();
        }
        // Before the reverting events below, which add to the queue.
        self.writing.put_back(waiting);
        for off in off {
            match off {
                Off::Event(event) => self.handle(event),
                Off::Identity(change) => self.take_back(change),
            }
        }
    }

    /// Answers an effect's caller. Returns the effect if it is still to be carried out after the write.
    fn meanwhile(
        &mut self,
        effect: Effect,
        problem: &Problem,
        off: &mut Vec<Off>,
    ) -> Option<Effect> {
        let not_done = News::NotWritten(self.not_done(problem));
        match effect {
            Effect::Listen { lease, watcher } => {
                watcher.tell(not_done);
                let user = watcher.caller.user;
                off.push(Off::Event(Event::Cancel { lease, user }));
                None
            }
            Effect::Act(Action::Tell {
                lease,
                outcome: Outcome::Leased(_) | Outcome::Reserved(_),
            }) if self.watchers.get(&lease).is_some_and(|of| !of.waits) => {
                // The client gets a refusal now, so the lease must not go on without it.
                let watcher = self.watchers.remove(&lease)?;
                watcher.tell(not_done);
                let user = watcher.caller.user;
                off.push(Off::Event(Event::Cancel { lease, user }));
                None
            }
            Effect::Act(
                action @ (Action::Withdraw {
                    reason: Some(EndReason::Revoked),
                    ..
                }
                | Action::Ended {
                    reason: EndReason::Revoked,
                    ..
                }),
            ) => {
                // A revocation takes something away, so nodes and client learn of it before it is
                // durable.
                self.act(action);
                None
            }
            Effect::Answer(lease, answer, outcome) => {
                let reply = self.answer_meanwhile(lease, outcome, problem);
                // The caller may be gone.
                drop(answer.send(reply));
                None
            }
            Effect::Done(ordered) => {
                self.done_meanwhile(ordered, problem, off);
                None
            }
            act @ Effect::Act(_) => Some(act),
        }
    }

    /// The answer about a lease: a renewal, if the stored lease is up to date. An end or a confirmation
    /// is still to be stored.
    fn answer_meanwhile(
        &self,
        lease: LeaseId,
        outcome: Outcome,
        problem: &Problem,
    ) -> Result<Answer, Unwritten> {
        let row = self.book.leases.get(&lease);
        let is_unwritten = match outcome {
            Outcome::Leased(_) => !row.is_some_and(|row| row.confirmed),
            Outcome::Reserved(_) => row.is_none(),
            Outcome::Ended(_) => true,
            _ => false,
        };
        match is_unwritten {
            true => Err(self.later(problem)),
            false => Ok(self.answer(lease, outcome)),
        }
    }

    fn done_meanwhile(&mut self, ordered: Ordered, problem: &Problem, off: &mut Vec<Off>) {
        let Ordered {
            done,
            result,
            meanwhile,
        } = ordered;
        let result = match result {
            Err(not) => Err(not.into()),
            Ok(()) => Err(match meanwhile {
                Meanwhile::Nothing => self.later(problem),
                Meanwhile::Takes(changes) => {
                    self.count_early(changes);
                    self.later(problem)
                }
                Meanwhile::TakenBack(change) => {
                    off.push(Off::Identity(change));
                    self.not_done(problem)
                }
            }
            .into()),
        };
        drop(done.send(result));
    }

    fn not_done(&self, problem: &Problem) -> Unwritten {
        match self.writing.is_lost() {
            true => Unwritten::Lost(problem.clone()),
            false => Unwritten::ChangeError(problem.clone()),
        }
    }

    fn later(&self, problem: &Problem) -> Unwritten {
        match self.writing.is_lost() {
            true => Unwritten::Lost(problem.clone()),
            false => Unwritten::Later(problem.clone()),
        }
    }

    /// Puts changes that only take away into effect before they are durable.
    fn count_early(&mut self, changes: Vec<IdentityChange>) {
        let mut shared = self.shared_directory.write();
        for change in &changes {
            tracing::warn!(
                ?change,
                "a change of users or tokens is in effect before it is stored"
            );
            self.revalidation.note(change);
            shared.apply(change.clone());
        }
        drop(shared);
        changes.iter().for_each(|change| self.turn_out(change));
        self.early.extend(changes);
    }

    /// Applies a change that has become durable. Early changes are applied again after it, so that they
    /// stay in effect.
    pub(super) fn note_identity(&mut self, change: IdentityChange) {
        self.revalidation.note(&change);
        let mut shared = self.shared_directory.write();
        if let Some(at) = self.early.iter().position(|early| *early == change) {
            self.early.remove(at);
        }
        shared.apply(change.clone());
        for change in &self.early {
            shared.apply(change.clone());
        }
        drop(shared);
        self.turn_out(&change);
    }

    /// Marks connections with certificates of a removed user as strangers'.
    fn turn_out(&self, change: &IdentityChange) {
        if let IdentityChange::PutRemoved(name) = change {
            self.certified.turn_out(&name.0);
        }
    }

    fn take_back(&mut self, change: IdentityChange) {
        let is_there = match &change {
            IdentityChange::DeleteToken(id) => self.directory.token(id).is_some(),
            _ => true,
        };
        // Applied without `decide`, which refuses to delete an administrator's only token. No caller has
        // received this token.
        let changes = Vec::from_iter(is_there.then_some(change));
        let decided = changes.iter().cloned();
        decided.for_each(|change| self.directory.apply(change));
        let writes = changes.into_iter().map(Write::Identity).collect();
        let effects = Vec::new();
        self.push(writes, Work { effects });
    }
}
