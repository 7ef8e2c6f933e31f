//! Users, tokens and quotas are linearizable: each call takes effect at one moment between its beginning and its
//! end, as if there were one manager.
//!
//! Each name is an object of its own, so that the search for an order stays small. `stateright` searches. A call
//! without an answer may take effect at any time after its beginning, or never.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::super::history::{Call, History, Operation, Outcome};

/// One name, as one manager would keep it.
#[derive(Clone, Debug, Default)]
struct Name {
    user: Option<u32>,
    tokens: BTreeSet<u32>,
    quota: u32,
}

impl SequentialSpec for Name {
    type Op = Operation;
    type Ret = Outcome;

    fn invoke(&mut self, operation: &Operation) -> Outcome {
        match *operation {
            Operation::PutUser(group) => self.user = Some(group),
            Operation::DeleteUser => {
                self.tokens.clear();
                if self.user.take().is_none() {
                    return Outcome::Missing;
                }
            }
            Operation::CreateToken(_) if self.user.is_none() => return Outcome::Missing,
            Operation::CreateToken(label) => drop(self.tokens.insert(label)),
            Operation::RevokeToken(label) => {
                if !self.tokens.remove(&label) {
                    return Outcome::Missing;
                }
            }
            Operation::PutQuota(most) => self.quota = most,
            Operation::ReadUser => return Outcome::User(self.user),
            Operation::ReadTokens => return Outcome::Tokens(self.tokens.clone()),
            Operation::ReadQuota => return Outcome::Quota(self.quota),
        }
        Outcome::Done
    }
}

pub(super) fn violations(history: &History) -> Vec<String> {
    let mut names: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in &history.calls {
        names.entry(&call.name).or_default().push(call);
    }
    let wrong = names
        .into_iter()
        .filter(|(_, calls)| !is_linearizable(calls));
    let told = wrong.map(|(name, calls)| {
        let calls = calls.iter().map(|call| {
            let (span, outcome) = (call.span, &call.outcome);
            format!(
                "\n  {span:?}: caller {}: {:?}: {outcome:?}",
                call.caller, call.operation
            )
        });
        let calls: String = calls.collect();
        format!("no order of the calls about {name} explains their answers:{calls}")
    });
    told.collect()
}

fn is_linearizable(calls: &[&Call]) -> bool {
    let mut tester = LinearizabilityTester::new(Name::default());
    let mut is_recorded = true;
    for (_, event) in events(calls) {
        let recorded = match event {
            Event::Begin(thread, call) => tester.on_invoke(thread, call.operation.clone()),
            Event::End(thread, outcome) => tester.on_return(thread, outcome.clone()),
        };
        is_recorded &= recorded.is_ok();
    }
    // A caller with two calls at a time would be a fault of the proof itself.
    is_recorded && tester.is_consistent()
}

/// A caller. A call without an answer has a number of its own, because it may still take effect during the
/// caller's later calls.
type Thread = (usize, usize);

enum Event<'a> {
    Begin(Thread, &'a Call),
    End(Thread, &'a Outcome),
}

/// The beginnings and ends of calls, by time. An end at the time of a beginning comes after it.
fn events<'a>(calls: &[&'a Call]) -> Vec<((Duration, bool), Event<'a>)> {
    let mut events = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        let thread = match call.outcome {
            Some(_) => (call.caller, 0),
            None => (call.caller, number + 1),
        };
        events.push(((call.span.begin, false), Event::Begin(thread, call)));
        if let Some((outcome, _)) = &call.outcome {
            events.push(((call.span.end, true), Event::End(thread, outcome)));
        }
    }
    events.sort_by_key(|(at, _)| *at);
    events
}

#[cfg(test)]
mod tests {
    use super::super::examples::span;
    use super::*;

    fn call(
        caller: usize,
        times: (u64, u64),
        operation: Operation,
        outcome: Option<Outcome>,
    ) -> Call {
        Call {
            name: "n".to_owned(),
            caller,
            operation,
            span: span(times.0, times.1),
            outcome: outcome.map(|outcome| (outcome, 1)),
        }
    }

    fn is_right(calls: &[Call]) -> bool {
        let history = History {
            calls: calls.to_vec(),
            ..History::default()
        };
        violations(&history).is_empty()
    }

    #[test]
    fn answers_that_an_order_explains_are_right() {
        assert!(is_right(&[
            call(0, (0, 1), Operation::PutUser(7), Some(Outcome::Done)),
            // A read at the same time sees either.
            call(1, (2, 9), Operation::ReadUser, Some(Outcome::User(None))),
            call(0, (3, 4), Operation::DeleteUser, Some(Outcome::Done)),
            call(0, (5, 6), Operation::CreateToken(1), Some(Outcome::Missing)),
        ]));
    }

    #[test]
    fn a_stale_answer_is_found() {
        let mut calls = vec![
            call(0, (0, 1), Operation::PutUser(7), Some(Outcome::Done)),
            call(1, (2, 3), Operation::ReadUser, Some(Outcome::User(None))),
        ];
        assert!(!is_right(&calls));
        calls[1] = call(1, (2, 3), Operation::ReadUser, Some(Outcome::User(Some(7))));
        assert!(is_right(&calls));
    }

    #[test]
    fn a_change_that_was_confirmed_and_lost_is_found() {
        let tokens = |labels: &[u32]| Some(Outcome::Tokens(labels.iter().copied().collect()));
        let mut calls = vec![
            call(0, (0, 1), Operation::PutUser(1), Some(Outcome::Done)),
            call(0, (2, 3), Operation::CreateToken(5), Some(Outcome::Done)),
            call(0, (4, 5), Operation::RevokeToken(5), Some(Outcome::Done)),
            call(1, (6, 7), Operation::ReadTokens, tokens(&[])),
        ];
        assert!(is_right(&calls));
        calls[3] = call(1, (6, 7), Operation::ReadTokens, tokens(&[5]));
        assert!(!is_right(&calls));
        let quota = [
            call(0, (0, 1), Operation::PutQuota(3), Some(Outcome::Done)),
            call(1, (5, 6), Operation::ReadQuota, Some(Outcome::Quota(0))),
        ];
        assert!(!is_right(&quota));
    }

    #[test]
    fn a_call_without_an_answer_takes_effect_late_or_never() {
        let put = call(0, (0, 1), Operation::PutUser(7), None);
        let read = |times, user| call(1, times, Operation::ReadUser, Some(Outcome::User(user)));
        // The same caller goes on with other calls.
        let other = call(0, (2, 3), Operation::ReadQuota, Some(Outcome::Quota(0)));
        let never = [put.clone(), other.clone(), read((4, 5), None)];
        let late = [
            put.clone(),
            other.clone(),
            read((4, 5), None),
            read((6, 7), Some(7)),
        ];
        let undone = [put, other, read((4, 5), Some(7)), read((6, 7), None)];
        assert!(is_right(&never) && is_right(&late) && !is_right(&undone));
    }
}
