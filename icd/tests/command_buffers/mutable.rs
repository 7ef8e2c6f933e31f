//! A test program with a mutable launch in a command buffer; on top of `opencl`, `programs` and `recorded`.

use crate::frames::opencl::*;
use crate::frames::programs::*;
use crate::frames::recorded::*;

pub const SOURCE: &str = "\
kernel void put(global int *x, int value) { x[get_global_id(0)] = value; }
kernel void sum(global int *x, local int *space, int value) {
    space[get_local_id(0)] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] += space[0];
}
struct node { global struct node *next; int value; };
kernel void grow(global struct node *first) {
    for (global struct node *at = first; at; at = at->next) at->value += 1;
}
";
pub const COUNT: usize = 64;
pub const SIZE: usize = 4 * COUNT;
pub const FIELDS: u64 = CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR;

/// A program with a launch of `put` in a command buffer.
pub struct Stage {
    pub cl: Fixture,
    pub program: cl_program,
    pub put: cl_kernel,
    pub buffer: cl_mem,
}

impl Stage {
    pub fn new() -> Stage {
        let cl = Fixture::new();
        let program = built(&cl, SOURCE, "");
        let put = kernel(program, "put");
        let buffer = cl.buffer_of(&[0; SIZE]);
        assert_eq!(set(put, 0, &buffer), CL_SUCCESS);
        assert_eq!(set(put, 1, &1i32), CL_SUCCESS);
        Stage {
            cl,
            program,
            put,
            buffer,
        }
    }

    pub fn recorded(&self, properties: Option<&[u64]>) -> (Recorded, cl_mutable_command_khr) {
        let recorded = Recorded::mutable(self.cl.queue);
        let handle = recorded.launch_mutable(properties, self.put, COUNT, None);
        assert_eq!(recorded.finalize(), CL_SUCCESS);
        (recorded, handle.expect("a handle"))
    }

    pub fn ints(&self) -> Vec<i32> {
        ints(&self.cl, self.buffer, COUNT)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        ok!(clReleaseMemObject(self.buffer));
        ok!(clReleaseKernel(self.put));
        ok!(clReleaseProgram(self.program));
    }
}

/// Returns the answer to a query of a recorded launch, at most eight values.
pub fn asked<T: Copy + Default>(
    handle: cl_mutable_command_khr,
    name: cl_uint,
) -> Result<Vec<T>, cl_int> {
    let (mut all, mut size) = ([T::default(); 8], 0);
    let room = size_of_val(&all);
    let to = all.as_mut_ptr().cast();
    match call!(command_info(handle, name, room, to, &raw mut size)) {
        CL_SUCCESS => Ok(all[..size / size_of::<T>()].to_vec()),
        code => Err(code),
    }
}
