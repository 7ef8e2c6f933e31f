//! Finds the device manager that leads, among the configured or found ones, and logs why the others do not.
//!
//! A single manager is not asked in advance, unless it has named another leader. This module takes no part in what
//! follows on the connection. Invariants: each new reason of a manager is logged once, and after that at most every
//! [`REPEAT_AFTER`]. A standby learns of this node only while the node misses the leader ([`Outcome::misses_leader`]).

use std::borrow::Cow;
use std::time::{Duration, Instant};

use causeway_managers::probe;
use causeway_managers::{Answered, Disbelieved, Finder, Kept, NotLeader, Patience, Refusal};
use causeway_proto::manager::GetManagerRequest;
use causeway_proto::metadata;
use parking_lot::Mutex;
use tonic::transport::Channel;

use super::Managed;
use super::dial::{self, NotDialled};
use super::link::Parted;
use super::sought;
use crate::config::ManagerAddress;
use crate::supervisor::process::Processes;

/// Time limit for a manager's answer whether it leads.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// After this time, the same reason is logged again.
const REPEAT_AFTER: Duration = Duration::from_secs(10);

/// Range of the pause before the manager is looked for again, because none of its addresses has worked. Each search asks
/// everybody, so the pause is doubled until a manager welcomes the node.
const AGAIN_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// After this time in which only standbys have answered, the manager is looked for again: another one may lead by then.
const STANDBYS_ONLY: Duration = Duration::from_secs(3);
/// The longest pause while standbys answer. Standbys count a node that misses the leader for longer than a search and this
/// pause.
const BETWEEN_LEADERS: Duration = Duration::from_secs(10);
/// Range of the pause before a manager that was not found is looked for again.
const LOOKED_FOR_AFTER: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// A search for the manager that leads.
pub(super) struct Search<'a> {
    managed: &'a Managed,
    processes: &'a Processes,
    /// The configured addresses, or those that were found.
    addresses: Vec<ManagerAddress>,
    finder: Finder<String>,
    said: Mutex<Vec<Option<Said>>>,
    outcomes: Mutex<Vec<Option<Outcome>>>,
    kept: Kept<Channel>,
    /// The next pause before the manager is looked for again.
    pause: Duration,
}

/// How the last attempt at a manager went, as far as another leader could help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The manager was not reached.
    Unreachable,
    /// The manager stands by. The leader that it names is not among the addresses, or has another address there: nodes
    /// may know managers by their IP addresses, which name each other by their hosts.
    LeaderElsewhere,
    /// The manager stands by, and names no leader or one that is among the addresses.
    StandsBy,
    /// The manager answers as a leader, though it may refuse this node. Another leader would refuse the node likewise.
    Leading,
    /// The manager may lead or not.
    Other,
}

impl Outcome {
    fn of(parted: &Parted, addresses: &[ManagerAddress]) -> Outcome {
        match parted {
            Parted::NotLeading(status) if names_another(status, addresses) => {
                Outcome::LeaderElsewhere
            }
            Parted::NotLeading(_) => Outcome::StandsBy,
            Parted::Silent | Parted::NotDialled(NotDialled::Io(_) | NotDialled::TooSlow) => {
                Outcome::Unreachable
            }
            Parted::Disbelieved(_) => Outcome::Leading,
            _ => Outcome::Other,
        }
    }

    /// Whether the leader is one that the node does not reach: none answers as the leader, and either a manager cannot be
    /// reached, or all stand by and one of them names a leader that is elsewhere.
    fn misses_leader(all: &[Option<Outcome>]) -> bool {
        use Outcome::{LeaderElsewhere, Leading, StandsBy, Unreachable};
        let stands_by = |of: &Option<Outcome>| matches!(of, Some(LeaderElsewhere | StandsBy));
        let is_elsewhere = || all.contains(&Some(LeaderElsewhere)) && all.iter().all(stands_by);
        !all.contains(&Some(Leading)) && (all.contains(&Some(Unreachable)) || is_elsewhere())
    }
}

/// The reason of a manager that was logged last.
struct Said {
    reason: String,
    at: Instant,
}

