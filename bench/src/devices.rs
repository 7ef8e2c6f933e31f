//! An ordinary OpenCL program's side: one platform, one context over its devices, a queue on each.
//!
//! The experiments are written against this module and know nothing of nodes. The platform's devices share
//! one context, one program and the buffers, whether they are in this machine or in sixteen others.
//! - [`commands`]: what is enqueued and waited for.
//! - [`single`]: the commands that the rows measure, one call each.
//! - [`contention`]: many threads.
//! - [`growth`], [`pair`]: thousands of commands at once, on one node and on two.
//! - [`replay`]: command buffers.
//! - [`waits`]: programs that wait often.
//!
//! What the kernels compute is not here. Invariant: everything is released with [`Devices`]. No command uses
//! memory of the program after a method has returned, unless that memory is static.

mod commands;
mod contention;
mod growth;
mod pair;
mod replay;
mod single;
mod waits;

use std::cell::RefCell;
use std::ffi::CString;

use cl_headers::types::*;

pub(crate) use crate::opencl::{Argument, Event, Kernel, Memory, Program};
use crate::opencl::{ClError, Context, Device, OpenCl, Queue};

/// The objects to be released at the end.
#[derive(Default)]
struct Made {
    memory: Vec<Memory>,
    programs: Vec<Program>,
    kernels: Vec<Kernel>,
    events: Vec<Event>,
}

/// Devices of one platform in one context.
pub(crate) struct Devices {
    cl: OpenCl,
    devices: Vec<Device>,
    context: Context,
    queues: Vec<Queue>,
    made: RefCell<Made>,
}

/// Devices of one platform, of which no context exists yet.
pub(crate) struct Found {
    cl: OpenCl,
    devices: Vec<Device>,
}

impl Found {
    /// Makes a context, with an in-order queue on each device.
    pub(crate) fn open(self) -> Result<Devices, ClError> {
        let Found { cl, devices } = self;
        let context = cl.context(&devices)?;
        let queues = devices.iter().map(|device| cl.queue(context, *device, 0));
        Ok(Devices {
            queues: queues.collect::<Result<_, _>>()?,
            cl,
            devices,
            context,
            made: RefCell::default(),
        })
    }
}

/// The devices of the first platform that has any, at most `most`. With `wanted`, the platform's name must
/// contain that.
fn find(cl: &OpenCl, most: usize, wanted: Option<&str>) -> Result<Vec<Device>, ClError> {
    for platform in cl.platforms()? {
        // A platform that does not tell its name is not the wanted one.
        let name = || cl.platform_name(platform).unwrap_or_default();
        if wanted.is_some_and(|wanted| !name().contains(wanted)) {
            continue;
        }
        // A platform without devices returns an error.
        let mut devices = cl.devices(platform).unwrap_or_default();
        devices.truncate(most);
        if !devices.is_empty() {
            return Ok(devices);
        }
    }
    Err(wanted.map_or(ClError::NoDevice, |name| {
        ClError::NoPlatform(name.to_owned())
    }))
}

/// Lists the platforms for the first time in this process; their number.
pub(crate) fn platforms() -> Result<usize, ClError> {
    let cl = OpenCl::load()?;
    let count = cl.platforms().map(|platforms| platforms.len());
    // Drivers may crash when they are unloaded while their threads run.
    std::mem::forget(cl);
    count
}

/// The number of devices that the first platform with any shows.
pub(crate) fn count() -> Result<usize, ClError> {
    let cl = OpenCl::load()?;
    let count = find(&cl, usize::MAX, None).map(|devices| devices.len());
    // As above.
    std::mem::forget(cl);
    count
}

impl Devices {
    /// Opens at most `most` devices, with an in-order queue on each.
    pub(crate) fn open(most: usize) -> Result<Devices, ClError> {
        Devices::open_on(most, None)
    }

    /// As [`Devices::open`], of the platform whose name contains `platform`.
    pub(crate) fn open_on(most: usize, platform: Option<&str>) -> Result<Devices, ClError> {
        Devices::find(most, platform)?.open()
    }

    /// Finds at most `most` devices, of the platform whose name contains `platform`.
    pub(crate) fn find(most: usize, platform: Option<&str>) -> Result<Found, ClError> {
        let cl = OpenCl::load()?;
        let devices = find(&cl, most, platform)?;
        Ok(Found { cl, devices })
    }

    /// As [`Devices::open`], with a context of its own for each device.
    pub(crate) fn open_each(most: usize) -> Result<Vec<Devices>, ClError> {
        let count = find(&OpenCl::load()?, most, None)?.len();
        let open = |place| {
            let Found { cl, devices } = Devices::find(most, None)?;
            let devices = vec![devices[place]];
            Found { cl, devices }.open()
        };
        (0..count).map(open).collect()
    }

