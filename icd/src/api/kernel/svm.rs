//! `clSetKernelArgSVMPointer`, `clSetKernelExecInfo`.

use std::sync::{Arc, Weak};

use causeway_proto::command::ArgKind;
use causeway_proto::limits::MAX_LIST;
use cl_headers::types::*;

use crate::api::entry::entry_points;
use crate::api::handle;
use crate::api::info::list;
use crate::error::{ClResult, Status, fail, require};
use crate::stub::{ArgValue, Buffer, Kernel, svm};

/// Reads and checks an argument that is an address.
///
/// # Errors
/// As `clSetKernelArgSVMPointer`.
pub(in crate::api) fn svm_pointer(
    kernel: &Kernel,
    index: cl_uint,
    address: usize,
) -> ClResult<ArgValue> {
    let context = kernel.program().context();
    // "CL_INVALID_OPERATION if no devices in the context associated with kernel support SVM."
    require(context.has_svm(), CL_INVALID_OPERATION)?;
    let index = index as usize;
    let Some(arg) = kernel.signature().args.get(index) else {
        return fail(CL_INVALID_ARG_INDEX);
    };
    // "CL_INVALID_ARG_VALUE if arg_value specified is not a valid value."
    let is_pointer = matches!(arg.kind, ArgKind::Memory | ArgKind::Unspecified);
    require(is_pointer, CL_INVALID_ARG_VALUE)?;
    if address == 0 {
        return Ok(ArgValue::Memory(None));
    }
    let found = svm::find(context, address);
    let (memory, offset) = found.ok_or(Status(CL_INVALID_ARG_VALUE))?;
    Ok(ArgValue::Svm(Arc::downgrade(&memory), offset))
}

/// Reads and checks execution info: the shared virtual memory that is reached by pointers in memory, if it says that.
///
/// # Errors
/// As `clSetKernelExecInfo`.
///
/// # Safety
/// `value` is NULL or leads to `size` readable bytes.
pub(in crate::api) unsafe fn exec_info(
    kernel: &Kernel,
    name: cl_kernel_exec_info,
    size: size_t,
    value: *const c_void,
) -> ClResult<Option<Vec<Weak<Buffer>>>> {
    let context = kernel.program().context();
    // "CL_INVALID_OPERATION if no devices in the context associated with kernel support SVM."
    require(context.has_svm(), CL_INVALID_OPERATION)?;
    match name {
        CL_KERNEL_EXEC_INFO_SVM_PTRS => {
            let width = size_of::<*const c_void>();
            require(size.is_multiple_of(width), CL_INVALID_VALUE)?;
            require(size == 0 || !value.is_null(), CL_INVALID_VALUE)?;
            // SAFETY: the caller's promise.
            let pointers = unsafe { list(value.cast::<*const c_void>(), size / width) };
            let found = pointers.iter().map(|pointer| {
                let found = svm::find(context, pointer.expose_provenance());
                Ok(found.ok_or(Status(CL_INVALID_VALUE))?.0)
            });
            let mut found = found.collect::<ClResult<Vec<_>>>()?;
            found.sort_unstable_by_key(|memory| memory.id());
            found.dedup_by_key(|memory| memory.id());
            // More than one message tells.
            require(found.len() <= MAX_LIST, CL_OUT_OF_HOST_MEMORY)?;
            Ok(Some(found.iter().map(Arc::downgrade).collect()))
        }
        CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM => {
            require(
                size == size_of::<cl_bool>() && !value.is_null(),
                CL_INVALID_VALUE,
            )?;
            // SAFETY: not NULL, and of as many bytes, which need not be aligned.
            let wanted = unsafe { value.cast::<cl_bool>().read_unaligned() };
            // "CL_INVALID_OPERATION if param_name is CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM and param_value is
            // CL_TRUE but no devices in context associated with kernel support fine-grain system SVM allocations."
            require(wanted == CL_FALSE, CL_INVALID_OPERATION)?;
            Ok(None)
        }
        _ => fail(CL_INVALID_VALUE),
    }
}

entry_points! {
    fn clSetKernelArgSVMPointer(kernel: cl_kernel, arg_index: cl_uint, arg_value: *const c_void) {
        let kernel = handle::resolve::<Kernel>(kernel)?;
        let value = svm_pointer(&kernel, arg_index, arg_value.expose_provenance())?;
        kernel.set_arg(arg_index as usize, value);
        Ok(())
    }

    fn clSetKernelExecInfo(
        kernel: cl_kernel, param_name: cl_kernel_exec_info, param_value_size: size_t,
        param_value: *const c_void,
    ) {
        let kernel = handle::resolve::<Kernel>(kernel)?;
        // SAFETY: the specification's contract: NULL or `param_value_size` readable bytes.
        let reaches = unsafe { exec_info(&kernel, param_name, param_value_size, param_value)? };
        if let Some(memory) = reaches {
            kernel.set_reaches(memory);
        }
        Ok(())
    }
}
