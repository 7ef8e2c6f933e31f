//! `clBuildProgram`, `clCompileProgram`, `clLinkProgram`.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::limits::MAX_LIST;
use cl_headers::types::*;
use rustc_hash::FxHashSet;

use super::{devices_among, entry_points, object};
use crate::api::handle;
use crate::api::info::{c_bytes, list};
use crate::error::{ClResult, Status, fail, require};
use crate::stub::{BuildNotify, BuildRequest, Context, Device, Origin, Program, Verb};

/// The application's callback of a build.
///
/// # Errors
/// `CL_INVALID_VALUE` for data without a callback.
fn notify_of(callback: ProgramCallback, user_data: *mut c_void) -> ClResult<Option<BuildNotify>> {
    let Some(callback) = callback else {
        require(user_data.is_null(), CL_INVALID_VALUE)?;
        return Ok(None);
    };
    let user_data = user_data.expose_provenance();
    Ok(Some(Box::new(move |program: &Arc<Program>| {
        let user_data = std::ptr::with_exposed_provenance_mut(user_data);
        // SAFETY: the application gave callback and data for exactly this call, from any thread.
        unsafe { callback(handle::raw_of(program), user_data) };
    })))
}

/// Options as given; empty for NULL.
///
/// # Safety
/// NULL or a C string.
unsafe fn options_of(options: *const c_char) -> Bytes {
    // SAFETY: the caller's promise.
    let given = unsafe { c_bytes(options, CL_INVALID_VALUE) };
    given.map_or_else(|_| Bytes::new(), Bytes::copy_from_slice)
}

fn require_on_all(devices: &[Arc<Device>], feature: cl_device_info, code: cl_int) -> ClResult {
    require(
        devices.iter().all(|device| device.number(feature) != 0),
        code,
    )
}

/// Headers by the name that includes them.
///
/// # Safety
/// The specification's contract: both NULL, or `count` elements each.
unsafe fn headers_of(
    count: cl_uint,
    programs: *const cl_program,
    names: *const *const c_char,
) -> ClResult<Vec<(Bytes, Arc<Program>)>> {
    let given = count > 0;
    require(
        programs.is_null() != given && names.is_null() != given,
        CL_INVALID_VALUE,
    )?;
    // SAFETY: NULL with 0, otherwise `count` elements each.
    let (programs, names) =
        unsafe { (list(programs, count as usize), list(names, count as usize)) };
    let pairs = programs.iter().zip(names).map(|(&program, &name)| {
        let program = handle::resolve::<Program>(program)?;
        // SAFETY: the specification's contract of a C string.
        let name = unsafe { c_bytes(name, CL_INVALID_VALUE)? };
        Ok((Bytes::copy_from_slice(name), program))
    });
    pairs.collect()
}

/// "If multiple entries in header_include_names refer to the same header name, the first one encountered will be used."
///
/// # Errors
/// `CL_OUT_OF_HOST_MEMORY` for more names than a worker takes.
fn distinct(mut headers: Vec<(Bytes, Arc<Program>)>) -> ClResult<Vec<(Bytes, Arc<Program>)>> {
    let mut seen = FxHashSet::default();
    headers.retain(|(name, _)| seen.insert(name.clone()));
    require(headers.len() <= MAX_LIST, CL_OUT_OF_HOST_MEMORY)?;
    Ok(headers)
}

/// The devices for which all inputs can be linked; an input that some have and others lack is wrong.
///
/// # Errors
/// `CL_INVALID_OPERATION` when the rules for the devices are not followed.
fn linkable(devices: Vec<Arc<Device>>, inputs: &[Arc<Program>]) -> ClResult<Vec<Arc<Device>>> {
    let mut chosen = Vec::new();
    for device in devices {
        let mut able = 0;
        for input in inputs {
            able += usize::from(input.can_be_linked(&device)?);
        }
        require(able == 0 || able == inputs.len(), CL_INVALID_OPERATION)?;
        if able > 0 {
            chosen.push(device);
        }
    }
    require(!chosen.is_empty(), CL_INVALID_OPERATION)?;
    Ok(chosen)
}

