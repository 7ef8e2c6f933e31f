//! Simulated clients, each over a connection of its own, under one of a thousand users' names.
//!
//! The number of simultaneous connections is limited, because real programs come and go. A client connects shortly
//! before its request. It disconnects when it has released its device, or keeps it without renewals. If all clients may
//! be connected, they connect first and stay. Invariant: a refused request or a failed call ends the run.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    ListLeasesRequest, ListQueueRequest, Progress, ReleaseLease, RequestDevices, progress,
};
use causeway_proto::version::WireVersion;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use super::holders::{Decision, decision};
use super::leader::{dial_only, is_passing};
use super::{AHEAD, Error, PATIENCE};

/// Interval at which a manager is asked whether it leads.
const LOOK: Duration = Duration::from_millis(5);
/// Number of users to whom the clients belong.
const USERS: u32 = 1000;

/// The clients' request, which three of the four models match.
const REQUEST: &str = "1, TYPE=GPU, GLOBAL_MEM_SIZE>=16GiB";
/// A request that every model matches.
pub(super) const ANY: &str = "1, TYPE=GPU";

/// The largest list of leases.
pub(super) const LIST: usize = 64 << 20;

/// How many clients there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowd {
    pub(super) clients: u32,
    /// Most that are connected at a time.
    pub(super) connections: u32,
    /// Number of connections and requests at a time, where no rate is given.
    pub(super) batch: u32,
}

impl Crowd {
    /// Whether all connect first and stay.
    pub(super) fn all_stay(self) -> bool {
        self.connections >= self.clients
    }
}

/// Requests at a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Requests a second.
    pub(super) rate: u32,
    /// How long a client keeps its device.
    pub(super) hold: Duration,
    /// Number of requests. If there are more requests than clients, clients request again.
    pub(super) count: usize,
}

/// All clients.
pub(super) struct Clients {
    crowd: Crowd,
    manager: String,
    all: Vec<Client>,
    /// The simultaneous connections.
    places: Arc<Semaphore>,
    /// Clients that wait in the queue keep their streams.
    waiting: JoinSet<()>,
}

#[derive(Clone)]
struct Client {
    manager: String,
    user: String,
    /// The connection of a client that stays.
    channel: Option<Channel>,
}

/// A client that is connected.
struct Connected {
    user: String,
    leases: LeasesClient<Channel>,
    _place: Option<OwnedSemaphorePermit>,
}

/// Seconds of each request.
#[derive(Default)]
pub(super) struct Timed {
    /// From the time when a request was due until its lease was reported.
    pub(super) leases: Vec<f64>,
    /// From the release until its answer.
    pub(super) releases: Vec<f64>,
    /// How late a request was sent.
    pub(super) late: Vec<f64>,
}

impl Timed {
    fn add(&mut self, times: [Duration; 3]) {
        let [late, lease, release] = times.map(|time| time.as_secs_f64());
        self.late.push(late);
        self.leases.push(lease);
        self.releases.push(release);
    }
}

/// The clients with a device, and those that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) leases: usize,
    pub(super) waiting: usize,
}

impl Clients {
    /// Connects the clients that stay, in batches.
    pub(super) async fn connect(crowd: Crowd, manager: &str) -> Result<Clients, Error> {
        let batch = Arc::new(Semaphore::new(crowd.batch as usize));
        let mut dialling = JoinSet::new();
        for number in 0..crowd.clients {
            let batch = Arc::clone(&batch);
            let mut client = Client::new(manager, number);
            let stays = crowd.all_stay();
            dialling.spawn(async move {
                if stays {
                    let _permit = batch.acquire_owned().await?;
                    client.channel = Some(client.dial().await?);
                }
                Ok::<_, Error>(client)
            });
        }
        let mut all = Vec::with_capacity(crowd.clients as usize);
        while let Some(client) = dialling.join_next().await {
            all.push(client??);
        }
        Ok(Clients {
            crowd,
            manager: manager.to_owned(),
            all,
            places: Arc::new(Semaphore::new(crowd.connections as usize)),
            waiting: JoinSet::new(),
        })
    }

    /// Clients request at the rate, hold their leases and release them.
    pub(super) async fn at_a_rate(&mut self, rate: Rate) -> Result<Timed, Error> {
        let gap = Duration::from_secs(1) / rate.rate;
        let mut asked = JoinSet::new();
        let mut timed = Timed::default();
        let mut due = Instant::now() + AHEAD;
        for client in self.all.iter().cycle().take(rate.count) {
            due += gap;
            sleep_until(due - AHEAD).await;
            let (client, places) = (client.clone(), Arc::clone(&self.places));
            asked.spawn(async move {
                let client = client.connected(&places).await?;
                client.once(due, rate.hold).await
            });
            while let Some(times) = asked.try_join_next() {
                timed.add(times??);
            }
        }
        while let Some(times) = asked.join_next().await {
            timed.add(times??);
        }
        Ok(timed)
    }

