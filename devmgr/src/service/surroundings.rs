//! The other managers and etcd's members, counted for metrics.
//!
//! A task asks etcd now and then, whoever leads. A request for metrics asks nobody. Invariant: counts that etcd has not
//! confirmed for a while are not shown.

use std::time::{Duration, Instant};

use causeway_serving::exposition::{ConstGauge, Registry};
use tokio::sync::watch;

use crate::etcd::{Etcd, Member, Registration, Standing, managers, members};

/// Pause between two questions.
const EVERY: Duration = Duration::from_secs(10);
/// Age from which counts are not shown.
const OLD: Duration = Duration::from_secs(60);

/// What a manager knows of the others. Clones share it.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) standing: watch::Receiver<Standing>,
    counted: watch::Receiver<Option<(Instant, Counted)>>,
}

/// The managers and members, as etcd answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    /// Managers that could lead, and do not. `None`: etcd has not answered.
    standbys: Option<usize>,
    members: usize,
    healthy: usize,
}

impl Counted {
    fn of(managers: Option<&[Registration]>, leader: Option<&str>, members: &[Member]) -> Counted {
        let is_standby = |of: &&Registration| {
            of.problem.is_empty() && leader.is_none_or(|leader| leader != of.address)
        };
        Counted {
            standbys: managers.map(|managers| managers.iter().filter(is_standby).count()),
            members: members.len(),
            healthy: members.iter().filter(|of| of.problem.is_empty()).count(),
        }
    }
}

impl Surroundings {
    /// Begins to ask etcd. The task ends when nobody has a clone of this any more.
    pub(super) fn watch(etcd: Etcd, standing: watch::Receiver<Standing>) -> Surroundings {
        let (count, counted) = watch::channel(None);
        let stands = standing.clone();
        tokio::spawn(async move {
            let counting = async {
                loop {
                    let found = managers(&etcd).await.ok();
                    let members = members(&etcd).await;
                    let leader = stands.borrow().leader.clone();
                    let counted = Counted::of(found.as_deref(), leader.as_deref(), &members);
                    count.send_replace(Some((Instant::now(), counted)));
                    tokio::time::sleep(EVERY).await;
                }
            };
            tokio::select! {
                () = counting => {}
                () = count.closed() => {}
            }
        });
        Surroundings { standing, counted }
    }

    /// Adds the counts to the metrics.
    pub(super) fn tell(&self, registry: &mut Registry) {
        let mut add = |name, help, value: u64| {
            registry.register(name, help, ConstGauge::new(value));
        };
        let is_reached = self.standing.borrow().reaches_etcd;
        let help = "Whether the latest look at the leader's key in etcd has succeeded";
        add("etcd_reachable", help, u64::from(is_reached));
        let counted = *self.counted.borrow();
        let Some((_, counted)) = counted.filter(|(at, _)| at.elapsed() < OLD) else {
            return;
        };
        let help = "Members of etcd that the settings name";
        add("etcd_members", help, counted.members as u64);
        let help = "Members of etcd that answer and report no problem";
        add("etcd_members_healthy", help, counted.healthy as u64);
        if let Some(standbys) = counted.standbys {
            let help = "Managers that stand by and can lead";
            add("standbys", help, standbys as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standbys_are_the_managers_that_could_lead_and_do_not() {
        let manager = |address: &str, problem: &str| Registration {
            address: address.to_owned(),
            version: "1".to_owned(),
            schema: 1,
            since_unix_ms: 0,
            problem: problem.to_owned(),
            dashboard: String::new(),
        };
        let managers = [
            manager("m1:7078", ""),
            manager("m2:7078", ""),
            manager("m3:7078", "no space"),
        ];
        let member = |problem: &str| Member {
            problem: problem.to_owned(),
            ..Member::default()
        };
        let members = [member(""), member("late"), member("")];
        let counted = Counted::of(Some(&managers), Some("m1:7078"), &members);
        let expected = Counted {
            standbys: Some(1),
            members: 3,
            healthy: 2,
        };
        assert_eq!(counted, expected);
        let unknown = Counted::of(None, None, &members);
        assert_eq!(unknown.standbys, None);
    }
}
