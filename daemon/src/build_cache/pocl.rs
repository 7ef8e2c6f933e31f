//! PoCL's own kernel cache. A compiling worker has a different one than sessions' workers.
//!
//! PoCL fails if two processes write the same program to one cache, so a compiling worker gets a folder of
//! its own. PoCL's compiler reads the source from a temporary file in that folder, and its build log
//! contains the file's name. Invariant: the log names the file as in a build by a session's worker, apart
//! from the random part of its name.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};

/// Variable with the folder of PoCL's cache.
pub const FOLDER: &str = "POCL_CACHE_DIR";
/// Variable with which the supervisor passes the usual cache folder to a compiling worker.
pub const USUAL: &str = "CAUSEWAYD_USUAL_POCL_CACHE_DIR";

/// Returns the folder of PoCL's cache for these environment variables.
#[must_use]
pub fn folder(variable: &dyn Fn(&str) -> Option<OsString>) -> OsString {
    if let Some(folder) = variable(FOLDER) {
        return folder;
    }
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    let in_home = || {
        variable("HOME").map(|mut home| {
            home.push("/.cache");
            home
        })
    };
    let mut folder = given("XDG_CACHE_HOME")
        .or_else(in_home)
        .unwrap_or_else(|| "/tmp".into());
    let off = variable("POCL_KERNEL_CACHE").is_some_and(|value| value == "0");
    folder.push(if off {
        "/pocl/uncached"
    } else {
        "/pocl/kcache"
    });
    folder
}

/// Replaces the cache folder `own` by `usual` in a build log.
#[must_use]
pub fn log_as_usual(log: &str, own: &OsStr, usual: &OsStr) -> String {
    match (own.to_str(), usual.to_str()) {
        (Some(own), Some(usual)) if !own.is_empty() => {
            log.replace(&format!("{own}/"), &format!("{usual}/"))
        }
        // The log is valid UTF-8, so it cannot contain a folder that is not.
        _ => log.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &str)]) -> String {
        let folder = folder(&|name| {
            let found = set.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| OsString::from(value))
        });
        folder.into_string().unwrap()
    }

    #[test]
    fn the_folder_is_where_pocl_has_it() {
        assert_eq!(with(&[("HOME", "/root")]), "/root/.cache/pocl/kcache");
        let off = ("POCL_KERNEL_CACHE", "0");
        assert_eq!(
            with(&[("HOME", "/root"), off]),
            "/root/.cache/pocl/uncached"
        );
        assert_eq!(with(&[(FOLDER, "/x"), off]), "/x");
        let xdg = ("XDG_CACHE_HOME", "/tmp/c/");
        assert_eq!(with(&[xdg, ("HOME", "/root")]), "/tmp/c//pocl/kcache");
        assert_eq!(with(&[]), "/tmp/pocl/kcache");
    }

    #[test]
    fn a_log_names_the_usual_folder() {
        let log = "warning: /c/s/7/tempfile_ab.cl:1:2: mind /c/s/77/x\n";
        let usual = log_as_usual(log, OsStr::new("/c/s/7"), OsStr::new("/p"));
        assert_eq!(usual, "warning: /p/tempfile_ab.cl:1:2: mind /c/s/77/x\n");
    }
}
