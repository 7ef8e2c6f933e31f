//! Tests of on-device queues: kernels enqueue into them if the node's driver has them, and the host never does.

use std::ptr::{null, null_mut};

use parking_lot::RwLock;

use crate::frames::nodes::{Drivers, context_over, devices, start};
use crate::frames::opencl::*;
use crate::frames::programs::{built, kernel, launch, launch_after, set};

const NODES: [Drivers; 3] = [
    Drivers::Fake("[[device]]\nname = \"New\"\ndevice_queues = 2"),
    Drivers::Fake("[[device]]\nname = \"Old\"\nversion = \"2.0\"\ndevice_queues = 1"),
    Drivers::Fake("[[device]]\nname = \"Poor\""),
];
const NEW: usize = 0;
const OLD: usize = 1;
const POOR: usize = 2;

/// The preferred size of the fake driver's devices.
const PREFERRED: cl_uint = 16 << 10;
const LARGEST: cl_uint = 256 << 10;
/// Duration of the commands that a kernel enqueues there.
const CHILD_NS: u64 = 5000;

const ON_DEVICE: u64 = CL_QUEUE_ON_DEVICE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
const DEFAULT: u64 = ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;

const SOURCE: &str = "
kernel void fake_enqueue_add(queue_t queue, global uint *target, uint value) {}
kernel void fake_queue_sizes(queue_t queue, global uint *target) {}
";

/// The tests of this module share a session. While a command of it waits, the node keeps released device queues, so the
/// device may have no room for another one.
static SESSION: RwLock<()> = RwLock::new(());

fn over(places: &[usize]) -> Fixture {
    start(&NODES);
    let all = devices(NODES.len());
    let chosen: Vec<_> = places.iter().map(|place| all[*place]).collect();
    let context = context_over(&chosen);
    Fixture {
        device: chosen[0],
        context,
        queue: make!(clCreateCommandQueue(
            context,
            chosen[0],
            CL_QUEUE_PROFILING_ENABLE
        ))
        .expect("a queue"),
    }
}

fn queue_of(
    cl: &Fixture,
    device: cl_device_id,
    bits: u64,
    size: Option<cl_uint>,
) -> Result<cl_command_queue, cl_int> {
    let mut list = vec![u64::from(CL_QUEUE_PROPERTIES), bits];
    if let Some(size) = size {
        list.extend([u64::from(CL_QUEUE_SIZE), u64::from(size)]);
    }
    list.push(0);
    make!(clCreateCommandQueueWithProperties(
        cl.context,
        device,
        list.as_ptr()
    ))
}

fn queue(cl: &Fixture, bits: u64, size: Option<cl_uint>) -> Result<cl_command_queue, cl_int> {
    queue_of(cl, cl.device, bits, size)
}

fn info<T: Copy + Default>(
    queue: cl_command_queue,
    name: cl_command_queue_info,
) -> Result<T, cl_int> {
    let mut value = T::default();
    let code = code!(clGetCommandQueueInfo(
        queue,
        name,
        size_of::<T>(),
        (&raw mut value).cast(),
        null_mut()
    ));
    if code == CL_SUCCESS {
        Ok(value)
    } else {
        Err(code)
    }
}

/// Returns the default queue of a queue's device, as a number.
fn default_of(queue: cl_command_queue) -> usize {
    info(queue, CL_QUEUE_DEVICE_DEFAULT).expect("an answer")
}

fn release(queues: &[cl_command_queue]) {
    for queue in queues {
        ok!(clReleaseCommandQueue(*queue));
    }
}

/// The sizes of a queue and of the default queue, as a kernel sees them.
struct Look {
    program: cl_program,
    kernel: cl_kernel,
    target: cl_mem,
}

impl Look {
    fn new(cl: &Fixture) -> Look {
        let program = built(cl, SOURCE, "");
        let (kernel, target) = (kernel(program, "fake_queue_sizes"), cl.buffer(0, 8));
        assert_eq!(set(kernel, 1, &target), CL_SUCCESS);
        Look {
            program,
            kernel,
            target,
        }
    }

