//! The Mandelbrot experiment, as `bench mandelbrot` runs it: what sixteen nodes take over the ideal.
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

/// When it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);

/// The stage.
pub(super) struct Nodes {
    build: Build,
}

impl Nodes {
    /// Nothing runs between rounds.
    pub(super) fn start(_: &Options) -> Result<Nodes, Error> {
        Ok(Nodes {
            build: Build::find()?,
        })
    }
}

impl Stage for Nodes {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let Task::Mandelbrot(nodes) = line.row.task else {
            return Err(Error::Call("only the Mandelbrot is run here".to_owned()));
        };
        let scratch = self.build.scratch();
        let json = scratch.join("mandelbrot.json");
        let mut command = self.build.own("mandelbrot", None, None)?;
        command
            .args(["--no-mpi", "--rounds", "1", "--nodes", &nodes.to_string()])
            .arg("--json")
            .arg(&json)
            .arg("--plots")
            .arg(scratch);
        run_within(&mut command, PATIENCE)?;
        let told: Value = serde_json::from_slice(&std::fs::read(&json)?)?;
        let row = &told["rows"][0];
        let (total, ideal) = (row["causeway"]["total"].as_f64(), row["ideal"].as_f64());
        let (Some(total), Some(ideal)) = (total, ideal) else {
            return Err(Error::Call("the experiment told no total".to_owned()));
        };
        line.samples.push(Side::Causeway, vec![total / ideal]);
        Ok(())
    }
}
