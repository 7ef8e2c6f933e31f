//! PoCL's own cache, where a compiling worker has another one than sessions' workers have.
//!
//! PoCL does not survive that two processes fill one cache with the same program at once, so a compiling
//! worker gets a folder of its own; but PoCL's compiler reads the text from a file in that folder, whose
//! name it says in logs. Invariant: a log names the file as a build in a session's worker would, but for
//! the random part of its name.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};

/// The variable that says where the cache is.
pub const FOLDER: &str = "POCL_CACHE_DIR";
/// The variable by which the supervisor tells a compiling worker where it would be otherwise.
pub const USUAL: &str = "CAUSEWAYD_USUAL_POCL_CACHE_DIR";

/// Where PoCL has its cache with these variables.
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

/// A log of a build whose cache was `own`, as if it had been `usual`.
#[must_use]
pub fn log_as_usual(log: &str, own: &OsStr, usual: &OsStr) -> String {
    match (own.to_str(), usual.to_str()) {
        (Some(own), Some(usual)) if !own.is_empty() => {
            log.replace(&format!("{own}/"), &format!("{usual}/"))
        }
        // The log is text: a name that is none was not in it as it is.
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
