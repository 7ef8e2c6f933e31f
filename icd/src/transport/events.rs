//! What the upper half hears from a session.

use bytes::Bytes;
use causeway_proto::command::{Completion, LinkState, Notice};
use causeway_proto::id::EventId;
use causeway_proto::status::WireError;

#[cfg(doc)]
use super::Session;

/// What the upper half hears from a session.
///
/// Called from the transport's threads (the command reader; for joined bulk transfers also a bulk
/// lane) and from those of the application that wait in the session, so from several at once, never under a
/// transport lock. Must be short and must not block,
/// nor wait in any session; sending is allowed (it only appends there).
///
/// A session holds its `SessionEvents` for as long as it lives, so an implementation should refer
/// weakly to whatever holds the session.
pub trait SessionEvents: Send + Sync {
    /// A command is complete: once for each event. For a bulk transfer only when, besides the
    /// completion, all its bytes are there (or it failed) and nobody touches its memory any more.
    fn completed(&self, completion: Completion);
    /// Something failed that no event tells.
    fn notice(&self, notice: Notice);
    /// A kernel printed.
    fn printed(&self, text: Bytes);
    /// All bytes of an upload have been handed to the network and its `keep` is dropped. Not called
    /// when the completion came first.
    fn uploaded(&self, event: EventId) {
        let _ = event;
    }
    /// A link to another session's worker can be used, or cannot any more.
    fn link_state(&self, state: LinkState) {
        let _ = state;
    }
    /// The session is lost: nothing will complete any more, nothing touches the application's memory
    /// any more. Once. A [`Session::send`] that races with this may still return `Ok`.
    fn lost(&self, error: &WireError);
    /// Why it was lost, which has become known later.
    fn explained(&self, reason: &str) {
        let _ = reason;
    }
}
