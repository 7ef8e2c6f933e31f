//! Device managers that are found by their names: which of the announced addresses count.
//!
//! Anybody can announce anything. So each announced address is asked over TLS, under the name and without a token. Pure,
//! except [`ask_all`] and [`cluster_at`]. Invariant: addresses of two clusters are never mixed, and of two that are right none is used.

use std::fmt::Display;
use std::time::Duration;

use causeway_proto::manager::GetManagerRequest;
use causeway_proto::metadata::ClusterId;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Request, metadata::MetadataMap};

use crate::highest::cluster_of;
use crate::probe::{self, Probed};

/// The word in place of an address that stands for a search.
pub const DISCOVER: &str = "discover";

/// Most announced addresses that are asked.
const MOST_ASKED: usize = 64;

/// The addresses to ask, of claims with their announced ids and addresses: each claim's first one, then each one's second,
/// and so on. So a claim with many addresses keeps no other one from being asked.
#[must_use]
pub fn asked_in_turn<A: PartialEq>(claims: Vec<(ClusterId, Vec<A>)>) -> Vec<(ClusterId, A)> {
    let mut claims: Vec<_> = (claims.into_iter())
        .map(|(id, addresses)| (id, addresses.into_iter()))
        .collect();
    let mut all = Vec::new();
    loop {
        let mut turn: Vec<(ClusterId, A)> = (claims.iter_mut())
            .filter_map(|(id, addresses)| Some((*id, addresses.next()?)))
            .collect();
        if turn.is_empty() || all.len() == MOST_ASKED {
            return all;
        }
        turn.truncate(MOST_ASKED - all.len());
        for claim in turn {
            if !all.contains(&claim) {
                all.push(claim);
            }
        }
    }
}

/// What came of asking an announced address.
#[derive(Debug)]
pub struct Asked<A> {
    /// The announced id, which is that of the manager's cluster.
    pub claimed: ClusterId,
    /// The address.
    pub address: A,
    /// The cluster that answered over TLS under the right name. `Ok(None)`: a manager that names none. Else the reason.
    pub answered: Result<Option<ClusterId>, String>,
}

/// Why no manager is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No announcement has the name.
    #[error(
        "no device manager named {0} announces itself on this host's networks; `causeway discover` lists those that do"
    )]
    Silent(String),
    /// None of the announced addresses leads to it.
    #[error("no announced address leads to the device manager {name}: {reasons}")]
    Unreachable {
        /// The manager's name.
        name: String,
        /// Each address with its reason.
        reasons: String,
    },
    /// Several managers with right certificates have the name.
    #[error(
        "several device managers are named {name}: {all}; none is used; give each a name of its own (certificate and \
         [manager] name), or configure the address"
    )]
    Several {
        /// The name.
        name: String,
        /// Each manager's first address and id.
        all: String,
    },
}

/// Decides which addresses lead to the manager of this name.
///
/// # Errors
/// [`NotFound`].
pub fn choose<A: Display>(name: &str, asked: Vec<Asked<A>>) -> Result<Vec<A>, NotFound> {
    if asked.is_empty() {
        return Err(NotFound::Silent(name.to_owned()));
    }
    let (mut right, mut reasons): (Vec<(ClusterId, A)>, _) = (Vec::new(), Vec::new());
    for Asked {
        claimed,
        address,
        answered,
    } in asked
    {
        match answered {
            Ok(Some(cluster)) if cluster != claimed => {
                reasons.push(format!("{address}: another device manager answers there"));
            }
            Ok(Some(_)) => right.push((claimed, address)),
            Ok(None) => reasons.push(format!(
                "{address}: the manager does not say which cluster it belongs to"
            )),
            Err(reason) => reasons.push(format!("{address}: {reason}")),
        }
    }
    let Some((first, _)) = right.first() else {
        let (name, reasons) = (name.to_owned(), reasons.join("; "));
        return Err(NotFound::Unreachable { name, reasons });
    };
    if right.iter().all(|(cluster, _)| cluster == first) {
        return Ok(right.into_iter().map(|(_, address)| address).collect());
    }
    let mut clusters: Vec<ClusterId> = Vec::new();
    let mut all = Vec::new();
    for (cluster, address) in &right {
        if !clusters.contains(cluster) {
            clusters.push(*cluster);
            all.push(format!("{address} (id {cluster})"));
        }
    }
    Err(NotFound::Several {
        name: name.to_owned(),
        all: all.join(" and "),
    })
}

