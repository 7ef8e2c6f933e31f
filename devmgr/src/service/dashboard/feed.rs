//! One snapshot a second for all who look, and the change since the one before.
//!
//! One task takes the snapshots while somebody looks. Otherwise it takes one a minute, for the last hour of the devices.
//! All viewers with the same rights share one snapshot and one encoded change. Invariants: a viewer that reads slowly
//! delays nobody. It gets a whole snapshot in place of the changes that it has missed. Slow viewers keep a bounded amount
//! of earlier snapshots and changes ([`Memory`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causeway_proto::manager as pb;
use parking_lot::Mutex;
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
use crate::dashboard::page::{Page, Text};
use crate::dashboard::view::{Audience, Content, Figures, KnownAt, Node, device_id, draw};
use crate::listing::{Kind, ManagedNode, Managers};
use crate::policy::UserName;
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
/// Memory for what slow viewers have not yet taken, in bytes.
const SLOW_VIEWERS: usize = 64 << 20;
/// One user's part of it. A user can always have one snapshot.
const ONE_USER: usize = 4;

/// The snapshots by audience. See the module.
pub(super) struct Feed {
    /// `None`: the source has ended, and the feed with it.
    audiences: Mutex<Option<Audiences>>,
    wake: Notify,
    memory: Arc<Memory>,
}

type Audiences = HashMap<Audience, watch::Sender<Option<Arc<Published>>>>;

/// A snapshot for one audience.
pub(super) struct Published {
    number: u64,
    page: (Arc<Page>, Arc<MemoryPart>),
    /// The change since the snapshot before, as an event. `None`: there was none.
    change: Option<(Bytes, Arc<MemoryPart>)>,
}

/// The memory for what slow viewers have not yet taken: what each user takes of it. `None`: users are not known.
struct Memory {
    bytes: usize,
    taken: Mutex<HashMap<Option<UserName>, usize>>,
}

/// A snapshot's or a change's part of the memory for slow viewers. Its rows count, although others may share them.
struct MemoryPart {
    memory: Arc<Memory>,
    bytes: usize,
    /// The first user who has needed it, and for whom it counts.
    taken: Mutex<Option<Option<UserName>>>,
}

impl Memory {
    fn place(self: &Arc<Memory>, bytes: usize) -> Arc<MemoryPart> {
        Arc::new(MemoryPart {
            memory: Arc::clone(self),
            // What is beyond the limit is the only thing that slow viewers keep.
            bytes: bytes.min(self.bytes),
            taken: Mutex::default(),
        })
    }
}

impl MemoryPart {
    /// Takes the place for a slow viewer, unless another one has. Returns whether it is taken.
    fn take(&self, user: Option<&UserName>) -> bool {
        let mut place = self.taken.lock();
        if place.is_some() {
            return true;
        }
        let mut taken = self.memory.taken.lock();
        let all: usize = taken.values().sum();
        let own = taken.get(&user.cloned()).copied().unwrap_or_default();
        let is_too_much =
            user.is_some() && own > 0 && own + self.bytes > self.memory.bytes / ONE_USER;
        if is_too_much || all + self.bytes > self.memory.bytes {
            return false;
        }
        taken.insert(user.cloned(), own + self.bytes);
        *place = Some(user.cloned());
        true
    }
}

impl Drop for MemoryPart {
    fn drop(&mut self) {
        let Some(user) = self.taken.get_mut().take() else {
            return;
        };
        let mut taken = self.memory.taken.lock();
        if let Some(own) = taken.get_mut(&user) {
            *own -= self.bytes;
            if *own == 0 {
                taken.remove(&user);
            }
        }
    }
}

