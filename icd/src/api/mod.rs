//! The C ABI: every entry point, its argument checks and its codes; nothing else.
//!
//! One file per OpenCL noun. A body checks in one fixed order (handles, same context, object state,
//! values, wait list, access flags), turns C into Rust and calls the stub. The only room of the
//! library, with the bulk path's raw memory, where `unsafe` is at home.
//!
//! Invariant: every slot of the dispatch table is filled, by exactly one function; those of features
//! that no device has answer with the specification's code for a missing feature.
#![allow(unsafe_code)]

mod command_buffer;
mod context;
mod device;
mod entry;
mod event;
mod handle;
mod image;
mod info;
mod kernel;
mod launch;
mod loader;
mod memory;
mod pipe;
mod platform;
mod program;
mod properties;
mod queue;
mod sampler;
mod semaphore;
mod server;
mod sharing;
mod sub_device;
mod svm;
mod timer;

use cl_headers::Dispatch;

pub use loader::answer_names_by;

/// The dispatch table that every handle points to.
#[must_use]
pub fn dispatch() -> &'static Dispatch {
    &DISPATCH
}

static DISPATCH: Dispatch = {
    // Each entry point is defined once: a second definition does not compile.
    use context::*;
    use device::*;
    use event::*;
    use image::*;
    use kernel::*;
    use launch::*;
    use loader::*;
    use memory::*;
    use pipe::*;
    use platform::*;
    use program::*;
    use queue::*;
    use sampler::*;
    use sharing::*;
    use sub_device::*;
    use svm::*;
    use timer::*;
    cl_headers::dispatch_table!()
};
