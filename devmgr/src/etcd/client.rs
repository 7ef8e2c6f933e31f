//! Calls to etcd's members, each at one member and within a limit; the next member after a failure.
//!
//! A call is not repeated here, because only its caller knows whether it may be. Invariants: no lock is held
//! while a call waits. There is one login at a time at each member, which outlasts the calls that wait for it: etcd
//! makes checking a password slow on purpose, and slower than the limits of some calls on a busy machine.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, GetResponse, Txn, TxnResponse};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use super::access::Access;
use super::fault::Fault;

/// Timeout of a connection attempt.
pub(super) const CONNECTS_WITHIN: Duration = Duration::from_millis(500);
/// Timeout of a login.
const LOGS_IN_WITHIN: Duration = Duration::from_secs(5);
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
    clients: Mutex<Vec<MemberClient>>,
    /// The member to ask next.
    at: AtomicUsize,
}

/// The client of one member.
enum MemberClient {
    Empty,
    /// A task makes the client, and logs in.
    Making(watch::Receiver<Made>),
    Ready(Box<Numbered>),
}

/// The outcome of making a client; `None`: not yet.
type Made = Option<Result<Numbered, Arc<Fault>>>;

/// A client, with a number that no other client has.
#[derive(Clone)]
struct Numbered {
    number: u64,
    client: Client,
}

impl Etcd {
    /// Connects to nobody yet.
    #[must_use]
    pub fn new(access: Access) -> Etcd {
        let clients = access
            .endpoints
            .iter()
            .map(|_| MemberClient::Empty)
            .collect();
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
        let mut used = None;
        let asked = timeout(limit, async {
            let Numbered { number, client } = self.numbered(at).await?;
            used = Some(number);
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
            let client = &mut self.shared.clients.lock()[at];
            // Another call may have done so already.
            if matches!(client, MemberClient::Ready(of) if Some(of.number) == used) {
                *client = MemberClient::Empty;
            }
        }
        asked
    }

    /// A client of the member with this number, for calls that nothing else here makes.
    ///
    /// # Errors
    /// [`Fault`]
    pub async fn client(&self, at: usize) -> Result<Client, Fault> {
        Ok(self.numbered(at).await?.client)
    }

    async fn numbered(&self, at: usize) -> Result<Numbered, Fault> {
        let mut made = match &mut self.shared.clients.lock()[at] {
            MemberClient::Ready(client) => return Ok(Numbered::clone(client)),
            // Without a sender, the task has ended with its runtime.
            MemberClient::Making(made) if made.has_changed().is_ok() => made.clone(),
            client => {
                let (tell, made) = watch::channel(None);
                *client = MemberClient::Making(made.clone());
                tokio::spawn(self.clone().make(at, tell));
                made
            }
        };
        let made = made.wait_for(Option::is_some).await;
        let made = made.ok().and_then(|made| (*made).clone());
        made.ok_or(Fault::Incomplete)?.map_err(Fault::NotMade)
    }

    /// Makes the client of a member, for all who wait for it.
    async fn make(self, at: usize, tell: watch::Sender<Made>) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let made = timeout(LOGS_IN_WITHIN, self.shared.access.client(at)).await;
        let made = made.unwrap_or_else(|_| {
            Err(Fault::Late {
                endpoint: self.shared.access.endpoints[at].clone(),
                limit: LOGS_IN_WITHIN,
            })
        });
        let numbered = |client| Numbered {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            client,
        };
        let made = made.map(numbered).map_err(Arc::new);
        self.shared.clients.lock()[at] = match &made {
            Ok(client) => MemberClient::Ready(Box::new(client.clone())),
            // The next call tries again.
            Err(_) => MemberClient::Empty,
        };
        // Nobody may wait any more.
        let _ = tell.send(Some(made));
    }
}

/// Whether another connection may cure the fault.
fn is_of_connection(fault: &Fault) -> bool {
    use tonic::Code::{InvalidArgument, PermissionDenied, Unauthenticated, Unavailable, Unknown};
    match fault {
        // Pings find out whether the connection is dead, and it is made anew without another login.
        Fault::Late { .. } => false,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    /// Each of them would keep a core of etcd busy for a while.
    #[tokio::test]
    async fn calls_that_wait_share_one_login() {
        let folder = tempfile::tempdir().unwrap();
        let password = folder.path().join("password");
        std::fs::write(&password, "secret").unwrap();
        // A member that does not answer.
        let member = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let etcd = Etcd::new(Access {
            endpoints: vec![format!("http://{}", member.local_addr().unwrap())],
            prefix: "/test/".to_owned(),
            cluster: None,
            tls: None,
            login: Some(("manager".to_owned(), password)),
            ttl: Span::seconds(2),
        });
        let mut calls = JoinSet::new();
        for _ in 0..20 {
            let etcd = etcd.clone();
            calls.spawn(async move { etcd.get(Duration::from_millis(50), vec![1]).await });
        }
        let late = calls.join_all().await;
        let is_late = |of: &Result<_, _>| matches!(of, Err(Fault::Late { .. }));
        assert!(late.iter().all(is_late), "{late:?}");
        let _login = member.accept().await.unwrap();
        let another = tokio::time::timeout(Duration::ZERO, member.accept()).await;
        assert!(another.is_err(), "another login");
    }
}
