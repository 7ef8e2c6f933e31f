//! One context over four sites of three nodes, with fake drivers that compute a little; on top of `nodes`.

use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::frames::nodes::*;
use crate::frames::opencl::*;
use crate::frames::programs::{build, program_in};

/// Time limit for everything that must come soon.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Makes tests take turns: the nodes are shared, and some tests count calls there.
static TURN: Mutex<()> = Mutex::new(());

/// The second node has two platforms, which are two sites.
const NODES: [Drivers; 3] = [
    Drivers::Fake("[[device]]\nname = \"Alpha\""),
    Drivers::Fake("[[device]]\nname = \"Beta\"\n[[device]]\nname = \"Gamma\"\nplatform = 1"),
    Drivers::Fake("[[device]]\nname = \"Delta\""),
];

const KERNELS: &str = "
kernel void fake_fill_u32(global uint *x, uint v) { x[get_global_id(0)] = v; }
kernel void fake_add_u32(global uint *x, uint v) { x[get_global_id(0)] += v; }
kernel void fake_copy(global uchar *x, global const uchar *y) { x[get_global_id(0)] = y[get_global_id(0)]; }
kernel void nothing(global uint *x, global uint *y, constant uint *z) {}
";

pub const OUT_OF_ORDER: cl_command_queue_properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;

/// The sites, with the names of their devices.
pub const ALPHA: usize = 0;
pub const BETA: usize = 1;
pub const GAMMA: usize = 2;
pub const DELTA: usize = 3;
pub const ALL: [usize; 4] = [ALPHA, BETA, GAMMA, DELTA];

/// A context over the four sites. Everything is enqueued on `queues`, one for each site.
pub struct Several {
    pub nodes: &'static [Node],
    pub devices: Vec<cl_device_id>,
    pub context: cl_context,
    pub queues: Vec<cl_command_queue>,
    pub program: cl_program,
    _turn: MutexGuard<'static, ()>,
}

/// Makes the context with in-order queues.
pub fn several() -> Several {
    several_with(0)
}

/// Makes the context with queues of these properties.
pub fn several_with(properties: cl_command_queue_properties) -> Several {
    several_on(&NODES, 4, properties)
}

/// Makes a context over these nodes, which are the same for all tests of a process, with this number of devices.
pub fn several_on(
    nodes: &[Drivers],
    count: usize,
    properties: cl_command_queue_properties,
) -> Several {
    let turn = TURN.lock();
    let nodes = start(nodes);
    let devices = devices(count);
    several_over(turn, nodes, devices, properties)
}

fn several_over(
    turn: MutexGuard<'static, ()>,
    nodes: &'static [Node],
    devices: Vec<cl_device_id>,
    properties: cl_command_queue_properties,
) -> Several {
    let context = context_over(&devices);
    let queue = |device: &cl_device_id| {
        make!(clCreateCommandQueue(context, *device, properties)).expect("a queue")
    };
    let program = program_in(context, KERNELS);
    assert_eq!(build(program, ""), CL_SUCCESS);
    Several {
        nodes,
        queues: devices.iter().map(queue).collect(),
        devices,
        context,
        program,
        _turn: turn,
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for queue in &self.queues {
                ok!(clReleaseCommandQueue(*queue));
            }
            ok!(clReleaseProgram(self.program));
            ok!(clReleaseContext(self.context));
        }
    }
}

/// Returns a wait list: its length and address.
pub fn list(wait: &[cl_event]) -> (cl_uint, *const cl_event) {
    let at = if wait.is_empty() {
        null()
    } else {
        wait.as_ptr()
    };
    (wait.len() as cl_uint, at)
}

pub enum Arg {
    Memory(cl_mem),
    Number(u32),
}

impl Several {
    pub fn buffer(&self, flags: cl_mem_flags, size: usize) -> cl_mem {
        make!(clCreateBuffer(self.context, flags, size, null_mut())).expect("a buffer")
    }

    /// Makes a buffer with contents.
    pub fn buffer_of(&self, flags: cl_mem_flags, bytes: &[u8]) -> cl_mem {
        let (size, at) = (bytes.len(), bytes.as_ptr().cast_mut().cast());
        let flags = flags | CL_MEM_COPY_HOST_PTR;
        make!(clCreateBuffer(self.context, flags, size, at)).expect("a buffer")
    }

