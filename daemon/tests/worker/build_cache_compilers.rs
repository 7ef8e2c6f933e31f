//! Tests of compilers that a driver loads for a build only: an entry is valid as long as the compiler is the same.

use crate::common::cached::{Place, SOURCE, build, until};

/// Makes a place whose driver loads a compiler with its first build. Returns it with the driver's settings.
fn place() -> (Place, String) {
    let place = Place::new();
    let compiler = place.path("libcompiler.so");
    std::fs::copy(place.path("libfake_opencl.so"), &compiler).unwrap();
    let rule = format!(
        "instant = true; [[call]]; name = \"clBuildProgram\"; load = \"{}\"",
        compiler.display()
    );
    (place, rule)
}

#[test]
fn a_replaced_compiler_gets_no_entry_of_the_one_before() {
    let (place, rule) = place();
    let daemon = place.daemon("1000000", &[("FAKE_OPENCL_CONFIG", &rule)]);
    let (first, _) = build(&place, &daemon, SOURCE, "");
    place.until_entries(1);
    place.alter_the_entry(|entry| {
        let loaded = entry.answer.loaded.iter();
        let names: Vec<&str> = loaded.map(|file| file.path.as_str()).collect();
        assert!(names.iter().any(|name| name.ends_with("/libcompiler.so")));
    });
    let (again, cached) = build(&place, &daemon, SOURCE, "");
    assert!(cached);
    assert_eq!(again, first);

    // The drivers are the same, so the key is the same.
    let new = place.path("new.so");
    std::fs::copy(place.path("libcompiler.so"), &new).unwrap();
    std::fs::rename(&new, place.path("libcompiler.so")).unwrap();
    let (again, cached) = build(&place, &daemon, SOURCE, "");
    assert!(!cached);
    assert_eq!(again, first);
    // The session that built with the new compiler has stored the build too.
    until("an entry of the new compiler", || {
        build(&place, &daemon, SOURCE, "").1
    });
    assert_eq!(place.entries().len(), 1);
}

#[test]
fn without_a_compiler_that_comes_late_an_entry_names_no_file() {
    let place = Place::new();
    let daemon = place.daemon("1000000", &[]);
    build(&place, &daemon, SOURCE, "");
    place.until_entries(1);
    place.alter_the_entry(|entry| assert_eq!(entry.answer.loaded, []));
}
