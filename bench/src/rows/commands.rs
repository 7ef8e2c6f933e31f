//! Commands a second on the fake driver, of one thread and of several.
#![forbid(unsafe_code)]

use super::{Group, Row, RowPlace, Task};
use crate::figures::Unit;
use crate::options::Options;

/// The rows.
pub(super) fn rows(options: &Options) -> Vec<Row> {
    let many = if options.quick { 2_000 } else { 100_000 };
    let each = many / 5;
    let row = |task, id: &str, name: &str| {
        Row::new(Group::Commands, task, id, name)
            .place(RowPlace::Fake)
            .unit(Unit::CommandsPerSecond)
    };
    vec![
        row(
            Task::Pipelined(many),
            "commands/one-queue",
            "commands to their end, one queue, fake driver",
        ),
        row(
            Task::Threads(1, each),
            "contention/1",
            "enqueues of 1 thread, fake driver",
        ),
        row(
            Task::Threads(8, each),
            "contention/8",
            "enqueues of 8 threads on 8 queues, fake driver",
        ),
        row(
            Task::Scaling(each),
            "contention/scaling",
            "enqueues of 8 threads over those of 1, fake driver",
        )
        .unit(Unit::Gain),
    ]
}
