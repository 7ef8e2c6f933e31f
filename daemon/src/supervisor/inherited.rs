//! Selects the daemon's environment variables that workers inherit: those that configure drivers and
//! compilers, and no others.
//!
//! A worker runs kernels of unknown origin. On a CPU device these are native code and can read their
//! process's environment. The daemon's environment may come from an administrator's shell and contain
//! secrets.
//!
//! The worker environment's own variables are added elsewhere (`worker_env`). Invariant: a worker inherits only
//! variables that are listed here or in `[sandbox] environment`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Complete names, of variables that every program may have.
const NAMES: [&str; 15] = [
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TEMP",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "CACHE_DIRECTORY",
    "STATE_DIRECTORY",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
];

/// Prefixes of names: the dynamic linker, OpenCL loaders, drivers and their compilers.
const BEGINNINGS: [&str; 39] = [
    // The system and Causeway.
    "LC_",
    "LD_",
    "GLIBC_",
    "MALLOC_",
    "RUST_",
    "CAUSEWAYD_",
    "OCL_",
    "OPENCL_",
    "CL_",
    "CLC_",
    // PoCL and its libraries.
    "POCL_",
    "LLVM_",
    "OMP_",
    "KMP_",
    "TBB_",
    "HWLOC_",
    "FAKE_OPENCL_",
    // NVIDIA.
    "CUDA_",
    "NVIDIA_",
    "NV_",
    "__GL_",
    "__NV_",
    // AMD.
    "AMD_",
    "GPU_",
    "HIP_",
    "HSA_",
    "ROC_",
    "ROCM_",
    "ROCR_",
    "GPGPU_",
    // Intel.
    "IGC_",
    "INTEL_",
    "NEO",
    "ONEAPI_",
    "SYCL_",
    "ZE",
    // Mesa.
    "MESA_",
    "RUSTICL_",
    "DRI_",
];

/// Returns the variables that workers inherit. `more` contains further names, or prefixes that end in `*`.
pub(super) fn of(
    variables: impl Iterator<Item = (OsString, OsString)>,
    more: &[String],
) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsStr| {
        let bytes = name.as_bytes();
        NAMES.iter().any(|known| bytes == known.as_bytes())
            || BEGINNINGS
                .iter()
                .any(|known| bytes.starts_with(known.as_bytes()))
            || is_named(name, more)
    };
    variables.filter(|(name, _)| passes(name)).collect()
}

/// Returns whether a list of names, and of prefixes that end in `*`, names this variable.
pub(super) fn is_named(name: &OsStr, list: &[String]) -> bool {
    let name = name.as_bytes();
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning.as_bytes()),
        None => name == entry.as_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_with_the_daemon_and_drivers_have_what_sets_them_up() {
        let set = [
            "AWS_SECRET_ACCESS_KEY",
            "CAUSEWAY_TOKEN_FILE",
            "CUDA_VISIBLE_DEVICES",
            "LD_LIBRARY_PATH",
            "PATH",
            "PATHS",
            "POCL_DEVICES",
            "SSH_AUTH_SOCK",
            "VENDOR_A",
            "VENDOR_B",
        ];
        let passed = |more: &[&str]| {
            let variables = set.iter().map(|name| (OsString::from(name), "x".into()));
            let more: Vec<String> = more.iter().map(ToString::to_string).collect();
            let passed = of(variables, &more).into_iter();
            let names = passed.map(|(name, _)| name.into_string().unwrap());
            names.collect::<Vec<_>>()
        };
        let usual = [
            "CUDA_VISIBLE_DEVICES",
            "LD_LIBRARY_PATH",
            "PATH",
            "POCL_DEVICES",
        ];
        assert_eq!(passed(&[]), usual);
        assert_eq!(passed(&["VENDOR_A"])[4..], ["VENDOR_A"]);
        assert_eq!(passed(&["VENDOR_*"])[4..], ["VENDOR_A", "VENDOR_B"]);
    }
}
