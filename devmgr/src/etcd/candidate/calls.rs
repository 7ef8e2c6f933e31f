//! The candidate's calls to etcd, and what each answer means.
//!
//! Each function is one call or a few that belong together. None of them reads or changes the state machine. Invariant: a
//! transaction that writes compares the leader's key; see [`crate::etcd`].

use std::time::Duration;

use causeway_proto::metadata::Term;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, EventType, GetResponse, LeaseGrantOptions, PutOptions, Txn,
    TxnOp, TxnOpResponse, WatchOptions,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Happened, LOOK_EVERY};
use crate::etcd::aside::aside_in;
use crate::etcd::client::Etcd;
use crate::etcd::fault::Fault;
use crate::etcd::keys::{Keys, first_step, leader_of, leader_value};
use crate::etcd::registering::Hanging;
use crate::etcd::store::EtcdStore;
use crate::etcd::tenure::now;
use crate::leadership::{EtcdLease, Event, LeaderKey, ManagerId, Reign, Revision};
use crate::store::StoreError;
use crate::store::rows::{META_SCHEMA, META_TERM, check_schema, cluster_of, number_of, term_value};
use crate::time::Span;

/// Timeout of a call about the etcd lease, and of one that takes the key.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_millis(900);
/// Interval of the compactions by the leader. What is older is never read.
const COMPACT_EVERY: Duration = Duration::from_secs(30);

/// Reads the leader's key and the cluster's id, and follows the key for a while.
pub(super) async fn look(
    etcd: &Etcd,
    keys: &Keys,
    events: &mpsc::UnboundedSender<Happened>,
) -> Result<(), Fault> {
    let gets = [keys.leader(), keys.cluster()].map(|key| TxnOp::get(key, None));
    let read = etcd.txn(ANSWERS_WITHIN, Txn::new().and_then(gets)).await?;
    let revision = read.header().ok_or(Fault::Incomplete)?.revision();
    let [TxnOpResponse::Get(leader), TxnOpResponse::Get(cluster)] = &read.op_responses()[..] else {
        return Err(Fault::Incomplete);
    };
    let cluster = cluster.kvs().first();
    let cluster = cluster.map(|row| cluster_of(row.value())).transpose();
    let _ = events.send(Happened::Looked(Ok(cluster)));
    let _ = events.send(Happened::Event(Event::Seen(leader_in(leader))));
    let until = tokio::time::Instant::now() + LOOK_EVERY;
    let options = WatchOptions::new().with_start_revision(revision + 1);
    let watch = |client: etcd_client::Client| async move {
        client
            .watch_client()
            .watch(keys.leader(), Some(options))
            .await
    };
    let mut stream = etcd.call(ANSWERS_WITHIN, watch).await?;
    loop {
        let Ok(message) = tokio::time::timeout_at(until, stream.message()).await else {
            return Ok(());
        };
        // A watch that has ended begins anew.
        let Ok(Some(message)) = message else {
            return Ok(());
        };
        for event in message.events() {
            let leader = event.kv().filter(|_| event.event_type() == EventType::Put);
            let leader = leader.map(|kv| leader_of(kv.value(), kv.create_revision()));
            let _ = events.send(Happened::Event(Event::Seen(leader)));
        }
    }
}

fn leader_in(got: &GetResponse) -> Option<LeaderKey> {
    let kv = got.kvs().first()?;
    Some(leader_of(kv.value(), kv.create_revision()))
}

pub(super) async fn grant(etcd: Etcd, ttl: Span) -> Happened {
    let sent = now();
    let seconds = i64::try_from(ttl.0.div_ceil(1000)).unwrap_or(i64::MAX);
    let grant = |client: etcd_client::Client| async move {
        let options: Option<LeaseGrantOptions> = None;
        client.lease_client().grant(seconds, options).await
    };
    match etcd.call(ANSWERS_WITHIN, grant).await {
        Ok(granted) => {
            let ttl = u64::try_from(granted.ttl()).unwrap_or(0);
            Happened::Granted(EtcdLease(granted.id()), sent, Span::seconds(ttl))
        }
        Err(fault) => {
            tracing::debug!(%fault, "no lease from etcd");
            Happened::Event(Event::NotKept)
        }
    }
}

