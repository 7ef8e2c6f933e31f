//! The OpenCL C ABI in Rust: everything on which a loader and a driver must agree, down to the byte.
//!
//! - [`types`]: OpenCL's C types, constants and callback signatures;
//! - [`for_each_entry_point!`]: the one list of all entry points up to OpenCL 3.1;
//! - [`Dispatch`], [`ENTRY_POINTS`]: the dispatch table and the names, made from that list;
//! - [`ObjectHead`], [`Icd2Dispatch`]: the first words of every OpenCL object, for both kinds of loaders;
//! - [`server`]: Causeway's extension `cl_wwu_server`, whose C header is `include/CL/cl_ext_causeway.h`;
//! - [`error_name`]: error codes as text.
//!
//! This crate implements no OpenCL function and links no OpenCL library. Invariant: the layouts agree with
//! Khronos' `cl_icd.h`. Constant assertions and `tests/c_layout.rs` check that.

#[macro_use]
mod entry_points; // first: its macro is used by the others

mod dispatch;
mod error;
mod object;
pub mod server;
pub mod types;

pub use dispatch::{
    Dispatch, ENTRY_POINTS, EntryPoint, Origin, SLOTS, SymbolVersion, Version, entry_point,
};
pub use error::error_name;
pub use object::{ICD2_TAG, Icd2Dispatch, ObjectHead, TAGGED_SLOTS};
