//! A caller of the manager. Each request uses its own connection, so a restart of the manager does not matter.
//!
//! Invariant: each request ends within [`PATIENCE`].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::manager::admin_client::AdminClient;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    CreateTokenRequest, DeleteUserRequest, DrainNodeRequest, Granted, LeaseInfo, LeaseState,
    ListLeasesRequest, ListNodesRequest, ListQueueRequest, NodeInfo, QueueList, ReleaseLease,
    RequestDevices, RevokeLeaseRequest, RevokeTokenRequest, User, progress,
};
use causeway_proto::version::WireVersion;
use causeway_security::ClientTls;
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::dial::dial;
use crate::{Managers, PATIENCE};

/// The manager was not reached, or refused the request.
#[derive(Debug, thiserror::Error)]
#[error("the device manager: {0}")]
pub struct Refused(pub String);

impl From<Status> for Refused {
    fn from(status: Status) -> Refused {
        Refused(format!("{:?}: {}", status.code(), status.message()))
    }
}

/// The hexadecimal digits of a node's uuid.
fn digits(node: &NodeInfo) -> String {
    let bytes = node.node_uuid.iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// A user or node that calls the manager. See the module.
#[derive(Clone)]
pub struct Caller {
    runtime: Arc<Runtime>,
    /// Of one manager, or of all that share a store.
    addresses: Vec<SocketAddr>,
    ca: PathBuf,
    token: String,
    token_id: String,
}

/// A request that waits for devices.
pub struct Waiting {
    runtime: Arc<Runtime>,
    steps: Streaming<causeway_proto::manager::Progress>,
}

impl Caller {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        addresses: &[SocketAddr],
        ca: &Path,
        token: &str,
    ) -> Caller {
        Caller {
            runtime,
            addresses: addresses.to_owned(),
            ca: ca.to_owned(),
            token: token.to_owned(),
            token_id: String::new(),
        }
    }

    /// The caller's token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The id by which the token is revoked; empty for the first administrator.
    #[must_use]
    pub fn token_id(&self) -> &str {
        &self.token_id
    }

    /// Adds a user or a node. Returns a caller with its new token.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn put_user(&self, name: &str, node: bool) -> Result<Caller, Refused> {
        let user = User {
            name: name.to_owned(),
            node,
            ..User::default()
        };
        self.ask(async |channel| {
            let mut admin = AdminClient::new(channel);
            admin.put_user(self.says(user)).await
        })?;
        self.another_token(name, Duration::ZERO)
    }

    /// Creates another token for a user. The token is valid for `lifetime`; zero means until it is revoked.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn another_token(&self, user: &str, lifetime: Duration) -> Result<Caller, Refused> {
        let token = CreateTokenRequest {
            user: user.to_owned(),
            lifetime_ms: milliseconds(lifetime),
            ..CreateTokenRequest::default()
        };
        let made = self.ask(async |channel| {
            let mut admin = AdminClient::new(channel);
            admin.create_token(self.says(token)).await
        })?;
        Ok(Caller {
            token: made.token,
            token_id: made.token_id,
            ..self.clone()
        })
    }

    /// Deletes a user.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn delete_user(&self, name: &str) -> Result<(), Refused> {
        let name = name.to_owned();
        let request = DeleteUserRequest { name };
        self.ask(async |channel| {
            let mut admin = AdminClient::new(channel);
            admin.delete_user(self.says(request)).await
        })?;
        Ok(())
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn revoke_token(&self, token_id: &str) -> Result<(), Refused> {
        let token_id = token_id.to_owned();
        self.ask(async |channel| {
            let mut admin = AdminClient::new(channel);
            admin
                .revoke_token(self.says(RevokeTokenRequest { token_id }))
                .await
        })?;
        Ok(())
    }

    /// Lists the nodes.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn nodes(&self) -> Result<Vec<NodeInfo>, Refused> {
        let list = self.ask(async |channel| {
            let mut admin = AdminClient::new(channel);
            admin.list_nodes(self.says(ListNodesRequest {})).await
        })?;
        Ok(list.nodes)
    }

    /// Has the manager move all leases of a node to other nodes. What is still there after `within` ends; zero: nothing.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn migrate(&self, node: &NodeInfo, within: Duration) -> Result<(), Refused> {
        self.drain(DrainNodeRequest {
            node: digits(node),
            draining: true,
            migrate: true,
            within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Ends the draining of a node.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn resume(&self, node: &NodeInfo) -> Result<(), Refused> {
        self.drain(DrainNodeRequest {
            node: digits(node),
            ..DrainNodeRequest::default()
        })
    }

    fn drain(&self, request: DrainNodeRequest) -> Result<(), Refused> {
        self.ask(async |channel| {
            let mut admin = AdminClient::new(channel);
            admin.drain_node(self.says(request)).await
        })?;
        Ok(())
    }

    /// Lists the leases that this caller may see.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn leases(&self) -> Result<Vec<LeaseInfo>, Refused> {
        let list = self.ask(async |channel| {
            let mut leases = LeasesClient::new(channel);
            leases.list_leases(self.says(ListLeasesRequest {})).await
        })?;
        Ok(list.leases)
    }

    /// Returns the states of these leases.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn states(&self) -> Result<Vec<LeaseState>, Refused> {
        Ok(self.leases()?.iter().map(LeaseInfo::state).collect())
    }

    /// Lists the waiting requests.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn queue(&self) -> Result<QueueList, Refused> {
        self.ask(async |channel| {
            let mut leases = LeasesClient::new(channel);
            leases.list_queue(self.says(ListQueueRequest {})).await
        })
    }

    /// Revokes a lease, as an administrator.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn revoke(&self, lease: &LeaseInfo, reason: &str) -> Result<(), Refused> {
        let request = RevokeLeaseRequest {
            lease_id: lease.lease_id.clone(),
            reason: reason.to_owned(),
        };
        self.ask(async |channel| {
            let mut admin = AdminClient::new(channel);
            admin.revoke_lease(self.says(request)).await
        })?;
        Ok(())
    }

    /// Releases a lease, as its user.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn release(&self, lease: &Granted) -> Result<(), Refused> {
        let lease_id = lease.lease_id.clone();
        self.ask(async |channel| {
            let mut leases = LeasesClient::new(channel);
            leases.release(self.says(ReleaseLease { lease_id })).await
        })?;
        Ok(())
    }

    /// Leases devices at once.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached, refuses, or has no free devices.
    pub fn lease(&self, request: &str) -> Result<Granted, Refused> {
        self.request(request, Duration::ZERO, false)?.granted()
    }

    /// Requests devices, and waits until they are free.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn wait_for(&self, request: &str) -> Result<Waiting, Refused> {
        self.wait_for_so_long(request, Duration::ZERO)
    }

    /// Requests devices, and waits at most `limit`; zero means as long as the policy permits.
    ///
    /// # Errors
    /// [`Refused`] if the manager is not reached or refuses.
    pub fn wait_for_so_long(&self, request: &str, limit: Duration) -> Result<Waiting, Refused> {
        self.request(request, limit, true)
    }

    fn request(&self, request: &str, limit: Duration, wait: bool) -> Result<Waiting, Refused> {
        let request = RequestDevices {
            wire_version: WireVersion::CURRENT.number().into(),
            request: request.to_owned(),
            time_limit_ms: milliseconds(limit),
            wait,
            ..RequestDevices::default()
        };
        let steps = self.ask(async |channel| {
            let mut leases = LeasesClient::new(channel);
            leases.request(self.says(request)).await
        })?;
        Ok(Waiting {
            runtime: self.runtime.clone(),
            steps,
        })
    }

    fn says<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Ok(value) = format!("Bearer {}", self.token).parse() {
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    fn ask<T>(
        &self,
        question: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, Status>,
    ) -> Result<T, Refused> {
        let asked = async {
            let channel = self.connect().await?;
            Ok(question(channel).await?.into_inner())
        };
        self.runtime.block_on(async {
            let asked = tokio::time::timeout(PATIENCE, asked).await;
            asked.map_err(|_| Refused(format!("silent for {PATIENCE:?}")))?
        })
    }

    /// Opens a connection with TLS, to the manager that leads if there are several.
    async fn connect(&self) -> Result<Channel, Refused> {
        let no = |error: &dyn std::fmt::Display| Refused(error.to_string());
        if let [address] = self.addresses[..] {
            let tls = ClientTls::load(&self.ca, None).map_err(|error| no(&error))?;
            return dial(address, &tls).await;
        }
        let managers = Managers::new(&self.addresses, &self.ca, &self.token);
        let managers = managers.map_err(|error| no(&error))?;
        Ok(managers.leader(|_, _| Ok(()), |_| {}).await)
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Waiting {
    /// Returns the request's position in the queue, from 1, when it has one.
    ///
    /// # Errors
    /// [`Refused`] if the request will never have a position.
    pub fn position(&mut self) -> Result<u32, Refused> {
        match self.next()? {
            progress::Step::Position(at) => Ok(at.position),
            other => Err(Refused(format!("{other:?}"))),
        }
    }

    /// Waits for the devices and returns the lease.
    ///
    /// # Errors
    /// [`Refused`] if the request fails.
    pub fn granted(mut self) -> Result<Granted, Refused> {
        loop {
            match self.next()? {
                progress::Step::Position(_) => {}
                progress::Step::Granted(granted) => return Ok(granted),
                progress::Step::Refused(refused) => return Err(Refused(refused.reason)),
                progress::Step::Ended(ended) => return Err(Refused(ended.reason)),
            }
        }
    }

    fn next(&mut self) -> Result<progress::Step, Refused> {
        let Waiting { runtime, steps } = self;
        // A timer belongs to the runtime in which it is made.
        let message = runtime.block_on(async {
            let message = tokio::time::timeout(PATIENCE, steps.message());
            message.await
        });
        let message = message.map_err(|_| Refused(format!("no news for {PATIENCE:?}")))??;
        let step = message.and_then(|progress| progress.step);
        step.ok_or_else(|| Refused("it says no more".to_owned()))
    }
}
