//! Several nodes: the Mandelbrot experiment on sixteen.
#![forbid(unsafe_code)]

use super::{Group, Row, RowPlace, Task};
use crate::figures::Unit;

/// The rows.
pub(super) fn rows() -> Vec<Row> {
    vec![
        Row::new(
            Group::Nodes,
            Task::Mandelbrot(16),
            "nodes/mandelbrot-16",
            "Mandelbrot on 16 nodes, time over the ideal",
        )
        .place(RowPlace::Experiments)
        .unit(Unit::Share),
    ]
}
