//! From nothing: the first devices, a library that nobody configured, and builds.
#![forbid(unsafe_code)]

use super::{Base, Group, Link, Place, Row, Task};
use crate::figures::Unit;

/// Starts.
pub(super) fn rows() -> Vec<Row> {
    let row =
        |task, id: &str, name: &str| Row::new(Group::Start, task, id, name).place(Place::Fresh);
    vec![
        row(Task::FirstDevices, "start/devices", "first clGetDeviceIDs"),
        row(
            Task::FirstDevices,
            "start/devices/far",
            "first clGetDeviceIDs, 20 ms away",
        )
        .link(Link::Far1)
        .base(Base::LinkRoundTrip),
        row(
            Task::Unconfigured,
            "start/unconfigured",
            "platform list, unconfigured",
        )
        .base(Base::EmptyLoader),
        row(
            Task::UnconfiguredThings,
            "start/unconfigured/things",
            "threads and sockets, unconfigured",
        )
        .unit(Unit::Count)
        .base(Base::EmptyLoader)
        .most_rounds(1),
    ]
}

/// Builds.
pub(super) fn builds() -> Vec<Row> {
    let row = |task, id: &str, name: &str| Row::new(Group::Build, task, id, name);
    vec![
        row(Task::Build, "build/new", "build, never seen"),
        row(
            Task::Build,
            "build/new/fake",
            "build, never seen, fake driver",
        )
        .place(Place::Fake)
        .base(Base::RoundTrip),
        row(
            Task::BuildSeen,
            "build/seen",
            "build, seen by the daemon before",
        ),
    ]
}
