//! The measurements, one row each, in files by theme. Their marks are in [`marks`](crate::marks).
//!
//! A row names its [`Task`], its place, its unit and its yardstick. The [stages](crate::stages) measure it.
//! Invariant: ids are unique and stay the same from version to version, because reports are compared by them.
#![forbid(unsafe_code)]

mod bandwidth;
mod commands;
mod cost;
mod growth;
mod latency;
mod links;
mod manager;
mod memory;
mod nodes;
mod resume;
mod start;
mod waits;

use serde::{Deserialize, Serialize};

use crate::figures::Unit;
use crate::options::Options;

/// Rows that are requested together: `bench GROUP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Group {
    /// Times of single calls.
    Latency,
    /// Commands a second.
    Commands,
    /// Bytes a second on this machine.
    Bandwidth,
    /// The time of many commands divided by that of fewer.
    Growth,
    /// Program builds.
    Build,
    /// The first calls of a process.
    Start,
    /// Memory beyond the program's own.
    Memory,
    /// Over emulated links.
    Links,
    /// Several nodes.
    Nodes,
    /// The cost of TLS, the manager and the sandbox.
    Cost,
    /// Sessions that outlive their connections.
    Resume,
    /// Applications that share nodes.
    Sharing,
}

impl Group {
    /// All groups, in the order of a run.
    pub(crate) const ALL: [Group; 12] = [
        Group::Latency,
        Group::Commands,
        Group::Bandwidth,
        Group::Growth,
        Group::Build,
        Group::Start,
        Group::Memory,
        Group::Links,
        Group::Nodes,
        Group::Cost,
        Group::Resume,
        Group::Sharing,
    ];

    /// The group's rows.
    pub(crate) fn rows(self, options: &Options) -> Vec<Row> {
        match self {
            Group::Latency => [latency::rows(), waits::rows(options)].concat(),
            Group::Commands => commands::rows(options),
            Group::Bandwidth => bandwidth::rows(options),
            Group::Growth => growth::rows(options),
            Group::Build => start::builds(),
            Group::Start => start::rows(),
            Group::Memory => memory::rows(options),
            Group::Links => links::rows(options),
            Group::Nodes => nodes::rows(),
            Group::Cost => cost::rows(options),
            Group::Resume => resume::rows(options),
            Group::Sharing => manager::rows(),
        }
    }
}

/// Where a row is measured, that is, which processes have to run for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowPlace {
    /// A daemon over the node's driver, on loopback.
    Loopback,
    /// A daemon over the fake driver, on loopback.
    Fake,
    /// One or two daemons over the fake driver, for each measurement.
    Growth,
    /// A process of its own for each sample.
    Fresh,
    /// As [`RowPlace::Fresh`], on daemons with and without contexts that are made before a session.
    Programs,
    /// A daemon and a program of its own for each row.
    Memory,
    /// Hosts with links between them.
    Links,
    /// An experiment with a command of its own.
    Experiments,
    /// Daemons with and without a feature.
    Cost,
    /// A daemon behind a forwarder that breaks connections.
    Resume,
}

/// How bytes move between client and daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Way {
    /// The client's own choice: shared memory if both are on one host.
    Own,
    /// Over TCP only.
    Tcp,
    /// Over TCP only; chunks that become smaller are compressed.
    Lz4,
}

/// A measurement. The numbers are commands, bytes, turns, threads or nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// `clEnqueueNDRangeKernel` alone.
    EnqueueKernel(Pace),
    /// A non-blocking write of 4 KiB alone.
    EnqueueWrite(Pace),
    /// A marker alone.
    EnqueueMarker(Pace),
    /// An empty launch and `clFinish`.
    LaunchFinish,
    /// A blocking read of 4 bytes.
    ReadSmall,
    /// The time of a turn of a program that waits in each of its turns.
    WaitOften(Often, u32),
    /// The processor time of a turn, of the program and of the daemon's workers.
    Processor(Often, u32),
    /// A bare ping-pong of 64 bytes.
    PingPong,
    /// Many launches and one `clFinish`: the time of one launch.
    Pipelined(u32),
    /// A replay of a command buffer of many launches, and `clFinish`: the time of one launch. A platform without
    /// command buffers launches one by one.
    Replayed(u32),
    /// Threads with a queue and a kernel of their own, and their number of launches: the time of one launch.
    Threads(u16, u32),
    /// The time of twice as many commands of a shape, divided by the time of this number.
    Growth(Shape, u32),
    /// The rate of eight threads divided by that of one, with this number of launches each.
    Scaling(u32),
    /// `clBuildProgram` of a source never seen before.
    Build,
    /// `clBuildProgram` of a source that the daemon has built for another session.
    BuildSeen,
    /// A blocking write.
    Write(u64),
    /// A blocking read.
    Read(u64),
    /// A blocking write in which every second half mebibyte is noise, and the others are a picture.
    WritePicture(u64),
    /// A map for writing without reading, and its unmap.
    MapWrite(u64),
    /// A map for reading, and its unmap.
    MapRead(u64),
    /// Bytes that cross the wire for the unmap of a map for reading.
    UnmapBytes(u64),
    /// The first `clGetDeviceIDs` of a process, platform list included.
    FirstDevices,
    /// A cost of a process's platform list, which loads the library.
    Load(Loaded, Cost),
    /// Memory at the peak of a write and a read, beyond the buffer.
    Peak(u64, End),
    /// A 4-byte read while other bytes are under way.
    Busy(u64, Direction),
    /// Bytes that move beside a 4-byte read every 2 ms.
    Beside(u64, Direction),
    /// The Mandelbrot experiment on several nodes: its time divided by the ideal.
    Mandelbrot(u16),
    /// The first devices, context and queue of a process.
    FirstContext,
    /// The first context, queue, build, launch and finish of a process.
    FirstProgram(WarmIn),
    /// The time from a break of the connections, or from its end, until a read has ended.
    Resumed(Break),
    /// Bytes on the wire for a blocking transfer whose connections are cut.
    CutTransfer(u64, Direction),
    /// One blocking read of 4 bytes.
    ReadOnce,
    /// One blocking read of a whole buffer, in a row that breaks connections.
    ReadAllOnce(u64),
    /// One blocking write of a whole buffer, in a row that breaks connections.
    WriteOnce(u64),
    /// Applications that request a device from the manager: their computation divided by that of one.
    Applications(u16),
}

