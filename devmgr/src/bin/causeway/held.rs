//! A lease for as long as a program runs: asked for, waited for, kept, given back.
//!
//! The request has an id of our own, so that asking again after a break of the connection is the same request, at
//! its place. Once it is a lease it is only renewed: whose lease is over is never given another in its stead.
//!
//! Invariant: whatever was asked for and is not given back runs out by itself, because it is not renewed: the
//! manager needs no word of a tool that was killed.

use std::time::Duration;

use causeway_proto::manager::{
    Granted, Progress as Word, ReleaseLease, RenewLease, RequestDevices, progress,
};
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use crate::connection::Connection;
use crate::context::Context;
use crate::failure::Failure;
use crate::json::{NodeShare, Step, id};
use crate::progress::Progress;

/// The manager gives nodes two seconds to agree, and after its own start its nodes five to come back.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// For the lease to be given back: others may wait for it, and a manager that is being started anew is soon back.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
/// Between two tries to reach the manager.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A lease is renewed after this part of its lifetime: two more tries are possible then.
const RENEW_AFTER: u32 = 3;
/// The manager's lifetimes are minutes; a zero must not make a flood of it.
const SHORTEST: Duration = Duration::from_millis(300);

/// See the module.
pub(crate) struct Held<'a> {
    context: &'a Context,
    lease: [u8; 16],
    connection: Option<Connection>,
    news: Option<Streaming<Word>>,
    renew_at: Instant,
    lifetime: Duration,
}

/// What becomes of a request over one connection.
enum Told {
    Granted(Granted),
    Refused(Failure),
    /// The connection broke, or the manager is stopping.
    Broken(Failure),
}

impl<'a> Held<'a> {
    /// For a request that has not been made yet.
    pub(crate) fn new(context: &'a Context) -> Held<'a> {
        Held {
            context,
            lease: rand::random(),
            connection: None,
            news: None,
            renew_at: Instant::now(),
            lifetime: Duration::ZERO,
        }
    }

    /// The lease's id, as programs get it.
    pub(crate) fn id(&self) -> String {
        id(&self.lease)
    }

    /// Asks for devices, and waits for them if that is wanted.
    ///
    /// # Errors
    /// They are refused, or the manager cannot be reached.
    pub(crate) async fn acquire(
        &mut self,
        mut request: RequestDevices,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        request.lease_id = self.lease.to_vec().into();
        request.follow = true;
        let mut is_known = false;
        let mut pause = RETRY.0;
        loop {
            let asked = Instant::now();
            let told = match Connection::new(self.context).await {
                Ok(connection) => {
                    is_known = true;
                    let limit = (!request.wait).then_some(ANSWER_LIMIT);
                    let told = self.ask(&connection, &request, limit, progress).await;
                    self.connection = Some(connection);
                    told
                }
                Err(failure) => Told::Broken(failure),
            };
            match told {
                Told::Granted(granted) => {
                    self.keep_until(asked, &granted);
                    progress.say(Step::Granted {
                        lease: self.id(),
                        nodes: granted.nodes.into_iter().map(NodeShare::from).collect(),
                        time_left_ms: Some(granted.time_left_ms).filter(|left| *left != 0),
                    });
                    return Ok(());
                }
                Told::Refused(failure) => return Err(failure),
                // Who cannot be reached at the first try is not waited for.
                Told::Broken(failure) if !(request.wait && is_known) => return Err(failure),
                Told::Broken(failure) => {
                    progress.say(Step::Away {
                        reason: failure.to_string(),
                    });
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
        }
    }

    async fn ask(
        &mut self,
        connection: &Connection,
        request: &RequestDevices,
        limit: Option<Duration>,
        progress: &mut Progress,
    ) -> Told {
        let asked = connection.request(request.clone());
        let answer = async {
            let mut news = connection.leases().request(asked).await?.into_inner();
            loop {
                let word = tokio::select! {
                    word = news.message() => word?,
                    () = tokio::time::sleep(Progress::TICK) => {
                        progress.tick();
                        continue;
                    }
                };
                let Some(word) = word else {
                    return Err(Status::unavailable("the device manager says no more"));
                };
                match word.step {
                    Some(progress::Step::Position(position)) => progress.say(Step::Waiting {
                        request: request.request.clone(),
                        position: position.position,
                        waiting: position.waiting,
                        lack: Some(position.lack).filter(|lack| !lack.is_empty()),
                    }),
                    Some(progress::Step::Granted(granted)) => {
                        self.news = Some(news);
                        return Ok(Told::Granted(granted));
                    }
                    Some(progress::Step::Refused(refused)) => {
                        return Ok(Told::Refused(Failure::new(refused.reason)));
                    }
                    Some(progress::Step::Ended(ended)) => {
                        let what = format!("the request is over: {}", ended.reason);
                        return Ok(Told::Refused(Failure::new(what)));
                    }
                    None => {}
                }
            }
        };
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
                Told::Broken(failure)
            } else {
                Told::Refused(failure)
            }
        })
    }

