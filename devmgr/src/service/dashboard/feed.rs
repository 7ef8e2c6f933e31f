//! One snapshot a second for all who look, and the change since the one before.
//!
//! One task takes the snapshots while somebody looks. Otherwise it takes one a minute, for the last hour of the devices.
//! Invariant: a viewer that reads slowly delays nobody. It gets a whole snapshot in place of the changes that it has
//! missed.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use causeway_proto::manager as pb;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::Status;

use super::super::admin::{ManagerListing, snapshot};
use super::super::authentication::wall_now;
use super::super::input::Input;
use super::super::reading::read;
use super::super::wire;
use crate::dashboard::change;
use crate::dashboard::view::{Audience, Content, Figures, device_id, draw};
use crate::listing::{Kind, Managers};
use crate::rates::Totals;
use crate::time::Wall;

/// Interval of the snapshots.
const EVERY: Duration = Duration::from_secs(1);
/// Interval of the questions which managers there are. The answers come from etcd.
const MANAGERS_EVERY: Duration = Duration::from_secs(5);
/// Time for that answer before a snapshot is made without it.
const MANAGERS_WITHIN: Duration = Duration::from_millis(200);

/// The snapshots by audience. See the module.
#[derive(Default)]
pub(super) struct Feed {
    audiences: Mutex<HashMap<Audience, watch::Sender<Option<Arc<Published>>>>>,
    wake: Notify,
}

/// A snapshot for one audience.
pub(super) struct Published {
    number: u64,
    page: Map<String, Value>,
    /// The change since the snapshot before, as an event. `None`: there was none.
    change: Option<Bytes>,
    whole: OnceLock<Bytes>,
}

