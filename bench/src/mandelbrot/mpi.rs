//! The peer: the same picture by MPI and OpenCL, `programs/mandelbrot_mpi.c`, on this machine.
//!
//! `mpicc` compiles it when the experiment starts. Ranks use TCP on loopback, as the nodes do, instead of shared memory.
//! MPI itself must be installed; no other part of the project needs it.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::picture::View;
use super::program;
use crate::experiment::Phases;
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
        let (source, program) = (
            folder.join("mandelbrot_mpi.c"),
            folder.join("mandelbrot_mpi"),
        );
        let kernel = folder.join("mandelbrot.cl");
        std::fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        std::fs::write(&kernel, program::SOURCE).map_err(|error| error.to_string())?;
        let output = Command::new("mpicc")
            .args(["-std=c99", "-O2", "-o"])
            .args([&program, &source])
            .arg("-lOpenCL")
            .output()
            .map_err(|error| format!("mpicc: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        match Command::new("mpirun").arg("--version").output() {
            Ok(_) => Ok(Mpi { program, kernel }),
            Err(error) => Err(format!("mpirun: {error}")),
        }
    }

    /// `mpirun` with a rank for each node.
    pub(crate) fn command(&self, nodes: &Nodes, view: &View, ranks: usize) -> Command {
        let mut command = nodes.other(Path::new("mpirun"));
        command
            .args([
                "--allow-run-as-root",
                "--oversubscribe",
                "--bind-to",
                "none",
            ])
            .args([
                "--mca",
                "btl",
                "tcp,self",
                "--mca",
                "btl_tcp_if_include",
                "lo",
            ])
            // Ranks share few cores, so a rank that waits must yield.
            .args(["--mca", "mpi_yield_when_idle", "1"])
            .args(["-n", &ranks.to_string()])
            .arg(&self.program)
            .args([view.width, view.height, view.iterations].map(|value| value.to_string()))
            // Nine digits preserve a `float`.
            .args([view.left(), view.top(), view.pixel()].map(|value| format!("{value:.9e}")))
            .arg(&self.kernel);
        command
    }
}
