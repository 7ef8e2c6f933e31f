//! Kernels: creation, reference counts, arguments. Queries are in `info` and `suggested`.

mod arg;
mod info;
mod suggested;
mod svm;

use cl_headers::types::*;

use super::entry::entry_point;
use super::handle;
use super::info::c_str;
use crate::error::{ClResult, fail, require};
use crate::stub::{Kernel, Program};

pub(super) use arg::*;
pub(super) use info::*;
pub(super) use suggested::*;
pub(super) use svm::*;

#[entry_point]
pub(crate) fn clCreateKernel(
    program: cl_program,
    kernel_name: *const c_char,
) -> ClResult<cl_kernel> {
    let program = handle::resolve::<Program>(program)?;
    // clCreateKernel: CL_INVALID_VALUE when kernel_name is NULL.
    require(!kernel_name.is_null(), CL_INVALID_VALUE)?;
    // clCreateKernel: CL_INVALID_KERNEL_NAME when the program has no such kernel, and so when the name
    // is not UTF-8.
    // SAFETY: not NULL, so by the specification a C string.
    let name = unsafe { c_str(kernel_name, CL_INVALID_KERNEL_NAME)? };
    Ok(handle::publish(Kernel::new(&program, name)?))
}

#[entry_point]
pub(crate) fn clCreateKernelsInProgram(
    program: cl_program,
    num_kernels: cl_uint,
    kernels: *mut cl_kernel,
    num_kernels_ret: *mut cl_uint,
) -> ClResult {
    let program = handle::resolve::<Program>(program)?;
    let names = program.creatable_kernels()?;
    if !kernels.is_null() {
        // clCreateKernelsInProgram: CL_INVALID_VALUE when kernels is not NULL and num_kernels is less
        // than the number of kernels.
        require(num_kernels as usize >= names.len(), CL_INVALID_VALUE)?;
        // All kernels are created before the first handle, so that a failure leaves the application
        // none.
        let made = names
            .iter()
            .map(|name| Kernel::new(&program, name))
            .collect::<ClResult<Vec<_>>>()?;
        for (place, kernel) in made.into_iter().enumerate() {
            // SAFETY: there is room for `num_kernels` handles, and that is at least the number of
            // names.
            unsafe { kernels.add(place).write(handle::publish(kernel)) };
        }
    }
    if !num_kernels_ret.is_null() {
        // SAFETY: not NULL, so the specification demands room for a number.
        unsafe { num_kernels_ret.write(names.len() as cl_uint) };
    }
    Ok(())
}

#[entry_point]
pub(crate) fn clCloneKernel(source_kernel: cl_kernel) -> ClResult<cl_kernel> {
    let kernel = handle::resolve::<Kernel>(source_kernel)?;
    Ok(handle::publish(kernel.duplicate()?))
}

#[entry_point]
pub(crate) fn clRetainKernel(kernel: cl_kernel) -> ClResult {
    handle::retain::<Kernel>(kernel)
}

#[entry_point]
pub(crate) fn clReleaseKernel(kernel: cl_kernel) -> ClResult {
    handle::release::<Kernel>(kernel)
}

#[entry_point]
pub(crate) fn clSetKernelArg(
    kernel: cl_kernel,
    arg_index: cl_uint,
    arg_size: size_t,
    arg_value: *const c_void,
) -> ClResult {
    let kernel = handle::resolve::<Kernel>(kernel)?;
    let index = arg_index as usize;
    let Some(arg) = kernel.signature().args.get(index) else {
        // clSetKernelArg: CL_INVALID_ARG_INDEX when the kernel has no such argument.
        return fail(CL_INVALID_ARG_INDEX);
    };
    // SAFETY: the specification demands NULL or `arg_size` readable bytes.
    let value = unsafe { read_arg(kernel.program().context(), arg, arg_size, arg_value)? };
    kernel.set_arg(index, value);
    Ok(())
}