    /// Waits until the manager has no lease left.
    pub(super) async fn see_no_lease(&self) -> Result<(), Error> {
        let begun = Instant::now();
        while known(&self.manager).await? != Filled::default() {
            if begun.elapsed() > PATIENCE {
                return Err("leases that were given back do not end".into());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Every client requests, in batches, and waits until it has its device or its place in the queue.
    pub(super) async fn fill(&mut self) -> Result<Filled, Error> {
        let batch = Arc::new(Semaphore::new(self.crowd.batch as usize));
        let mut asked = JoinSet::new();
        for client in &self.all {
            let permit = Arc::clone(&batch).acquire_owned().await?;
            let (client, places) = (client.clone(), Arc::clone(&self.places));
            asked.spawn(async move {
                let mut client = client.connected(&places).await?;
                let (step, rest) = client.ask(ANY, true).await?;
                drop(permit);
                // A client that waits stays connected.
                let stays = matches!(step, progress::Step::Position(_));
                Ok::<_, Error>((step, stays.then_some((client, rest))))
            });
        }
        let mut filled = Filled::default();
        while let Some(answer) = asked.join_next().await {
            match answer?? {
                (progress::Step::Granted(_), _) => filled.leases += 1,
                (progress::Step::Position(_), Some((client, mut rest))) => {
                    filled.waiting += 1;
                    self.waiting.spawn(async move {
                        while let Ok(Some(_)) = rest.message().await {}
                        drop(client);
                    });
                }
                (other, _) => return Err(format!("a request was answered by {other:?}").into()),
            }
        }
        let known = known(&self.manager).await?;
        if known != filled {
            return Err(format!("clients were told {filled:?}; the lists say {known:?}").into());
        }
        Ok(filled)
    }
}

/// The leases and requests that a manager has. Waits until the manager leads.
pub(super) async fn known(manager: &str) -> Result<Filled, Error> {
    let places = Arc::new(Semaphore::new(1));
    let begun = Instant::now();
    loop {
        let client = Client::new(manager, 0);
        match client.connected(&places).await?.known().await {
            Err(status) if is_passing(&status) && begun.elapsed() < PATIENCE => {
                sleep(LOOK).await;
            }
            known => return Ok(known?),
        }
    }
}

/// The name of a client's user.
pub(super) fn user(number: u32) -> String {
    format!("user-{}", number % USERS)
}

/// A call of this user.
pub(super) fn call_of<T>(user: &str, message: T) -> Result<Request<T>, Status> {
    let mut request = Request::new(message);
    let user = user.parse();
    let user = user.map_err(|_| Status::invalid_argument("a user's name is not ASCII"))?;
    request.metadata_mut().insert("causeway-user", user);
    Ok(request)
}

impl Client {
    fn new(manager: &str, number: u32) -> Client {
        Client {
            manager: manager.to_owned(),
            user: user(number),
            channel: None,
        }
    }

    async fn dial(&self) -> Result<Channel, Error> {
        timeout(PATIENCE, dial_only(&self.manager)).await?
    }

    /// A client that stays is connected already. Another one occupies a place while it is connected.
    async fn connected(self, places: &Arc<Semaphore>) -> Result<Connected, Error> {
        let (channel, place) = match &self.channel {
            Some(channel) => (channel.clone(), None),
            None => {
                let place = Arc::clone(places).acquire_owned().await?;
                (self.dial().await?, Some(place))
            }
        };
        Ok(Connected {
            user: self.user,
            leases: LeasesClient::new(channel).max_decoding_message_size(LIST),
            _place: place,
        })
    }
}

impl Connected {
    fn call<T>(&self, message: T) -> Result<Request<T>, Status> {
        call_of(&self.user, message)
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

    /// How late the request was sent, its time until the lease, and the time of the release.
    async fn once(mut self, due: Instant, hold: Duration) -> Result<[Duration; 3], Error> {
        sleep_until(due).await;
        let late = due.elapsed();
        let (step, mut steps) = self.ask(REQUEST, false).await?;
        // A device that is just being given back keeps even a request that does not wait for a moment.
        let granted = match timeout(PATIENCE, decision(step, &mut steps)).await?? {
            Decision::Granted(granted) => granted,
            Decision::Refused(reason) => {
                return Err(format!("a request was refused: {reason}").into());
            }
        };
        let lease = due.elapsed();
        sleep(hold).await;
        let begun = Instant::now();
        let lease_id = granted.lease_id;
        let release = self.call(ReleaseLease { lease_id })?;
        self.leases.release(release).await?;
        Ok([late, lease, begun.elapsed()])
    }

    async fn known(&mut self) -> Result<Filled, Status> {
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
