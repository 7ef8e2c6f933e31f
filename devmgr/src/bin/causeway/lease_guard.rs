//! A lease for the duration of a program's run: requested, waited for, renewed, released.
//!
//! The tool chooses the request's id, so that a repetition after a broken connection is the same request
//! at the same place. A lease is only renewed: if it is over, no other is requested in its place.
//!
//! [`causeway::lease::renewal`] decides when to renew and what was lost, as for the library. Invariant: a
//! request that is not released expires by itself, and so does a lease once the program has ended, because
//! nobody renews them. So the tool may be killed at any moment.

use std::time::{Duration, Instant};

use causeway::lease::renewal::{Losses, Pauses, RETRY, Renewal};
use causeway_proto::manager::{
    self as pb, Granted, LeaseMove, Progress as ProgressMessage, ReleaseLease, RenewLease,
    RequestDevices, progress,
};
use tonic::{Code, Status, Streaming};

use crate::connection::Connection;
use crate::context::Context;
use crate::failure::Failure;
use crate::json::{NodeShare, RunEvent, id};
use crate::progress::Progress;

/// Timeout of a request that does not wait. The manager gives nodes 2 s to acknowledge, and after its
/// start 15 s to join.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Timeout of releasing the lease, with retries: others may wait for it, and a manager that restarts is
/// soon back.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
/// Timeout of a renewal.
const RENEW_LIMIT: Duration = Duration::from_secs(5);

/// A lease that is kept while a program runs. See the module.
pub(crate) struct LeaseGuard<'a> {
    context: &'a Context,
    lease: [u8; 16],
    connection: Option<Connection>,
    news: Option<Streaming<ProgressMessage>>,
    renewal: Renewal,
    pauses: Pauses,
    losses: Losses,
    // Number of the lease's moves that are known.
    moves: usize,
    // The lease's devices as far as they are known.
    nodes: Vec<pb::NodeShare>,
}

/// The result of a request over one connection.
enum RequestResult {
    Granted(Granted),
    Refused(Failure),
    /// The connection broke, or the manager is stopping.
    Broken(Failure),
}

impl<'a> LeaseGuard<'a> {
    /// A lease that is not requested yet.
    pub(crate) fn new(context: &'a Context) -> LeaseGuard<'a> {
        LeaseGuard {
            context,
            lease: rand::random(),
            connection: None,
            news: None,
            renewal: Renewal::new(Instant::now(), Duration::ZERO),
            pauses: Pauses::default(),
            losses: Losses::default(),
            moves: 0,
            nodes: Vec::new(),
        }
    }

    /// The lease's id, as programs get it.
    pub(crate) fn id(&self) -> String {
        id(&self.lease)
    }

    /// Requests devices, and waits for them if the request allows that.
    ///
    /// # Errors
    /// The request is refused, or the manager cannot be reached.
    pub(crate) async fn acquire(
        &mut self,
        mut request: RequestDevices,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        request.lease_id = self.lease.to_vec().into();
        request.follow = true;
        let mut is_known = false;
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            let has_successor;
            let told = match Connection::new(self.context).await {
                Ok(connection) => {
                    is_known = true;
                    has_successor = connection.has_several();
                    let limit = (!request.wait).then_some(ANSWER_LIMIT);
                    let told = self.ask(&connection, &request, limit, progress).await;
                    self.connection = Some(connection);
                    told
                }
                Err(failure) => {
                    // Standbys have answered.
                    is_known |= failure.is_leaderless();
                    has_successor = false;
                    RequestResult::Broken(failure)
                }
            };
            match told {
                RequestResult::Granted(granted) => {
                    self.take(granted, asked, progress);
                    return Ok(());
                }
                RequestResult::Refused(failure) => return Err(failure),
                // The id makes the repetition the same request. Another manager may lead already.
                RequestResult::Broken(_)
                    if !request.wait && has_successor && began.elapsed() < ANSWER_LIMIT =>
                {
                    tokio::time::sleep(RETRY.0).await;
                }
                // A manager that has never been reached is not retried.
                RequestResult::Broken(failure) if !(request.wait && is_known) => {
                    return Err(failure);
                }
                RequestResult::Broken(failure) => {
                    progress.say(RunEvent::Away {
                        server: None,
                        pid: None,
                        session: None,
                        reason: failure.to_string(),
                    });
                    // Otherwise all that wait would ask the next leader at once.
                    let spread = rand::random_range(0.5..1.0);
                    tokio::time::sleep(self.pauses.next_pause().mul_f64(spread)).await;
                }
            }
        }
    }

