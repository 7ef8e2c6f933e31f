//! Questions on their way: who waits for which answer.

use std::collections::HashMap;

use causeway_proto::command::Answer;
use causeway_proto::id::RequestId;
use causeway_proto::status::WireError;
use parking_lot::Mutex;

/// Called once, with the answer or the reason why there will be none.
pub(super) type Receiver = Box<dyn FnOnce(Result<Answer, WireError>) + Send>;

/// The open requests of a session.
#[derive(Default)]
pub(super) struct Requests {
    // None once the session is over.
    open: Mutex<Option<HashMap<RequestId, Receiver>>>,
}

impl Requests {
    pub(super) fn new() -> Requests {
        Requests {
            open: Mutex::new(Some(HashMap::new())),
        }
    }

    /// Registers before sending. Gives the receiver back when the session is over.
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

    /// Takes it back, or out when its answer has come; `None` when it is not open.
    pub(super) fn take(&self, request: RequestId) -> Option<Receiver> {
        self.open.lock().as_mut()?.remove(&request)
    }

    /// No more answers: everyone who still waits.
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
