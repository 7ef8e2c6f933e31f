//! Resident memory of the program and of its worker at the peak of a large transfer, beyond the buffer.
#![forbid(unsafe_code)]

use super::{Base, End, Group, Row, RowPlace, Task, Way, size_name};
use crate::figures::Unit;
use crate::options::Options;

/// The rows.
pub(super) fn rows(options: &Options) -> Vec<Row> {
    let bytes = if options.quick { 256 << 20 } else { 4 << 30 };
    let mut rows = Vec::new();
    for (way, tag, text) in [(Way::Tcp, "tcp", "TCP"), (Way::Own, "host", "same host")] {
        for (end, who) in [(End::Client, "client"), (End::Worker, "worker")] {
            let name = format!("peak beyond {}, {who}, {text}", size_name(bytes));
            let id = format!("memory/{who}/{tag}");
            rows.push(
                Row::new(Group::Memory, Task::Peak(bytes, end), id, name)
                    .place(RowPlace::Memory)
                    .unit(Unit::Bytes)
                    .way(way)
                    .base(Base::Nothing)
                    .most_rounds(1),
            );
        }
    }
    rows
}
