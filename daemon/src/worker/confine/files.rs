//! The files and ports that a worker can still reach: a Landlock domain.
//!
//! The domain lists what is allowed. Read and execute: the system's programs and libraries, the files
//! that drivers read, and the places where loaders look for drivers. Write: the device files of
//! accelerators, the process's own folder, and the drivers' caches if they are shared. Of `/etc`, `/proc`
//! and `/sys`, only named files that programs and drivers need. All other files behave as if their mode
//! were 0000: homes, `/tmp`, `/dev/shm`, other processes, header files, the daemon's keys and its build
//! cache. Files opened earlier or passed by the supervisor still work.
//!
//! A kernel's source may name a file to its compiler, so readable content may appear in a build log.
//! Therefore a file is on the list only if a driver needs it, not because it is harmless.
//!
//! The domain also denies access to outside processes (`ptrace`, most of `/proc/PID`), signals to them,
//! and listening on TCP ports. Outgoing ports are limited by a setting only, because no rule knows the
//! ports of other workers. Unix sockets stay open. Lanes through shared memory use abstract ones. For
//! those with a path, Landlock checks opening a file, not connecting to it.
//!
//! Invariant: a file that does not exist or that this user may not open is no error. Nothing is created
//! except the folders of shared caches.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use causeway_confine::WANTED;
use landlock::{
    Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope, path_beneath_rules,
};

use crate::build_cache::pocl;
use crate::confinement::Sandbox;
use crate::driver_files;

/// Prefixes under which systems install programs for all users.
const PREFIXES: [&str; 3] = ["/", "/usr", "/usr/local"];

/// Folders below a prefix: programs, libraries, and files of drivers, compilers and the C library.
const INSTALLED: [&str; 22] = [
    "bin",
    "lib",
    "lib32",
    "lib64",
    "libexec",
    "libx32",
    "share/OpenCL",
    "share/X11/locale",
    "share/clc",
    "share/drirc.d",
    "share/glvnd",
    "share/hwdata",
    "share/hwloc",
    "share/i18n",
    "share/libdrm",
    "share/locale",
    "share/misc",
    "share/nvidia",
    "share/pocl",
    "share/spirv",
    "share/vulkan",
    "share/zoneinfo",
];

/// Folders of vendors below `/opt` and `/usr/local`, by prefixes of their names.
const VENDORS: [&str; 7] = [
    "amdgpu", "AMDAPP", "cuda", "intel", "nvidia", "pocl", "rocm",
];

/// Places that some systems use for drivers, the resolver's configuration, and a source of random numbers.
const SYSTEM: [&str; 5] = [
    "/nix/store",
    "/gnu/store",
    "/run/opengl-driver",
    "/run/systemd/resolve",
    "/dev/urandom",
];

/// Settings of the C library, loaders and drivers, below `/etc`.
const ETC: [&str; 18] = [
    "OpenCL",
    "amd",
    "drirc",
    "gai.conf",
    "glvnd",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "locale.alias",
    "localtime",
    "nsswitch.conf",
    // Only these two: licences lie in the same folder.
    "nvidia/nvidia-application-profiles-rc",
    "nvidia/nvidia-application-profiles-rc.d",
    "resolv.conf",
    "vulkan",
];

/// Information about the machine and the process itself, below `/proc`. The environment is not on the
/// list, nor is `task`, which contains the environment as well.
const PROC: [&str; 27] = [
    "bus/pci",
    "cpuinfo",
    "devices",
    "driver",
    "filesystems",
    "meminfo",
    "misc",
    "modules",
    "self/auxv",
    "self/comm",
    "self/cpuset",
    "self/fd",
    "self/fdinfo",
    "self/limits",
    "self/maps",
    "self/numa_maps",
    "self/smaps",
    "self/smaps_rollup",
    "self/stat",
    "self/statm",
    "self/status",
    "stat",
    "sys/kernel/osrelease",
    "sys/kernel/random",
    "sys/vm",
    "vmstat",
    "zoneinfo",
];