impl Published {
    /// The event for a viewer that has the snapshot of this number.
    pub(super) fn event_after(&self, has: Option<u64>) -> Event {
        let follows = has.is_some_and(|has| has + 1 == self.number);
        let (rest, place) = match self.change.as_ref().filter(|_| follows) {
            Some((change, place)) => (Rest::Text(change.clone()), place),
            None => {
                let (page, place) = &self.page;
                let text = Text::new(Arc::clone(page));
                (Rest::Page(text, Stage::Begin), place)
            }
        };
        Event {
            rest,
            place: Some(Arc::clone(place)),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// An event on its way to a viewer.
pub(super) struct Event {
    rest: Rest,
    /// The place of the snapshot or the change that the event keeps in memory.
    place: Option<Arc<MemoryPart>>,
}

enum Rest {
    /// Bytes that all viewers share.
    Text(Bytes),
    Page(Text, Stage),
}

/// How much of an event was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Middle,
    End,
}

impl From<Bytes> for Event {
    fn from(text: Bytes) -> Event {
        Event {
            rest: Rest::Text(text),
            place: None,
        }
    }
}

impl Event {
    /// The next part, of about so many bytes. `None`: the event is complete.
    pub(super) fn part(&mut self, bytes: usize) -> Option<Bytes> {
        match &mut self.rest {
            Rest::Text(text) => {
                let part = text.split_to(text.len().min(bytes));
                (!part.is_empty()).then_some(part)
            }
            Rest::Page(_, Stage::End) => None,
            Rest::Page(page, stage) => {
                let mut part = String::with_capacity(bytes + bytes / 8);
                if *stage == Stage::Begin {
                    part.push_str("event: snapshot\ndata: ");
                }
                *stage = Stage::Middle;
                if !page.write(&mut part, bytes) {
                    part.push_str("\n\n");
                    *stage = Stage::End;
                }
                Some(part.into())
            }
        }
    }

    /// Whether a slow viewer may go on with this event, although newer snapshots exist. `None`: users are not known.
    pub(super) fn may_last(&self, user: Option<&UserName>) -> bool {
        self.place.as_ref().is_none_or(|place| place.take(user))
    }
}

/// An event of a stream. JSON has no line breaks.
pub(super) fn event(name: &str, data: &impl serde::Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    event_of(name, &data)
}

fn event_of(name: &str, json: &str) -> Bytes {
    format!("event: {name}\ndata: {json}\n\n").into()
}

impl Feed {
    pub(super) fn new() -> Feed {
        Feed::with_memory(SLOW_VIEWERS)
    }

    fn with_memory(bytes: usize) -> Feed {
        Feed {
            audiences: Mutex::new(Some(HashMap::new())),
            wake: Notify::new(),
            memory: Arc::new(Memory {
                bytes,
                taken: Mutex::default(),
            }),
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

    fn published(&self, number: u64, page: Page, change: Option<Bytes>) -> Arc<Published> {
        let place = self.memory.place(page.size());
        Arc::new(Published {
            number,
            page: (Arc::new(page), place),
            change: change.map(|change| {
                let place = self.memory.place(change.len());
                (change, place)
            }),
        })
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
        let mut state = FeedState::default();
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
struct FeedState {
    figures: Figures,
    number: u64,
}

impl FeedState {
    fn publish(&mut self, at: Duration, content: &Content, audiences: &[Audience], feed: &Feed) {
        self.figures.take(at, content);
        self.number += 1;
        for audience in audiences {
            let before = feed
                .newest(audience)
                .map(|before| Arc::clone(&before.page.0));
            let page = draw(content, &self.figures, audience, before.as_deref());
            let change = before.and_then(|before| page.change_since(&before));
            let change = change.map(|change| event_of("change", &change));
            feed.publish(audience, feed.published(self.number, page, change));
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
    use serde_json::json;

    use super::super::SLICE;
    use super::*;

    #[test]
    fn snapshots_take_a_fifth_of_the_time_at_most() {
        assert_eq!(pause(Duration::from_millis(3)), EVERY);
        assert_eq!(pause(Duration::from_millis(250)), EVERY);
        assert_eq!(pause(Duration::from_secs(2)), Duration::from_secs(8));
    }

    /// A snapshot with a table of about so many bytes.
    fn published(feed: &Feed, number: u64, bytes: usize) -> Arc<Published> {
        let mut page = Page::default();
        let rows = (0..bytes / 1000).map(|row| (row.to_string(), json!("x".repeat(1000))));
        page.put_table("leases", rows, None);
        let change = event("change", &number);
        feed.published(number, page, Some(change))
    }

    fn all(mut event: Event) -> Vec<Bytes> {
        std::iter::from_fn(|| event.part(SLICE)).collect()
    }

    #[test]
    fn a_viewer_that_has_missed_a_change_gets_a_whole_snapshot_in_small_parts() {
        let published = published(&Feed::new(), 7, 300_000);
        assert_eq!(all(published.event_after(Some(6)))[0], event("change", &7));
        for has in [None, Some(5)] {
            let parts = all(published.event_after(has));
            assert!(parts.iter().all(|part| part.len() < SLICE + 2_000));
            let text = parts.concat();
            assert_eq!(
                text,
                event("snapshot", &published.page.0.shown()),
                "{has:?}"
            );
        }
    }

    #[test]
    fn viewers_with_the_same_rights_share_a_snapshot_and_its_change() {
        let published = published(&Feed::new(), 7, 300_000);
        let mut viewers = Vec::new();
        for _ in 0..50 {
            let (mut change, whole) = (published.event_after(Some(6)), published.event_after(None));
            viewers.push((change.part(SLICE).unwrap(), whole));
        }
        assert!(
            viewers
                .iter()
                .all(|of| of.0.as_ptr() == viewers[0].0.as_ptr())
        );
        // The page is that of the snapshot, and of each viewer that has not yet taken it.
        assert_eq!(Arc::strong_count(&published.page.0), 51);
    }

    #[test]
    fn slow_viewers_keep_a_bounded_amount_of_snapshots() {
        // Each snapshot has 10 KB of text.
        let feed = Feed::with_memory(66_000);
        let snapshot = |number| published(&feed, number, 10_000);
        let events = (0..20).map(|number| snapshot(number).event_after(None));
        let (lasting, others): (Vec<_>, Vec<_>) = events.partition(|event| event.may_last(None));
        assert_eq!((lasting.len(), others.len()), (6, 14));
        // A comment or a refusal keeps nothing.
        assert!(Event::from(event("over", &1)).may_last(None));
        // There is room again for the same snapshot.
        drop(lasting);
        assert!(others[0].may_last(None));
        drop(others);
        let large = published(&feed, 21, 100_000).event_after(None);
        assert!(large.may_last(None));
        assert!(!snapshot(22).event_after(None).may_last(None));
    }

    #[test]
    fn viewers_of_one_snapshot_share_its_place_and_a_change_takes_its_own() {
        let feed = Feed::with_memory(11_000);
        let first = published(&feed, 1, 10_000);
        let events = [first.event_after(None), first.event_after(None)];
        assert!(events.iter().all(|event| event.may_last(None)));
        let second = published(&feed, 2, 10_000);
        let whole = second.event_after(None);
        assert!(!whole.may_last(None));
        assert!(second.event_after(Some(1)).may_last(None));
        let page = Arc::downgrade(&second.page.0);
        let change = second.event_after(Some(1));
        drop((second, whole));
        assert!(page.upgrade().is_none(), "a change keeps no page");
        drop(change);
    }

    #[test]
    fn one_user_leaves_room_for_others() {
        let feed = Feed::with_memory(88_000);
        let [ann, bob, eve] = ["ann", "bob", "eve"].map(|name| UserName(name.into()));
        let events: Vec<_> = (0..10)
            .map(|number| published(&feed, number, 10_000).event_after(None))
            .collect();
        let lasting = |user| events.iter().filter(|of| of.may_last(Some(user))).count();
        assert_eq!(lasting(&ann), 2);
        // Bob's viewers share ann's two.
        assert_eq!(lasting(&bob), 4);
        // A user can always have one, if there is room.
        let large = published(&feed, 10, 40_000).event_after(None);
        assert!(large.may_last(Some(&eve)));
        let more = published(&feed, 11, 1_000).event_after(None);
        assert!(!more.may_last(Some(&eve)));
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
