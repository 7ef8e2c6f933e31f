//! Mounts that end with the proof: the runner starts itself again in a mount namespace of its own.
//!
//! Invariant: a proof that is killed leaves no mount on this machine.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{SetupError, io_error};

/// Set in the runner that has its own mounts.
const VARIABLE: &str = "CONFORMANCE_OWN_MOUNTS";

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