    pub fn part(&self, buffer: cl_mem, origin: usize, size: usize) -> cl_mem {
        let region = cl_buffer_region { origin, size };
        make!(clCreateSubBuffer(
            buffer,
            0,
            CL_BUFFER_CREATE_TYPE_REGION,
            (&raw const region).cast()
        ))
        .expect("a sub-buffer")
    }

    pub fn user_event(&self) -> cl_event {
        make!(clCreateUserEvent(self.context)).expect("a user event")
    }

    /// Enqueues a write. The bytes must stay until it is complete.
    pub fn begin_write(
        &self,
        site: usize,
        buffer: cl_mem,
        offset: usize,
        bytes: &[u8],
        wait: &[cl_event],
    ) -> cl_event {
        let ((count, list), mut event) = (list(wait), null_mut());
        ok!(clEnqueueWriteBuffer(
            self.queues[site],
            buffer,
            CL_FALSE,
            offset,
            bytes.len(),
            bytes.as_ptr().cast(),
            count,
            list,
            &raw mut event
        ));
        event
    }

    pub fn write(&self, site: usize, buffer: cl_mem, offset: usize, bytes: &[u8]) {
        let event = self.begin_write(site, buffer, offset, bytes, &[]);
        assert_eq!(finish(event), CL_SUCCESS);
    }

    /// Enqueues a read. The memory must stay until it is complete.
    pub fn begin_read(
        &self,
        site: usize,
        buffer: cl_mem,
        offset: usize,
        to: &mut [u8],
        wait: &[cl_event],
    ) -> cl_event {
        let ((count, list), mut event) = (list(wait), null_mut());
        ok!(clEnqueueReadBuffer(
            self.queues[site],
            buffer,
            CL_FALSE,
            offset,
            to.len(),
            to.as_mut_ptr().cast(),
            count,
            list,
            &raw mut event
        ));
        event
    }

    /// Reads in a blocking call.
    pub fn try_read(
        &self,
        site: usize,
        buffer: cl_mem,
        offset: usize,
        length: usize,
        wait: &[cl_event],
    ) -> Result<Vec<u8>, cl_int> {
        let mut bytes = vec![0xee; length];
        let (count, list) = list(wait);
        let code = code!(clEnqueueReadBuffer(
            self.queues[site],
            buffer,
            CL_TRUE,
            offset,
            length,
            bytes.as_mut_ptr().cast(),
            count,
            list,
            null_mut()
        ));
        if code == CL_SUCCESS {
            Ok(bytes)
        } else {
            Err(code)
        }
    }

    pub fn read(&self, site: usize, buffer: cl_mem, offset: usize, length: usize) -> Vec<u8> {
        self.try_read(site, buffer, offset, length, &[])
            .expect("read")
    }

    /// Reads the numbers in a buffer.
    pub fn numbers(&self, site: usize, buffer: cl_mem, count: usize) -> Vec<u32> {
        numbers(&self.read(site, buffer, 0, 4 * count))
    }

    /// Launches a new kernel and releases it. Returns the event, or the code.
    pub fn try_launch(
        &self,
        site: usize,
        name: &str,
        args: &[Arg],
        items: usize,
        wait: &[cl_event],
    ) -> Result<cl_event, cl_int> {
        let name = CString::new(name).expect("no NUL");
        let kernel = make!(clCreateKernel(self.program, name.as_ptr())).expect("a kernel");
        for (index, arg) in args.iter().enumerate() {
            let (size, at) = match arg {
                Arg::Memory(memory) => (size_of::<cl_mem>(), (&raw const *memory).cast()),
                Arg::Number(number) => (4, (&raw const *number).cast()),
            };
            ok!(clSetKernelArg(kernel, index as cl_uint, size, at));
        }
        let ((count, list), mut event) = (list(wait), null_mut());
        let code = code!(clEnqueueNDRangeKernel(
            self.queues[site],
            kernel,
            1,
            null(),
            &raw const items,
            null(),
            count,
            list,
            &raw mut event
        ));
        ok!(clReleaseKernel(kernel));
        if code == CL_SUCCESS {
            Ok(event)
        } else {
            Err(code)
        }
    }