/// How connections break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Break {
    /// All are reset, and the network is whole.
    Reset,
    /// Nothing passes for a while.
    Silence,
}

/// Where a context is ready before a session asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum WarmIn {
    /// In a spare worker.
    Spare,
    /// In a host, which an earlier session of this user has left.
    Host,
}

/// What is configured when the library is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Loaded {
    /// Nothing.
    Unconfigured,
    /// One server.
    Configured,
}

/// What a load costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cost {
    /// Nanoseconds.
    Time,
    /// Threads and sockets.
    Things,
    /// Threads.
    Threads,
    /// Descriptors.
    Descriptors,
    /// Resident pages of 4 KiB.
    Pages,
}

impl Cost {
    /// The position in the line that the process prints.
    pub(crate) fn place(self) -> usize {
        self as usize
    }
}

/// How simultaneous commands depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shape {
    /// Reads into and writes from one piece of host memory, in turns.
    HostReuse,
    /// A barrier without a wait list after every command of an out-of-order queue.
    Barriers,
    /// Commands whose events the program keeps.
    Kept,
    /// Commands on two nodes, each behind a user event of its own.
    Withheld,
    /// Commands under way on a lost node, and a fifth as many buffers.
    LostNode,
}

/// What a program that waits often does in each turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Often {
    /// A blocking map for reading of an image of 1 KiB, and its unmap.
    MapImage,
    /// A launch and `clFinish` on the next of 100 queues.
    Queues,
    /// In one of eight threads: makes a buffer, launches on it and reads it, blocking.
    Threads,
}

/// How fast calls follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// At once.
    Flood,
    /// Every 100 µs.
    Paced,
}

/// One end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// The program.
    Client,
    /// The daemon's worker.
    Worker,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Direction {
    /// To the node.
    Up,
    /// From the node.
    Down,
}

/// A feature that a daemon may have or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// TLS and a token.
    Tls,
    /// The device manager.
    Manager,
    /// The sandbox of workers.
    Sandbox,
}

impl Feature {
    fn id(self) -> &'static str {
        match self {
            Feature::Tls => "tls",
            Feature::Manager => "manager",
            Feature::Sandbox => "sandbox",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Feature::Tls => "TLS and a token",
            Feature::Manager => "of a device manager",
            Feature::Sandbox => "in the sandbox",
        }
    }
}

/// A link between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// No emulation: as fast as the machine.
    Plain,
    /// 1 Gbit/s, limited by the hosts' own network interfaces.
    Cable1,
    /// 10 Gbit/s, limited in the same way.
    Cable10,
    /// 1 Gbit/s through a switch, 0.2 ms a round trip.
    Near1,
    /// 1 Gbit/s through a switch, 20 ms a round trip.
    Far1,
}

/// The second column: the row's yardstick beside the native driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Base {
    /// Nothing.
    Nothing,
    /// A bare TCP round trip around the same native call in another process.
    RoundTrip,
    /// The best of 1, 2 and 4 bare TCP streams.
    Streams,
    /// The best of 1, 2 and 4 streams of iperf3.
    Iperf,
    /// The same call with nothing else under way.
    Idle,
    /// Causeway's own blocking write or read of as many bytes.
    OwnTransfer,
    /// Causeway's own launches one by one, in the same number.
    Singly,
    /// A bare TCP round trip over the same link.
    LinkRoundTrip,
    /// A loader with no driver at all.
    EmptyLoader,
    /// The same call through Causeway without the row's feature.
    Without,
    /// The same call of a program that does not outlive its session's process.
    Unprotected,
}

impl Base {
    /// The word that the table adds to the figure.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Base::Nothing | Base::RoundTrip | Base::Streams => "",
            Base::Iperf => "iperf3",
            Base::Idle => "idle",
            Base::OwnTransfer => "transfer",
            Base::Singly => "singly",
            Base::LinkRoundTrip => "round trip",
            Base::EmptyLoader => "no driver",
            Base::Without => "without",
            Base::Unprotected => "unprotected",
        }
    }
}

