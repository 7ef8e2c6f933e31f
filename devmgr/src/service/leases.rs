//! The `Leases` service, for programs and tools that use leases.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use causeway_proto::manager::leases_server::Leases;
use causeway_proto::manager::{
    AllowMeasuringRequest, ConfirmReservation, Considered, Fitting, Granted, KindList, LeaseList,
    LinkList, ListKindsRequest, ListLeasesRequest, ListLinksRequest, ListQueueRequest,
    MeasuringAllowed, Progress, QueueList, RefusalCode, Refused, ReleaseLease, ReleaseLeaseReply,
    RenewLease, RequestDevices, considered, progress,
};
use causeway_proto::request::DeviceRequest;
use causeway_proto::version;
use causeway_security::LeaseKey;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::authentication::{Authenticator, as_user, wall_now};
use super::book::Sight;
use super::input::{Answer, Ask, Input, LeaseCall, News, Watcher, WatcherId};
use super::links::{self, ReportedLinks, SeenNode};
use super::pace::{CLAIMED, CONSIDERED, Pace, REFUSED};
use super::reading::{ask, gone, read};
use super::wire;
use crate::identity::Caller;
use crate::lease::{LeaseId, NewRequest, Outcome};
use crate::policy::UserName;
use crate::policy::ledger::Party;
use crate::settings::Visible;

/// The `Leases` service.
pub(super) struct LeasesService {
    pub(super) authenticator: Authenticator,
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) visible: Visible,
    /// Whether the manager serves other machines without both TLS and authentication.
    pub(super) insecure: bool,
    pub(super) started: Instant,
    /// Rate limit of calls that ask what a request would get.
    pub(super) pace: Mutex<Pace>,
    /// Rate limit of refusals of requests that do not wait.
    pub(super) refusals: Arc<Mutex<Pace>>,
    pub(super) links: ReportedLinks,
    /// Signs claims for measuring.
    pub(super) key: Arc<LeaseKey>,
    /// Rate limit of claims for measuring.
    pub(super) claims: Mutex<Pace>,
}

#[tonic::async_trait]
impl Leases for LeasesService {
    type RequestStream = Pin<Box<dyn Stream<Item = Result<Progress, Status>> + Send>>;

