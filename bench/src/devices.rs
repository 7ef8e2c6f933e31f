//! An ordinary OpenCL program's side: one platform, one context over its devices, a queue on each.
//!
//! The experiments are written against this, and so know nothing of nodes: whether the platform's
//! devices are in this machine or in sixteen others, they share one context, one program and the
//! buffers. Commands are in [`commands`]; those that the rows measure, one call each, in [`single`]; many
//! threads in [`contention`]; thousands of commands at once in [`growth`], and on two nodes in [`pair`]; command buffers in [`replay`];
//! programs that wait often in [`waits`]. Not here: what is computed. Invariant: what was made is released with
//! [`Devices`], and memory of the program is touched by no command once a method has returned, unless it
//! lives for ever.

mod commands;
mod contention;
mod growth;
mod pair;
mod replay;
mod single;
mod waits;

use std::cell::RefCell;
use std::ffi::{CString, c_void};
use std::ptr;

use cl_headers::types::*;

use crate::opencl::{ClError, Functions, check};

/// A buffer, or a part of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory(cl_mem);

// SAFETY: a handle is no pointer of ours, and OpenCL's may be used by any thread.
unsafe impl Send for Memory {}

/// A built program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program(cl_program);

/// A kernel with its arguments set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel(cl_kernel);

// SAFETY: a handle is no pointer of ours, and OpenCL's may be used by any thread.
unsafe impl Send for Kernel {}

/// A command's event.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Event(cl_event);

/// A kernel argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Argument {
    /// A buffer.
    Memory(Memory),
    /// A `uint`.
    Uint(u32),
    /// A `float`.
    Float(f32),
}

/// What is to be released at the end.
#[derive(Default)]
struct Made {
    memory: Vec<cl_mem>,
    programs: Vec<cl_program>,
    kernels: Vec<cl_kernel>,
    events: Vec<cl_event>,
}

/// Devices of one platform in one context.
pub(crate) struct Devices {
    cl: Functions,
    devices: Vec<cl_device_id>,
    context: cl_context,
    queues: Vec<cl_command_queue>,
    made: RefCell<Made>,
}

// SAFETY: OpenCL's handles may be used by any thread; this type is not `Sync`, so by one at a time.
unsafe impl Send for Devices {}

/// The devices of the first platform that has any, at most `most`; of the one whose name contains `platform`
/// if one is wanted.
fn find(cl: &Functions, most: usize, wanted: Option<&str>) -> Result<Vec<cl_device_id>, ClError> {
    let mut platforms = [ptr::null_mut(); 16];
    let mut count = 0;
    // SAFETY: room for as many as are asked for.
    check("clGetPlatformIDs", unsafe {
        (cl.clGetPlatformIDs)(16, platforms.as_mut_ptr(), &raw mut count)
    })?;
    for platform in &platforms[..count.min(16) as usize] {
        if wanted.is_some_and(|wanted| !platform_name(cl, *platform).contains(wanted)) {
            continue;
        }
        let mut devices = [ptr::null_mut(); 64];
        let mut count = 0;
        // SAFETY: as above.
        let code = unsafe {
            (cl.clGetDeviceIDs)(
                *platform,
                CL_DEVICE_TYPE_ALL,
                64,
                devices.as_mut_ptr(),
                &raw mut count,
            )
        };
        let found = (count as usize).min(64).min(most);
        if code == CL_SUCCESS && found > 0 {
            return Ok(devices[..found].to_vec());
        }
    }
    Err(wanted.map_or(ClError::NoDevice, |name| {
        ClError::NoPlatform(name.to_owned())
    }))
}

/// Nothing for a platform that does not tell.
fn platform_name(cl: &Functions, platform: cl_platform_id) -> String {
    let mut room = [0u8; 512];
    // SAFETY: room and its size agree.
    unsafe {
        (cl.clGetPlatformInfo)(
            platform,
            CL_PLATFORM_NAME,
            room.len(),
            room.as_mut_ptr().cast(),
            ptr::null_mut(),
        )
    };
    text(&room)
}

/// A string as OpenCL gives it, up to its zero.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next();
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

