//! Sessions that outlive their connections or their process: the time until commands flow again, bytes that are sent
//! twice, and the cost of being able to.
#![forbid(unsafe_code)]

use super::{Base, Break, Direction, Group, Link, Row, RowPlace, Task, Way, size_id, size_name};
use crate::figures::Unit;
use crate::options::Options;
use crate::rows::Pace;

/// The rows. Most have a forwarder between program and daemon, and the fake driver. Some have a link instead.
pub(super) fn rows(options: &Options) -> Vec<Row> {
    let row = |task, id: &str, name: &str| {
        Row::new(Group::Resume, task, format!("resume/{id}"), name)
            .place(RowPlace::Resume)
            .way(Way::Tcp)
    };
    let bytes = if options.quick { 64 << 20 } else { 1 << 30 };
    let many = if options.quick { 2_000 } else { 100_000 };
    let wire = |direction, id: &str, name: &str| {
        let name = format!(
            "bytes on the wire of a {name} cut 20 times, {}",
            size_name(bytes)
        );
        row(Task::CutTransfer(bytes, direction), id, &name)
            .unit(Unit::Bytes)
            .most_rounds(2)
    };
    let mut rows = vec![
        row(
            Task::Resumed(Break::Reset),
            "reset",
            "connections reset, until a read has ended",
        ),
        row(
            Task::Resumed(Break::Silence),
            "silence",
            "network mended after a silence of 6 s, until a read has ended",
        ),
        wire(Direction::Up, "wire/write", "write"),
        wire(Direction::Down, "wire/read", "read"),
        row(
            Task::EnqueueKernel(Pace::Flood),
            "cost/enqueue",
            "clEnqueueNDRangeKernel, with resume",
        )
        .base(Base::Without),
        row(
            Task::Pipelined(many),
            "cost/pipelined",
            "commands to their end, with resume",
        )
        .base(Base::Without),
    ];
    for bytes in [1_u64 << 20, 16 << 20, 256 << 20] {
        if bytes <= options.most_bytes() {
            let name = format!("blocking read, {}, with resume", size_name(bytes));
            rows.push(
                row(
                    Task::Read(bytes),
                    &format!("cost/read/{}", size_id(bytes)),
                    &name,
                )
                .base(Base::Without)
                .unit(Unit::BytesPerSecond),
            );
        }
    }
    rows.extend(surviving(options));
    rows
}

/// What it costs that a program outlives its session's process: the library keeps its commands and copies its bytes.
fn surviving(options: &Options) -> Vec<Row> {
    let row = |task, id: &str, name: String| {
        Row::new(Group::Resume, task, format!("survive/{id}"), name)
            .place(RowPlace::Resume)
            .way(Way::Tcp)
            .base(Base::Unprotected)
    };
    let bytes = (64 << 20).min(options.most_bytes());
    let enqueue = "clEnqueueNDRangeKernel, surviving".to_owned();
    let mut rows = vec![row(Task::EnqueueKernel(Pace::Flood), "enqueue", enqueue)];
    for (task, what) in [(Task::Write(bytes), "write"), (Task::Read(bytes), "read")] {
        let id = format!("{what}/{}", size_id(bytes));
        let name = format!("blocking {what}, {}, surviving", size_name(bytes));
        rows.push(row(task, &id, name).unit(Unit::BytesPerSecond));
        for (link, tag, text) in [
            (Link::Cable1, "1G", "1 Gbit/s"),
            (Link::Cable10, "10G", "10 Gbit/s"),
        ] {
            let id = format!("{tag}/{id}");
            let name = format!("blocking {what}, {}, surviving, {text}", size_name(bytes));
            let row = row(task, &id, name).unit(Unit::BytesPerSecond);
            // Each round begins with a program's first build.
            rows.push(row.link(link).most_rounds(3));
        }
    }
    rows
}
