//! `clGetKernelInfo`, `clGetKernelArgInfo`, `clGetKernelWorkGroupInfo`, and the sub-group queries. The node
//! answers the latter, because they take input.

use std::sync::Arc;

use cl_headers::types::*;

use super::entry_point;
use crate::api::handle;
use crate::api::info::{Answered, Info, list};
use crate::error::{ClResult, Status, fail, require};
use crate::stub::kernel::OnDevice;
use crate::stub::{Device, Kernel, Origin};

#[entry_point]
pub(crate) fn clGetKernelInfo(
    kernel: cl_kernel,
    param_name: cl_kernel_info,
    info: Info,
) -> ClResult {
    let stub = handle::resolve::<Kernel>(kernel)?;
    answer(kernel, &stub, param_name, info).map(drop)
}

#[entry_point]
pub(crate) fn clGetKernelArgInfo(
    kernel: cl_kernel,
    arg_index: cl_uint,
    param_name: cl_kernel_arg_info,
    info: Info,
) -> ClResult {
    let kernel = handle::resolve::<Kernel>(kernel)?;
    answer_arg(&kernel, arg_index, param_name, info).map(drop)
}

#[entry_point]
pub(crate) fn clGetKernelWorkGroupInfo(
    kernel: cl_kernel,
    device: cl_device_id,
    param_name: cl_kernel_work_group_info,
    info: Info,
) -> ClResult {
    let kernel = handle::resolve::<Kernel>(kernel)?;
    let device = if device.is_null() {
        None
    } else {
        Some(handle::resolve::<Device>(device)?)
    };
    answer_work_group(&kernel, device.as_deref(), param_name, info).map(drop)
}

/// Answers a query of sub-groups.
///
/// # Safety
/// `input` is NULL or has as many readable bytes as its size says.
unsafe fn sub_group_info(
    (kernel, device): (cl_kernel, cl_device_id),
    name: cl_kernel_sub_group_info,
    (input_size, input): (size_t, *const c_void),
    info: Info,
) -> ClResult {
    let kernel = handle::resolve::<Kernel>(kernel)?;
    let device = if device.is_null() {
        None
    } else {
        Some(handle::resolve::<Device>(device)?)
    };
    // SAFETY: the caller upholds this function's contract.
    let input = unsafe { sub_group_input(name, input_size, input) };
    answer_sub_group(&kernel, device.as_deref(), name, input, info).map(drop)
}

#[entry_point]
pub(crate) fn clGetKernelSubGroupInfo(
    kernel: cl_kernel,
    device: cl_device_id,
    param_name: cl_kernel_sub_group_info,
    input_value_size: size_t,
    input_value: *const c_void,
    info: Info,
) -> ClResult {
    let input = (input_value_size, input_value);
    // SAFETY: the specification demands that the input is NULL or has as many readable bytes as its
    // size says.
    unsafe { sub_group_info((kernel, device), param_name, input, info) }
}

#[entry_point]
pub(crate) fn clGetKernelSubGroupInfoKHR(
    in_kernel: cl_kernel,
    in_device: cl_device_id,
    param_name: cl_kernel_sub_group_info,
    input_value_size: size_t,
    input_value: *const c_void,
    info: Info,
) -> ClResult {
    let input = (input_value_size, input_value);
    // SAFETY: as for clGetKernelSubGroupInfo.
    unsafe { sub_group_info((in_kernel, in_device), param_name, input, info) }
}

fn answer(
    raw: cl_kernel,
    kernel: &Arc<Kernel>,
    name: cl_kernel_info,
    info: Info,
) -> ClResult<Answered> {
    let signature = kernel.signature();
    match name {
        CL_KERNEL_FUNCTION_NAME => info.give_str(&signature.name),
        CL_KERNEL_NUM_ARGS => info.give(signature.args.len() as cl_uint),
        CL_KERNEL_REFERENCE_COUNT => info.give(handle::reference_count::<Kernel>(raw)?),
        CL_KERNEL_CONTEXT => info.give(handle::raw_of(kernel.program().context())),
        CL_KERNEL_PROGRAM => info.give(handle::raw_of(kernel.program())),
        CL_KERNEL_ATTRIBUTES => info.give_str(&signature.attributes),
        // clGetKernelInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}

fn answer_arg(
    kernel: &Kernel,
    index: cl_uint,
    name: cl_kernel_arg_info,
    info: Info,
) -> ClResult<Answered> {
    let Some(arg) = kernel.signature().args.get(index as usize) else {
        // clGetKernelArgInfo: CL_INVALID_ARG_INDEX when the kernel has no such argument.
        return fail(CL_INVALID_ARG_INDEX);
    };
    let known = CL_KERNEL_ARG_ADDRESS_QUALIFIER..=CL_KERNEL_ARG_NAME;
    // clGetKernelArgInfo: CL_INVALID_VALUE when param_name is not a known query.
    require(known.contains(&name), CL_INVALID_VALUE)?;
    let Some(told) = &arg.info else {
        // clGetKernelArgInfo: CL_KERNEL_ARG_INFO_NOT_AVAILABLE when the program has no argument
        // information.
        return fail(CL_KERNEL_ARG_INFO_NOT_AVAILABLE);
    };
    match name {
        CL_KERNEL_ARG_ADDRESS_QUALIFIER => info.give(told.address_qualifier),
        CL_KERNEL_ARG_ACCESS_QUALIFIER => info.give(told.access_qualifier),
        CL_KERNEL_ARG_TYPE_NAME => info.give_str(&told.type_name),
        CL_KERNEL_ARG_TYPE_QUALIFIER => info.give(told.type_qualifier),
        _ => info.give_str(&told.name),
    }
}

/// The extension with the next two queries.
const REQUIRED_SUB_GROUP_SIZE: &str = "cl_intel_required_subgroup_size";
/// `clGetKernelWorkGroupInfo`: bytes of memory for spilled registers.
const CL_KERNEL_SPILL_MEM_SIZE_INTEL: cl_kernel_work_group_info = 0x4109;
/// `clGetKernelSubGroupInfo`: the sub-group size that the kernel's source demands, or 0.
const CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL: cl_kernel_sub_group_info = 0x410A;

/// The kernel on the device of a query. NULL means the only device that the kernel was built for.
fn on_device<'a>(kernel: &'a Kernel, device: Option<&Device>) -> ClResult<&'a OnDevice> {
    let signature = kernel.signature();
    let found = match device {
        Some(device) => signature.on_device(device),
        None => {
            let mut built = signature.devices.iter().filter(|on| !on.is_inherited);
            built.next().filter(|_| built.next().is_none())
        }
    };
    // clGetKernelWorkGroupInfo: CL_INVALID_DEVICE when the device is not the kernel's, or is NULL and the
    // kernel has several.
    found.ok_or(Status(CL_INVALID_DEVICE))
}