/// A measurement with its place, unit and yardstick.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Names the row in reports; never changed.
    pub(crate) id: String,
    /// Names the row in the table.
    pub(crate) name: String,
    /// The group that requests it.
    pub(crate) group: Group,
    /// Where the row is measured.
    pub(crate) place: RowPlace,
    /// The measurement.
    pub(crate) task: Task,
    /// The unit of its values.
    pub(crate) unit: Unit,
    /// The second column.
    pub(crate) base: Base,
    /// How bytes move.
    pub(crate) way: Way,
    /// The link between the hosts.
    pub(crate) link: Link,
    /// The feature of the row. The second column is without it.
    pub(crate) feature: Option<Feature>,
    /// Limit of rounds, for values that hardly change.
    pub(crate) most_rounds: u16,
}

impl Row {
    /// A row on loopback, in nanoseconds, with the native driver as its only yardstick.
    fn new(group: Group, task: Task, id: impl Into<String>, name: impl Into<String>) -> Row {
        Row {
            id: id.into(),
            name: name.into(),
            group,
            place: RowPlace::Loopback,
            task,
            unit: Unit::Nanoseconds,
            base: Base::Nothing,
            way: Way::Own,
            link: Link::Plain,
            feature: None,
            most_rounds: u16::MAX,
        }
    }

    fn place(self, place: RowPlace) -> Row {
        Row { place, ..self }
    }

    fn unit(self, unit: Unit) -> Row {
        Row { unit, ..self }
    }

    fn base(self, base: Base) -> Row {
        Row { base, ..self }
    }

    fn way(self, way: Way) -> Row {
        Row { way, ..self }
    }

    fn link(self, link: Link) -> Row {
        Row {
            link,
            place: RowPlace::Links,
            ..self
        }
    }

    fn most_rounds(self, most_rounds: u16) -> Row {
        Row {
            most_rounds,
            ..self
        }
    }

    /// Whether a filter selects the row. Without filters, all rows are selected.
    pub(crate) fn is_asked_for(&self, filters: &[String]) -> bool {
        let named = |filter: &String| self.id.contains(filter) || self.name.contains(filter);
        filters.is_empty() || filters.iter().any(named)
    }

    /// Bytes that the task moves; 0 if they are few.
    pub(crate) fn bytes(&self) -> u64 {
        match self.task {
            Task::Write(bytes)
            | Task::Read(bytes)
            | Task::WritePicture(bytes)
            | Task::MapRead(bytes)
            | Task::MapWrite(bytes)
            | Task::UnmapBytes(bytes)
            | Task::Peak(bytes, _)
            | Task::Busy(bytes, _)
            | Task::Beside(bytes, _)
            | Task::CutTransfer(bytes, _) => bytes,
            _ => 0,
        }
    }

    /// The direction of these bytes.
    pub(crate) fn direction(&self) -> Direction {
        match self.task {
            Task::Write(_) | Task::WritePicture(_) | Task::MapWrite(_) => Direction::Up,
            Task::Busy(_, Direction::Up) | Task::Beside(_, Direction::Up) => Direction::Up,
            _ => Direction::Down,
        }
    }

    /// The blocking write or read that moves as many bytes in the same direction.
    pub(crate) fn own_transfer(&self) -> Task {
        match self.direction() {
            Direction::Up => Task::Write(self.bytes()),
            Direction::Down => Task::Read(self.bytes()),
        }
    }

    /// A value in the row's unit, from the nanoseconds of a repetition.
    pub(crate) fn value(&self, nanoseconds: u64) -> f64 {
        match self.unit {
            Unit::BytesPerSecond => self.bytes() as f64 * 1e9 / nanoseconds.max(1) as f64,
            Unit::CommandsPerSecond => 1e9 / nanoseconds.max(1) as f64,
            _ => nanoseconds as f64,
        }
    }
}

/// A size in the largest unit that fits.
pub(crate) fn size_name(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// [`size_name`] for an id.
fn size_id(bytes: u64) -> String {
    size_name(bytes).replace(' ', "")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn ids_are_unique() {
        for arguments in [&["bench"][..], &["bench", "--quick"][..]] {
            let options = Line::parse_from(arguments).options;
            let rows: Vec<Row> = Group::ALL.iter().flat_map(|g| g.rows(&options)).collect();
            let ids: std::collections::HashSet<&str> = rows.iter().map(|r| r.id.as_str()).collect();
            assert_eq!(ids.len(), rows.len());
        }
    }

    #[test]
    fn filters_find_ids_and_names() {
        let row = Row::new(
            Group::Latency,
            Task::LaunchFinish,
            "wait/launch",
            "launch + finish",
        );
        assert!(row.is_asked_for(&[]));
        assert!(row.is_asked_for(&["x".to_owned(), "wait/".to_owned()]));
        assert!(row.is_asked_for(&["finish".to_owned()]));
        assert!(!row.is_asked_for(&["read".to_owned()]));
    }
}
