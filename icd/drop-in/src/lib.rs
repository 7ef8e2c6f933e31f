//! The drop-in `libOpenCL.so.1`: Causeway in the place of the system's loader.
//!
//! A program started with `LD_LIBRARY_PATH` at a directory where this library lies as
//! `libOpenCL.so.1` sees Causeway's platform and no other, without an `.icd` file and without rights
//! on the machine. Cargo makes the file `libOpenCL.so`; `causeway run` makes the link
//! `libOpenCL.so.1` to it in a directory of its own, and by hand it is
//!
//! ```text
//! mkdir -p ~/causeway && ln -s "$PWD/target/release/libOpenCL.so" ~/causeway/libOpenCL.so.1
//! LD_LIBRARY_PATH=~/causeway clinfo
//! ```
//!
//! Here is only what a loader does: the exports with their checks for NULL ([`exports`]), the list
//! of platforms, and the look-up of what loaders answer themselves ([`loader`]). It loads no other
//! driver. The calls are those of the library crate; `build.rs` gives the symbols their versions.
//!
//! Invariant: what is exported, and under which version, is what the one list in `cl-headers` says.

#![allow(
    non_snake_case,
    reason = "the library's name and the functions' names are OpenCL's"
)]

pub mod exports;
pub mod loader;
