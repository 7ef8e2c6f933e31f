//! Kernels and their arguments.
//!
//! Launches are in `launch`, info in `kernel_info`. Invariant: a kernel keeps no argument
//! alive. A launch keeps what it needs.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cl_headers::types::*;
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{ClResult, Code, ensure, fail};
use crate::launch::{Behaviour, behaviour};
use crate::memory::Memory;
use crate::object::{Object, Ref, Weak, body};
use crate::program::Program;
use crate::queue::Queue;
use crate::sampler::Sampler;
use crate::source::{Parameter, Signature};
use crate::{arg, tag};

/// An argument as it is set.
#[derive(Clone)]
pub(crate) enum Value {
    Bytes(Box<[u8]>),
    /// `None` is a NULL pointer.
    Memory(Option<Weak<Memory>>),
    Local(usize),
    Sampler(Weak<Sampler>),
    Queue(Weak<Queue>),
}

/// The values of all arguments; `None` if unset. Shared with launches, and copied when changed.
pub(crate) type Values = Arc<Vec<Option<Value>>>;

/// The body of a kernel.
pub(crate) struct Kernel {
    pub(crate) program: Ref<Program>,
    pub(crate) signature: Arc<Signature>,
    pub(crate) values: Mutex<Values>,
    /// The devices that the kernel was built for. They do not change, because a program with
    /// kernels cannot be built.
    pub(crate) devices: Vec<Ref<Device>>,
    /// The effect of launches, for kernels that have one.
    pub(crate) behaviour: Option<Behaviour>,
}

body!(Kernel, tag::KERNEL, CL_INVALID_KERNEL);

impl Drop for Kernel {
    fn drop(&mut self) {
        self.program.kernels.fetch_sub(1, Ordering::Release);
    }
}

impl Kernel {
    fn create(program: &Object<Program>, signature: Arc<Signature>, values: Values) -> Ref<Self> {
        program.kernels.fetch_add(1, Ordering::AcqRel);
        let builds = program.builds.lock();
        let built = program.devices.iter().zip(builds.iter());
        let built = built.filter(|(_, build)| build.executable().is_some());
        Ref::new(Self {
            devices: built.map(|(device, _)| device.clone()).collect(),
            program: program.hold(),
            behaviour: behaviour(&signature),
            signature,
            values: Mutex::new(values),
        })
    }

    fn unset(program: &Object<Program>, signature: Arc<Signature>) -> Ref<Self> {
        let values = Arc::new(vec![None; signature.arguments.len()]);
        Self::create(program, signature, values)
    }

    pub(crate) fn built_for(&self, device: &Object<Device>) -> bool {
        self.devices
            .iter()
            .any(|own| own.handle() == device.handle())
    }

    /// Checks a value for a parameter.
    ///
    /// # Safety
    /// `size` and `value` are those of `clSetKernelArg`.
    unsafe fn value(
        &self,
        parameter: &Parameter,
        size: size_t,
        value: *const c_void,
    ) -> ClResult<Value> {
        let handle = || {
            ensure(size == size_of::<*mut c_void>(), CL_INVALID_ARG_SIZE)?;
            // SAFETY: `value` has this size, or is NULL.
            ClResult::Ok(
                unsafe { arg::list(1, value.cast::<*mut c_void>()) }
                    .first()
                    .copied()
                    .unwrap_or(std::ptr::null_mut()),
            )
        };
        match parameter {
            Parameter::Memory | Parameter::Image | Parameter::Pipe => {
                let handle = handle()?;
                if handle.is_null() {
                    ensure(*parameter == Parameter::Memory, CL_INVALID_ARG_VALUE)?;
                    return Ok(Value::Memory(None));
                }
                // SAFETY: the application passes a handle that it got from this driver, or NULL.
                let memory = unsafe { Object::<Memory>::borrow(handle) }?;
                let suits = match parameter {
                    Parameter::Image => memory.image.is_some(),
                    Parameter::Pipe => memory.pipe.is_some(),
                    _ => memory.is_buffer(),
                };
                ensure(suits, CL_INVALID_MEM_OBJECT)?;
                let context = self.program.context.handle();
                ensure(memory.context.handle() == context, CL_INVALID_MEM_OBJECT)?;
                Ok(Value::Memory(Some(memory.weak())))
            }
            Parameter::Sampler => {
                let handle = handle()?;
                ensure(!value.is_null(), CL_INVALID_ARG_VALUE)?;
                // SAFETY: the application passes a handle that it got from this driver, or NULL.
                let sampler = unsafe { Object::<Sampler>::borrow(handle) }?;
                Ok(Value::Sampler(sampler.weak()))
            }
            Parameter::Queue => {
                ensure(!value.is_null(), CL_INVALID_ARG_VALUE)?;
                // SAFETY: the application passes a handle that it got from this driver, or NULL.
                let queue = unsafe { Object::<Queue>::borrow(handle()?) };
                let queue = queue.or(fail(CL_INVALID_DEVICE_QUEUE))?;
                let own = queue.context.handle() == self.program.context.handle();
                let fits = own && queue.on_device.is_some();
                ensure(fits, CL_INVALID_DEVICE_QUEUE)?;
                Ok(Value::Queue(queue.weak()))
            }
            Parameter::Local => {
                ensure(value.is_null(), CL_INVALID_ARG_VALUE)?;
                ensure(size > 0, CL_INVALID_ARG_SIZE)?;
                Ok(Value::Local(size))
            }
            Parameter::Value(known) => {
                ensure(!value.is_null(), CL_INVALID_ARG_VALUE)?;
                let fits = known.map_or(size > 0, |known| known == size);
                ensure(fits, CL_INVALID_ARG_SIZE)?;
                // SAFETY: `value` has this size.
                let bytes = unsafe { arg::list(size, value.cast::<u8>()) };
                Ok(Value::Bytes(bytes.into()))
            }
        }
    }
}

