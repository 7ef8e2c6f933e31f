//! `clSetKernelArgSVMPointer`, `clSetKernelExecInfo`.

use std::sync::{Arc, Weak};

use causeway_proto::command::ArgKind;
use causeway_proto::limits::MAX_LIST;
use cl_headers::types::*;

use crate::api::entry::entry_point;
use crate::api::handle;
use crate::api::info::list;
use crate::error::{ClResult, Status, fail, require};
use crate::stub::{ArgValue, Buffer, Kernel, memory::svm};

/// Reads and checks an argument that is an address of shared virtual memory.
///
/// # Errors
/// As `clSetKernelArgSVMPointer`.
pub(in crate::api) fn svm_pointer(
    kernel: &Kernel,
    index: cl_uint,
    address: usize,
) -> ClResult<ArgValue> {
    let context = kernel.program().context();
    // clSetKernelArgSVMPointer: CL_INVALID_OPERATION when no device of the kernel's context supports SVM.
    require(context.has_svm(), CL_INVALID_OPERATION)?;
    let index = index as usize;
    let Some(arg) = kernel.signature().args.get(index) else {
        // clSetKernelArgSVMPointer: CL_INVALID_ARG_INDEX when the kernel has no such argument.
        return fail(CL_INVALID_ARG_INDEX);
    };
    // clSetKernelArgSVMPointer: CL_INVALID_ARG_VALUE when the argument is not a pointer.
    let is_pointer = matches!(arg.kind, ArgKind::Memory | ArgKind::Unspecified);
    require(is_pointer, CL_INVALID_ARG_VALUE)?;
    if address == 0 {
        return Ok(ArgValue::Memory(None));
    }
    let found = svm::find(context, address);
    // clSetKernelArgSVMPointer: CL_INVALID_ARG_VALUE when the address is in no SVM allocation of the
    // context.
    let (memory, offset) = found.ok_or(Status(CL_INVALID_ARG_VALUE))?;
    Ok(ArgValue::Svm(Arc::downgrade(&memory), offset))
}

/// Reads and checks execution info. Returns the shared virtual memory that kernels reach through pointers
/// in memory, or `None` if the info sets nothing of that kind.
///
/// # Errors
/// As `clSetKernelExecInfo`.
///
/// # Safety
/// `value` is NULL or points to `size` readable bytes.
pub(in crate::api) unsafe fn exec_info(
    kernel: &Kernel,
    name: cl_kernel_exec_info,
    size: size_t,
    value: *const c_void,
) -> ClResult<Option<Vec<Weak<Buffer>>>> {
    let context = kernel.program().context();
    // clSetKernelExecInfo: CL_INVALID_OPERATION when no device of the kernel's context supports SVM.
    require(context.has_svm(), CL_INVALID_OPERATION)?;
    match name {
        CL_KERNEL_EXEC_INFO_SVM_PTRS => {
            let width = size_of::<*const c_void>();
            // clSetKernelExecInfo: CL_INVALID_VALUE when the size is not a whole number of pointers.
            require(size.is_multiple_of(width), CL_INVALID_VALUE)?;
            // clSetKernelExecInfo: CL_INVALID_VALUE when param_value is NULL.
            require(size == 0 || !value.is_null(), CL_INVALID_VALUE)?;
            // SAFETY: the caller upholds this function's contract.
            let pointers = unsafe { list(value.cast::<*const c_void>(), size / width) };
            let found = pointers.iter().map(|pointer| {
                let found = svm::find(context, pointer.expose_provenance());
                // clSetKernelExecInfo: CL_INVALID_VALUE when a pointer is in no SVM allocation of the
                // context.
                Ok(found.ok_or(Status(CL_INVALID_VALUE))?.0)
            });
            let mut found = found.collect::<ClResult<Vec<_>>>()?;
            found.sort_unstable_by_key(|memory| memory.id());
            found.dedup_by_key(|memory| memory.id());
            // This is no rule of the specification: one message to the worker cannot carry more.
            require(found.len() <= MAX_LIST, CL_OUT_OF_HOST_MEMORY)?;
            Ok(Some(found.iter().map(Arc::downgrade).collect()))
        }
        CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM => {
            // clSetKernelExecInfo: CL_INVALID_VALUE when the size is not that of a cl_bool or param_value
            // is NULL.
            require(
                size == size_of::<cl_bool>() && !value.is_null(),
                CL_INVALID_VALUE,
            )?;
            // SAFETY: not NULL, with as many bytes. The read needs no alignment.
            let wanted = unsafe { value.cast::<cl_bool>().read_unaligned() };
            // clSetKernelExecInfo: CL_INVALID_OPERATION when the program wants fine-grain system SVM; no
            // device offers it.
            require(wanted == CL_FALSE, CL_INVALID_OPERATION)?;
            Ok(None)
        }
        // clSetKernelExecInfo: CL_INVALID_VALUE when param_name is not a known name.
        _ => fail(CL_INVALID_VALUE),
    }
}

#[entry_point]
pub(crate) fn clSetKernelArgSVMPointer(
    kernel: cl_kernel,
    arg_index: cl_uint,
    arg_value: *const c_void,
) -> ClResult {
    let kernel = handle::resolve::<Kernel>(kernel)?;
    let value = svm_pointer(&kernel, arg_index, arg_value.expose_provenance())?;
    kernel.set_arg(arg_index as usize, value);
    Ok(())
}

#[entry_point]
pub(crate) fn clSetKernelExecInfo(
    kernel: cl_kernel,
    param_name: cl_kernel_exec_info,
    param_value_size: size_t,
    param_value: *const c_void,
) -> ClResult {
    let kernel = handle::resolve::<Kernel>(kernel)?;
    // SAFETY: the specification demands NULL or `param_value_size` readable bytes.
    let reaches = unsafe { exec_info(&kernel, param_name, param_value_size, param_value)? };
    if let Some(memory) = reaches {
        kernel.set_reaches(memory);
    }
    Ok(())
}
