//! Building, compiling and linking of programs, and the callbacks of these calls.
//!
//! Each call does all its work before it returns. With a callback, only the callback reports the outcome.
//! Invariant: a build's status and log are final before its callback runs.

use std::ffi::{c_char, c_void};

use cl_headers::types::*;

use crate::build::{self, Options};
use crate::context::Context;
use crate::device::Device;
use crate::device_info;
use crate::error::{ClResult, Code, ensure, fail};
use crate::object::{Object, Ref};
use crate::program::{Build, Origin, Program, devices_of};
use crate::{arg, engine};

/// A build's callback with its user data.
#[derive(Clone, Copy)]
struct Notify {
    function: ProgramCallback,
    user_data: usize,
}

impl Notify {
    fn new(function: ProgramCallback, user_data: *mut c_void) -> ClResult<Self> {
        let without = function.is_none() && !user_data.is_null();
        ensure(!without, CL_INVALID_VALUE)?;
        Ok(Self {
            function,
            user_data: user_data.addr(),
        })
    }

    /// Calls the callback if there is one. The call then succeeds, and the build holds the outcome.
    fn deliver(self, program: Ref<Program>, outcome: ClResult) -> ClResult {
        let Some(function) = self.function else {
            return outcome;
        };
        engine::notify_soon(Box::new(move || {
            program.lend();
            // SAFETY: the application registered this function, and it is called once.
            unsafe { function(program.handle(), self.user_data as *mut c_void) };
            // An application that releases the program once too often must bear the result itself.
            let _ = program.release();
        }));
        Ok(())
    }
}

/// Builds if `headers` is absent, otherwise compiles.
fn build(
    program: &Object<Program>,
    places: &[usize],
    text: &str,
    options: &Options,
    headers: Option<&[(String, String)]>,
) -> ClResult {
    let kind = match headers {
        None => CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
        Some(_) => CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT,
    };
    let mut builds = program.builds.lock();
    let mut failed = false;
    for &place in places {
        let known = builds[place].object.clone();
        let outcome = match (&program.origin, known) {
            (Origin::Source(source), _) => {
                let extensions = device_info::extensions(&program.devices[place]);
                let options = options.on_device(extensions.iter().map(|(name, _)| *name));
                build::compile(source, &options, headers.unwrap_or_default(), kind)
            }
            (Origin::Il(_, declarations), _) => build::compile(declarations, options, &[], kind),
            (_, Some(object)) => build::link(&[&*object], options),
            (_, None) => return fail(CL_INVALID_BINARY),
        };
        failed |= outcome.is_err();
        builds[place] = Build::of(text, outcome);
    }
    match (failed, headers) {
        (false, _) => Ok(()),
        (true, None) => fail(CL_BUILD_PROGRAM_FAILURE),
        (true, Some(_)) => fail(CL_COMPILE_PROGRAM_FAILURE),
    }
}

