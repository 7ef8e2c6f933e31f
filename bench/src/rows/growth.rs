//! How time grows with the number of simultaneous commands: the time of twice as many, divided by that of once as many.
#![forbid(unsafe_code)]

use super::{Group, Row, RowPlace, Shape, Task};
use crate::figures::Unit;
use crate::options::Options;

/// The rows. They use the fake driver, because some drivers' own time grows faster.
pub(super) fn rows(options: &Options) -> Vec<Row> {
    let count = if options.quick { 1_000 } else { 10_000 };
    let row = |shape, id: &str, name: &str| {
        Row::new(Group::Growth, Task::Growth(shape, count), id, name)
            .place(RowPlace::Growth)
            .unit(Unit::Share)
    };
    vec![
        row(
            Shape::HostReuse,
            "growth/host-reuse",
            "reads into and writes from parts of one host buffer, 2 n over n, fake driver",
        ),
        row(
            Shape::Barriers,
            "growth/barriers",
            "a barrier or marker after every command, 2 n over n, fake driver",
        ),
        row(
            Shape::Kept,
            "growth/kept-events",
            "events that are never released, 2 n over n, fake driver",
        ),
        row(
            Shape::Withheld,
            "growth/withheld",
            "user events of two nodes' commands set, 2 n over n, fake driver",
        ),
        row(
            Shape::LostNode,
            "growth/lost-node",
            "commands of a node that is lost, 2 n over n, fake driver",
        ),
    ]
}
