//! What becomes of what waits while nothing can be written.
//!
//! The rule: what gives somebody something is not done, neither now nor later; what takes something away counts at
//! once, and is written when the store works again; whoever asked is told which of the two. What the lease machine has
//! decided otherwise by the time the trouble is noticed, it does later. A crash meanwhile brings back what was
//! taken: a lease that its nodes have let go of ends again when they say so, a user or a token stays until somebody
//! removes it again, which is what its answer says.
//!
//! Invariant: nobody who wants an answer waits for the store once the trouble is known.

use std::mem::take;

use super::super::input::{Answer, News, Problem, Unwritten};
use super::Owner;
use super::work::{Effect, Meanwhile, Ordered, Work};
use crate::identity::IdentityChange;
use crate::lease::{Action, EndReason, Event, LeaseId, Outcome};
use crate::store::Write;

/// What is taken back, because nobody would hear of it.
enum Off {
    Event(Event),
    Identity(IdentityChange),
}

impl Owner {
    /// Who waits for an answer gets it now; the lease machine hears that such requests are off.
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
        self.writing.put_back(waiting);
        for off in off {
            match off {
                Off::Event(event) => self.handle(event),
                Off::Identity(change) => self.take_back(change),
            }
        }
    }

    /// What of an effect is to be done once it is written.
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
                self.act(action);
                None
            }
            Effect::Answer(lease, answer, outcome) => {
                let reply = self.answer_meanwhile(lease, outcome, problem);
                // Who asked may have gone meanwhile.
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

    /// A lease that is as it is written is renewed; an end, or a confirmation, is to be written yet.
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
            false => Unwritten::NotDone(problem.clone()),
        }
    }

    fn later(&self, problem: &Problem) -> Unwritten {
        match self.writing.is_lost() {
            true => Unwritten::Lost(problem.clone()),
            false => Unwritten::Later(problem.clone()),
        }
    }

    /// Who may less may so from now on.
    fn count_early(&mut self, changes: Vec<IdentityChange>) {
        let mut shared = self.shared_directory.write();
        for change in &changes {
            tracing::warn!(?change, "it counts before it is written down");
            self.judging.note(change);
            shared.apply(change.clone());
        }
        drop(shared);
        changes.iter().for_each(|change| self.turn_out(change));
        self.early.extend(changes);
    }

    /// A change of who is who is durable. What counts already and is not durable counts on, whatever was decided
    /// before it.
    pub(super) fn note_identity(&mut self, change: IdentityChange) {
        self.judging.note(&change);
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

    /// Connections with certificates of a user who was removed are strangers' from now on.
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
        // Not by a decision: that it is an administrator's only one must not keep what nobody has.
        let changes = Vec::from_iter(is_there.then_some(change));
        let decided = changes.iter().cloned();
        decided.for_each(|change| self.directory.apply(change));
        let writes = changes.into_iter().map(Write::Identity).collect();
        let effects = Vec::new();
        self.push(writes, Work { effects });
    }
}
