//! Calls to the device manager about leases: one short conversation each.
//!
//! Nothing is remembered here; `icd/src/lease` keeps the life of a lease. Invariant: [`NoLease::Over`] is
//! an answer of the manager that leads. Any other error says nothing about the lease.
#![forbid(unsafe_code)]

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use causeway_managers::highest::leader_of;
use causeway_managers::probe::{self, Probed};
use causeway_proto::endpoint::KeepAlive;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    ConfirmReservation, Granted, ReleaseLease, RenewLease, RequestDevices, progress,
};
use causeway_proto::status::WireError;
use causeway_proto::version::WireVersion;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

pub use super::control::this_process;
use super::control::{self, Caller, Reached};
use super::leader::{self, Cluster};
use super::security::Credentials;
use crate::config::{LeaseTerms, ServerSettings};

/// Metadata key of the user's name, which a manager without authentication accepts.
const USER: &str = "causeway-user";

/// Id of a lease or reservation.
pub type LeaseId = [u8; 16];

/// A request to the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Reserve devices.
    Reserve {
        /// The request's one-line form.
        request: String,
        /// What the program says of the lease.
        terms: LeaseTerms,
        /// Whether the program can go on at other devices if their node is lost.
        replace: bool,
    },
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
    /// The lease has no devices at present, because those of a lost node are being replaced.
    #[error(
        "the device manager at {0} still seeks devices in place of the lease's lost ones; ask for devices again later"
    )]
    Replacing(String),
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

/// Longest wait for one manager's answer to a question that it decides at once, if there are others.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Sends a request; takes `limit` at most. Of several managers, the one that leads is asked. If the leader
/// changes meanwhile, the next one is asked.
pub fn ask(
    manager: &ServerSettings,
    question: Question,
    limit: Duration,
) -> Result<Granted, NoLease> {
    let each = match question {
        // The manager may ask its nodes.
        Question::Reserve { .. } => limit,
        Question::Confirm(_) | Question::Renew(_) => ANSWER_WITHIN,
    };
    // A repetition of the request is the same request, whichever manager gets it.
    let id: LeaseId = rand::random();
    talk(manager, limit, each, move |mut manager| {
        let question = question.clone();
        async move { manager.ask(question, id).await }
    })
}

/// Gives a lease or a reservation back; takes `limit` at most.
///
/// # Errors
/// [`NoLease`]. The lease then expires by itself.
pub fn release(manager: &ServerSettings, lease: LeaseId, limit: Duration) -> Result<(), NoLease> {
    talk(
        manager,
        limit,
        ANSWER_WITHIN,
        move |mut manager| async move { manager.release(lease).await },
    )
}