/// Information about processors, memory and devices, below `/sys`.
const SYS: [&str; 19] = [
    "bus/dax",
    "bus/pci",
    "bus/platform",
    "class/accel",
    "class/drm",
    "class/kfd",
    "dev/char",
    "devices/platform",
    "devices/soc0",
    "devices/system",
    "devices/virtual/accel",
    "devices/virtual/drm",
    "devices/virtual/kfd",
    "devices/virtual/misc",
    "devices/virtual/nvidia",
    "firmware/devicetree",
    "fs/cgroup",
    "kernel/mm",
    "module",
];
/// Buses and graphics processors below `/sys/devices`, by prefixes of their names.
const BUSES: [&str; 2] = ["gpu", "pci"];

/// Device files by prefixes of their names: NVIDIA (also Jetson), AMD, Intel and Mesa, WSL, Arm,
/// Qualcomm, Imagination, other accelerators, and memory shared by several devices. `/dev/shm` is missing
/// on purpose: files there would outlive the session, and no limit counts them.
const DEVICES: [&str; 14] = [
    "accel", "dma_heap", "dri", "dxg", "kfd", "kgsl", "mali", "nvgpu", "nvhost", "nvidia", "nvmap",
    "pvr", "udmabuf", "xdna",
];
const PLAIN_DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random"];

/// Shared folders that may contain a driver's library without being driver folders.
const COMMON: [&str; 4] = ["/", "/root", "/tmp", "/var/tmp"];

/// Confines this thread and everything that it starts. Returns what this kernel lacks for it.
pub(super) fn restrict(sandbox: &Sandbox) -> Result<Option<String>, RulesetError> {
    let variable = |name: &str| std::env::var_os(name);
    let mut write = writable();
    write.extend(sandbox.write.iter().cloned());
    if sandbox.shared_caches {
        let caches = caches(&variable, &|device| Path::new(device).exists());
        // If the folder cannot be created here, the driver could not create it either.
        caches.iter().for_each(|cache| {
            let _ = std::fs::create_dir_all(cache);
        });
        write.extend(caches);
    }
    let mut read = readable(&variable);
    read.extend(sandbox.read.iter().cloned());
    let told = Told::open();
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::Signal)?;
    if sandbox.connect_ports.is_some() {
        rules = rules.handle_access(AccessNet::ConnectTcp)?;
    }
    let ports = sandbox.connect_ports.iter().flatten();
    let status = rules
        .create()?
        .add_rules(path_beneath_rules(read, AccessFs::from_read(WANTED)))?
        .add_rules(told.rules())?
        .add_rules(path_beneath_rules(write, AccessFs::from_all(WANTED)))?
        .add_rules(
            ports.map(|&port| Ok::<_, RulesetError>(NetPort::new(port, AccessNet::ConnectTcp))),
        )?
        .restrict_self()?;
    // The files of `/proc` must stay open: see [`Told`].
    told.keep();
    Ok(lacking(&status))
}

/// The open files of [`PROC`]. A rule applies to an inode. When memory is scarce, `/proc` replaces the
/// inode of a file that is not open. So the files stay open, which grants no right to read them.
struct Told(Vec<(PathFd, BitFlags<AccessFs>)>);

impl Told {
    fn open() -> Told {
        let all = AccessFs::from_read(WANTED);
        let opened = PROC.iter().filter_map(|name| {
            let path = Path::new("/proc").join(name);
            let file = PathFd::new(&path).ok()?;
            let access = match path.is_dir() {
                true => all,
                false => all & AccessFs::from_file(WANTED),
            };
            Some((file, access))
        });
        Told(opened.collect())
    }

    fn rules(&self) -> impl Iterator<Item = Result<PathBeneath<&PathFd>, RulesetError>> {
        let rules = self.0.iter();
        rules.map(|(file, access)| Ok(PathBeneath::new(file, *access)))
    }

    /// Keeps the files open until the process ends.
    fn keep(self) {
        std::mem::forget(self);
    }
}

fn lacking(status: &RestrictionStatus) -> Option<String> {
    let how = match (&status.landlock, &status.ruleset) {
        (_, RulesetStatus::FullyEnforced) => return None,
        (LandlockStatus::Available { effective_abi, .. }, RulesetStatus::PartiallyEnforced) => {
            let version = *effective_abi as i32;
            return Some(format!(
                "this kernel's Landlock (version {version}) lacks part of the sandbox (version {} has all): \
                 sessions' processes may reach more than they should; upgrade the kernel",
                WANTED as i32
            ));
        }
        (LandlockStatus::NotEnabled, _) => {
            "has Landlock switched off; add landlock to lsm= on its command line"
        }
        _ => "has no Landlock",
    };
    Some(format!(
        "this kernel {how}: sessions' processes may reach every file that their user may"
    ))
}

