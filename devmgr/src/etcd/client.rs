//! Calls to etcd's members, each at one member and within a limit; the next member after a failure.
//!
//! A call is not repeated here, because only its caller knows whether it may be. Invariant: no lock is held
//! while a call waits.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, GetResponse, Txn, TxnResponse};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::access::Access;
use super::fault::Fault;

/// Timeout of a connection attempt.
pub(super) const CONNECTS_WITHIN: Duration = Duration::from_millis(500);
/// Interval and timeout of the pings that detect vanished members.
pub(super) const PING_EVERY: Duration = Duration::from_secs(1);
pub(super) const PING_WITHIN: Duration = Duration::from_millis(500);

/// etcd's members. Clones share the connections.
#[derive(Clone)]
pub struct Etcd {
    shared: Arc<Shared>,
}

struct Shared {
    access: Access,
    clients: Mutex<Vec<Option<Client>>>,
    /// The member to ask next.
    at: AtomicUsize,
}

impl Etcd {
    /// Connects to nobody yet.
    #[must_use]
    pub fn new(access: Access) -> Etcd {
        let clients = access.endpoints.iter().map(|_| None).collect();
        Etcd {
            shared: Arc::new(Shared {
                access,
                clients: Mutex::new(clients),
                at: AtomicUsize::new(0),
            }),
        }
    }

    /// The settings.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.shared.access
    }

    /// The number of members that are known.
    pub(super) fn members(&self) -> usize {
        self.shared.access.endpoints.len()
    }

    /// Asks one member. After a failure, the next call asks the next one.
    pub(super) async fn call<T, F>(
        &self,
        limit: Duration,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let at = self.shared.at.load(Ordering::Relaxed);
        let asked = self.call_at(at, limit, ask).await;
        if asked.is_err() {
            let next = (at + 1) % self.members();
            // Another call may have moved on already.
            let _ = self
                .shared
                .at
                .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        asked
    }

    /// Reads one key at one member.
    pub(super) async fn get(&self, limit: Duration, key: Vec<u8>) -> Result<GetResponse, Fault> {
        let get = |client: Client| async move { client.kv_client().get(key, None).await };
        self.call(limit, get).await
    }

    /// Carries out one transaction at one member.
    pub(super) async fn txn(&self, limit: Duration, txn: Txn) -> Result<TxnResponse, Fault> {
        let carry_out = |client: Client| async move { client.kv_client().txn(txn).await };
        self.call(limit, carry_out).await
    }

    /// Asks the member with this number.
    pub(super) async fn call_at<T, F>(
        &self,
        at: usize,
        limit: Duration,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let endpoint = || self.shared.access.endpoints[at].clone();
        let refused = |error| Fault::Refused {
            endpoint: endpoint(),
            error,
        };
        let asked = timeout(limit, async {
            let client = self.client(at).await?;
            ask(client).await.map_err(refused)
        });
        let asked = asked.await.unwrap_or_else(|_| {
            Err(Fault::Late {
                endpoint: endpoint(),
                limit,
            })
        });
        if let Err(fault) = &asked
            && is_of_connection(fault)
        {
            // The next one reads certificates and password again, and asks for a new token.
            self.shared.clients.lock()[at] = None;
        }
        asked
    }

    /// A client of the member with this number, for calls that nothing else here makes.
    ///
    /// # Errors
    /// [`Fault`]
    pub async fn client(&self, at: usize) -> Result<Client, Fault> {
        if let Some(client) = self.shared.clients.lock()[at].clone() {
            return Ok(client);
        }
        let client = self.shared.access.client(at).await?;
        self.shared.clients.lock()[at] = Some(client.clone());
        Ok(client)
    }
}

/// Whether another connection may cure the fault.
fn is_of_connection(fault: &Fault) -> bool {
    use tonic::Code::{InvalidArgument, PermissionDenied, Unauthenticated, Unavailable, Unknown};
    match fault {
        Fault::Late { .. } => true,
        Fault::Refused { error, .. } => match error {
            // A signed token (JWT) is an invalid argument once etcd's users or roles have changed.
            etcd_client::Error::GRpcStatus(status) => matches!(
                status.code(),
                InvalidArgument | PermissionDenied | Unauthenticated | Unavailable | Unknown
            ),
            _ => true,
        },
        _ => false,
    }
}
