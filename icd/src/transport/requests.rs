//! Open requests: which receiver waits for which answer.
//!
//! Invariant: every registered receiver is called once, or was taken back.

use std::collections::HashMap;

use causeway_proto::command::Answer;
use causeway_proto::id::RequestId;
use causeway_proto::status::WireError;
use parking_lot::Mutex;

/// Called once, with the answer or with the reason why there will be none.
pub(super) type Receiver = Box<dyn FnOnce(Result<Answer, WireError>) + Send>;

/// The open requests of a session.
#[derive(Default)]
pub(super) struct Requests {
    // `None` once the session is over.
    open: Mutex<Option<HashMap<RequestId, Receiver>>>,
}

impl Requests {
    pub(super) fn new() -> Requests {
        Requests {
            open: Mutex::new(Some(HashMap::new())),
        }
    }

    /// Registers a request before it is sent. Returns the receiver when the session is over.
    pub(super) fn register(&self, request: RequestId, receiver: Receiver) -> Result<(), Receiver> {
        match self.open.lock().as_mut() {
            Some(open) => {
                let before = open.insert(request, receiver);
                debug_assert!(before.is_none(), "{request:?} is used twice");
                Ok(())
            }
            None => Err(receiver),
        }
    }

    /// Removes a request, either to withdraw it or because its answer has come. `None` if it is not open.
    pub(super) fn take(&self, request: RequestId) -> Option<Receiver> {
        self.open.lock().as_mut()?.remove(&request)
    }

    /// Closes the table and returns the receivers that are still waiting.
    pub(super) fn close(&self) -> Vec<Receiver> {
        let open = self.open.lock().take();
        open.into_iter()
            .flatten()
            .map(|(_, receiver)| receiver)
            .collect()
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}
