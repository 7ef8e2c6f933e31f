//! Tests the extension's header: programs in C and C++ are compiled with it, run under the system's loader, and
//! connect a server of their own.

use std::path::Path;
use std::process::Command;

use crate::frames::servers::*;

fn compile(compiler: &[&str], program: &Path) {
    let output = Command::new(compiler[0])
        .args(&compiler[1..])
        .args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-DCL_TARGET_OPENCL_VERSION=300",
        ])
        .arg(concat!(
            "-I",
            env!("CARGO_MANIFEST_DIR"),
            "/../cl-headers/include"
        ))
        .arg("-o")
        .arg(program)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/devices/come_and_go.c"
        ))
        .arg("-lOpenCL")
        .output()
        .expect("the compilers `cc` and `c++` are needed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn programs_in_c_and_cpp_bring_a_server() {
    own_process!();
    let configured = Daemon::start("[[device]]\ncount = 2");
    let brought = Daemon::start("[[device]]\ncount = 3");
    let folder = tempfile::tempdir().expect("a folder");
    let driver = std::env::current_exe()
        .expect("a path")
        .with_file_name("libcauseway.so");
    std::fs::write(
        folder.path().join("causeway.icd"),
        format!("{}\n", driver.display()),
    )
    .expect("written");
    let program = folder.path().join("program");
    for compiler in [&["cc", "-std=c99"][..], &["c++", "-std=c++17", "-xc++"]] {
        compile(compiler, &program);
        let output = Command::new(&program)
            .arg(brought.address.to_string())
            .env("OCL_ICD_VENDORS", folder.path())
            .env("CAUSEWAY_SERVERS", configured.address.to_string())
            .env_remove("CAUSEWAY_CONFIG")
            .output()
            .expect("the compiler runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler:?}: {errors}");
        assert_eq!(output.stdout, b"before 2, with the server 5\n");
    }
}