/// Asks all members at once. The first answer counts, because a member that hangs must not end the reign.
pub(super) async fn keep_alive(etcd: Etcd, lease: EtcdLease, ttl: Span) -> Happened {
    let sent = now();
    let mut asked = JoinSet::new();
    for member in 0..etcd.members() {
        let etcd = etcd.clone();
        asked.spawn(async move {
            let keep = |client: etcd_client::Client| async move {
                client.lease_client().keep_alive(lease.0).await
            };
            etcd.call_at(member, ANSWERS_WITHIN, keep).await.map(drop)
        });
    }
    let mut is_gone = false;
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(())) => return Happened::Event(Event::Kept { lease, sent, ttl }),
            Ok(Err(Fault::Refused {
                error: etcd_client::Error::LeaseKeepAliveError(_),
                ..
            })) => is_gone = true,
            Ok(Err(fault)) => tracing::debug!(%fault, "a member of etcd did not prolong the lease"),
            // A task that panicked, or was aborted.
            Err(_) => {}
        }
    }
    Happened::Event(match is_gone {
        true => Event::LeaseGone(lease),
        false => Event::NotKept,
    })
}

/// Takes the leader's key.
pub(super) struct Take {
    pub(super) etcd: Etcd,
    pub(super) keys: Keys,
    pub(super) id: ManagerId,
    pub(super) address: String,
    pub(super) yielded: Option<Term>,
}

/// The store as it was before the key is taken. Numbers are the revisions of its rows.
struct Found {
    last: Term,
    /// Whether this manager leaves the lead to another one.
    yields: bool,
    schema: i64,
    term: i64,
    cluster: i64,
}

impl Take {
    pub(super) async fn run(&self, lease: EtcdLease, events: &mpsc::UnboundedSender<Happened>) {
        let happened = match self.take(lease).await {
            Ok(happened) => happened,
            Err(fault) => {
                let _ = events.send(Happened::Fit(Some(fault)));
                Happened::Event(Event::NotTaken(lease))
            }
        };
        let _ = events.send(happened);
    }

    // Reads what the store says before the key is taken. `None`: another manager leads.
    async fn read(&self) -> Result<Option<Found>, Fault> {
        let keys = &self.keys;
        let keys = [
            keys.leader(),
            keys.schema(),
            keys.term(),
            keys.cluster(),
            keys.aside(),
        ];
        let gets = keys.map(|key| TxnOp::get(key, None));
        let read = self
            .etcd
            .txn(ANSWERS_WITHIN, Txn::new().and_then(gets))
            .await?;
        let [
            TxnOpResponse::Get(leader),
            TxnOpResponse::Get(schema),
            TxnOpResponse::Get(term),
            TxnOpResponse::Get(cluster),
            TxnOpResponse::Get(aside),
        ] = &read.op_responses()[..]
        else {
            return Err(Fault::Incomplete);
        };
        if let Some(leader) = leader_in(leader) {
            // The watch reports it, too; this may be earlier.
            tracing::debug!(leader = leader.address, "another manager leads");
            return Ok(None);
        }
        let number = |key: &[u8], of: &GetResponse| {
            let row = of.kvs().first();
            row.map(|row| number_of(key, row.value())).transpose()
        };
        if let Some(schema) = number(META_SCHEMA, schema)? {
            check_schema(u32::try_from(schema).unwrap_or(u32::MAX))?;
        }
        let found = cluster.kvs().first();
        let found = found.map(|row| cluster_of(row.value())).transpose()?;
        self.etcd.access().check_cluster(found)?;
        let last = Term(number(META_TERM, term)?.unwrap_or(0));
        let revision = |of: &GetResponse| of.kvs().first().map_or(0, |kv| kv.mod_revision());
        Ok(Some(Found {
            last,
            yields: aside_in(aside).is_some_and(|of| of.yields(last, self.id)),
            schema: revision(schema),
            term: revision(term),
            cluster: revision(cluster),
        }))
    }

    async fn take(&self, lease: EtcdLease) -> Result<Happened, Fault> {
        // Read first: nothing is written into a store of a later version.
        let Some(found) = self.read().await? else {
            return Ok(Happened::Event(Event::NotTaken(lease)));
        };
        let last = found.last;
        if found.yields && self.yielded != Some(last) {
            tracing::info!(
                term = last.0,
                "another manager shall lead, which most nodes reach"
            );
            return Ok(Happened::Yielded(lease, last));
        }
        let term_now = Term(last.0 + 1);
        let hangs = PutOptions::new().with_lease(lease.0);
        let value = leader_value(self.id, &self.address, term_now, false);
        let take = Txn::new()
            .when([
                Compare::create_revision(self.keys.leader(), CompareOp::Equal, 0),
                Compare::mod_revision(self.keys.schema(), CompareOp::Equal, found.schema),
                Compare::mod_revision(self.keys.term(), CompareOp::Equal, found.term),
                Compare::mod_revision(self.keys.cluster(), CompareOp::Equal, found.cluster),
            ])
            .and_then([
                TxnOp::put(self.keys.leader(), value, Some(hangs)),
                TxnOp::put(self.keys.term(), term_value(term_now), None),
                TxnOp::put(self.keys.step(), first_step(term_now), None),
            ]);
        let taken = self.etcd.txn(ANSWERS_WITHIN, take).await?;
        if !taken.succeeded() {
            return Ok(Happened::Event(Event::NotTaken(lease)));
        }
        let revision = taken.header().ok_or(Fault::Incomplete)?.revision();
        let reign = Reign {
            term: term_now,
            revision: Revision(revision),
        };
        Ok(Happened::Event(Event::Taken(lease, reign)))
    }
}

