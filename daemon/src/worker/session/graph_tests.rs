//! Compares the graph with a naive model: what runs, what is cancelled, in which order. Also checks that
//! no command that may run stays in the graph.

use std::collections::VecDeque;

use causeway_proto::id::{EventId, QueueId};
use proptest::prelude::*;

use super::{FreedCommand, Graph, Order, Role};

const QUEUES: [(QueueId, Order); 3] = [
    (QueueId(1), Order::InOrder),
    (QueueId(2), Order::OutOfOrder),
    (QueueId(3), Order::InOrder),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Held,
    Given,
    Passed,
    Failed,
}

#[derive(Debug)]
struct Entry {
    event: EventId,
    queue: Option<usize>,
    waits: Vec<usize>,
    role: Role,
    fate: Fate,
}

/// Recomputes everything from the list of all events after every change.
#[derive(Default)]
struct Model(Vec<Entry>);

impl Model {
    fn decided(&self, i: usize) -> bool {
        matches!(self.0[i].fate, Fate::Passed | Fate::Failed)
    }

    /// The commands that `i` comes after by its queue's rule.
    fn predecessors(&self, i: usize) -> Vec<usize> {
        let Some(queue) = self.0[i].queue else {
            return Vec::new();
        };
        let earlier: Vec<usize> = (0..i).filter(|e| self.0[*e].queue == Some(queue)).collect();
        if QUEUES[queue].1 == Order::InOrder || self.0[i].role.after_all {
            return earlier;
        }
        let barrier = earlier.iter().rposition(|e| self.0[*e].role.before_all);
        barrier.map_or(Vec::new(), |at| vec![earlier[at]])
    }

    fn settled(&self, i: usize) -> bool {
        self.decided(i) && self.predecessors(i).into_iter().all(|p| self.settled(p))
    }

    /// Applies cancellations, then gives out the commands that may run; both in the order of submission.
    fn advance(&mut self) -> (Vec<EventId>, Vec<EventId>) {
        let (mut run, mut cancelled) = (Vec::new(), Vec::new());
        for i in 0..self.0.len() {
            let doomed = self.0[i]
                .waits
                .iter()
                .any(|w| self.0[*w].fate == Fate::Failed);
            if self.0[i].fate == Fate::Held && doomed {
                self.0[i].fate = Fate::Failed;
                cancelled.push(self.0[i].event);
            }
        }
        for i in 0..self.0.len() {
            let waits = self.0[i].waits.iter().all(|w| self.decided(*w));
            let order = self.predecessors(i).into_iter().all(|p| self.settled(p));
            if self.0[i].fate == Fate::Held && waits && order {
                self.0[i].fate = Fate::Given;
                run.push(self.0[i].event);
            }
        }
        (run, cancelled)
    }
}

#[derive(Clone, Debug)]
enum Action {
    UserEvent,
    Submit {
        queue: usize,
        waits: Vec<usize>,
        kind: u8,
    },
    End {
        which: usize,
        well: bool,
    },
    GiveUp {
        which: usize,
    },
    Release {
        which: usize,
    },
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let any = any::<prop::sample::Index>().prop_map(|i| i.index(1 << 16));
    let waits = proptest::collection::vec(any.clone(), 0..3);
    let action = prop_oneof![
        1 => Just(Action::UserEvent),
        4 => (0..QUEUES.len(), waits, 0u8..8)
            .prop_map(|(queue, waits, kind)| Action::Submit { queue, waits, kind }),
        4 => (any.clone(), proptest::bool::weighted(0.8))
            .prop_map(|(which, well)| Action::End { which, well }),
        1 => any.clone().prop_map(|which| Action::GiveUp { which }),
        1 => any.prop_map(|which| Action::Release { which }),
    ];
    proptest::collection::vec(action, 1..80)
}

struct Pair {
    graph: Graph<(), usize>,
    model: Model,
    released: Vec<usize>,
}

impl Pair {
    fn new() -> Pair {
        let mut graph = Graph::default();
        for (queue, order) in QUEUES {
            graph.add_queue(queue, order);
        }
        Pair {
            graph,
            model: Model::default(),
            released: Vec::new(),
        }
    }

