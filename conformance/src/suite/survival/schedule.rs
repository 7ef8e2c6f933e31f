//! When faults happen, and which: a pure function of a seed.

use std::time::Duration;

use causeway_cutter::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All connections of sessions are reset.
    ResetAll,
    /// One connection of a session is reset.
    ResetOne,
    /// Nothing passes in either direction.
    Silence,
    /// Nothing passes in one direction.
    OneWay,
    /// The connections from other nodes are reset.
    LinkReset,
    /// The connections from other nodes are silent.
    LinkSilence,
    /// The node's name resolves to another address, and the old address refuses connections.
    Address,
    /// All connections are reset, and new ones are refused for a while.
    Tunnel,
    /// The program is stopped.
    ClientStopped,
    /// A worker is stopped.
    WorkerStopped,
    /// A worker is killed, and the program executes its commands again.
    WorkerKilled,
    /// The daemon is killed, and started again. The program has its checkpoints.
    DaemonKilled,
    /// The device manager is stopped.
    ManagerStopped,
    /// The daemon is told to end, and started again.
    Restart,
    /// The node is drained, and its lease moves to another node.
    Drain,
}

/// Names, relative rates, and durations in milliseconds of all kinds.
pub(super) const KINDS: [(Kind, &str, u64, (u64, u64)); 15] = [
    (Kind::ResetAll, "all reset", 5, (0, 0)),
    (Kind::ResetOne, "one reset", 5, (0, 0)),
    (Kind::Silence, "silence", 2, (5_000, 20_000)),
    (Kind::OneWay, "one way", 1, (5_000, 20_000)),
    (Kind::LinkReset, "link reset", 2, (0, 0)),
    (Kind::LinkSilence, "link silent", 1, (5_000, 20_000)),
    (Kind::Address, "other address", 1, (0, 0)),
    (Kind::Tunnel, "tunnel", 2, (1_000, 5_000)),
    (Kind::ClientStopped, "client stopped", 2, (1_000, 10_000)),
    (Kind::WorkerStopped, "worker stopped", 1, (1_000, 10_000)),
    (Kind::WorkerKilled, "worker killed", 6, (0, 0)),
    (Kind::DaemonKilled, "daemon killed", 3, (0, 0)),
    (Kind::ManagerStopped, "manager stopped", 1, (1_000, 10_000)),
    (Kind::Restart, "daemon restarted", 3, (0, 0)),
    (Kind::Drain, "drain with a move", 3, (0, 0)),
];

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The time since the start of all faults.
    pub(super) at: Duration,
    pub(super) kind: Kind,
    /// How long the fault lasts; zero for resets.
    pub(super) lasts: Duration,
    /// Chooses among nodes, connections, directions and workers.
    pub(super) choice: u64,
}

/// The faults of a seed, in order of time. Each kind is a Poisson process of its own rate.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    random: Random,
    now: f64,
    mtbf: f64,
    /// Durations are divided by this.
    faster: u64,
    kinds: Vec<(Kind, u64, (u64, u64))>,
}

impl Schedule {
    /// Makes the schedule with the kinds that `applies` accepts. `mtbf` is the mean time between faults of all kinds.
    pub(super) fn new(
        seed: u64,
        mtbf: Duration,
        faster: u64,
        applies: impl Fn(Kind) -> bool,
    ) -> Self {
        let kinds = KINDS.into_iter().filter(|(kind, ..)| applies(*kind));
        Self {
            random: Random::of(seed, 0),
            now: 0.0,
            mtbf: mtbf.as_secs_f64(),
            faster,
            kinds: kinds.map(|(kind, _, rate, of)| (kind, rate, of)).collect(),
        }
    }
}

impl Iterator for Schedule {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        // The sum of Poisson processes is one, in which the rates are the probabilities of the kinds.
        self.now += -self.mtbf * (1.0 - self.random.share()).ln();
        let sum = self.kinds.iter().map(|(_, rate, _)| rate).sum();
        let mut drawn = self.random.below(sum);
        let (kind, _, (least, most)) = *self.kinds.iter().find(|(_, rate, _)| {
            let found = drawn < *rate;
            drawn = drawn.wrapping_sub(*rate);
            found
        })?;
        let lasts = least + self.random.below(most - least + 1);
        Some(Fault {
            at: Duration::from_secs_f64(self.now),
            kind,
            lasts: Duration::from_millis(lasts / self.faster),
            choice: self.random.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTBF: Duration = Duration::from_secs(2);

    #[test]
    fn faults_depend_on_the_seed_only() {
        let of = |seed| -> Vec<Fault> { Schedule::new(seed, MTBF, 1, |_| true).take(50).collect() };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }

    #[test]
    fn rates_and_durations_are_kept() {
        let count = 20_000;
        let faults: Vec<Fault> = Schedule::new(1, MTBF, 10, |_| true).take(count).collect();
        assert!(faults.is_sorted_by_key(|fault| fault.at));
        let mean = faults[count - 1].at.as_secs_f64() / count as f64;
        assert!((1.9..2.1).contains(&mean), "{mean}");
        let sum: u64 = KINDS.iter().map(|(_, _, rate, _)| rate).sum();
        for (kind, name, rate, (least, most)) in KINDS {
            let of_kind: Vec<&Fault> = faults.iter().filter(|fault| fault.kind == kind).collect();
            let expected = count as f64 * rate as f64 / sum as f64;
            let share = of_kind.len() as f64 / expected;
            assert!((0.85..1.15).contains(&share), "{name}: {share}");
            let fits = |fault: &&&Fault| {
                let lasts = fault.lasts.as_millis() as u64;
                (least / 10..=most / 10).contains(&lasts)
            };
            assert_eq!(of_kind.iter().filter(fits).count(), of_kind.len(), "{name}");
        }
    }

    #[test]
    fn kinds_that_do_not_apply_never_happen() {
        let only = |kind| matches!(kind, Kind::Tunnel | Kind::ResetOne);
        let faults = Schedule::new(1, MTBF, 1, only).take(200);
        assert!(faults.map(|fault| fault.kind).all(only));
    }
}
