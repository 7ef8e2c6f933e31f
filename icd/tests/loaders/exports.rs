//! Tests the symbols of `libcauseway.so`: the three functions that loaders look for, and no other name that could
//! hide the loader's own.

use std::process::Command;

use crate::support::{driver, output_of};

#[test]
fn exactly_the_loaders_entry_symbols_are_exported() {
    let symbols = output_of(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(driver()),
    );
    let mut names: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "clGetExtensionFunctionAddress",
            "clGetPlatformInfo",
            "clIcdGetPlatformIDsKHR"
        ]
    );
}

#[test]
fn it_has_its_name_stays_loaded_and_needs_no_opencl() {
    let dynamic = output_of(Command::new("readelf").args(["-d", "--wide"]).arg(driver()));
    assert!(
        dynamic.contains("Library soname: [libcauseway.so]"),
        "{dynamic}"
    );
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(!dynamic.contains("Shared library: [libOpenCL"), "{dynamic}");
}