    async fn request(
        &self,
        request: Request<RequestDevices>,
    ) -> Result<Response<Self::RequestStream>, Status> {
        let caller = self.authenticator.user(&request)?;
        let request = request.into_inner();
        check_version(&request)?;
        let (send, receive) = mpsc::channel(2);
        match new_request(caller.clone(), &request)? {
            Ok(new) => {
                let refusals = (!new.wait).then(|| Refusals {
                    user: new.party.user.clone(),
                    started: self.started,
                    pace: Arc::clone(&self.refusals),
                });
                // Before the owner is asked, because a refusal costs it a look at the whole cluster.
                if refusals.as_ref().is_some_and(Refusals::are_too_many) {
                    return Err(Status::resource_exhausted(format!(
                        "rate limit of refused requests exceeded: {} times at once and then every {} ms; to wait for \
                         devices, causeway run --wait",
                        REFUSED.at_once,
                        REFUSED.each.as_millis()
                    )));
                }
                // The stream is watched before the owner gets the request, so that no report is lost.
                let (watcher, heard) = Watcher::new(caller, new.wait);
                let following = Following {
                    refusals,
                    lease: new.lease,
                    watcher: watcher.id,
                    beyond_grant: request.follow,
                    owner: self.owner.clone(),
                };
                let client = request.client.map(shortened).unwrap_or_default();
                let input = Input::Request(new, client, watcher);
                self.owner.send(input).await.map_err(|_| gone())?;
                tokio::spawn(following.tell(heard, send));
            }
            Err(refused) => {
                let step = Some(progress::Step::Refused(refused));
                // Cannot fail: the channel is empty.
                let _ = send.try_send(Ok(Progress { step }));
            }
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(receive))))
    }

    async fn consider(
        &self,
        request: Request<RequestDevices>,
    ) -> Result<Response<Considered>, Status> {
        let caller = self.authenticator.user(&request)?;
        let request = request.into_inner();
        check_version(&request)?;
        if !self.pace.lock().may(&caller.user, self.started.elapsed()) {
            return Err(Status::resource_exhausted(format!(
                "rate limit exceeded: {} times at once and then every {} s; to wait for devices, causeway run --wait",
                CONSIDERED.at_once,
                CONSIDERED.each.as_secs()
            )));
        }
        let sees_others = whose(self.visible, &caller).is_none();
        let considered = match new_request(caller, &request)? {
            Ok(new) => {
                let answer = ask(&self.owner, |answer| Input::Consider(new, answer)).await?;
                let shown = |nodes| match sees_others {
                    true => nodes,
                    false => vec![wire::unplaced(nodes)],
                };
                answer.map(shown).map_err(|refusal| wire::refused(&refusal))
            }
            Err(refused) => Err(refused),
        };
        let outcome = Some(match considered {
            Ok(nodes) => considered::Outcome::Fitting(Fitting { nodes }),
            Err(refused) => considered::Outcome::Refused(refused),
        });
        Ok(Response::new(Considered { outcome }))
    }

    async fn confirm(
        &self,
        request: Request<ConfirmReservation>,
    ) -> Result<Response<Granted>, Status> {
        let caller = self.authenticator.user(&request)?;
        let lease = wire::lease_id(&request.get_ref().lease_id)?;
        self.granted(LeaseCall::Confirm, lease, caller).await
    }

    async fn renew(&self, request: Request<RenewLease>) -> Result<Response<Granted>, Status> {
        let caller = self.authenticator.user(&request)?;
        let lease = wire::lease_id(&request.get_ref().lease_id)?;
        self.granted(LeaseCall::Renew, lease, caller).await
    }

    async fn release(
        &self,
        request: Request<ReleaseLease>,
    ) -> Result<Response<ReleaseLeaseReply>, Status> {
        let caller = self.authenticator.user(&request)?;
        let lease = wire::lease_id(&request.get_ref().lease_id)?;
        match self.ask(LeaseCall::Release, lease, caller.user).await? {
            Answer::Granted(_) => Err(Status::internal(
                "internal error: the lease was not released",
            )),
            Answer::Other(Outcome::Unknown) => Err(unknown()),
            Answer::Over(_) | Answer::Other(_) => Ok(Response::new(ReleaseLeaseReply {})),
        }
    }

    async fn list_leases(
        &self,
        request: Request<ListLeasesRequest>,
    ) -> Result<Response<LeaseList>, Status> {
        let whose = whose(self.visible, &self.authenticator.user(&request)?);
        let list = read(&self.owner, move |sight| lease_list(sight, whose.as_ref())).await?;
        Ok(Response::new(list))
    }

    async fn list_queue(
        &self,
        request: Request<ListQueueRequest>,
    ) -> Result<Response<QueueList>, Status> {
        let whose = whose(self.visible, &self.authenticator.user(&request)?);
        let list = read(&self.owner, move |sight| queue_list(sight, whose.as_ref())).await?;
        Ok(Response::new(list))
    }

    async fn list_kinds(
        &self,
        request: Request<ListKindsRequest>,
    ) -> Result<Response<KindList>, Status> {
        self.authenticator.user(&request)?;
        let insecure = self.insecure;
        let list = read(&self.owner, move |sight| KindList {
            kinds: wire::kinds(sight.book),
            insecure,
            insecure_nodes: wire::insecure_nodes(sight.book),
        });
        Ok(Response::new(list.await?))
    }

    async fn allow_measuring(
        &self,
        request: Request<AllowMeasuringRequest>,
    ) -> Result<Response<MeasuringAllowed>, Status> {
        let caller = self.authenticator.user(&request)?;
        let is_paced = (self.claims.lock()).may(&caller.user, self.started.elapsed());
        if !is_paced {
            return Err(Status::resource_exhausted(format!(
                "rate limit of claims for measuring exceeded: {} times at once and then every {} s",
                CLAIMED.at_once,
                CLAIMED.each.as_secs()
            )));
        }
        let nodes = seen_nodes(&self.owner, self.visible, &caller).await?;
        tracing::info!(user = %caller.user, nodes = nodes.len(), "measuring of links allowed");
        let key = Arc::clone(&self.key);
        let sign = move || links::allowed(&key, nodes, (&caller.user, caller.admin), wall_now());
        let allowed = tokio::task::spawn_blocking(sign).await;
        allowed.map(Response::new).map_err(|_| gone())
    }

    type ListLinksStream = ReceiverStream<Result<LinkList, Status>>;

    async fn list_links(
        &self,
        request: Request<ListLinksRequest>,
    ) -> Result<Response<Self::ListLinksStream>, Status> {
        let caller = self.authenticator.user(&request)?;
        let (authenticator, owner) = (self.authenticator.clone(), self.owner.clone());
        let (visible, links) = (self.visible, self.links.clone());
        let nodes = seen_nodes(&owner, visible, &caller).await?;
        let (reader, parts) = mpsc::channel(1);
        tokio::spawn(links::list(links, nodes, reader, move || {
            let caller = authenticator.again(&caller).and_then(as_user);
            let owner = owner.clone();
            async move {
                let whose = whose(visible, &caller?);
                // Names and addresses of all nodes, again for each part, would keep grants waiting.
                read(&owner, move |sight| links::seen(sight.book, whose.as_ref())).await
            }
        }));
        Ok(Response::new(ReceiverStream::new(parts)))
    }
}

