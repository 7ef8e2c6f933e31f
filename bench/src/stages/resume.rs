//! A daemon over the fake driver behind a forwarder, which breaks connections. Beside it, three programs without a
//! forwarder: one whose sessions outlive their connections, one whose sessions outlive neither, and, on a daemon of its own,
//! one whose sessions also outlive their process. That process is killed after each round, which shows that they do.
#![forbid(unsafe_code)]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use causeway_cutter::{Cut, Forwarder, Hold, Target};

use super::side::{Node, Probed, values};
use super::{Error, Stage};
use crate::figures::Side;
use crate::options::Options;
use crate::report::Line;
use crate::rows::{Base, Break, Direction, Row, Task, Way};
use crate::setup::Build;

/// Number of resets in a round, and the pause between them: a session has a limit of resumes in 10 s.
const RESETS: usize = 8;
const RESET_PAUSE: Duration = Duration::from_millis(1500);

/// A silence well beyond the heartbeat limit of 4 s.
const SILENCE: Duration = Duration::from_secs(6);

/// Number of cuts in a transfer.
const CUTS: u64 = 20;

/// The stage.
pub(super) struct Resume {
    cut: Probed,
    with: Probed,
    without: Probed,
    /// The commands of its session can be executed again.
    surviving: Probed,
    forwarder: Forwarder,
    /// The last fields, so that the daemons end after the programs.
    _node: Node,
    /// The daemon of `surviving` alone, whose processes are killed.
    killed: Node,
}

impl Resume {
    /// Starts the daemon, the forwarder and the programs.
    pub(super) fn start(options: &Options) -> Result<Resume, Error> {
        let build = Build::find()?;
        let vendors = build.vendors("fake", "libfake_opencl.so")?;
        let node = Node::start(build, Some(vendors), &options.carrier)?;
        let address = node.address.parse();
        let address = address.map_err(|_| Error::Call("an address was expected".to_owned()))?;
        let forwarder = Forwarder::start(Some(Target::Tcp(address)))?;
        let public = forwarder.address().to_string();
        let config = node.build.config("cut", &public, &options.carrier, "")?;
        let vendors = node.build.vendors("fake", "libfake_opencl.so")?;
        let killed = Node::start(Build::find()?, Some(vendors), &options.carrier)?;
        let start_on = |node: &Node, change: &dyn Fn(&mut Command)| {
            let mut command = node.causeway("probe", Way::Tcp)?;
            command
                .env_remove("CAUSEWAY_RESUME")
                .env_remove("CAUSEWAY_REEXECUTE");
            change(&mut command);
            Probed::start(&mut command)
        };
        let start = |change: &dyn Fn(&mut Command)| start_on(&node, change);
        Ok(Resume {
            cut: start(&|command| {
                command.env("CAUSEWAY_CONFIG", &config);
            })?,
            with: start(&|_| {})?,
            without: start(&|command| {
                command.env("CAUSEWAY_RESUME", "0s");
            })?,
            surviving: start_on(&killed, &|command| {
                command.env("CAUSEWAY_REEXECUTE", "1");
            })?,
            forwarder,
            _node: node,
            killed,
        })
    }

    /// Nanoseconds from each reset until a read has ended.
    fn resets(&mut self) -> Result<Vec<u64>, Error> {
        let one = |stage: &mut Resume| {
            thread::sleep(RESET_PAUSE);
            // So that a lane exists as well.
            stage.cut.ask(Task::ReadOnce, 0)?;
            let begin = Instant::now();
            stage.forwarder.cut_sessions(Cut::Reset);
            stage.cut.ask(Task::ReadOnce, 0)?;
            Ok(begin.elapsed().as_nanos() as u64)
        };
        (0..RESETS).map(|_| one(self)).collect()
    }

    /// Nanoseconds from the mending until a read has ended.
    fn silence(&mut self) -> Result<Vec<u64>, Error> {
        self.forwarder.hold(Hold::ALL);
        self.cut.begin(Task::ReadOnce, 0)?;
        thread::sleep(SILENCE);
        let begin = Instant::now();
        self.forwarder.hold(Hold::default());
        self.cut.end()?;
        Ok(vec![begin.elapsed().as_nanos() as u64])
    }

    /// Bytes on the wire for a transfer that is cut at regular distances.
    fn wire(&mut self, bytes: u64, direction: Direction) -> Result<Vec<u64>, Error> {
        let task = match direction {
            Direction::Up => Task::WriteOnce(bytes),
            Direction::Down => Task::ReadAllOnce(bytes),
        };
        let moved = |forwarder: &Forwarder| {
            let counts = forwarder.counts();
            counts.up + counts.down
        };
        self.cut.begin(task, 0)?;
        self.cut.line()?;
        let before = moved(&self.forwarder);
        self.cut.go_on()?;
        // A transfer that is cut stands still for a moment, so its own bytes tell when the next cut is due.
        let patience = Instant::now() + Duration::from_secs(100);
        for number in 1..=CUTS {
            let due = before + bytes / (CUTS + 1) * number;
            while moved(&self.forwarder) < due && Instant::now() < patience {
                thread::sleep(Duration::from_millis(1));
            }
            self.forwarder.cut_sessions(Cut::Reset);
        }
        self.cut.end()?;
        Ok(vec![moved(&self.forwarder) - before])
    }

    fn broken(&mut self, row: &Row) -> Result<Option<Vec<u64>>, Error> {
        Ok(Some(match row.task {
            Task::Resumed(Break::Reset) => self.resets()?,
            Task::Resumed(Break::Silence) => self.silence()?,
            Task::CutTransfer(bytes, direction) => self.wire(bytes, direction)?,
            _ => return Ok(None),
        }))
    }
}

impl Stage for Resume {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let row = line.row.clone();
        if let Some(ours) = self.broken(&row)? {
            line.samples.push(Side::Causeway, values(&row, &ours));
            return Ok(());
        }
        let is_protected = row.base == Base::Unprotected;
        let (without, with) = match is_protected {
            true => (&mut self.with, &mut self.surviving),
            false => (&mut self.without, &mut self.with),
        };
        line.samples.push(Side::Bare, without.round(&row, 0)?);
        line.samples.push(Side::Causeway, with.round(&row, 0)?);
        if is_protected {
            self.surviving.survive(self.killed.daemon.id())?;
        }
        Ok(())
    }
}
