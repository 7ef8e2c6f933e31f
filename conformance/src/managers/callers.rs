//! Those who call the managers in a proof: the observer, and administrators.
//!
//! Each has a thread and a runtime on its host, and makes one call at a time. They believe every manager that says
//! that it leads, so that the judge sees the answers of deposed leaders. Invariant: a call whose effect is unknown
//! is recorded as one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use causeway_cluster::Managers;
use causeway_cutter::Random;
use causeway_network::Host;
use causeway_proto::manager::admin_client::AdminClient;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    CreateTokenRequest, DeleteUserRequest, LeaseState, ListLeasesRequest, ListQueueRequest,
    ListQuotasRequest, ListTokensRequest, ListUsersRequest, Quota, RevokeLeaseRequest,
    RevokeTokenRequest, User, quota,
};
use causeway_proto::metadata::{TERM, Term};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::cluster::REVOKED;
use super::history::{Answer, Call, Listed, Listing, Operation, Outcome, Revocation, Span};
use super::record::{Record, digits, now};
use crate::{SetupError, io_error};

/// Time limit for an answer. After that, the caller asks all managers again.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// Interval of the observer's listings.
const LOOK: Duration = Duration::from_millis(300);
/// For how long all administrators call about the same name. Short, so that the search for an order ends.
const NAME_FOR: Duration = Duration::from_secs(4);

/// Runs a caller on its host until `stops`.
pub(super) fn on_host(
    host: &Host,
    stops: &watch::Receiver<bool>,
    caller: impl AsyncFnOnce() + Send,
) -> Result<(), SetupError> {
    let mut stops = stops.clone();
    host.enter(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build();
        let runtime = runtime.map_err(io_error("cannot make a runtime"))?;
        runtime.block_on(async {
            tokio::select! {
                () = caller() => {}
                // Also if the sender is gone.
                _ = stops.wait_for(|stops| *stops) => {}
            }
        });
        Ok(())
    })?
}

/// A connection to the leader, which is replaced after a failure.
struct Line<'a> {
    managers: &'a Managers,
    channel: Option<Channel>,
}

impl<'a> Line<'a> {
    fn new(managers: &'a Managers) -> Line<'a> {
        Line {
            managers,
            channel: None,
        }
    }

    async fn channel(&mut self) -> Channel {
        if let Some(channel) = &self.channel {
            return channel.clone();
        }
        let channel = self.managers.leader(|_, _| Ok(()), |_| {}).await;
        self.channel = Some(channel.clone());
        channel
    }

    /// Makes a call. Returns its span, and the answer with its term.
    async fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(Channel) -> Result<Response<T>, Status>,
    ) -> (Span, Result<(T, u64), Status>) {
        let channel = self.channel().await;
        let begin = now();
        let answer = timeout(ANSWER_WITHIN, call(channel)).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
        let span = Span { begin, end: now() };
        let answer = answer.map(|answer| {
            let term = term(answer.metadata());
            (answer.into_inner(), term)
        });
        if answer.as_ref().is_err_and(|status| !is_final(status)) {
            self.channel = None;
        }
        (span, answer)
    }
}

fn term(metadata: &tonic::metadata::MetadataMap) -> u64 {
    let term = metadata.get(TERM).and_then(|of| of.to_str().ok());
    term.and_then(Term::parse).unwrap_or_default().0
}

/// Whether the status says that the call had no effect, and never will.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::NotFound | Code::InvalidArgument | Code::FailedPrecondition | Code::PermissionDenied
    )
}

/// Lists all leases and all requests again and again.
pub(super) async fn observe(managers: &Managers, record: &Record) {
    let mut line = Line::new(managers);
    loop {
        sleep(LOOK).await;
        let (span, leases) = line
            .call(async |channel| {
                let asked = managers.request(ListLeasesRequest {});
                LeasesClient::new(channel).list_leases(asked).await
            })
            .await;
        let Ok((leases, term)) = leases else { continue };
        let value = leases.leases.iter().map(|of| Listed {
            lease: digits(&of.lease_id),
            user: of.user.clone(),
            is_ending: of.state() == LeaseState::Ending,
        });
        let value = value.collect();
        let leases = Answer { span, term, value };
        let (span, queue) = line
            .call(async |channel| {
                let asked = managers.request(ListQueueRequest {});
                LeasesClient::new(channel).list_queue(asked).await
            })
            .await;
        let Ok((mut queue, term)) = queue else {
            continue;
        };
        queue.requests.sort_by_key(|of| of.position);
        let requests = queue.requests.iter();
        let value = requests.map(|of| digits(&of.lease_id)).collect();
        let queue = Answer { span, term, value };
        record.add(|history| history.listings.push(Listing { leases, queue }));
    }
}

