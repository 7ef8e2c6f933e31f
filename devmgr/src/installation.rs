//! The paths of this installation's library, daemon and benchmark program.
//!
//! Each is looked for next to the running tool first (as in a build folder), then where packages install
//! it. `CAUSEWAY_LIBRARY`, `CAUSEWAY_DAEMON` and `CAUSEWAY_BENCH` override this.

use std::path::{Path, PathBuf};

/// A part of the installation was not found.
#[derive(Debug, thiserror::Error)]
#[error("{what} was not found; looked at {}; build all with `cargo build --release`, or install its package", list(.tried))]
pub struct Missing {
    /// The file's name.
    pub what: &'static str,
    /// The paths that were tried.
    pub tried: Vec<PathBuf>,
}

fn list(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The path of `libcauseway.so`.
///
/// # Errors
/// [`Missing`], with the paths that were tried.
pub fn library() -> Result<PathBuf, Missing> {
    find(
        "libcauseway.so",
        "CAUSEWAY_LIBRARY",
        &["../lib/causeway", "../lib", "/usr/lib/causeway"],
    )
}

/// The path of `causewayd`.
///
/// # Errors
/// [`Missing`], with the paths that were tried.
pub fn daemon() -> Result<PathBuf, Missing> {
    find(
        "causewayd",
        "CAUSEWAY_DAEMON",
        &["../sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"],
    )
}

/// The path of the benchmark program. In a build folder it has its crate's name.
///
/// # Errors
/// [`Missing`], with the paths that were tried.
pub fn bench() -> Result<PathBuf, Missing> {
    const VARIABLE: &str = "CAUSEWAY_BENCH";
    let installed = find("causeway-bench", VARIABLE, &["../lib/causeway"]);
    if std::env::var_os(VARIABLE).is_some() {
        return installed;
    }
    installed.or_else(|mut missing| {
        let built = find("bench", VARIABLE, &[]);
        built.map_err(|more| {
            missing.tried.extend(more.tried);
            missing
        })
    })
}

fn find(name: &'static str, variable: &str, folders: &[&str]) -> Result<PathBuf, Missing> {
    if let Some(path) = std::env::var_os(variable).map(PathBuf::from) {
        return if path.is_file() {
            Ok(absolute(path))
        } else {
            Err(Missing {
                what: name,
                tried: vec![path],
            })
        };
    }
    let own = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_path_buf));
    let beside = own.iter().map(|folder| folder.join(name));
    // An absolute folder replaces the path that it is joined to.
    let elsewhere = folders
        .iter()
        .map(|folder| own.clone().unwrap_or_default().join(folder).join(name));
    let tried: Vec<PathBuf> = beside.chain(elsewhere).collect();
    match tried.iter().find(|path| path.is_file()) {
        Some(path) => Ok(absolute(path.clone())),
        None => Err(Missing { what: name, tried }),
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}
