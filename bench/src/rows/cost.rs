//! The cost of safety and sharing: the same calls with TLS, a device manager or the sandbox, and without.
#![forbid(unsafe_code)]

use super::{Base, Feature, Group, Row, RowPlace, Task, Way, size_id, size_name};
use crate::figures::Unit;
use crate::options::Options;

/// The rows. Those of TLS use TCP on both sides, because TLS excludes shared memory.
pub(super) fn rows(options: &Options) -> Vec<Row> {
    let row = |feature: Feature, task, what: &str, name: &str| {
        let id = format!("cost/{}/{what}", feature.id());
        Row {
            feature: Some(feature),
            ..Row::new(Group::Cost, task, id, format!("{name}, {}", feature.name()))
        }
        .place(RowPlace::Cost)
        .base(Base::Without)
        .way(if feature == Feature::Tls {
            Way::Tcp
        } else {
            Way::Own
        })
    };
    let (launch, first) = ("launch + finish", "first context of a process");
    let mut rows = vec![
        row(Feature::Tls, Task::LaunchFinish, "launch-finish", launch),
        row(
            Feature::Tls,
            Task::ReadSmall,
            "read-4B",
            "blocking read, 4 B",
        ),
        row(Feature::Tls, Task::FirstContext, "first-context", first),
    ];
    for bytes in [64 << 10, 1 << 20, 64 << 20] {
        if bytes > options.most_bytes() {
            continue;
        }
        for (task, what) in [(Task::Write(bytes), "write"), (Task::Read(bytes), "read")] {
            let name = format!("blocking {what}, {}", size_name(bytes));
            let id = format!("{what}/{}", size_id(bytes));
            rows.push(row(Feature::Tls, task, &id, &name).unit(Unit::BytesPerSecond));
        }
    }
    rows.extend([
        row(Feature::Manager, Task::FirstContext, "first-context", first),
        row(
            Feature::Sandbox,
            Task::LaunchFinish,
            "launch-finish",
            launch,
        ),
        row(Feature::Sandbox, Task::FirstContext, "first-context", first),
    ]);
    rows
}
