//! The folder of PoCL's own kernel cache.
//!
//! The sandbox opens it, and entries do not name the libraries that PoCL has put there. This module reads
//! no folder. Invariant: PoCL uses this folder in a process with these environment variables.
#![forbid(unsafe_code)]

use std::ffi::OsString;

/// Variable with the folder of PoCL's cache.
pub const FOLDER: &str = "POCL_CACHE_DIR";

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
}
