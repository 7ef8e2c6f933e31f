//! Calls to the device manager about leases: one short conversation each.
//!
//! Nothing is remembered here; `icd/src/lease` keeps the life of a lease. Invariant: [`NoLease::Over`] is
//! an answer of the manager itself. Any other error says nothing about the lease.
#![forbid(unsafe_code)]

use std::time::Duration;

use bytes::Bytes;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    ConfirmReservation, Granted, ReleaseLease, RenewLease, RequestDevices, progress,
};
use causeway_proto::status::WireError;
use causeway_proto::version::WireVersion;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

pub use super::control::this_process;
use super::control::{self, Caller, Reached};
use super::retry;
use super::security::Credentials;
use crate::config::{LeaseTerms, ServerSettings};

/// Metadata key of the user's name, which a manager without authentication accepts.
const USER: &str = "causeway-user";

/// Id of a lease or reservation.
pub type LeaseId = [u8; 16];

/// A request to the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Reserve devices, given in the request's one-line form.
    Reserve(String, LeaseTerms),
    /// Turn a reservation into a lease.
    Confirm(LeaseId),
    /// Extend a lease.
    Renew(LeaseId),
}

/// Why there is no lease, or why its state is unknown.
#[derive(Debug, thiserror::Error)]
pub enum NoLease {
    /// The manager reports that the lease is over or refused.
    #[error("{0}")]
    Over(String),
    /// The manager could not be reached, or did not give an answer.
    #[error("the device manager: {0}")]
    Wire(WireError),
    /// The manager refuses to serve this user, permanently or for now.
    #[error("the device manager at {address}: {reason}")]
    Denied {
        /// The manager's address.
        address: String,
        /// The reason that it gives.
        reason: String,
    },
    /// A granted node cannot be reached. The lease is given back, because a part of the request is not
    /// what was requested.
    #[error("the lease was given back, because a granted node cannot be reached: {0}")]
    OutOfReach(WireError),
}

impl From<WireError> for NoLease {
    fn from(error: WireError) -> NoLease {
        match error {
            WireError::Refused { address, reason }
            | WireError::Unauthenticated { address, reason } => NoLease::Denied { address, reason },
            error => NoLease::Wire(error),
        }
    }
}

/// Sends a request; takes `limit` at most.
pub fn ask(
    manager: &ServerSettings,
    question: Question,
    limit: Duration,
) -> Result<Granted, NoLease> {
    let server = manager.clone();
    let asked = control::converse(move || async move {
        // A refusal by the manager is the inner result. Only outer errors may be retried.
        let converse = |_| async {
            let mut manager = Manager::reach(&server, limit).await?;
            manager.ask(question.clone()).await
        };
        control::within(limit, &server.address, retry::persistently(converse)).await
    });
    match asked {
        Ok(answer) => answer?.map_err(NoLease::Over),
        Err(error) => Err(NoLease::Wire(WireError::Unreachable {
            address: manager.address.to_string(),
            reason: error.to_string(),
        })),
    }
}

/// Gives a lease or a reservation back; takes `limit` at most.
///
/// # Errors
/// [`NoLease`]. The lease then expires by itself.
pub fn release(manager: &ServerSettings, lease: LeaseId, limit: Duration) -> Result<(), NoLease> {
    let server = manager.clone();
    let asked = control::converse(move || async move {
        let converse = |_| async { Manager::reach(&server, limit).await?.release(lease).await };
        control::within(limit, &server.address, retry::persistently(converse)).await
    });
    match asked {
        Ok(released) => released?.map_err(NoLease::Over),
        Err(error) => Err(NoLease::Wire(WireError::Unreachable {
            address: manager.address.to_string(),
            reason: error.to_string(),
        })),
    }
}

/// A conversation with any of the manager's services.
#[derive(Debug)]
pub struct Conversation {
    channel: Channel,
    credentials: Credentials,
    caller: Caller,
}

/// Connect timeout within a conversation whose total time the caller limits.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

impl Conversation {
    /// Connects. The manager has not sent anything yet when this succeeds.
    ///
    /// # Errors
    /// [`WireError`] if the manager is not there, or is not the one that the settings demand.
    pub async fn with(manager: &ServerSettings) -> Result<Conversation, WireError> {
        retry::persistently(|_| Conversation::once(manager, CONNECT_WITHIN)).await
    }

