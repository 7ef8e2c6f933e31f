//! Detects from files, at little cost, whether the node's OpenCL drivers may have changed.
//!
//! This module loads no driver. A false positive costs one probe.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::driver_files;

/// Hash of the state of every file by which loaders find drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    /// Computes the fingerprint of the current state.
    pub(super) fn now() -> Fingerprint {
        Fingerprint::of(&driver_files::places(&|name| std::env::var_os(name)))
    }

    fn of(places: &[PathBuf]) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        for place in places {
            look(place, &mut hasher);
            for entry in driver_files::entries(place) {
                look(&entry, &mut hasher);
                if let Some(library) = driver_files::library(&entry) {
                    look(&library, &mut hasher);
                }
            }
        }
        Fingerprint(hasher.finish())
    }
}

fn look(path: &Path, hasher: &mut DefaultHasher) {
    path.hash(hasher);
    if let Ok(found) = std::fs::metadata(path) {
        (found.ino(), found.size(), found.mtime(), found.mtime_nsec()).hash(hasher);
    }
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
