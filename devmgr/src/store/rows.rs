//! Converts changes to rows, and rows to the stored state: the schema.
//!
//! A key is the id that the [`Write`] names. A value is JSON, so that fields can be added later, and
//! people can read a row without this program. Invariant: [`Reading`] reads what [`row_of`] writes as the
//! same value.

use std::borrow::Cow;

use causeway_proto::metadata::{ClusterId, Term};
use causeway_security::Secret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Store, StoreError, Stored, Write};
use crate::identity::IdentityChange;
use crate::lease::{Change, Epoch};
use crate::policy::ledger::{Hour, UseRow};
use crate::policy::{Quota, Subject};

/// The version of this schema. A store with a later version is refused, and one with an earlier version is
/// taken up.
///
/// - 1, 2026-11: the first.
/// - 2, 2026-11: the cluster's id and its term.
pub(crate) const SCHEMA: u32 = 2;

/// The tables; their names are part of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Table {
    /// Single values, by name.
    Meta,
    Leases,
    Waiting,
    Nodes,
    Quotas,
    Uses,
    Users,
    Tokens,
    /// Users who were removed. Managers of before this table let them in by certificate.
    Removed,
    Absences,
}

impl Table {
    pub(crate) const ALL: [Table; 10] = [
        Table::Meta,
        Table::Leases,
        Table::Waiting,
        Table::Nodes,
        Table::Quotas,
        Table::Uses,
        Table::Users,
        Table::Tokens,
        Table::Removed,
        Table::Absences,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Table::Meta => "meta",
            Table::Leases => "leases",
            Table::Waiting => "waiting",
            Table::Nodes => "nodes",
            Table::Quotas => "quotas",
            Table::Uses => "uses",
            Table::Users => "users",
            Table::Tokens => "tokens",
            Table::Removed => "removed",
            Table::Absences => "absences",
        }
    }
}

pub(crate) const META_SCHEMA: &[u8] = b"schema";
pub(crate) const META_TERM: &[u8] = b"term";
pub(crate) const META_CLUSTER: &[u8] = b"cluster";
const META_EPOCHS: &[u8] = b"epochs";
const META_POLICY: &[u8] = b"policy";
const META_SIGNING_KEY: &[u8] = b"signing key";

/// A row to put, or to delete (no value).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) table: Table,
    pub(crate) key: Cow<'a, [u8]>,
    pub(crate) value: Option<Vec<u8>>,
}

/// A store whose rows can be read and written as they are, for another store.
pub(crate) trait RawRows: Store {
    /// All rows.
    fn rows(&mut self) -> Result<Vec<Row<'static>>, StoreError>;

    /// Makes rows durable, all of them or none.
    fn put_rows(&mut self, rows: Vec<Row<'static>>) -> Result<(), StoreError>;
}

/// The row with the store's schema version.
pub(crate) fn schema_row() -> Row<'static> {
    put(Table::Meta, META_SCHEMA, &SCHEMA)
}

/// The value of the row with the term.
pub(crate) fn term_value(term: Term) -> Vec<u8> {
    json(&term.0)
}

/// Reads the value of [`META_SCHEMA`] or [`META_TERM`].
pub(crate) fn number_of(key: &[u8], value: &[u8]) -> Result<u64, StoreError> {
    read((Table::Meta, key), value)
}

/// The row that a change writes.
pub(crate) fn row_of(write: &Write) -> Row<'_> {
    match write {
        Write::Lease(change) => lease_row(change),
        Write::Identity(change) => identity_row(change),
        Write::SigningKey(key) => Row {
            table: Table::Meta,
            key: META_SIGNING_KEY.into(),
            value: Some(key.reveal().to_vec()),
        },
        Write::Cluster(cluster) => put(Table::Meta, META_CLUSTER, &cluster.to_string()),
        Write::Term(term) => put(Table::Meta, META_TERM, &term.0),
    }
}

fn lease_row(change: &Change) -> Row<'_> {
    match change {
        Change::Epochs(epoch) => put(Table::Meta, META_EPOCHS, epoch),
        Change::PutPolicy(policy) => put(Table::Meta, META_POLICY, policy),
        Change::PutLease(row) => put(Table::Leases, &row.lease.0, row),
        Change::DeleteLease(lease) => delete(Table::Leases, &lease.0),
        Change::PutWaiting(row) => put(Table::Waiting, &row.lease.0, row),
        Change::DeleteWaiting(lease) => delete(Table::Waiting, &lease.0),
        Change::PutNode(row) => put(Table::Nodes, &row.node.0, row),
        Change::DeleteNode(node) => delete(Table::Nodes, &node.0),
        Change::PutAbsence(row) => put(Table::Absences, &row.node.0, row),
        Change::DeleteAbsence(node) => delete(Table::Absences, &node.0),
        Change::PutQuota(subject, quota) => {
            let row = QuotaRow {
                subject: subject.clone(),
                quota: quota.clone(),
            };
            put(Table::Quotas, json(subject), &row)
        }
        Change::DeleteQuota(subject) => delete(Table::Quotas, json(subject)),
        Change::PutUse(row) => put(Table::Uses, use_key(&row.subject, row.hour), row),
        Change::DeleteUse(subject, hour) => delete(Table::Uses, use_key(subject, *hour)),
    }
}

