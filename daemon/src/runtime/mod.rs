//! Safe objects for the node's own OpenCL. This is the only module that uses the C library.
//!
//! The files from the ground up. Each names files of its own line or of earlier lines (`LAYERS` in `.ci/dependencies.py`):
//!
//! - `library`: libOpenCL's functions, looked up at run time; `info`: info answers as bytes; `ptx`: the names of kernels in
//!   NVIDIA's binaries; `driver_files`: the files that compilers read; `nvml`: NVIDIA's management library;
//!   [`clock`]: the node's host clock, and the conversion of device times to it; [`stdout`]: the output of kernels'
//!   `printf`; [`block`]: reusable host memory; `finisher`: `clFinish` where polling is late;
//! - [`node`]: platforms and root devices, in the order of their indices on the wire; `identity`: everything that
//!   influences a device's compiler, for the build cache;
//! - [`context`]; `compute_mode`: how many processes may have a context on a device;
//! - [`buffer`], `svm`, [`kernel`], [`sampler`], [`device_queue`];
//! - [`image`], `pipe` (a kind of buffer), [`program`]; [`pinned`]: staging memory;
//! - [`probe`](mod@probe): the inventory; [`sub_device`]; [`host`]: host memory that the driver reads or writes
//!   asynchronously;
//! - [`event`]: events keep the host memory of their commands, and have listeners;
//! - [`queue`]: command queues and all commands; [`watch`]: polling for the ends of commands;
//! - [`listen`]: registration for the ends of commands.
//!
//! Each of OpenCL's objects owns one native reference and releases it when dropped.
//!
//! A status that a function returns as an error is the driver's, unless the function's comment says more.
//!
//! This module has no wire format, no ids and no sessions. Invariant: every handle that is passed to the
//! driver comes from one of these objects. All memory that is passed to the driver outlives the driver's
//! use of it.

pub mod block;
pub mod buffer;
pub mod clock;
pub(crate) mod compute_mode;
pub mod context;
pub mod device_queue;
mod driver_files;
pub mod event;
mod finisher;
pub mod host;
mod identity;
pub mod image;
mod info;
pub mod kernel;
mod library;
pub mod listen;
pub mod node;
pub(crate) mod nvml;
pub mod pinned;
mod pipe;
pub mod probe;
pub mod program;
mod ptx;
pub mod queue;
pub mod sampler;
pub mod stdout;
pub mod sub_device;
mod svm;
pub mod watch;

pub use probe::{Probed, probe};

/// OpenCL constants for callers that query these objects.
pub mod names {
    pub use opencl_sys::{
        CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_ADDRESS_CONSTANT,
        CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ADDRESS_LOCAL, CL_KERNEL_ARG_ADDRESS_PRIVATE,
        CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_NAME, CL_KERNEL_ARG_TYPE_NAME,
        CL_KERNEL_ARG_TYPE_PIPE, CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
        CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
        CL_KERNEL_PRIVATE_MEM_SIZE, CL_KERNEL_WORK_GROUP_SIZE, CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
    };
}
