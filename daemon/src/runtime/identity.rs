//! What decides how a device of this process compiles, besides the program: for the build cache.
//!
//! Drivers and their versions by what they say, by the files that this process has mapped, because a
//! driver may be replaced without a new version, and by those that lie beside them for the compiler
//! (`driver_files`). What a driver loads only with a build is no part of it, because nobody knows it before; who
//! has built can ask for it ([`Surroundings::loaded_since`]). Where that cannot be told for certain there is no
//! identity, and nothing is cached. Invariant: two processes with the same identity for a device run the
//! same driver files, on the same kind of processor, with the same settings in their environment.
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

/// Variables by which drivers and compilers are told how to compile begin so.
const SETTINGS: [&str; 12] = [
    "POCL_", "CUDA_", "OCL_", "CL_", "NV_", "AMD_", "IGC_", "NEO", "RUSTICL_", "CLC_", "LLVM_",
    "LD_",
];
/// These only say where their caches lie.
const PLACES: [&str; 5] = [
    "POCL_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "CUDA_CACHE_MAXSIZE",
    "NEO_CACHE_DIR",
    "OCL_ICD_VENDORS",
];

/// What is the same for all devices of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    // Of the drivers: mapped, and beside these.
    files: Vec<Stamp>,
    // Processor and settings.
    others: Vec<Vec<u8>>,
}

impl Surroundings {
    /// As they are when the drivers have just been loaded; `None` where a driver's file is not the one on
    /// the disk any more.
    pub(super) fn now() -> Option<Surroundings> {
        let mapped = libraries(None)?;
        let mut paths = mapped.clone();
        for library in &mapped {
            paths.extend(driver_files::beside(library)?);
        }
        let files = paths.iter().map(|path| Stamp::of(path).ok());
        let files = files.collect::<Option<_>>()?;
        // A file that was replaced before it was looked at shows as deleted now.
        if libraries(None)? != mapped {
            return None;
        }
        let mut others = vec![processor()];
        others.extend(settings());
        Some(Surroundings { files, others })
    }

    /// The libraries that this process has mapped since then, but for those in the folder `but`, where a driver
    /// may put what it makes; `None` where a file of the drivers is not as it was then, so that nobody can tell
    /// which of the two has compiled.
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

    /// The identity of a device among them.
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

/// The shared libraries that this process has mapped, but for those in a folder; `None` when one of them is gone
/// from the disk.
fn libraries(but: Option<&Path>) -> Option<BTreeSet<String>> {
    libraries_of(&std::fs::read_to_string("/proc/self/maps").ok()?, but)
}

fn libraries_of(maps: &str, but: Option<&Path>) -> Option<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for line in maps.lines() {
        // Address, rights, offset, device, inode, path.
        let Some(at) = line.find('/') else { continue };
        let executable = line.split(' ').nth(1).is_some_and(|r| r.contains('x'));
        let path = &line[at..];
        let left_out = but.is_some_and(|folder| Path::new(path).starts_with(folder));
        if !executable || left_out {
            continue;
        }
        if path.ends_with(" (deleted)") {
            // The daemon's own program may be replaced while it runs; it compiles nothing. Memory that
            // has a name has no file.
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

/// What the processor can do: drivers of processors compile for it.
fn processor() -> Vec<u8> {
    let Ok(file) = File::open("/proc/cpuinfo") else {
        return Vec::new();
    };
    let wanted = ["flags", "Features", "isa"];
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    // All processors of a host are told; the first one is enough, and a long list takes long.
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
        // But for what a driver has made itself.
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
        // As if the C library had come with a build.
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
