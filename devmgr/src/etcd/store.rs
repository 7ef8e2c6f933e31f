//! The store in etcd, for one reign of one leader.
//!
//! Each transaction compares the create revision of the leader's key and the value of `step`, and sets
//! `step` anew. So a transaction that etcd carries out late, after it was tried again at another member,
//! changes nothing. A step that is too large for one transaction is put into parts first. One transaction
//! then makes it count (`pending`), and its rows follow. The next leader finishes what the last one has left.
//!
//! Invariant: after [`Store::apply`] has succeeded, its changes are on most of etcd's members. After it has
//! failed, all of them or none may be, and none that was decided later.

use std::time::{Duration, Instant};

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use tokio::runtime::Handle;

use super::client::Etcd;
use super::fault::Fault;
use super::keys::{KeyRow, Keys, first_step};
use super::parts::{self, MOST_ROWS, decode, encode, fits, groups, last_writes};
use crate::leadership::Reign;
use crate::store::rows::{RawRows, Reading, Row, SCHEMA, row_of, schema_row};
use crate::store::{Store, StoreError, Stored, Write};

/// Timeout of one attempt at one member.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Time for all attempts of one transaction.
const ATTEMPTS: Duration = Duration::from_secs(4);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// Rows that are read with one call.
const PAGE: i64 = 2_000;

/// The store in etcd. See the module.
pub struct EtcdStore {
    runtime: Handle,
    rows: Rows,
}

/// The asynchronous part of the store.
struct Rows {
    etcd: Etcd,
    keys: Keys,
    reign: Reign,
    /// The value of `step` after the last transaction whose outcome is known.
    last: Vec<u8>,
    number: u64,
    /// Values of `step` that transactions of unknown outcome may have set.
    tried: Vec<Vec<u8>>,
    /// Whether a large step may be pending.
    is_pending: bool,
}

impl EtcdStore {
    /// Reads everything that etcd has, finishes what the last leader left, and asks once more whether the
    /// reign lasts.
    ///
    /// # Errors
    /// [`Fault`]; the reign is over, or the rows cannot be read.
    pub async fn load(etcd: Etcd, reign: Reign) -> Result<(EtcdStore, Stored), Fault> {
        let mut rows = Rows {
            keys: Keys::new(&etcd.access().prefix),
            etcd,
            reign,
            last: first_step(reign.term),
            number: 0,
            tried: Vec::new(),
            is_pending: true,
        };
        rows.finish_pending().await?;
        let stored = rows.read().await?;
        if stored.schema != Some(SCHEMA) {
            let row = rows.keys.row_of(schema_row());
            rows.step(operations(vec![row])).await?;
        }
        rows.remove_parts().await?;
        rows.confirm().await?;
        let runtime = Handle::current();
        Ok((EtcdStore { runtime, rows }, stored))
    }

    /// [`Store::apply`] for a caller that may not block.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub async fn write(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        Ok(self.rows.apply(writes).await?)
    }
}

impl Store for EtcdStore {
    fn load(&mut self) -> Result<Stored, StoreError> {
        Ok(self.runtime.block_on(self.rows.read())?)
    }

    fn apply(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        Ok(self.runtime.block_on(self.rows.apply(writes))?)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn at_once(&self) -> usize {
        MOST_ROWS
    }
}

impl RawRows for EtcdStore {
    fn rows(&mut self) -> Result<Vec<Row<'static>>, StoreError> {
        Ok(self.runtime.block_on(self.rows.raw())?)
    }

    fn put_rows(&mut self, rows: Vec<Row<'static>>) -> Result<(), StoreError> {
        let rows = rows.into_iter().map(|row| self.rows.keys.row_of(row));
        let rows = last_writes(rows);
        Ok(self.runtime.block_on(self.rows.put(rows))?)
    }
}

impl Rows {
    async fn apply(&mut self, writes: &[Write]) -> Result<(), Fault> {
        self.finish_pending().await?;
        if writes.is_empty() {
            return self.confirm().await;
        }
        let rows = writes.iter().map(|write| self.keys.row_of(row_of(write)));
        let rows = last_writes(rows);
        self.put(rows).await
    }

    async fn put(&mut self, rows: Vec<KeyRow>) -> Result<(), Fault> {
        if fits(&rows) {
            return self.step(operations(rows)).await;
        }
        self.step_in_parts(rows).await
    }

    /// Asks whether the reign lasts.
    async fn confirm(&mut self) -> Result<(), Fault> {
        self.guarded(Vec::new(), Vec::new()).await.map(drop)
    }

