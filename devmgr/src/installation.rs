//! Where the library, the daemon and the measurements of this installation lie.
//!
//! They are looked for next to the running tool first (a build folder), then where packages put them.
//! `CAUSEWAY_LIBRARY`, `CAUSEWAY_DAEMON` and `CAUSEWAY_BENCH` name them outright.

use std::path::{Path, PathBuf};

/// A part of the installation is not where it could be.
#[derive(Debug, thiserror::Error)]
#[error("{what} was not found; looked at {}", list(.tried))]
pub struct Missing {
    /// What.
    pub what: &'static str,
    /// Where it was looked for.
    pub tried: Vec<PathBuf>,
}

fn list(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// `libcauseway.so`.
///
/// # Errors
/// [`Missing`], with the places that were tried.
pub fn library() -> Result<PathBuf, Missing> {
    find(
        "libcauseway.so",
        "CAUSEWAY_LIBRARY",
        &["../lib/causeway", "../lib", "/usr/lib/causeway"],
    )
}

/// `causewayd`.
///
/// # Errors
/// [`Missing`], with the places that were tried.
pub fn daemon() -> Result<PathBuf, Missing> {
    find(
        "causewayd",
        "CAUSEWAY_DAEMON",
        &["../sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"],
    )
}

/// The program that makes the measurements; in a build folder it has its crate's name.
///
/// # Errors
/// [`Missing`], with the places that were tried.
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
    // A folder that starts with "/" replaces what it is joined to.
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