fn answer_work_group(
    kernel: &Kernel,
    device: Option<&Device>,
    name: cl_kernel_work_group_info,
    info: Info,
) -> ClResult<Answered> {
    let on = on_device(kernel, device)?;
    match name {
        CL_KERNEL_WORK_GROUP_SIZE => info.give(on.work_group_size as size_t),
        CL_KERNEL_COMPILE_WORK_GROUP_SIZE => {
            info.give(on.compile_work_group_size.map(|size| size as size_t))
        }
        CL_KERNEL_LOCAL_MEM_SIZE => info.give(kernel.local_mem_size(on)?),
        CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => {
            info.give(on.preferred_work_group_size_multiple as size_t)
        }
        CL_KERNEL_PRIVATE_MEM_SIZE => info.give(on.private_mem_size),
        // clGetKernelWorkGroupInfo: CL_INVALID_VALUE for CL_KERNEL_GLOBAL_WORK_SIZE when neither kernel is
        // built-in nor device custom.
        CL_KERNEL_GLOBAL_WORK_SIZE => {
            let built_in = matches!(kernel.program().origin(), Origin::BuiltInKernels);
            let custom = device
                .is_some_and(|device| device.number(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CUSTOM != 0);
            require(built_in || custom, CL_INVALID_VALUE)?;
            info.give_bytes(&kernel.ask_work_group(on, name)?)
        }
        CL_KERNEL_SPILL_MEM_SIZE_INTEL if on.device.has_extension(REQUIRED_SUB_GROUP_SIZE) => {
            info.give_bytes(&kernel.ask_work_group(on, name)?)
        }
        // clGetKernelWorkGroupInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}

/// Size of a `size_t` in bytes.
const SIZE: usize = size_of::<size_t>();

/// Reads the input of a sub-group query.
///
/// # Errors
/// `CL_INVALID_VALUE` for an unknown name, and for input that does not suit the name.
///
/// # Safety
/// `input` is NULL or points to `size` readable bytes.
unsafe fn sub_group_input(
    name: cl_kernel_sub_group_info,
    size: size_t,
    input: *const c_void,
) -> ClResult<Vec<u64>> {
    let counts = match name {
        CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE | CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE => 1..=3,
        CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT => 1..=1,
        CL_KERNEL_MAX_NUM_SUB_GROUPS
        | CL_KERNEL_COMPILE_NUM_SUB_GROUPS
        | CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL => 0..=0,
        // clGetKernelSubGroupInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => return fail(CL_INVALID_VALUE),
    };
    if *counts.end() == 0 {
        return Ok(Vec::new());
    }
    let count = size / SIZE;
    let fits = size.is_multiple_of(SIZE) && counts.contains(&count) && !input.is_null();
    // clGetKernelSubGroupInfo: CL_INVALID_VALUE when the input is NULL or has a size that the query does
    // not take.
    require(fits, CL_INVALID_VALUE)?;
    // SAFETY: not NULL, with as many bytes. Byte arrays need no alignment.
    let bytes = unsafe { list(input.cast::<[u8; SIZE]>(), count) };
    Ok(bytes
        .iter()
        .map(|size| usize::from_ne_bytes(*size) as u64)
        .collect())
}

fn answer_sub_group(
    kernel: &Kernel,
    device: Option<&Device>,
    name: cl_kernel_sub_group_info,
    input: ClResult<Vec<u64>>,
    info: Info,
) -> ClResult<Answered> {
    let on = on_device(kernel, device)?;
    // The extensions of OpenCL 2.0 and earlier have no query of a device for this, so their names decide
    // too.
    let has = on.device.number(CL_DEVICE_MAX_NUM_SUB_GROUPS) > 0
        || on.device.has_extension("cl_khr_subgroups")
        || on.device.has_extension("cl_intel_subgroups");
    // clGetKernelSubGroupInfo: CL_INVALID_OPERATION when the device does not support sub-groups.
    require(has, CL_INVALID_OPERATION)?;
    let known = name != CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL
        || on.device.has_extension(REQUIRED_SUB_GROUP_SIZE);
    // clGetKernelSubGroupInfo: CL_INVALID_VALUE when param_name is not a known query.
    require(known, CL_INVALID_VALUE)?;
    // The errors of the input come after those of the device.
    let input = input?;
    let (place, room) = info.room();
    // The node answers with as many dimensions as the application's buffer has room for.
    let room = match name {
        CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT if !place.is_null() => (room / SIZE).clamp(1, 3),
        CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT => 3,
        _ => 1,
    };
    info.give_bytes(&kernel.ask_sub_group(on, name, input, room as u32)?)
}
