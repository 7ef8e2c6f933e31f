//! Command buffers for tests, by the extension's functions; on top of `opencl`.

use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use crate::frames::opencl::*;

/// The functions of `cl_khr_command_buffer` and `cl_khr_command_buffer_mutable_dispatch`.
pub struct Functions {
    pub create: clCreateCommandBufferKHR_fn,
    pub retain: clRetainCommandBufferKHR_fn,
    pub release: clReleaseCommandBufferKHR_fn,
    pub finalize: clFinalizeCommandBufferKHR_fn,
    pub enqueue: clEnqueueCommandBufferKHR_fn,
    pub info: clGetCommandBufferInfoKHR_fn,
    pub barrier: clCommandBarrierWithWaitListKHR_fn,
    pub copy: clCommandCopyBufferKHR_fn,
    pub copy_rect: clCommandCopyBufferRectKHR_fn,
    pub to_image: clCommandCopyBufferToImageKHR_fn,
    pub copy_image: clCommandCopyImageKHR_fn,
    pub from_image: clCommandCopyImageToBufferKHR_fn,
    pub fill: clCommandFillBufferKHR_fn,
    pub fill_image: clCommandFillImageKHR_fn,
    pub launch: clCommandNDRangeKernelKHR_fn,
    pub svm_copy: clCommandSVMMemcpyKHR_fn,
    pub svm_fill: clCommandSVMMemFillKHR_fn,
    pub update: clUpdateMutableCommandsKHR_fn,
    pub command_info: clGetMutableCommandInfoKHR_fn,
}

pub fn functions() -> &'static Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Functions {
        create: function(c"clCreateCommandBufferKHR"),
        retain: function(c"clRetainCommandBufferKHR"),
        release: function(c"clReleaseCommandBufferKHR"),
        finalize: function(c"clFinalizeCommandBufferKHR"),
        enqueue: function(c"clEnqueueCommandBufferKHR"),
        info: function(c"clGetCommandBufferInfoKHR"),
        barrier: function(c"clCommandBarrierWithWaitListKHR"),
        copy: function(c"clCommandCopyBufferKHR"),
        copy_rect: function(c"clCommandCopyBufferRectKHR"),
        to_image: function(c"clCommandCopyBufferToImageKHR"),
        copy_image: function(c"clCommandCopyImageKHR"),
        from_image: function(c"clCommandCopyImageToBufferKHR"),
        fill: function(c"clCommandFillBufferKHR"),
        fill_image: function(c"clCommandFillImageKHR"),
        launch: function(c"clCommandNDRangeKernelKHR"),
        svm_copy: function(c"clCommandSVMMemcpyKHR"),
        svm_fill: function(c"clCommandSVMMemFillKHR"),
        update: function(c"clUpdateMutableCommandsKHR"),
        command_info: function(c"clGetMutableCommandInfoKHR"),
    })
}

/// Calls a function of the extensions.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let function = crate::frames::recorded::functions().$name.expect("an address");
        // SAFETY: the test gives what the specification asks for, or what it must refuse.
        unsafe { function($($argument),*) }
    }};
}

pub(crate) use call;

/// A command buffer, released on drop.
pub struct Recorded {
    pub raw: cl_command_buffer_khr,
}

/// Returns a wait list of sync points: its length and address.
fn points(wait: &[u32]) -> (cl_uint, *const cl_sync_point_khr) {
    let at = if wait.is_empty() {
        null()
    } else {
        wait.as_ptr()
    };
    (wait.len() as cl_uint, at)
}

fn outcome<T>(code: cl_int, value: T) -> Result<T, cl_int> {
    if code == CL_SUCCESS {
        Ok(value)
    } else {
        Err(code)
    }
}

pub fn create(
    queues: &[cl_command_queue],
    properties: Option<&[u64]>,
) -> Result<cl_command_buffer_khr, cl_int> {
    let (count, list) = match queues {
        [] => (0, null()),
        some => (some.len() as cl_uint, some.as_ptr()),
    };
    let properties = properties.map_or(null(), <[u64]>::as_ptr);
    let mut code = 77;
    let made = call!(create(count, list, properties, &raw mut code));
    assert_eq!(made.is_null(), code != CL_SUCCESS);
    outcome(code, made)
}

/// Returns an empty change of a launch.
pub fn config(command: cl_mutable_command_khr) -> cl_mutable_dispatch_config_khr {
    cl_mutable_dispatch_config_khr {
        command,
        num_args: 0,
        num_svm_args: 0,
        num_exec_infos: 0,
        work_dim: 0,
        arg_list: null(),
        arg_svm_list: null(),
        exec_info_list: null(),
        global_work_offset: null(),
        global_work_size: null(),
        local_work_size: null(),
    }
}

/// Returns the change of an argument.
pub fn arg<T>(index: cl_uint, value: &T) -> cl_mutable_dispatch_arg_khr {
    cl_mutable_dispatch_arg_khr {
        arg_index: index,
        arg_size: size_of::<T>(),
        arg_value: (&raw const *value).cast(),
    }
}

/// Returns a change of a launch's arguments.
pub fn config_of_args(
    command: cl_mutable_command_khr,
    args: &[cl_mutable_dispatch_arg_khr],
) -> cl_mutable_dispatch_config_khr {
    cl_mutable_dispatch_config_khr {
        num_args: args.len() as cl_uint,
        arg_list: args.as_ptr(),
        ..config(command)
    }
}