    // Takes what was granted. Devices may have been lost between an answer that did not arrive and this one.
    fn take(&mut self, granted: Granted, asked: Instant, progress: &mut Progress) {
        self.keep_until(asked, &granted);
        let changed = self.changed(&granted);
        progress.say(RunEvent::Granted {
            lease: self.id(),
            nodes: granted.nodes.into_iter().map(NodeShare::from).collect(),
            time_left_ms: Some(granted.time_left_ms).filter(|left| *left != 0),
        });
        changed.into_iter().for_each(|event| progress.say(event));
    }

    async fn ask(
        &mut self,
        connection: &Connection,
        request: &RequestDevices,
        limit: Option<Duration>,
        progress: &mut Progress,
    ) -> RequestResult {
        let answer = self.decision(connection, request, progress);
        let answer = match limit {
            None => answer.await,
            Some(limit) => match tokio::time::timeout(limit, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(Status::deadline_exceeded(format!(
                    "the device manager has not decided within {} s",
                    limit.as_secs()
                ))),
            },
        };
        answer.unwrap_or_else(|status| {
            let failure = connection.failure(&status);
            if is_break(&status) {
                RequestResult::Broken(failure)
            } else {
                RequestResult::Refused(failure)
            }
        })
    }

    /// Sends the request, and waits for the manager's decision.
    async fn decision(
        &mut self,
        connection: &Connection,
        request: &RequestDevices,
        progress: &mut Progress,
    ) -> Result<RequestResult, Status> {
        let asked = connection.request(request.clone());
        let news = connection.leases().request(asked).await?;
        if let Err(failure) = connection.believe(&news) {
            return Ok(RequestResult::Broken(failure));
        }
        let mut news = news.into_inner();
        loop {
            let word = tokio::select! {
                word = news.message() => word?,
                () = tokio::time::sleep(Progress::TICK) => {
                    progress.tick();
                    continue;
                }
            };
            let Some(word) = word else {
                return Err(Status::unavailable("the device manager closed the stream"));
            };
            match word.step {
                Some(progress::Step::Position(position)) => {
                    self.pauses.heard();
                    progress.say(RunEvent::Waiting {
                        request: request.request.clone(),
                        position: position.position,
                        waiting: position.waiting,
                        lack: Some(position.lack).filter(|lack| !lack.is_empty()),
                        why: Some(position.why).filter(|why| !why.is_empty()),
                    });
                }
                Some(progress::Step::Granted(granted)) => {
                    // The stream stays open, because it reports the end of the lease.
                    self.news = Some(news);
                    return Ok(RequestResult::Granted(granted));
                }
                Some(progress::Step::Refused(refused)) => {
                    return Ok(RequestResult::Refused(Failure::new(refused.reason)));
                }
                Some(progress::Step::Ended(ended)) => {
                    let what = format!("the request is over: {}", ended.reason);
                    return Ok(RequestResult::Refused(Failure::new(what)));
                }
                None => {}
            }
        }
    }

    /// Renews the lease as long as this is polled, and returns when the lease's devices have changed or it is over.
    pub(crate) async fn keep(&mut self) -> RunEvent {
        loop {
            let change = tokio::select! {
                () = tokio::time::sleep_until(self.renewal.at().into()) => self.renew().await,
                word = next(&mut self.news) => match word {
                    Some(progress::Step::Ended(ended)) => Some(RunEvent::Over { reason: ended.reason }),
                    Some(progress::Step::Granted(granted)) => self.changed(&granted),
                    Some(_) => None,
                    // The stream broke, so the manager may have restarted. A renewal tells whether the
                    // lease still exists.
                    None => {
                        self.news = None;
                        self.renew().await
                    }
                },
            };
            if let Some(change) = change {
                return change;
            }
        }
    }