impl<'a> Search<'a> {
    /// Begins a search among these addresses, after the loss of the manager that led, if one did. A manager that is found
    /// by its name may have no address yet.
    pub(super) fn new(
        managed: &'a Managed,
        processes: &'a Processes,
        addresses: Vec<ManagerAddress>,
        lost: Option<usize>,
    ) -> Search<'a> {
        let count = addresses.len();
        // A manager that was found may be elsewhere by now, so the search ends if nobody leads.
        let patience = match managed.0.settings.sought.is_some() {
            true => Patience::Brief(STANDBYS_ONLY),
            false => Patience::Forever,
        };
        Search {
            managed,
            processes,
            addresses,
            finder: Finder::new(count, None, patience).after_loss_of(lost),
            said: Mutex::new((0..count).map(|_| None).collect()),
            outcomes: Mutex::new(vec![None; count]),
            kept: Kept::new(count),
            pause: AGAIN_AFTER.0,
        }
    }

    /// The addresses among which the search is.
    pub(super) fn addresses(&self) -> &[ManagerAddress] {
        &self.addresses
    }

    /// Waits until a manager leads. Returns its number among the addresses, and a connection.
    pub(super) async fn find(&mut self) -> (usize, Channel) {
        loop {
            if self.addresses.is_empty() {
                self.look().await;
            }
            let (managed, addresses) = (self.managed, &self.addresses);
            let (said, outcomes, kept) = (&self.said, &self.outcomes, &self.kept);
            let ask = |number: usize| async move {
                let reached = reach(managed, addresses, number, (outcomes, kept)).await;
                outcomes.lock()[number] = Some(match &reached {
                    Ok(_) => Outcome::Leading,
                    Err(parted) => Outcome::of(parted, addresses),
                });
                reached.map_err(|parted| {
                    let said = &mut said.lock()[number];
                    tell(managed, &addresses[number], said, &parted);
                    not_leader(addresses, parted)
                })
            };
            if let Some(leader) = self.finder.find(ask).await {
                // A standby need not serve a node that has a leader.
                self.kept.clear();
                return leader;
            }
            if managed.0.settings.sought.is_some() {
                // A manager that refuses this node is found again at once.
                tokio::time::sleep(self.next_pause()).await;
                self.look().await;
            }
        }
    }

    /// Waits until the manager is found, and begins anew among its addresses. Reasons that were logged stay known.
    async fn look(&mut self) {
        let addresses = look(self.managed, self.processes).await;
        let is_same = addresses == self.addresses;
        let begun = Search::new(self.managed, self.processes, addresses, None);
        let earlier = std::mem::replace(self, begun);
        self.pause = earlier.pause;
        if is_same {
            self.said = earlier.said;
            self.outcomes = earlier.outcomes;
        }
    }

    /// The pause before the manager is looked for again. Between two leaders it is shorter.
    fn next_pause(&mut self) -> Duration {
        let most = match self.finder.search().is_answered() {
            true => BETWEEN_LEADERS,
            false => AGAIN_AFTER.1,
        };
        let pause = self.pause.min(most);
        self.pause = (pause * 2).min(most);
        spread(pause)
    }

    /// Notes that the node could not join the manager, although it was found.
    pub(super) fn refused(&mut self, number: usize, parted: Parted) {
        tell(
            self.managed,
            &self.addresses[number],
            &mut self.said.lock()[number],
            &parted,
        );
        if let Parted::NotLeading(_) = parted {
            self.outcomes.lock()[number] = Some(Outcome::of(&parted, &self.addresses));
        }
        let not = not_leader(&self.addresses, parted);
        self.finder.refused(number, not);
    }
}

/// All nodes lose a manager in the same moment. So they look for it at different ones.
fn spread(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..1.0))
}

/// Waits until the manager that the settings name is found. Each new reason why not is logged once.
async fn look(managed: &Managed, processes: &Processes) -> Vec<ManagerAddress> {
    let Some(wanted) = &managed.0.settings.sought else {
        // Settings without a name have addresses.
        return std::future::pending().await;
    };
    let mut known = String::new();
    let mut pause = LOOKED_FOR_AFTER.0;
    loop {
        match sought::find(managed, processes, wanted).await {
            Ok(addresses) => return addresses,
            Err(error) => {
                let reason = error.to_string();
                if reason != known {
                    tracing::warn!(name = wanted.name, %reason, "cannot find the device manager; retrying");
                    known = reason;
                }
            }
        }
        tokio::time::sleep(spread(pause)).await;
        pause = (pause * 2).min(LOOKED_FOR_AFTER.1);
    }
}

/// Connects to a manager, or takes the connection that was kept since it stood by. Asks whether it leads, unless it is the
/// only one and has not named another leader.
async fn reach(
    managed: &Managed,
    addresses: &[ManagerAddress],
    number: usize,
    (outcomes, kept): (&Mutex<Vec<Option<Outcome>>>, &Kept<Channel>),
) -> Result<Channel, Parted> {
    let tls = managed.0.settings.tls.as_ref();
    let dial = || async { Ok::<_, Parted>(dial::dial(&addresses[number], tls).await?) };
    if addresses.len() == 1 && outcomes.lock()[number] != Some(Outcome::LeaderElsewhere) {
        return dial().await;
    }
    let ask = |channel: Channel| async move {
        let leads = leads(managed, &channel, outcomes).await;
        (channel, leads)
    };
    let answered = |parted: &Parted| match parted {
        Parted::NotLeading(_) => Answered::StandsBy,
        Parted::Refused(_) => Answered::Broke,
        _ => Answered::Otherwise,
    };
    kept.ask(number, dial, ask, answered).await
}