impl Recorded {
    /// Makes a command buffer with mutable launches.
    pub fn mutable(queue: cl_command_queue) -> Recorded {
        let flags = [
            CL_COMMAND_BUFFER_FLAGS_KHR,
            CL_COMMAND_BUFFER_MUTABLE_KHR,
            0,
        ];
        let raw = create(&[queue], Some(&flags)).expect("a command buffer");
        Recorded { raw }
    }

    /// Records a launch over one dimension with properties. Returns the handle.
    pub fn launch_mutable(
        &self,
        properties: Option<&[u64]>,
        kernel: cl_kernel,
        global: usize,
        local: Option<usize>,
    ) -> Result<cl_mutable_command_khr, cl_int> {
        let mut handle = null_mut();
        let code = call!(launch(
            self.raw,
            null_mut(),
            properties.map_or(null(), <[u64]>::as_ptr),
            kernel,
            1,
            null(),
            &raw const global,
            local.as_ref().map_or(null(), |local| &raw const *local),
            0,
            null(),
            null_mut(),
            &raw mut handle
        ));
        assert_eq!(handle.is_null(), code != CL_SUCCESS);
        outcome(code, handle)
    }

    /// Changes launches. Returns the code.
    pub fn update(&self, configs: &[cl_mutable_dispatch_config_khr]) -> cl_int {
        let types = vec![CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR; configs.len()];
        let mut places: Vec<*const c_void> =
            configs.iter().map(|of| (&raw const *of).cast()).collect();
        let count = configs.len() as cl_uint;
        call!(update(self.raw, count, types.as_ptr(), places.as_mut_ptr()))
    }

    pub fn new(queue: cl_command_queue) -> Recorded {
        let raw = create(&[queue], None).expect("a command buffer");
        Recorded { raw }
    }

    pub fn barrier(&self, wait: &[u32]) -> Result<u32, cl_int> {
        let ((count, list), mut point) = (points(wait), 0);
        let code = call!(barrier(
            self.raw,
            null_mut(),
            null(),
            count,
            list,
            &raw mut point,
            null_mut()
        ));
        outcome(code, point)
    }

    pub fn fill(
        &self,
        buffer: cl_mem,
        value: u32,
        size: usize,
        wait: &[u32],
    ) -> Result<u32, cl_int> {
        let ((count, list), mut point) = (points(wait), 0);
        let code = call!(fill(
            self.raw,
            null_mut(),
            null(),
            buffer,
            (&raw const value).cast(),
            4,
            0,
            size,
            count,
            list,
            &raw mut point,
            null_mut()
        ));
        outcome(code, point)
    }

    pub fn copy(
        &self,
        (from, to): (cl_mem, cl_mem),
        (from_offset, to_offset, size): (usize, usize, usize),
        wait: &[u32],
    ) -> Result<u32, cl_int> {
        let ((count, list), mut point) = (points(wait), 0);
        let code = call!(copy(
            self.raw,
            null_mut(),
            null(),
            from,
            to,
            from_offset,
            to_offset,
            size,
            count,
            list,
            &raw mut point,
            null_mut()
        ));
        outcome(code, point)
    }

    pub fn launch(&self, kernel: cl_kernel, global: usize, wait: &[u32]) -> Result<u32, cl_int> {
        let ((count, list), mut point) = (points(wait), 0);
        let code = call!(launch(
            self.raw,
            null_mut(),
            null(),
            kernel,
            1,
            null(),
            &raw const global,
            null(),
            count,
            list,
            &raw mut point,
            null_mut()
        ));
        outcome(code, point)
    }

    pub fn finalize(&self) -> cl_int {
        call!(finalize(self.raw))
    }

    /// Enqueues on the command buffer's queue, or on others. Returns the event.
    pub fn try_enqueue(
        &self,
        queues: &[cl_command_queue],
        wait: &[cl_event],
    ) -> Result<cl_event, cl_int> {
        let queues_at = if queues.is_empty() {
            null_mut()
        } else {
            queues.as_ptr().cast_mut()
        };
        let list = if wait.is_empty() {
            null()
        } else {
            wait.as_ptr()
        };
        let mut event = null_mut();
        let code = call!(enqueue(
            queues.len() as cl_uint,
            queues_at,
            self.raw,
            wait.len() as cl_uint,
            list,
            &raw mut event
        ));
        outcome(code, event)
    }

    pub fn enqueue(&self, wait: &[cl_event]) -> cl_event {
        self.try_enqueue(&[], wait).expect("enqueued")
    }

    /// Enqueues without an event.
    pub fn replay(&self) {
        let code = call!(enqueue(0, null_mut(), self.raw, 0, null(), null_mut()));
        assert_eq!(code, CL_SUCCESS);
    }

    pub fn number<T: Copy + Default>(&self, name: cl_command_buffer_info_khr) -> T {
        let (mut value, mut size) = (T::default(), 0);
        let room = size_of::<T>();
        let to = (&raw mut value).cast();
        assert_eq!(
            call!(info(self.raw, name, room, to, &raw mut size)),
            CL_SUCCESS
        );
        assert_eq!(size, room);
        value
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(call!(release(self.raw)), CL_SUCCESS);
        }
    }
}