fn identity_row(change: &IdentityChange) -> Row<'_> {
    match change {
        IdentityChange::PutUser(user) => put(Table::Users, user.name.0.as_bytes(), user),
        IdentityChange::DeleteUser(name) => delete(Table::Users, name.0.as_bytes()),
        IdentityChange::PutToken(row) => put(Table::Tokens, row.id.0.as_bytes(), row),
        IdentityChange::DeleteToken(id) => delete(Table::Tokens, id.0.as_bytes()),
        IdentityChange::PutRemoved(name) => put(Table::Removed, name.0.as_bytes(), name),
        IdentityChange::DeleteRemoved(name) => delete(Table::Removed, name.0.as_bytes()),
    }
}

#[derive(Serialize, Deserialize)]
struct QuotaRow {
    subject: Subject,
    quota: Quota,
}

fn use_key(subject: &Subject, hour: Hour) -> Vec<u8> {
    json(&(subject, hour))
}

fn put<'a>(table: Table, key: impl Into<Cow<'a, [u8]>>, value: &impl Serialize) -> Row<'a> {
    Row {
        table,
        key: key.into(),
        value: Some(json(value)),
    }
}

fn delete<'a>(table: Table, key: impl Into<Cow<'a, [u8]>>) -> Row<'a> {
    Row {
        table,
        key: key.into(),
        value: None,
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("rows have string keys and no way to fail")
}

/// Collects the rows that are read.
#[derive(Default)]
pub(crate) struct Reading {
    stored: Stored,
}

impl Reading {
    /// Adds one row. Rows of one table may come in any order.
    pub(crate) fn take(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        let stored = &mut self.stored;
        let rows = &mut stored.rows;
        let of = (table, key);
        match table {
            Table::Meta => match key {
                META_SCHEMA => stored.schema = Some(read(of, value)?),
                META_TERM => stored.term = Term(read(of, value)?),
                META_CLUSTER => stored.cluster = Some(cluster_of(value)?),
                META_EPOCHS => rows.epochs = read::<Epoch>(of, value)?,
                META_POLICY => rows.policy = Some(read(of, value)?),
                META_SIGNING_KEY => stored.signing_key = Some(Secret::new(value)),
                // A value of a later version with the same schema.
                _ => {}
            },
            Table::Leases => rows.leases.push(read(of, value)?),
            Table::Waiting => rows.waiting.push(read(of, value)?),
            Table::Nodes => rows.nodes.push(read(of, value)?),
            Table::Absences => rows.absences.push(read(of, value)?),
            Table::Quotas => {
                let row: QuotaRow = read(of, value)?;
                rows.quotas.push((row.subject, row.quota));
            }
            Table::Uses => rows.uses.push(read::<UseRow>(of, value)?),
            Table::Users => stored.users.push(read(of, value)?),
            Table::Tokens => stored.tokens.push(read(of, value)?),
            Table::Removed => stored.removed.push(read(of, value)?),
        }
        Ok(())
    }

    /// Everything, if this version knows the schema. A store without a schema is new.
    pub(crate) fn done(self) -> Result<Stored, StoreError> {
        if let Some(found) = self.stored.schema {
            check_schema(found)?;
        }
        Ok(self.stored)
    }
}

/// Checks that this version knows a schema.
pub(crate) fn check_schema(found: u32) -> Result<(), StoreError> {
    match (1..=SCHEMA).contains(&found) {
        true => Ok(()),
        false => Err(StoreError::Schema {
            found,
            known: SCHEMA,
        }),
    }
}

/// Reads the value of the row with the cluster's id.
pub(crate) fn cluster_of(value: &[u8]) -> Result<ClusterId, StoreError> {
    let of = (Table::Meta, META_CLUSTER);
    let text: String = read(of, value)?;
    let problem = || damaged(of, "the cluster's id has 32 hexadecimal digits".to_owned());
    ClusterId::parse(&text).ok_or_else(problem)
}

fn read<T: DeserializeOwned>(of: (Table, &[u8]), value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| damaged(of, error.to_string()))
}

fn damaged((table, key): (Table, &[u8]), problem: String) -> StoreError {
    StoreError::Row {
        table: table.name(),
        // Ids are bytes.
        key: key.escape_ascii().to_string(),
        problem,
    }
}
