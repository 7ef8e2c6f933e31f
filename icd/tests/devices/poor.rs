//! Tests a device without a compiler and images, with in-order queues only: each missing feature is refused with its
//! own code.

use std::ptr::{null, null_mut};

use crate::frames::servers::*;

#[test]
fn what_a_device_lacks_is_refused_by_its_name() {
    own_process!();
    let _daemon = {
        let daemon = Daemon::start("[[device]]\ncompiler = false\nout_of_order = false");
        configure(&daemon.address.to_string());
        daemon
    };
    let device = devices()[0];
    let context = context(device).expect("a context");

    // ---- programs
    let source = c"kernel void nothing(void) {}".as_ptr();
    let program = make!(clCreateProgramWithSource(
        context,
        1,
        (&raw const source).cast_mut(),
        null()
    ));
    let program = program.expect("a program: only its build takes a compiler");
    let options = c"".as_ptr();
    let built = code!(clBuildProgram(
        program,
        0,
        null(),
        options,
        None,
        null_mut()
    ));
    assert_eq!(built, CL_COMPILER_NOT_AVAILABLE);
    let compiled = code!(clCompileProgram(
        program,
        0,
        null(),
        options,
        0,
        null(),
        null_mut(),
        None,
        null_mut()
    ));
    assert_eq!(compiled, CL_COMPILER_NOT_AVAILABLE);
    let linked = make!(clLinkProgram(
        context,
        0,
        null(),
        options,
        1,
        &raw const program,
        None,
        null_mut()
    ));
    assert_eq!(linked, Err(CL_LINKER_NOT_AVAILABLE));
    ok!(clReleaseProgram(program));

    // ---- samplers and images
    let clamp = CL_ADDRESS_CLAMP;
    let sampler = make!(clCreateSampler(context, 0, clamp, CL_FILTER_NEAREST));
    assert_eq!(sampler, Err(CL_INVALID_OPERATION));
    let sampler = make!(clCreateSamplerWithProperties(context, null()));
    assert_eq!(sampler, Err(CL_INVALID_OPERATION));

    // ---- queues
    let out_of_order = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    let queue = make!(clCreateCommandQueue(context, device, out_of_order));
    assert_eq!(queue, Err(CL_INVALID_QUEUE_PROPERTIES));
    ok!(clReleaseContext(context));
}