/// A process's first look at the platforms; how many there are.
pub(crate) fn platforms() -> Result<usize, ClError> {
    let cl = Functions::load()?;
    let mut count = 0;
    // SAFETY: only the number is asked for.
    let code = unsafe { (cl.clGetPlatformIDs)(0, ptr::null_mut(), &raw mut count) };
    // Drivers do not like to be unloaded while their threads run.
    std::mem::forget(cl);
    match code {
        // `cl_khr_icd`: what a loader says that has none.
        CL_PLATFORM_NOT_FOUND_KHR => Ok(0),
        code => check("clGetPlatformIDs", code).map(|()| count as usize),
    }
}

/// How many devices the first platform that has any shows.
pub(crate) fn count() -> Result<usize, ClError> {
    let cl = Functions::load()?;
    let count = find(&cl, usize::MAX, None)?.len();
    // Drivers do not like to be unloaded while their threads run.
    std::mem::forget(cl);
    Ok(count)
}

impl Devices {
    /// Opens at most `most` devices, an in-order queue on each.
    pub(crate) fn open(most: usize) -> Result<Devices, ClError> {
        Devices::open_on(most, None)
    }

    /// The same, of the platform whose name contains `platform`.
    pub(crate) fn open_on(most: usize, platform: Option<&str>) -> Result<Devices, ClError> {
        let cl = Functions::load()?;
        let devices = find(&cl, most, platform)?;
        let mut code = 0;
        // SAFETY: a list of live devices of one platform with its length; no callback.
        let context = unsafe {
            (cl.clCreateContext)(
                ptr::null(),
                devices.len() as cl_uint,
                devices.as_ptr(),
                None,
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clCreateContext", code)?;
        let mut queues = Vec::with_capacity(devices.len());
        for device in &devices {
            // SAFETY: a device of the context.
            queues.push(unsafe { (cl.clCreateCommandQueue)(context, *device, 0, &raw mut code) });
            check("clCreateCommandQueue", code)?;
        }
        Ok(Devices {
            cl,
            devices,
            context,
            queues,
            made: RefCell::default(),
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.devices.len()
    }

    /// How many queues there are.
    pub(crate) fn queues(&self) -> usize {
        self.queues.len()
    }

    fn info(&self, device: usize, name: cl_device_info, room: &mut [u8]) -> Result<usize, ClError> {
        let mut size = 0;
        // SAFETY: room and its size agree.
        check("clGetDeviceInfo", unsafe {
            (self.cl.clGetDeviceInfo)(
                self.devices[device],
                name,
                room.len(),
                room.as_mut_ptr().cast(),
                &raw mut size,
            )
        })?;
        Ok(size.min(room.len()))
    }

    /// `CL_DEVICE_NAME`.
    pub(crate) fn name(&self, device: usize) -> Result<String, ClError> {
        let mut room = [0; 512];
        let size = self.info(device, CL_DEVICE_NAME, &mut room)?;
        Ok(text(&room[..size]))
    }

    /// Whether it is anything else than a CPU.
    pub(crate) fn is_accelerator(&self, device: usize) -> Result<bool, ClError> {
        let mut bits = [0; 8];
        self.info(device, CL_DEVICE_TYPE, &mut bits)?;
        Ok(cl_device_type::from_ne_bytes(bits) & CL_DEVICE_TYPE_CPU == 0)
    }

    /// `CL_DEVICE_MAX_MEM_ALLOC_SIZE`.
    pub(crate) fn largest_buffer(&self, device: usize) -> Result<u64, ClError> {
        let mut bytes = [0; 8];
        self.info(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Where parts of a buffer may begin on every device: multiples of so many bytes.
    pub(crate) fn alignment(&self) -> Result<usize, ClError> {
        let mut most = 1;
        for device in 0..self.count() {
            let mut bits = [0; 4];
            self.info(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, &mut bits)?;
            most = most.max(u32::from_ne_bytes(bits) as usize / 8);
        }
        Ok(most)
    }

    /// Builds a program for all devices.
    pub(crate) fn build(&self, source: &str, options: &str) -> Result<Program, ClError> {
        let (text, length, mut code) = (source.as_ptr().cast::<c_char>(), source.len(), 0);
        let options = CString::new(options).unwrap_or_default();
        // SAFETY: one string with its length.
        let program = unsafe {
            (self.cl.clCreateProgramWithSource)(
                self.context,
                1,
                &raw const text,
                &raw const length,
                &raw mut code,
            )
        };
        check("clCreateProgramWithSource", code)?;
        self.made.borrow_mut().programs.push(program);
        // SAFETY: a live program; all its devices, a C string, no callback.
        let code = unsafe {
            (self.cl.clBuildProgram)(
                program,
                0,
                ptr::null(),
                options.as_ptr(),
                None,
                ptr::null_mut(),
            )
        };
        match code {
            CL_SUCCESS => Ok(Program(program)),
            code => Err(ClError::Build(code, self.logs(program))),
        }
    }

    /// Builds a source and gives the program back.
    pub(crate) fn build_and_release(&self, source: &str) -> Result<(), ClError> {
        let Program(program) = self.build(source, "")?;
        self.made
            .borrow_mut()
            .programs
            .retain(|made| *made != program);
        // SAFETY: a live handle, no longer in the list, not used again.
        check("clReleaseProgram", unsafe {
            (self.cl.clReleaseProgram)(program)
        })
    }

    fn logs(&self, program: cl_program) -> String {
        let mut logs = String::new();
        for device in &self.devices {
            let mut room = vec![0u8; 1 << 16];
            let mut size = 0;
            // SAFETY: room and its size agree.
            unsafe {
                (self.cl.clGetProgramBuildInfo)(
                    program,
                    *device,
                    CL_PROGRAM_BUILD_LOG,
                    room.len(),
                    room.as_mut_ptr().cast(),
                    &raw mut size,
                )
            };
            room.truncate(size.saturating_sub(1));
            logs.push_str(&String::from_utf8_lossy(&room));
        }
        logs
    }

    /// A kernel of a program, with its arguments.
    pub(crate) fn kernel(
        &self,
        program: Program,
        name: &str,
        arguments: &[Argument],
    ) -> Result<Kernel, ClError> {
        let name = CString::new(name).unwrap_or_default();
        let mut code = 0;
        // SAFETY: a live program and a C string.
        let kernel = unsafe { (self.cl.clCreateKernel)(program.0, name.as_ptr(), &raw mut code) };
        check("clCreateKernel", code)?;
        self.made.borrow_mut().kernels.push(kernel);
        for (index, argument) in (0..).zip(arguments) {
            let (size, value): (usize, *const c_void) = match argument {
                Argument::Memory(memory) => (size_of::<cl_mem>(), (&raw const memory.0).cast()),
                Argument::Uint(value) => (4, (&raw const *value).cast()),
                Argument::Float(value) => (4, (&raw const *value).cast()),
            };
            // SAFETY: size and address are those of a live value.
            check("clSetKernelArg", unsafe {
                (self.cl.clSetKernelArg)(kernel, index, size, value)
            })?;
        }
        Ok(Kernel(kernel))
    }

    /// A read-write buffer that the devices share.
    pub(crate) fn buffer(&self, size: usize) -> Result<Memory, ClError> {
        let mut code = 0;
        // SAFETY: a live context; no host pointer.
        let memory = unsafe {
            (self.cl.clCreateBuffer)(
                self.context,
                CL_MEM_READ_WRITE,
                size,
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clCreateBuffer", code)?;
        self.made.borrow_mut().memory.push(memory);
        Ok(Memory(memory))
    }

    /// A part of a buffer; `origin` is a multiple of [`Devices::alignment`].
    pub(crate) fn part(
        &self,
        memory: Memory,
        origin: usize,
        size: usize,
    ) -> Result<Memory, ClError> {
        let region = cl_buffer_region { origin, size };
        let mut code = 0;
        // SAFETY: a live buffer, and a region as the type says.
        let part = unsafe {
            (self.cl.clCreateSubBuffer)(
                memory.0,
                CL_MEM_READ_WRITE,
                CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const region).cast(),
                &raw mut code,
            )
        };
        check("clCreateSubBuffer", code)?;
        self.made.borrow_mut().memory.push(part);
        Ok(Memory(part))
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.forget_events();
        let made = self.made.take();
        // SAFETY: live handles, each released once and not used again; parts were made after their
        // buffers and go before them.
        unsafe {
            for kernel in made.kernels {
                (self.cl.clReleaseKernel)(kernel);
            }
            for program in made.programs {
                (self.cl.clReleaseProgram)(program);
            }
            for memory in made.memory.into_iter().rev() {
                (self.cl.clReleaseMemObject)(memory);
            }
            for queue in &self.queues {
                (self.cl.clReleaseCommandQueue)(*queue);
            }
            (self.cl.clReleaseContext)(self.context);
        }
    }
}