    fn next(&mut self, entry: Entry) -> EventId {
        let event = entry.event;
        self.model.0.push(entry);
        event
    }

    fn apply(&mut self, action: &Action) -> VecDeque<FreedCommand<usize>> {
        let mut freed = VecDeque::new();
        let number = self.model.0.len();
        let event = EventId(number as u64 + 100);
        match action {
            Action::UserEvent => {
                self.graph.add_user_event(event, ()).unwrap();
                self.next(Entry {
                    event,
                    queue: None,
                    waits: Vec::new(),
                    role: Role::ORDINARY,
                    fate: Fate::Given,
                });
            }
            Action::Submit { queue, waits, kind } => {
                let mut waits: Vec<usize> = waits.iter().map(|w| w % number.max(1)).collect();
                // Waits on events that failed earlier are the session's concern, not the graph's.
                waits.retain(|w| {
                    number > 0
                        && !self.released.contains(w)
                        && self.model.0[*w].fate != Fate::Failed
                });
                let role = Role {
                    after_all: waits.is_empty() && *kind < 2,
                    before_all: kind % 2 == 0 && *kind < 4,
                };
                let names: Vec<EventId> = waits.iter().map(|w| self.model.0[*w].event).collect();
                let id = QUEUES[*queue].0;
                let run = self
                    .graph
                    .submit(event, (), id, &names, role, number)
                    .unwrap();
                freed.extend(run.map(|c| FreedCommand::Run(event, c)));
                self.next(Entry {
                    event,
                    queue: Some(*queue),
                    waits,
                    role,
                    fate: Fate::Held,
                });
            }
            Action::End { which, well } => self.end(*which, *well, Fate::Given, &mut freed),
            Action::GiveUp { which } => self.end(*which, false, Fate::Held, &mut freed),
            Action::Release { which } => {
                if number > 0 {
                    let which = which % number;
                    self.graph.release(self.model.0[which].event);
                    self.released.push(which);
                }
            }
        }
        freed
    }

