//! `clGetKernelInfo`, `clGetKernelArgInfo`, `clGetKernelWorkGroupInfo`, and the sub-group queries, which
//! take input and so are answered by the node.

use std::sync::Arc;

use cl_headers::types::*;

use super::entry_points;
use crate::api::handle;
use crate::api::info::{Answered, Info, list};
use crate::error::{ClResult, Status, fail, require};
use crate::stub::kernel::OnDevice;
use crate::stub::{Device, Kernel, Origin};

entry_points! {
    fn clGetKernelInfo(
        kernel: cl_kernel, param_name: cl_kernel_info, param_value_size: size_t,
        param_value: *mut c_void, param_value_size_ret: *mut size_t,
    ) {
        let stub = handle::resolve::<Kernel>(kernel)?;
        // SAFETY: the specification's contract of the three arguments.
        let info = unsafe { Info::new(param_value_size, param_value, param_value_size_ret) };
        answer(kernel, &stub, param_name, info).map(drop)
    }

    fn clGetKernelArgInfo(
        kernel: cl_kernel, arg_index: cl_uint, param_name: cl_kernel_arg_info, param_value_size: size_t,
        param_value: *mut c_void, param_value_size_ret: *mut size_t,
    ) {
        let kernel = handle::resolve::<Kernel>(kernel)?;
        // SAFETY: the specification's contract of the three arguments.
        let info = unsafe { Info::new(param_value_size, param_value, param_value_size_ret) };
        answer_arg(&kernel, arg_index, param_name, info).map(drop)
    }

    fn clGetKernelWorkGroupInfo(
        kernel: cl_kernel, device: cl_device_id, param_name: cl_kernel_work_group_info,
        param_value_size: size_t, param_value: *mut c_void, param_value_size_ret: *mut size_t,
    ) {
        let kernel = handle::resolve::<Kernel>(kernel)?;
        let device = if device.is_null() { None } else { Some(handle::resolve::<Device>(device)?) };
        // SAFETY: the specification's contract of the three arguments.
        let info = unsafe { Info::new(param_value_size, param_value, param_value_size_ret) };
        answer_work_group(&kernel, device.as_deref(), param_name, info).map(drop)
    }

    fn clGetKernelSubGroupInfo(
        kernel: cl_kernel, device: cl_device_id, param_name: cl_kernel_sub_group_info,
        input_value_size: size_t, input_value: *const c_void, param_value_size: size_t,
        param_value: *mut c_void, param_value_size_ret: *mut size_t,
    ) {
        let kernel = handle::resolve::<Kernel>(kernel)?;
        let device = if device.is_null() { None } else { Some(handle::resolve::<Device>(device)?) };
        // SAFETY: the specification's contract of the input: NULL or as many bytes.
        let input = unsafe { sub_group_input(param_name, input_value_size, input_value) };
        // SAFETY: the specification's contract of the three arguments.
        let info = unsafe { Info::new(param_value_size, param_value, param_value_size_ret) };
        answer_sub_group(&kernel, device.as_deref(), param_name, input, info).map(drop)
    }

    fn clGetKernelSubGroupInfoKHR(
        in_kernel: cl_kernel, in_device: cl_device_id, param_name: cl_kernel_sub_group_info,
        input_value_size: size_t, input_value: *const c_void, param_value_size: size_t,
        param_value: *mut c_void, param_value_size_ret: *mut size_t,
    ) {
        // SAFETY: the same contract.
        let code = unsafe {
            clGetKernelSubGroupInfo(
                in_kernel, in_device, param_name, input_value_size, input_value, param_value_size,
                param_value, param_value_size_ret,
            )
        };
        require(code == CL_SUCCESS, code)
    }
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
        return fail(CL_INVALID_ARG_INDEX);
    };
    let known = CL_KERNEL_ARG_ADDRESS_QUALIFIER..=CL_KERNEL_ARG_NAME;
    require(known.contains(&name), CL_INVALID_VALUE)?;
    let Some(told) = &arg.info else {
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

/// The kernel on the device asked about; NULL means the only one that it was built for.
fn on_device<'a>(kernel: &'a Kernel, device: Option<&Device>) -> ClResult<&'a OnDevice> {
    let signature = kernel.signature();
    let found = match device {
        Some(device) => signature.on_device(device),
        None => {
            let mut built = signature.devices.iter().filter(|on| !on.is_inherited);
            built.next().filter(|_| built.next().is_none())
        }
    };
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
        // Of built-in kernels and custom devices only.
        CL_KERNEL_GLOBAL_WORK_SIZE => {
            let built_in = matches!(kernel.program().origin(), Origin::BuiltInKernels);
            let custom = device
                .is_some_and(|device| device.number(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CUSTOM != 0);
            require(built_in || custom, CL_INVALID_VALUE)?;
            info.give_bytes(&kernel.ask_work_group(on, name)?)
        }
        _ => fail(CL_INVALID_VALUE),
    }
}

/// Bytes of a size.
const SIZE: usize = size_of::<size_t>();

/// The sizes that a question about sub-groups is asked with.
///
/// # Errors
/// `CL_INVALID_VALUE` for a name that is not known, and for other input than it takes.
///
/// # Safety
/// `input` is NULL or leads to `size` readable bytes.
unsafe fn sub_group_input(
    name: cl_kernel_sub_group_info,
    size: size_t,
    input: *const c_void,
) -> ClResult<Vec<u64>> {
    let counts = match name {
        CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE | CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE => 1..=3,
        CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT => 1..=1,
        CL_KERNEL_MAX_NUM_SUB_GROUPS | CL_KERNEL_COMPILE_NUM_SUB_GROUPS => 0..=0,
        _ => return fail(CL_INVALID_VALUE),
    };
    if *counts.end() == 0 {
        return Ok(Vec::new());
    }
    let count = size / SIZE;
    let fits = size.is_multiple_of(SIZE) && counts.contains(&count) && !input.is_null();
    require(fits, CL_INVALID_VALUE)?;
    // SAFETY: not NULL, with as many bytes; of any alignment.
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
    // The extension of OpenCL 2.0 has no such query.
    let has = on.device.number(CL_DEVICE_MAX_NUM_SUB_GROUPS) > 0
        || on.device.has_extension("cl_khr_subgroups");
    require(has, CL_INVALID_OPERATION)?;
    let input = input?;
    let (place, room) = info.room();
    // As many dimensions as there is room for.
    let room = match name {
        CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT if !place.is_null() => (room / SIZE).clamp(1, 3),
        CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT => 3,
        _ => 1,
    };
    info.give_bytes(&kernel.ask_sub_group(on, name, input, room as u32)?)
}
