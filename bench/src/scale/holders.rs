//! Simulated clients of several managers: they hold leases, or wait for one, through changes of the leader.
//!
//! A client that holds a lease has confirmed it, and renews it as the library does: after a third of its lifetime, over a
//! connection for that question. A client that waits keeps its stream, and asks the next leader under the same id. Users
//! are those of [`clients`](super::clients). Invariant: a lease that a client was told of is held until
//! [`Holders::release_one`] names it.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use causeway_managers::probe;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    ConfirmReservation, Granted, LeaseState, ListLeasesRequest, Progress, ReleaseLease, RenewLease,
    RequestDevices, progress,
};
use causeway_proto::version::WireVersion;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::{Code, Request, Response, Status, Streaming};

use super::clients::{ANY, LIST, call_of, user};
use super::leader::{Seeker, There, is_passing};
use super::{Error, PATIENCE};
use crate::random::Random;

/// Time limit of one manager's answer, and of a renewal, as in the library.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const RENEW_WITHIN: Duration = Duration::from_secs(5);
/// Pause before a leader is looked for again.
const PAUSE: Duration = Duration::from_millis(100);

/// All clients; see the module.
pub(super) struct Holders {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<(), Error>>,
    granted: mpsc::UnboundedReceiver<Instant>,
    random: Random,
    /// The number of the next client.
    next: u32,
}

struct Shared {
    managers: Arc<[String]>,
    /// Simultaneous connections of clients that hold leases.
    places: Semaphore,
    ledger: Mutex<Ledger>,
    /// The waiting clients that the leader has told their position.
    queued: watch::Sender<There>,
    /// When waiting clients were granted their devices.
    granted: mpsc::UnboundedSender<Instant>,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Ledger {
    /// The leases of clients, each with the order to release it.
    held: BTreeMap<Vec<u8>, oneshot::Sender<()>>,
    /// What holders were told about leases that they have not released.
    over: Vec<String>,
}

/// A question about a lease that the manager answers at once.
#[derive(Clone, Copy, Debug)]
enum Question {
    Confirm,
    Renew,
    Release,
}

/// The manager's word about a lease: its lifetime, or why it is over.
type Word = Result<Duration, String>;

/// The end of a request.
pub(super) enum Decision {
    Granted(Granted),
    Refused(String),
}

impl Holders {
    /// No client yet. Those that hold leases have this number of connections at a time.
    pub(super) fn new(managers: &Arc<[String]>, connections: u32) -> Holders {
        let (granted, receiver) = mpsc::unbounded_channel();
        Holders {
            shared: Arc::new(Shared {
                managers: Arc::clone(managers),
                places: Semaphore::new(connections as usize),
                ledger: Mutex::default(),
                queued: watch::channel(There::default()).0,
                granted,
            }),
            tasks: JoinSet::new(),
            granted: receiver,
            random: Random::new(20),
            next: 0,
        }
    }

    /// This number of clients reserve a device each and confirm it, in batches. Then they hold their leases.
    pub(super) async fn fill(&mut self, count: u32, batch: u32) -> Result<(), Error> {
        let batch = Arc::new(Semaphore::new(batch as usize));
        let mut asked = JoinSet::new();
        for _ in 0..count {
            let (mut holder, batch) = (self.holder(), Arc::clone(&batch));
            asked.spawn(async move {
                let _permit = batch.acquire_owned().await?;
                let lifetime = holder.lease().await?;
                Ok::<_, Error>((holder, lifetime))
            });
        }
        while let Some(done) = asked.join_next().await {
            let (holder, lifetime) = done??;
            // Programs begin at different times, and renew at different ones.
            let due = Instant::now() + lifetime.mul_f64(self.random.unit() / 3.0);
            let released = holder.held();
            self.tasks.spawn(holder.hold(due, released));
        }
        Ok(())
    }

    /// Adds clients that wait for a device, and hold it when they have it.
    pub(super) fn wait(&mut self, count: u32) {
        for _ in 0..count {
            let holder = self.holder();
            self.tasks.spawn(holder.wait());
        }
    }

    /// A client of the next user that asks for a device and does not wait. Returns the answer.
    pub(super) fn ask_at_once(&mut self) -> impl Future<Output = Result<String, Error>> + use<> {
        let mut holder = self.holder();
        async move {
            let asked = timeout(PATIENCE, holder.at_once()).await;
            asked.map_err(|_| "a request that does not wait was not answered")?
        }
    }

