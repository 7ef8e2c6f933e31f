//! For people: which managers run, and how etcd's members are.

use std::time::Duration;

use tokio::task::JoinSet;

use super::client::Etcd;
use super::fault::Fault;
use super::keys::{Keys, Registration};
use super::store::range;
use crate::leadership::ManagerId;

/// Timeout of a member's answer.
const LISTED_WITHIN: Duration = Duration::from_secs(1);

/// A member of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The member's name.
    pub name: String,
    /// The member's URLs for clients.
    pub addresses: Vec<String>,
    /// The member's version. Empty: the member does not answer.
    pub version: String,
    /// Whether the member leads etcd.
    pub leads: bool,
    /// Size of the member's database in bytes.
    pub database: u64,
    /// Why the member is unhealthy. Empty: the member is healthy.
    pub problem: String,
}

/// The managers that run.
///
/// # Errors
/// [`Fault`]
pub async fn managers(etcd: &Etcd) -> Result<Vec<Registration>, Fault> {
    let found = registrations(etcd).await?.into_iter();
    Ok(found.map(|(_, registration)| registration).collect())
}

/// As [`managers`], with their processes.
///
/// # Errors
/// [`Fault`]
pub async fn registrations(etcd: &Etcd) -> Result<Vec<(ManagerId, Registration)>, Fault> {
    let keys = Keys::new(&etcd.access().prefix);
    let found = range(etcd, keys.managers()).await?;
    // Those of later versions may say it in another way.
    let read = |(key, value): &(Vec<u8>, Vec<u8>)| {
        Some((keys.manager_of(key)?, serde_json::from_slice(value).ok()?))
    };
    Ok(found.iter().filter_map(read).collect())
}

/// What a manager that runs says about itself. `None`: it has not said it yet, or it has ended.
///
/// # Errors
/// [`Fault`]
pub async fn registration(etcd: &Etcd, of: ManagerId) -> Result<Option<Registration>, Fault> {
    let key = Keys::new(&etcd.access().prefix).manager(of);
    let got = etcd.get(LISTED_WITHIN, key).await?;
    let value = got.kvs().first().map(etcd_client::KeyValue::value);
    Ok(value.and_then(|value| serde_json::from_slice(value).ok()))
}

/// etcd's members that the settings name, as they answer.
pub async fn members(etcd: &Etcd) -> Vec<Member> {
    let mut asked = JoinSet::new();
    for at in 0..etcd.members() {
        let etcd = etcd.clone();
        asked.spawn(async move { (at, member(&etcd, at).await) });
    }
    let mut members: Vec<_> = asked.join_all().await;
    members.sort_by_key(|(at, _)| *at);
    members.into_iter().map(|(_, member)| member).collect()
}

async fn member(etcd: &Etcd, at: usize) -> Member {
    let endpoint = etcd.access().endpoints[at].clone();
    let asked = status(etcd, at, LISTED_WITHIN).await;
    asked.unwrap_or_else(|fault| Member {
        name: endpoint.clone(),
        addresses: vec![endpoint],
        problem: fault.to_string(),
        ..Member::default()
    })
}

async fn status(etcd: &Etcd, at: usize, limit: Duration) -> Result<Member, Fault> {
    let ask = |client: etcd_client::Client| async move {
        let status = client.maintenance_client().status().await?;
        let listed = client.cluster_client().member_list().await?;
        Ok((status, listed))
    };
    let (status, listed) = etcd.call_at(at, limit, ask).await?;
    let id = status.header().ok_or(Fault::Incomplete)?.member_id();
    let member = listed.members().iter().find(|member| member.id() == id);
    let member = member.ok_or(Fault::Incomplete)?;
    Ok(Member {
        name: member.name().to_owned(),
        addresses: member.client_urls().to_vec(),
        version: status.version().to_owned(),
        leads: status.leader() == id,
        database: u64::try_from(status.db_size()).unwrap_or(0),
        problem: status.errors().join("; "),
    })
}
