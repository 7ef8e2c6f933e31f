//! The drop-in `libOpenCL.so.1`: Causeway in the place of the system's loader.
//!
//! A program uses the drop-in if `LD_LIBRARY_PATH` names a directory with this library as `libOpenCL.so.1`.
//! The program then sees only Causeway's platform. It needs no `.icd` file and no rights on the machine.
//! Cargo names the file `libOpenCL.so`. `causeway run` creates the link `libOpenCL.so.1` in a directory of
//! its own; by hand it is
//!
//! ```text
//! mkdir -p ~/causeway && ln -s "$PWD/target/release/libOpenCL.so" ~/causeway/libOpenCL.so.1
//! LD_LIBRARY_PATH=~/causeway clinfo
//! ```
//!
//! This crate contains only a loader's part: the exports with their checks for NULL ([`exports`]), the list
//! of platforms, and the lookup of names that loaders answer themselves ([`loader`]). It loads no other
//! driver. The library crate implements the calls. `build.rs` sets the symbol versions.
//!
//! Invariant: the list in `cl-headers` decides what is exported, and under which version.

#![allow(
    non_snake_case,
    reason = "the library's name and the functions' names are OpenCL's"
)]

pub mod exports;
pub mod loader;
