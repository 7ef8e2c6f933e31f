//! The peer: the same picture by MPI and OpenCL, `programs/mandelbrot_mpi.c`, on this machine.
//!
//! [`mpi`] compiles and starts it. Invariant: every rank is given the same picture.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::picture::View;
use super::program;
use crate::experiment::Phases;
use crate::mpi;
use crate::nodes::Nodes;

const SOURCE: &str = include_str!("../../programs/mandelbrot_mpi.c");

/// The compiled program.
pub(crate) struct Mpi {
    program: PathBuf,
    kernel: PathBuf,
}

/// The output of rank 0.
#[derive(Debug, Deserialize)]
pub(crate) struct Told {
    /// The phases, which begin before `MPI_Init` and end with a barrier.
    #[serde(flatten)]
    pub(crate) phases: Phases,
    /// The checksum, as of [`super::picture::checksum`].
    pub(crate) checksum: u64,
}

impl Mpi {
    /// Compiles the program into `folder`.
    pub(crate) fn find(folder: &Path) -> Result<Mpi, String> {
        let kernel = folder.join("mandelbrot.cl");
        std::fs::write(&kernel, program::SOURCE).map_err(|error| error.to_string())?;
        let program = mpi::compile(folder, "mandelbrot_mpi", SOURCE)?;
        Ok(Mpi { program, kernel })
    }

    /// `mpirun` with a rank for each node.
    pub(crate) fn command(&self, nodes: &Nodes, view: &View, ranks: usize) -> Command {
        let mut command = mpi::run(nodes, &self.program, ranks);
        command
            .args([view.width, view.height, view.iterations].map(|value| value.to_string()))
            // Nine digits preserve a `float`.
            .args([view.left(), view.top(), view.pixel()].map(|value| format!("{value:.9e}")))
            .arg(&self.kernel);
        command
    }
}
