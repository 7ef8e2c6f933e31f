//! Reads the owner's state from another task.
//!
//! Invariant: a read sees the state between two inputs, never half of a change.

use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::book::Sight;
use super::input::Input;

/// Asks the owner to run `look` on its state, and returns the result.
pub(super) async fn read<T: Send + 'static>(
    owner: &mpsc::Sender<Input>,
    look: impl FnOnce(&Sight<'_>) -> T + Send + 'static,
) -> Result<T, Status> {
    let (show, shown) = oneshot::channel();
    let look = Box::new(move |sight: &Sight<'_>| drop(show.send(look(sight))));
    let sent = owner.send(Input::Read(look)).await;
    sent.map_err(|_| gone())?;
    shown.await.map_err(|_| gone())
}

pub(super) fn gone() -> Status {
    Status::unavailable("the device manager is stopping")
}
