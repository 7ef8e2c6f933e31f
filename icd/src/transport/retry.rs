//! Retries a conversation with a server that closed the connection before it answered.
//!
//! A server with too many new connections closes those that were silent for longest. Not here: what is
//! said. Invariant: at most [`ATTEMPTS`] attempts are made, with pauses that double and are random. Only the first
//! connections of a session that outlives its connections get more.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use causeway_proto::status::WireError;

use super::socket::{Fault, NotOpened};

const ATTEMPTS: i32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Pause after these attempts, if there are more.
const LATER_PAUSE: Duration = Duration::from_millis(250);

/// The pauses between the attempts. Random ones keep clients that were closed together from coming back
/// together.
fn pauses() -> impl Iterator<Item = Duration> {
    let pause = |times| FIRST_PAUSE.mul_f64(f64::powi(2.0, times) * rand::random_range(0.5..1.5));
    (0..ATTEMPTS - 1).map(pause)
}

/// Runs a conversation, and retries it. The conversation gets the number of the attempt, from 0, and may begin with
/// another address of its server. The caller limits the time.
pub(super) async fn persistently<T, F>(converse: impl Fn(usize) -> F) -> Result<T, WireError>
where
    F: Future<Output = Result<T, WireError>>,
{
    let mut attempt = 0;
    for pause in pauses() {
        match converse(attempt).await {
            Err(WireError::Closed { address, reason }) => {
                tracing::debug!(address, reason, "the peer closed the connection; retrying");
                tokio::time::sleep(pause).await;
                attempt += 1;
            }
            done => return done,
        }
    }
    converse(attempt).await
}

/// What is retried for a connection of a session, besides a connection that the server closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Nothing.
    Closed,
    /// An unreachable node, until the deadline. The session outlives its connections, also those that open it.
    Unreachable,
}

/// Like [`persistently`], for the connections of a session. Each attempt ends before `deadline`.
pub(super) fn persistently_by<T>(
    deadline: Instant,
    retry: Retry,
    converse: impl Fn() -> Result<T, NotOpened>,
) -> Result<T, NotOpened> {
    let is_patient = retry == Retry::Unreachable;
    let helps = |not_opened: &NotOpened| match not_opened.error {
        WireError::Closed { .. } => true,
        WireError::Unreachable { .. } => is_patient && not_opened.fault == Fault::Other,
        _ => false,
    };
    let most = if is_patient { usize::MAX } else { 0 };
    for pause in pauses().chain(std::iter::repeat_n(LATER_PAUSE, most)) {
        match converse() {
            // As much time as the pause is left for the next attempt.
            Err(not_opened) if helps(&not_opened) && Instant::now() + 2 * pause < deadline => {
                std::thread::sleep(pause);
            }
            done => return done,
        }
    }
    converse()
}