    /// Carries out a transaction that belongs to the order of steps.
    async fn step(&mut self, operations: Vec<TxnOp>) -> Result<(), Fault> {
        self.number += 1;
        let (term, number) = (self.reign.term, self.number);
        let mine = format!("{term} {number} {:016x}", rand::random::<u64>()).into_bytes();
        let mut then = vec![TxnOp::put(self.keys.step(), mine.clone(), None)];
        then.extend(operations);
        let until = Instant::now() + ATTEMPTS;
        loop {
            let is_next = Compare::value(self.keys.step(), CompareOp::Equal, self.last.clone());
            let fault = match self.attempt(vec![is_next], then.clone()).await {
                Ok(Attempt::Done(_)) => {
                    self.settle(mine);
                    return Ok(());
                }
                Ok(Attempt::Step(step)) if step == mine => {
                    // An earlier attempt was carried out, and its answer was lost.
                    self.settle(mine);
                    return Ok(());
                }
                Ok(Attempt::Step(step)) if self.tried.contains(&step) => {
                    self.settle(step);
                    Box::pin(self.finish_pending()).await?;
                    continue;
                }
                // Somebody else has stored something in this reign.
                Ok(Attempt::Step(_)) => return Err(Fault::Deposed),
                Err(fault) => fault,
            };
            if !self.tried.contains(&mine) {
                self.tried.push(mine.clone());
                // This may be the step that makes a large one count.
                self.is_pending = true;
            }
            if matches!(fault, Fault::Deposed) || Instant::now() >= until {
                return Err(fault);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn settle(&mut self, step: Vec<u8>) {
        self.last = step;
        self.tried.clear();
    }

    /// Carries out a transaction that may be repeated at any time.
    async fn guarded(
        &self,
        compares: Vec<Compare>,
        then: Vec<TxnOp>,
    ) -> Result<Option<TxnResponse>, Fault> {
        let until = Instant::now() + ATTEMPTS;
        loop {
            match self.attempt(compares.clone(), then.clone()).await {
                Ok(Attempt::Done(response)) => return Ok(Some(response)),
                Ok(Attempt::Step(_)) => return Ok(None),
                Err(fault) if matches!(fault, Fault::Deposed) || Instant::now() >= until => {
                    return Err(fault);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// One attempt of a transaction at one member.
    async fn attempt(&self, compares: Vec<Compare>, then: Vec<TxnOp>) -> Result<Attempt, Fault> {
        let revision = self.reign.revision.0;
        let mut when = vec![Compare::create_revision(
            self.keys.leader(),
            CompareOp::Equal,
            revision,
        )];
        when.extend(compares);
        let txn = Txn::new().when(when).and_then(then).or_else([
            TxnOp::get(self.keys.leader(), None),
            TxnOp::get(self.keys.step(), None),
        ]);
        let response = self.etcd.txn(ATTEMPT, txn).await?;
        if response.succeeded() {
            return Ok(Attempt::Done(response));
        }
        let (leader, step) = match &response.op_responses()[..] {
            [TxnOpResponse::Get(leader), TxnOpResponse::Get(step)] => {
                (leader.clone(), step.clone())
            }
            _ => return Err(Fault::Incomplete),
        };
        let is_ours = |of: &GetResponse| {
            let key = of.kvs().first();
            key.is_some_and(|key| key.create_revision() == revision)
        };
        if !is_ours(&leader) {
            return Err(Fault::Deposed);
        }
        let step = step.kvs().first().map(|step| step.value().to_vec());
        Ok(Attempt::Step(step.unwrap_or_default()))
    }

    /// Stores a step that one transaction cannot hold.
    async fn step_in_parts(&mut self, rows: Vec<KeyRow>) -> Result<(), Fault> {
        let id = format!("{:016x}{:016x}", self.reign.term.0, rand::random::<u64>());
        for (number, group) in groups(rows, usize::MAX).iter().enumerate() {
            let part = TxnOp::put(self.keys.part(&id, number), encode(group), None);
            self.guarded(Vec::new(), vec![part]).await?;
        }
        let counts = TxnOp::put(self.keys.pending(), id.into_bytes(), None);
        self.step(vec![counts]).await?;
        self.is_pending = true;
        self.finish_pending().await
    }

    /// Puts the rows of a pending step in their places.
    async fn finish_pending(&mut self) -> Result<(), Fault> {
        if !self.is_pending {
            return Ok(());
        }
        let get = vec![TxnOp::get(self.keys.pending(), None)];
        let found = self.guarded(Vec::new(), get).await?;
        let found = found.as_ref().map(TxnResponse::op_responses);
        let Some([TxnOpResponse::Get(found)]) = found.as_deref() else {
            return Err(Fault::Incomplete);
        };
        if let Some(pending) = found.kvs().first() {
            self.put_pending(pending.value()).await?;
        }
        // Also after a failed transaction: if it is carried out late, its successor meets its step, and
        // comes here again.
        self.is_pending = !self.tried.is_empty();
        Ok(())
    }

    async fn put_pending(&mut self, id: &[u8]) -> Result<(), Fault> {
        let damaged = || StoreError::Damaged("the key `pending` or its parts".to_owned());
        let step = std::str::from_utf8(id).map_err(|_| damaged())?;
        let prefix = self.keys.parts(step);
        let found = self.range(prefix.clone()).await?;
        let mut rows = Vec::new();
        for part in found {
            rows.extend(decode(&part.1).ok_or_else(damaged)?);
        }
        let is_pending = || Compare::value(self.keys.pending(), CompareOp::Equal, id);
        for group in groups(rows, parts::MOST_ROWS) {
            self.guarded(vec![is_pending()], operations(group)).await?;
        }
        let parts = DeleteOptions::new().with_prefix();
        let done = vec![
            TxnOp::delete(self.keys.pending(), None),
            TxnOp::delete(prefix, Some(parts)),
        ];
        self.guarded(vec![is_pending()], done).await?;
        Ok(())
    }

    /// Removes the parts of steps that never counted.
    async fn remove_parts(&mut self) -> Result<(), Fault> {
        let all = DeleteOptions::new().with_prefix();
        let remove = vec![TxnOp::delete(self.keys.all_parts(), Some(all))];
        self.guarded(Vec::new(), remove).await.map(drop)
    }

    async fn read(&self) -> Result<Stored, Fault> {
        let mut reading = Reading::default();
        for row in self.raw().await? {
            reading.take(row.table, &row.key, &row.value.unwrap_or_default())?;
        }
        Ok(reading.done()?)
    }

    async fn raw(&self) -> Result<Vec<Row<'static>>, Fault> {
        let mut rows = Vec::new();
        for (key, value) in self.range(self.keys.rows()).await? {
            // Tables of a later version with the same schema are none of ours.
            if let Some((table, key)) = self.keys.table_of(&key) {
                rows.push(Row {
                    table,
                    key: key.to_vec().into(),
                    value: Some(value),
                });
            }
        }
        Ok(rows)
    }

    /// All keys that begin so, at one revision.
    async fn range(&self, prefix: Vec<u8>) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Fault> {
        range(&self.etcd, prefix).await
    }
}

/// All keys that begin so, at one revision, with their values.
pub(super) async fn range(etcd: &Etcd, prefix: Vec<u8>) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Fault> {
    let mut end = prefix.clone();
    // Prefixes end with a slash, so the last byte can be increased.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    let (mut next, mut revision, mut all) = (prefix, 0, Vec::new());
    let mut failed = 0;
    loop {
        let options = GetOptions::new()
            .with_range(end.clone())
            .with_limit(PAGE)
            .with_revision(revision);
        let key = next.clone();
        let call = |client: etcd_client::Client| async move {
            let mut client = client.kv_client().max_decoding_message_size(usize::MAX);
            client.get(key, Some(options)).await
        };
        let mut page = match etcd.call(ATTEMPTS, call).await {
            Ok(page) => page,
            Err(_) if failed < etcd.members() => {
                failed += 1;
                continue;
            }
            Err(fault) => return Err(fault),
        };
        if revision == 0 {
            revision = page.header().ok_or(Fault::Incomplete)?.revision();
        }
        let more = page.more();
        let rows = page
            .take_kvs()
            .into_iter()
            .map(etcd_client::KeyValue::into_key_value);
        all.extend(rows);
        match all.last() {
            Some((last, _)) if more => {
                next = last.clone();
                next.push(0);
            }
            _ => return Ok(all),
        }
    }
}

/// The outcome of an attempt in which etcd has found this reign.
enum Attempt {
    /// The transaction was carried out.
    Done(TxnResponse),
    /// It was not, because a comparison failed; with the value of `step`.
    Step(Vec<u8>),
}

fn operations(rows: Vec<KeyRow>) -> Vec<TxnOp> {
    let operations = rows.into_iter().map(|row| match row.value {
        Some(value) => TxnOp::put(row.key, value, None),
        None => TxnOp::delete(row.key, None),
    });
    operations.collect()
}