    /// Renews the lease for as long as it is polled; returns why it is over.
    pub(crate) async fn keep(&mut self) -> String {
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(self.renew_at) => {}
                ended = ended(&mut self.news) => match ended {
                    Some(reason) => return reason,
                    // The manager is away, or was: is it still ours?
                    None => self.news = None,
                },
            }
            if let Some(reason) = self.renew().await {
                return reason;
            }
        }
    }

    // Why it is over, if it is.
    async fn renew(&mut self) -> Option<String> {
        let asked = Instant::now();
        match self.try_renew().await {
            Ok(Ok(granted)) => self.keep_until(asked, &granted),
            Ok(Err(over)) => return Some(over),
            Err(_) => {
                self.connection = None;
                let pause = (self.lifetime / 12).clamp(RETRY.0, RETRY.1);
                self.renew_at = Instant::now() + pause;
            }
        }
        None
    }

    // The inner result is the manager's word.
    async fn try_renew(&mut self) -> Result<Result<Granted, String>, Failure> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::new(self.context).await?,
        };
        let lease_id = self.lease.to_vec().into();
        let request = connection.request(RenewLease { lease_id });
        let mut leases = connection.leases();
        let answer = tokio::time::timeout(RETRY.1, leases.renew(request)).await;
        let answer = answer.map_err(|_| Failure::new("no answer"))?;
        match answer {
            Ok(granted) => {
                self.connection = Some(connection);
                Ok(Ok(granted.into_inner()))
            }
            Err(status) if is_word(&status) => Ok(Err(why_over(status.message()).to_owned())),
            Err(status) => Err(connection.failure(&status)),
        }
    }

    fn keep_until(&mut self, asked: Instant, granted: &Granted) {
        self.lifetime = Duration::from_millis(granted.lifetime_ms).max(SHORTEST);
        self.renew_at = asked + self.lifetime / RENEW_AFTER;
    }

    /// Gives the lease back, or waits no longer for it.
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
            Ok(_) => Ok(()),
            // It is over already.
            Err(status) if is_word(&status) => Ok(()),
            Err(status) => Err(connection.failure(&status)),
        }
    }
}

/// Why the lease is over; `None`: the stream is over.
async fn ended(news: &mut Option<Streaming<Word>>) -> Option<String> {
    let Some(news) = news else {
        return std::future::pending().await;
    };
    while let Ok(Some(word)) = news.message().await {
        if let Some(progress::Step::Ended(ended)) = word.step {
            return Some(ended.reason);
        }
    }
    None
}

/// The stream tells the reason alone, and an answer that the lease is over before it.
fn why_over(said: &str) -> &str {
    said.strip_prefix("the lease is over: ").unwrap_or(said)
}

// Nothing that the manager has decided.
fn is_break(status: &Status) -> bool {
    std::error::Error::source(status).is_some() || status.code() == Code::Unavailable
}

// "You have no such lease", "it is over".
fn is_word(status: &Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::FailedPrecondition) && !is_break(status)
}
