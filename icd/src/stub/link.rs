//! What the stubs of one session share: the commands that have not completed, and who hears of notices.
//!
//! Implements the transport's [`SessionEvents`]. Invariant: every event in the table is completed
//! exactly once, by its completion or by the session's loss.

use std::hash::BuildHasherDefault;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use causeway_proto::command::{Completion, LinkState, Notice};
use causeway_proto::id::{ContextId, EventId};
use causeway_proto::status::{Status, WireError};
use dashmap::DashMap;
use parking_lot::Mutex;
use rustc_hash::FxHasher;

use super::event::End;
use super::repeats::Repeats;
use super::{Context, Event, Queue, peer};
use crate::error::ClResult;
use crate::thread::Stack;
use crate::transport::{self, Node, Session, SessionEvents};

type Table<K, V> = DashMap<K, V, BuildHasherDefault<FxHasher>>;

// The link of each node's last session. A slot is locked while a session opens, so that two first contexts
// on a node share one.
static LINKS: Mutex<Vec<(Arc<Node>, Slot)>> = Mutex::new(Vec::new());

type Slot = Arc<Mutex<Option<Arc<SessionLink>>>>;

/// See the module.
#[derive(Default)]
pub struct SessionLink {
    node: Weak<Node>,
    session: OnceLock<Arc<Session>>,
    incomplete: Table<EventId, Expected>,
    contexts: Table<ContextId, Registered>,
}

/// A context that hears of notices.
struct Registered {
    context: Weak<Context>,
    // For the log; the context itself is told everything.
    said: Repeats,
}

/// A command under way.
struct Expected {
    event: Arc<Event>,
    // Of an unseen one, whose event does not.
    _keeps: Option<Arc<Queue>>,
}

impl std::fmt::Debug for SessionLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionLink")
            .field("incomplete", &self.incomplete.len())
            .finish_non_exhaustive()
    }
}

impl SessionLink {
    /// The links of the nodes' live sessions, in the order of the nodes, which are all different; opens those
    /// that are missing, all at the same time.
    ///
    /// # Errors
    /// What the wire says when one of the sessions cannot be had.
    pub fn open_all(nodes: &[&Arc<Node>]) -> ClResult<Vec<Arc<SessionLink>>> {
        if let [node] = nodes {
            return Ok(vec![SessionLink::open(node)?]);
        }
        let opening = nodes.iter().map(|&node| {
            let node = node.clone();
            crate::thread::start("cw-open", Stack::Runtime, move || SessionLink::open(&node))
        });
        let opening: Vec<_> = opening.collect();
        let opened = opening.into_iter().map(|thread| {
            let joined = thread.map(std::thread::JoinHandle::join);
            // No thread, or one that panicked.
            joined.map_or(Err(Status::OUT_OF_RESOURCES), |link| {
                link.unwrap_or(Err(Status::OUT_OF_RESOURCES))
            })
        });
        // All are waited for, whichever fails.
        let opened: Vec<_> = opened.collect();
        opened.into_iter().collect()
    }

    fn open(node: &Arc<Node>) -> ClResult<Arc<SessionLink>> {
        // In a child of fork, another thread of the parent may have held the lock for ever.
        transport::check_not_forked()?;
        let slot = {
            let mut links = LINKS.lock();
            let known = links.iter().find(|(of, _)| Arc::ptr_eq(of, node));
            match known {
                Some((_, slot)) => slot.clone(),
                None => {
                    let slot = Slot::default();
                    links.push((node.clone(), slot.clone()));
                    slot
                }
            }
        };
        let mut slot = slot.lock();
        let fresh = Arc::new(SessionLink {
            node: Arc::downgrade(node),
            ..SessionLink::default()
        });
        let session = node.session(fresh.clone())?;
        if let Some(link) = &*slot
            && Arc::ptr_eq(link.session(), &session)
        {
            return Ok(link.clone());
        }
        let _ = fresh.session.set(session);
        *slot = Some(fresh.clone());
        Ok(fresh)
    }