/// Returns the bytes of local memory that the arguments set so far require.
pub(crate) fn local_memory(values: &Values) -> u64 {
    let sizes = values.iter().map(|value| match value {
        Some(Value::Local(size)) => *size as u64,
        _ => 0,
    });
    sizes.sum()
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use super::*;
    use crate::log;

    pub(crate) use crate::kernel_info::api::*;

    pub(crate) unsafe fn clCreateKernel(
        program: cl_program,
        kernel_name: *const c_char,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_kernel> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let program = unsafe { Object::<Program>::borrow(program) }?;
        ensure(!kernel_name.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the application passes a string that ends with NUL.
        let name = unsafe { arg::text(kernel_name) };
        let mut kernels = program.signatures()?.into_iter();
        let signature = kernels.find(|kernel| kernel.name == name);
        let signature = signature.ok_or(Code(CL_INVALID_KERNEL_NAME))?;
        Ok(Kernel::unset(program, signature).publish())
    }

    pub(crate) unsafe fn clCreateKernelsInProgram(
        program: cl_program,
        num_kernels: cl_uint,
        kernels: *mut cl_kernel,
        num_kernels_ret: *mut cl_uint,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let program = unsafe { Object::<Program>::borrow(program) }?;
        let signatures = program.signatures()?;
        if !kernels.is_null() {
            ensure(num_kernels as usize >= signatures.len(), CL_INVALID_VALUE)?;
            for (place, signature) in signatures.iter().enumerate() {
                let kernel = Kernel::unset(program, signature.clone()).publish();
                log::note("kernel", || {
                    format!("{}:{}", log::handle(kernel as u64), signature.name)
                });
                // SAFETY: the application's array is long enough, as checked above.
                unsafe { kernels.add(place).write(kernel) };
            }
        }
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { arg::put(num_kernels_ret, signatures.len() as cl_uint) };
        Ok(())
    }

    pub(crate) unsafe fn clCloneKernel(
        kernel: cl_kernel,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_kernel> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let kernel = unsafe { Object::<Kernel>::borrow(kernel) }?;
        let values = kernel.values.lock().clone();
        let clone = Kernel::create(&kernel.program, kernel.signature.clone(), values);
        Ok(clone.publish())
    }

    pub(crate) unsafe fn clRetainKernel(kernel: cl_kernel) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Kernel>::borrow(kernel) }?.retain();
        Ok(())
    }

    pub(crate) unsafe fn clReleaseKernel(kernel: cl_kernel) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Kernel>::borrow(kernel) }?.release()
    }

    pub(crate) unsafe fn clSetKernelArg(
        kernel: cl_kernel,
        index: cl_uint,
        size: size_t,
        value: *const c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let kernel = unsafe { Object::<Kernel>::borrow(kernel) }?;
        let argument = kernel.signature.arguments.get(index as usize);
        let argument = argument.ok_or(Code(CL_INVALID_ARG_INDEX))?;
        // SAFETY: the caller keeps the same contract.
        let value = unsafe { kernel.value(&argument.parameter, size, value) }?;
        log::note("value", || show(Some(&value)));
        let mut values = kernel.values.lock();
        Arc::make_mut(&mut values)[index as usize] = Some(value);
        Ok(())
    }
}

/// Formats a value for the log.
pub(crate) fn show(value: Option<&Value>) -> String {
    match value {
        None => "unset".to_owned(),
        Some(Value::Bytes(bytes)) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Some(Value::Memory(None)) => "null".to_owned(),
        Some(Value::Memory(Some(memory))) => memory.upgrade().map_or("dead".to_owned(), |memory| {
            crate::log::handle(memory.handle() as u64)
        }),
        Some(Value::Local(size)) => format!("local:{size}"),
        Some(Value::Sampler(sampler)) => sampler.upgrade().map_or("dead".to_owned(), |sampler| {
            crate::log::handle(sampler.handle() as u64)
        }),
        Some(Value::Queue(queue)) => queue.upgrade().map_or("dead".to_owned(), |queue| {
            crate::log::handle(queue.handle() as u64)
        }),
    }
}
