//! The highest term that this process has met, and the cluster that it belongs to.
//!
//! A deposed leader may go on for a while, and a store may be restored from a backup. Such a manager answers
//! with a lower term. This module decides only which answers are believed. Invariants: the term never
//! becomes lower, the cluster never changes, and an answer that is not believed changes nothing.

use causeway_proto::metadata::{self, ClusterId, Term};
use tonic::metadata::{MetadataMap, MetadataValue};

/// The highest term that was met, and the cluster. Empty until the first answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HighestTerm {
    term: Term,
    cluster: Option<ClusterId>,
    /// The cluster and the term that an earlier process has met. Until the first answer, the cluster may be another one.
    remembered: Option<(ClusterId, Term)>,
}

/// Why an answer of a device manager is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disbelieved {
    /// The answer has a lower term than the highest known one.
    #[error(
        "this device manager answers in term {answered}, but term {known} has begun: another manager leads now, or \
         the store was restored from a backup; if it was restored, start the managers with --after-restore, or \
         restart this process"
    )]
    LowerTerm {
        /// The answer's term.
        answered: Term,
        /// The highest known term.
        known: Term,
    },
    /// The answer comes from another cluster.
    #[error(
        "this device manager belongs to the cluster {answered}, but this process to the cluster {known}; name only \
         managers of one cluster, or restart this process if the store was made anew"
    )]
    OtherCluster {
        /// The answer's cluster.
        answered: ClusterId,
        /// The known cluster.
        known: ClusterId,
    },
}

impl HighestTerm {
    /// Begins with what an earlier process has met. A lower term of that cluster is not believed, and another cluster is.
    #[must_use]
    pub fn remembering(cluster: ClusterId, term: Term) -> HighestTerm {
        HighestTerm {
            remembered: Some((cluster, term)),
            ..HighestTerm::default()
        }
    }

    /// The lowest term that is believed of an answer of this cluster.
    fn least(&self, cluster: Option<ClusterId>) -> Term {
        let remembered = self.remembered.filter(|(of, _)| cluster == Some(*of));
        remembered.map_or(self.term, |(_, term)| term.max(self.term))
    }

    /// The highest term that was met; 0 if none.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// The cluster; `None` before the first answer that names one.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// Decides whether a leader's answer is believed, and takes its term and cluster over. `None` is absent
    /// from the answer. A term without a cluster is not taken over, because it could be another cluster's.
    ///
    /// # Errors
    /// [`Disbelieved`].
    pub fn hear(
        &mut self,
        term: Option<Term>,
        cluster: Option<ClusterId>,
    ) -> Result<(), Disbelieved> {
        if let (Some(answered), Some(known)) = (cluster, self.cluster)
            && answered != known
        {
            return Err(Disbelieved::OtherCluster { answered, known });
        }
        let term = term.filter(|term| *term != Term(0));
        let known = self.least(cluster);
        if let Some(answered) = term.filter(|term| *term < known) {
            return Err(Disbelieved::LowerTerm { answered, known });
        }
        if cluster.is_some() {
            self.cluster = cluster;
            self.term = term.unwrap_or(known);
        }
        Ok(())
    }

    /// Takes over the term that a standby has met. A standby decides nothing, so its term may be lower.
    ///
    /// # Errors
    /// [`Disbelieved::OtherCluster`].
    pub fn hear_standby(
        &mut self,
        term: Option<Term>,
        cluster: Option<ClusterId>,
    ) -> Result<(), Disbelieved> {
        let known = self.least(cluster);
        self.hear(term.filter(|term| *term >= known), cluster)
    }

    /// As [`HighestTerm::hear`], with the metadata of an answer.
    ///
    /// # Errors
    /// [`Disbelieved`].
    pub fn hear_metadata(&mut self, metadata: &MetadataMap) -> Result<(), Disbelieved> {
        self.hear(term_of(metadata), cluster_of(metadata))
    }

    /// As [`HighestTerm::hear_standby`], with the metadata of an answer.
    ///
    /// # Errors
    /// [`Disbelieved::OtherCluster`].
    pub fn hear_standby_metadata(&mut self, metadata: &MetadataMap) -> Result<(), Disbelieved> {
        self.hear_standby(term_of(metadata), cluster_of(metadata))
    }

    /// Adds the highest known term and its cluster to a call.
    pub fn tell(&self, metadata: &mut MetadataMap) {
        if self.term != Term(0) {
            metadata.insert(metadata::TERM, self.term.0.into());
        }
        let cluster = self.cluster.map(|cluster| cluster.to_string());
        if let Some(Ok(cluster)) = cluster.map(MetadataValue::try_from) {
            metadata.insert(metadata::CLUSTER, cluster);
        }
    }
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> Option<&'a str> {
    metadata.get(key)?.to_str().ok()
}