/// Ends a lease of [`REVOKED`] now and then.
pub(super) async fn revoke(managers: &Managers, record: &Record, mut random: Random) {
    let mut line = Line::new(managers);
    loop {
        sleep(Duration::from_millis(2_000 + random.below(2_000))).await;
        let (_, leases) = line
            .call(async |channel| {
                let asked = managers.request(ListLeasesRequest {});
                LeasesClient::new(channel).list_leases(asked).await
            })
            .await;
        let Ok((leases, _)) = leases else { continue };
        let is_active = |state| matches!(state, LeaseState::Active | LeaseState::Lapsed);
        let mut of_user = leases.leases.iter().filter(|of| of.user == REVOKED);
        let Some(lease) = of_user.find(|of| is_active(of.state())) else {
            continue;
        };
        let request = RevokeLeaseRequest {
            lease_id: lease.lease_id.clone(),
            reason: "the proof ends it".to_owned(),
        };
        let lease = digits(&lease.lease_id);
        // Before the call, because it may take effect before its answer is read.
        line.channel().await;
        let begin = now();
        let (span, done) = line
            .call(async |channel| {
                let asked = managers.request(request);
                AdminClient::new(channel).revoke_lease(asked).await
            })
            .await;
        let revocation = Revocation {
            lease,
            span: Span { begin, ..span },
            is_done: done.is_ok(),
        };
        // A lease that had ended is not revoked.
        if !done.is_err_and(|status| is_final(&status)) {
            record.add(|history| history.revocations.push(revocation));
        }
    }
}

/// Changes and reads the users, tokens and quotas of one name after the other.
pub(super) async fn administer(
    managers: &Managers,
    record: &Record,
    caller: usize,
    mut random: Random,
) {
    let mut administrator = Administrator {
        line: Line::new(managers),
        caller,
        next: 0,
        tokens: BTreeMap::new(),
    };
    let mut last = 0;
    loop {
        sleep(Duration::from_millis(100 + random.below(300))).await;
        // Whoever waits for a leader must not call about an old name afterwards.
        administrator.line.channel().await;
        let number = now().as_millis() / NAME_FOR.as_millis();
        if number != last {
            (last, administrator.tokens) = (number, BTreeMap::new());
        }
        let operation = administrator.operation(&mut random);
        let call = administrator
            .call(format!("name-{number}"), operation)
            .await;
        record.add(|history| history.calls.extend(call));
    }
}

/// An administrator of the names.
struct Administrator<'a> {
    line: Line<'a>,
    caller: usize,
    /// Number of the next group, token or quota. The callers' numbers differ.
    next: u32,
    /// The ids of this caller's tokens of the current name, by label.
    tokens: BTreeMap<u32, String>,
}

