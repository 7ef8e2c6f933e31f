//! Several managers over a model of etcd: whatever is lost, late or stopped, no two of them may act at one
//! time, as long as etcd keeps its leases.

use proptest::prelude::*;

use super::*;

const TTL: Span = Span(2_000);

/// etcd, and what is under way to and from it.
#[derive(Default)]
struct Etcd {
    leases: Vec<(EtcdLease, Time)>,
    key: Option<(LeaderKey, EtcdLease)>,
    term: u64,
    revision: i64,
}

impl Etcd {
    fn pass(&mut self, now: Time) {
        self.leases.retain(|(_, until)| *until > now);
        let lives = |lease: EtcdLease| self.leases.iter().any(|(id, _)| *id == lease);
        if self.key.as_ref().is_some_and(|(_, lease)| !lives(*lease)) {
            self.key = None;
        }
    }

    fn answer(&mut self, now: Time, id: ManagerId, action: &Action, sent: Time) -> Option<Event> {
        Some(match *action {
            Action::GrantLease => {
                self.revision += 1;
                let lease = EtcdLease(self.revision);
                self.leases.push((lease, now.after(TTL)));
                let ttl = TTL;
                Event::Kept { lease, sent, ttl }
            }
            Action::KeepAlive(lease) => match self.leases.iter_mut().find(|of| of.0 == lease) {
                Some(of) => {
                    of.1 = now.after(TTL);
                    let ttl = TTL;
                    Event::Kept { lease, sent, ttl }
                }
                None => Event::LeaseGone(lease),
            },
            Action::Take(lease) => {
                let lives = self.leases.iter().any(|of| of.0 == lease);
                if self.key.is_some() || !lives {
                    return Some(Event::NotTaken(lease));
                }
                self.revision += 1;
                self.term += 1;
                let reign = Reign {
                    term: Term(self.term),
                    revision: Revision(self.revision),
                };
                let address = String::new();
                let key = LeaderKey {
                    manager: id,
                    address,
                    reign,
                    serves: false,
                };
                self.key = Some((key, lease));
                Event::Taken(lease, reign)
            }
            Action::Load(reign) => match self.reign() == Some(reign) {
                true => Event::Loaded(reign),
                false => Event::Deposed(reign),
            },
            Action::Resign(reign) => {
                if self.reign() == Some(reign) {
                    self.key = None;
                }
                return None;
            }
            Action::Serve(_) | Action::Close(..) => return None,
        })
    }

    fn reign(&self) -> Option<Reign> {
        self.key.as_ref().map(|(key, _)| key.reign)
    }
}

/// What happens next.
#[derive(Clone, Debug)]
enum Turn {
    /// Time passes, without any manager noticing.
    Pass(u64),
    Tick(usize),
    /// The oldest request of a manager arrives at etcd, is answered, and the answer arrives.
    Answer(usize),
    /// It arrives, and its answer is lost.
    Lose(usize),
    Fail(usize),
    Look(usize),
    StepDown(usize),
    /// Somebody deletes the key.
    Delete,
}

fn turn() -> impl Strategy<Value = Turn> {
    let who = 0..3_usize;
    prop_oneof![
        4 => (1..900_u64).prop_map(Turn::Pass),
        1 => (900..9_000_u64).prop_map(Turn::Pass),
        6 => who.clone().prop_map(Turn::Tick),
        8 => who.clone().prop_map(Turn::Answer),
        1 => who.clone().prop_map(Turn::Lose),
        1 => who.clone().prop_map(Turn::Fail),
        4 => who.clone().prop_map(Turn::Look),
        1 => who.prop_map(Turn::StepDown),
        1 => Just(Turn::Delete),
    ]
}

struct World {
    now: Time,
    etcd: Etcd,
    managers: Vec<(Leadership, Vec<(Action, Time)>)>,
    /// Reigns that have served, in their order.
    served: Vec<Reign>,
    /// Whether etcd has kept its leases so far.
    is_faithful: bool,
}

