//! The `Admin` service: administration, and what users may do with their own tokens.

use std::pin::Pin;
use std::time::{Duration, Instant};

use causeway_proto::manager as pb;
use causeway_proto::manager::admin_server::Admin;
use causeway_proto::version::WireVersion;
use causeway_security::Token;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::authentication::{Authenticator, as_admin, as_user, check_name, wall_now};
use super::book::{Book, Sight};
use super::identity::Identity;
use super::input::{ChangeError, Done, Input};
use super::leases::{lease_list, queue_list};
use super::links::ReportedLinks;
use super::others::Others;
use super::quotas::{quota_list, quota_of};
use super::reading::{ask, read};
use super::wire;
use crate::identity::{
    Caller, Directory, IdentityChange, NotChanged, Shown, TokenId, TokenRow, User,
};
use crate::inventory::NodeId;
use crate::lease::change::NodeRow;
use crate::lease::{Event, NotForgotten};
use crate::policy::UserName;
use crate::settings::Visible;
use crate::store::rows::SCHEMA;
use crate::time::Wall;

/// Maximum number of groups of one user.
const MAX_GROUPS: usize = 32;
/// Maximum number of characters of a token's label.
const MAX_LABEL: usize = 64;
/// Minimum number of digits of a uuid's prefix.
const SHORTEST_PREFIX: usize = 4;
/// Default interval of the snapshots, in milliseconds.
const WATCH_EVERY: u32 = 1_000;

/// The `Admin` service.
pub(super) struct AdminService {
    pub(super) authenticator: Authenticator,
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) visible: Visible,
    pub(super) managers: ManagerListing,
    pub(super) links: ReportedLinks,
}

/// Lists the managers.
#[derive(Clone)]
pub(super) struct ManagerListing {
    pub(super) started: Instant,
    pub(super) identity: Identity,
    /// Where others reach this manager. Empty: unknown.
    pub(super) address: String,
    /// The other managers, if the store is shared.
    pub(super) others: Option<Others>,
}

