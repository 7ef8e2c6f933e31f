//! The peers of the experiments: C programs with MPI and OpenCL, on this machine.
//!
//! `mpicc` compiles them when an experiment starts. Ranks use TCP on loopback, as the nodes do, instead of shared memory.
//! MPI itself must be installed; no other part of the project needs it. Invariant: a program that was compiled can be
//! started, because `mpirun` is there.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::nodes::Nodes;

/// The header that all programs include.
const SHARED: &str = include_str!("../programs/ranks.h");

/// Compiles a program into `folder`. Returns its path, or why there is none.
pub(crate) fn compile(folder: &Path, name: &str, text: &str) -> Result<PathBuf, String> {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    for (path, text) in [(&source, text), (&folder.join("ranks.h"), SHARED)] {
        std::fs::write(path, text).map_err(|error| error.to_string())?;
    }
    let output = Command::new("mpicc")
        .args(["-std=c99", "-O2", "-Wall", "-o"])
        .args([&program, &source])
        .arg("-lOpenCL")
        .output()
        .map_err(|error| missing("mpicc", &error))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    match Command::new("mpirun").arg("--version").output() {
        Ok(_) => Ok(program),
        Err(error) => Err(missing("mpirun", &error)),
    }
}

/// Why a part of MPI cannot be started.
fn missing(part: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("{part} is missing; openmpi-bin and libopenmpi-dev have it")
        }
        _ => format!("{part}: {error}"),
    }
}

/// `mpirun` of a program with a rank for each node, natively. The caller adds the program's arguments.
pub(crate) fn run(nodes: &Nodes, program: &Path, ranks: usize) -> Command {
    let mut command = nodes.other(Path::new("mpirun"));
    command
        .args(["--allow-run-as-root", "--oversubscribe"])
        .args(["--bind-to", "none"])
        .args(["--mca", "btl", "tcp,self"])
        .args(["--mca", "btl_tcp_if_include", "lo"])
        // Ranks share few cores, so a rank that waits must yield.
        .args(["--mca", "mpi_yield_when_idle", "1"])
        .args(["-n", &ranks.to_string()])
        .arg(program);
    command
}