// A refusal by the manager is the inner result. Only outer errors may be retried.
fn talk<T, F>(
    manager: &ServerSettings,
    limit: Duration,
    each: Duration,
    converse: impl Fn(Manager) -> F + Send + 'static,
) -> Result<T, NoLease>
where
    T: Send + 'static,
    F: Future<Output = Told<T>>,
{
    let server = manager.clone();
    let asked = control::converse(move || async move {
        let converse = |conversation| converse(Manager::new(conversation));
        leader::talk(&server, limit, each, converse).await
    });
    match asked {
        Ok(told) => told?.map_err(NoLease::Over),
        Err(error) => Err(NoLease::Wire(WireError::Unreachable {
            address: manager.all_addresses(),
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
    cluster: Cluster,
}

impl Conversation {
    /// Connects; takes `limit` at most. Of several managers, the one that leads is asked. A single manager
    /// has not sent anything yet when this succeeds.
    ///
    /// # Errors
    /// [`WireError`] if no manager is there, none leads, or it is not the one that the settings demand.
    pub async fn with(
        manager: &ServerSettings,
        limit: Duration,
    ) -> Result<Conversation, WireError> {
        leader::reach(manager, limit).await
    }

    /// Has a conversation with the manager that leads; takes `limit` at most, and `each` at most with one of several
    /// managers. `converse` is called again, with the manager that leads then, if the connection breaks or the manager
    /// stops leading.
    ///
    /// # Errors
    /// [`WireError`] of the last conversation, or as [`Conversation::with`].
    pub async fn repeated<T, F>(
        manager: &ServerSettings,
        limit: Duration,
        each: Duration,
        converse: impl Fn(Conversation) -> F,
    ) -> Result<T, WireError>
    where
        F: Future<Output = Result<T, WireError>>,
    {
        leader::talk(manager, limit, each, converse).await
    }

    /// Connects to the one address of `manager`, which is one of the cluster.
    pub(super) async fn once(
        manager: &ServerSettings,
        cluster: &Cluster,
        connect_within: Duration,
    ) -> Result<Conversation, WireError> {
        let keep_alive = KeepAlive::to_manager(cluster.has_several());
        let reached = Reached::at(manager, connect_within, 0, keep_alive).await?;
        Ok(Conversation {
            channel: reached.channel,
            credentials: reached.credentials,
            caller: reached.caller,
            cluster: cluster.clone(),
        })
    }

    /// The channel for a service's client.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The address that was reached.
    #[must_use]
    pub fn address(&self) -> &str {
        self.caller.address()
    }

    /// A request with the caller's credentials and user name, and the highest term that this process has met.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = self.credentials.request(message);
        // User names have no spaces.
        let user = this_process().user.replace(' ', "-");
        if let Ok(user) = MetadataValue::try_from(user) {
            request.metadata_mut().insert(USER, user);
        }
        self.cluster.tell(request.metadata_mut());
        request
    }

    /// Decides whether an answer is believed.
    ///
    /// # Errors
    /// [`WireError::NotLeading`] for an answer of a deposed leader, or of another cluster.
    pub fn believe(&self, metadata: &MetadataMap) -> Result<(), WireError> {
        let heard = self.cluster.hear(metadata, false);
        heard.map_err(|disbelieved| self.leads_not(disbelieved.to_string()))
    }

    /// Whether a status is the manager's own answer about a lease, such as an unknown or expired lease, and
    /// is believed.
    #[must_use]
    pub fn is_word(&self, status: &Status) -> bool {
        matches!(status.code(), Code::NotFound | Code::FailedPrecondition)
            && probe::is_answer(status)
            && self.believe(status.metadata()).is_ok()
    }

    /// The error for a status of a manager that does not lead, or is not believed. `None` for any other
    /// status.
    #[must_use]
    pub fn not_leading(&self, status: &Status) -> Option<WireError> {
        let hear = |metadata: &MetadataMap, stands_by| self.cluster.hear(metadata, stands_by);
        match probe::judge(status.clone(), hear) {
            Ok(_) | Err(Probed::Broken(_)) => None,
            // A manager that is alone may refuse for its own reasons.
            Err(Probed::NotLeading(status))
                if !self.cluster.has_several() && leader_of(status.metadata()).is_none() =>
            {
                None
            }
            Err(not) => Some(self.leads_not(not.to_string())),
        }
    }

    /// Converts a status that is not the manager's answer about a lease into an error.
    #[must_use]
    pub fn explain(&self, status: &Status) -> WireError {
        self.not_leading(status)
            .unwrap_or_else(|| self.caller.explain(status))
    }

    pub(super) fn leads_not(&self, reason: String) -> WireError {
        WireError::NotLeading {
            address: self.caller.address().to_owned(),
            reason,
        }
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
    fn new(conversation: Conversation) -> Manager {
        Manager {
            client: LeasesClient::new(conversation.channel()),
            conversation,
        }
    }

    async fn ask(&mut self, question: Question, id: LeaseId) -> Told<Granted> {
        let told = match question {
            Question::Reserve {
                request,
                terms,
                replace,
            } => {
                let devices = RequestDevices {
                    lease_id: Bytes::copy_from_slice(&id),
                    wire_version: u32::from(WireVersion::CURRENT.number()),
                    client: Some(this_process()),
                    request,
                    priority: terms.priority.into(),
                    time_limit_ms: terms.time_limit_ms(),
                    reserve: true,
                    replace,
                    ..RequestDevices::default()
                };
                self.reserve(devices).await?
            }
            Question::Confirm(lease) => {
                let lease_id = Bytes::copy_from_slice(&lease);
                let request = self.conversation.request(ConfirmReservation { lease_id });
                let answer = self.client.confirm(request).await;
                self.word(answer)?
            }
            Question::Renew(lease) => {
                let lease_id = Bytes::copy_from_slice(&lease);
                let request = self.conversation.request(RenewLease { lease_id });
                let answer = self.client.renew(request).await;
                self.word(answer)?
            }
        };
        match &told {
            Ok(granted) if granted.lease_id.len() != 16 => Err(self
                .conversation
                .nonsense("the device manager sent a lease without an id")),
            _ => Ok(told),
        }
    }

    async fn reserve(&mut self, devices: RequestDevices) -> Told<Granted> {
        let request = self.conversation.request(devices);
        let steps = self.client.request(request).await;
        let steps = steps.map_err(|status| self.conversation.explain(&status))?;
        self.conversation.believe(steps.metadata())?;
        let mut steps = steps.into_inner();
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
        Ok(self.word(answer)?.map(drop))
    }

    fn word<T>(&self, answer: Result<Response<T>, Status>) -> Told<T> {
        match answer {
            Ok(answer) => {
                self.conversation.believe(answer.metadata())?;
                Ok(Ok(answer.into_inner()))
            }
            Err(status) if self.conversation.is_word(&status) => {
                Ok(Err(status.message().to_owned()))
            }
            Err(status) => Err(self.conversation.explain(&status)),
        }
    }
}
