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
use super::super::links::ReportedLinks;
use super::super::reading::{gone, read};
use super::super::wire;
use crate::dashboard::change;
use crate::dashboard::view::{Audience, Content, Figures, KnownAt, Node, device_id, draw};
use crate::listing::{Kind, ManagedNode, Managers};
use crate::rates::Totals;
use crate::time::Wall;

/// Interval of the snapshots.
const EVERY: Duration = Duration::from_secs(1);
/// Interval of the questions which managers there are. The answers come from etcd.
const MANAGERS_EVERY: Duration = Duration::from_secs(5);
/// Most links that a page shows.
const MOST_LINKS: usize = 200;
/// Time for that answer before a snapshot is made without it.
const MANAGERS_WITHIN: Duration = Duration::from_millis(200);

/// The snapshots by audience. See the module.
pub(super) struct Feed {
    /// `None`: the source has ended, and the feed with it.
    audiences: Mutex<Option<Audiences>>,
    wake: Notify,
}

type Audiences = HashMap<Audience, watch::Sender<Option<Arc<Published>>>>;

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
    pub(super) fn new() -> Feed {
        Feed {
            audiences: Mutex::new(Some(HashMap::new())),
            wake: Notify::new(),
        }
    }

    /// The snapshots for an audience from now on. `None`: the feed has ended.
    pub(super) fn look(
        &self,
        audience: Audience,
    ) -> Option<watch::Receiver<Option<Arc<Published>>>> {
        let mut audiences = self.audiences.lock();
        let published = audiences
            .as_mut()?
            .entry(audience)
            .or_insert_with(|| watch::channel(None).0);
        let mut receiver = published.subscribe();
        // The newest snapshot is news for this viewer.
        receiver.mark_changed();
        drop(audiences);
        self.wake.notify_one();
        Some(receiver)
    }

    /// Who looks at present. Others are forgotten.
    fn audiences(&self) -> Vec<Audience> {
        let mut audiences = self.audiences.lock();
        let Some(audiences) = audiences.as_mut() else {
            return Vec::new();
        };
        audiences.retain(|_, published| published.receiver_count() > 0);
        audiences.keys().cloned().collect()
    }

    /// The newest snapshot for an audience.
    fn newest(&self, audience: &Audience) -> Option<Arc<Published>> {
        let audiences = self.audiences.lock();
        let published = audiences.as_ref()?.get(audience)?;
        published.borrow().clone()
    }

    fn publish(&self, audience: &Audience, published: Arc<Published>) {
        let audiences = self.audiences.lock();
        if let Some(to) = audiences.as_ref().and_then(|all| all.get(audience)) {
            to.send_replace(Some(published));
        }
    }

    /// Waits until a snapshot is due: at `next` while somebody looks, at `minute` otherwise.
    async fn due(&self, next: Instant, minute: Instant) {
        while self.audiences().is_empty() {
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(minute) => return,
            }
        }
        tokio::time::sleep_until(next).await;
    }
}

/// Ends the feed with its source, also with one that panics. Viewers' streams end, and their pages try again.
struct Ends(Arc<Feed>);

impl Drop for Ends {
    fn drop(&mut self) {
        *self.0.audiences.lock() = None;
    }
}

/// Pause after a snapshot that took so long: snapshots take a fifth of the time at most, whatever their size.
fn pause(took: Duration) -> Duration {
    EVERY.max(took * 4)
}

/// Takes the snapshots. The task ends with the reign.
pub(super) struct Source {
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) managers: ManagerListing,
    pub(super) links: ReportedLinks,
    pub(super) feed: Arc<Feed>,
}

impl Source {
    pub(super) async fn run(self) {
        let _ends = Ends(Arc::clone(&self.feed));
        let begin = Instant::now();
        let mut state = State::default();
        let mut managers = KnownManagers::default();
        let mut next = begin;
        loop {
            let minute = begin + state.figures.hour.next();
            self.feed.due(next, minute).await;
            let audiences = self.feed.audiences();
            if audiences.contains(&Audience::All { managers: true }) {
                managers.refresh(&self.managers).await;
            }
            let from = Instant::now();
            // Fails only when the owner has ended, and the reign with it.
            let content = self.content(managers.shown(from), &audiences).await;
            let Ok(content) = content else {
                return;
            };
            let (at, feed) = (begin.elapsed(), Arc::clone(&self.feed));
            // Thousands of devices take milliseconds, in which this thread would serve nobody.
            let done = tokio::task::spawn_blocking(move || {
                state.publish(at, &content, &audiences, &feed);
                state
            });
            state = match done.await {
                Ok(after) => after,
                Err(error) => {
                    tracing::error!(%error, "the dashboard ends until this manager leads again");
                    return;
                }
            };
            // From its begin as long as snapshots are quick, so that there is one each second.
            let took = from.elapsed();
            next = match pause(took) {
                pause if pause > EVERY => from + took + pause,
                every => from + every,
            };
        }
    }

