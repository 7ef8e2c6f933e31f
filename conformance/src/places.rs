//! Paths of a run: the files built beside the runner, the drivers' directories, scratch space.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::options::Options;
use crate::{SetupError, io_error};

/// The runner's own directory under `target/`. If the runner is elsewhere, a directory under
/// the system's temporary directory.
pub(crate) fn work_directory() -> PathBuf {
    let beside = beside_runner();
    match beside.parent() {
        Some(target) if target.file_name() == Some(OsStr::new("target")) => {
            target.join("conformance")
        }
        _ => env::temp_dir().join("causeway-conformance"),
    }
}

/// The fake driver, beside the runner.
pub(crate) fn fake_driver() -> PathBuf {
    beside_runner().join("libfake_opencl.so")
}

/// The tool `causeway`, beside the runner.
pub(crate) fn tool() -> PathBuf {
    beside_runner().join("causeway")
}

pub(crate) fn beside_runner() -> PathBuf {
    let runner = env::current_exe().unwrap_or_default();
    runner.parent().unwrap_or(Path::new(".")).to_owned()
}

/// Makes a scratch directory for the run, which is removed when the result is dropped.
pub(crate) fn fresh_scratch() -> Result<TempDir, SetupError> {
    tempfile::Builder::new()
        .prefix("causeway-conformance-")
        .tempdir()
        .map_err(io_error("no temporary directory"))
}

/// Adds a trailing slash, by which loaders recognise a directory.
pub(crate) fn with_slash(directory: &Path) -> PathBuf {
    directory.join("")
}

/// Returns the given path, or the default one beside the runner.
pub(crate) fn beside_or(given: &Option<PathBuf>, beside: &Path, name: &str) -> PathBuf {
    given.clone().unwrap_or_else(|| beside.join(name))
}

/// Returns the directory of library and daemon: the runner's. If cargo runs the runner,
/// brings both up to date first, so that a stale daemon is never tested. `CAUSEWAY_BUILT`
/// means that the whole workspace has just been built.
pub(crate) fn build(options: &Options) -> Result<PathBuf, SetupError> {
    let beside = beside_runner();
    let manifest = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    let parts = ["libcauseway.so", "causewayd", "causeway-devmgr"];
    let complete = parts.iter().all(|part| beside.join(part).exists());
    let built = env::var_os("CARGO").is_none() || env::var_os("CAUSEWAY_BUILT").is_some();
    let given = options.library.is_some() && (options.daemon.is_some() || options.server.is_some());
    if given || !manifest.exists() || (complete && built) {
        return Ok(beside);
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args([
        "build",
        "--quiet",
        "--package",
        "causewayd",
        "--package",
        "causeway-icd",
        "--package",
        "causeway-devmgr",
        "--package",
        "fake-driver",
    ]);
    build.arg("--manifest-path").arg(manifest);
    if beside.file_name() == Some(OsStr::new("release")) {
        build.arg("--release");
    }
    let output = build.output().map_err(io_error("cannot run cargo"))?;
    if !output.status.success() {
        return Err(SetupError::Build {
            program: "causewayd and libcauseway.so".into(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    Ok(beside)
}

/// Makes a directory with an `.icd` file that names the library.
pub(crate) fn vendors_of(library: &Path, scratch: &Path) -> Result<PathBuf, SetupError> {
    let library = fs::canonicalize(library)
        .map_err(|_| SetupError::Missing(format!("there is no {}", library.display())))?;
    let vendors = scratch.join("causeway-vendors");
    fs::create_dir(&vendors).map_err(io_error("cannot make the vendors directory"))?;
    fs::write(
        vendors.join("causeway.icd"),
        format!("{}\n", library.display()),
    )
    .map_err(io_error("cannot write causeway.icd"))?;
    Ok(vendors)
}

/// Makes a directory with the system's drivers, without an installed Causeway: PoCL alone if it is
/// installed, else all others.
pub(crate) fn native_only(scratch: &Path) -> Result<PathBuf, SetupError> {
    let vendors = scratch.join("native-vendors");
    fs::create_dir(&vendors).map_err(io_error("cannot make the vendors directory"))?;
    let system = Path::new("/etc/OpenCL/vendors");
    let mut drivers: Vec<(PathBuf, String)> = fs::read_dir(system)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new("icd")))
        .filter_map(|path| fs::read_to_string(&path).ok().map(|text| (path, text)))
        .filter(|(_, text)| !text.contains("libcauseway"))
        .collect();
    if drivers.iter().any(|(_, text)| text.contains("pocl")) {
        drivers.retain(|(_, text)| text.contains("pocl"));
    }
    if drivers.is_empty() {
        return Err(SetupError::Missing(format!(
            "no driver in {}; name a directory with --native-vendors",
            system.display()
        )));
    }
    for (path, text) in drivers {
        if let Some(name) = path.file_name() {
            fs::write(vendors.join(name), text).map_err(io_error("cannot copy an .icd file"))?;
        }
    }
    Ok(vendors)
}
