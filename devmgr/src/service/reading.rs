//! Asks the owner from another task, and reads its state.
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
    ask(owner, |show| {
        Input::Read(Box::new(move |sight: &Sight<'_>| {
            drop(show.send(look(sight)))
        }))
    })
    .await
}

/// Sends an input to the owner, and returns the answer.
pub(super) async fn ask<T>(
    owner: &mpsc::Sender<Input>,
    input: impl FnOnce(oneshot::Sender<T>) -> Input,
) -> Result<T, Status> {
    let (answer, answered) = oneshot::channel();
    let sent = owner.send(input(answer)).await;
    sent.map_err(|_| gone())?;
    answered.await.map_err(|_| gone())
}

pub(super) fn gone() -> Status {
    Status::unavailable("the device manager is stopping")
}
