//! The mark of a leader that has stepped aside because its nodes do not reach it. While etcd has the mark, no other does
//! so: the mark hangs on an etcd lease, so no clocks are compared.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, LeaseGrantOptions, PutOptions, Txn, TxnOp};

use super::client::Etcd;
use super::fault::Fault;
use super::keys::Keys;
use crate::leadership::Reign;
use crate::leadership::turned_away::QUIET;

/// Timeout of each call.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Sets the mark, if `reign` lasts and there is none. Returns whether it was set.
///
/// # Errors
/// [`Fault`]; the mark may be set then.
pub async fn mark_aside(etcd: &Etcd, reign: Reign) -> Result<bool, Fault> {
    let seconds = i64::try_from(QUIET.0 / 1000).unwrap_or(i64::MAX);
    let grant = |client: etcd_client::Client| async move {
        let options: Option<LeaseGrantOptions> = None;
        client.lease_client().grant(seconds, options).await
    };
    let lease = etcd.call(ANSWERS_WITHIN, grant).await?.id();
    let keys = Keys::new(&etcd.access().prefix);
    let hangs = PutOptions::new().with_lease(lease);
    let mark = Txn::new()
        .when([
            Compare::create_revision(keys.leader(), CompareOp::Equal, reign.revision.0),
            Compare::create_revision(keys.aside(), CompareOp::Equal, 0),
        ])
        .and_then([TxnOp::put(
            keys.aside(),
            reign.term.to_string(),
            Some(hangs),
        )]);
    let marked = etcd.txn(ANSWERS_WITHIN, mark).await?.succeeded();
    if !marked {
        // Otherwise the lease ends by itself.
        let revoke =
            |client: etcd_client::Client| async move { client.lease_client().revoke(lease).await };
        let _ = etcd.call(ANSWERS_WITHIN, revoke).await;
    }
    Ok(marked)
}
