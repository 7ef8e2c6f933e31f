//! The trait through which a session reports to the client's objects.

use bytes::Bytes;
use causeway_proto::command::{Completion, LinkState, Notice};
use causeway_proto::status::WireError;

/// Callbacks of a session.
///
/// The transport's threads call them: the command reader, and bulk lanes for bulk transfers. Threads of
/// the application that wait in the session call them too. Several threads may call at the same time,
/// never under a transport lock. An implementation must be short, must not block and must not wait in any
/// session. Sending is allowed, because it only appends there.
///
/// A session holds its `SessionEvents` for as long as it lives. So an implementation should refer to the
/// session's owner only weakly.
pub trait SessionEvents: Send + Sync {
    /// A command is complete. Called once for each event. For a bulk transfer, all bytes are there (or
    /// the transfer failed), and no thread accesses its memory any more.
    fn completed(&self, completion: Completion);
    /// A failure that belongs to no event.
    fn notice(&self, notice: Notice);
    /// Output of a kernel's `printf`.
    fn printed(&self, text: Bytes);
    /// A link to another session's worker became usable or unusable.
    fn link_state(&self, state: LinkState) {
        let _ = state;
    }
    /// The session is lost: nothing completes any more, and the application's memory is no longer
    /// accessed. Called once. A [`Session::send`](super::Session::send) that races with this may still return `Ok`.
    fn lost(&self, error: &WireError);
    /// The reason of the loss, if it becomes known later.
    fn explained(&self, reason: &str) {
        let _ = reason;
    }
}
