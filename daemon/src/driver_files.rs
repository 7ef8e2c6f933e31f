//! Where loaders find this node's OpenCL drivers, told from files and variables.
//!
//! What it is not: it loads no driver, and judges none.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

const VENDORS: &str = "/etc/OpenCL/vendors";
/// By which ocl-icd and the Khronos loader are told of other places.
const VARIABLES: [&str; 3] = ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"];

/// Files and directories in which the loaders look.
#[must_use]
pub fn places(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(VENDORS)];
    for name in VARIABLES {
        places.extend(paths(variable, name));
    }
    places
}

/// The paths that a variable lists.
#[must_use]
pub fn paths(variable: &dyn Fn(&str) -> Option<OsString>, name: &str) -> Vec<PathBuf> {
    let value = variable(name).unwrap_or_default();
    std::env::split_paths(&value)
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

/// What lies in a place, in the order of the names; of a file nothing.
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

/// The driver that an `.icd` file names by a full path.
#[must_use]
pub fn library(icd: &Path) -> Option<PathBuf> {
    // A name that is no text is no path of a driver; a huge file is no `.icd` file.
    let found = std::fs::metadata(icd).ok()?;
    if !found.is_file() || found.len() > 4096 {
        return None;
    }
    let text = std::fs::read_to_string(icd).ok()?;
    let path = Path::new(text.lines().next()?.trim());
    path.is_absolute().then(|| path.to_owned())
}

/// How many drivers the loaders are told of.
#[must_use]
pub fn count(variable: &dyn Fn(&str) -> Option<OsString>) -> usize {
    let places = places(variable);
    let is_icd = |path: &Path| path.extension().is_some_and(|end| end == "icd");
    // With a place of one's own, the system's is not looked at.
    let own = &places[usize::from(places.len() > 1)..];
    own.iter()
        .flat_map(|place| {
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
