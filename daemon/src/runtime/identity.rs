//! The identity of a device's compiler, for the build cache: everything that influences a compilation,
//! except the program.
//!
//! It covers the versions that drivers report. It also covers the library files that this process has
//! mapped, because a driver may be replaced without a new version. The compiler's files beside these
//! libraries belong to it, too (`driver_files`). It cannot cover files that a driver loads only with a
//! build. After a build, [`Surroundings::loaded_since`] returns them. If the files cannot be determined
//! with certainty, there is no identity, and nothing is cached. Invariant: two processes with the same
//! identity for a device have the same driver files, kind of processor and settings in their environment.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use opencl_sys::{
    CL_DEVICE_ADDRESS_BITS, CL_DEVICE_EXTENSIONS, CL_DEVICE_NAME, CL_DEVICE_OPENCL_C_VERSION,
    CL_DEVICE_PROFILE, CL_DEVICE_TYPE, CL_DEVICE_VENDOR, CL_DEVICE_VENDOR_ID, CL_DEVICE_VERSION,
    CL_DRIVER_VERSION, CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION,
};
use prost::Message;

use super::driver_files;
use super::node::{Device, Platform};
use crate::build_cache::{Identity, Stamp};

/// `CL_DEVICE_UUID_KHR` and `CL_DRIVER_UUID_KHR`.
const UUIDS: [u32; 2] = [0x106A, 0x106B];

const PLATFORM: [u32; 3] = [CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION];

const DEVICE: [u32; 10] = [
    CL_DEVICE_NAME,
    CL_DEVICE_VENDOR,
    CL_DEVICE_VENDOR_ID,
    CL_DEVICE_TYPE,
    CL_DEVICE_VERSION,
    CL_DRIVER_VERSION,
    CL_DEVICE_OPENCL_C_VERSION,
    CL_DEVICE_PROFILE,
    CL_DEVICE_ADDRESS_BITS,
    CL_DEVICE_EXTENSIONS,
];

/// Prefixes of environment variables that influence drivers and compilers.
const SETTINGS: [&str; 12] = [
    "POCL_", "CUDA_", "OCL_", "CL_", "NV_", "AMD_", "IGC_", "NEO", "RUSTICL_", "CLC_", "LLVM_",
    "LD_",
];
/// Exceptions: variables that only locate drivers, caches or an MPS server, or limit caches. Each worker gets
/// other values for some of them.
const PLACES: [&str; 6] = [
    "POCL_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_MPS_PIPE_DIRECTORY",
    "NEO_CACHE_DIR",
    "OCL_ICD_VENDORS",
];

/// The part of the identity that is the same for all devices of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    // Files of the drivers: mapped ones, and those beside them.
    files: Vec<Stamp>,
    // Features of the processor, and settings.
    others: Vec<Vec<u8>>,
}

impl Surroundings {
    /// Determines the current state. Must be called when the drivers have just been loaded. Returns `None`
    /// if a mapped file of a driver has since been replaced on disk.
    pub(super) fn now() -> Option<Surroundings> {
        let mapped = libraries(None)?;
        let mut paths = mapped.clone();
        for library in &mapped {
            paths.extend(driver_files::beside(library)?);
        }
        let files = paths.iter().map(|path| Stamp::of(path).ok());
        let files = files.collect::<Option<_>>()?;
        // Reads the mappings again: a file that was replaced before its stamp was taken now shows as
        // deleted.
        if libraries(None)? != mapped {
            return None;
        }
        let mut others = vec![processor()];
        others.extend(settings());
        Some(Surroundings { files, others })
    }

    /// Returns the libraries that this process has mapped since then. Excludes those in the folder `but`,
    /// where a driver may put its own output. Returns `None` if a driver's file has changed since, because
    /// it is then unknown which version has compiled.
    pub(super) fn loaded_since(&self, but: Option<&Path>) -> Option<Vec<Stamp>> {
        let known = |path: &String| self.files.iter().any(|file| file.path == *path);
        let mapped = libraries(but)?;
        let new = mapped.iter().filter(|path| !known(path));
        let new = new
            .map(|path| Stamp::of(path).ok())
            .collect::<Option<_>>()?;
        let same = libraries(but)? == mapped && self.files.iter().all(Stamp::is_current);
        same.then_some(new)
    }

    /// Returns the identity of a device.
    pub(super) fn identity(&self, platform: &Platform, device: Device) -> Identity {
        let mut told: Vec<Vec<u8>> = Vec::new();
        told.extend(PLATFORM.map(|name| platform.info(name).unwrap_or_default()));
        told.extend(DEVICE.map(|name| device.info(name).unwrap_or_default()));
        told.extend(UUIDS.map(|name| device.info(name).unwrap_or_default()));
        let files: Vec<Vec<u8>> = self.files.iter().map(Stamp::encode_to_vec).collect();
        let parts = files.iter().chain(&self.others).chain(&told);
        Identity::of(parts.map(Vec::as_slice))
    }
}