/// The paths that drivers read.
fn readable(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut paths = installed();
    paths.extend(driver_files::paths(variable, "LD_LIBRARY_PATH"));
    let home = variable("HOME").map(PathBuf::from);
    for place in driver_files::places(variable) {
        let mut inside = driver_files::entries(&place);
        inside.push(place.clone());
        for file in &inside {
            // The target, if the file is a link. The folder itself is added below.
            paths.extend(std::fs::canonicalize(file).ok());
            let library = driver_files::library(file);
            for library in library.iter().flat_map(|path| with_target(path)) {
                let prefix = prefix(&library).filter(|&prefix| home.as_deref() != Some(prefix));
                paths.extend(prefix.into_iter().flat_map(below));
                paths.push(surroundings(&library, home.as_deref()));
            }
        }
        paths.push(if place.is_dir() {
            place
        } else {
            surroundings(&place, home.as_deref())
        });
    }
    paths.retain(|path| path.is_absolute());
    paths
}

/// The readable paths that do not depend on the drivers.
fn installed() -> Vec<PathBuf> {
    let named = |folder: &str, names: &[&str]| -> Vec<PathBuf> {
        names
            .iter()
            .map(|name| Path::new(folder).join(name))
            .collect()
    };
    let mut paths = named("/", &SYSTEM);
    paths.extend(PREFIXES.into_iter().map(Path::new).flat_map(below));
    paths.extend(named("/etc", &ETC));
    paths.extend(named("/sys", &SYS));
    paths.extend(beginning("/sys/devices", &BUSES));
    for folder in ["/opt", "/usr/local"] {
        paths.extend(beginning(folder, &VENDORS));
    }
    paths
}

/// The paths that drivers read below a prefix.
fn below(prefix: &Path) -> impl Iterator<Item = PathBuf> {
    INSTALLED.iter().map(|name| prefix.join(name))
}

/// The prefix under which a driver's library is installed: the parent of the `lib` folder that contains it.
fn prefix(library: &Path) -> Option<&Path> {
    let lib = library.ancestors().skip(1).find(|folder| {
        let name = folder.file_name();
        name.is_some_and(|name| ["lib", "lib64", "lib32"].iter().any(|lib| name == *lib))
    })?;
    let prefix = lib.parent()?;
    // In a shared folder the library is not installed, and only the files beside it belong to it.
    (!COMMON.iter().any(|common| Path::new(common) == prefix)).then_some(prefix)
}

/// The entries of a folder whose names have one of these prefixes.
fn beginning(folder: &str, names: &[&str]) -> Vec<PathBuf> {
    let mut entries = driver_files::entries(Path::new(folder));
    entries.retain(|path| path.file_name().is_some_and(|name| begins(name, names)));
    entries
}

fn begins(name: &OsStr, names: &[&str]) -> bool {
    let name = name.to_string_lossy();
    names.iter().any(|start| name.starts_with(start))
}

/// A path and its target.
fn with_target(path: &Path) -> Vec<PathBuf> {
    let target = std::fs::canonicalize(path).ok();
    [path.to_owned()].into_iter().chain(target).collect()
}

/// The folder of a driver's library, which contains what it loads. In a shared folder, only the library itself.
fn surroundings(library: &Path, home: Option<&Path>) -> PathBuf {
    match library.parent() {
        Some(folder) if home != Some(folder) && !COMMON.iter().any(|c| Path::new(c) == folder) => {
            folder.to_owned()
        }
        _ => library.to_owned(),
    }
}

/// The paths that drivers write besides their caches.
fn writable() -> Vec<PathBuf> {
    let plain = PLAIN_DEVICES.iter().map(PathBuf::from);
    beginning("/dev", &DEVICES)
        .into_iter()
        .chain(plain)
        .collect()
}

