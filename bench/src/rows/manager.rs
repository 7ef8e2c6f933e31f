//! Sharing: the applications of `bench manager`, small.
#![forbid(unsafe_code)]

use super::{Group, Row, RowPlace, Task};
use crate::figures::Unit;

/// The rows.
pub(super) fn rows() -> Vec<Row> {
    vec![
        Row::new(
            Group::Sharing,
            Task::Applications(4),
            "manager/flat",
            "computation of 4 applications on 4 devices by a manager, over that of one",
        )
        .place(RowPlace::Experiments)
        .unit(Unit::Share)
        .most_rounds(2),
    ]
}