/// Returns the shared libraries that this process has mapped, except those in the folder `but`. Returns
/// `None` if one of them was removed from the disk.
fn libraries(but: Option<&Path>) -> Option<BTreeSet<String>> {
    libraries_of(&std::fs::read_to_string("/proc/self/maps").ok()?, but)
}

fn libraries_of(maps: &str, but: Option<&Path>) -> Option<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for line in maps.lines() {
        // Columns: address, permissions, offset, device, inode, path.
        let Some(at) = line.find('/') else { continue };
        let executable = line.split(' ').nth(1).is_some_and(|r| r.contains('x'));
        let path = &line[at..];
        let left_out = but.is_some_and(|folder| Path::new(path).starts_with(folder));
        if !executable || left_out {
            continue;
        }
        if path.ends_with(" (deleted)") {
            // The daemon's own program may be replaced while it runs, because it does not compile. Memory
            // files have names but no file on disk.
            let library = path.contains(".so");
            if library && !path.starts_with("/memfd:") && !path.starts_with("/dev/") {
                return None;
            }
        } else if path.contains(".so") {
            found.insert(path.to_owned());
        }
    }
    Some(found)
}

/// Returns the features of the processor, because drivers for CPUs compile for them.
fn processor() -> Vec<u8> {
    let Ok(file) = File::open("/proc/cpuinfo") else {
        return Vec::new();
    };
    let wanted = ["flags", "Features", "isa"];
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    // The file lists all processors. The first one is enough, and reading a long list is slow.
    lines
        .take(64)
        .find(|line| wanted.iter().any(|w| line.starts_with(w)))
        .unwrap_or_default()
        .into_bytes()
}

fn settings() -> Vec<Vec<u8>> {
    let set: BTreeSet<(Vec<u8>, Vec<u8>)> = std::env::vars_os()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .filter(|(name, _)| {
            SETTINGS.iter().any(|s| name.starts_with(s.as_bytes()))
                && !PLACES.iter().any(|p| name == p.as_bytes())
        })
        .collect();
    set.into_iter()
        .flat_map(|(name, value)| [name, value])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_libraries_are_found_and_a_replaced_one_is_noticed() {
        let maps = "\
55d0-55d1 r-xp 00000000 fe:00 1234 /usr/bin/causewayd\n\
7f00-7f01 r--p 00000000 fe:00 77 /usr/lib/libdata.so\n\
7f01-7f02 r-xp 00000000 fe:00 78 /usr/lib/my dir/libpocl.so.2.9.0\n\
7f03-7f04 r-xp 00000000 00:01 79 /memfd:jit.so (deleted)\n\
7f05-7f06 r-xp 00000000 00:00 0  [vdso]\n";
        let found = libraries_of(maps, None).unwrap();
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["/usr/lib/my dir/libpocl.so.2.9.0"]
        );
        let replaced =
            format!("{maps}7f07-7f08 r-xp 00000000 fe:00 80 /usr/lib/libcl.so (deleted)\n");
        assert_eq!(libraries_of(&replaced, None), None);
        // Libraries in the excluded folder are ignored.
        let made = Path::new("/usr/lib");
        assert_eq!(libraries_of(&replaced, Some(made)), Some(BTreeSet::new()));
    }

    #[test]
    fn this_process_has_surroundings_that_stay() {
        let (one, other) = (Surroundings::now().unwrap(), Surroundings::now().unwrap());
        assert_eq!(one.files, other.files);
        assert_eq!(one.others, other.others);
        let paths = one.files.iter().map(|file| &file.path);
        assert!(paths.into_iter().any(|path| path.ends_with("libc.so.6")));
    }

    #[test]
    fn what_was_loaded_since_is_told_unless_the_drivers_have_changed() {
        let now = Surroundings::now().unwrap();
        assert_eq!(now.loaded_since(None), Some(Vec::new()));
        // Simulates that the C library was loaded by a build.
        let mut before = now.clone();
        before
            .files
            .retain(|file| !file.path.ends_with("libc.so.6"));
        let since = before.loaded_since(None).unwrap();
        assert_eq!(since.len(), 1);
        assert!(since[0].path.ends_with("libc.so.6"));
        let mut replaced = now;
        replaced.files[0].inode += 1;
        assert_eq!(replaced.loaded_since(None), None);
    }
}