/// The cache folders of drivers that may be installed. Any process that can write there can make other
/// sessions run its code: see `driver_caches` in `etc/daemon.toml`.
fn caches(
    variable: &dyn Fn(&str) -> Option<OsString>,
    is_there: &dyn Fn(&str) -> bool,
) -> Vec<PathBuf> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    let home = given("HOME").map(PathBuf::from);
    let usual = given("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| home.as_ref().map(|home| home.join(".cache")));
    let mut caches = vec![PathBuf::from(pocl::folder(variable))];
    let mut add = |name: &str, folder: Option<PathBuf>| {
        caches.extend(given(name).map(PathBuf::from).or(folder));
    };
    if is_there("/dev/nvidiactl") {
        add("CUDA_CACHE_PATH", home.map(|home| home.join(".nv")));
    }
    if is_there("/dev/dri") || is_there("/dev/kfd") {
        for (name, folder) in [
            ("AMD_COMGR_CACHE_DIR", "comgr"),
            ("MESA_SHADER_CACHE_DIR", "mesa_shader_cache"),
            ("MESA_SHADER_CACHE_DIR", "mesa_shader_cache_db"),
            ("NEO_CACHE_DIR", "neo_compiler_cache"),
        ] {
            add(name, usual.as_ref().map(|usual| usual.join(folder)));
        }
    }
    caches.retain(|path| path.is_absolute());
    caches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        let set: Vec<(String, OsString)> = set
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect();
        move |name| {
            let found = set.iter().find(|(n, _)| n == name);
            found.map(|(_, value)| value.clone())
        }
    }

    #[test]
    fn a_drivers_folder_is_read_and_not_the_home_it_lies_in() {
        let folder = tempfile::tempdir().unwrap();
        let vendors = folder.path().join("vendors");
        std::fs::create_dir(&vendors).unwrap();
        std::fs::write(vendors.join("a.icd"), "/somewhere/a/libdriver.so\n").unwrap();
        std::fs::write(vendors.join("b.icd"), "/home/me/libdriver.so\n").unwrap();
        std::fs::write(vendors.join("c.icd"), "libnamed.so\n").unwrap();
        std::fs::write(vendors.join("d.icd"), "/opt/own/lib/own/libdriver.so\n").unwrap();
        let read = readable(&variables(&[
            ("HOME", "/home/me"),
            ("OCL_ICD_VENDORS", vendors.to_str().unwrap()),
            ("LD_LIBRARY_PATH", "/somewhere/else:relative"),
        ]));
        let has = |path: &str| read.contains(&PathBuf::from(path));
        assert!(has("/somewhere/a") && has("/somewhere/else") && has("/usr/lib"));
        assert!(has("/opt/own/lib") && has("/opt/own/share/pocl") && !has("/opt/own"));
        assert!(has("/home/me/libdriver.so") && !has("/home/me"));
        assert!(read.contains(&vendors) && !has("relative"));
        for secret in [
            "/",
            "/etc",
            "/etc/shadow",
            "/etc/causeway",
            "/etc/passwd",
            "/etc/nvidia",
            "/usr",
            "/usr/include",
            "/usr/share",
            "/opt",
            "/proc",
            "/sys",
            "/dev/shm",
            "/home",
            "/root",
            "/tmp",
        ] {
            assert!(!has(secret), "{secret}");
        }
    }

    #[test]
    fn caches_are_those_of_drivers_that_may_be_there() {
        let at = |set: &[(&str, &str)], devices: &[&str]| {
            caches(&variables(set), &|device| devices.contains(&device))
        };
        let home = ("HOME", "/home/me");
        assert_eq!(
            at(&[home], &[]),
            [PathBuf::from("/home/me/.cache/pocl/kcache")]
        );
        let all = at(
            &[home, ("POCL_CACHE_DIR", "/p"), ("CUDA_CACHE_PATH", "/n")],
            &["/dev/nvidiactl"],
        );
        assert_eq!(all, [PathBuf::from("/p"), "/n".into()]);
        let amd = at(&[("HOME", "here"), ("XDG_CACHE_HOME", "/c")], &["/dev/kfd"]);
        assert!(amd.contains(&"/c/comgr".into()) && amd.iter().all(|path| path.is_absolute()));
    }
}
