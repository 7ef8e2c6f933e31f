//! Programs: creation from source, binaries, IL or built-in kernels, or by linking.
//!
//! Other modules build programs (`program_build`) and read their text (`build`). Invariant: `builds` has
//! one entry for each device, in the order of `devices`.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cl_headers::types::*;
use parking_lot::Mutex;

use crate::build;
use crate::context::Context;
use crate::device::Device;
use crate::error::{ClResult, Code, ensure, fail};
use crate::object::{Object, Ref, body};
use crate::source::Signature;
use crate::{arg, tag};

/// The origin of a program.
pub(crate) enum Origin {
    Source(String),
    /// The module, and the declarations of its kernels.
    Il(Vec<u8>, String),
    Binary,
    BuiltIn,
    Linked,
}

/// The last build for one device.
#[derive(Clone)]
pub(crate) struct Build {
    pub(crate) status: cl_build_status,
    pub(crate) options: String,
    pub(crate) log: String,
    /// The compiled form of the program for this device, if any.
    pub(crate) object: Option<Arc<build::Object>>,
}

impl Build {
    pub(crate) fn none(object: Option<build::Object>) -> Self {
        Self {
            status: CL_BUILD_NONE,
            options: String::new(),
            log: String::new(),
            object: object.map(Arc::new),
        }
    }

    /// Records the outcome of a build.
    pub(crate) fn of(options: &str, outcome: Result<build::Object, String>) -> Self {
        let (status, log, object) = match outcome {
            Ok(object) => (CL_BUILD_SUCCESS, String::new(), Some(Arc::new(object))),
            Err(log) => (CL_BUILD_ERROR, log + "\n", None),
        };
        Self {
            status,
            options: options.to_owned(),
            log,
            object,
        }
    }

    pub(crate) fn kind(&self) -> cl_program_binary_type {
        let object = self.object.as_ref();
        object.map_or(CL_PROGRAM_BINARY_TYPE_NONE, |object| object.kind)
    }

    /// Returns the object that kernels are made from, if the build has succeeded.
    pub(crate) fn executable(&self) -> Option<&Arc<build::Object>> {
        let built = self.status == CL_BUILD_SUCCESS;
        let object = self.object.as_ref().filter(|_| built);
        object.filter(|object| object.kind == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
    }
}

/// The body of a program.
pub(crate) struct Program {
    pub(crate) context: Ref<Context>,
    pub(crate) devices: Vec<Ref<Device>>,
    pub(crate) origin: Origin,
    pub(crate) builds: Mutex<Vec<Build>>,
    /// The number of existing kernels of this program.
    pub(crate) kernels: AtomicUsize,
}

body!(Program, tag::PROGRAM, CL_INVALID_PROGRAM);

impl Program {
    pub(crate) fn create(
        context: &Object<Context>,
        devices: Vec<Ref<Device>>,
        origin: Origin,
        builds: Vec<Build>,
    ) -> Ref<Self> {
        Ref::new(Self {
            context: context.hold(),
            devices,
            origin,
            builds: Mutex::new(builds),
            kernels: AtomicUsize::new(0),
        })
    }

    /// Makes a program that is not built for any device yet.
    fn unbuilt(context: &Object<Context>, origin: Origin) -> Ref<Self> {
        let builds = vec![Build::none(None); context.devices.len()];
        Self::create(context, context.devices.clone(), origin, builds)
    }

    /// Returns the kernels that are the same for all devices the program is built for.
    pub(crate) fn signatures(&self) -> ClResult<Vec<Arc<Signature>>> {
        let builds = self.builds.lock();
        let mut executables = builds.iter().filter_map(Build::executable);
        let first = executables
            .next()
            .ok_or(Code(CL_INVALID_PROGRAM_EXECUTABLE))?;
        Ok(first.kernels.clone())
    }

    pub(crate) fn place_of(&self, device: &Object<Device>) -> ClResult<usize> {
        let mut own = self.devices.iter();
        let place = own.position(|own| own.handle() == device.handle());
        place.ok_or(Code(CL_INVALID_DEVICE))
    }

    /// Returns the places of the devices that a call names, or all places if the call names none.
    ///
    /// # Safety
    /// The application passes the list.
    pub(crate) unsafe fn places(
        &self,
        count: cl_uint,
        list: *const cl_device_id,
    ) -> ClResult<Vec<usize>> {
        ensure((count == 0) == list.is_null(), CL_INVALID_VALUE)?;
        if list.is_null() {
            return Ok((0..self.devices.len()).collect());
        }
        // SAFETY: the application passes a list as OpenCL requires.
        let devices = unsafe { arg::objects::<Device>(count, list) }?;
        devices
            .into_iter()
            .map(|device| self.place_of(device))
            .collect()
    }

