//! Fresh processes: the first devices, the first work, the load of the library, and builds.
#![forbid(unsafe_code)]

use super::{Base, Cost, Group, Link, Loaded, Row, RowPlace, Task, WarmIn};
use crate::figures::Unit;

/// Starts.
pub(super) fn rows() -> Vec<Row> {
    let row =
        |task, id: &str, name: &str| Row::new(Group::Start, task, id, name).place(RowPlace::Fresh);
    let starts = vec![
        row(Task::FirstDevices, "start/devices", "first clGetDeviceIDs"),
        row(
            Task::FirstDevices,
            "start/devices/far",
            "first clGetDeviceIDs, 20 ms away",
        )
        .link(Link::Far1)
        .base(Base::LinkRoundTrip),
    ];
    [starts, programs(), loads()].concat()
}

/// A program's first work, with a context that is there before. The second column is without it.
fn programs() -> Vec<Row> {
    let of = |warm, id: &str, name: &str| {
        Row::new(Group::Start, Task::FirstProgram(warm), id, name)
            .place(RowPlace::Programs)
            .base(Base::Without)
    };
    vec![
        of(
            WarmIn::Spare,
            "start/program/warm",
            "context to first finish, warm spare worker",
        ),
        of(
            WarmIn::Host,
            "start/program/host",
            "context to first finish, in a host",
        ),
    ]
}

/// The cost of a load of the library: the platform list, with nothing configured and with one server.
fn loads() -> Vec<Row> {
    let mut rows = Vec::new();
    for (loaded, tag) in [
        (Loaded::Unconfigured, "unconfigured"),
        (Loaded::Configured, "configured"),
    ] {
        let row = |cost, id: String, name: String| {
            Row::new(Group::Start, Task::Load(loaded, cost), id, name)
                .place(RowPlace::Fresh)
                .base(Base::EmptyLoader)
        };
        let time = format!("platform list, {tag}");
        rows.push(row(Cost::Time, format!("start/{tag}"), time));
        for (cost, id, name) in [
            (Cost::Things, "things", "threads and sockets"),
            (Cost::Threads, "threads", "threads"),
            (Cost::Descriptors, "descriptors", "descriptors"),
            (Cost::Pages, "pages", "resident pages"),
        ] {
            // The configured library may have threads and sockets, and they have rows of their own.
            if (loaded, cost) != (Loaded::Configured, Cost::Things) {
                let row = row(cost, format!("start/{tag}/{id}"), format!("{name}, {tag}"));
                rows.push(row.unit(Unit::Count).most_rounds(1));
            }
        }
    }
    rows
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
        .place(RowPlace::Fake)
        .base(Base::RoundTrip),
        row(
            Task::BuildSeen,
            "build/seen",
            "build, seen by the daemon before",
        ),
    ]
}