impl Published {
    /// The event for a viewer that has the snapshot of this number.
    pub(super) fn event_after(&self, has: Option<u64>) -> Bytes {
        let follows = has.is_some_and(|has| has + 1 == self.number);
        match self.change.as_ref().filter(|_| follows) {
            Some(change) => change.clone(),
            // Encoded once for all who need it.
            None => self
                .whole
                .get_or_init(|| event("snapshot", &self.page))
                .clone(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// An event of a stream. JSON has no line breaks.
pub(super) fn event(name: &str, data: &impl serde::Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}

impl Feed {
    /// The snapshots for an audience from now on.
    pub(super) fn look(&self, audience: Audience) -> watch::Receiver<Option<Arc<Published>>> {
        let mut audiences = self.audiences.lock();
        let published = audiences
            .entry(audience)
            .or_insert_with(|| watch::channel(None).0);
        let mut receiver = published.subscribe();
        // The newest snapshot is news for this viewer.
        receiver.mark_changed();
        drop(audiences);
        self.wake.notify_one();
        receiver
    }

    /// Who looks at present. Others are forgotten.
    fn audiences(&self) -> Vec<Audience> {
        let mut audiences = self.audiences.lock();
        audiences.retain(|_, published| published.receiver_count() > 0);
        audiences.keys().cloned().collect()
    }

    fn publish(&self, audience: &Audience, published: Arc<Published>) {
        if let Some(to) = self.audiences.lock().get(audience) {
            to.send_replace(Some(published));
        }
    }

    /// Waits until a snapshot is due: a second after the last one while somebody looks, at `minute` otherwise.
    async fn due(&self, last: Instant, minute: Instant) {
        while self.audiences().is_empty() {
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(minute) => return,
            }
        }
        tokio::time::sleep_until(last + EVERY).await;
    }
}

/// Takes the snapshots. The task ends with the reign.
pub(super) struct Source {
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) managers: ManagerListing,
    pub(super) feed: Arc<Feed>,
}

impl Source {
    pub(super) async fn run(self) {
        let begin = Instant::now();
        let mut state = State::default();
        let mut managers = KnownManagers::default();
        let mut last = begin - EVERY;
        loop {
            let minute = begin + state.figures.hour.next();
            self.feed.due(last, minute).await;
            last = Instant::now();
            let audiences = self.feed.audiences();
            if audiences.contains(&Audience::All { managers: true }) {
                managers.refresh(&self.managers).await;
            }
            // Fails only when the owner has ended, and the reign with it.
            let Ok(content) = self.content(managers.known.clone()).await else {
                return;
            };
            let (at, feed) = (begin.elapsed(), Arc::clone(&self.feed));
            // Thousands of devices take milliseconds, in which this thread would serve nobody.
            let done = tokio::task::spawn_blocking(move || {
                state.publish(at, &content, &audiences, &feed);
                state
            });
            let Ok(after) = done.await else {
                return;
            };
            state = after;
        }
    }

    async fn content(
        &self,
        managers: Option<(Wall, Arc<pb::ManagerList>)>,
    ) -> Result<Content, Status> {
        let taken = read(&self.owner, |sight| {
            (sight.now.wall, snapshot(sight), wire::kinds(sight.book))
        });
        let (now, snapshot, kinds) = taken.await?;
        Ok(Content {
            now,
            nodes: snapshot.nodes.into_iter().map(Into::into).collect(),
            leases: snapshot.leases.into_iter().map(Into::into).collect(),
            queue: snapshot.queue.unwrap_or_default().into(),
            kinds: kinds.into_iter().map(Kind::from).collect(),
            managers: managers
                .map(|(at, list)| (at, Managers::from(pb::ManagerList::clone(&list)))),
        })
    }
}

/// The managers, as of the last answer.
#[derive(Default)]
struct KnownManagers {
    known: Option<(Wall, Arc<pb::ManagerList>)>,
    asked: Option<Instant>,
    answer: Option<JoinHandle<Result<pb::ManagerList, Status>>>,
}

impl KnownManagers {
    async fn refresh(&mut self, listing: &ManagerListing) {
        let is_due = self
            .asked
            .is_none_or(|asked| asked.elapsed() >= MANAGERS_EVERY);
        if self.answer.is_none() && is_due {
            self.asked = Some(Instant::now());
            let listing = listing.clone();
            self.answer = Some(tokio::spawn(async move { listing.list().await }));
        }
        let Some(answer) = &mut self.answer else {
            return;
        };
        let Ok(answered) = tokio::time::timeout(MANAGERS_WITHIN, answer).await else {
            return;
        };
        self.answer = None;
        // A failure leaves the earlier answer.
        if let Ok(Ok(list)) = answered {
            self.known = Some((wall_now(), Arc::new(list)));
        }
    }
}

/// What the next snapshots are computed from.
#[derive(Default)]
struct State {
    figures: Figures,
    published: HashMap<Audience, Arc<Published>>,
    number: u64,
}

impl State {
    fn publish(&mut self, at: Duration, content: &Content, audiences: &[Audience], feed: &Feed) {
        self.figures.take(at, content);
        self.number += 1;
        self.published
            .retain(|audience, _| audiences.contains(audience));
        for audience in audiences {
            let page = draw(content, &self.figures, audience);
            let before = self.published.get(audience);
            let change = before.and_then(|before| change::between(&before.page, &page));
            let published = Arc::new(Published {
                number: self.number,
                page,
                change: change.map(|change| event("change", &change)),
                whole: OnceLock::new(),
            });
            feed.publish(audience, Arc::clone(&published));
            self.published.insert(audience.clone(), published);
        }
    }
}

impl Figures {
    fn take(&mut self, at: Duration, content: &Content) {
        let mut devices = Vec::new();
        for node in &content.nodes {
            for device in &node.devices {
                let busy = device.usage.as_ref().map(|usage| usage.busy_ms * 1_000_000);
                devices.push((device_id(&node.node, device), busy));
            }
        }
        let totals = |busy_ns| Totals {
            bytes: 0,
            commands: 0,
            busy_ns,
        };
        let known = devices.iter().filter_map(|(id, busy)| Some((id, (*busy)?)));
        let known = known.map(|(id, busy)| (id.as_bytes().to_vec(), totals(busy)));
        self.devices.take(at, known);
        let nodes = content.nodes.iter().filter(|node| node.connected);
        let nodes = nodes.map(|node| {
            let totals = Totals {
                bytes: node.moved_bytes,
                commands: node.commands,
                busy_ns: 0,
            };
            (node.node.as_bytes().to_vec(), totals)
        });
        self.nodes.take(at, nodes);
        self.hour
            .record(at, devices.iter().map(|(id, busy)| (&**id, *busy)));
    }
}
