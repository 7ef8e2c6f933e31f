//! The files and ports that a worker can still reach: a Landlock domain.
//!
//! A list of what is allowed. To read and run: the system's programs and libraries, what drivers read beside
//! them, and where the loaders find drivers. To write as well: the device files of accelerators, the process's
//! own folder, and the drivers' caches where they are shared. Of `/etc`, `/proc` and `/sys` only what programs
//! and drivers read, by name. Everything else (homes, `/tmp`, `/dev/shm`, other processes, the system's headers, the
//! daemon's keys and its build cache) is as if its mode were 0000. What was opened before, or is passed by the
//! supervisor, works.
//!
//! A kernel's text may name a file to its compiler, so what is readable here may come to stand in a build log:
//! nothing is on the list because it does no harm, but only because a driver needs it.
//!
//! With it go: looking into processes outside the domain (`ptrace`, most of `/proc/PID`), signals to them,
//! and serving TCP ports. Where to connect is limited by a setting only, because other nodes' workers are at
//! ports that no rule knows. Unix sockets are left open: abstract ones, because lanes through shared memory use
//! them, and those with a path, because Landlock judges opening a file and not connecting to it.
//!
//! Invariant: what is not there, or may not be opened by this user, is no error; nothing is created but the
//! folders of shared caches.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope, path_beneath_rules,
};

use crate::build_cache::pocl;
use crate::confinement::Sandbox;
use crate::driver_files;

/// What is asked for at most: with signals and device calls. An older kernel gives less.
const WANTED: ABI = ABI::V6;

/// Where systems install programs for everybody.
const PREFIXES: [&str; 3] = ["/", "/usr", "/usr/local"];

/// Below a prefix: programs and libraries, and the files of drivers, compilers and the C library.
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

/// Folders of vendors, by the beginnings of their names, below `/opt` and `/usr/local`.
const VENDORS: [&str; 7] = [
    "amdgpu", "AMDAPP", "cuda", "intel", "nvidia", "pocl", "rocm",
];

/// Places of their own that systems have for drivers, and what tells where names of hosts are looked up.
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
    // Licences lie beside them.
    "nvidia/nvidia-application-profiles-rc",
    "nvidia/nvidia-application-profiles-rc.d",
    "resolv.conf",
    "vulkan",
];

/// What the kernel tells of the machine and of the process itself, below `/proc`. Neither its environment, nor
/// `task`, in which that is as well.
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

/// What the kernel tells of processors, memory and devices, below `/sys`.
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
/// Buses and graphics processors, by the beginnings of their names, below `/sys/devices`.
const BUSES: [&str; 2] = ["gpu", "pci"];

/// Device files by the beginnings of their names: NVIDIA (also Jetson), AMD, Intel and Mesa, WSL, Arm,
/// Qualcomm, Imagination, accelerators; memory that several of them share. `/dev/shm` is not among them: files
/// there would stay after the session, counted by no limit.
const DEVICES: [&str; 14] = [
    "accel", "dma_heap", "dri", "dxg", "kfd", "kgsl", "mali", "nvgpu", "nvhost", "nvidia", "nvmap",
    "pvr", "udmabuf", "xdna",
];
const PLAIN_DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random"];

/// Folders in which a driver's library may lie without being a folder of drivers.
const COMMON: [&str; 4] = ["/", "/root", "/tmp", "/var/tmp"];

/// Confines this thread and all that come from it. Says what this kernel lacks for it.
pub(super) fn restrict(sandbox: &Sandbox) -> Result<Option<String>, RulesetError> {
    let variable = |name: &str| std::env::var_os(name);
    let mut write = writable();
    write.extend(sandbox.write.iter().cloned());
    if sandbox.shared_caches {
        let caches = caches(&variable, &|device| Path::new(device).exists());
        // One that cannot be made is one that the driver could not make.
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
    told.keep();
    Ok(lacking(&status))
}

/// The files of [`PROC`]. A rule is about an inode, and `/proc` makes a new one for a file that nobody has
/// open when memory gets scarce; so they stay open, which gives no right to read them.
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

    /// For the life of the process.
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
                 sessions' processes may reach more than they should",
                WANTED as i32
            ));
        }
        (LandlockStatus::NotEnabled, _) => "has Landlock switched off (lsm= on its command line)",
        _ => "has no Landlock",
    };
    Some(format!(
        "this kernel {how}: sessions' processes may reach every file that their user may"
    ))
}

/// What drivers read.
fn readable(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut paths = installed();
    paths.extend(driver_files::paths(variable, "LD_LIBRARY_PATH"));
    let home = variable("HOME").map(PathBuf::from);
    for place in driver_files::places(variable) {
        let mut inside = driver_files::entries(&place);
        inside.push(place.clone());
        for file in &inside {
            // Where it is a link; the folder is named below.
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

/// What is there whoever the drivers are.
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

/// What drivers read below a prefix of installed programs.
fn below(prefix: &Path) -> impl Iterator<Item = PathBuf> {
    INSTALLED.iter().map(|name| prefix.join(name))
}

/// The prefix under which a driver's library is installed: what has the `lib` that it lies in.
fn prefix(library: &Path) -> Option<&Path> {
    let lib = library.ancestors().skip(1).find(|folder| {
        let name = folder.file_name();
        name.is_some_and(|name| ["lib", "lib64", "lib32"].iter().any(|lib| name == *lib))
    })?;
    let prefix = lib.parent()?;
    // What is not installed for all has its own files beside it.
    (!COMMON.iter().any(|common| Path::new(common) == prefix)).then_some(prefix)
}

/// What lies in a folder under a name that begins so.
fn beginning(folder: &str, names: &[&str]) -> Vec<PathBuf> {
    let mut entries = driver_files::entries(Path::new(folder));
    entries.retain(|path| path.file_name().is_some_and(|name| begins(name, names)));
    entries
}

fn begins(name: &OsStr, names: &[&str]) -> bool {
    let name = name.to_string_lossy();
    names.iter().any(|start| name.starts_with(start))
}

/// A path, and where it leads to.
fn with_target(path: &Path) -> Vec<PathBuf> {
    let target = std::fs::canonicalize(path).ok();
    [path.to_owned()].into_iter().chain(target).collect()
}

/// The folder in which a driver lies, with what it loads; where that is everybody's, the driver alone.
fn surroundings(library: &Path, home: Option<&Path>) -> PathBuf {
    match library.parent() {
        Some(folder) if home != Some(folder) && !COMMON.iter().any(|c| Path::new(c) == folder) => {
            folder.to_owned()
        }
        _ => library.to_owned(),
    }
}

/// What drivers write besides their caches.
fn writable() -> Vec<PathBuf> {
    let plain = PLAIN_DEVICES.iter().map(PathBuf::from);
    beginning("/dev", &DEVICES)
        .into_iter()
        .chain(plain)
        .collect()
}

/// Where drivers that may be there keep what they have compiled. Mind that whoever may write there can have
/// other sessions run what it likes: see `driver_caches` in `etc/daemon.toml`.
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
