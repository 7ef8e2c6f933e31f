//! The C ABI: every entry point, its argument checks and its error codes.
//!
//! There is one file per OpenCL noun. A body checks its arguments in one fixed order: handles, same
//! context, object state, values, wait list, access flags. Then it converts the C arguments to Rust and
//! calls the stub. `unsafe` is allowed only here and in the transport's access to raw host memory.
//!
//! Invariant: exactly one function fills every slot of the dispatch table. The functions of features that
//! no device has return the specification's code for a missing feature.
#![allow(unsafe_code)]

mod command_buffer;
mod context;
mod device;
mod entry;
mod event;
mod handle;
mod head;
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

/// The dispatch table to which every handle points.
#[must_use]
pub fn dispatch() -> &'static Dispatch {
    &DISPATCH
}

static DISPATCH: Dispatch = {
    // Every module below is imported whole: an entry point that two modules define does not compile.
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
