//! Finds the OpenCL drivers that the OpenCL loaders of this node see, from files and environment variables
//! alone.
//!
//! This module loads no driver and does not check whether a driver works.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

const VENDORS: &str = "/etc/OpenCL/vendors";
/// Variables with which ocl-icd and the Khronos loader are pointed to other places.
const VARIABLES: [&str; 3] = ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"];

/// Returns the files and directories in which the loaders look for drivers.
#[must_use]
pub fn places(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(VENDORS)];
    for name in VARIABLES {
        places.extend(paths(variable, name));
    }
    places
}

/// Returns the paths that an environment variable lists.
#[must_use]
pub fn paths(variable: &dyn Fn(&str) -> Option<OsString>, name: &str) -> Vec<PathBuf> {
    let value = variable(name).unwrap_or_default();
    std::env::split_paths(&value)
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

/// Returns the entries of a directory, sorted by name. The result is empty if `place` is a file.
#[must_use]
pub fn entries(place: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(place)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    entries.sort();
    entries
}

/// Returns the driver library that an `.icd` file names, if the file gives an absolute path.
#[must_use]
pub fn library(icd: &Path) -> Option<PathBuf> {
    // A name that is not valid UTF-8 is not accepted as a driver's path. A file of more than 4 KiB is not
    // an `.icd` file.
    let found = std::fs::metadata(icd).ok()?;
    if !found.is_file() || found.len() > 4096 {
        return None;
    }
    let text = std::fs::read_to_string(icd).ok()?;
    let path = Path::new(text.lines().next()?.trim());
    path.is_absolute().then(|| path.to_owned())
}

/// Returns the number of `.icd` files that the loaders find.
#[must_use]
pub fn count(variable: &dyn Fn(&str) -> Option<OsString>) -> usize {
    let places = places(variable);
    let is_icd = |path: &Path| path.extension().is_some_and(|end| end == "icd");
    // If a variable names other places, the loaders ignore the system's directory.
    let own = &places[usize::from(places.len() > 1)..];
    own.iter()
        .flat_map(|place| {
            // An `OCL_ICD_FILENAMES` entry is a file, so `entries` finds nothing and the place itself is
            // counted.
            let inside = entries(place);
            if inside.is_empty() {
                vec![place.clone()]
            } else {
                inside
            }
        })
        .filter(|path| is_icd(path))
        .count()
}
