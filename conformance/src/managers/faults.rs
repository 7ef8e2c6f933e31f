//! The plan of a proof's faults: what fails, when, and for how long.
//!
//! Pure; [`super::harm`] carries the plan out. Invariants: equal seeds and lengths make equal plans. All faults end
//! before the plan's end. A client is cut off for less time than a place is kept.

use std::time::Duration;

use causeway_cutter::Random;

/// Number of managers, and of members of etcd.
pub(super) const COUNT: usize = 3;
/// The member whose data folder has a small file system of its own.
pub(super) const SMALL: usize = 2;

/// Shortest fault.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest fault of a long proof, and of a short one.
const LONGEST: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(8));
/// Longest cut from clients. A manager may notice a cut some seconds after its end.
const LONGEST_OF_CLIENTS: Duration = Duration::from_secs(12);
/// Time without a majority in a long proof, and in a short one.
const MINORITY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(8));
/// A proof of this length is a long one.
const LONG: Duration = Duration::from_secs(300);

/// A manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// The one that leads when the fault begins.
    Leader,
    /// The one with this number.
    Number(usize),
}

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Manager(Manager),
    /// A member of etcd.
    Member(usize),
}

/// Hosts that a manager or a member is cut off from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    Managers,
    Members,
    /// One of the hosts with nodes.
    Nodes(usize),
    /// One of the hosts with clients.
    Clients(usize),
}

/// The directions of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ways {
    Both,
    /// Nothing arrives at the others.
    Out,
    /// Nothing arrives from the others.
    In,
}

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A process is killed, and started again at the end.
    Kill(Target),
    /// A process is stopped, and goes on at the end.
    Stop(Target),
    /// Packets do not arrive.
    Cut(Target, Others, Ways),
    /// All members of etcd but this one are killed.
    Minority(usize),
    /// The disk of the member [`SMALL`] is full.
    FullDisk,
    /// A manager is started anew with a wall clock that is an hour ahead, or behind.
    Clock(Manager, bool),
}

/// A fault with its times, from the plan's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) begin: Duration,
    pub(super) end: Duration,
    pub(super) fault: Fault,
}

/// The kinds of faults. Each occurs once before any occurs again.
const KINDS: usize = 13;

/// Plans faults for this time.
pub(super) fn plan(seed: u64, length: Duration) -> Vec<Planned> {
    let mut random = Random::new(seed);
    let (mut planned, mut kinds) = (Vec::new(), Vec::new());
    let mut begin = Duration::ZERO;
    let is_long = length >= LONG;
    loop {
        if kinds.is_empty() {
            kinds = (0..KINDS).collect();
        }
        let kind = kinds.swap_remove(position(&mut random, kinds.len()));
        let fault = fault(kind, &mut random);
        begin += between(&mut random, Duration::from_millis(500), 3 * SHORTEST);
        let end = begin + lasts(fault, is_long, &mut random);
        if end > length {
            return planned;
        }
        planned.push(Planned { begin, end, fault });
        // Half of the faults end before the next one begins.
        if random.below(2) == 0 {
            begin = end;
        }
    }
}

/// A position in a list of this length.
fn position(random: &mut Random, length: usize) -> usize {
    random.below(length as u64) as usize
}

fn between(random: &mut Random, least: Duration, most: Duration) -> Duration {
    let range = most.saturating_sub(least).as_millis() as u64 + 1;
    least + Duration::from_millis(random.below(range))
}

fn lasts(fault: Fault, is_long: bool, random: &mut Random) -> Duration {
    let of = |(long, short)| if is_long { long } else { short };
    let most: Duration = of(LONGEST);
    match fault {
        Fault::Minority(_) => of(MINORITY),
        Fault::Cut(_, Others::Clients(_), _) => {
            between(random, SHORTEST, most.min(LONGEST_OF_CLIENTS))
        }
        _ => between(random, SHORTEST, most),
    }
}

fn fault(kind: usize, random: &mut Random) -> Fault {
    // The leader is the one whose faults matter most.
    let manager = match random.below(2) {
        0 => Manager::Leader,
        _ => Manager::Number(position(random, COUNT)),
    };
    let member = position(random, COUNT);
    let host = position(random, 2);
    let ways = [Ways::Both, Ways::Out, Ways::In][position(random, 3)];
    let cut = |others| Fault::Cut(Target::Manager(manager), others, ways);
    match kind {
        0 => Fault::Kill(Target::Manager(manager)),
        1 => Fault::Kill(Target::Manager(Manager::Leader)),
        2 => Fault::Kill(Target::Member(member)),
        3 => Fault::Stop(Target::Manager(manager)),
        4 => Fault::Stop(Target::Member(member)),
        5 => cut(Others::Managers),
        6 => cut(Others::Members),
        7 => cut(Others::Nodes(host)),
        8 => cut(Others::Clients(host)),
        9 => Fault::Cut(Target::Member(member), Others::Members, ways),
        10 => Fault::Minority(member),
        11 => Fault::FullDisk,
        _ => Fault::Clock(manager, random.below(2) == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_seed_determines_the_plan() {
        assert_eq!(plan(1, MINUTE), plan(1, MINUTE));
        assert_ne!(plan(1, MINUTE), plan(2, MINUTE));
    }

    #[test]
    fn all_faults_end_in_time() {
        for seed in 0..100 {
            for length in [MINUTE, 10 * MINUTE] {
                let planned = plan(seed, length);
                assert!(
                    planned
                        .iter()
                        .all(|of| of.begin < of.end && of.end <= length)
                );
                let clients = planned
                    .iter()
                    .filter(|of| matches!(of.fault, Fault::Cut(_, Others::Clients(_), _)));
                assert!(
                    clients
                        .map(|of| of.end - of.begin)
                        .all(|of| of <= LONGEST_OF_CLIENTS)
                );
            }
        }
    }

    #[test]
    fn each_kind_of_fault_occurs_in_a_long_proof() {
        let kind = |of: &Planned| std::mem::discriminant(&of.fault);
        let planned = plan(1, 10 * MINUTE);
        assert!(planned.len() > 2 * KINDS, "{}", planned.len());
        let mut kinds: Vec<_> = planned.iter().map(kind).collect();
        kinds.dedup();
        let different = kinds.iter().enumerate();
        let different = different.filter(|(at, kind)| !kinds[..*at].contains(kind));
        assert_eq!(different.count(), 6);
    }
}
