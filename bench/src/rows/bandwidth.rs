//! Bytes a second on this machine: over TCP, and over the client's own choice, which is shared memory.
#![forbid(unsafe_code)]

use super::{Base, Group, Row, Task, Way, size_id, size_name};
use crate::figures::Unit;
use crate::options::Options;

const SIZES: [u64; 7] = [
    4 << 10,
    64 << 10,
    1 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
    1 << 30,
];
const MAP: u64 = 64 << 20;

type Kind = (fn(u64) -> Task, &'static str, &'static str);

/// The rows.
pub(super) fn rows(options: &Options) -> Vec<Row> {
    let most = options.most_bytes();
    let transfers: [Kind; 2] = [
        (Task::Write, "write", "blocking write"),
        (Task::Read, "read", "blocking read"),
    ];
    let maps: [Kind; 2] = [
        (Task::MapWrite, "map-write", "map to write + unmap"),
        (Task::MapRead, "map-read", "map to read + unmap"),
    ];
    let ways = [(Way::Tcp, "tcp", "TCP"), (Way::Own, "host", "same host")];
    let mut rows = Vec::new();
    for (way, tag, text) in ways {
        let row = |(task, id, name): Kind, bytes| {
            let id = format!("{id}/{}/{tag}", size_id(bytes));
            let name = format!("{name}, {}, {text}", size_name(bytes));
            Row::new(Group::Bandwidth, task(bytes), id, name)
                .unit(Unit::BytesPerSecond)
                .way(way)
        };
        for kind in transfers {
            let sizes = SIZES.into_iter().filter(|&bytes| bytes <= most);
            rows.extend(sizes.map(|bytes| match way {
                Way::Tcp => row(kind, bytes).base(Base::Streams),
                Way::Own | Way::Lz4 => row(kind, bytes),
            }));
        }
        for kind in maps {
            rows.push(row(kind, MAP.min(most)).base(Base::OwnTransfer));
        }
    }
    rows
}
