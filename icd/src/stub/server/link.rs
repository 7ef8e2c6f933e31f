//! State that the stubs of one session share: the incomplete commands, and the contexts that receive
//! notices.
//!
//! Implements the transport's [`SessionEvents`]. Invariant: every event in the table ends exactly once, by
//! its completion or by the loss of the session.

use std::hash::BuildHasherDefault;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use causeway_proto::command::{Completion, LinkState, Notice};
use causeway_proto::id::{ContextId, EventId};
use causeway_proto::status::{Status, WireError};
use dashmap::DashMap;
use parking_lot::Mutex;
use rustc_hash::FxHasher;

use crate::error::ClResult;
use crate::fork;
use crate::stub::context::repeats::Repeats;
use crate::stub::event::CommandEnd;
use crate::stub::{Context, Event, Queue, server::peer};
use crate::thread::Stack;
use crate::transport::{self, Node, Session, SessionEvents};

type Table<K, V> = DashMap<K, V, BuildHasherDefault<FxHasher>>;

// The link of each node's latest session. A cell stays locked while its session opens, so that two threads
// that create the first contexts on a node share one session.
static LINKS: Mutex<Vec<(Arc<Node>, SessionCell)>> = Mutex::new(Vec::new());

type SessionCell = Arc<Mutex<Option<Arc<SessionLink>>>>;

/// The incomplete commands and the contexts of one session; see the module.
#[derive(Default)]
pub struct SessionLink {
    node: Weak<Node>,
    session: OnceLock<Arc<Session>>,
    incomplete: Table<EventId, Expected>,
    contexts: Table<ContextId, Registered>,
}

/// A context that receives notices.
struct Registered {
    context: Weak<Context>,
    // Suppresses repeated log lines. The context's own callback receives every notice.
    said: Repeats,
}

/// A command that was sent and has not completed.
struct Expected {
    event: Arc<Event>,
    // The queue of an unobserved command, whose event does not keep the queue alive.
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
    /// Returns the links of the nodes' live sessions, in the order of `nodes`, which must all be different.
    /// Opens missing sessions in parallel.
    ///
    /// # Errors
    /// The code of the wire error when one of the sessions cannot be opened.
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
            // The thread could not be started, or it panicked.
            joined.map_or(Err(Status::OUT_OF_RESOURCES), |link| {
                link.unwrap_or(Err(Status::OUT_OF_RESOURCES))
            })
        });
        // Wait for all threads, even when one of them fails.
        let opened: Vec<_> = opened.collect();
        opened.into_iter().collect()
    }

    fn open(node: &Arc<Node>) -> ClResult<Arc<SessionLink>> {
        // After `fork`, a thread that exists only in the parent may have held `LINKS`, and the child would
        // wait for ever.
        fork::check()?;
        // Only this node's cell stays locked while its session opens, so that other nodes are not delayed.
        let cell = {
            let mut links = LINKS.lock();
            let known = links.iter().find(|(of, _)| Arc::ptr_eq(of, node));
            match known {
                Some((_, cell)) => cell.clone(),
                None => {
                    let cell = SessionCell::default();
                    links.push((node.clone(), cell.clone()));
                    cell
                }
            }
        };
        let mut cell = cell.lock();
        let fresh = Arc::new(SessionLink {
            node: Arc::downgrade(node),
            ..SessionLink::default()
        });
        let session = node.session(fresh.clone())?;
        // The node may already have a live session with a link; then `fresh` is not used.
        if let Some(link) = &*cell
            && Arc::ptr_eq(link.session(), &session)
        {
            return Ok(link.clone());
        }
        let _ = fresh.session.set(session);
        *cell = Some(fresh.clone());
        Ok(fresh)
    }

    /// Returns the link of a node's latest session, without opening one. `None` while one is being opened.
    #[must_use]
    pub fn of(node: &Arc<Node>) -> Option<Arc<SessionLink>> {
        fork::check().ok()?;
        let cell = {
            let links = LINKS.lock();
            let known = links.iter().find(|(of, _)| Arc::ptr_eq(of, node))?;
            known.1.clone()
        };
        cell.try_lock()?.clone()
    }

    /// Returns the session of this link.
    ///
    /// # Panics
    /// Never: links are handed out when their session is set.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        self.session.get().expect("open_all has set the session")
    }

    /// The uuid of the node where the session is now.
    #[must_use]
    pub fn node_uuid(&self) -> Option<Bytes> {
        self.node.upgrade()?.uuid()
    }

    /// Registers a command that is about to be sent, so that its event ends with the completion or with the
    /// session's loss. `keeps` is kept alive until then.
    pub fn expect(&self, event: Arc<Event>, keeps: Option<Arc<Queue>>) {
        let id = event.id();
        let expected = Expected {
            event,
            _keeps: keeps,
        };
        self.incomplete.insert(id, expected);
        // The session may have been lost after the caller checked and before this insert. `fail_all` would
        // then miss the event.
        if let Some(session) = self.session.get()
            && let Some(error) = session.is_lost()
        {
            self.fail_all(error.status());
        }
    }

    /// Removes a command that was registered but never sent.
    pub fn forget(&self, event: EventId) {
        self.incomplete.remove(&event);
    }

    /// Registers a context for the notices about it.
    pub fn register_context(&self, id: ContextId, context: &Arc<Context>) {
        let registered = Registered {
            context: Arc::downgrade(context),
            said: Repeats::default(),
        };
        self.contexts.insert(id, registered);
    }

    /// Removes a context that is being destroyed.
    pub fn forget_context(&self, id: ContextId) {
        if let Some((_, registered)) = self.contexts.remove(&id) {
            log_rest(registered.said);
        }
    }

    /// Logs the repeated lines that were suppressed so far.
    fn log_repeats(&self) {
        let said: Vec<Repeats> = self
            .contexts
            .iter_mut()
            .map(|mut entry| std::mem::take(&mut entry.value_mut().said))
            .collect();
        said.into_iter().for_each(log_rest);
    }

    fn fail_all(&self, status: Status) {
        // Collect the ids first: the table must not be locked while events end.
        let ids: Vec<EventId> = self.incomplete.iter().map(|entry| *entry.key()).collect();
        for id in ids {
            if let Some((_, expected)) = self.incomplete.remove(&id) {
                expected.event.ended(CommandEnd::of(status));
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
            tracing::warn!(
                "the node reported a failed command: {status}: {}",
                completion.message
            );
            event.context().notify(&completion.message);
        }
        let times = [
            completion.queued,
            completion.submitted,
            completion.started,
            completion.ended,
            completion.completed,
        ];
        event.ended(CommandEnd {
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
            // The program knows why, so this needs no warning.
            WireError::Disconnected { .. } => tracing::info!("{error}"),
            _ if transport::is_ending() => tracing::info!("{error}"),
            _ => tracing::warn!("{error}"),
        }
        self.log_repeats();
        // Peers go first, while the transfers that end with the session are still known.
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
