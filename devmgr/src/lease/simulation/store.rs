//! A store in memory: rows put and deleted by their keys.

use std::collections::BTreeMap;

use super::super::change::{Absence, Change, LeaseRow, NodeRow, Rows, WaitingRow};
use super::super::id::{Epoch, LeaseId};
use crate::inventory::NodeId;
use crate::policy::ledger::{Hour, UseRow};
use crate::policy::{Policy, Quota, Subject};
use crate::time::Span;

#[derive(Clone, Debug, Default, Hash)]
pub(in super::super) struct Store {
    epochs: Epoch,
    pub(super) leases: BTreeMap<LeaseId, LeaseRow>,
    pub(super) waiting: BTreeMap<LeaseId, WaitingRow>,
    pub(super) nodes: BTreeMap<NodeId, NodeRow>,
    pub(super) absences: BTreeMap<NodeId, Absence>,
    quotas: BTreeMap<Subject, Quota>,
    uses: BTreeMap<(Subject, Hour), Span>,
    policy: Option<Policy>,
}

impl From<Rows> for Store {
    fn from(rows: Rows) -> Self {
        Self {
            policy: rows.policy,
            quotas: rows.quotas.into_iter().collect(),
            ..Self::default()
        }
    }
}

impl Store {
    pub(super) fn apply(&mut self, changes: &[Change]) {
        for change in changes.iter().cloned() {
            match change {
                Change::Epochs(epochs) => self.epochs = epochs,
                Change::PutLease(row) => drop(self.leases.insert(row.lease, row)),
                Change::DeleteLease(lease) => drop(self.leases.remove(&lease)),
                Change::PutWaiting(row) => drop(self.waiting.insert(row.lease, row)),
                Change::DeleteWaiting(lease) => drop(self.waiting.remove(&lease)),
                Change::PutNode(row) => drop(self.nodes.insert(row.node, row)),
                Change::DeleteNode(node) => drop(self.nodes.remove(&node)),
                Change::PutAbsence(row) => drop(self.absences.insert(row.node, row)),
                Change::DeleteAbsence(node) => drop(self.absences.remove(&node)),
                Change::PutQuota(subject, quota) => drop(self.quotas.insert(subject, quota)),
                Change::DeleteQuota(subject) => drop(self.quotas.remove(&subject)),
                Change::PutUse(row) => drop(self.uses.insert((row.subject, row.hour), row.used)),
                Change::DeleteUse(subject, hour) => drop(self.uses.remove(&(subject, hour))),
                Change::PutPolicy(policy) => self.policy = Some(policy),
            }
        }
    }

    pub(super) fn rows(&self) -> Rows {
        let quotas = self.quotas.iter();
        Rows {
            epochs: self.epochs,
            leases: self.leases.values().cloned().collect(),
            waiting: self.waiting.values().cloned().collect(),
            nodes: self.nodes.values().cloned().collect(),
            absences: self.absences.values().copied().collect(),
            quotas: quotas
                .map(|(of, quota)| (of.clone(), quota.clone()))
                .collect(),
            uses: self
                .uses
                .iter()
                .map(|((subject, hour), used)| UseRow {
                    subject: subject.clone(),
                    hour: *hour,
                    used: *used,
                })
                .collect(),
            policy: self.policy.clone(),
        }
    }
}
