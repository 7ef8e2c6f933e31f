//! Tests with Khronos' own loader, which uses the second handshake. Debian 12 has no package of it. Among the
//! packages of PyPI, `intel-opencl-rt` contains it (built with Intel's compiler, hence the second package):
//!
//! ```text
//! python3 -m venv V && V/bin/pip install --no-deps intel-opencl-rt intel-cmplr-lib-rt
//! CAUSEWAY_KHRONOS_LOADER=$PWD/V/lib cargo test -p causeway-icd --test loaders
//! ```
//!
//! The packages are large, so nothing installs them by itself. Without that variable, which names the directory of
//! `libOpenCL.so.1`, these tests report that they were skipped.

use std::path::PathBuf;

use crate::support::{compile, nobody, output_of, unconfigured, vendors};

/// Returns the output of `platforms.c` under Khronos' loader, or `None` without that loader.
fn platforms(settings: &[(&str, &str)]) -> Option<String> {
    let Some(loader) = std::env::var_os("CAUSEWAY_KHRONOS_LOADER").map(PathBuf::from) else {
        eprintln!("skipped: CAUSEWAY_KHRONOS_LOADER does not name the place of Khronos' loader");
        return None;
    };
    assert!(
        loader.join("libOpenCL.so.1").exists(),
        "no loader in {}",
        loader.display()
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "platforms.c", &["-lOpenCL"]);
    let mut command = unconfigured(&program, directory.path());
    command
        .env("LD_LIBRARY_PATH", loader)
        .env("OCL_ICD_VENDORS", vendors(directory.path()))
        .envs(settings.iter().copied());
    Some(output_of(&mut command))
}

#[test]
fn without_configuration_there_is_no_platform() {
    if let Some(found) = platforms(&[]) {
        assert_eq!(found, "error -1001\n");
    }
}

#[test]
fn the_platform_is_found_by_either_handshake() {
    let nobody = nobody();
    for icd2 in ["0", "1"] {
        let settings = [
            ("CAUSEWAY_SERVERS", nobody.as_str()),
            ("CAUSEWAY_ICD2", icd2),
        ];
        if let Some(found) = platforms(&settings) {
            assert_eq!(found, "Causeway, suffix CSWY, devices 0, code -1\n");
        }
    }
}
