//! Small runs of the experiments that have commands of their own: the Mandelbrot's time on sixteen nodes divided by
//! the ideal, and how much applications of the device manager disturb each other.
#![forbid(unsafe_code)]

use std::time::Duration;

use serde_json::Value;

use super::{Error, Stage};
use crate::figures::Side;
use crate::nodes::run_within;
use crate::options::Options;
use crate::report::Line;
use crate::rows::Task;
use crate::setup::Build;
use crate::slices::Slice;

/// Timeout for an experiment.
const PATIENCE: Duration = Duration::from_secs(120);

/// The stage.
pub(super) struct Experiments {
    build: Build,
    options: Options,
}

impl Experiments {
    /// Nothing runs between rounds.
    pub(super) fn start(options: &Options) -> Result<Experiments, Error> {
        Ok(Experiments {
            build: Build::find()?,
            options: options.clone(),
        })
    }

    /// Runs an experiment once; its report.
    fn report(&self, experiment: &str, arguments: &[&str]) -> Result<Value, Error> {
        let scratch = self.build.scratch();
        let json = scratch.join(format!("{experiment}.json"));
        let mut command = self.build.own(experiment, None, None)?;
        command
            .args(["--rounds", "1"])
            .args(arguments)
            .arg("--json")
            .arg(&json)
            .arg("--plots")
            .arg(scratch);
        run_within(&mut command, PATIENCE)?;
        Ok(serde_json::from_slice(&std::fs::read(&json)?)?)
    }

    /// The Mandelbrot's total time divided by the ideal.
    fn mandelbrot(&self, nodes: u16) -> Result<Option<f64>, Error> {
        let told = self.report("mandelbrot", &["--no-mpi", "--nodes", &nodes.to_string()])?;
        let row = &told["rows"][0];
        let total = row["causeway"]["total"].as_f64();
        Ok(total
            .zip(row["ideal"].as_f64())
            .map(|(total, ideal)| total / ideal))
    }

    /// The computation of this number of applications with the manager, divided by that of one.
    fn applications(&self, count: u16) -> Result<Option<f64>, Error> {
        Slice::possible().map_err(|error| Error::Unavailable(error.to_string()))?;
        let (nodes, counts) = (count.to_string(), format!("1,{count}"));
        let mut arguments = vec!["--nodes", &nodes, "--applications", &counts];
        if self.options.quick {
            arguments.extend(["--iterations", "300"]);
        }
        let told = self.report("manager", &arguments)?;
        let computation = |row: usize| told["rows"][row]["with"]["computation"].as_f64();
        Ok(computation(1)
            .zip(computation(0))
            .map(|(many, one)| many / one))
    }
}

impl Stage for Experiments {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let value = match line.row.task {
            Task::Mandelbrot(nodes) => self.mandelbrot(nodes)?,
            Task::Applications(count) => self.applications(count)?,
            _ => return Err(Error::Call("that is no experiment".to_owned())),
        };
        let value = value.ok_or(Error::Call("the experiment told no figures".to_owned()))?;
        line.samples.push(Side::Causeway, vec![value]);
        Ok(())
    }
}