impl Administrator<'_> {
    fn operation(&mut self, random: &mut Random) -> Operation {
        self.next += 1;
        let number = self.next * 10 + self.caller as u32;
        let token = self.tokens.keys().next().copied();
        match (random.below(10), token) {
            (0 | 1, _) => Operation::PutUser(number),
            (2, _) => Operation::DeleteUser,
            (3, Some(label)) => Operation::RevokeToken(label),
            (3 | 4, _) => Operation::CreateToken(number),
            (5, _) => Operation::PutQuota(number),
            (6 | 7, _) => Operation::ReadUser,
            (8, _) => Operation::ReadTokens,
            _ => Operation::ReadQuota,
        }
    }

    /// Makes the call. `None`: a read without an answer, which has no effect.
    async fn call(&mut self, name: String, operation: Operation) -> Option<Call> {
        let (span, answer) = match &operation {
            Operation::ReadUser | Operation::ReadTokens | Operation::ReadQuota => {
                let (span, answer) = self.read(&name, &operation).await;
                (span, Some(answer.ok()?))
            }
            _ => {
                let (span, answer) = self.change(&name, &operation).await;
                match answer {
                    Ok(((), term)) => (span, Some((Outcome::Done, term))),
                    Err(status) if status.code() == Code::NotFound => {
                        let term = term(status.metadata());
                        (span, Some((Outcome::Missing, term)))
                    }
                    Err(_) => (span, None),
                }
            }
        };
        Some(Call {
            name,
            caller: self.caller,
            operation,
            span,
            outcome: answer,
        })
    }

    async fn change(
        &mut self,
        name: &str,
        operation: &Operation,
    ) -> (Span, Result<((), u64), Status>) {
        let Administrator { line, tokens, .. } = self;
        let (managers, name) = (line.managers, name.to_owned());
        let call = line.call(async |channel| {
            let mut admin = AdminClient::new(channel);
            match *operation {
                Operation::PutUser(group) => {
                    let groups = vec![format!("g{group}")];
                    let user = User {
                        name,
                        groups,
                        ..User::default()
                    };
                    let done = admin.put_user(managers.request(user)).await?;
                    Ok(done.map(drop))
                }
                Operation::DeleteUser => {
                    let asked = managers.request(DeleteUserRequest { name });
                    Ok(admin.delete_user(asked).await?.map(drop))
                }
                Operation::CreateToken(label) => {
                    let request = CreateTokenRequest {
                        user: name,
                        label: label.to_string(),
                        lifetime_ms: 0,
                    };
                    let made = admin.create_token(managers.request(request)).await?;
                    tokens.insert(label, made.get_ref().token_id.clone());
                    Ok(made.map(drop))
                }
                Operation::RevokeToken(label) => {
                    let token_id = tokens.remove(&label).unwrap_or_default();
                    let asked = managers.request(RevokeTokenRequest { token_id });
                    Ok(admin.revoke_token(asked).await?.map(drop))
                }
                Operation::PutQuota(devices) => {
                    let quota = Quota {
                        who: Some(quota::Who::User(name)),
                        devices,
                        ..Quota::default()
                    };
                    Ok(admin.put_quota(managers.request(quota)).await?.map(drop))
                }
                Operation::ReadUser | Operation::ReadTokens | Operation::ReadQuota => {
                    Err(Status::internal("reads change nothing"))
                }
            }
        });
        call.await
    }

    async fn read(
        &mut self,
        name: &str,
        operation: &Operation,
    ) -> (Span, Result<(Outcome, u64), Status>) {
        let managers = self.line.managers;
        let call = self.line.call(async |channel| {
            let mut admin = AdminClient::new(channel);
            match operation {
                Operation::ReadUser => {
                    let list = admin
                        .list_users(managers.request(ListUsersRequest {}))
                        .await?;
                    Ok(list.map(|list| Outcome::User(group(&list.users, name))))
                }
                Operation::ReadTokens => {
                    let user = name.to_owned();
                    let asked = managers.request(ListTokensRequest { user });
                    let list = admin.list_tokens(asked).await?;
                    Ok(list.map(|list| {
                        let labels = list.tokens.iter().map(|of| number(&of.label));
                        Outcome::Tokens(labels.collect::<BTreeSet<u32>>())
                    }))
                }
                _ => {
                    let asked = managers.request(ListQuotasRequest {});
                    let list = admin.list_quotas(asked).await?;
                    Ok(list.map(|list| Outcome::Quota(devices(&list.quotas, name))))
                }
            }
        });
        call.await
    }
}

/// The number of a group or label. 0, which no caller uses, if it has none.
fn number(text: &str) -> u32 {
    text.trim_start_matches('g').parse().unwrap_or_default()
}

fn group(users: &[User], name: &str) -> Option<u32> {
    let user = users.iter().find(|of| of.name == name)?;
    Some(user.groups.first().map_or(0, |group| number(group)))
}

fn devices(quotas: &[Quota], name: &str) -> u32 {
    let is_of = |of: &&Quota| of.who == Some(quota::Who::User(name.to_owned()));
    quotas.iter().find(is_of).map_or(0, |of| of.devices)
}
