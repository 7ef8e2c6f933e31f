//! A manager among others over etcd: serves while it leads, and stands by otherwise.
//!
//! The [`Candidate`] decides about the role; this module changes what the port serves. A manager that gives up the lead
//! hands over: the connections of its reign are silent until another one serves. Invariant: the services of a reign begin
//! after its state was read, and nothing passes over their connections after its tenure.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use causeway_proto::metadata::ClusterId;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::authentication::wall_now;
use super::dashboard::Dashboard;
use super::error::CannotStart;
use super::others::Others;
use super::owner::OwnerEnd;
use super::port::Port;
use super::surroundings::Surroundings;
use super::{LoadedStore, RunningManager};
use crate::etcd::{
    Candidate, Etcd, HAND_OVER, Instruction, Instructions, Lead, Order, SharedTurnedAway, Standing,
    Tenure, registration,
};
use crate::leadership::{ManagerId, Reign, Why};
use crate::settings::{Settings, is_loopback_host};
use crate::store::StoreError;
use crate::time::Time;

/// Timeout for the addresses of this manager's own host.
const RESOLVES_WITHIN: Duration = Duration::from_secs(2);
/// Pause before etcd is asked for the managers again.
const AGAIN: Duration = Duration::from_secs(1);

/// Starts a manager over etcd: it leads, or stands by.
///
/// # Errors
/// [`CannotStart`]; nothing is served then.
pub async fn start_shared(settings: &Settings, etcd: Etcd) -> Result<RunningManager, CannotStart> {
    // Bound before the candidate begins, because its address may have a port that is chosen only now.
    let (standing, stands) = watch::channel(Standing::default());
    let surroundings = Surroundings::watch(etcd.access().clone(), stands.clone());
    let (mut port, bound) = Port::open(settings, Some(surroundings)).await?;
    let address = reached_at(settings, &bound.addresses);
    port.advertise(address.clone());
    let dashboard = match bound.dashboard_at {
        Some(at) => dashboard_url(settings.tls.is_some(), &address, known(&address), at).await,
        None => String::new(),
    };
    if let Some(dashboard) = port.dashboard() {
        // Connections of their own: a question that fails must not move the candidate to another member.
        let asked = Etcd::new(etcd.access().clone());
        tokio::spawn(follow_dashboards(asked, stands.clone(), dashboard));
    }
    let (candidate, orders, instructions) =
        Candidate::new(etcd.clone(), address.clone(), wall_now(), standing);
    let turned_away = SharedTurnedAway::default();
    let candidate = candidate
        .with_dashboard(dashboard)
        .counting(turned_away.clone());
    let candidate = tokio::spawn(candidate.run(wall_now));
    let (stop, stopping) = watch::channel(false);
    let (known_cluster, cluster) = watch::channel(None);
    port.watch_over(stopping.clone());
    let manager = SharedManager {
        settings: settings.clone(),
        cluster: known_cluster,
        port,
        etcd,
        standing: stands,
        turned_away,
        instructions,
        stopping,
        stopped: watch::channel(false).0,
    };
    let work = tokio::spawn(manager.run(orders, candidate));
    Ok(RunningManager {
        addresses: bound.addresses,
        watched_at: bound.watched_at,
        dashboard_at: bound.dashboard_at,
        cluster,
        work,
        stop,
    })
}

/// Where others reach this manager: as configured, or the first address that it listens on.
fn reached_at(settings: &Settings, bound: &[SocketAddr]) -> String {
    let advertised = settings.advertise.clone();
    advertised.unwrap_or_else(|| bound.first().map(ToString::to_string).unwrap_or_default())
}

/// The addresses of a `HOST:PORT`. None, if the name is not known here.
async fn known(address: &str) -> Vec<IpAddr> {
    let looked = tokio::net::lookup_host(address);
    match tokio::time::timeout(RESOLVES_WITHIN, looked).await {
        Ok(Ok(found)) => found.map(|of| of.ip()).collect(),
        _ => Vec::new(),
    }
}

/// Where others reach this manager's dashboard: on the host of its address, whose addresses are `known`. Empty: nowhere.
/// Most dashboards need no look at the addresses.
async fn dashboard_url(
    is_secure: bool,
    address: &str,
    known: impl Future<Output = Vec<IpAddr>>,
    bound: SocketAddr,
) -> String {
    let scheme = if is_secure { "https" } else { "http" };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let leads_there = match bound.ip() {
        any if any.is_unspecified() => true,
        // From another machine, an address of loopback would lead to that machine itself.
        ip if ip.is_loopback() => is_loopback_host(address),
        ip => known.await.contains(&ip),
    };
    match leads_there {
        true => format!("{scheme}://{host}:{}/", bound.port()),
        false => String::new(),
    }
}

