//! Mounts that end with the proof: the runner starts itself again in a mount namespace of its own.
//!
//! Invariant: a proof that is killed leaves no mount on this machine. A dropped [`Disk`] is unmounted.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{SetupError, io_error};

/// Set in the runner that has its own mounts.
const VARIABLE: &str = "CONFORMANCE_OWN_MOUNTS";

/// Size of a small disk. etcd's log takes 128 MB of it from the beginning.
const SIZE: &str = "size=192m";

/// A small file system in memory.
pub(super) struct Disk {
    folder: String,
}

impl Disk {
    /// Mounts a file system at a new folder.
    pub(super) fn mount(folder: String) -> Result<Disk, SetupError> {
        fs::create_dir(&folder).map_err(io_error("cannot make a folder for a disk"))?;
        run("mount", &["-t", "tmpfs", "-o", SIZE, "tmpfs", &folder])?;
        Ok(Disk { folder })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Otherwise the folder could not be removed.
        if let Err(error) = run("umount", &[&self.folder]) {
            eprintln!("conformance: {error}");
        }
    }
}

/// Runs a program of the system, which has to succeed.
fn run(program: &str, arguments: &[&str]) -> Result<(), SetupError> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(io_error(format!("cannot run {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let what = format!("{program} {arguments:?} ({}): {text}", output.status);
    Err(causeway_cluster::Error::InVain(what).into())
}

/// Whether this process has its own mounts.
pub(super) fn are_own() -> bool {
    env::var_os(VARIABLE).is_some()
}

/// Replaces this process by one with the same arguments and its own mounts. Returns only with an error.
pub(super) fn again_with_own() -> Result<bool, SetupError> {
    let runner = env::current_exe().map_err(io_error("no path of the runner"))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--"]).arg(runner);
    command.args(env::args_os().skip(1)).env(VARIABLE, "1");
    let failed = io_error("cannot run unshare (Debian: util-linux)");
    Err(failed(command.exec()))
}
