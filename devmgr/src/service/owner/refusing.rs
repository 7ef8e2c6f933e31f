//! Refuses changes while the store fails, and answers the callers whose changes already wait for it.
//!
//! The rule: while the store fails, every change is refused, whether it gives or takes. Leases are renewed,
//! and events of nodes and of time are handled, but nothing that they decide is acted upon before it is
//! durable. Changes that were accepted before the failure was known stay in their transaction. Their
//! callers are told that the outcome is unknown. Requests for devices are withdrawn instead, because a lease
//! without a client would keep its devices for nothing.
//!
//! If other managers can take the store over, nothing that takes something away is said without a
//! confirmation ([`Work::takes`](super::work::Work::takes)). Two kinds of answers need none, because they take
//! nothing: a listing, and a refusal to let a node join. A node that may not join serves its leases on, and
//! asks all managers again.
//!
//! A store in etcd may fail for hours. So nodes that report more than the failing store can take are
//! disconnected, and joins are refused until the store recovers ([`is_full`](super::writing::Writing::is_full)).
//!
//! Invariant: once the failure is known, no caller waits for the store.

use std::mem::take;

use super::super::input::{Input, LeaseCall, News, Problem, Unwritten};
use super::Owner;
use super::work::Effect;
use crate::identity::Caller;
use crate::inventory::NodeId;
use crate::lease::change::{LeaseRow, UnitRow};
use crate::lease::{Action, Event, Granted, LeaseId, Outcome};

impl Owner {
    /// Refuses an input that asks for a change, if the store fails. Returns all other inputs.
    pub(super) fn refuse_change(&self, input: Input) -> Option<Input> {
        let Some(problem) = self.writing.problem() else {
            return Some(input);
        };
        let refused = Unwritten::Refused(problem);
        // The callers may be gone.
        match input {
            Input::Joined(_, _, answer) if self.writing.is_full() => {
                drop(answer.send(Err(refused.into())));
            }
            Input::Request(_, _, watcher) => watcher.tell(News::NotWritten(refused)),
            Input::Ask(ask, answer) if ask.call != LeaseCall::Renew => {
                drop(answer.send(Err(refused)));
            }
            Input::Order(_, done)
            | Input::Forget(_, _, done)
            | Input::Revoke(_, _, done)
            | Input::Identity(_, done) => drop(done.send(Err(refused.into()))),
            other => return Some(other),
        }
        None
    }

    /// Answers all callers whose changes wait for the failing store.
    pub(super) fn answer_pending(&mut self) {
        let Some(problem) = self.writing.problem() else {
            return;
        };
        let mut withdrawn: Vec<(LeaseId, Caller)> = Vec::new();
        // Taken out, because answering needs the owner as a whole.
        let mut pending = self.writing.take_pending();
        for effects in pending.effects() {
            let unanswered = take(effects).into_iter();
            let unanswered =
                unanswered.filter_map(|effect| self.answer_now(effect, &problem, &mut withdrawn));
            *effects = unanswered.collect();
        }
        // Before the events below, whose works must come after those.
        self.writing.put_back(pending);
        for (lease, caller) in withdrawn {
            let user = caller.user;
            // A client that has asked again for what it has loses its stream only.
            self.handle(match self.book.knows(&lease) {
                true => Event::RequestLost { lease },
                false => Event::Release { lease, user },
            });
        }
    }

    /// Answers the caller of an effect. Returns effects without a caller: they stay with their changes.
    fn answer_now(
        &mut self,
        effect: Effect,
        problem: &Problem,
        withdrawn: &mut Vec<(LeaseId, Caller)>,
    ) -> Option<Effect> {
        match effect {
            Effect::Listen { lease, watcher } => {
                // A new request is withdrawn below, whatever becomes of its write.
                watcher.tell(News::NotWritten(Unwritten::NotGranted(problem.clone())));
                withdrawn.push((lease, watcher.caller));
            }
            // A client that waits in the queue goes on waiting, for the store too.
            Effect::Act(Action::Tell {
                lease,
                outcome: Outcome::Leased(_) | Outcome::Reserved(_),
            }) if self.watchers.get(&lease).is_some_and(|of| !of.waits) => {
                let watcher = self.watchers.remove(&lease)?;
                watcher.tell(News::NotWritten(Unwritten::NotGranted(problem.clone())));
                withdrawn.push((lease, watcher.caller));
            }
            Effect::Answer(lease, answer, outcome) => {
                let reply = match self.durable(lease, outcome) {
                    Some(outcome) => Ok(self.answer(lease, outcome)),
                    None => Err(Unwritten::Unconfirmed(problem.clone())),
                };
                drop(answer.send(reply));
            }
            Effect::Done(done, result) => {
                let refused = match result {
                    // The reason is not confirmed, but the order has no changes in any case.
                    Err(_) if self.writing.is_shared() => {
                        Unwritten::Refused(problem.clone()).into()
                    }
                    Err(not_changed) => not_changed.into(),
                    Ok(()) => Unwritten::Unconfirmed(problem.clone()).into(),
                };
                drop(done.send(Err(refused)));
            }
            act @ Effect::Act(_) => return Some(act),
        }
        None
    }

    /// Shortens a renewal while the store fails. The store may have a silence that the book does not know, because the
    /// answer to its write was lost, or that is not deleted yet. The next manager may give the lease its least time then.
    pub(super) fn shorten(&self, granted: &mut Granted) {
        let least = self.manager.least_after_takeover();
        granted.until = granted.until.min(self.clock.now().after(least));
    }

    /// The outcome of a renewal as a crash would leave it. `None`: a crash could undo the outcome, or another
    /// manager could decide otherwise.
    fn durable(&self, lease: LeaseId, outcome: Outcome) -> Option<Outcome> {
        let row = self.book.leases.get(&lease);
        match outcome {
            // A lease that has lost a node meanwhile is renewed as it is stored.
            Outcome::Leased(granted) => {
                let row = row.filter(|row| row.confirmed)?;
                let mut granted = as_stored(granted, row);
                self.shorten(&mut granted);
                Some(Outcome::Leased(granted))
            }
            Outcome::Reserved(granted) => Some(Outcome::Reserved(as_stored(granted, row?))),
            Outcome::Ended(_) => None,
            // Another manager may lead, and know the lease.
            Outcome::Refused(_) | Outcome::Unknown if self.writing.is_shared() => None,
            // These say nothing about units.
            other @ (Outcome::Offered
            | Outcome::Waiting { .. }
            | Outcome::Refused(_)
            | Outcome::Unknown) => Some(other),
        }
    }
}

fn as_stored(granted: Granted, row: &LeaseRow) -> Granted {
    let units = |rows: &[(NodeId, Vec<UnitRow>)]| {
        let units = |rows: &Vec<UnitRow>| rows.iter().map(|of| of.unit).collect();
        rows.iter()
            .map(|(node, rows)| (*node, units(rows)))
            .collect()
    };
    Granted {
        units: units(&row.units),
        lost: units(&row.lost),
        epoch: row.epoch,
        moves: row.moved.clone(),
        replaceable: !row.replace.is_empty(),
        ..granted
    }
}
