//! Five nodes for tests of programs and kernels, on top of `nodes`: controllable fake drivers, and the machine's own
//! OpenCL (PoCL).

use std::ffi::CStr;
use std::path::Path;
use std::ptr::null_mut;

use parking_lot::{Mutex, MutexGuard};

use crate::frames::nodes::*;
use crate::frames::opencl::*;
pub use crate::frames::programs::{build_for, program_in};

/// Makes tests take turns, because files control the nodes' drivers.
pub static TURN: Mutex<()> = Mutex::new(());

pub const NODES: [Drivers; 5] = [
    Drivers::Fake("[[device]]\nname = \"Alpha\""),
    Drivers::Fake(
        "[[device]]\nname = \"Beta\"\ncount = 2\n[[device]]\nname = \"Other\"\nplatform = 1",
    ),
    // Tests kill workers of this node, and the daemon of the next one.
    Drivers::Fake("[[device]]\nname = \"Gamma\"\nfp64 = false"),
    Drivers::Fake("[[device]]\nname = \"Delta\""),
    Drivers::System,
];

pub struct Stage {
    pub nodes: &'static [Node],
    pub alpha: cl_device_id,
    pub betas: [cl_device_id; 2],
    pub other: cl_device_id,
    pub gamma: cl_device_id,
    pub delta: cl_device_id,
    pub pocl: cl_device_id,
    _turn: MutexGuard<'static, ()>,
}

pub fn stage() -> Stage {
    let turn = TURN.lock();
    let nodes = start(&NODES);
    let [alpha, beta, beta2, other, gamma, delta, pocl] = devices(7)[..] else {
        unreachable!("as many were asked for");
    };
    Stage {
        nodes,
        alpha,
        betas: [beta, beta2],
        other,
        gamma,
        delta,
        pocl,
        _turn: turn,
    }
}

/// A context over devices, with a program from source.
pub struct Over {
    pub context: cl_context,
    pub program: cl_program,
}

pub fn over(devices: &[cl_device_id], source: &str) -> Over {
    let context = context_over(devices);
    let program = program_in(context, source);
    Over { context, program }
}

impl Drop for Over {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ok!(clReleaseProgram(self.program));
            ok!(clReleaseContext(self.context));
        }
    }
}

pub fn status(program: cl_program, device: cl_device_id) -> cl_int {
    let mut status = 77;
    let to = (&raw mut status).cast();
    let name = CL_PROGRAM_BUILD_STATUS;
    ok!(clGetProgramBuildInfo(
        program,
        device,
        name,
        4,
        to,
        null_mut()
    ));
    status
}

pub fn text(program: cl_program, device: cl_device_id, name: cl_program_build_info) -> String {
    let mut bytes = vec![0u8; 1 << 16];
    let (room, to) = (bytes.len(), bytes.as_mut_ptr().cast());
    ok!(clGetProgramBuildInfo(
        program,
        device,
        name,
        room,
        to,
        null_mut()
    ));
    let text = CStr::from_bytes_until_nul(&bytes).expect("a C string");
    text.to_str().expect("UTF-8").to_owned()
}

pub fn log(program: cl_program, device: cl_device_id) -> String {
    text(program, device, CL_PROGRAM_BUILD_LOG)
}

pub fn kernel_names(program: cl_program) -> String {
    let mut bytes = vec![0u8; 1024];
    let to = bytes.as_mut_ptr().cast();
    let name = CL_PROGRAM_KERNEL_NAMES;
    ok!(clGetProgramInfo(program, name, 1024, to, null_mut()));
    let text = CStr::from_bytes_until_nul(&bytes).expect("a C string");
    text.to_str().expect("UTF-8").to_owned()
}

pub fn local_mem_size(kernel: cl_kernel, device: cl_device_id) -> Result<u64, cl_int> {
    let mut size = 0u64;
    let to = (&raw mut size).cast();
    let name = CL_KERNEL_LOCAL_MEM_SIZE;
    match code!(clGetKernelWorkGroupInfo(
        kernel,
        device,
        name,
        8,
        to,
        null_mut()
    )) {
        CL_SUCCESS => Ok(size),
        code => Err(code),
    }
}

/// Rules that make `of` builds wait for each other, on any node.
pub fn builds_meet(folder: &Path, of: usize) -> String {
    let folder = folder.display();
    format!("[[call]]\nname = \"clBuildProgram\"\nmeet = \"{folder}\"\nof = {of}")
}

pub const PLAIN: &str = "kernel void k(global int *x, local int *l, int a) { x[0] = a; }";
