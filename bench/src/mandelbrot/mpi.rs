//! The peer: the same picture by MPI and OpenCL, `programs/mandelbrot_mpi.c`, on this machine.
//!
//! Compiled with `mpicc` when the experiment starts. Ranks talk over TCP on loopback, as the nodes
//! do, not through shared memory. Not here: MPI itself, which nothing else of the project needs.
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

/// What rank 0 prints.
#[derive(Debug, Deserialize)]
pub(crate) struct Told {
    /// From before `MPI_Init`; a barrier ends each phase.
    #[serde(flatten)]
    pub(crate) phases: Phases,
    /// As [`super::picture::checksum`].
    pub(crate) checksum: u64,
}

impl Mpi {
    /// Compiles the program into `folder`; why not, if it cannot be.
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
            // Ranks share few cores: who waits must not keep another from working.
            .args(["--mca", "mpi_yield_when_idle", "1"])
            .args(["-n", &ranks.to_string()])
            .arg(&self.program)
            .args([view.width, view.height, view.iterations].map(|value| value.to_string()))
            // Nine digits bring back the same `float`.
            .args([view.left(), view.top(), view.pixel()].map(|value| format!("{value:.9e}")))
            .arg(&self.kernel);
        command
    }
}