    async fn once(
        manager: &ServerSettings,
        connect_within: Duration,
    ) -> Result<Conversation, WireError> {
        let reached = Reached::at(manager, connect_within, 0).await?;
        Ok(Conversation {
            channel: reached.channel,
            credentials: reached.credentials,
            caller: reached.caller,
        })
    }

    /// The channel for a service's client.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A request with the caller's credentials and user name.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = self.credentials.request(message);
        // User names have no spaces.
        let user = this_process().user.replace(' ', "-");
        if let Ok(user) = MetadataValue::try_from(user) {
            request.metadata_mut().insert(USER, user);
        }
        request
    }

    /// Converts a status that is not the manager's answer about a lease into an error.
    #[must_use]
    pub fn explain(&self, status: &Status) -> WireError {
        self.caller.explain(status)
    }

    fn nonsense(&self, reason: &str) -> WireError {
        WireError::Protocol {
            address: self.caller.address().to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// The manager's lease service.
struct Manager {
    client: LeasesClient<Channel>,
    conversation: Conversation,
}

/// The inner result is the manager's own answer.
type Told<T> = Result<Result<T, String>, WireError>;

impl Manager {
    async fn reach(
        server: &ServerSettings,
        connect_within: Duration,
    ) -> Result<Manager, WireError> {
        let conversation = Conversation::once(server, connect_within).await?;
        Ok(Manager {
            client: LeasesClient::new(conversation.channel()),
            conversation,
        })
    }

    async fn ask(&mut self, question: Question) -> Told<Granted> {
        let told = match question {
            Question::Reserve(request, terms) => self.reserve(request, terms).await?,
            Question::Confirm(lease) => {
                let lease_id = Bytes::copy_from_slice(&lease);
                let request = self.conversation.request(ConfirmReservation { lease_id });
                let answer = self.client.confirm(request).await;
                self.word(answer.map(tonic::Response::into_inner))?
            }
            Question::Renew(lease) => {
                let lease_id = Bytes::copy_from_slice(&lease);
                let request = self.conversation.request(RenewLease { lease_id });
                let answer = self.client.renew(request).await;
                self.word(answer.map(tonic::Response::into_inner))?
            }
        };
        match &told {
            Ok(granted) if granted.lease_id.len() != 16 => Err(self
                .conversation
                .nonsense("the device manager sent a lease without an id")),
            _ => Ok(told),
        }
    }

    async fn reserve(&mut self, request: String, terms: LeaseTerms) -> Told<Granted> {
        let request = self.conversation.request(RequestDevices {
            wire_version: u32::from(WireVersion::CURRENT.number()),
            client: Some(this_process()),
            request,
            priority: terms.priority.into(),
            time_limit_ms: terms.time_limit_ms(),
            reserve: true,
            ..RequestDevices::default()
        });
        let steps = self.client.request(request).await;
        let mut steps = steps
            .map_err(|status| self.conversation.explain(&status))?
            .into_inner();
        loop {
            let step = steps
                .message()
                .await
                .map_err(|status| self.conversation.explain(&status))?;
            match step.map(|progress| progress.step) {
                Some(Some(progress::Step::Granted(granted))) => return Ok(Ok(granted)),
                Some(Some(progress::Step::Refused(refused))) => return Ok(Err(refused.reason)),
                Some(Some(progress::Step::Ended(ended))) => return Ok(Err(ended.reason)),
                // The manager is still asking nodes.
                Some(Some(progress::Step::Position(_)) | None) => {}
                None => {
                    return Err(self
                        .conversation
                        .nonsense("the device manager ended the call without granting or refusing the request"));
                }
            }
        }
    }

    async fn release(&mut self, lease: LeaseId) -> Told<()> {
        let lease_id = Bytes::copy_from_slice(&lease);
        let request = self.conversation.request(ReleaseLease { lease_id });
        let answer = self.client.release(request).await;
        self.word(answer.map(drop))
    }

    fn word<T>(&self, answer: Result<T, Status>) -> Told<T> {
        match answer {
            Ok(answer) => Ok(Ok(answer)),
            Err(status) if is_word(&status) => Ok(Err(status.message().to_owned())),
            Err(status) => Err(self.conversation.explain(&status)),
        }
    }
}

/// Whether a status is the manager's own answer about a lease, such as an unknown or expired lease. A
/// status that gRPC created itself has a source error.
#[must_use]
pub fn is_word(status: &Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::FailedPrecondition)
        && std::error::Error::source(status).is_none()
}