/// The nodes that a caller may see.
async fn seen_nodes(
    owner: &mpsc::Sender<Input>,
    visible: Visible,
    caller: &Caller,
) -> Result<Vec<SeenNode>, Status> {
    let whose = whose(visible, caller);
    let look = move |sight: &Sight<'_>| links::seen_nodes(sight.book, whose.as_ref());
    read(owner, look).await
}

impl LeasesService {
    async fn ask(&self, call: LeaseCall, lease: LeaseId, user: UserName) -> Result<Answer, Status> {
        let call = Ask { call, lease, user };
        let answer = ask(&self.owner, |answer| Input::Ask(call, answer)).await?;
        answer.map_err(|unwritten| wire::unwritten(&unwritten))
    }

    async fn granted(
        &self,
        call: LeaseCall,
        lease: LeaseId,
        caller: Caller,
    ) -> Result<Response<Granted>, Status> {
        match self.ask(call, lease, caller.user).await? {
            Answer::Granted(granted) => Ok(Response::new(granted)),
            // The reason is a sentence of its own: clients say in their own words that the lease has ended.
            Answer::Over(reason) => Err(Status::failed_precondition(reason)),
            Answer::Other(Outcome::Offered | Outcome::Waiting { .. }) => Err(
                Status::failed_precondition("the lease has not been granted yet"),
            ),
            Answer::Other(_) => Err(unknown()),
        }
    }
}

/// The user whose leases the caller may see. `None`: everyone's.
pub(super) fn whose(visible: Visible, caller: &Caller) -> Option<UserName> {
    (visible == Visible::Own && !caller.admin).then(|| caller.user.clone())
}

/// The error for an unknown lease, and equally for another user's.
fn unknown() -> Status {
    Status::not_found("unknown lease")
}

pub(super) fn lease_list(sight: &Sight<'_>, whose: Option<&UserName>) -> LeaseList {
    let is_shown = |user: &UserName| whose.is_none_or(|whose| whose == user);
    let leases = sight.manager.leases().filter(|of| is_shown(of.user));
    LeaseList {
        leases: leases.map(|of| wire::lease_info(sight, &of)).collect(),
    }
}