    /// Waits until this number of waiting clients were told their positions by the leader of a later term.
    pub(super) async fn all_wait_after(&self, term: u64, count: usize) -> Result<(), Error> {
        let is_so = |now: &There| now.term > term && now.count == count;
        let seen = There::seen(&self.shared.queued, is_so).await;
        seen.map_err(|now| format!("{count} shall wait after term {term}: {now:?}").into())
    }

    /// Waits until a waiting client is granted its device. Returns when it was.
    pub(super) async fn until_granted(&mut self) -> Result<Instant, Error> {
        let granted = timeout(PATIENCE, self.granted.recv()).await;
        let granted = granted.map_err(|_| "no client that waits was granted a device")?;
        granted.ok_or_else(|| "no client waits".into())
    }

    /// A client releases its lease.
    pub(super) fn release_one(&mut self) -> Result<(), Error> {
        let first = self.shared.ledger().held.pop_first();
        let (_, release) = first.ok_or("no client holds a lease")?;
        // Fails only if the client was told that its lease is over, which counts already.
        let _ = release.send(());
        Ok(())
    }

    /// The leases that clients hold.
    pub(super) fn held(&self) -> BTreeSet<Vec<u8>> {
        self.shared.ledger().held.keys().cloned().collect()
    }

    /// What holders were told about leases that nobody has ended.
    pub(super) fn told_over(&self) -> Vec<String> {
        self.shared.ledger().over.clone()
    }

    /// The leases that the leader lists, without those that are ending.
    pub(super) async fn listed(&self) -> Result<BTreeSet<Vec<u8>>, Error> {
        let mut seeker = Seeker::new(&self.shared.managers);
        let client = LeasesClient::new(seeker.find().await?).max_decoding_message_size(LIST);
        let request = call_of(&user(0), ListLeasesRequest {})?;
        let list = timeout(PATIENCE, async {
            client.clone().list_leases(request).await
        });
        let leases = list.await??.into_inner().leases.into_iter();
        let lasting = leases.filter(|of| of.state() != LeaseState::Ending);
        Ok(lasting.map(|of| of.lease_id.to_vec()).collect())
    }

    /// The first fault of a client, if there is one.
    pub(super) fn assert_no_fault(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        Ok(())
    }

    fn holder(&mut self) -> Holder {
        let number = self.next;
        self.next += 1;
        let id = [self.random.next(), self.random.next()];
        Holder {
            user: user(number),
            lease: id.iter().flat_map(|part| part.to_be_bytes()).collect(),
            seeker: Seeker::new(&self.shared.managers).at(2, number),
            shared: Arc::clone(&self.shared),
        }
    }
}

/// One client.
struct Holder {
    user: String,
    /// The id of its request, and then of its lease.
    lease: Vec<u8>,
    seeker: Seeker,
    shared: Arc<Shared>,
}

impl Holder {
    /// Reserves a device and confirms it. Returns the lease's lifetime.
    async fn lease(&mut self) -> Result<Duration, Error> {
        if let Decision::Refused(reason) = self.decided(false).await? {
            return Err(format!("a request was refused: {reason}").into());
        }
        let confirmed = self.answered(Question::Confirm).await?;
        Ok(confirmed?)
    }

