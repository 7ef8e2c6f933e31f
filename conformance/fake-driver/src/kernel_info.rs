//! Info queries of kernels.
//!
//! Invariant: argument info exists only with `-cl-kernel-arg-info`, as in strict drivers.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::arg;
use crate::device::{Device, MAX_GROUP};
use crate::error::{ClResult, Code, ensure, fail};
use crate::info::{Info, reply};
use crate::kernel::{Kernel, local_memory};
use crate::object::Object;
use crate::program::Build;

/// Number of work-items in a sub-group.
const SUB_GROUP: usize = 32;

/// Bytes of registers that a kernel spills, on devices that tell it.
const SPILLED: u64 = 64;
/// Queries of `cl_intel_required_subgroup_size`.
const CL_KERNEL_SPILL_MEM_SIZE_INTEL: cl_kernel_work_group_info = 0x4109;
const CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL: cl_kernel_sub_group_info = 0x410A;

fn requires_sub_group_sizes(device: &Device) -> bool {
    let mut names = device.settings.extensions.iter();
    names.any(|name| name == "cl_intel_required_subgroup_size")
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;

    pub(crate) unsafe fn clGetKernelInfo(
        kernel: cl_kernel,
        name: cl_kernel_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let kernel = unsafe { Object::<Kernel>::borrow(kernel) }?;
        let signature = &kernel.signature;
        let answer = match name {
            CL_KERNEL_FUNCTION_NAME => Info::text(&signature.name),
            CL_KERNEL_NUM_ARGS => Info::uint(signature.arguments.len() as cl_uint),
            CL_KERNEL_REFERENCE_COUNT => Info::uint(kernel.references()),
            CL_KERNEL_CONTEXT => Info::handle(kernel.program.context.handle()),
            CL_KERNEL_PROGRAM => Info::handle(kernel.program.handle()),
            CL_KERNEL_ATTRIBUTES => Info::text(&signature.attributes),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }

    pub(crate) unsafe fn clGetKernelArgInfo(
        kernel: cl_kernel,
        index: cl_uint,
        name: cl_kernel_arg_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let kernel = unsafe { Object::<Kernel>::borrow(kernel) }?;
        let argument = kernel.signature.arguments.get(index as usize);
        let argument = argument.ok_or(Code(CL_INVALID_ARG_INDEX))?;
        let told = {
            let builds = kernel.program.builds.lock();
            let first = builds.iter().find_map(Build::executable);
            first.is_some_and(|object| object.argument_info)
        };
        ensure(told, CL_KERNEL_ARG_INFO_NOT_AVAILABLE)?;
        let answer = match name {
            CL_KERNEL_ARG_ADDRESS_QUALIFIER => Info::uint(argument.address),
            CL_KERNEL_ARG_ACCESS_QUALIFIER => Info::uint(argument.access),
            CL_KERNEL_ARG_TYPE_NAME => Info::text(&argument.type_name),
            CL_KERNEL_ARG_TYPE_QUALIFIER => Info::ulong(argument.qualifiers),
            CL_KERNEL_ARG_NAME => Info::text(&argument.name),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }

    pub(crate) unsafe fn clGetKernelWorkGroupInfo(
        kernel: cl_kernel,
        device: cl_device_id,
        name: cl_kernel_work_group_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let kernel = unsafe { Object::<Kernel>::borrow(kernel) }?;
        let program = &kernel.program;
        let device = if device.is_null() {
            ensure(program.devices.len() == 1, CL_INVALID_DEVICE)?;
            &program.devices[0]
        } else {
            // SAFETY: the application passes a handle that it got from this driver, or NULL.
            let device = unsafe { Object::<Device>::borrow(device) }?;
            ensure(kernel.built_for(device), CL_INVALID_DEVICE)?;
            device
        };
        let required = kernel.signature.required;
        let answer = match name {
            CL_KERNEL_WORK_GROUP_SIZE if required[0] > 0 => Info::size(required.iter().product()),
            CL_KERNEL_WORK_GROUP_SIZE => Info::size(MAX_GROUP),
            CL_KERNEL_COMPILE_WORK_GROUP_SIZE => Info::sizes(required),
            CL_KERNEL_LOCAL_MEM_SIZE => Info::ulong(local_memory(&kernel.values.lock())),
            CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => Info::size(32),
            CL_KERNEL_PRIVATE_MEM_SIZE => Info::ulong(0),
            CL_KERNEL_SPILL_MEM_SIZE_INTEL if requires_sub_group_sizes(device) => {
                Info::ulong(SPILLED)
            }
            // CL_KERNEL_GLOBAL_WORK_SIZE is for custom devices and built-in kernels with a limit.
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }

    pub(crate) unsafe fn clGetKernelSubGroupInfo(
        kernel: cl_kernel,
        device: cl_device_id,
        name: cl_kernel_sub_group_info,
        input_size: size_t,
        input: *const c_void,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let kernel = unsafe { Object::<Kernel>::borrow(kernel) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let device = unsafe { Object::<Device>::borrow(device) }?;
        ensure(kernel.built_for(device), CL_INVALID_DEVICE)?;
        let most = device.settings.sub_groups as usize;
        ensure(most > 0, CL_INVALID_OPERATION)?;
        // SAFETY: the application passes as many sizes as it says.
        let input = unsafe { arg::list(input_size / size_of::<size_t>(), input.cast::<size_t>()) };
        let items: usize = input.iter().product();
        let answer = match name {
            CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE => Info::size(items.min(SUB_GROUP)),
            CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE => Info::size(items.div_ceil(SUB_GROUP)),
            CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT => {
                let dimensions = size / size_of::<size_t>();
                Info::sizes([items * SUB_GROUP, 1, 1].into_iter().take(dimensions))
            }
            CL_KERNEL_MAX_NUM_SUB_GROUPS => Info::size(most),
            CL_KERNEL_COMPILE_NUM_SUB_GROUPS => Info::size(0),
            CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL if requires_sub_group_sizes(device) => {
                Info::size(SUB_GROUP)
            }
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }
}
