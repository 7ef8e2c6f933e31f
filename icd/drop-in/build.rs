//! Links the drop-in as a loader is linked: with the SONAME `libOpenCL.so.1`, and every function under the
//! symbol version that Debian's programs ask for.
//!
//! For every cdylib, rustc passes the linker a version script without version names. Linkers refuse to
//! combine such a script with one that has names. So a small wrapper replaces the linker for this library:
//! it removes rustc's script from the command line, adds this crate's, and runs GNU ld, which comes with
//! every C compiler. The C compiler driver finds the wrapper by `-B` and `-fuse-ld=bfd`.
//!
//! The wrapper also sets the SONAME, and keeps the library loaded, because threads of the driver may run
//! when a program closes it. Cargo also passes the linker arguments of the library crate, its SONAME among
//! them, and the last one counts.
//!
//! Nothing outside of `OUT_DIR` is written.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cl_headers::{ENTRY_POINTS, SymbolVersion};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    if env("CARGO_CFG_TARGET_OS") != "linux" {
        println!("cargo::warning=symbol versions are made on Linux only");
        return;
    }
    let directory = PathBuf::from(env("OUT_DIR")).join("linker");
    fs::create_dir_all(&directory).expect("OUT_DIR can be written");
    let script = directory.join("libOpenCL.map");
    fs::write(&script, version_script()).expect("OUT_DIR can be written");

    let wrapper = directory.join("ld.bfd");
    fs::write(&wrapper, linker_wrapper(&real_linker(), &script)).expect("OUT_DIR can be written");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))
        .expect("the mode of a file in OUT_DIR can be set");

    let argument = |argument: &str| println!("cargo::rustc-link-arg-cdylib={argument}");
    argument(&format!("-B{}", directory.display()));
    argument("-fuse-ld=bfd");
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// The version script: each node with its functions inherits the node before. All other symbols are hidden.
fn version_script() -> String {
    let mut script = String::new();
    let mut before = None;
    for node in SymbolVersion::ALL {
        writeln!(script, "{} {{", node.name()).expect("writing to a string");
        writeln!(script, "  global:").expect("writing to a string");
        for entry in ENTRY_POINTS.iter().filter(|entry| entry.node == Some(node)) {
            writeln!(script, "    {};", entry.name).expect("writing to a string");
        }
        match before {
            None => writeln!(script, "  local:\n    *;\n}};"),
            Some(before) => writeln!(script, "}} {before};"),
        }
        .expect("writing to a string");
        before = Some(node.name());
    }
    script
}

/// The path of the GNU ld of the C compiler that links for this target.
fn real_linker() -> PathBuf {
    let compiler = std::env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler)
        .arg("-print-prog-name=ld.bfd")
        .output()
        .unwrap_or_else(|error| panic!("`{compiler}` cannot be run: {error}"));
    let linker = String::from_utf8(output.stdout).expect("a path in UTF-8");
    PathBuf::from(linker.trim())
}

fn linker_wrapper(linker: &Path, script: &Path) -> String {
    format!(
        r#"#!/bin/sh
# Made by icd/drop-in/build.rs, which says why.
for argument do
    shift
    case $argument in
        --version-script=* | --no-undefined-version) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {} "$@" -soname=libOpenCL.so.1 -z nodelete --no-undefined-version --version-script={}
"#,
        quoted(linker),
        quoted(script)
    )
}

/// A path quoted as one word for the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