    fn result(&self, cl: &Fixture) -> [u32; 2] {
        let bytes = cl.read(self.target, 0, 8);
        [0, 4].map(|at| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
    }

    fn at(&self, cl: &Fixture, queue: cl_command_queue) -> [u32; 2] {
        assert_eq!(set(self.kernel, 0, &queue), CL_SUCCESS);
        assert_eq!(launch(cl.queue, self.kernel, 1), CL_SUCCESS);
        self.result(cl)
    }

    fn release(self) {
        ok!(clReleaseKernel(self.kernel));
        ok!(clReleaseMemObject(self.target));
        ok!(clReleaseProgram(self.program));
    }
}

#[test]
fn kernels_enqueue_into_the_queue_that_they_are_given() {
    own_process!();
    let _together = SESSION.read();
    for place in [NEW, OLD] {
        let cl = over(&[place]);
        let on_device = queue(&cl, ON_DEVICE, None).expect("a device queue");
        let program = built(&cl, SOURCE, "");
        let (add, target) = (kernel(program, "fake_enqueue_add"), cl.buffer_of(&[1; 16]));
        assert_eq!(set(add, 0, &on_device), CL_SUCCESS);
        assert_eq!(set(add, 1, &target), CL_SUCCESS);
        assert_eq!(set(add, 2, &2_u32), CL_SUCCESS);
        let (items, mut event) = (4, null_mut());
        ok!(clEnqueueNDRangeKernel(
            cl.queue,
            add,
            1,
            null(),
            &raw const items,
            null(),
            0,
            null(),
            &raw mut event
        ));
        assert_eq!(cl.read(target, 0, 16), [3, 1, 1, 1].repeat(4));
        // The command is complete when the commands that it enqueued are complete.
        let time = |name| {
            let mut ns = 0_u64;
            let at = (&raw mut ns).cast();
            ok!(clGetEventProfilingInfo(event, name, 8, at, null_mut()));
            ns
        };
        let [end, complete] = [CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_COMPLETE].map(time);
        assert_eq!(complete - end, CHILD_NS);
        ok!(clReleaseEvent(event));
        ok!(clReleaseKernel(add));
        ok!(clReleaseMemObject(target));
        ok!(clReleaseProgram(program));
        release(&[on_device]);
    }
}

#[test]
fn a_device_has_one_default_queue_in_a_context() {
    own_process!();
    let _together = SESSION.read();
    let cl = over(&[NEW]);
    let look = Look::new(&cl);
    let plain = queue(&cl, ON_DEVICE, Some(100)).expect("a device queue");
    assert_eq!(default_of(cl.queue), 0);
    assert_eq!(look.at(&cl, plain), [100, 0]);
    let default = queue(&cl, DEFAULT, Some(200)).expect("a device queue");
    assert_eq!(default_of(plain), default.addr());
    assert_eq!(look.at(&cl, plain), [100, 200]);
    // Another creation returns the same queue.
    assert_eq!(queue(&cl, DEFAULT, Some(300)), Ok(default));
    assert_eq!(info::<cl_uint>(default, CL_QUEUE_REFERENCE_COUNT), Ok(2));
    assert_eq!(info::<cl_uint>(default, CL_QUEUE_SIZE), Ok(200));
    ok!(clSetDefaultDeviceCommandQueue(cl.context, cl.device, plain));
    assert_eq!(default_of(cl.queue), plain.addr());
    assert_eq!(look.at(&cl, default), [200, 100]);
    ok!(clRetainCommandQueue(plain));
    release(&[default, default, plain]);
    assert_eq!(default_of(cl.queue), plain.addr());
    assert_eq!(look.at(&cl, plain), [100, 100]);
    let another = over(&[NEW]);
    assert_eq!(default_of(another.queue), 0);
    look.release();
    release(&[plain]);
    assert_eq!(default_of(cl.queue), 0);
}

#[test]
fn a_default_queue_stays_for_launches_that_are_held_back() {
    own_process!();
    let _together = SESSION.read();
    let cl = over(&[NEW]);
    let look = Look::new(&cl);
    let plain = queue(&cl, ON_DEVICE, Some(100)).expect("a device queue");
    let default = queue(&cl, DEFAULT, Some(200)).expect("a device queue");
    assert_eq!(set(look.kernel, 0, &plain), CL_SUCCESS);
    let gate = cl.user_event();
    let code = launch_after(cl.queue, look.kernel, 1, &[gate]);
    assert_eq!(code, CL_SUCCESS);
    release(&[plain, default]);
    assert_eq!(default_of(cl.queue), 0);
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    assert_eq!(look.result(&cl), [100, 200]);
    ok!(clReleaseEvent(gate));
    look.release();
    // The queues are released on the node.
    let again = [None, None].map(|size| queue(&cl, ON_DEVICE, size).expect("a device queue"));
    let look = Look::new(&cl);
    assert_eq!(look.at(&cl, again[1]), [PREFERRED, 0]);
    look.release();
    release(&again);
}

#[test]
fn a_device_queue_tells_what_it_was_made_with() {
    own_process!();
    let _together = SESSION.read();
    let cl = over(&[NEW]);
    let on_device = queue(&cl, ON_DEVICE, None).expect("a device queue");
    assert_eq!(info::<cl_uint>(on_device, CL_QUEUE_SIZE), Ok(PREFERRED));
    assert_eq!(info::<u64>(on_device, CL_QUEUE_PROPERTIES), Ok(ON_DEVICE));
    let list: [u64; 3] = info(on_device, CL_QUEUE_PROPERTIES_ARRAY).expect("an answer");
    assert_eq!(list, [u64::from(CL_QUEUE_PROPERTIES), ON_DEVICE, 0]);
    let context: usize = info(on_device, CL_QUEUE_CONTEXT).expect("an answer");
    let device: usize = info(on_device, CL_QUEUE_DEVICE).expect("an answer");
    assert_eq!((context, device), (cl.context.addr(), cl.device.addr()));
    assert_eq!(info::<u64>(on_device, 0x9999), Err(CL_INVALID_VALUE));
    assert_eq!(
        info::<cl_uint>(cl.queue, CL_QUEUE_SIZE),
        Err(CL_INVALID_COMMAND_QUEUE)
    );
    release(&[on_device]);
    assert_eq!(
        info::<cl_uint>(on_device, CL_QUEUE_SIZE),
        Err(CL_INVALID_COMMAND_QUEUE)
    );
}

#[test]
fn the_host_enqueues_nothing_into_a_device_queue() {
    own_process!();
    let _together = SESSION.read();
    let cl = over(&[NEW]);
    let look = Look::new(&cl);
    let on_device = queue(&cl, ON_DEVICE, None).expect("a device queue");
    assert_eq!(set(look.kernel, 0, &on_device), CL_SUCCESS);
    let mut place = [0u8; 4];
    let at = place.as_mut_ptr().cast();
    let codes = [
        launch(on_device, look.kernel, 1),
        code!(clFlush(on_device)),
        code!(clFinish(on_device)),
        code!(clEnqueueMarkerWithWaitList(
            on_device,
            0,
            null(),
            null_mut()
        )),
        code!(clEnqueueReadBuffer(
            on_device,
            look.target,
            CL_TRUE,
            0,
            4,
            at,
            0,
            null(),
            null_mut()
        )),
    ];
    assert_eq!(codes, [CL_INVALID_COMMAND_QUEUE; 5]);
    assert_eq!(set(look.kernel, 0, &cl.queue), CL_INVALID_DEVICE_QUEUE);
    assert_eq!(set(look.kernel, 0, &0_usize), CL_INVALID_DEVICE_QUEUE);
    assert_eq!(set(look.kernel, 0, &0_u32), CL_INVALID_ARG_SIZE);
    let unset = code!(clSetKernelArg(look.kernel, 0, 8, null()));
    assert_eq!(unset, CL_INVALID_ARG_VALUE);
    let other = over(&[NEW]);
    let foreign = queue(&other, ON_DEVICE, None).expect("a device queue");
    assert_eq!(set(look.kernel, 0, &foreign), CL_INVALID_DEVICE_QUEUE);
    let set_default =
        |context, device, queue| code!(clSetDefaultDeviceCommandQueue(context, device, queue));
    for (queue, code) in [
        (foreign, CL_INVALID_COMMAND_QUEUE),
        (cl.queue, CL_INVALID_COMMAND_QUEUE),
        (null_mut(), CL_INVALID_COMMAND_QUEUE),
        (on_device, CL_SUCCESS),
    ] {
        assert_eq!(set_default(cl.context, cl.device, queue), code);
    }
    let null_context = set_default(null_mut(), cl.device, on_device);
    assert_eq!(null_context, CL_INVALID_CONTEXT);
    let poor = devices(NODES.len())[POOR];
    assert_eq!(set_default(cl.context, poor, on_device), CL_INVALID_DEVICE);
    look.release();
    release(&[on_device, foreign]);
}

#[test]
fn what_a_device_cannot_have_is_refused() {
    own_process!();
    let _alone = SESSION.write();
    let cl = over(&[NEW]);
    let in_order = queue(&cl, CL_QUEUE_ON_DEVICE, None);
    assert_eq!(in_order, Err(CL_INVALID_VALUE));
    let host_default = queue(&cl, CL_QUEUE_ON_DEVICE_DEFAULT, None);
    assert_eq!(host_default, Err(CL_INVALID_VALUE));
    let too_large = queue(&cl, ON_DEVICE, Some(LARGEST + 1));
    assert_eq!(too_large, Err(CL_INVALID_QUEUE_PROPERTIES));
    assert_eq!(queue(&cl, 0, Some(1)), Err(CL_INVALID_QUEUE_PROPERTIES));
    // The device has room for the reported number of queues, and for another one after a release.
    let both = [Some(LARGEST), None].map(|size| queue(&cl, ON_DEVICE, size).expect("a queue"));
    assert_eq!(queue(&cl, ON_DEVICE, None), Err(CL_OUT_OF_RESOURCES));
    release(&both[..1]);
    let third = queue(&cl, ON_DEVICE | CL_QUEUE_PROFILING_ENABLE, None).expect("a queue");
    let look = Look::new(&cl);
    assert_eq!(look.at(&cl, third), [PREFERRED, 0]);
    look.release();
    release(&[both[1], third]);

    let poor = over(&[POOR]);
    assert_eq!(
        queue(&poor, ON_DEVICE, None),
        Err(CL_INVALID_QUEUE_PROPERTIES)
    );
    let set_default =
        |of: &Fixture, queue| code!(clSetDefaultDeviceCommandQueue(of.context, of.device, queue));
    assert_eq!(set_default(&poor, poor.queue), CL_INVALID_OPERATION);
    // A device of OpenCL 2.1.
    let old = over(&[OLD]);
    let on_device = queue(&old, ON_DEVICE, None).expect("a device queue");
    assert_eq!(set_default(&old, on_device), CL_INVALID_OPERATION);
    release(&[on_device]);
}

#[test]
fn among_nodes_each_device_has_its_own_queues() {
    own_process!();
    let _together = SESSION.read();
    let cl = over(&[NEW, OLD, POOR]);
    let all = devices(NODES.len());
    let there = make!(clCreateCommandQueue(cl.context, all[OLD], 0)).expect("a queue");
    let look = Look::new(&cl);
    let default = |place: usize, size| queue_of(&cl, all[place], DEFAULT, Some(size));
    let new = default(NEW, 100).expect("a device queue");
    let old = default(OLD, 200).expect("a device queue");
    assert_eq!(
        (default_of(cl.queue), default_of(there)),
        (new.addr(), old.addr())
    );
    assert_eq!(look.at(&cl, new), [100, 100]);
    // The kernel's argument is the queue of the other node's device.
    assert_eq!(launch(there, look.kernel, 1), CL_INVALID_KERNEL_ARGS);
    assert_eq!(set(look.kernel, 0, &old), CL_SUCCESS);
    assert_eq!(launch(cl.queue, look.kernel, 1), CL_INVALID_KERNEL_ARGS);
    assert_eq!(launch(there, look.kernel, 1), CL_SUCCESS);
    ok!(clFinish(there));
    assert_eq!(look.result(&cl), [200, 200]);
    look.release();
    release(&[new, old, there]);
}
