//! All messages: those that a service receives or sends, and nested ones that are processed further.

use std::time::Duration;

use causeway_daemon::handover::AwayTimes;
use causeway_daemon::worker::service::batch;
use causeway_proto::command::{self, EventBatch};
use causeway_proto::region::Region;
use causeway_proto::{control, manager};
use prost::Message;
use rand::rngs::StdRng;

use super::{Form, Target};
use crate::message::valid;

/// Number of attempts to find a valid message.
const TRIES: usize = 1500;

fn again<M: Message + Default>(bytes: &[u8]) -> Option<Vec<u8>> {
    M::decode(bytes).ok().map(|message| message.encode_to_vec())
}

/// Whether the bytes are a message of this type. Checks that the message survives another encoding.
pub(super) fn reads<M: Message + Default>(bytes: &[u8]) -> bool {
    let Some(encoded) = again::<M>(bytes) else {
        return false;
    };
    assert_eq!(again::<M>(&encoded).as_ref(), Some(&encoded));
    true
}

/// Returns valid messages of a type.
pub(super) fn samples<M: Message + Default>(random: &mut StdRng) -> Vec<Vec<u8>> {
    valid(again::<M>, TRIES, random)
}

fn message<M: Message + Default + 'static>(name: &'static str, random: &mut StdRng) -> Target {
    Target::new(name, Form::Message, samples::<M>(random), reads::<M>)
}

macro_rules! messages {
    ($random:expr, $($weight:literal: $($module:ident::$message:ident)*;)*) => {
        vec![$($(message::<$module::$message>(stringify!($message), $random).weighing($weight)),*),*]
    };
}

pub(super) fn targets(random: &mut StdRng) -> Vec<Target> {
    let mut targets = messages!(random,
        20: manager::FromNode manager::ToNode manager::RequestDevices manager::Progress manager::Considered
            manager::Granted manager::Claim manager::SignedLease manager::Snapshot
            control::Inventory control::OpenSessionRequest control::OpenSessionReply control::NodeStatus;
        4: control::GetInventoryRequest control::EndAwayRequest control::EndAwayReply control::GetSessionEndRequest
            control::SessionEnd control::CloseSessionRequest control::CloseSessionReply
            control::GetStatusRequest manager::ConfirmReservation manager::RenewLease manager::ReleaseLease
            manager::ReleaseLeaseReply manager::ListLeasesRequest manager::LeaseList manager::ListQueueRequest
            manager::QueueList manager::GetManagerRequest manager::ManagerInfo manager::ListNodesRequest
            manager::NodeList manager::DrainNodeRequest manager::DrainNodeReply manager::RemoveNodeRequest
            manager::RemoveNodeReply manager::RevokeLeaseRequest manager::RevokeLeaseReply
            manager::ListUsersRequest manager::UserList manager::User manager::PutUserReply
            manager::DeleteUserRequest manager::DeleteUserReply manager::CreateTokenRequest
            manager::CreateTokenReply manager::ListTokensRequest manager::TokenList
            manager::RevokeTokenRequest manager::RevokeTokenReply manager::ListQuotasRequest manager::QuotaList
            manager::Quota manager::PutQuotaReply manager::WatchRequest manager::MeasuringAllowed manager::LinkList
            control::MeasureLinkRequest control::MeasureLinkReply;
    );
    targets.push(command_batch(random));
    targets.push(message::<EventBatch>("EventBatch", random).weighing(60));
    targets.push(region(random));
    targets.push(away_times(random));
    targets
}

/// The longest time for which the daemon keeps a session that is away.
const LIMIT: Duration = Duration::from_secs(600);

// What a client asks for in case that its connections break.
fn away_times(random: &mut StdRng) -> Target {
    let samples = samples::<control::OpenSessionRequest>(random);
    Target::new("away times", Form::Message, samples, |bytes| {
        let Ok(request) = control::OpenSessionRequest::decode(bytes) else {
            return false;
        };
        let asked = [request.resume_ms, request.keep_ms].map(u64::from);
        let [resume, keep] = asked.map(Duration::from_millis);
        let granted = AwayTimes::granted(resume, keep, LIMIT);
        assert!(granted.resume <= resume && granted.keep <= keep && granted.longest() <= LIMIT);
        assert_eq!(granted.longest().is_zero(), resume.is_zero());
        true
    })
    .weighing(4)
}

// Decodes as a worker does, into memory that was used before.
fn command_batch(random: &mut StdRng) -> Target {
    let samples = valid(again::<command::CommandBatch>, 4 * TRIES, random);
    let mut spare = Vec::new();
    Target::new("CommandBatch", Form::Message, samples, move |bytes| {
        let decoded = batch::decode(bytes, std::mem::take(&mut spare));
        let plain = command::CommandBatch::decode(bytes);
        let Ok(batch) = decoded else {
            assert!(plain.is_err());
            return false;
        };
        assert_eq!(plain.as_ref(), Ok(&batch));
        spare = batch.commands;
        spare.truncate(16);
        spare.shrink_to_fit();
        true
    })
    .weighing(120)
}

fn region(random: &mut StdRng) -> Target {
    Target::new(
        "Region",
        Form::Message,
        samples::<command::Region>(random),
        |bytes| {
            let Ok(wire) = command::Region::decode(bytes) else {
                return false;
            };
            let Ok(region) = Region::from_wire(&wire) else {
                return false;
            };
            assert_eq!(Region::from_wire(&region.to_wire()), Ok(region));
            let (mut packed, most) = (0, region.packed_length().min(1 << 16));
            for segment in region.segments(0, most).take(1 << 12) {
                assert_eq!(segment.packed, packed);
                assert!(segment.length > 0 && segment.offset >= region.offset());
                assert!(
                    segment
                        .offset
                        .checked_add(segment.length)
                        .is_some_and(|end| end <= region.end())
                );
                packed += segment.length;
            }
            true
        },
    )
}
