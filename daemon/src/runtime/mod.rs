//! Safe objects for the node's own OpenCL. This is the only module that uses the C library.
//!
//! - [`node`]: platforms and root devices, in the order of their indices on the wire; [`sub_device`]:
//!   sub-devices;
//! - [`context`], [`queue`], [`device_queue`], [`buffer`], [`image`], [`sampler`], [`program`], [`kernel`],
//!   [`event`]: OpenCL's objects. Each owns one native reference and releases it when dropped. Pipes are a
//!   kind of buffer;
//! - [`host`], [`pinned`], [`block`]: host memory that the driver reads or writes asynchronously;
//! - [`clock`]: the node's host clock, and the conversion of device times to it;
//! - [`probe`](mod@probe): the inventory; [`stdout`]: the output of kernels' `printf`;
//! - `identity`: everything that influences a device's compiler, for the build cache;
//! - `ptx`: the names of kernels in NVIDIA's binaries;
//! - `compute_mode`, `nvml`: how many processes may have a context on a device;
//! - [`listen`](mod@listen): registration for the ends of commands; `watch`: polling for them, for drivers with late
//!   callbacks; `finisher`: `clFinish` where polling is late, too;
//! - `library`: libOpenCL's functions, looked up at run time; `info`: info answers as bytes.
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