impl ManagerListing {
    /// The managers that share the store, and the store's members.
    pub(super) async fn list(&self) -> Result<pb::ManagerList, Status> {
        let mut list = pb::ManagerList {
            cluster_id: self.identity.cluster.0.to_vec().into(),
            term: self.identity.term.0,
            store: "redb".to_owned(),
            ..pb::ManagerList::default()
        };
        if let Some(others) = &self.others {
            list.store = "etcd".to_owned();
            (list.managers, list.members) = others.list(&self.address).await?;
        } else {
            list.managers.push(pb::ManagerState {
                address: self.address.clone(),
                role: pb::ManagerRole::Leader.into(),
                since_ms: self.uptime_ms(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                schema: SCHEMA,
                problem: String::new(),
                // Who asks this manager has its address. Nobody else needs that of the dashboard.
                dashboard: String::new(),
            });
        }
        Ok(list)
    }

    fn uptime_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::Snapshot, Status>> + Send>>;

    async fn get_manager(
        &self,
        request: Request<pb::GetManagerRequest>,
    ) -> Result<Response<pb::ManagerInfo>, Status> {
        let caller = self.authenticator.caller(&request)?;
        let identity = &self.managers.identity;
        Ok(Response::new(pb::ManagerInfo {
            wire_version: WireVersion::CURRENT.number().into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unix_ms: wall_now().0,
            uptime_ms: self.managers.uptime_ms(),
            authenticates: self.authenticator.authenticates(),
            user: caller.user.to_string(),
            groups: caller.groups.iter().map(ToString::to_string).collect(),
            admin: caller.admin,
            node: caller.node,
            expires_unix_ms: caller.until.map_or(0, |until| until.0),
            term: identity.term.0,
            cluster_id: identity.cluster.0.to_vec().into(),
            claimed_term: identity.claimed().map_or(0, |term| term.0),
        }))
    }

    async fn list_managers(
        &self,
        request: Request<pb::ListManagersRequest>,
    ) -> Result<Response<pb::ManagerList>, Status> {
        self.authenticator.admin(&request)?;
        Ok(Response::new(self.managers.list().await?))
    }

    async fn step_down(
        &self,
        request: Request<pb::StepDownRequest>,
    ) -> Result<Response<pb::StepDownReply>, Status> {
        let admin = self.authenticator.admin(&request)?;
        let Some(others) = &self.managers.others else {
            return Err(Status::failed_precondition(
                "this manager is the only one: its store is a file, which no other manager can take over",
            ));
        };
        tracing::info!(by = %admin.user, "step down");
        others.step_down(&self.managers.address).await?;
        Ok(Response::new(pb::StepDownReply {}))
    }

    async fn list_nodes(
        &self,
        request: Request<pb::ListNodesRequest>,
    ) -> Result<Response<pb::NodeList>, Status> {
        may_see_all(self.visible, self.authenticator.caller(&request)?)?;
        let list = read(&self.owner, node_list).await?;
        Ok(Response::new(list))
    }

    async fn drain_node(
        &self,
        request: Request<pb::DrainNodeRequest>,
    ) -> Result<Response<pb::DrainNodeReply>, Status> {
        self.authenticator.admin(&request)?;
        let request = request.into_inner();
        let (draining, migrate) = (request.draining, request.migrate);
        let within = wire::span(request.within_ms);
        let found = read(&self.owner, move |sight| {
            find_node(sight.book, &request.node)
        })
        .await?;
        let node = found?;
        self.order(Event::Drain { node, draining }).await?;
        if draining && migrate {
            self.order(Event::Migrate { node, within }).await?;
        }
        Ok(Response::new(pb::DrainNodeReply {}))
    }

    async fn remove_node(
        &self,
        request: Request<pb::RemoveNodeRequest>,
    ) -> Result<Response<pb::RemoveNodeReply>, Status> {
        let admin = self.authenticator.admin(&request)?;
        let pb::RemoveNodeRequest { node, force } = request.into_inner();
        let node = read(&self.owner, move |sight| find_node(sight.book, &node)).await??;
        tracing::info!(?node, force, by = %admin.user, "remove a node");
        self.done(|done| Input::Forget(node, force, done)).await?;
        self.links.forget(node);
        Ok(Response::new(pb::RemoveNodeReply {}))
    }

    async fn revoke_lease(
        &self,
        request: Request<pb::RevokeLeaseRequest>,
    ) -> Result<Response<pb::RevokeLeaseReply>, Status> {
        let admin = self.authenticator.admin(&request)?;
        let lease = wire::lease_id(&request.get_ref().lease_id)?;
        // The user is for the log. A lease that is not durable yet is unknown to everyone.
        let whose = read(&self.owner, move |sight| sight.book.whose(&lease).cloned()).await?;
        let Some(user) = whose else {
            return Err(Status::not_found("unknown lease"));
        };
        let reason = request.into_inner().reason;
        tracing::info!(?lease, %user, reason, by = %admin.user, "revoke");
        self.done(|done| Input::Revoke(lease, reason.into(), done))
            .await?;
        Ok(Response::new(pb::RevokeLeaseReply {}))
    }

    async fn list_users(
        &self,
        request: Request<pb::ListUsersRequest>,
    ) -> Result<Response<pb::UserList>, Status> {
        self.authenticator.admin(&request)?;
        let directory = self.authenticator.directory();
        let users = directory.users().map(|user| pb::User {
            name: user.name.to_string(),
            groups: user.groups.iter().map(ToString::to_string).collect(),
            admin: user.admin,
            node: user.node,
        });
        Ok(Response::new(pb::UserList {
            users: users.collect(),
        }))
    }

    async fn put_user(
        &self,
        request: Request<pb::User>,
    ) -> Result<Response<pb::PutUserReply>, Status> {
        let admin = self.authenticator.admin(&request)?;
        let user = user_of(request.into_inner())?;
        tracing::info!(user = %user.name, admin = user.admin, node = user.node, by = %admin.user, "user put");
        self.identity(IdentityChange::PutUser(user)).await?;
        Ok(Response::new(pb::PutUserReply {}))
    }

    async fn delete_user(
        &self,
        request: Request<pb::DeleteUserRequest>,
    ) -> Result<Response<pb::DeleteUserReply>, Status> {
        let admin = self.authenticator.admin(&request)?;
        let name = UserName::from(request.get_ref().name.as_str());
        self.identity(IdentityChange::DeleteUser(name.clone()))
            .await?;
        tracing::info!(user = %name, by = %admin.user, "user deleted");
        Ok(Response::new(pb::DeleteUserReply {}))
    }

    async fn create_token(
        &self,
        request: Request<pb::CreateTokenRequest>,
    ) -> Result<Response<pb::CreateTokenReply>, Status> {
        let caller = self.authenticator.caller(&request)?;
        let request = request.into_inner();
        let user = UserName::from(request.user.as_str());
        // A node's key must not make keys of people, and no user makes another's token.
        if !caller.admin && (user != caller.user || caller.node) {
            return Err(Status::permission_denied(
                "only administrators may create tokens of other users",
            ));
        }
        // A token would outlive its certificate. Certificates are short-lived because they cannot be
        // revoked.
        if !caller.admin && caller.shown == Shown::Certificate {
            return Err(Status::permission_denied(
                "callers with a certificate may not create tokens: use the certificate, or ask an administrator",
            ));
        }
        if request.label.chars().count() > MAX_LABEL {
            return Err(Status::invalid_argument(format!(
                "a label has {MAX_LABEL} characters at most"
            )));
        }
        let token = Token::generate();
        let asked = wire::span(request.lifetime_ms);
        let asked = asked.map(|span| Wall(wall_now().0.saturating_add(span.0)));
        // No user can extend the lifetime of the token that they call with.
        let lent = caller.until.filter(|_| !caller.admin);
        let row = TokenRow {
            id: TokenId(format!("{:016x}", rand::random::<u64>())),
            user,
            label: request.label,
            hash: token.hash().0,
            expires: asked.into_iter().chain(lent).min(),
        };
        let token_id = row.id.0.clone();
        let user = row.user.clone();
        self.identity(IdentityChange::PutToken(row)).await?;
        tracing::info!(%user, token_id, by = %caller.user, "token made");
        Ok(Response::new(pb::CreateTokenReply {
            token: token.reveal().to_owned(),
            token_id,
        }))
    }

    async fn list_tokens(
        &self,
        request: Request<pb::ListTokensRequest>,
    ) -> Result<Response<pb::TokenList>, Status> {
        let caller = self.authenticator.user(&request)?;
        let wanted = &request.get_ref().user;
        if !caller.admin && *wanted != *caller.user.0 {
            return Err(Status::permission_denied(
                "only administrators may list other users' tokens",
            ));
        }
        let directory = self.authenticator.directory();
        let rows = directory.tokens();
        let rows = rows.filter(|row| wanted.is_empty() || *row.user.0 == **wanted);
        let tokens = rows.map(|row| pb::Token {
            token_id: row.id.0.clone(),
            user: row.user.to_string(),
            label: row.label.clone(),
            expires_unix_ms: row.expires.map_or(0, |expires| expires.0),
        });
        Ok(Response::new(pb::TokenList {
            tokens: tokens.collect(),
        }))
    }

    async fn revoke_token(
        &self,
        request: Request<pb::RevokeTokenRequest>,
    ) -> Result<Response<pb::RevokeTokenReply>, Status> {
        let caller = self.authenticator.user(&request)?;
        let said = request.into_inner().token_id;
        let id = find_token(&self.authenticator.directory(), &caller, &said)?;
        self.identity(IdentityChange::DeleteToken(id.clone()))
            .await?;
        tracing::info!(token_id = id.0, by = %caller.user, "token revoked");
        Ok(Response::new(pb::RevokeTokenReply {}))
    }

    async fn list_quotas(
        &self,
        request: Request<pb::ListQuotasRequest>,
    ) -> Result<Response<pb::QuotaList>, Status> {
        let caller = self.authenticator.user(&request)?;
        let list = read(&self.owner, move |sight| quota_list(sight, &caller)).await?;
        Ok(Response::new(list))
    }

    async fn put_quota(
        &self,
        request: Request<pb::Quota>,
    ) -> Result<Response<pb::PutQuotaReply>, Status> {
        self.authenticator.admin(&request)?;
        let (subject, quota) = quota_of(request.into_inner())?;
        self.order(Event::QuotaChanged { subject, quota }).await?;
        Ok(Response::new(pb::PutQuotaReply {}))
    }

    async fn watch(
        &self,
        request: Request<pb::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = self.authenticator.caller(&request)?;
        may_see_all(self.visible, caller.clone())?;
        let interval = match request.get_ref().interval_ms {
            0 => WATCH_EVERY,
            // Each snapshot keeps the owner busy, so there are ten a second at most.
            said => said.max(100),
        };
        let (send, receive) = mpsc::channel(1);
        let (owner, authenticator, visible) =
            (self.owner.clone(), self.authenticator.clone(), self.visible);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(u64::from(interval)));
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                // The caller's permissions may change while the stream is open.
                let caller = authenticator.again(&caller);
                let snapshot = match caller.and_then(|caller| may_see_all(visible, caller)) {
                    Ok(()) => read(&owner, snapshot).await,
                    Err(status) => Err(status),
                };
                // A client that cannot keep up gets fewer snapshots, because the channel holds one.
                let is_over = snapshot.is_err();
                if send.send(snapshot).await.is_err() || is_over {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receive))))
    }
}

