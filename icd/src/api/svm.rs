//! Shared virtual memory: an absent optional feature of OpenCL 3.0 (`CL_DEVICE_SVM_CAPABILITIES` is 0).
//!
//! Allocation answers NULL, freeing does nothing, enqueues answer `CL_INVALID_OPERATION`.

use cl_headers::types::*;

use super::entry::entry_points;
use super::handle;
use crate::error::fail;
use crate::stub::{Context, Queue};

entry_points! {
    fn clSVMAlloc(context: cl_context, _flags: cl_svm_mem_flags, _size: size_t, _alignment: cl_uint; null) -> *mut c_void {
        handle::resolve::<Context>(context)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clEnqueueSVMFree(command_queue: cl_command_queue, _num_svm_pointers: cl_uint, _svm_pointers: *mut *mut c_void, _pfn_free_func: SvmFreeCallback, _user_data: *mut c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clEnqueueSVMMemcpy(command_queue: cl_command_queue, _blocking_copy: cl_bool, _dst_ptr: *mut c_void, _src_ptr: *const c_void, _size: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clEnqueueSVMMemFill(command_queue: cl_command_queue, _svm_ptr: *mut c_void, _pattern: *const c_void, _pattern_size: size_t, _size: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clEnqueueSVMMap(command_queue: cl_command_queue, _blocking_map: cl_bool, _flags: cl_map_flags, _svm_ptr: *mut c_void, _size: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clEnqueueSVMUnmap(command_queue: cl_command_queue, _svm_ptr: *mut c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clEnqueueSVMMigrateMem(command_queue: cl_command_queue, _num_svm_pointers: cl_uint, _svm_pointers: *mut *const c_void, _sizes: *const size_t, _flags: cl_mem_migration_flags, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_OPERATION)
    }
}

/// There is nothing to free.
#[allow(non_snake_case, reason = "OpenCL's name")]
pub(crate) unsafe extern "C" fn clSVMFree(_context: cl_context, _svm_pointer: *mut c_void) {}
