//! Tests a program's release callbacks: they exist for devices of OpenCL 2.2, whose programs may have destructors.

use std::ptr::null_mut;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::frames::nodes::{Drivers, context_over, devices, start};
use crate::frames::opencl::*;
use crate::frames::programs;

const NODES: [Drivers; 2] = [
    Drivers::Fake("[[device]]\nname = \"New\""),
    Drivers::Fake("[[device]]\nname = \"Old\"\nversion = \"2.2\""),
];
const SOURCE: &str = "kernel void nothing(global uint *x) {}";

/// The channel to which a callback reports, and its name.
type Said = (Sender<(usize, u32)>, u32);

extern "C" fn on_release(program: cl_program, said: *mut c_void) {
    // SAFETY: each callback is registered with a box of its own, and called once.
    let (sender, name) = *unsafe { Box::from_raw(said.cast::<Said>()) };
    let _ = sender.send((program.addr(), name));
}

fn over(device: cl_device_id) -> Fixture {
    let context = context_over(&[device]);
    Fixture {
        device,
        context,
        queue: make!(clCreateCommandQueue(context, device, 0)).expect("a queue"),
    }
}

#[test]
fn callbacks_come_when_the_program_is_gone_the_last_first() {
    own_process!();
    start(&NODES);
    let cl = over(devices(2)[1]);
    let program = programs::built(&cl, SOURCE, "");
    let nobody = code!(clSetProgramReleaseCallback(program, None, null_mut()));
    assert_eq!(nobody, CL_INVALID_VALUE);
    let (sender, said) = channel();
    for name in [1, 2] {
        let to: Box<Said> = Box::new((sender.clone(), name));
        ok!(clSetProgramReleaseCallback(
            program,
            Some(on_release),
            Box::into_raw(to).cast()
        ));
    }
    let kernel = programs::kernel(program, "nothing");
    ok!(clReleaseProgram(program));
    assert!(said.try_recv().is_err(), "a kernel still has it");
    ok!(clReleaseKernel(kernel));
    let patience = Duration::from_secs(60);
    let next = || said.recv_timeout(patience).expect("a callback");
    assert_eq!([next(), next()], [(program.addr(), 2), (program.addr(), 1)]);
}

#[test]
fn elsewhere_there_are_no_destructors() {
    own_process!();
    start(&NODES);
    let cl = over(devices(2)[0]);
    let program = programs::built(&cl, SOURCE, "");
    let code = code!(clSetProgramReleaseCallback(
        program,
        Some(on_release),
        null_mut()
    ));
    assert_eq!(code, CL_INVALID_OPERATION);
    ok!(clReleaseProgram(program));
}
