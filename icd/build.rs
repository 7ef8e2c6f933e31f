//! Links `libcauseway.so`: its SONAME, and never to be unloaded.
//!
//! A loader or a program may close the library while its threads run or its callbacks are on their
//! way; with `-z nodelete` the code stays where it is.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libcauseway.so");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,defs");
}