    /// Enqueues `x[i] += value` at a site.
    pub fn add(
        &self,
        site: usize,
        buffer: cl_mem,
        value: u32,
        items: usize,
        wait: &[cl_event],
    ) -> cl_event {
        let args = [Arg::Memory(buffer), Arg::Number(value)];
        self.try_launch(site, "fake_add_u32", &args, items, wait)
            .expect("launched")
    }

    /// Enqueues a fill with a number at a site.
    pub fn fill(
        &self,
        site: usize,
        buffer: cl_mem,
        value: u32,
        (offset, length): (usize, usize),
        wait: &[cl_event],
    ) -> cl_event {
        let ((count, list), mut event) = (list(wait), null_mut());
        ok!(clEnqueueFillBuffer(
            self.queues[site],
            buffer,
            (&raw const value).cast(),
            4,
            offset,
            length,
            count,
            list,
            &raw mut event
        ));
        event
    }

    pub fn copy(
        &self,
        site: usize,
        (from, from_offset): (cl_mem, usize),
        (to, to_offset): (cl_mem, usize),
        length: usize,
        wait: &[cl_event],
    ) -> cl_event {
        let ((count, list), mut event) = (list(wait), null_mut());
        ok!(clEnqueueCopyBuffer(
            self.queues[site],
            from,
            to,
            from_offset,
            to_offset,
            length,
            count,
            list,
            &raw mut event
        ));
        event
    }

    /// Maps, and waits for the event.
    pub fn map(
        &self,
        site: usize,
        buffer: cl_mem,
        flags: cl_map_flags,
        (offset, length): (usize, usize),
    ) -> &'static mut [u8] {
        let at = make!(clEnqueueMapBuffer(
            self.queues[site],
            buffer,
            CL_TRUE,
            flags,
            offset,
            length,
            0,
            null(),
            null_mut(),
        ))
        .expect("a map");
        // SAFETY: mapped until the test unmaps it, as it says.
        unsafe { std::slice::from_raw_parts_mut(at.cast(), length) }
    }

    pub fn unmap(&self, site: usize, buffer: cl_mem, map: &[u8], wait: &[cl_event]) -> cl_event {
        let ((count, list), mut event) = (list(wait), null_mut());
        ok!(clEnqueueUnmapMemObject(
            self.queues[site],
            buffer,
            map.as_ptr().cast_mut().cast(),
            count,
            list,
            &raw mut event
        ));
        event
    }

    pub fn marker(&self, site: usize, wait: &[cl_event]) -> cl_event {
        let ((count, list), mut event) = (list(wait), null_mut());
        ok!(clEnqueueMarkerWithWaitList(
            self.queues[site],
            count,
            list,
            &raw mut event
        ));
        event
    }

    pub fn barrier(&self, site: usize, wait: &[cl_event]) -> cl_event {
        let ((count, list), mut event) = (list(wait), null_mut());
        ok!(clEnqueueBarrierWithWaitList(
            self.queues[site],
            count,
            list,
            &raw mut event
        ));
        event
    }

    pub fn finish(&self, site: usize) {
        ok!(clFinish(self.queues[site]));
    }

    pub fn finish_all(&self) {
        (0..self.queues.len()).for_each(|site| self.finish(site));
    }
}

/// Converts bytes to numbers.
pub fn numbers(bytes: &[u8]) -> Vec<u32> {
    let each = bytes.chunks_exact(4);
    each.map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four")))
        .collect()
}

/// Converts numbers to bytes.
pub fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_ne_bytes())
        .collect()
}

pub fn release(events: &[cl_event]) {
    for event in events {
        ok!(clReleaseEvent(*event));
    }
}

pub fn release_memory(objects: &[cl_mem]) {
    for object in objects {
        ok!(clReleaseMemObject(*object));
    }
}

pub fn set(user: cl_event, status: cl_int) {
    ok!(clSetUserEventStatus(user, status));
}

/// Runs `body` on another thread. The result must come soon.
pub fn soon<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (tell, hear) = channel();
    std::thread::spawn(move || tell.send(body()));
    hear
}

/// A handle that may move to another thread, as the specification allows.
#[derive(Clone, Copy)]
pub struct Shared<T>(pub T);

// SAFETY: OpenCL's functions may be called from any thread.
unsafe impl<T> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    pub fn get(self) -> T {
        self.0
    }
}