entry_points! {
    fn clBuildProgram(
        program: cl_program, num_devices: cl_uint, device_list: *const cl_device_id,
        options: *const c_char, pfn_notify: ProgramCallback, user_data: *mut c_void,
    ) {
        let program = handle::resolve::<Program>(program)?;
        // SAFETY: the specification's contract of a device list.
        let devices = unsafe { devices_among(program.devices(), num_devices, device_list)? };
        let buildable = matches!(program.origin(), Origin::Source(_) | Origin::Il(_) | Origin::Binaries);
        require(buildable, CL_INVALID_OPERATION)?;
        program.check_idle()?;
        let notify = notify_of(pfn_notify, user_data)?;
        // SAFETY: the specification's contract of options.
        let text = unsafe { options_of(options) };
        if matches!(program.origin(), Origin::Source(_) | Origin::Il(_)) {
            require_on_all(&devices, CL_DEVICE_COMPILER_AVAILABLE, CL_COMPILER_NOT_AVAILABLE)?;
        }
        let verb = Verb::Build { null_options: options.is_null() };
        program.build(BuildRequest { verb, devices, options: text }, notify)
    }

    fn clCompileProgram(
        program: cl_program, num_devices: cl_uint, device_list: *const cl_device_id,
        options: *const c_char, num_input_headers: cl_uint, input_headers: *const cl_program,
        header_include_names: *mut *const c_char, pfn_notify: ProgramCallback, user_data: *mut c_void,
    ) {
        let program = handle::resolve::<Program>(program)?;
        // SAFETY: the specification's contract of a device list.
        let devices = unsafe { devices_among(program.devices(), num_devices, device_list)? };
        // SAFETY: the specification's contract of headers and names.
        let headers = unsafe { headers_of(num_input_headers, input_headers, header_include_names)? };
        let same = headers.iter().all(|(_, header)| Arc::ptr_eq(header.context(), program.context()));
        require(same, CL_INVALID_PROGRAM)?;
        let sources = headers.iter().all(|(_, header)| matches!(header.origin(), Origin::Source(_)));
        require(sources, CL_INVALID_PROGRAM)?;
        let can_be_compiled = matches!(program.origin(), Origin::Source(_) | Origin::Il(_));
        require(can_be_compiled, CL_INVALID_OPERATION)?;
        program.check_idle()?;
        let notify = notify_of(pfn_notify, user_data)?;
        // SAFETY: the specification's contract of options.
        let options = unsafe { options_of(options) };
        require_on_all(&devices, CL_DEVICE_COMPILER_AVAILABLE, CL_COMPILER_NOT_AVAILABLE)?;
        let verb = Verb::Compile { headers: distinct(headers)? };
        program.build(BuildRequest { verb, devices, options }, notify)
    }
}

/// What `clLinkProgram` gives back besides a code: a program also when linking failed.
struct Linked {
    program: cl_program,
    status: Status,
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's")]
fn link(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    num_input_programs: cl_uint,
    input_programs: *const cl_program,
    pfn_notify: ProgramCallback,
    user_data: *mut c_void,
) -> ClResult<Linked> {
    let context = handle::resolve::<Context>(context)?;
    // SAFETY: the specification's contract of a device list.
    let devices = unsafe { devices_among(context.devices(), num_devices, device_list)? };
    require(
        num_input_programs > 0 && !input_programs.is_null(),
        CL_INVALID_VALUE,
    )?;
    // SAFETY: not NULL, with as many handles.
    let inputs = unsafe { list(input_programs, num_input_programs as usize) };
    let inputs = inputs
        .iter()
        .map(|&raw| handle::resolve::<Program>(raw))
        .collect::<ClResult<Vec<_>>>()?;
    let same = inputs
        .iter()
        .all(|input| Arc::ptr_eq(input.context(), &context));
    require(same, CL_INVALID_PROGRAM)?;
    // Where nothing can be linked, what there is to link does not matter.
    require_on_all(
        &devices,
        CL_DEVICE_LINKER_AVAILABLE,
        CL_LINKER_NOT_AVAILABLE,
    )?;
    let targets = linkable(devices.clone(), &inputs)?;
    let notify = notify_of(pfn_notify, user_data)?;
    // SAFETY: the specification's contract of options.
    let options = unsafe { options_of(options) };
    // A worker takes no longer list, and dropping one that is named twice would change the outcome.
    require(inputs.len() <= MAX_LIST, CL_OUT_OF_HOST_MEMORY)?;

    let waits = notify.is_none();
    let stub = Program::to_link(&context, devices, &inputs);
    // Before it is sent: the callback may run before this call returns, with the same handle.
    let program = handle::publish(stub.clone());
    let request = BuildRequest {
        verb: Verb::Link { inputs },
        devices: targets,
        options,
    };
    match stub.build(request, notify) {
        Ok(()) => Ok(Linked {
            program,
            status: Status::SUCCESS,
        }),
        // The program is there for its log's sake.
        Err(status) if waits && status.0 == CL_LINK_PROGRAM_FAILURE => {
            Ok(Linked { program, status })
        }
        Err(status) => {
            handle::release::<Program>(program)?;
            fail(status.0)
        }
    }
}

/// Not by `entry_points!`: a failed link gives a program *and* a code.
#[allow(non_snake_case, reason = "OpenCL's name")]
pub(crate) unsafe extern "C" fn clLinkProgram(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    num_input_programs: cl_uint,
    input_programs: *const cl_program,
    pfn_notify: ProgramCallback,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_program {
    let mut status = Status::SUCCESS;
    let body = || {
        let linked = link(
            context,
            num_devices,
            device_list,
            options,
            num_input_programs,
            input_programs,
            pfn_notify,
            user_data,
        )?;
        status = linked.status;
        Ok(linked.program)
    };
    // SAFETY: the specification lets the caller pass NULL or a writable cl_int.
    let program = unsafe { object("clLinkProgram", errcode_ret, body) };
    if status.is_error() {
        super::super::entry::trace_failure("clLinkProgram", status);
        if !errcode_ret.is_null() {
            // SAFETY: not NULL, so writable.
            unsafe { errcode_ret.write(status.0) };
        }
    }
    program
}