fn term_of(metadata: &MetadataMap) -> Option<Term> {
    Term::parse(text(metadata, metadata::TERM)?)
}

pub(crate) fn cluster_of(metadata: &MetadataMap) -> Option<ClusterId> {
    ClusterId::parse(text(metadata, metadata::CLUSTER)?)
}

/// The leader's address in a standby's answer.
#[must_use]
pub fn leader_of(metadata: &MetadataMap) -> Option<&str> {
    text(metadata, metadata::LEADER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: ClusterId = ClusterId([1; 16]);
    const B: ClusterId = ClusterId([2; 16]);

    #[test]
    fn a_lower_term_and_another_cluster_are_not_believed() {
        let mut highest = HighestTerm::default();
        assert_eq!(highest.hear(Some(Term(5)), Some(A)), Ok(()));
        let (answered, known) = (Term(4), Term(5));
        assert_eq!(
            highest.hear(Some(answered), Some(A)),
            Err(Disbelieved::LowerTerm { answered, known })
        );
        let (answered, known) = (B, A);
        let other = Err(Disbelieved::OtherCluster { answered, known });
        assert_eq!(highest.hear(Some(Term(9)), Some(B)), other);
        assert_eq!(highest.hear_standby(Some(Term(9)), Some(B)), other);
        assert_eq!(highest.term(), Term(5));
    }

    #[test]
    fn a_remembered_term_counts_for_its_cluster_only() {
        let remembering = || HighestTerm::remembering(A, Term(5));
        let (answered, known) = (Term(4), Term(5));
        let lower = Err(Disbelieved::LowerTerm { answered, known });
        assert_eq!(remembering().hear(Some(answered), Some(A)), lower);
        // Not told before the cluster is known: it may be another one, whose managers would take it for theirs.
        assert_eq!(remembering().term(), Term(0));
        let mut standby = remembering();
        assert_eq!(standby.hear_standby(Some(answered), Some(A)), Ok(()));
        assert_eq!(standby.term(), known);
        let mut other = remembering();
        assert_eq!(other.hear(Some(Term(1)), Some(B)), Ok(()));
        assert_eq!((other.term(), other.cluster()), (Term(1), Some(B)));
        let mut same = remembering();
        assert_eq!(same.hear(Some(Term(6)), Some(A)), Ok(()));
        assert_eq!(same.term(), Term(6));
    }

    #[test]
    fn each_reason_names_its_cure() {
        let (answered, known) = (Term(4), Term(5));
        let text = Disbelieved::LowerTerm { answered, known }.to_string();
        assert!(text.contains("--after-restore"), "{text}");
        let (answered, known) = (B, A);
        let text = Disbelieved::OtherCluster { answered, known }.to_string();
        assert!(text.contains("name only managers of one cluster"), "{text}");
    }

    #[test]
    fn a_call_carries_what_its_answer_is_judged_by() {
        let mut highest = HighestTerm::default();
        let mut call = MetadataMap::new();
        highest.tell(&mut call);
        assert!(call.is_empty());
        highest.hear(Some(Term(7)), Some(A)).unwrap();
        highest.tell(&mut call);
        let mut other = HighestTerm::default();
        other.hear_metadata(&call).unwrap();
        assert_eq!(other, highest);
    }

    fn answer() -> impl Strategy<Value = (bool, Option<Term>, Option<ClusterId>)> {
        let term = proptest::option::of((0..5u64).prop_map(Term));
        let cluster = proptest::option::of((0..2u8).prop_map(|id| ClusterId([id; 16])));
        (any::<bool>(), term, cluster)
    }

    proptest! {
        #[test]
        fn believed_terms_only_grow(answers in proptest::collection::vec(answer(), 0..40)) {
            let mut highest = HighestTerm::default();
            for (stands_by, term, cluster) in answers {
                let before = highest;
                let believed = match stands_by {
                    true => highest.hear_standby(term, cluster),
                    false => highest.hear(term, cluster),
                };
                prop_assert!(highest.term() >= before.term());
                prop_assert!(before.cluster().is_none_or(|known| highest.cluster() == Some(known)));
                let lower = term.is_some_and(|term| term != Term(0) && term < before.term());
                let other = matches!((cluster, before.cluster()), (Some(one), Some(two)) if one != two);
                prop_assert_eq!(believed.is_err(), other || (lower && !stands_by));
                prop_assert!(believed.is_ok() || highest == before);
                // A term is known only together with its cluster.
                prop_assert!(highest.term() == Term(0) || highest.cluster().is_some());
            }
        }
    }
}
