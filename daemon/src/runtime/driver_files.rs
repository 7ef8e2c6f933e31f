//! Finds the files beside a driver's libraries that its compiler uses, for the build cache.
//!
//! Compilers read more files than those mapped after the drivers were loaded. Examples are bitcode of
//! built-in functions, headers, and libraries that are loaded with the first build. The table lists their
//! locations for known drivers. Files that other drivers load late are found after a build (`identity`).
//!
//! This module reads no file contents. Invariant: the search is bounded; it fails if it finds too many
//! files.
#![forbid(unsafe_code)]

use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// Locations of a driver's compiler files, relative to the folder of one of its libraries.
struct Beside {
    /// Prefix of the library's name.
    library: &'static str,
    /// Folders of which all files are included.
    folders: &'static [&'static str],
    /// Prefixes of file names beside the library.
    siblings: &'static [&'static str],
}

const BESIDE: &[Beside] = &[
    // Bitcode of built-in functions, and the headers that every kernel includes.
    Beside {
        library: "libpocl.so",
        folders: &["../../share/pocl", "../share/pocl"],
        siblings: &[],
    },
    // libnvidia-nvvm, -ptxjitcompiler, -gpucomp and -compiler are loaded with the first build.
    Beside {
        library: "libnvidia-opencl.so",
        folders: &[],
        siblings: &["libnvidia-", "libcuda.so"],
    },
    Beside {
        library: "libamdocl64.so",
        folders: &["../amdgcn", "../../amdgcn"],
        siblings: &["libamd_comgr", "libhsa-runtime64"],
    },
    Beside {
        library: "libigdrcl.so",
        folders: &[],
        siblings: &["libigc", "libigdfcl", "libopencl-clang", "libiga"],
    },
    // Bitcode of libclc.
    Beside {
        library: "libRusticlOpenCL.so",
        folders: &["../../share/clc", "../share/clc", "../clc"],
        siblings: &["libLLVM", "libclang"],
    },
    Beside {
        library: "libMesaOpenCL.so",
        folders: &["../../share/clc", "../share/clc", "../clc"],
        siblings: &["libLLVM", "libclang"],
    },
];

/// Maximum number of files. PoCL has fewer than 200.
const MOST: usize = 2000;
const DEPTH: usize = 4;

/// Returns the files beside `library`; `None` if there are too many, or if a folder cannot be read.
pub(super) fn beside(library: &str) -> Option<Vec<String>> {
    let path = Path::new(library);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()?.to_str()) else {
        return Some(Vec::new());
    };
    let mut found = Vec::new();
    for known in BESIDE.iter().filter(|b| name.starts_with(b.library)) {
        for inner in known.folders {
            // Resolves links, because a driver that determines its own location does so too.
            if let Ok(inner) = folder.join(inner).canonicalize() {
                walk(&inner, DEPTH, &mut found)?;
            }
        }
        if !known.siblings.is_empty() {
            siblings(folder, known.siblings, &mut found)?;
        }
    }
    found
        .into_iter()
        .map(|path| path.into_os_string().into_string().ok())
        .collect()
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Option<()> {
    for entry in std::fs::read_dir(folder).ok()? {
        let path = entry.ok()?.path();
        // Follows links as a driver would. A broken link is of no use to a driver either, so it is ignored.
        match std::fs::metadata(&path).as_ref().map(Metadata::is_dir) {
            Ok(true) => walk(&path, depth.checked_sub(1)?, found)?,
            Ok(false) => add(path, found)?,
            Err(_) => {}
        }
    }
    Some(())
}

fn siblings(folder: &Path, names: &[&str], found: &mut Vec<PathBuf>) -> Option<()> {
    for entry in std::fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let named = |begin: &&str| name.to_str().is_some_and(|name| name.starts_with(*begin));
        if names.iter().any(named) && entry.path().is_file() {
            add(entry.path(), found)?;
        }
    }
    Some(())
}

fn add(path: PathBuf, found: &mut Vec<PathBuf>) -> Option<()> {
    found.push(path);
    (found.len() <= MOST).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(files: &[&str]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for file in files {
            let path = place.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        place
    }

    fn found(place: &tempfile::TempDir, library: &str) -> Vec<String> {
        let root = place.path().canonicalize().unwrap();
        let found = beside(root.join(library).to_str().unwrap()).unwrap();
        let mut found: Vec<String> = found
            .iter()
            .map(|path| {
                path.strip_prefix(root.to_str().unwrap())
                    .unwrap()
                    .to_owned()
            })
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_compilers_bitcode_and_headers_are_found() {
        let place = place(&[
            "usr/lib/gnu/libpocl.so.2.10.0",
            "usr/share/pocl/kernel-avx2.bc",
            "usr/share/pocl/include/opencl-c.h",
            "usr/share/other/x",
        ]);
        assert_eq!(
            found(&place, "usr/lib/gnu/libpocl.so.2.10.0"),
            [
                "/usr/share/pocl/include/opencl-c.h",
                "/usr/share/pocl/kernel-avx2.bc"
            ]
        );
        assert_eq!(found(&place, "usr/lib/gnu/libother.so"), [""; 0]);
    }

    #[test]
    fn libraries_that_are_loaded_late_are_found() {
        let place = place(&[
            "lib/libnvidia-opencl.so.1",
            "lib/libnvidia-nvvm.so.4",
            "lib/libcuda.so.580",
            "lib/libc.so.6",
        ]);
        assert_eq!(
            found(&place, "lib/libnvidia-opencl.so.1"),
            [
                "/lib/libcuda.so.580",
                "/lib/libnvidia-nvvm.so.4",
                "/lib/libnvidia-opencl.so.1"
            ]
        );
    }

    #[test]
    fn a_folder_that_leads_into_itself_has_no_answer() {
        let place = place(&["usr/lib/gnu/libpocl.so", "usr/share/pocl/a"]);
        let share = place.path().join("usr/share/pocl");
        std::os::unix::fs::symlink(&share, share.join("again")).unwrap();
        let library = place.path().join("usr/lib/gnu/libpocl.so");
        assert_eq!(beside(library.to_str().unwrap()), None);
    }
}
