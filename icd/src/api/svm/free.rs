//! `clSVMFree`, `clEnqueueSVMFree`.

use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::super::handle;
use super::super::info::list;
use super::svm_queue;
use crate::error::{ClResult, require};
use crate::stub::{Context, memory::svm};

/// Frees an allocation at once. Any other address is ignored. An error appears only in the log, because C
/// gets no result.
#[entry_point(no_code)]
pub(crate) fn clSVMFree(context: cl_context, svm_pointer: *mut c_void) -> ClResult {
    let context = handle::resolve::<Context>(context)?;
    svm::free(&context, svm_pointer.expose_provenance());
    Ok(())
}

#[entry_point]
pub(crate) fn clEnqueueSVMFree(
    command_queue: cl_command_queue,
    num_svm_pointers: cl_uint,
    svm_pointers: *mut *mut c_void,
    pfn_free_func: SvmFreeCallback,
    user_data: *mut c_void,
    events: Events,
) -> ClResult {
    let queue = svm_queue(command_queue)?;
    // clEnqueueSVMFree: CL_INVALID_VALUE when num_svm_pointers is 0 and svm_pointers is not NULL, or
    // the reverse.
    require(
        (num_svm_pointers == 0) == svm_pointers.is_null(),
        CL_INVALID_VALUE,
    )?;
    // SAFETY: NULL or `num_svm_pointers` pointers. They are copied here, because the application may
    // reuse the list.
    let pointers = unsafe { list(svm_pointers, num_svm_pointers as usize) };
    let addresses: Vec<usize> = pointers.iter().map(|of| of.expose_provenance()).collect();
    let wait = events.wait_list(queue.context())?;
    let found = addresses
        .iter()
        .filter_map(|of| svm::find(queue.context(), *of));
    let hold = found.map(|(buffer, _)| buffer).collect();
    let callback = pfn_free_func.map(|callback| -> Box<dyn FnOnce() + Send> {
        let of_queue = command_queue.expose_provenance();
        let (addresses, user_data) = (addresses.clone(), user_data.expose_provenance());
        Box::new(move || {
            let mut pointers: Vec<*mut c_void> = addresses
                .into_iter()
                .map(std::ptr::with_exposed_provenance_mut)
                .collect();
            // SAFETY: the application gave this callback and this data for exactly this call, from any
            // thread. The list has as many pointers as the count says.
            unsafe {
                callback(
                    std::ptr::with_exposed_provenance_mut(of_queue),
                    num_svm_pointers,
                    pointers.as_mut_ptr(),
                    std::ptr::with_exposed_provenance_mut(user_data),
                )
            };
        })
    });
    let stub = svm::free_in_order(&queue, addresses, callback, wait, hold)?;
    events.give(stub);
    Ok(())
}