    /// Asks for a device without waiting, until a manager answers. Gives the device back.
    async fn at_once(&mut self) -> Result<String, Error> {
        loop {
            match self.decided(false).await {
                Ok(Decision::Refused(reason)) => return Ok(reason),
                Ok(Decision::Granted(_)) => {
                    self.release().await?;
                    return Ok("granted".to_owned());
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Waits for a device, and holds it.
    async fn wait(mut self) -> Result<(), Error> {
        loop {
            match self.decided(true).await {
                Ok(Decision::Granted(granted)) => {
                    let released = self.held();
                    // The receiver is gone at the end of the run.
                    let _ = self.shared.granted.send(Instant::now());
                    let lifetime = Duration::from_millis(granted.lifetime_ms);
                    return self.hold(Instant::now() + lifetime / 3, released).await;
                }
                Ok(Decision::Refused(reason)) => {
                    return Err(format!("a request that waits was refused: {reason}").into());
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Notes that this client holds its lease. Returns the order to release it.
    fn held(&self) -> oneshot::Receiver<()> {
        let (release, released) = oneshot::channel();
        let lease = self.lease.clone();
        self.shared.ledger().held.insert(lease, release);
        released
    }

    /// Renews the lease, the first time when it is `due`, until it is to be released.
    async fn hold(
        mut self,
        mut due: Instant,
        mut released: oneshot::Receiver<()>,
    ) -> Result<(), Error> {
        loop {
            tokio::select! {
                () = sleep_until(due) => {}
                _ = &mut released => return self.release().await,
            }
            let asked = Instant::now();
            let renewed = tokio::select! {
                renewed = timeout(RENEW_WITHIN, self.answered(Question::Renew)) => renewed,
                _ = &mut released => return self.release().await,
            };
            match renewed {
                Ok(Ok(Ok(lifetime))) => due = asked + lifetime / 3,
                Ok(Ok(Err(reason))) => {
                    self.shared.ledger().over.push(reason);
                    return Ok(());
                }
                Ok(Err(_)) | Err(_) => due = Instant::now() + RENEW_WITHIN,
            }
        }
    }

    async fn release(&mut self) -> Result<(), Error> {
        let released = timeout(PATIENCE, self.answered(Question::Release)).await;
        // A lease that is over already was counted.
        released
            .map(drop)
            .map_err(|_| "a lease could not be released".into())
    }

    /// Puts the question to the leader until one answers.
    async fn answered(&mut self, question: Question) -> Result<Word, Error> {
        loop {
            match self.ask(question).await {
                Ok(word) => return Ok(word),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    async fn ask(&mut self, question: Question) -> Result<Word, Error> {
        let shared = Arc::clone(&self.shared);
        let _place = shared.places.acquire().await?;
        let mut leases = LeasesClient::new(self.seeker.find().await?);
        let lease_id = self.lease.clone().into();
        let lifetime =
            |granted: Response<Granted>| granted.map(|of| Duration::from_millis(of.lifetime_ms));
        let answer = async {
            match question {
                Question::Confirm => {
                    let call = self.call(ConfirmReservation { lease_id })?;
                    leases.confirm(call).await.map(lifetime)
                }
                Question::Renew => {
                    let call = self.call(RenewLease { lease_id })?;
                    leases.renew(call).await.map(lifetime)
                }
                Question::Release => {
                    let call = self.call(ReleaseLease { lease_id })?;
                    let released = leases.release(call).await;
                    released.map(|answer| answer.map(|_| Duration::ZERO))
                }
            }
        };
        match timeout(ANSWER_WITHIN, answer).await? {
            Ok(answer) => {
                self.seeker.believe(answer.metadata())?;
                Ok(Ok(answer.into_inner()))
            }
            Err(status) if is_word(&status) => {
                self.seeker.believe(status.metadata())?;
                Ok(Err(status.message().to_owned()))
            }
            Err(status) => Err(status.into()),
        }
    }

    /// Requests a device of the leader. Fails if the connection breaks before the decision.
    async fn decided(&mut self, wait: bool) -> Result<Decision, Error> {
        let mut leases = LeasesClient::new(self.seeker.find().await?);
        let request = self.call(RequestDevices {
            wire_version: WireVersion::CURRENT.number().into(),
            lease_id: self.lease.clone().into(),
            request: ANY.to_owned(),
            wait,
            reserve: !wait,
            follow: wait,
            ..RequestDevices::default()
        })?;
        let steps = match leases.request(request).await {
            Ok(steps) => steps,
            Err(status) if is_passing(&status) => return Err(status.into()),
            Err(status) => return Ok(Decision::Refused(status.message().to_owned())),
        };
        self.seeker.believe(steps.metadata())?;
        let mut steps = steps.into_inner();
        let first = step(&mut steps).await?;
        if !(wait && matches!(first, progress::Step::Position(_))) {
            return decision(first, &mut steps).await;
        }
        let (queued, term) = (&self.shared.queued, self.seeker.term());
        queued.send_modify(|there| there.came(term));
        let decided = decision(first, &mut steps).await;
        queued.send_modify(|there| there.left(term));
        decided
    }

    fn call<T>(&self, message: T) -> Result<Request<T>, Status> {
        let mut call = call_of(&self.user, message)?;
        self.seeker.tell(call.metadata_mut());
        Ok(call)
    }
}

/// Reads steps until the request is decided.
pub(super) async fn decision(
    mut now: progress::Step,
    steps: &mut Streaming<Progress>,
) -> Result<Decision, Error> {
    loop {
        match now {
            progress::Step::Position(_) => now = step(steps).await?,
            progress::Step::Granted(granted) => return Ok(Decision::Granted(granted)),
            progress::Step::Refused(refused) => return Ok(Decision::Refused(refused.reason)),
            progress::Step::Ended(ended) => return Ok(Decision::Refused(ended.reason)),
        }
    }
}

async fn step(steps: &mut Streaming<Progress>) -> Result<progress::Step, Error> {
    let word = steps.message().await?;
    let step = word.and_then(|word| word.step);
    step.ok_or_else(|| "the manager closed the stream".into())
}

/// Whether a status is the manager's own answer about a lease.
fn is_word(status: &Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::FailedPrecondition) && probe::is_answer(status)
}