    async fn content(
        &self,
        managers: Option<KnownAt>,
        audiences: &[Audience],
    ) -> Result<Content, Status> {
        let sees_kinds = audiences.iter().any(Audience::sees_kinds);
        let sees_links = audiences.iter().any(|of| !of.sees_kinds());
        let taken = read(&self.owner, move |sight| {
            let kinds = match sees_kinds {
                true => wire::kinds(sight.book),
                false => Vec::new(),
            };
            (sight.now.wall, snapshot(sight), kinds)
        });
        let (now, snapshot, kinds) = taken.await?;
        let nodes = snapshot.nodes.into_iter().map(ManagedNode::from);
        Ok(Content {
            now,
            nodes: nodes.map(Node::from).collect(),
            leases: snapshot.leases.into_iter().map(Into::into).collect(),
            queue: snapshot.queue.unwrap_or_default().into(),
            kinds: kinds.into_iter().map(Kind::from).collect(),
            managers,
            links: match sees_links {
                true => {
                    let links = self.links.clone();
                    let slowest = tokio::task::spawn_blocking(move || links.slowest(MOST_LINKS));
                    slowest.await.map_err(|_| gone())?
                }
                false => Arc::default(),
            },
        })
    }
}

/// The managers, as of the last answer.
#[derive(Default)]
struct KnownManagers {
    known: Option<(Wall, Arc<Managers>)>,
    /// Why the last question got no answer.
    problem: Option<String>,
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
        self.problem = match answered {
            Ok(Ok(list)) => {
                self.known = Some((wall_now(), Arc::new(list.into())));
                None
            }
            // The earlier answer is shown with the reason.
            Ok(Err(status)) => Some(status.message().to_owned()),
            Err(error) => Some(error.to_string()),
        };
    }

    /// The last answer, with the reason if there is no newer one.
    fn shown(&self, now: Instant) -> Option<KnownAt> {
        let (at, list) = self.known.clone()?;
        let waits = self.answer.is_some();
        let late = waits
            && self
                .asked
                .is_some_and(|asked| now - asked >= MANAGERS_EVERY);
        let late = late.then(|| "etcd does not answer".to_owned());
        let problem = self.problem.clone().or(late);
        Some(KnownAt { at, list, problem })
    }
}

/// What the next snapshots are computed from.
#[derive(Default)]
struct State {
    figures: Figures,
    number: u64,
}

impl State {
    fn publish(&mut self, at: Duration, content: &Content, audiences: &[Audience], feed: &Feed) {
        self.figures.take(at, content);
        self.number += 1;
        for audience in audiences {
            let page = draw(content, &self.figures, audience);
            let before = feed.newest(audience);
            let change = before.and_then(|before| change::between(&before.page, &page));
            let published = Arc::new(Published {
                number: self.number,
                page,
                change: change.map(|change| event("change", &change)),
                whole: OnceLock::new(),
            });
            feed.publish(audience, published);
        }
    }
}

impl Figures {
    fn take(&mut self, at: Duration, content: &Content) {
        let mut devices = Vec::new();
        for Node {
            of: node,
            devices: all,
        } in &content.nodes
        {
            for device in all {
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
        let nodes = content.nodes.iter().map(|node| &node.of);
        let nodes = nodes.filter(|node| node.connected);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_take_a_fifth_of_the_time_at_most() {
        assert_eq!(pause(Duration::from_millis(3)), EVERY);
        assert_eq!(pause(Duration::from_millis(250)), EVERY);
        assert_eq!(pause(Duration::from_secs(2)), Duration::from_secs(8));
    }

    #[test]
    fn a_viewer_that_has_missed_a_change_gets_a_whole_snapshot() {
        let published = Published {
            number: 7,
            page: Map::new(),
            change: Some(event("change", &1)),
            whole: OnceLock::new(),
        };
        assert_eq!(published.event_after(Some(6)), event("change", &1));
        for has in [None, Some(5)] {
            let whole = event("snapshot", &published.page);
            assert_eq!(published.event_after(has), whole, "{has:?}");
        }
    }

    #[test]
    fn a_feed_ends_with_its_source() {
        let feed = Arc::new(Feed::new());
        let ends = Ends(Arc::clone(&feed));
        let audience = Audience::All { managers: false };
        let viewer = feed.look(audience.clone()).unwrap();
        assert!(viewer.has_changed().is_ok());
        drop(ends);
        assert!(viewer.has_changed().is_err());
        assert!(feed.look(audience).is_none());
    }
}
