//! Tests with Debian's loader, ocl-icd: it finds the driver by an `.icd` file, and an ordinary program that is linked
//! with it sees the platform. Needs the package `ocl-icd-opencl-dev`.

use crate::support::{compile, nobody, output_of, unconfigured, vendors};

/// Returns the output of `platforms.c` with the system's loader, our driver alone, and these settings.
fn platforms(settings: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "platforms.c", &["-lOpenCL"]);
    let mut command = unconfigured(&program, directory.path());
    command
        .env("OCL_ICD_VENDORS", vendors(directory.path()))
        .envs(settings.iter().copied());
    output_of(&mut command)
}

#[test]
fn without_configuration_there_is_no_platform() {
    assert_eq!(platforms(&[]), "error -1001\n");
}

#[test]
fn with_a_server_there_is_one_platform_even_if_nobody_answers() {
    let nobody = nobody();
    let found = platforms(&[("CAUSEWAY_SERVERS", &nobody)]);
    assert_eq!(found, "Causeway, suffix CSWY, devices 0, code -1\n");
}

#[test]
fn with_the_tags_of_the_second_handshake_it_works_too() {
    let nobody = nobody();
    let found = platforms(&[("CAUSEWAY_SERVERS", &nobody), ("CAUSEWAY_ICD2", "1")]);
    assert_eq!(found, "Causeway, suffix CSWY, devices 0, code -1\n");
}
