//! Emulated links: how much of them a transfer uses, and how it delays a small command.
#![forbid(unsafe_code)]

use super::{Base, Direction, Group, Link, Row, Task, Way, size_name};
use crate::figures::Unit;
use crate::options::Options;

/// The rows.
pub(super) fn rows(options: &Options) -> Vec<Row> {
    let bytes: u64 = if options.quick { 16 << 20 } else { 256 << 20 };
    let mut rows = Vec::new();
    for (link, tag, text) in [
        (Link::Near1, "1G-0.2ms", "1 Gbit/s, 0.2 ms"),
        (Link::Far1, "1G-20ms", "1 Gbit/s, 20 ms"),
        (Link::Cable10, "10G", "10 Gbit/s"),
    ] {
        for (task, what, name) in [
            (Task::Write as fn(u64) -> Task, "write", "write"),
            (Task::Read, "read", "read"),
        ] {
            let id = format!("link/{tag}/{what}");
            let name = format!("{name} of {}, {text}", size_name(bytes));
            rows.push(
                Row::new(Group::Links, task(bytes), id, name)
                    .unit(Unit::BytesPerSecond)
                    .base(Base::Iperf)
                    .link(link),
            );
        }
    }
    let name = format!(
        "write of {} of half a picture, LZ4, 1 Gbit/s, 0.2 ms",
        size_name(bytes)
    );
    rows.push(
        Row::new(
            Group::Links,
            Task::WritePicture(bytes),
            "link/1G-0.2ms/lz4/write",
            name,
        )
        .unit(Unit::BytesPerSecond)
        .base(Base::Iperf)
        .way(Way::Lz4)
        .link(Link::Near1),
    );
    rows.extend(busy(bytes));
    let map = bytes.min(64 << 20);
    rows.push(
        Row::new(
            Group::Links,
            Task::UnmapBytes(map),
            "unmap-bytes",
            format!(
                "bytes on the wire, unmap of a read map of {}",
                size_name(map)
            ),
        )
        .unit(Unit::Bytes)
        .link(Link::Plain)
        .most_rounds(1),
    );
    rows
}

// How a transfer and a small command disturb each other.
fn busy(bytes: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (link, tag, text) in [
        (Link::Cable1, "cable", "1 Gbit/s cable"),
        (Link::Near1, "switch", "1 Gbit/s switch"),
    ] {
        for (direction, what, name) in [
            (Direction::Up, "write", "a write"),
            (Direction::Down, "read", "a read"),
        ] {
            let id = format!("busy/{tag}/{what}");
            let read = format!("4-byte read beside {name}, {text}");
            rows.push(
                Row::new(Group::Links, Task::Busy(bytes, direction), id, read)
                    .base(Base::Idle)
                    .link(link),
            );
            let id = format!("busy/{tag}/{what}/goodput");
            let name = format!("{name} of {} beside 4-byte reads, {text}", size_name(bytes));
            rows.push(
                Row::new(Group::Links, Task::Beside(bytes, direction), id, name)
                    .unit(Unit::BytesPerSecond)
                    .base(Base::OwnTransfer)
                    .link(link)
                    .most_rounds(3),
            );
        }
    }
    rows
}
