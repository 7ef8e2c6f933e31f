//! Counts what the programs have survived, as their libraries report it on standard error.
//!
//! A fault may meet a program that is just ending, or a worker without a session. So the number of faults is not the
//! number of moves or re-executions.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::Finished;

/// What the library prints when the node has parked the session: for the next daemon, or for another node.
const PARKED: &str = "the node has parked the session";
/// What the library prints when another worker has begun to execute the commands again.
const EXECUTED_AGAIN: &str = "another one executes the program's commands again";

static MOVES: AtomicU32 = AtomicU32::new(0);
static REEXECUTIONS: AtomicU32 = AtomicU32::new(0);

/// Counts what a program that has ended well has survived. Returns how much that is.
pub(super) fn count(finished: &Finished) -> u32 {
    let (mut moves, mut reexecutions) = (0, 0);
    for line in finished.stderr.lines() {
        moves += u32::from(line.contains(PARKED));
        reexecutions += u32::from(line.contains(EXECUTED_AGAIN));
    }
    MOVES.fetch_add(moves, Ordering::Relaxed);
    REEXECUTIONS.fetch_add(reexecutions, Ordering::Relaxed);
    moves + reexecutions
}

/// Returns what all programs have survived, for people. `None`: nothing of that kind has happened.
pub(crate) fn summary() -> Option<String> {
    let [moves, reexecutions] = [&MOVES, &REEXECUTIONS].map(|count| count.load(Ordering::Relaxed));
    let some = moves + reexecutions > 0;
    some.then(|| format!("{moves} moves and {reexecutions} re-executions were survived"))
}
