//! Waits for what another process does. Nothing here belongs to one behaviour.

use std::time::{Duration, Instant};

/// Far longer than anything takes that a test waits for.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls `ask` until it returns a value.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