impl World {
    fn new() -> World {
        let now = Time(1_000);
        let manager = |n| (Leadership::new(ManagerId(n), now), Vec::new());
        World {
            now,
            etcd: Etcd::default(),
            managers: (0..3).map(manager).collect(),
            served: Vec::new(),
            is_faithful: true,
        }
    }

    fn tell(&mut self, at: usize, event: Event) {
        let actions = self.managers[at].0.handle(self.now, event);
        for action in actions {
            match action {
                Action::Serve(reign) => {
                    assert!(self.served.last().is_none_or(|last| last.term < reign.term));
                    self.served.push(reign);
                }
                Action::Close(..) => assert!(!self.managers[at].0.may_act(self.now)),
                request => self.managers[at].1.push((request, self.now)),
            }
        }
    }

    fn turn(&mut self, turn: &Turn) {
        match *turn {
            Turn::Pass(span) => self.now = self.now.after(Span(span)),
            Turn::Tick(at) => self.tell(at, Event::Tick),
            Turn::Answer(at) | Turn::Lose(at) if !self.managers[at].1.is_empty() => {
                let (action, sent) = self.managers[at].1.remove(0);
                let id = ManagerId(at as u64);
                let answer = self.etcd.answer(self.now, id, &action, sent);
                match (answer, turn) {
                    (Some(event), Turn::Answer(_)) => self.tell(at, event),
                    (Some(_), _) => self.fail(at, &action),
                    (None, _) => {}
                }
            }
            Turn::Fail(at) if !self.managers[at].1.is_empty() => {
                let (action, _) = self.managers[at].1.remove(0);
                self.fail(at, &action);
            }
            Turn::Look(at) => {
                let leader = self.etcd.key.as_ref().map(|(key, _)| key.clone());
                self.tell(at, Event::Seen(leader));
            }
            Turn::StepDown(at) => self.tell(at, Event::StepDown),
            Turn::Delete => {
                self.is_faithful &= self.etcd.key.is_none();
                self.etcd.key = None;
            }
            Turn::Answer(_) | Turn::Lose(_) | Turn::Fail(_) => {}
        }
        self.etcd.pass(self.now);
        self.check();
    }

    fn fail(&mut self, at: usize, action: &Action) {
        match *action {
            Action::GrantLease | Action::KeepAlive(_) => self.tell(at, Event::NotKept),
            Action::Take(lease) => self.tell(at, Event::NotTaken(lease)),
            Action::Load(reign) => {
                let damaged = false;
                self.tell(at, Event::NotLoaded { reign, damaged });
            }
            _ => {}
        }
    }

    fn check(&self) {
        let acting = self.managers.iter().filter(|of| of.0.may_act(self.now));
        let acting: Vec<_> = acting.map(|of| of.0.view()).collect();
        if self.is_faithful {
            assert!(acting.len() <= 1, "{acting:?}");
            for view in acting {
                let View::Leading(reign) = view else {
                    panic!("{view:?} acts");
                };
                assert_eq!(self.etcd.reign(), Some(reign));
            }
        }
    }

