//! One process's session on one node.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{Answer, Completion, Notice};
use causeway_proto::id::{EventId, RequestId};
use causeway_proto::status::WireError;

use super::bulk::memory::HostRegion;
use super::encode::EncodeCommand;

/// What the upper half hears from a session.
///
/// Called from the transport's threads (the command reader; for joined bulk transfers also a bulk
/// lane), so from several at once, never under a transport lock. Must be short and must not block,
/// nor wait in any session; sending is allowed (it only appends there).
pub trait SessionEvents: Send + Sync {
    /// A command is complete: once for each event. For a bulk transfer only when, besides the
    /// completion, all its bytes are there (or it failed) and nobody touches its memory any more.
    fn completed(&self, completion: Completion);
    /// Something failed that no event tells.
    fn notice(&self, notice: Notice);
    /// A kernel printed.
    fn printed(&self, text: Bytes);
    /// All bytes of an upload have been handed to the network; its `keep` is dropped. Its completion
    /// comes separately, and may overtake this.
    fn uploaded(&self, event: EventId) {
        let _ = event;
    }
    /// The session is lost: nothing will complete any more, nothing touches the application's memory
    /// any more. Once.
    fn lost(&self, error: &WireError);
}

/// A live (or lost) session.
#[derive(Debug)]
pub struct Session {
    address: String,
}

impl Session {
    /// Appends a command to the outgoing buffer: it will be applied after everything sent before.
    ///
    /// Never waits for an answer; may wait for room on the connection. It leaves within about
    /// 100 µs, or with the next [`Session::flush`] or wait.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Forked`], [`WireError::TooLarge`]; then nothing was sent.
    pub fn send(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        let _ = command;
        Err(self.unwritten())
    }

    /// [`Session::send`] and [`Session::flush`] in one; for a command that is waited for next.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn send_now(&self, command: &impl EncodeCommand) -> Result<(), WireError> {
        let _ = command;
        Err(self.unwritten())
    }

    /// Writes what is queued to the connection, on the calling thread.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Forked`].
    pub fn flush(&self) -> Result<(), WireError> {
        Err(self.unwritten())
    }

    /// Sends a command that carries `request` and waits for its answer.
    ///
    /// # Errors
    /// As [`Session::send`], and [`WireError::Lost`] when the session is lost while waiting. An
    /// answer with a negative status is `Ok`.
    pub fn request(
        &self,
        request: RequestId,
        command: &impl EncodeCommand,
    ) -> Result<Answer, WireError> {
        let _ = (request, command);
        Err(self.unwritten())
    }

    /// The same without waiting: `then` runs on a transport thread (short, not blocking), exactly
    /// once if and only if this returns `Ok`.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn request_async(
        &self,
        request: RequestId,
        command: &impl EncodeCommand,
        then: impl FnOnce(Result<Answer, WireError>) + Send + 'static,
    ) -> Result<(), WireError> {
        let _ = (request, command, then);
        Err(self.unwritten())
    }

    /// Flushes, then waits until `condition` holds. It is looked at again after everything that this
    /// session brings and after every [`Session::nudge`].
    ///
    /// # Errors
    /// [`WireError::Lost`] when the session is lost and `condition` still does not hold;
    /// [`WireError::Forked`].
    pub fn wait_until(&self, condition: &dyn Fn() -> bool) -> Result<(), WireError> {
        let _ = condition;
        Err(self.unwritten())
    }

    /// Makes every [`Session::wait_until`] look at its condition again; for changes that did not come
    /// through this session (a user event, another node).
    pub fn nudge(&self) {}

    /// Registers the bytes of the bulk write `event`. Call before the command is sent. They are read
    /// once the worker grants credit, after this returns; `keep` is held until they all are.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Forked`].
    pub fn upload(
        &self,
        event: EventId,
        source: HostRegion,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<(), WireError> {
        let _ = (event, source, keep);
        Err(self.unwritten())
    }

    /// Registers where the bytes of the bulk read `event` go. Call before the command is sent.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Forked`].
    pub fn download(&self, event: EventId, destination: HostRegion) -> Result<(), WireError> {
        let _ = (event, destination);
        Err(self.unwritten())
    }

    /// Why the session is over, if it is.
    #[must_use]
    pub fn is_lost(&self) -> Option<WireError> {
        None
    }

    fn unwritten(&self) -> WireError {
        WireError::Lost {
            address: self.address.clone(),
            reason: "not written yet".to_owned(),
        }
    }
}
