//! The other managers and etcd's members, counted for metrics.
//!
//! A task asks etcd now and then, whoever leads, while something reads the metrics. A request for metrics waits for nobody.
//! Invariants: counts that etcd has not confirmed for a while are not shown. The task shares no connection, and no choice
//! of a member, with the manager's other calls.

use std::time::{Duration, Instant};

use causeway_serving::exposition::{ConstGauge, Registry};
use tokio::sync::watch;

use crate::etcd::{Access, Etcd, Member, Registration, Standing, managers, members};

/// Pause between two questions.
const EVERY: Duration = Duration::from_secs(10);
/// Age from which counts are not shown.
const OLD: Duration = Duration::from_secs(60);
/// Time after a request for metrics in which another one is expected.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// What a manager knows of the others. Clones share it.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) standing: watch::Receiver<Standing>,
    counted: watch::Receiver<Option<(Instant, Counted)>>,
    /// When the metrics were read last.
    read: watch::Sender<Option<Instant>>,
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
    /// Starts the task, which asks once something reads the metrics. It ends when nobody has a clone of this any more.
    pub(super) fn watch(access: Access, standing: watch::Receiver<Standing>) -> Surroundings {
        let etcd = Etcd::new(access);
        let (count, counted) = watch::channel(None);
        let (read, mut reading) = watch::channel(None::<Instant>);
        let stands = standing.clone();
        tokio::spawn(async move {
            let counting = async {
                while reading
                    .wait_for(|at| is_read(*at, Instant::now()))
                    .await
                    .is_ok()
                {
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
        Surroundings {
            standing,
            counted,
            read,
        }
    }

    /// Adds the counts to the metrics. The first request for metrics, after a pause, finds none.
    pub(super) fn tell(&self, registry: &mut Registry) {
        self.read.send_replace(Some(Instant::now()));
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

/// Whether something reads the metrics, which were read last at this time.
fn is_read(last: Option<Instant>, now: Instant) -> bool {
    last.is_some_and(|last| now.saturating_duration_since(last) < READ_AGAIN)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::time::Span;

    #[test]
    fn metrics_are_read_until_a_minute_after_the_last_time() {
        let begin = Instant::now();
        assert!(!is_read(None, begin));
        assert!(is_read(Some(begin), begin + READ_AGAIN / 2));
        assert!(!is_read(Some(begin), begin + READ_AGAIN));
    }

    #[tokio::test]
    async fn etcd_is_asked_once_something_reads_the_metrics() {
        let member = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let access = Access {
            endpoints: vec![format!("http://{}", member.local_addr().unwrap())],
            prefix: "/test/".to_owned(),
            cluster: None,
            tls: None,
            login: None,
            ttl: Span::seconds(2),
        };
        let (_standing, stands) = watch::channel(Standing::default());
        let surroundings = Surroundings::watch(access, stands);
        // Enough turns for the task to connect, if it did.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let asked = tokio::time::timeout(Duration::ZERO, member.accept()).await;
        assert!(asked.is_err(), "asked before the metrics are read");
        surroundings.tell(&mut Registry::default());
        member.accept().await.unwrap();
    }

    #[test]
    fn standbys_are_the_managers_that_could_lead_and_do_not() {
        let manager = |address: &str, problem: &str| Registration {
            address: address.to_owned(),
            version: "1".to_owned(),
            schema: 1,
            since_unix_ms: 0,
            problem: problem.to_owned(),
            dashboard: String::new(),
            turned_away: 0,
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