/// Tells the dashboard of a standby where the leader's is, whenever another manager leads.
async fn follow_dashboards(
    etcd: Etcd,
    mut standing: watch::Receiver<Standing>,
    dashboard: Dashboard,
) {
    // By its process, because an earlier one of the same address may still be registered. This manager is left out:
    // until it serves, its page would lead to itself.
    let mut leader = standing.borrow().other;
    loop {
        dashboard.set_leaders(None);
        let looked = async {
            while let Some(leader) = leader {
                // The leader takes its key before it registers.
                if let Ok(Some(found)) = registration(&etcd, leader).await {
                    dashboard.set_leaders(Some(found.dashboard).filter(|url| !url.is_empty()));
                    break;
                }
                tokio::time::sleep(AGAIN).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = looked => {}
            another = another_leader(&mut standing, leader) => match another {
                Some(another) => leader = another,
                None => return,
            },
        }
    }
}

/// Waits until another process leads than this one, or none does. `None`: the candidate has ended.
async fn another_leader(
    standing: &mut watch::Receiver<Standing>,
    leader: Option<ManagerId>,
) -> Option<Option<ManagerId>> {
    let changed = standing.wait_for(|now| now.other != leader).await;
    Some(changed.ok()?.other)
}

/// A manager among others.
struct SharedManager {
    settings: Settings,
    /// Set once the cluster's id is known.
    cluster: watch::Sender<Option<ClusterId>>,
    port: Port,
    etcd: Etcd,
    standing: watch::Receiver<Standing>,
    turned_away: SharedTurnedAway,
    instructions: Instructions,
    stopping: watch::Receiver<bool>,
    /// Ends what is served, after the hand-over.
    stopped: watch::Sender<bool>,
}

/// What the port serves at present.
struct Role {
    tenure: Tenure,
    /// Whether it is or was a reign's.
    led: bool,
    /// The reign and its owner. `None`: the manager stands by, or its owner has ended.
    owner: Option<(Reign, JoinHandle<Result<(), OwnerEnd>>)>,
}

impl SharedManager {
    async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        candidate: JoinHandle<()>,
    ) -> Result<(), CannotStart> {
        let mut role = self.stand_by()?;
        let mut stopping = self.stopping.clone();
        let mut standing = self.standing.clone();
        loop {
            // A standby that knows its cluster is announced too, so that whoever looks finds the next leader.
            self.tell_cluster(standing.borrow_and_update().cluster);
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Lead(lead)) => {
                        role.tenure.close();
                        role = self.lead(*lead).await?;
                    }
                    Some(Order::Close(_, why)) => {
                        self.close(&role, why);
                        role = self.stand_by()?;
                    }
                    None => return Err(CannotStart::Failed),
                },
                ended = role.ended() => self.owner_ended(ended)?,
                Ok(()) = standing.changed() => {}
                () = told_to_stop(&mut stopping) => break,
            }
        }
        match role.led {
            // Before anything else ends, so that no caller notices and looks for a leader yet.
            true => role.tenure.end(),
            false => role.tenure.close(),
        }
        self.instructions.send(Instruction::Stop);
        // The lead is handed over when this has ended. A panic was already reported.
        let _ = candidate.await;
        role.tenure.close();
        self.stopped.send_replace(true);
        Ok(())
    }

    /// Closes the connections of a role that has ended, or has them wait for the next leader.
    fn close(&self, role: &Role, why: Why) {
        if !role.led || why != Why::SteppedDown {
            role.tenure.close();
            return;
        }
        let (tenure, mut standing) = (role.tenure.clone(), self.standing.clone());
        tokio::spawn(async move {
            let served = standing.wait_for(|now| now.is_served);
            // Without an answer of etcd in time, callers look for the leader themselves.
            let _ = tokio::time::timeout(HAND_OVER, served).await;
            tenure.close();
        });
    }

    fn tell_cluster(&self, cluster: Option<ClusterId>) {
        self.cluster.send_if_modified(|known| {
            let is_news = known.is_none() && cluster.is_some();
            *known = known.or(cluster);
            is_news
        });
    }

    fn stand_by(&self) -> Result<Role, CannotStart> {
        let tenure = Tenure::until(Time(u64::MAX));
        let stopping = self.stopped.subscribe();
        self.port
            .stand_by(&self.standing, &self.turned_away, tenure.clone(), stopping)?;
        Ok(Role {
            tenure,
            led: false,
            owner: None,
        })
    }

    /// Serves a new reign. If that fails for a reason that may pass, another manager may lead.
    async fn lead(&mut self, lead: Lead) -> Result<Role, CannotStart> {
        let Lead {
            reign,
            tenure,
            store,
            stored,
        } = lead;
        let (settings, of) = (self.settings.clone(), tenure.clone());
        // The store blocks its thread.
        let read = tokio::task::spawn_blocking(move || {
            LoadedStore::read(&settings, Box::new(store), stored, of)
        });
        let state = match read.await {
            Ok(Ok(state)) => state,
            Ok(Err(CannotStart::Store { error, .. })) => {
                tracing::error!(%error, "this manager cannot begin to lead");
                self.instructions.send(match error {
                    StoreError::Deposed => Instruction::Deposed(reign),
                    _ => Instruction::StepDown,
                });
                return Ok(Role {
                    tenure,
                    led: false,
                    owner: None,
                });
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(CannotStart::Failed),
        };
        let etcd = Etcd::new(self.etcd.access().clone());
        let others = Others::new(etcd, self.instructions.clone(), reign);
        let stopping = self.stopped.subscribe();
        self.tell_cluster(Some(state.cluster));
        let owner = self.port.serve(state, Some(others), stopping).await?;
        self.instructions.send(Instruction::Serves(reign));
        Ok(Role {
            tenure,
            led: true,
            owner: Some((reign, owner)),
        })
    }

    fn owner_ended(&self, (reign, ended): (Reign, Ended)) -> Result<(), CannotStart> {
        match ended {
            Ok(Err(OwnerEnd::Deposed)) => self.instructions.send(Instruction::Deposed(reign)),
            // The candidate knows, or the manager stops.
            Ok(Err(OwnerEnd::TenureOver) | Ok(())) => {}
            Ok(Err(OwnerEnd::StoreLost(_))) | Err(_) => return Err(CannotStart::Failed),
        }
        Ok(())
    }
}

