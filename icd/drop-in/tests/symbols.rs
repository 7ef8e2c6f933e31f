//! Compares the symbols of the drop-in with those of the loaders that it replaces: every function has the
//! version with which programs were linked, and there are no other symbols.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use cl_headers::{ENTRY_POINTS, SymbolVersion};

/// The library that Cargo built for this test, in the directory of the test program.
fn drop_in() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows where it is");
    let library = program.with_file_name("libOpenCL.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

fn run(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .arg(file)
        .output()
        .unwrap_or_else(|error| panic!("{program} (package binutils) is needed: {error}"));
    assert!(
        output.status.success(),
        "{program} failed on {}",
        file.display()
    );
    String::from_utf8(output.stdout).expect("text")
}

/// The functions that a library exports, as `name@@VERSION`.
fn defined(library: &Path) -> BTreeSet<String> {
    run(
        "nm",
        &["-D", "--defined-only", "--with-symbol-versions"],
        library,
    )
    .lines()
    .filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (kind, name) = (fields.next()?, fields.next()?);
        (kind == "T").then(|| name.to_owned())
    })
    .collect()
}

#[test]
fn exactly_the_functions_of_the_list_are_exported() {
    let expected: BTreeSet<String> = ENTRY_POINTS
        .iter()
        .filter_map(|entry| Some(format!("{}@@{}", entry.name, entry.node?.name())))
        .collect();
    assert_eq!(expected.len(), 134);
    assert_eq!(defined(&drop_in()), expected);
}

/// Debian's loader is in the package `ocl-icd-libopencl1`. Khronos' loader is not in Debian 12;
/// `CAUSEWAY_KHRONOS_LOADER` names its directory (see `icd/tests/loaders/under_khronos.rs`).
#[test]
fn everything_in_the_loaders_of_others_is_in_ours_under_the_same_version() {
    let khronos = std::env::var_os("CAUSEWAY_KHRONOS_LOADER")
        .map(|directory| PathBuf::from(directory).join("libOpenCL.so.1"));
    let debian = PathBuf::from("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1");
    let loaders = [
        ("ocl-icd", 133, Some(debian)),
        ("Khronos' loader", 124, khronos),
    ];
    let ours = defined(&drop_in());
    for (name, functions, library) in loaders {
        let Some(library) = library.filter(|library| library.exists()) else {
            eprintln!("skipped: {name} is not here");
            continue;
        };
        let theirs = defined(&library);
        assert!(theirs.len() >= functions, "{name}: {theirs:?}");
        let missing: Vec<_> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}

/// The numbers are those of Debian's loader, plus the one function of OpenCL 3.1 from Khronos' loader.
#[test]
fn the_nodes_hold_as_many_functions_as_both_loaders_together() {
    let count = |node| {
        ENTRY_POINTS
            .iter()
            .filter(|entry| entry.node == Some(node))
            .count()
    };
    assert_eq!(SymbolVersion::ALL.map(count), [79, 12, 16, 14, 7, 2, 3, 1]);
}

#[test]
fn each_node_inherits_the_one_before() {
    let versions = run("readelf", &["-V", "--wide"], &drop_in());
    for pair in SymbolVersion::ALL.windows(2) {
        let (parent, child) = (pair[0].name(), pair[1].name());
        let definition = versions
            .split("Name: ")
            .find(|part| part.starts_with(child) && part.contains("Parent 1:"))
            .unwrap_or_else(|| panic!("{child} has no parent in\n{versions}"));
        assert!(
            definition.contains(&format!("Parent 1: {parent}")),
            "{definition}"
        );
    }
}

#[test]
fn it_is_called_as_programs_expect_and_stays_loaded() {
    let dynamic = run("readelf", &["-d", "--wide"], &drop_in());
    assert!(
        dynamic.contains("Library soname: [libOpenCL.so.1]"),
        "{dynamic}"
    );
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(
        !dynamic.contains("Shared library: [libOpenCL"),
        "it loads no loader: {dynamic}"
    );
}
