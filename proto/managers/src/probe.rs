//! Asks a device manager over a connection whether it leads.
//!
//! The question is `GetManager`, which a leader answers without its state. Invariant: a manager counts as
//! leader only if its answer is believed.

use causeway_proto::manager::GetManagerRequest;
use causeway_proto::manager::admin_client::AdminClient;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::find::NotLeader;
use crate::highest::{Disbelieved, HighestTerm, leader_of};
use crate::search::Refusal;

/// Why a manager does not count as the leader.
#[derive(Debug, thiserror::Error)]
pub enum Probed {
    /// The manager answers that it does not lead, or that it cannot serve now.
    #[error("{}", .0.message())]
    NotLeading(Status),
    /// The manager's answer is not believed.
    #[error(transparent)]
    Disbelieved(#[from] Disbelieved),
    /// The connection broke.
    #[error("{}", .0.message())]
    Broken(Status),
}

impl Probed {
    /// What a search makes of it. `number_of` finds the leader that a standby names.
    pub fn refusal(&self, number_of: impl FnOnce(&str) -> Option<usize>) -> Refusal {
        match self {
            Probed::NotLeading(status) => {
                Refusal::NotLeading(leader_of(status.metadata()).and_then(number_of))
            }
            // The manager will hear that it was deposed.
            Probed::Disbelieved(Disbelieved::LowerTerm { .. }) => Refusal::NotLeading(None),
            Probed::Disbelieved(Disbelieved::OtherCluster { .. }) | Probed::Broken(_) => {
                Refusal::Failed
            }
        }
    }

    /// The outcome for a [`crate::Finder`], with the reason that `reason` makes.
    pub fn not_leader<E>(
        self,
        number_of: impl FnOnce(&str) -> Option<usize>,
        reason: impl FnOnce(Probed) -> E,
    ) -> NotLeader<E> {
        NotLeader {
            refusal: self.refusal(number_of),
            reason: reason(self),
        }
    }
}

/// Whether a status is the manager's own, and not made by gRPC itself, which has a source error.
#[must_use]
pub fn is_answer(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
}

/// Judges a status of any call: whether the manager that sent it leads. `hear` gets the answer's metadata,
/// and whether a standby sent it.
///
/// # Errors
/// [`Probed`] if the manager does not lead, or is not believed. Other statuses of a leader are fine.
pub fn judge(
    status: Status,
    hear: impl FnOnce(&MetadataMap, bool) -> Result<(), Disbelieved>,
) -> Result<Status, Probed> {
    if !is_answer(&status) {
        return Err(Probed::Broken(status));
    }
    let stands_by = status.code() == Code::Unavailable;
    hear(status.metadata(), stands_by)?;
    match stands_by {
        true => Err(Probed::NotLeading(status)),
        false => Ok(status),
    }
}

/// Hears the metadata of an answer.
///
/// # Errors
/// [`Disbelieved`].
pub fn hear(
    highest: &mut HighestTerm,
    metadata: &MetadataMap,
    stands_by: bool,
) -> Result<(), Disbelieved> {
    match stands_by {
        true => highest.hear_standby_metadata(metadata),
        false => highest.hear_metadata(metadata),
    }
}

/// Asks whether the manager leads. `request` carries the caller's credentials. A manager that refuses the
/// question itself counts as the leader, so that the caller's next call gets the reason.
///
/// # Errors
/// [`Probed`].
pub async fn leads(
    channel: Channel,
    request: Request<GetManagerRequest>,
    hear: impl FnOnce(&MetadataMap, bool) -> Result<(), Disbelieved>,
) -> Result<(), Probed> {
    match AdminClient::new(channel).get_manager(request).await {
        Ok(answer) => Ok(hear(answer.metadata(), false)?),
        Err(status) => judge(status, hear).map(drop),
    }
}
