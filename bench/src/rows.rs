//! What is measured: one row each, the same for every platform.

use serde::{Deserialize, Serialize};

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Times of single calls.
    Latency,
    /// Bytes a second.
    Bandwidth,
    /// Commands a second on the fake driver.
    Commands,
}

/// One measurement, as the runner asks a probe for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Row {
    /// `clEnqueueNDRangeKernel` alone, in a flood: ns each.
    EnqueueFlood,
    /// The same, one every 100 µs.
    EnqueuePaced,
    /// A non-blocking write of 4 KiB, in a flood: the calling thread's ns each.
    WriteFlood,
    /// An empty launch and `clFinish`.
    LaunchFinish,
    /// 2,000 launches and one `clFinish`: ns a launch.
    Pipelined,
    /// A blocking read of 4 bytes.
    ReadSmall,
    /// `clBuildProgram` of a source never seen before.
    BuildCold,
    /// The first `clGetDeviceIDs` of a process, platform list included.
    FirstDevices,
    /// A blocking write of so many bytes.
    Write(u64),
    /// A blocking read of so many bytes.
    Read(u64),
    /// Map for reading, and unmap, of so many bytes.
    MapRead(u64),
    /// Map for writing without reading, and unmap, of so many bytes.
    MapWrite(u64),
    /// Launches a second through one queue, on the fake driver.
    Commands,
}

/// What a row's samples mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Nanoseconds a call; less is better.
    Nanoseconds,
    /// Bytes a second; more is better.
    BytesPerSecond,
    /// Commands a second; more is better.
    CommandsPerSecond,
}

impl Row {
    /// The rows of a group; transfers up to `largest` bytes.
    pub(crate) fn of(group: Group, largest: u64) -> Vec<Row> {
        match group {
            Group::Latency => vec![
                Row::EnqueueFlood,
                Row::EnqueuePaced,
                Row::WriteFlood,
                Row::LaunchFinish,
                Row::Pipelined,
                Row::ReadSmall,
                Row::BuildCold,
                Row::FirstDevices,
            ],
            Group::Bandwidth => {
                let sizes = [
                    4 << 10,
                    64 << 10,
                    1 << 20,
                    16 << 20,
                    64 << 20,
                    256 << 20,
                    1 << 30,
                ];
                let sizes = || sizes.into_iter().filter(move |&size| size <= largest);
                let map = 64 << 20;
                sizes()
                    .map(Row::Write)
                    .chain(sizes().map(Row::Read))
                    .chain(
                        [Row::MapWrite(map), Row::MapRead(map)]
                            .into_iter()
                            .filter(|_| map <= largest),
                    )
                    .collect()
            }
            Group::Commands => vec![Row::Commands],
        }
    }

    /// For the table.
    pub(crate) fn name(self) -> String {
        match self {
            Row::EnqueueFlood => "enqueue a kernel, in a flood".to_owned(),
            Row::EnqueuePaced => "enqueue a kernel, every 100 µs".to_owned(),
            Row::WriteFlood => "enqueue a 4 KiB write, in a flood".to_owned(),
            Row::LaunchFinish => "launch + finish".to_owned(),
            Row::Pipelined => "pipelined launch".to_owned(),
            Row::ReadSmall => "blocking read, 4 B".to_owned(),
            Row::BuildCold => "build, cold".to_owned(),
            Row::FirstDevices => "first clGetDeviceIDs".to_owned(),
            Row::Write(size) => format!("blocking write, {}", size_name(size)),
            Row::Read(size) => format!("blocking read, {}", size_name(size)),
            Row::MapRead(size) => format!("map to read + unmap, {}", size_name(size)),
            Row::MapWrite(size) => format!("map to write + unmap, {}", size_name(size)),
            Row::Commands => "commands, fake driver".to_owned(),
        }
    }

    /// What its samples mean.
    pub(crate) fn unit(self) -> Unit {
        match self {
            Row::Write(_) | Row::Read(_) | Row::MapRead(_) | Row::MapWrite(_) => {
                Unit::BytesPerSecond
            }
            Row::Commands => Unit::CommandsPerSecond,
            _ => Unit::Nanoseconds,
        }
    }

    /// Bytes it moves; 0 when it moves none.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Row::Write(size) | Row::Read(size) | Row::MapRead(size) | Row::MapWrite(size) => size,
            _ => 0,
        }
    }

    /// Which direction its bytes go: to the node, or from it.
    pub(crate) fn is_upload(self) -> bool {
        matches!(self, Row::Write(_) | Row::MapWrite(_))
    }
}

fn size_name(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}