async fn told_to_stop(stopping: &mut watch::Receiver<bool>) {
    // Fails if the sender is gone, which is as good.
    let _ = stopping.wait_for(|&stop| stop).await;
}

type Ended = Result<Result<(), OwnerEnd>, tokio::task::JoinError>;

impl Role {
    /// Waits until the owner ends.
    async fn ended(&mut self) -> (Reign, Ended) {
        let Some((reign, owner)) = &mut self.owner else {
            return std::future::pending().await;
        };
        let ended = (*reign, owner.await);
        // Only now: the caller polls this in a `select`, which may drop it while it waits.
        self.owner = None;
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_another_leader_is_news_for_a_standby() {
        let leader = Some(ManagerId(7));
        let (change, mut standing) = watch::channel(Standing {
            other: leader,
            ..Standing::default()
        });
        change.send_modify(|now| now.reaches_etcd = true);
        let at_once = Duration::ZERO;
        let same = another_leader(&mut standing, leader);
        assert!(tokio::time::timeout(at_once, same).await.is_err());
        change.send_modify(|now| now.other = None);
        assert_eq!(another_leader(&mut standing, leader).await, Some(None));
        drop(change);
        assert_eq!(another_leader(&mut standing, None).await, None);
    }

    #[tokio::test]
    async fn a_dashboard_is_named_only_where_its_host_leads_to_it() {
        let known = ["192.0.2.1".parse().unwrap(), "::1".parse().unwrap()];
        let url = async |address: &str, bound: &str| {
            let known = std::future::ready(known.to_vec());
            dashboard_url(true, address, known, bound.parse().unwrap()).await
        };
        assert_eq!(url("m1:7078", "0.0.0.0:9080").await, "https://m1:9080/");
        assert_eq!(url("m1:7078", "192.0.2.1:9080").await, "https://m1:9080/");
        assert_eq!(url("[::1]:7078", "[::1]:9080").await, "https://[::1]:9080/");
        for elsewhere in ["192.0.2.2:9080", "127.0.0.1:9080", "[::1]:9080"] {
            assert_eq!(url("m1:7078", elsewhere).await, "", "{elsewhere}");
        }
        let unknown = std::future::ready(Vec::new());
        let clear = dashboard_url(
            false,
            "127.0.0.1:1",
            unknown,
            "127.0.0.1:2".parse().unwrap(),
        );
        assert_eq!(clear.await, "http://127.0.0.1:2/");
    }
}
