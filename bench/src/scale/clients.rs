//! Simulated clients: each over a connection of its own, unless they are told to share some, under one of a thousand users' names.
//!
//! Invariant: a request that is refused, or a call that fails, ends the run.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    ListLeasesRequest, ListQueueRequest, Progress, ReleaseLease, RequestDevices, progress,
};
use causeway_proto::version::WireVersion;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};

use super::{Error, Options, PATIENCE};

/// Whom clients belong to.
const USERS: u32 = 1000;

/// What the clients ask for; three of the four models fit.
const REQUEST: &str = "1, TYPE=GPU, GLOBAL_MEM_SIZE>=16GiB";
/// The same, any model.
const ANY: &str = "1, TYPE=GPU";

/// The largest list of leases.
const LIST: usize = 64 << 20;

/// All clients.
pub(super) struct Clients {
    all: Vec<Client>,
    /// Those who wait go on listening.
    waiting: JoinSet<()>,
}

#[derive(Clone)]
struct Client {
    user: String,
    leases: LeasesClient<Channel>,
}

/// Seconds of each request.
#[derive(Default)]
pub(super) struct Timed {
    /// From when a request was to be sent until its lease was told.
    pub(super) leases: Vec<f64>,
    /// From the release until it was answered.
    pub(super) releases: Vec<f64>,
    /// How much later than it was to be a request was sent.
    pub(super) late: Vec<f64>,
}

/// Who has a device and who waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) leases: usize,
    pub(super) waiting: usize,
}

impl Clients {
    /// All connections are made, so many at a time.
    pub(super) async fn connect(options: &Options, manager: &str) -> Result<Clients, Error> {
        let batch = Arc::new(Semaphore::new(options.batch as usize));
        let mut connecting = JoinSet::new();
        for number in 0..options.connections() {
            let permit = Arc::clone(&batch).acquire_owned().await?;
            let manager = manager.to_owned();
            connecting.spawn(async move {
                let client = Client::connect(&manager, number).await;
                drop(permit);
                client
            });
        }
        let mut all = Vec::with_capacity(options.clients as usize);
        while let Some(client) = connecting.join_next().await {
            all.push(client??);
        }
        for number in options.connections()..options.clients {
            let first = &all[(number % options.connections()) as usize];
            let leases = first.leases.clone();
            all.push(Client {
                user: user(number),
                leases,
            });
        }
        Ok(Clients {
            all,
            waiting: JoinSet::new(),
        })
    }

    /// Each asks once, at the rate, holds its lease and gives it back.
    pub(super) async fn at_a_rate(&mut self, options: &Options) -> Result<Timed, Error> {
        let gap = Duration::from_secs(1) / options.rate;
        let hold = Duration::from_millis(options.hold);
        let mut timed = Timed::default();
        let mut asked = JoinSet::new();
        let mut due = Instant::now() + gap;
        for client in &self.all {
            sleep_until(due).await;
            timed.late.push(due.elapsed().as_secs_f64());
            asked.spawn(client.clone().once(due, hold));
            due += gap;
        }
        while let Some(times) = asked.join_next().await {
            let (lease, release) = times??;
            timed.leases.push(lease.as_secs_f64());
            timed.releases.push(release.as_secs_f64());
        }
        Ok(timed)
    }

    /// Waits until the manager has none any more.
    pub(super) async fn see_no_lease(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        while self.all[0].known().await? != Filled::default() {
            if begun.elapsed() > PATIENCE {
                return Err("leases that were given back do not end".into());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Each asks and waits, so many at a time, until it has its device or its place in the queue.
    pub(super) async fn fill(&mut self, options: &Options) -> Result<Filled, Error> {
        let batch = Arc::new(Semaphore::new(options.batch as usize));
        let mut asked = JoinSet::new();
        for client in &self.all {
            let permit = Arc::clone(&batch).acquire_owned().await?;
            let mut client = client.clone();
            asked.spawn(async move {
                let answer = client.ask(ANY, true).await;
                drop(permit);
                answer
            });
        }
        let mut filled = Filled::default();
        while let Some(answer) = asked.join_next().await {
            let (step, mut rest) = answer??;
            match step {
                progress::Step::Granted(_) => filled.leases += 1,
                progress::Step::Position(_) => {
                    filled.waiting += 1;
                    self.waiting
                        .spawn(async move { while let Ok(Some(_)) = rest.message().await {} });
                }
                other => return Err(format!("a request was answered by {other:?}").into()),
            }
        }
        let known = self.all[0].known().await?;
        if known != filled {
            return Err(format!("clients were told {filled:?}; the lists say {known:?}").into());
        }
        Ok(filled)
    }
}

/// What a manager knows.
pub(super) async fn known(manager: &str) -> Result<Filled, Error> {
    Client::connect(manager, 0).await?.known().await
}

fn user(number: u32) -> String {
    format!("user-{}", number % USERS)
}

impl Client {
    async fn connect(manager: &str, number: u32) -> Result<Client, Error> {
        let endpoint = Endpoint::from_shared(format!("http://{manager}"))?;
        let channel = timeout(PATIENCE, endpoint.connect()).await??;
        Ok(Client {
            user: user(number),
            leases: LeasesClient::new(channel).max_decoding_message_size(LIST),
        })
    }

    fn call<T>(&self, message: T) -> Result<Request<T>, Error> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("causeway-user", self.user.parse()?);
        Ok(request)
    }

    /// The first answer, and what may follow.
    async fn ask(
        &mut self,
        devices: &str,
        wait: bool,
    ) -> Result<(progress::Step, Streaming<Progress>), Error> {
        let request = self.call(RequestDevices {
            wire_version: WireVersion::CURRENT.number().into(),
            request: devices.to_owned(),
            wait,
            ..RequestDevices::default()
        })?;
        let mut progress = self.leases.request(request).await?.into_inner();
        let first = timeout(PATIENCE, progress.message()).await??;
        let step = first.and_then(|progress| progress.step);
        Ok((step.ok_or("a request was not answered")?, progress))
    }

    /// From when it was due to the lease, and how long the release took.
    async fn once(mut self, due: Instant, hold: Duration) -> Result<(Duration, Duration), Error> {
        let (step, _) = self.ask(REQUEST, false).await?;
        let lease = due.elapsed();
        let progress::Step::Granted(granted) = step else {
            return Err(format!("a request was answered by {step:?}").into());
        };
        sleep(hold).await;
        let begun = Instant::now();
        let lease_id = granted.lease_id;
        let release = self.call(ReleaseLease { lease_id })?;
        self.leases.release(release).await?;
        Ok((lease, begun.elapsed()))
    }

    async fn known(&mut self) -> Result<Filled, Error> {
        let leases = self.call(ListLeasesRequest {})?;
        let leases = self.leases.list_leases(leases).await?.into_inner();
        let queue = self.call(ListQueueRequest {})?;
        let queue = self.leases.list_queue(queue).await?.into_inner();
        Ok(Filled {
            leases: leases.leases.len(),
            waiting: queue.requests.len(),
        })
    }
}