    pub(crate) fn ensure_no_kernels(&self) -> ClResult {
        let kernels = self.kernels.load(Ordering::Acquire);
        ensure(kernels == 0, CL_INVALID_OPERATION)
    }
}

/// Returns a list of devices of the context. The list must not be empty.
///
/// # Safety
/// The application passes the list.
pub(crate) unsafe fn devices_of(
    context: &Context,
    count: cl_uint,
    list: *const cl_device_id,
) -> ClResult<Vec<Ref<Device>>> {
    ensure(count > 0 && !list.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: the application passes a list as OpenCL requires.
    let devices = unsafe { arg::objects::<Device>(count, list) }?;
    ensure(
        devices.iter().all(|device| context.has(device)),
        CL_INVALID_DEVICE,
    )?;
    Ok(devices.into_iter().map(Object::hold).collect())
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;
    use crate::device::BUILT_IN_SOURCE;
    use crate::{il, log, source};

    pub(crate) use crate::program_build::api::*;
    pub(crate) use crate::program_info::api::*;

    pub(crate) unsafe fn clCreateProgramWithSource(
        context: cl_context,
        count: cl_uint,
        strings: *mut *const c_char,
        lengths: *const size_t,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_program> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        ensure(count > 0 && !strings.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the application passes a list as OpenCL requires.
        let strings = unsafe { arg::list(count as usize, strings.cast_const()) };
        // SAFETY: the application passes a list of the same length.
        let lengths = unsafe { arg::list(count as usize, lengths) };
        let mut text = Vec::new();
        for (place, &string) in strings.iter().enumerate() {
            ensure(!string.is_null(), CL_INVALID_VALUE)?;
            text.extend_from_slice(match lengths.get(place) {
                // SAFETY: the string ends with NUL.
                None | Some(0) => unsafe { std::ffi::CStr::from_ptr(string) }.to_bytes(),
                // SAFETY: the string has this length.
                Some(&length) => unsafe { arg::list(length, string.cast::<u8>()) },
            });
        }
        log::note("source", || log::digest([&text[..]]));
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Program::unbuilt(context, Origin::Source(text)).publish())
    }

    pub(crate) unsafe fn clCreateProgramWithIL(
        context: cl_context,
        il: *const c_void,
        length: size_t,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_program> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        let able = context.devices.iter().any(|device| device.settings.il);
        ensure(able, CL_INVALID_OPERATION)?;
        ensure(!il.is_null() && length > 0, CL_INVALID_VALUE)?;
        // SAFETY: the application passes as many bytes as OpenCL requires.
        let module = unsafe { arg::list(length, il.cast::<u8>()) };
        log::note("il", || log::digest([module]));
        let declarations = il::declarations(module).ok_or(Code(CL_INVALID_VALUE))?;
        let origin = Origin::Il(module.to_vec(), declarations);
        Ok(Program::unbuilt(context, origin).publish())
    }

    pub(crate) unsafe fn clCreateProgramWithBinary(
        context: cl_context,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        lengths: *const size_t,
        binaries: *mut *const c_uchar,
        binary_status: *mut cl_int,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_program> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        // SAFETY: the application passes a list as OpenCL requires.
        let devices = unsafe { devices_of(context, num_devices, device_list) }?;
        ensure(!lengths.is_null() && !binaries.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the application passes a length for each device.
        let lengths = unsafe { arg::list(devices.len(), lengths) };
        // SAFETY: the application passes a binary for each device.
        let binaries = unsafe { arg::list(devices.len(), binaries.cast_const()) };
        let mut builds = Vec::new();
        let mut outcome = Ok(());
        for (place, device) in devices.iter().enumerate() {
            let given = !binaries[place].is_null() && lengths[place] > 0;
            let status = if given {
                // SAFETY: the application passes as many bytes as OpenCL requires.
                let bytes = unsafe { arg::list(lengths[place], binaries[place]) };
                log::note("binary", || log::digest([bytes]));
                let object = build::Object::from_binary(&device.settings.name, bytes);
                let good = object.is_some();
                builds.push(Build::none(object));
                if good { CL_SUCCESS } else { CL_INVALID_BINARY }
            } else {
                builds.push(Build::none(None));
                CL_INVALID_VALUE
            };
            if !binary_status.is_null() {
                // SAFETY: the array has an element for each device.
                unsafe { binary_status.add(place).write(status) };
            }
            if status != CL_SUCCESS && outcome.is_ok() {
                outcome = fail(status);
            }
        }
        outcome?;
        Ok(Program::create(context, devices, Origin::Binary, builds).publish())
    }

    pub(crate) unsafe fn clCreateProgramWithBuiltInKernels(
        context: cl_context,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        kernel_names: *const c_char,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_program> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        // SAFETY: the application passes a list as OpenCL requires.
        let devices = unsafe { devices_of(context, num_devices, device_list) }?;
        ensure(!kernel_names.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the application passes a string that ends with NUL.
        let names = unsafe { arg::text(kernel_names) };
        let offered = source::kernels(BUILT_IN_SOURCE);
        let mut declarations = String::new();
        for name in names.split(';').map(str::trim) {
            ensure(
                offered.iter().any(|kernel| kernel.name == name),
                CL_INVALID_VALUE,
            )?;
            let mut lines = BUILT_IN_SOURCE.lines();
            declarations.extend(lines.find(|line| line.contains(&format!(" {name}("))));
        }
        let kind = CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
        let object = Ok(build::Object::new(kind, true, declarations));
        let builds = vec![Build::of("", object); devices.len()];
        Ok(Program::create(context, devices, Origin::BuiltIn, builds).publish())
    }

    pub(crate) unsafe fn clRetainProgram(program: cl_program) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Program>::borrow(program) }?.retain();
        Ok(())
    }

    pub(crate) unsafe fn clReleaseProgram(program: cl_program) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Program>::borrow(program) }?.release()
    }

    pub(crate) unsafe fn clSetProgramReleaseCallback(
        program: cl_program,
        _pfn_notify: ProgramCallback,
        _user_data: *mut c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Program>::borrow(program) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clSetProgramSpecializationConstant(
        program: cl_program,
        _id: cl_uint,
        size: size_t,
        value: *const c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let program = unsafe { Object::<Program>::borrow(program) }?;
        // The fake driver does not parse the constants of a module, so every constant is accepted.
        ensure(matches!(program.origin, Origin::Il(..)), CL_INVALID_PROGRAM)?;
        ensure(!value.is_null() && size > 0, CL_INVALID_VALUE)?;
        // SAFETY: the application passes as many bytes as OpenCL requires.
        let value = unsafe { arg::list(size, value.cast::<u8>()) };
        log::note("value", || log::digest([value]));
        Ok(())
    }
}
