//! One or two nodes over the fake driver, and a program with one context over them. All are new for each measurement,
//! because a lost node does not come back.
//!
//! Both measurements therefore include the cost of a process's first commands.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Duration;

use super::side::Probed;
use super::{Error, Stage};
use crate::figures::Side;
use crate::nodes::{Driver, Nodes};
use crate::report::Line;
use crate::rows::{Shape, Task};

/// Timeout for a program that runs to its end; this stage has none.
const LIMIT: Duration = Duration::from_secs(120);

/// Number of repetitions of a time, and the nanoseconds from which it is measured only once.
const TRIES: usize = 3;
const LONG: f64 = 1e9;

/// The kernels that other commands wait for. One never ends, the other runs until all commands are enqueued.
const CONFIG: &str = "[kernel.hang]\nhang = true\n[kernel.slow]\nns = 2_000_000_000\n";

/// The stage.
pub(super) struct Growth {
    config: PathBuf,
    _scratch: tempfile::TempDir,
}

impl Growth {
    /// Nothing runs between rounds.
    pub(super) fn start() -> Result<Growth, Error> {
        let scratch = tempfile::tempdir()?;
        let config = scratch.path().join("fake.toml");
        std::fs::write(&config, CONFIG)?;
        Ok(Growth {
            config,
            _scratch: scratch,
        })
    }

    /// The time of twice as many commands divided by that of once as many.
    fn growth(&self, side: Side, shape: Shape, count: u32) -> Result<Vec<f64>, Error> {
        let few = self.least(side, shape, count)?;
        let many = self.least(side, shape, 2 * count)?;
        Ok(vec![many / few])
    }

    /// The least time of some repetitions, because other work of the machine only adds to it. A long time is not
    /// measured again.
    fn least(&self, side: Side, shape: Shape, count: u32) -> Result<f64, Error> {
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            least = least.min(self.measure(side, shape, count)?);
            if least > LONG {
                break;
            }
        }
        Ok(least)
    }

    /// Nanoseconds of this number of commands.
    fn measure(&self, side: Side, shape: Shape, count: u32) -> Result<f64, Error> {
        let devices = match shape {
            Shape::Withheld | Shape::LostNode => 2,
            Shape::HostReuse | Shape::Barriers | Shape::Kept => 1,
        };
        let nodes = if side == Side::Native { 0 } else { devices };
        let mut nodes = Nodes::start(Driver::Fake(self.config.clone()), nodes, LIMIT)?;
        let mut command = match side {
            Side::Native => nodes.native("probe", devices)?,
            _ => nodes.program("probe", devices)?,
        };
        let mut probe = Probed::start(command.args(["--devices", &devices.to_string()]))?;
        probe.begin(Task::Growth(shape, count), 0)?;
        if shape == Shape::LostNode {
            probe.line()?;
            nodes.lose_last();
            probe.go_on()?;
        }
        let times = probe.end()?;
        Ok(times.first().copied().unwrap_or(1).max(1) as f64)
    }
}

impl Stage for Growth {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let Task::Growth(shape, count) = line.row.task else {
            return Err(Error::Call("the row is not one of growth".to_owned()));
        };
        // A native driver has no node to lose.
        let sides = match shape {
            Shape::LostNode => &[Side::Causeway][..],
            _ => &[Side::Native, Side::Causeway][..],
        };
        for side in sides {
            line.samples.push(*side, self.growth(*side, shape, count)?);
        }
        Ok(())
    }
}
