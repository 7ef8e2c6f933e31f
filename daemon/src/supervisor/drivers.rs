//! Whether the node's OpenCL drivers may have changed, told cheaply from files.
//!
//! What it is not: it loads no driver. A false alarm costs one probe.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const VENDORS: &str = "/etc/OpenCL/vendors";

/// Stands for the state of every file by which loaders find drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    /// As it is now.
    pub(super) fn now() -> Fingerprint {
        Fingerprint::of(&places())
    }

    fn of(places: &[PathBuf]) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        for place in places {
            look(place, &mut hasher);
            let mut entries: Vec<_> = std::fs::read_dir(place)
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.path()))
                .collect();
            entries.sort();
            for entry in entries {
                look(&entry, &mut hasher);
                if let Some(library) = library(&entry) {
                    look(&library, &mut hasher);
                }
            }
        }
        Fingerprint(hasher.finish())
    }
}

/// Where ocl-icd and the Khronos loader look.
fn places() -> Vec<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .map(|value| std::env::split_paths(&value).collect::<Vec<_>>())
            .unwrap_or_default()
    };
    let mut places = vec![PathBuf::from(VENDORS)];
    for name in ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"] {
        places.extend(variable(name));
    }
    places
}

fn look(path: &Path, hasher: &mut DefaultHasher) {
    path.hash(hasher);
    if let Ok(found) = std::fs::metadata(path) {
        (found.ino(), found.size(), found.mtime(), found.mtime_nsec()).hash(hasher);
    }
}

/// The driver that an `.icd` file names by a full path.
fn library(icd: &Path) -> Option<PathBuf> {
    // A name that is no text is no path of a driver; a huge file is no `.icd` file.
    if std::fs::metadata(icd).ok()?.len() > 4096 {
        return None;
    }
    let text = std::fs::read_to_string(icd).ok()?;
    let path = Path::new(text.lines().next()?.trim());
    path.is_absolute().then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_driver_and_a_new_version_of_one_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let vendors = folder.path().join("vendors");
        let places = [vendors.clone()];
        let nothing = Fingerprint::of(&places);
        std::fs::create_dir(&vendors).unwrap();
        let library = folder.path().join("libdriver.so");
        std::fs::write(&library, "1").unwrap();
        std::fs::write(vendors.join("a.icd"), format!("{}\n", library.display())).unwrap();
        let first = Fingerprint::of(&places);
        assert_ne!(nothing, first);
        assert_eq!(first, Fingerprint::of(&places));
        std::fs::write(&library, "version 2").unwrap();
        assert_ne!(first, Fingerprint::of(&places));
    }
}
