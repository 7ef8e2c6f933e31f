//! Tests of freeing SVM: at once and in a queue, before and after commands that use it.

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::allocations::*;
use crate::frames::opencl::*;
use crate::frames::programs::*;

static FREED: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

unsafe extern "C" fn on_free(
    queue: cl_command_queue,
    count: cl_uint,
    pointers: *mut *mut c_void,
    user: *mut c_void,
) {
    // SAFETY: as many pointers as said.
    let pointers = unsafe { std::slice::from_raw_parts(pointers, count as usize) };
    let mut context: cl_context = null_mut();
    ok!(clGetCommandQueueInfo(
        queue,
        CL_QUEUE_CONTEXT,
        8,
        (&raw mut context).cast(),
        null_mut()
    ));
    for (at, freed) in pointers.iter().zip(&FREED) {
        freed.store(at.addr(), Ordering::Release);
        code!(clSVMFree(context, *at));
    }
    FREED[2].store(user.addr(), Ordering::Release);
}

#[test]
fn an_enqueued_free_comes_in_its_turn_and_its_callback_before_its_end() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "put");
    let mut pointers = [allocate(&cl, 64), allocate(&cl, 3 << 20)];
    let [one, other] = pointers;
    let held = cl.user_event();
    assert_eq!(set_pointer(kernel, 0, one), CL_SUCCESS);
    assert_eq!(set(kernel, 1, &7i32), CL_SUCCESS);
    assert_eq!(launch_after(cl.queue, kernel, 16, &[held]), CL_SUCCESS);
    let mut first = vec![0u8; 64];
    ok!(clEnqueueSVMMemcpy(
        cl.queue,
        CL_FALSE,
        first.as_mut_ptr().cast(),
        one.cast(),
        64,
        0,
        null(),
        null_mut()
    ));
    let mut event = null_mut();
    ok!(clEnqueueSVMFree(
        cl.queue,
        2,
        pointers.as_mut_ptr().cast(),
        Some(on_free),
        0x77 as *mut c_void,
        0,
        null(),
        &raw mut event
    ));
    // The list belongs to the application again.
    pointers.fill(null_mut());
    assert_eq!(command_of(event), CL_COMMAND_SVM_FREE);
    assert!(status_of(event) > CL_COMPLETE);
    assert_eq!(FREED[2].load(Ordering::Acquire), 0);
    ok!(clSetUserEventStatus(held, CL_COMPLETE));
    ok!(clWaitForEvents(1, &raw const event));
    let freed = FREED.each_ref().map(|of| of.load(Ordering::Acquire));
    assert_eq!(freed, [one.addr(), other.addr(), 0x77]);
    assert_eq!(first, [7, 0, 0, 0].repeat(16));
    assert_eq!(set_pointer(kernel, 0, one), CL_INVALID_ARG_VALUE);
    for event in [event, held] {
        ok!(clReleaseEvent(event));
    }
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn an_enqueued_free_without_a_callback_frees_and_one_that_fails_does_not() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "put");
    let mut at = allocate(&cl, 64);
    let list = (&raw mut at).cast::<*mut c_void>();
    let free_after = |wait: &[cl_event]| {
        let events = if wait.is_empty() {
            null()
        } else {
            wait.as_ptr()
        };
        let count = wait.len() as cl_uint;
        code!(clEnqueueSVMFree(
            cl.queue,
            1,
            list,
            None,
            null_mut(),
            count,
            events,
            null_mut()
        ))
    };
    let failing = cl.user_event();
    assert_eq!(free_after(&[failing]), CL_SUCCESS);
    ok!(clSetUserEventStatus(failing, -5));
    code!(clFinish(cl.queue));
    assert_eq!(set_pointer(kernel, 0, at), CL_SUCCESS);
    assert_eq!(free_after(&[]), CL_SUCCESS);
    cl.finish();
    assert_eq!(set_pointer(kernel, 0, at), CL_INVALID_ARG_VALUE);
    let refused = [(0, list), (1, null_mut())];
    for (count, list) in refused {
        let code = code!(clEnqueueSVMFree(
            cl.queue,
            count,
            list,
            None,
            null_mut(),
            0,
            null(),
            null_mut()
        ));
        assert_eq!(code, CL_INVALID_VALUE);
    }
    ok!(clReleaseEvent(failing));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn what_is_freed_early_stays_until_its_commands_have_ended() {
    let cl = Fixture::new();
    let size = 3 << 20;
    for round in 0..8 {
        let at = allocate(&cl, size);
        let bytes = pattern(round, size);
        // A blocking copy of few bytes may return before the node has them.
        assert_eq!(copy(&cl, at, bytes.as_ptr(), 4096), CL_SUCCESS);
        free(&cl, at);
        let again = allocate(&cl, size);
        assert_eq!(copy(&cl, again, bytes.as_ptr(), size), CL_SUCCESS);
        assert!(fetch(&cl, again, size) == bytes);
        free(&cl, again);
    }
}