    async fn renew(&mut self) -> Option<RunEvent> {
        let asked = Instant::now();
        match self.try_renew().await {
            Ok(Ok(granted)) => {
                self.keep_until(asked, &granted);
                self.changed(&granted)
            }
            Ok(Err(reason)) => Some(RunEvent::Over { reason }),
            Err(_) => {
                self.connection = None;
                self.renewal.unheard(Instant::now());
                None
            }
        }
    }

    // The inner result is the manager's answer.
    async fn try_renew(&mut self) -> Result<Result<Granted, String>, Failure> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::new(self.context).await?,
        };
        let lease_id = self.lease.to_vec().into();
        let request = connection.request(RenewLease { lease_id });
        let mut leases = connection.leases();
        let answer = tokio::time::timeout(RENEW_LIMIT, leases.renew(request)).await;
        let answer = answer.map_err(|_| Failure::new("no answer"))?;
        match answer {
            Ok(granted) => {
                connection.believe(&granted)?;
                self.connection = Some(connection);
                Ok(Ok(granted.into_inner()))
            }
            Err(status) if connection.is_word(&status) => Ok(Err(status.message().to_owned())),
            Err(status) => Err(connection.failure(&status)),
        }
    }

    fn keep_until(&mut self, asked: Instant, granted: &Granted) {
        self.renewal = Renewal::new(asked, Duration::from_millis(granted.lifetime_ms));
    }

    fn changed(&mut self, granted: &Granted) -> Option<RunEvent> {
        let lost = self.losses.news(granted);
        let known = std::mem::replace(&mut self.moves, granted.moves.len());
        let moved = granted.moves.iter().skip(known).last().cloned();
        let before = std::mem::replace(&mut self.nodes, granted.nodes.clone());
        let shares = |of: Vec<pb::NodeShare>| of.into_iter().map(NodeShare::from).collect();
        if granted.nodes.is_empty() {
            // Between two answers, a lease may be replaced and lost again.
            let lost = match &moved {
                Some(of) => of.to.iter().cloned().collect(),
                None => before,
            };
            return (!lost.is_empty()).then(|| RunEvent::Seeking { lost: shares(lost) });
        }
        if !lost.is_empty() {
            return Some(RunEvent::Reduced {
                lost: shares(lost),
                nodes: shares(granted.nodes.clone()),
            });
        }
        let LeaseMove { from, to, replaced } = moved?;
        let from = from.unwrap_or_default().into();
        let to = to.unwrap_or_default().into();
        Some(match replaced {
            true => RunEvent::Replaced { from, to },
            false => RunEvent::Moved { from, to },
        })
    }

    /// Releases the lease, or cancels the request.
    pub(crate) async fn give_back(&mut self) -> Result<(), Failure> {
        let mut failure = Failure::new("the device manager does not answer");
        let release = async {
            let mut pause = RETRY.0;
            loop {
                let given_back = async {
                    let connection = match self.connection.take() {
                        Some(connection) => connection,
                        None => Connection::new(self.context).await?,
                    };
                    self.release(&connection).await
                };
                match given_back.await {
                    Ok(()) => return,
                    Err(error) => failure = error,
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
            }
        };
        let released = tokio::time::timeout(RELEASE_LIMIT, release).await;
        released.map_err(|_| failure)
    }

    async fn release(&self, connection: &Connection) -> Result<(), Failure> {
        let lease_id = self.lease.to_vec().into();
        let request = connection.request(ReleaseLease { lease_id });
        match connection.leases().release(request).await {
            Ok(answer) => connection.believe(&answer),
            // The lease is over already.
            Err(status) if connection.is_word(&status) => Ok(()),
            Err(status) => Err(connection.failure(&status)),
        }
    }
}

/// The next message of the stream. `None`: the stream has ended.
async fn next(news: &mut Option<Streaming<ProgressMessage>>) -> Option<progress::Step> {
    let Some(news) = news else {
        return std::future::pending().await;
    };
    while let Ok(Some(word)) = news.message().await {
        if word.step.is_some() {
            return word.step;
        }
    }
    None
}

// Whether the connection failed, as opposed to an answer of the manager.
fn is_break(status: &Status) -> bool {
    std::error::Error::source(status).is_some() || status.code() == Code::Unavailable
}