impl AdminService {
    async fn order(&self, event: Event) -> Result<(), Status> {
        self.done(|done| Input::Order(event, done)).await
    }

    async fn identity(&self, wanted: IdentityChange) -> Result<(), Status> {
        self.done(|done| Input::Identity(wanted, done)).await
    }

    async fn done(&self, input: impl FnOnce(Done) -> Input) -> Result<(), Status> {
        let reply = ask(&self.owner, input).await?;
        reply.map_err(|not| match not {
            ChangeError::Store(unwritten) => wire::unwritten(&unwritten),
            ChangeError::Identity(not) => refused(not),
            ChangeError::Node(not @ NotForgotten::Unknown) => Status::not_found(not.to_string()),
            ChangeError::Node(not) => Status::failed_precondition(not.to_string()),
        })
    }
}

pub(super) fn may_see_all(visible: Visible, caller: Caller) -> Result<(), Status> {
    match visible {
        Visible::All => as_user(caller).map(drop),
        Visible::Own => as_admin(caller).map(drop),
    }
}

fn refused(not: NotChanged) -> Status {
    match not {
        NotChanged::NoUser | NotChanged::NoToken => Status::not_found(not.to_string()),
        NotChanged::TooMany => Status::resource_exhausted(not.to_string()),
        NotChanged::LastAdmin | NotChanged::LastToken => {
            Status::failed_precondition(not.to_string())
        }
    }
}

