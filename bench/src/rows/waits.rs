//! Programs that wait in each turn: the time of a turn, and its processor time at both ends.
#![forbid(unsafe_code)]

use super::{Group, Often, Row, Task};
use crate::options::Options;

/// Turns of the rows that count time.
const TURNS: u32 = 800;

/// The rows. They have no marks, and show what waits cost beyond the native driver's.
pub(super) fn rows(options: &Options) -> Vec<Row> {
    // Processor time is counted in hundredths of a second.
    let many = if options.quick { TURNS } else { 8_000 };
    let mut rows = Vec::new();
    for (often, tag, name) in [
        (
            Often::MapImage,
            "map-image",
            "blocking map of an image of 1 KiB, and unmap",
        ),
        (
            Often::Queues,
            "queues",
            "launch + finish on 100 queues in turn",
        ),
        (
            Often::Threads,
            "threads",
            "8 threads: new buffer, launch, blocking read",
        ),
    ] {
        let id = format!("wait-often/{tag}");
        let processor = format!("{name}: processor time");
        let row = |task, id, name| Row::new(Group::Latency, task, id, name);
        rows.push(row(
            Task::WaitOften(often, TURNS),
            id.clone(),
            name.to_owned(),
        ));
        rows.push(row(
            Task::Processor(often, many),
            format!("{id}/processor"),
            processor,
        ));
    }
    rows
}