/// Asks all addresses at the same time, each for `within` at most. Results are in the order of the addresses. `ask` answers
/// as [`Asked::answered`].
pub async fn ask_all<A, Answer>(
    claims: Vec<(ClusterId, A)>,
    within: Duration,
    ask: impl Fn(&A) -> Answer,
) -> Vec<Asked<A>>
where
    A: Send + 'static,
    Answer: Future<Output = Result<Option<ClusterId>, String>> + Send + 'static,
{
    let mut asking = JoinSet::new();
    for (position, (claimed, address)) in claims.into_iter().enumerate() {
        let answer = tokio::time::timeout(within, ask(&address));
        asking.spawn(async move {
            let answered = answer.await;
            let answered = answered.unwrap_or_else(|_| Err("no answer".to_owned()));
            let asked = Asked {
                claimed,
                address,
                answered,
            };
            (position, asked)
        });
    }
    let mut asked = asking.join_all().await;
    asked.sort_by_key(|(position, _)| *position);
    asked.into_iter().map(|(_, asked)| asked).collect()
}

/// Asks which cluster the manager at the other end of a connection belongs to. Shows no credential. `None`: it names none.
///
/// # Errors
/// [`Probed`] if no manager answers.
pub async fn cluster_at(channel: Channel) -> Result<Option<ClusterId>, Probed> {
    let mut cluster = None;
    let hear = |metadata: &MetadataMap, _| {
        cluster = cluster_of(metadata);
        Ok(())
    };
    match probe::leads(channel, Request::new(GetManagerRequest {}), hear).await {
        // A standby is a manager too.
        Ok(()) | Err(Probed::NotLeading(_)) => Ok(cluster),
        Err(probed) => Err(probed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClusterId = ClusterId([1; 16]);
    const B: ClusterId = ClusterId([2; 16]);

    fn asked(
        claimed: ClusterId,
        address: &'static str,
        answered: Result<Option<ClusterId>, &str>,
    ) -> Asked<&'static str> {
        Asked {
            claimed,
            address,
            answered: answered.map_err(str::to_owned),
        }
    }

    #[test]
    fn all_right_addresses_of_one_cluster_are_used() {
        let chosen = choose(
            "mgr1",
            vec![
                asked(A, "10.0.0.1", Ok(Some(A))),
                asked(A, "10.0.0.2", Ok(Some(A))),
                asked(A, "10.0.0.5", Ok(None)),
                asked(A, "10.0.0.3", Err("no answer")),
                asked(B, "10.0.0.4", Err("another CA")),
            ],
        );
        assert_eq!(chosen, Ok(vec!["10.0.0.1", "10.0.0.2"]));
    }

    #[test]
    fn a_claim_with_many_addresses_leaves_the_others_their_turn() {
        let many: Vec<u32> = (0..200).collect();
        let asked = asked_in_turn(vec![(B, many), (A, vec![1_000, 1_001]), (A, vec![1_000])]);
        assert_eq!(asked.len(), MOST_ASKED);
        let first = &asked[..4];
        assert_eq!(first, [(B, 0), (A, 1_000), (B, 1), (A, 1_001)]);
        let none: Vec<(ClusterId, Vec<u32>)> = Vec::new();
        assert!(asked_in_turn(none).is_empty());
    }

    #[test]
    fn strangers_keep_nobody_from_the_manager_and_two_right_ones_are_both_named() {
        let stranger = || asked(B, "10.0.0.9", Ok(Some(A)));
        let right = || asked(A, "10.0.0.1", Ok(Some(A)));
        assert_eq!(
            choose("mgr1", vec![stranger(), right()]),
            Ok(vec!["10.0.0.1"])
        );
        let two = choose("mgr1", vec![right(), asked(B, "10.0.0.2", Ok(Some(B)))]);
        let text = two.unwrap_err().to_string();
        assert!(
            text.contains("10.0.0.1 (id ") && text.contains("10.0.0.2 (id "),
            "{text}"
        );
    }

    #[test]
    fn without_a_right_address_the_reasons_are_told() {
        let none: Vec<Asked<&str>> = Vec::new();
        assert_eq!(
            choose("mgr1", none),
            Err(NotFound::Silent("mgr1".to_owned()))
        );
        let refused = choose("mgr1", vec![asked(A, "10.0.0.1", Err("another CA"))]);
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("10.0.0.1: another CA")
        );
    }
}