fn user_of(user: pb::User) -> Result<User, Status> {
    let bad = Status::invalid_argument;
    check_name(&user.name).map_err(bad)?;
    if user.groups.len() > MAX_GROUPS {
        return Err(bad(format!("a user is in {MAX_GROUPS} groups at most")));
    }
    for group in &user.groups {
        check_name(group).map_err(bad)?;
    }
    Ok(User {
        name: user.name.as_str().into(),
        groups: user
            .groups
            .iter()
            .map(|name| name.as_str().into())
            .collect(),
        admin: user.admin,
        node: user.node,
    })
}

fn node_list(sight: &Sight<'_>) -> pb::NodeList {
    let (book, leased) = (sight.book, wire::Leased::of(sight.book));
    let info = |row: &NodeRow| pb::NodeInfo {
        leaving: wire::leaving(sight, row.node),
        ..wire::node_info(book, &leased, row)
    };
    pb::NodeList {
        nodes: book.nodes.values().map(info).collect(),
    }
}

pub(super) fn snapshot(sight: &Sight<'_>) -> pb::Snapshot {
    pb::Snapshot {
        nodes: node_list(sight).nodes,
        leases: lease_list(sight, None).leases,
        queue: Some(queue_list(sight, None)),
    }
}

/// Finds a token by its id or an unambiguous prefix. Another user's token is treated as unknown.
fn find_token(directory: &Directory, caller: &Caller, said: &str) -> Result<TokenId, Status> {
    let is_meant = |row: &&TokenRow| {
        let is_his = caller.admin || row.user == caller.user;
        is_his && !said.is_empty() && row.id.0.starts_with(said)
    };
    let mut meant = directory.tokens().filter(is_meant);
    match (meant.next(), meant.next()) {
        (Some(row), None) => Ok(row.id.clone()),
        (Some(_), Some(_)) => Err(Status::failed_precondition(
            "ambiguous token id: give a longer prefix",
        )),
        (None, _) => Err(refused(NotChanged::NoToken)),
    }
}

/// Finds a node by name, or by uuid in its usual form or an unambiguous prefix.
fn find_node(book: &Book, said: &str) -> Result<NodeId, Status> {
    let mut named = book.nodes.values().filter(|row| row.name == said);
    match (named.next(), named.next()) {
        (Some(row), None) => return Ok(row.node),
        (Some(_), Some(_)) => {
            return Err(Status::failed_precondition(
                "several nodes have this name: use the uuid that `causeway nodes` shows",
            ));
        }
        (None, _) => {}
    }
    // No node has this name, so the text can only be a uuid.
    let digits: String = said.chars().filter(|c| *c != '-').collect();
    let digits = digits.to_ascii_lowercase();
    let begins = |id: &&NodeId| {
        let uuid = format!("{:032x}", u128::from_be_bytes(id.0));
        digits.len() >= SHORTEST_PREFIX && uuid.starts_with(&digits)
    };
    let mut meant = book.nodes.keys().filter(begins);
    match (meant.next(), meant.next()) {
        (Some(node), None) => Ok(*node),
        (Some(_), Some(_)) => Err(Status::failed_precondition(
            "ambiguous node uuid: give a longer prefix",
        )),
        (None, _) if digits.len() < SHORTEST_PREFIX => Err(Status::not_found(format!(
            "unknown node `{said}`: see `causeway nodes`; a uuid's prefix needs at least {SHORTEST_PREFIX} digits"
        ))),
        (None, _) => Err(Status::not_found(format!(
            "unknown node `{said}`: see `causeway nodes`"
        ))),
    }
}
