//! The node's own OpenCL, as safe objects. The only module that knows the C library.
//!
//! - [`node`]: platforms and root devices, in the order that names them on the wire; [`sub_device`]: parts of these;
//! - [`context`], [`queue`], [`device_queue`], [`buffer`], [`image`], [`sampler`], [`program`], [`kernel`], [`event`]:
//!   OpenCL's objects, each owning one native reference that its drop releases; pipes are among the buffers;
//! - [`host`], [`pinned`], [`block`]: host memory that the driver reads or writes behind our back;
//! - [`clock`]: the node's host clock, and each device's by it;
//! - [`probe`](mod@probe): the inventory; [`stdout`]: where kernels' `printf` goes;
//! - `identity`: what decides how a device compiles, for the build cache;
//! - `watch`: the ends of commands, where the driver tells them late;
//! - `library`: libOpenCL's functions, found at run time; `info`: info answers as bytes.
//!
//! What it is not: it knows no wire, no id and no session. Invariant: every handle given to the driver
//! comes from one of these objects, and every memory given to it outlives the driver's use.

pub mod block;
pub mod buffer;
pub mod clock;
pub mod context;
pub mod device_queue;
mod driver_files;
pub mod event;
pub mod host;
mod identity;
pub mod image;
mod info;
pub mod kernel;
mod library;
pub mod node;
pub mod pinned;
mod pipe;
pub mod probe;
pub mod program;
pub mod queue;
pub mod sampler;
pub mod stdout;
pub mod sub_device;
mod svm;
pub mod watch;

pub use probe::{Probed, probe};

/// OpenCL's names of questions and answers, for those who ask through these objects.
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