pub(super) fn queue_list(sight: &Sight<'_>, whose: Option<&UserName>) -> QueueList {
    let is_shown = |user: &UserName| whose.is_none_or(|whose| whose == user);
    let rows = (1..).zip(sight.book.waiting.values());
    let shown = rows.filter(|(_, row)| is_shown(&row.user));
    let reasons = sight.manager.reasons();
    QueueList {
        requests: shown
            .map(|(position, row)| wire::waiting_request(sight, position, row, &reasons))
            .collect(),
        waiting: u32::try_from(sight.book.waiting.len()).unwrap_or(u32::MAX),
    }
}

fn check_version(request: &RequestDevices) -> Result<(), Status> {
    version::check(request.wire_version)
        .map_err(|mismatch| Status::failed_precondition(format!("causeway-devmgr: {mismatch}")))
}

/// Converts a request from the wire, or returns why it is malformed.
fn new_request(
    caller: Caller,
    request: &RequestDevices,
) -> Result<Result<NewRequest, Refused>, Status> {
    let devices = match DeviceRequest::asked(&request.request) {
        Ok(devices) => devices,
        Err(error) => {
            return Ok(Err(Refused {
                code: RefusalCode::Malformed.into(),
                reason: format!("{error}"),
            }));
        }
    };
    let lease = if request.lease_id.is_empty() {
        LeaseId(rand::random())
    } else {
        wire::lease_id(&request.lease_id)?
    };
    Ok(Ok(NewRequest {
        lease,
        party: Party {
            user: caller.user,
            groups: caller.groups,
        },
        devices,
        class: wire::class(request.priority)?,
        limit: wire::span(request.time_limit_ms),
        wait: request.wait,
        reserve: request.reserve,
        replace: request.replace,
    }))
}

/// Shortens a client's description of itself, which is for people and kept as long as the lease.
fn shortened(client: causeway_proto::control::Client) -> causeway_proto::control::Client {
    let short = |text: String| text.chars().take(64).collect();
    causeway_proto::control::Client {
        pid: client.pid,
        host: short(client.host),
        user: short(client.user),
        program: short(client.program),
        library_version: short(client.library_version),
        ..Default::default()
    }
}

/// Counts the refusals of a user's requests that do not wait.
struct Refusals {
    user: UserName,
    started: Instant,
    pace: Arc<Mutex<Pace>>,
}

impl Refusals {
    fn are_too_many(&self) -> bool {
        !self
            .pace
            .lock()
            .has_left(&self.user, self.started.elapsed())
    }

    fn count(&self) {
        let now = self.started.elapsed();
        self.pace.lock().has_asked(&self.user, now);
    }
}

/// A stream that reports on a request.
struct Following {
    /// Where refusals are counted.
    refusals: Option<Refusals>,
    lease: LeaseId,
    watcher: WatcherId,
    beyond_grant: bool,
    owner: mpsc::Sender<Input>,
}

impl Following {
    /// Forwards news until the last one, or until the stream is closed.
    async fn tell(
        self,
        mut heard: watch::Receiver<News>,
        told: mpsc::Sender<Result<Progress, Status>>,
    ) {
        let mut told_reasons = None;
        loop {
            tokio::select! {
                // The owner has dropped the watcher without a last word: this manager leads no longer, or ends.
                changed = heard.changed() => if changed.is_err() {
                    let _ = told.send(Err(gone())).await;
                    return;
                },
                () = told.closed() => break,
            }
            let mut news = heard.borrow_and_update().clone();
            news.drop_told_reasons(&mut told_reasons);
            if let (News::Refused(_), Some(refusals)) = (&news, &self.refusals) {
                refusals.count();
            }
            let is_last = match &news {
                News::None | News::Waiting { .. } => false,
                News::Granted(_) => !self.beyond_grant,
                _ => true,
            };
            let progress = wire::progress(news, self.lease).transpose();
            if let Some(progress) = progress
                && told.send(progress).await.is_err()
            {
                break;
            }
            if is_last {
                return;
            }
        }
        let lost = Input::RequestLost(self.lease, self.watcher);
        // Fails only when the owner has ended.
        let _ = self.owner.send(lost).await;
    }
}