    /// The session.
    ///
    /// # Panics
    /// Never: [`SessionLink::open_all`], which alone hands links out, has set it.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        self.session.get().expect("set when the link was made")
    }

    /// A command is on its way; its event will be completed. `keeps` lives until then.
    pub fn expect(&self, event: Arc<Event>, keeps: Option<Arc<Queue>>) {
        let id = event.id();
        let expected = Expected {
            event,
            _keeps: keeps,
        };
        self.incomplete.insert(id, expected);
        // The loss may have passed between the caller's look and this insert.
        if let Some(session) = self.session.get()
            && let Some(error) = session.is_lost()
        {
            self.fail_all(error.status());
        }
    }

    /// The command was never sent.
    pub fn forget(&self, event: EventId) {
        self.incomplete.remove(&event);
    }

    /// Notices about this context go to it.
    pub fn register_context(&self, id: ContextId, context: &Arc<Context>) {
        let registered = Registered {
            context: Arc::downgrade(context),
            said: Repeats::default(),
        };
        self.contexts.insert(id, registered);
    }

    /// The context is gone.
    pub fn forget_context(&self, id: ContextId) {
        if let Some((_, registered)) = self.contexts.remove(&id) {
            log_rest(registered.said);
        }
    }

    /// What was kept back of the log is said now.
    fn log_repeats(&self) {
        let said: Vec<Repeats> = self
            .contexts
            .iter_mut()
            .map(|mut entry| std::mem::take(&mut entry.value_mut().said))
            .collect();
        said.into_iter().for_each(log_rest);
    }

    fn fail_all(&self, status: Status) {
        let ids: Vec<EventId> = self.incomplete.iter().map(|entry| *entry.key()).collect();
        for id in ids {
            if let Some((_, expected)) = self.incomplete.remove(&id) {
                expected.event.ended(End::of(status));
            }
        }
    }

    fn tell_contexts(&self, only: Option<ContextId>, text: &str) {
        let contexts: Vec<Arc<Context>> = self
            .contexts
            .iter()
            .filter(|entry| only.is_none_or(|id| id == *entry.key()))
            .filter_map(|entry| entry.value().context.upgrade())
            .collect();
        for context in contexts {
            context.notify(text);
        }
    }
}

fn log_rest(said: Repeats) {
    for text in said.rest() {
        tracing::warn!("{text}");
    }
}

impl SessionEvents for SessionLink {
    fn completed(&self, completion: Completion) {
        let Some((_, expected)) = self.incomplete.remove(&EventId(completion.event)) else {
            return;
        };
        let event = &expected.event;
        let status = Status(completion.status.min(0));
        if status.is_error() && !completion.message.is_empty() {
            tracing::warn!("a command failed with {status}: {}", completion.message);
            if let Some(context) = event.context_of_notice() {
                context.notify(&completion.message);
            }
        }
        let times = [
            completion.queued,
            completion.submitted,
            completion.started,
            completion.ended,
            completion.completed,
        ];
        event.ended(End {
            status,
            times: Some(times),
            contents: completion.contents,
        });
    }

    fn notice(&self, notice: Notice) {
        let id = ContextId(notice.context);
        let of = self.contexts.get_mut(&id);
        if of.is_none_or(|mut of| of.said.is_new(&notice.message)) {
            tracing::warn!("{}", notice.message);
        }
        if notice.context != 0 {
            self.tell_contexts(Some(id), &notice.message);
        }
    }

    fn printed(&self, text: Bytes) {
        crate::stdout::write(&text);
    }

    fn link_state(&self, state: LinkState) {
        peer::link_state(self, &state);
    }

    fn lost(&self, error: &WireError) {
        match error {
            WireError::Lost { reason, .. } if reason == transport::DISCONNECTED => {
                tracing::info!("{error}");
            }
            _ if transport::is_ending() => tracing::info!("{error}"),
            _ => tracing::warn!("{error}"),
        }
        self.log_repeats();
        // First, while the transfers that end with it are still known.
        peer::lost(self);
        self.fail_all(error.status());
        self.tell_contexts(None, &error.to_string());
        if let Some(node) = self.node.upgrade() {
            node.lost();
        }
    }

    fn explained(&self, reason: &str) {
        self.tell_contexts(None, reason);
    }
}