    /// Lets everything work for a while.
    fn settle(&mut self) {
        for _ in 0..200 {
            for at in 0..self.managers.len() {
                self.turn(&Turn::Tick(at));
                self.turn(&Turn::Look(at));
                while !self.managers[at].1.is_empty() {
                    self.turn(&Turn::Answer(at));
                }
            }
            self.turn(&Turn::Pass(100));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_two_managers_act_at_one_time(turns in proptest::collection::vec(turn(), 0..200)) {
        let mut world = World::new();
        for turn in &turns {
            world.turn(turn);
        }
    }

    #[test]
    fn somebody_leads_once_etcd_answers(turns in proptest::collection::vec(turn(), 0..100)) {
        let mut world = World::new();
        for turn in &turns {
            world.turn(turn);
        }
        world.settle();
        let leading = world.managers.iter().filter(|of| of.0.may_act(world.now));
        prop_assert_eq!(leading.count(), 1);
    }
}

/// A manager that leads, with its reign.
fn leader() -> (World, usize, Reign) {
    let mut world = World::new();
    world.settle();
    let at = world.managers.iter().position(|of| of.0.may_act(world.now));
    let at = at.unwrap();
    let reign = *world.served.last().unwrap();
    (world, at, reign)
}

#[test]
fn a_leader_that_was_stopped_does_nothing_when_it_goes_on() {
    let (mut world, at, reign) = leader();
    world.now = world.now.after(Span::seconds(60));
    let lease = world.managers[at].0.lease().unwrap();
    // Even an answer, which was on the way meanwhile, comes too late.
    let sent = world.now.after(Span(0));
    let late = Event::Kept {
        lease,
        sent: Time(sent.0 - 60_000),
        ttl: TTL,
    };
    let actions = world.managers[at].0.handle(world.now, late);
    assert_eq!(actions[0], Action::Close(reign, Why::TimeOver));
    assert!(!world.managers[at].0.may_act(world.now));
}

#[test]
fn the_time_runs_from_the_sending() {
    let (mut world, at, _) = leader();
    let machine = &mut world.managers[at].0;
    let lease = machine.lease().unwrap();
    let sent = world.now;
    let answered = sent.after(Span(1_000));
    machine.handle(
        answered,
        Event::Kept {
            lease,
            sent,
            ttl: TTL,
        },
    );
    assert_eq!(machine.acts_until(), Some(sent.after(TTL)));
    assert!(!machine.may_act(sent.after(TTL)));
}

#[test]
fn a_refused_transaction_ends_the_reign_and_leaves_the_key() {
    let (mut world, at, reign) = leader();
    let actions = world.managers[at]
        .0
        .handle(world.now, Event::Deposed(reign));
    assert!(actions.contains(&Action::Close(reign, Why::Deposed)));
    assert!(!actions.contains(&Action::Resign(reign)));
}

#[test]
fn a_manager_that_stops_gives_the_key_up_at_once_and_takes_it_no_more() {
    let (mut world, at, reign) = leader();
    let actions = world.managers[at].0.handle(world.now, Event::Stop);
    assert_eq!(
        actions,
        [Action::Close(reign, Why::Stopped), Action::Resign(reign)]
    );
    let later = world.now.after(Span::seconds(10));
    let actions = world.managers[at].0.handle(later, Event::Seen(None));
    assert!(actions.is_empty(), "{actions:?}");
}

#[test]
fn a_key_whose_taking_was_not_heard_of_is_given_up() {
    let mut world = World::new();
    world.turn(&Turn::Tick(0));
    world.turn(&Turn::Answer(0));
    world.turn(&Turn::Look(0));
    world.turn(&Turn::Lose(0));
    assert!(world.etcd.key.is_some());
    world.turn(&Turn::Look(0));
    world.settle();
    assert_eq!(world.etcd.term, 2);
    assert_eq!(world.served.len(), 1);
}

/// The answers of two calls may overtake each other.
#[test]
fn a_key_that_hangs_on_a_lease_that_was_given_up_is_not_led_by() {
    let mut world = World::new();
    world.turn(&Turn::Tick(0));
    world.turn(&Turn::Answer(0));
    world.turn(&Turn::Look(0));
    let first = world.managers[0].0.lease().unwrap();
    assert_eq!(world.managers[0].1[0].0, Action::Take(first));
    // etcd has taken the key for the first lease, and its answer is on the way until that lease is over.
    let (take, sent) = world.managers[0].1.remove(0);
    let late = world.etcd.answer(world.now, ManagerId(0), &take, sent);
    world.turn(&Turn::Pass(TTL.0));
    world.turn(&Turn::Tick(0));
    world.turn(&Turn::Answer(0));
    world.turn(&Turn::Look(0));
    let second = world.managers[0].0.lease().unwrap();
    assert_ne!(first, second);
    let mut requests = world.managers[0].1.iter().map(|(action, _)| action);
    assert_eq!(requests.next_back(), Some(&Action::Take(second)));
    let Some(Event::Taken(_, reign)) = late else {
        panic!("{late:?}");
    };
    let actions = (world.managers[0].0).handle(world.now, Event::Taken(first, reign));
    assert!(actions.contains(&Action::Resign(reign)), "{actions:?}");
    assert!(!actions.contains(&Action::Load(reign)));
}
