//! Shared virtual memory, which the driver does not have.
//!
//! Invariant: every function here answers as OpenCL 3.0 requires of a device without the feature. See its
//! appendix on optional features.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::error::{ClResult, fail};
use crate::kernel::Kernel;
use crate::object::Object;
use crate::queue::Queue;

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;

    /// # Safety
    /// The application passes the handle.
    unsafe fn no_svm(queue: cl_command_queue) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Queue>::borrow(queue) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clSVMAlloc(
        _context: cl_context,
        _flags: cl_svm_mem_flags,
        _size: size_t,
        _alignment: cl_uint,
    ) -> ClResult<*mut c_void> {
        Ok(std::ptr::null_mut())
    }

    pub(crate) unsafe fn clSVMFree(_context: cl_context, _pointer: *mut c_void) -> ClResult {
        Ok(())
    }

    pub(crate) unsafe fn clEnqueueSVMFree(
        queue: cl_command_queue,
        _num: cl_uint,
        _pointers: *mut *mut c_void,
        _callback: SvmFreeCallback,
        _user_data: *mut c_void,
        _count: cl_uint,
        _list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        unsafe { no_svm(queue) }
    }

    pub(crate) unsafe fn clEnqueueSVMMemcpy(
        queue: cl_command_queue,
        _blocking: cl_bool,
        _to: *mut c_void,
        _from: *const c_void,
        _size: size_t,
        _count: cl_uint,
        _list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        unsafe { no_svm(queue) }
    }

    pub(crate) unsafe fn clEnqueueSVMMemFill(
        queue: cl_command_queue,
        _pointer: *mut c_void,
        _pattern: *const c_void,
        _pattern_size: size_t,
        _size: size_t,
        _count: cl_uint,
        _list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        unsafe { no_svm(queue) }
    }

    pub(crate) unsafe fn clEnqueueSVMMap(
        queue: cl_command_queue,
        _blocking: cl_bool,
        _flags: cl_map_flags,
        _pointer: *mut c_void,
        _size: size_t,
        _count: cl_uint,
        _list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        unsafe { no_svm(queue) }
    }

    pub(crate) unsafe fn clEnqueueSVMUnmap(
        queue: cl_command_queue,
        _pointer: *mut c_void,
        _count: cl_uint,
        _list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        unsafe { no_svm(queue) }
    }

    pub(crate) unsafe fn clEnqueueSVMMigrateMem(
        queue: cl_command_queue,
        _num: cl_uint,
        _pointers: *mut *const c_void,
        _sizes: *const size_t,
        _flags: cl_mem_migration_flags,
        _count: cl_uint,
        _list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        unsafe { no_svm(queue) }
    }

    pub(crate) unsafe fn clSetKernelArgSVMPointer(
        kernel: cl_kernel,
        _index: cl_uint,
        _value: *const c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Kernel>::borrow(kernel) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clSetKernelExecInfo(
        kernel: cl_kernel,
        _name: cl_kernel_exec_info,
        _size: size_t,
        _value: *const c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Kernel>::borrow(kernel) }?;
        fail(CL_INVALID_OPERATION)
    }
}