    fn end(
        &mut self,
        which: usize,
        well: bool,
        among: Fate,
        freed: &mut VecDeque<FreedCommand<usize>>,
    ) {
        let open: Vec<usize> = (0..self.model.0.len())
            .filter(|i| self.model.0[*i].fate == among)
            .collect();
        if open.is_empty() {
            return;
        }
        let which = open[which % open.len()];
        let event = self.model.0[which].event;
        if well {
            self.graph.passed(event, freed);
            self.model.0[which].fate = Fate::Passed;
        } else {
            let held = self.graph.failed(event, freed);
            assert_eq!(held.is_some(), among == Fate::Held);
            self.model.0[which].fate = Fate::Failed;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn it_runs_and_cancels_what_the_model_does(actions in actions()) {
        let mut pair = Pair::new();
        for action in &actions {
            let (mut run, mut cancelled) = (Vec::new(), Vec::new());
            for command in pair.apply(action) {
                match command {
                    FreedCommand::Run(event, command) => {
                        prop_assert_eq!(event, pair.model.0[command].event);
                        run.push(event);
                    }
                    FreedCommand::Cancel(event, _) => cancelled.push(event),
                }
            }
            run.sort();
            cancelled.sort();
            prop_assert_eq!((run, cancelled), pair.model.advance(), "after {:?}", action);
            let held = pair.model.0.iter().filter(|e| e.fate == Fate::Held).count();
            prop_assert_eq!(pair.graph.held(), held);
        }
    }

    #[test]
    fn all_ends_when_everything_given_out_ends(actions in actions()) {
        let mut pair = Pair::new();
        for action in &actions {
            pair.apply(action);
            pair.model.advance();
        }
        // Run to the end: the graph must become empty without further help.
        while let Some(i) = pair.model.0.iter().position(|e| e.fate == Fate::Given) {
            let event = pair.model.0[i].event;
            pair.graph.passed(event, &mut VecDeque::new());
            pair.model.0[i].fate = Fate::Passed;
            pair.model.advance();
        }
        prop_assert_eq!(pair.graph.held(), 0);
        for entry in &pair.model.0 {
            pair.graph.release(entry.event);
        }
        for (queue, _) in QUEUES {
            pair.graph.release_queue(queue);
        }
        prop_assert_eq!(pair.graph.events(), 0);
        prop_assert!(pair.graph.queues.is_empty());
    }
}

#[test]
fn a_hundred_thousand_held_commands_go_in_order_and_quickly() {
    const COUNT: u64 = 100_000;
    let mut graph: Graph<(), u64> = Graph::default();
    let queue = QueueId(1);
    graph.add_queue(queue, Order::InOrder);
    let user_event = EventId(1);
    graph.add_user_event(user_event, ()).unwrap();
    for i in 0..COUNT {
        let waits: &[EventId] = if i == 0 { &[user_event] } else { &[] };
        let run = graph.submit(EventId(10 + i), (), queue, waits, Role::ORDINARY, i);
        assert_eq!(run, Ok(None));
        graph.release(EventId(10 + i));
    }
    let mut freed = VecDeque::new();
    graph.passed(user_event, &mut freed);
    let mut expected = 0;
    while let Some(FreedCommand::Run(event, command)) = freed.pop_front() {
        assert_eq!(command, expected);
        expected += 1;
        graph.passed(event, &mut freed);
    }
    assert_eq!(expected, COUNT);
    assert_eq!(graph.events(), 1);
}

#[test]
fn a_failure_cancels_a_long_chain_without_recursion() {
    const COUNT: u64 = 100_000;
    let mut graph: Graph<(), u64> = Graph::default();
    let queue = QueueId(1);
    graph.add_queue(queue, Order::OutOfOrder);
    graph.add_user_event(EventId(0), ()).unwrap();
    for i in 1..=COUNT {
        let waits = [EventId(i - 1)];
        graph
            .submit(EventId(i), (), queue, &waits, Role::ORDINARY, i)
            .unwrap();
    }
    let mut freed = VecDeque::new();
    graph.failed(EventId(0), &mut freed);
    assert_eq!(freed.len() as u64, COUNT);
    assert!(freed.iter().all(|s| matches!(s, FreedCommand::Cancel(..))));
}

/// A regression that the property test above found. An order edge was resolved before the cancellation,
/// and the command was removed before it had notified its waiters.
#[test]
fn a_released_command_that_fails_still_tells_who_waits_for_it() {
    let mut graph: Graph<(), u64> = Graph::default();
    let (first, second) = (QueueId(1), QueueId(2));
    graph.add_queue(first, Order::InOrder);
    graph.add_queue(second, Order::OutOfOrder);
    graph.add_user_event(EventId(1), ()).unwrap();
    let mut submit = |event, queue, wait| {
        let held = graph.submit(
            EventId(event),
            (),
            queue,
            &[EventId(wait)],
            Role::ORDINARY,
            event,
        );
        assert_eq!(held, Ok(None));
    };
    submit(4, first, 1);
    submit(5, second, 1);
    submit(6, first, 5);
    submit(7, first, 6);
    graph.release(EventId(6));
    let mut freed = VecDeque::new();
    graph.failed(EventId(1), &mut freed);
    assert_eq!(freed.len(), 4);
    assert_eq!(graph.held(), 0);
}

#[test]
fn what_is_unknown_is_refused_and_changes_nothing() {
    let mut graph: Graph<(), u64> = Graph::default();
    let queue = QueueId(1);
    let submit = |graph: &mut Graph<(), u64>, event, waits: &[EventId]| {
        graph.submit(EventId(event), (), queue, waits, Role::ORDINARY, 0)
    };
    assert!(submit(&mut graph, 5, &[]).is_err());
    graph.add_queue(queue, Order::InOrder);
    assert!(submit(&mut graph, 5, &[EventId(9)]).is_err());
    assert_eq!(submit(&mut graph, 5, &[]), Ok(Some(0)));
    assert!(submit(&mut graph, 5, &[]).is_err());
    assert!(graph.add_user_event(EventId(5), ()).is_err());
}
