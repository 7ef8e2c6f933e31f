//! The mark of a leader that has stepped aside because its nodes do not reach it. While etcd has the mark, no other does
//! so: the mark hangs on an etcd lease, so no clocks are compared.
//!
//! The mark names the manager that shall lead next; [`candidate`](super::candidate) lets the others wait for it. Each mark
//! that soon follows an earlier one lasts longer ([`quiet_after`]).

use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, GetResponse, LeaseGrantOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
};

use super::client::Etcd;
use super::fault::Fault;
use super::keys::{AsideValue, Keys};
use crate::leadership::turned_away::{REMEMBERED, quiet_after};
use crate::leadership::{ManagerId, Reign};
use crate::time::Span;

/// Timeout of each call.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Sets the mark, if `reign` lasts and there is none. Returns whether this reign has the mark.
///
/// # Errors
/// [`Fault`]; the mark may be set then.
pub async fn mark_aside(etcd: &Etcd, reign: Reign, chosen: ManagerId) -> Result<bool, Fault> {
    let keys = Keys::new(&etcd.access().prefix);
    let before = etcd.get(ANSWERS_WITHIN, keys.before_aside()).await?;
    let quiet = quiet_after(before.kvs().first().and_then(|of| {
        let seconds = std::str::from_utf8(of.value()).ok()?.parse().ok()?;
        Some(Span::seconds(seconds))
    }));
    let lease = grant(etcd, quiet).await?;
    let remembered = grant(etcd, Span(quiet.0.saturating_mul(REMEMBERED))).await?;
    let hangs = |lease| Some(PutOptions::new().with_lease(lease));
    let value = serde_json::to_vec(&AsideValue::new(reign.term, chosen))
        .expect("the value has string keys and no way to fail");
    let seconds = (quiet.0 / 1000).to_string();
    let mark = Txn::new()
        .when([
            Compare::create_revision(keys.leader(), CompareOp::Equal, reign.revision.0),
            Compare::create_revision(keys.aside(), CompareOp::Equal, 0),
        ])
        .and_then([
            TxnOp::put(keys.aside(), value, hangs(lease)),
            TxnOp::put(keys.before_aside(), seconds, hangs(remembered)),
        ])
        .or_else([TxnOp::get(keys.aside(), None)]);
    let marked = etcd.txn(ANSWERS_WITHIN, mark).await?;
    if marked.succeeded() {
        return Ok(true);
    }
    for lease in [lease, remembered] {
        // Otherwise the lease ends by itself.
        let revoke =
            |client: etcd_client::Client| async move { client.lease_client().revoke(lease).await };
        let _ = etcd.call(ANSWERS_WITHIN, revoke).await;
    }
    let [TxnOpResponse::Get(there)] = &marked.op_responses()[..] else {
        return Err(Fault::Incomplete);
    };
    // The answer to an earlier attempt of this reign may have been lost.
    Ok(aside_in(there).is_some_and(|of| of.term == reign.term.0))
}

/// The mark that a read has found.
pub(super) fn aside_in(got: &GetResponse) -> Option<AsideValue> {
    serde_json::from_slice(got.kvs().first()?.value()).ok()
}

async fn grant(etcd: &Etcd, time: Span) -> Result<i64, Fault> {
    let seconds = i64::try_from(time.0 / 1000).unwrap_or(i64::MAX);
    let grant = |client: etcd_client::Client| async move {
        let options: Option<LeaseGrantOptions> = None;
        client.lease_client().grant(seconds, options).await
    };
    Ok(etcd.call(ANSWERS_WITHIN, grant).await?.id())
}