/// Asks a manager whether it leads. The question names this node if it misses the leader.
async fn leads(
    managed: &Managed,
    channel: &Channel,
    outcomes: &Mutex<Vec<Option<Outcome>>>,
) -> Result<(), Parted> {
    let settings = &managed.0.settings;
    let mut request = tonic::Request::new(GetManagerRequest {});
    dial::authorize(&mut request, settings.token.as_ref());
    managed.highest().tell(request.metadata_mut());
    // A standby counts the nodes that do not reach the leader.
    let misses_leader = Outcome::misses_leader(&outcomes.lock());
    if misses_leader && let Ok(node) = metadata::hexadecimal(managed.0.node).parse() {
        request.metadata_mut().insert(metadata::NODE, node);
    }
    let hear = |metadata: &_, stands_by| managed.hear(metadata, stands_by);
    let leads = probe::leads(channel.clone(), request, hear);
    let leads = tokio::time::timeout(PROBE_WITHIN, leads).await;
    Ok(leads.map_err(|_| Parted::Silent)??)
}

/// What the search makes of a manager that the node could not join.
fn not_leader(addresses: &[ManagerAddress], parted: Parted) -> NotLeader<String> {
    let refusal = match &parted {
        Parted::NotLeading(status) => {
            let named = causeway_managers::highest::leader_of(status.metadata());
            Refusal::NotLeading(named.and_then(|named| number_of(addresses, named)))
        }
        Parted::Disbelieved(Disbelieved::LowerTerm { .. }) => Refusal::NotLeading(None),
        _ => Refusal::Failed,
    };
    let reason = parted.to_string();
    NotLeader { refusal, reason }
}

/// Whether a standby names a leader that is not among the addresses.
fn names_another(status: &tonic::Status, addresses: &[ManagerAddress]) -> bool {
    let named = causeway_managers::highest::leader_of(status.metadata());
    named.is_some_and(|named| number_of(addresses, named).is_none())
}

/// The number of the manager at this address. A manager that is neither configured nor found gets no token.
fn number_of(addresses: &[ManagerAddress], named: &str) -> Option<usize> {
    let named = ManagerAddress::parse(named)?;
    addresses.iter().position(|address| address.is_at(&named))
}

fn tell(managed: &Managed, manager: &ManagerAddress, said: &mut Option<Said>, parted: &Parted) {
    let reason = parted.to_string();
    let is_known = said
        .as_ref()
        .is_some_and(|said| said.reason == reason && said.at.elapsed() < REPEAT_AFTER);
    if is_known {
        return;
    }
    if let Parted::NotLeading(_) = parted {
        tracing::info!(%manager, %reason, "this device manager does not lead; asking all of them");
    } else {
        let cure = match parted {
            Parted::Disbelieved(Disbelieved::LowerTerm { .. }) => managed.cure_of_lower_term(),
            _ => parted.cure().map(Cow::Borrowed),
        };
        let (error, cure) = (&reason, cure.as_deref());
        tracing::warn!(%manager, %error, cure, "cannot join the device manager; retrying");
    }
    let at = Instant::now();
    *said = Some(Said { reason, at });
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Outcome; 5] = [
        Outcome::Unreachable,
        Outcome::LeaderElsewhere,
        Outcome::StandsBy,
        Outcome::Leading,
        Outcome::Other,
    ];

    #[test]
    fn a_node_misses_the_leader_if_one_is_unreachable_or_all_stand_by_and_none_answers_as_leader() {
        let (away, leads, other) = (Outcome::Unreachable, Outcome::Leading, Outcome::Other);
        let misses = |all: &[Option<Outcome>]| Outcome::misses_leader(all);
        assert!(misses(&[Some(away), None, Some(other)]));
        assert!(!misses(&[None, Some(other)]));
        let elsewhere = Outcome::LeaderElsewhere;
        assert!(misses(&[Some(elsewhere), Some(Outcome::StandsBy)]));
        assert!(!misses(&[Some(Outcome::StandsBy), Some(Outcome::StandsBy)]));
        // The other one may be the leader, by another name than the standby's.
        for unknown in [None, Some(other)] {
            assert!(!misses(&[Some(elsewhere), unknown]), "{unknown:?}");
        }
        for of in ALL {
            assert!(!misses(&[Some(leads), Some(of)]), "{of:?}");
        }
    }

    #[test]
    fn an_outcome_says_whether_a_manager_may_lead() {
        let addresses = ["m1:7078", "m2:7078"].map(|text| ManagerAddress::parse(text).unwrap());
        let outcome = |parted: &Parted| Outcome::of(parted, &addresses);
        let (answered, known) = (metadata::Term(1), metadata::Term(2));
        let lower = Parted::Disbelieved(Disbelieved::LowerTerm { answered, known });
        assert_eq!(outcome(&lower), Outcome::Leading);
        assert_eq!(outcome(&Parted::Silent), Outcome::Unreachable);
        // The manager's word, and a connection that it has closed.
        let standby = |leader: Option<&str>| {
            let mut status = tonic::Status::unavailable("");
            if let Some(leader) = leader {
                let leader = leader.parse().unwrap();
                status.metadata_mut().insert(metadata::LEADER, leader);
            }
            Parted::NotLeading(status)
        };
        assert_eq!(outcome(&standby(None)), Outcome::StandsBy);
        assert_eq!(outcome(&standby(Some("m2:7078"))), Outcome::StandsBy);
        let elsewhere = outcome(&standby(Some("m3:7078")));
        assert_eq!(elsewhere, Outcome::LeaderElsewhere);
        assert_eq!(outcome(&Parted::HungUp), Outcome::Other);
    }
}
