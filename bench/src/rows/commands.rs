//! Commands a second, on the fake driver: what a session carries, and what threads meet in.
#![forbid(unsafe_code)]

use super::{Group, Place, Row, Task};
use crate::figures::Unit;

/// The rows.
pub(super) fn rows() -> Vec<Row> {
    let row = |task, id: &str, name: &str| {
        Row::new(Group::Commands, task, id, name)
            .place(Place::Fake)
            .unit(Unit::CommandsPerSecond)
    };
    vec![
        row(
            Task::Pipelined(100_000),
            "commands/one-queue",
            "commands to their end, one queue, fake driver",
        ),
        row(
            Task::Threads(1),
            "contention/1",
            "enqueues of 1 thread, fake driver",
        ),
        row(
            Task::Threads(8),
            "contention/8",
            "enqueues of 8 threads on 8 queues, fake driver",
        ),
        row(
            Task::Scaling,
            "contention/scaling",
            "enqueues of 8 threads over those of 1, fake driver",
        )
        .unit(Unit::Gain),
    ]
}