pub(super) async fn load(etcd: Etcd, reign: Reign, events: &mpsc::UnboundedSender<Happened>) {
    let happened = match EtcdStore::load(etcd, reign).await {
        Ok(loaded) => {
            // Only now: a row that cannot be read is a problem until then.
            let _ = events.send(Happened::Fit(None));
            Happened::Loaded(reign, Box::new(loaded))
        }
        Err(Fault::Deposed) => Happened::Event(Event::Deposed(reign)),
        Err(fault) => {
            tracing::error!(%fault, "the state cannot be read from etcd");
            let damaged = matches!(
                fault,
                Fault::Store(StoreError::Row { .. } | StoreError::Damaged(_))
            );
            let _ = events.send(Happened::Fit(Some(fault)));
            Happened::Event(Event::NotLoaded { reign, damaged })
        }
    };
    let _ = events.send(happened);
}

/// Says in the key that its leader serves, if it is still this reign's. `value` is the key's new one.
pub(super) async fn say_served(etcd: Etcd, keys: Keys, reign: Reign, value: Vec<u8>) {
    // The last leader waits for this.
    for _ in 0..=etcd.members() {
        let is_ours = Compare::create_revision(keys.leader(), CompareOp::Equal, reign.revision.0);
        let options = PutOptions::new().with_ignore_lease();
        let put = TxnOp::put(keys.leader(), value.clone(), Some(options));
        let txn = Txn::new().when([is_ours]).and_then([put]);
        match etcd.txn(Duration::from_millis(300), txn).await {
            Ok(_) => return,
            Err(fault) => tracing::debug!(%fault, "etcd does not say that this manager serves"),
        }
    }
}

/// Removes the key, if it is still this reign's.
pub(super) async fn resign(etcd: Etcd, keys: Keys, reign: Reign) {
    for _ in 0..=etcd.members() {
        let is_ours = Compare::create_revision(keys.leader(), CompareOp::Equal, reign.revision.0);
        let delete = TxnOp::delete(keys.leader(), None::<DeleteOptions>);
        let txn = Txn::new().when([is_ours]).and_then([delete]);
        match etcd.txn(Duration::from_millis(300), txn).await {
            Ok(_) => return,
            // etcd removes the key with the lease in any case.
            Err(fault) => tracing::debug!(%fault, "the leader's key was not removed"),
        }
    }
}

pub(super) async fn register(etcd: Etcd, key: Vec<u8>, (lease, registration): Hanging) -> Happened {
    let value = serde_json::to_vec(&registration).unwrap_or_default();
    let put = |client: etcd_client::Client| async move {
        let hangs = PutOptions::new().with_lease(lease.0);
        client.kv_client().put(key, value, Some(hangs)).await
    };
    let registered = etcd.call(ANSWERS_WITHIN, put).await;
    if let Err(fault) = &registered {
        // Only `causeway managers` lacks this manager meanwhile.
        tracing::debug!(%fault, "this manager is not registered in etcd");
    }
    Happened::Registered(registered.is_ok())
}

/// Removes old revisions, which etcd keeps otherwise.
pub(super) async fn compact(etcd: Etcd, keys: Keys) {
    let mut old = None;
    loop {
        let got = etcd.get(ANSWERS_WITHIN, keys.leader()).await;
        let revision = got
            .ok()
            .and_then(|got| got.header().map(etcd_client::ResponseHeader::revision));
        if let Some(old) = old {
            let compact = |client: etcd_client::Client| async move {
                client.kv_client().compact(old, None).await
            };
            // Fails if somebody else has compacted, which is as good.
            if let Err(fault) = etcd.call(Duration::from_secs(10), compact).await {
                tracing::debug!(%fault, "etcd has not removed old revisions");
            }
        }
        old = revision;
        tokio::time::sleep(COMPACT_EVERY).await;
    }
}
