//! A process of its own for each sample: what a program's first calls cost.
#![forbid(unsafe_code)]

use std::process::Command;

use super::side::Node;
use super::{Error, Stage};
use crate::figures::Side;
use crate::options::Options;
use crate::report::Line;
use crate::rows::{Loaded, Task, Way};
use crate::setup::{Build, Process, set_vendors};

/// Number of samples in a round.
const SAMPLES: usize = 3;

/// The stage.
pub(super) struct Fresh {
    node: Node,
}

impl Fresh {
    /// Starts the daemon.
    pub(super) fn start(options: &Options) -> Result<Fresh, Error> {
        let vendors = options.native_vendors.clone();
        let node = Node::start(Build::find()?, vendors, &options.carrier)?;
        Ok(Fresh { node })
    }

    /// Lists the platforms where neither the environment nor the user has configured anything. The loader sees
    /// our driver only, or none.
    fn unconfigured(&self, with_driver: bool) -> Result<Command, Error> {
        let nowhere = self.node.build.scratch().join("nowhere");
        std::fs::create_dir_all(&nowhere)?;
        let mut command = self.node.build.own("platforms", None, None)?;
        let vendors = if with_driver {
            &self.node.ours
        } else {
            &nowhere
        };
        set_vendors(&mut command, Some(vendors));
        command
            .env("HOME", &nowhere)
            .env("XDG_CONFIG_HOME", &nowhere)
            .env_remove("CAUSEWAY_CONFIG");
        Ok(command)
    }
}

/// The numbers in the first line that a program prints.
fn numbers(command: &mut Command) -> Result<Vec<f64>, Error> {
    let line = Process::start(command)?.line()?;
    let numbers: Option<Vec<f64>> = line.split(' ').map(|number| number.parse().ok()).collect();
    numbers.ok_or(Error::Call(format!("numbers were expected, not: {line}")))
}

impl Stage for Fresh {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let mut sides = [
            (Side::Native, vec![]),
            (Side::Bare, vec![]),
            (Side::Causeway, vec![]),
        ];
        for _ in 0..SAMPLES {
            for (side, values) in &mut sides {
                let told = match (line.row.task, *side) {
                    (Task::FirstDevices, Side::Native) => {
                        numbers(&mut self.node.native("first-devices")?)?
                    }
                    (Task::FirstDevices, Side::Causeway) => {
                        numbers(&mut self.node.causeway("first-devices", Way::Own)?)?
                    }
                    (Task::Load(Loaded::Configured, _), Side::Causeway) => {
                        numbers(&mut self.node.causeway("platforms", Way::Own)?)?
                    }
                    (Task::Load(..), Side::Bare | Side::Causeway) => {
                        numbers(&mut self.unconfigured(*side == Side::Causeway)?)?
                    }
                    _ => continue,
                };
                let place = match line.row.task {
                    Task::Load(_, cost) => cost.place(),
                    _ => 0,
                };
                values.extend(told.get(place));
            }
        }
        for (side, values) in sides {
            line.samples.push(side, values);
        }
        Ok(())
    }
}
