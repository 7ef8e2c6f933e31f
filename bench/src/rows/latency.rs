//! Single calls: the cost of an enqueue for its caller, and the time of a wait.
#![forbid(unsafe_code)]

use super::{Base, Group, Pace, Row, Task};

/// The rows.
pub(super) fn rows() -> Vec<Row> {
    let row = |task, id: &str, name: &str| Row::new(Group::Latency, task, id, name);
    let mut rows = Vec::new();
    for (pace, tag, text) in [
        (Pace::Flood, "flood", "in a flood"),
        (Pace::Paced, "paced", "every 100 µs"),
    ] {
        for (task, what, name) in [
            (Task::EnqueueKernel(pace), "kernel", "a kernel"),
            (Task::EnqueueWrite(pace), "write", "a 4 KiB write"),
            (Task::EnqueueMarker(pace), "marker", "a marker"),
        ] {
            let id = format!("enqueue/{what}/{tag}");
            rows.push(row(task, &id, &format!("enqueue {name}, {text}")));
        }
    }
    rows.push(
        row(Task::LaunchFinish, "wait/launch-finish", "launch + finish").base(Base::RoundTrip),
    );
    rows.push(row(Task::ReadSmall, "wait/read-4B", "blocking read, 4 B").base(Base::RoundTrip));
    rows.push(row(Task::Pipelined(2000), "pipelined", "pipelined launch"));
    // No mark. The row shows what the extension saves, compared with the same launches one by one.
    rows.push(
        row(
            Task::Replayed(2000),
            "replayed",
            "launch of a command buffer's replay",
        )
        .base(Base::Singly),
    );
    // No mark. The row shows the bare round trip without a native call in its middle.
    rows.push(
        row(
            Task::PingPong,
            "ping-pong",
            "ping-pong of 64 B, back to back",
        )
        .base(Base::RoundTrip),
    );
    rows
}