/// Links the inputs' objects for each device.
fn link(
    context: &Object<Context>,
    devices: Vec<Ref<Device>>,
    inputs: &[&Object<Program>],
    text: &str,
    options: &Options,
) -> ClResult<(Ref<Program>, bool)> {
    let mut builds = Vec::new();
    for device in &devices {
        let objects = inputs.iter().map(|input| {
            let place = input.place_of(device).ok()?;
            let object = input.builds.lock()[place].object.clone()?;
            (object.kind != CL_PROGRAM_BINARY_TYPE_EXECUTABLE).then_some(object)
        });
        let objects: Vec<_> = objects.collect();
        let present = objects.iter().flatten().count();
        let all_or_none = present == 0 || present == inputs.len();
        ensure(all_or_none, CL_INVALID_OPERATION)?;
        builds.push(if present == 0 {
            Build::none(None)
        } else {
            let objects: Vec<_> = objects.iter().flatten().map(|object| &**object).collect();
            Build::of(text, build::link(&objects, options))
        });
    }
    let some = builds.iter().any(|build| build.status != CL_BUILD_NONE);
    ensure(some, CL_INVALID_OPERATION)?;
    let failed = builds.iter().any(|build| build.status == CL_BUILD_ERROR);
    let program = Program::create(context, devices, Origin::Linked, builds);
    Ok((program, failed))
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;
    use crate::{entry, log};

    pub(crate) unsafe fn clBuildProgram(
        program: cl_program,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        options: *const c_char,
        pfn_notify: ProgramCallback,
        user_data: *mut c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let program = unsafe { Object::<Program>::borrow(program) }?;
        // SAFETY: the application passes a list as OpenCL requires.
        let places = unsafe { program.places(num_devices, device_list) }?;
        let notify = Notify::new(pfn_notify, user_data)?;
        // SAFETY: the application passes a string that ends with NUL.
        let text = unsafe { arg::text(options) };
        let options = Options::parse(&text, CL_INVALID_BUILD_OPTIONS)?;
        program.ensure_no_kernels()?;
        let linked = matches!(program.origin, Origin::Linked | Origin::BuiltIn);
        ensure(!linked, CL_INVALID_OPERATION)?;
        let outcome = build(program, &places, &text, &options, None);
        notify.deliver(program.hold(), outcome)
    }

    pub(crate) unsafe fn clCompileProgram(
        program: cl_program,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        options: *const c_char,
        num_input_headers: cl_uint,
        input_headers: *const cl_program,
        header_include_names: *mut *const c_char,
        pfn_notify: ProgramCallback,
        user_data: *mut c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let program = unsafe { Object::<Program>::borrow(program) }?;
        // SAFETY: the application passes a list as OpenCL requires.
        let places = unsafe { program.places(num_devices, device_list) }?;
        let none = num_input_headers == 0;
        let matching = none == input_headers.is_null() && none == header_include_names.is_null();
        ensure(matching, CL_INVALID_VALUE)?;
        let notify = Notify::new(pfn_notify, user_data)?;
        // SAFETY: the application passes a list as OpenCL requires.
        let programs = unsafe { arg::objects::<Program>(num_input_headers, input_headers) }?;
        // SAFETY: the application passes a name for each header.
        let names = unsafe { arg::list(programs.len(), header_include_names.cast_const()) };
        let mut headers = Vec::new();
        for (header, &name) in programs.into_iter().zip(names) {
            let Origin::Source(source) = &header.origin else {
                return fail(CL_INVALID_OPERATION);
            };
            // SAFETY: the application passes a string that ends with NUL.
            let name = unsafe { arg::text(name) };
            log::note("header", || format!("{name:?}"));
            headers.push((name.into_owned(), source.clone()));
        }
        // SAFETY: the application passes a string that ends with NUL.
        let text = unsafe { arg::text(options) };
        let options = Options::parse(&text, CL_INVALID_COMPILER_OPTIONS)?;
        program.ensure_no_kernels()?;
        let has_source = matches!(program.origin, Origin::Source(_) | Origin::Il(..));
        ensure(has_source, CL_INVALID_OPERATION)?;
        let outcome = build(program, &places, &text, &options, Some(&headers));
        notify.deliver(program.hold(), outcome)
    }

    pub(crate) unsafe fn clLinkProgram(
        context: cl_context,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        options: *const c_char,
        num_input_programs: cl_uint,
        input_programs: *const cl_program,
        pfn_notify: ProgramCallback,
        user_data: *mut c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_program> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        ensure(
            (num_devices == 0) == device_list.is_null(),
            CL_INVALID_VALUE,
        )?;
        let devices = if device_list.is_null() {
            context.devices.clone()
        } else {
            // SAFETY: the application passes a list as OpenCL requires.
            unsafe { devices_of(context, num_devices, device_list) }?
        };
        let some = num_input_programs > 0 && !input_programs.is_null();
        ensure(some, CL_INVALID_VALUE)?;
        // SAFETY: the application passes a list as OpenCL requires.
        let inputs = unsafe { arg::objects::<Program>(num_input_programs, input_programs) }?;
        let notify = Notify::new(pfn_notify, user_data)?;
        // SAFETY: the application passes a string that ends with NUL.
        let text = unsafe { arg::text(options) };
        let options = Options::parse(&text, CL_INVALID_LINKER_OPTIONS)?;
        let (program, failed) = link(context, devices, &inputs, &text, &options)?;
        let handle = program.share();
        let outcome = ensure(!failed, CL_LINK_PROGRAM_FAILURE);
        // A failed link returns both an error and a program, whose log says why.
        if let Err(Code(code)) = notify.deliver(program, outcome) {
            entry::also_fail(code);
        }
        Ok(handle)
    }
}
