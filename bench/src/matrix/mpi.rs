//! The peer: the same chain by MPI and OpenCL, `programs/matrix_mpi.c`, with checkpoints of its own.
//!
//! [`mpi`] compiles and starts it. Invariant: the kernel is the farm's.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Chain, worker};
use crate::mpi;
use crate::nodes::Nodes;

const SOURCE: &str = include_str!("../../programs/matrix_mpi.c");

/// The compiled program.
pub(super) struct Mpi {
    program: PathBuf,
    kernel: PathBuf,
}

impl Mpi {
    /// The name of the ranks' processes.
    pub(super) const NAME: &str = "matrix_mpi";

    /// Compiles the program into `folder`.
    pub(super) fn find(folder: &Path) -> Result<Mpi, String> {
        let kernel = folder.join("matrix.cl");
        std::fs::write(&kernel, worker::SOURCE).map_err(|error| error.to_string())?;
        let program = mpi::compile(folder, Mpi::NAME, SOURCE)?;
        Ok(Mpi { program, kernel })
    }

    /// `mpirun` with a rank for each node.
    pub(super) fn command(
        &self,
        nodes: &Nodes,
        chain: &Chain,
        ranks: usize,
        interval: f64,
        state: &Path,
    ) -> Command {
        let mut command = mpi::run(nodes, &self.program, ranks);
        command
            .args([chain.size as u64, chain.multiplications, chain.seed].map(|n| n.to_string()))
            .arg(interval.to_string())
            .arg(state)
            .arg(&self.kernel);
        command
    }
}