    /// The number of devices.
    pub(crate) fn count(&self) -> usize {
        self.devices.len()
    }

    /// The number of queues.
    pub(crate) fn queues(&self) -> usize {
        self.queues.len()
    }

    fn info<const SIZE: usize>(
        &self,
        device: usize,
        name: cl_device_info,
    ) -> Result<[u8; SIZE], ClError> {
        let mut value = [0; SIZE];
        self.cl
            .device_info(self.devices[device], name, &mut value)?;
        Ok(value)
    }

    /// `CL_DEVICE_NAME`.
    pub(crate) fn name(&self, device: usize) -> Result<String, ClError> {
        let mut room = [0; 512];
        let size = self
            .cl
            .device_info(self.devices[device], CL_DEVICE_NAME, &mut room)?;
        let text = String::from_utf8_lossy(&room[..size]);
        Ok(text.trim_end_matches('\0').to_owned())
    }

    /// Whether the device is anything else than a CPU.
    pub(crate) fn is_accelerator(&self, device: usize) -> Result<bool, ClError> {
        let kind = cl_device_type::from_ne_bytes(self.info(device, CL_DEVICE_TYPE)?);
        Ok(kind & CL_DEVICE_TYPE_CPU == 0)
    }

    /// `CL_DEVICE_MAX_MEM_ALLOC_SIZE`.
    pub(crate) fn largest_buffer(&self, device: usize) -> Result<u64, ClError> {
        let bytes = self.info(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The alignment in bytes of a part of a buffer that every device accepts.
    pub(crate) fn alignment(&self) -> Result<usize, ClError> {
        let mut most = 1;
        for device in 0..self.count() {
            let bits = u32::from_ne_bytes(self.info(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN)?);
            most = most.max(bits as usize / 8);
        }
        Ok(most)
    }

    /// Builds a program for all devices.
    pub(crate) fn build(&self, source: &str, options: &str) -> Result<Program, ClError> {
        let options = CString::new(options).unwrap_or_default();
        let program = self.cl.program(self.context, source)?;
        self.made.borrow_mut().programs.push(program);
        match self.cl.build(program, &options) {
            Err(ClError::Call(_, code)) => Err(ClError::Build(code, self.logs(program))),
            built => built.map(|()| program),
        }
    }

    /// Builds a source and releases the program.
    pub(crate) fn build_and_release(&self, source: &str) -> Result<(), ClError> {
        let program = self.build(source, "")?;
        let mut made = self.made.borrow_mut();
        made.programs.retain(|made| *made != program);
        self.cl.release_program(program)
    }

    fn logs(&self, program: Program) -> String {
        let log = |device: &Device| self.cl.build_log(program, *device).unwrap_or_default();
        self.devices.iter().map(log).collect()
    }

    /// A kernel of a program, with its arguments.
    pub(crate) fn kernel(
        &self,
        program: Program,
        name: &str,
        arguments: &[Argument],
    ) -> Result<Kernel, ClError> {
        let name = CString::new(name).unwrap_or_default();
        let kernel = self.cl.kernel(program, &name)?;
        self.made.borrow_mut().kernels.push(kernel);
        for (index, argument) in (0..).zip(arguments) {
            self.cl.set_argument(kernel, index, *argument)?;
        }
        Ok(kernel)
    }

    /// A read-write buffer that the devices share.
    pub(crate) fn buffer(&self, size: usize) -> Result<Memory, ClError> {
        let memory = self.cl.buffer(self.context, size)?;
        self.made.borrow_mut().memory.push(memory);
        Ok(memory)
    }

    /// A part of a buffer. `origin` is a multiple of [`Devices::alignment`].
    pub(crate) fn part(
        &self,
        memory: Memory,
        origin: usize,
        size: usize,
    ) -> Result<Memory, ClError> {
        let part = self.cl.part(memory, origin, size)?;
        self.made.borrow_mut().memory.push(part);
        Ok(part)
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.forget_events();
        let made = self.made.take();
        // Errors mean that a session is lost, and its objects with it.
        for kernel in made.kernels {
            let _ = self.cl.release_kernel(kernel);
        }
        for program in made.programs {
            let _ = self.cl.release_program(program);
        }
        // Parts were made after their buffers, and are released before them.
        for memory in made.memory.into_iter().rev() {
            let _ = self.cl.release_memory(memory);
        }
        for queue in &self.queues {
            let _ = self.cl.release_queue(*queue);
        }
        let _ = self.cl.release_context(self.context);
    }
}
