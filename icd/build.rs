//! Links `libcauseway.so`: its SONAME, bound to itself, and never to be unloaded.
//!
//! The three exported functions have the names of the loader's own. Without `-Bsymbolic` the dynamic
//! linker would put the loader's `clGetPlatformInfo` into our dispatch table, for the loader came
//! first, and a call would go round in circles. And a loader or a program may close the library
//! while its threads run or its callbacks are on their way: with `-z nodelete` the code stays.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libcauseway.so");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-Bsymbolic");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,defs");
}
