//! `clBuildProgram`, `clCompileProgram`, `clLinkProgram`.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::limits::MAX_LIST;
use cl_headers::types::*;
use rustc_hash::FxHashSet;

use super::{devices_among, entry_point, object};
use crate::api::handle;
use crate::api::info::{c_bytes, list};
use crate::error::{ClResult, Status, fail, require};
use crate::stub::{BuildNotify, BuildRequest, Context, Device, Origin, Program, Verb};

/// The application's callback for the end of a build.
///
/// # Errors
/// `CL_INVALID_VALUE` for data without a callback.
fn notify_of(callback: ProgramCallback, user_data: *mut c_void) -> ClResult<Option<BuildNotify>> {
    let Some(callback) = callback else {
        // clBuildProgram: CL_INVALID_VALUE when pfn_notify is NULL but user_data is not.
        require(user_data.is_null(), CL_INVALID_VALUE)?;
        return Ok(None);
    };
    let user_data = user_data.expose_provenance();
    Ok(Some(Box::new(move |program: &Arc<Program>| {
        let user_data = std::ptr::with_exposed_provenance_mut(user_data);
        // SAFETY: the application gave this callback and this data for exactly this call, from any thread.
        unsafe { callback(handle::raw_of(program), user_data) };
    })))
}

/// The build options as given. Empty for NULL.
///
/// # Safety
/// `options` is NULL or a C string.
unsafe fn options_of(options: *const c_char) -> Bytes {
    // SAFETY: the caller upholds this function's contract.
    let given = unsafe { c_bytes(options, CL_INVALID_VALUE) };
    given.map_or_else(|_| Bytes::new(), Bytes::copy_from_slice)
}

fn require_on_all(devices: &[Arc<Device>], feature: cl_device_info, code: cl_int) -> ClResult {
    // clBuildProgram, clCompileProgram, clLinkProgram: CL_COMPILER_NOT_AVAILABLE or CL_LINKER_NOT_AVAILABLE
    // when a device lacks what the call needs.
    require(
        devices.iter().all(|device| device.number(feature) != 0),
        code,
    )
}

/// Reads headers, each with the name by which sources include it.
///
/// # Safety
/// Both arrays are NULL or have `count` elements.
unsafe fn headers_of(
    count: cl_uint,
    programs: *const cl_program,
    names: *const *const c_char,
) -> ClResult<Vec<(Bytes, Arc<Program>)>> {
    let given = count > 0;
    // clCompileProgram: CL_INVALID_VALUE when num_input_headers is 0 and an array is not NULL, or the
    // reverse.
    require(
        programs.is_null() != given && names.is_null() != given,
        CL_INVALID_VALUE,
    )?;
    // SAFETY: both are NULL if the count is 0, and have `count` elements otherwise.
    let (programs, names) =
        unsafe { (list(programs, count as usize), list(names, count as usize)) };
    let pairs = programs.iter().zip(names).map(|(&program, &name)| {
        let program = handle::resolve::<Program>(program)?;
        // clCompileProgram: CL_INVALID_VALUE when a header name is NULL, which the specification does not
        // allow.
        // SAFETY: the specification demands a C string.
        let name = unsafe { c_bytes(name, CL_INVALID_VALUE)? };
        Ok((Bytes::copy_from_slice(name), program))
    });
    pairs.collect()
}

/// Drops headers whose name appeared before: clCompileProgram uses the first one of each name.
///
/// # Errors
/// `CL_OUT_OF_HOST_MEMORY` for more names than a worker accepts.
fn distinct(mut headers: Vec<(Bytes, Arc<Program>)>) -> ClResult<Vec<(Bytes, Arc<Program>)>> {
    let mut seen = FxHashSet::default();
    headers.retain(|(name, _)| seen.insert(name.clone()));
    // This is no rule of the specification: a worker refuses a longer list.
    require(headers.len() <= MAX_LIST, CL_OUT_OF_HOST_MEMORY)?;
    Ok(headers)
}

/// The devices for which all inputs can be linked. For each device, that must be all of the inputs or none.
///
/// # Errors
/// `CL_INVALID_OPERATION` when only some of the inputs can be linked for a device, or all of them for no
/// device.
fn linkable(devices: Vec<Arc<Device>>, inputs: &[Arc<Program>]) -> ClResult<Vec<Arc<Device>>> {
    let mut chosen = Vec::new();
    for device in devices {
        let mut able = 0;
        for input in inputs {
            able += usize::from(input.can_be_linked(&device)?);
        }
        // clLinkProgram: CL_INVALID_OPERATION when some inputs have a compiled binary for a device and
        // others have none.
        require(able == 0 || able == inputs.len(), CL_INVALID_OPERATION)?;
        if able > 0 {
            chosen.push(device);
        }
    }
    // clLinkProgram: CL_INVALID_OPERATION when the inputs have a compiled binary for none of the devices.
    require(!chosen.is_empty(), CL_INVALID_OPERATION)?;
    Ok(chosen)
}

#[entry_point]
pub(crate) fn clBuildProgram(
    program: cl_program,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    pfn_notify: ProgramCallback,
    user_data: *mut c_void,
) -> ClResult {
    let program = handle::resolve::<Program>(program)?;
    // SAFETY: the specification demands NULL or as many handles as the count says.
    let devices = unsafe { devices_among(program.devices(), num_devices, device_list)? };
    let buildable = matches!(
        program.origin(),
        Origin::Source(_) | Origin::Il(_) | Origin::Binaries
    );
    // clBuildProgram: CL_INVALID_OPERATION when the program has neither source, nor intermediate
    // language, nor binaries.
    require(buildable, CL_INVALID_OPERATION)?;
    // clBuildProgram: CL_INVALID_OPERATION when an earlier build runs or kernels are attached.
    program.check_idle()?;
    let notify = notify_of(pfn_notify, user_data)?;
    // SAFETY: the specification demands NULL or a C string.
    let text = unsafe { options_of(options) };
    if matches!(program.origin(), Origin::Source(_) | Origin::Il(_)) {
        require_on_all(
            &devices,
            CL_DEVICE_COMPILER_AVAILABLE,
            CL_COMPILER_NOT_AVAILABLE,
        )?;
    }
    let verb = Verb::Build {
        null_options: options.is_null(),
    };
    program.build(
        BuildRequest {
            verb,
            devices,
            options: text,
        },
        notify,
    )
}

#[entry_point]
pub(crate) fn clCompileProgram(
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
    let program = handle::resolve::<Program>(program)?;
    // SAFETY: the specification demands NULL or as many handles as the count says.
    let devices = unsafe { devices_among(program.devices(), num_devices, device_list)? };
    // SAFETY: the specification demands that both arrays are NULL or have as many elements as the count
    // says.
    let headers = unsafe { headers_of(num_input_headers, input_headers, header_include_names)? };
    let same = headers
        .iter()
        .all(|(_, header)| Arc::ptr_eq(header.context(), program.context()));
    // clCompileProgram: CL_INVALID_PROGRAM when a header is not a valid program of the same context.
    require(same, CL_INVALID_PROGRAM)?;
    let sources = headers
        .iter()
        .all(|(_, header)| matches!(header.origin(), Origin::Source(_)));
    // clCompileProgram: CL_INVALID_PROGRAM when a header was not created from source.
    require(sources, CL_INVALID_PROGRAM)?;
    let can_be_compiled = matches!(program.origin(), Origin::Source(_) | Origin::Il(_));
    // clCompileProgram: CL_INVALID_OPERATION when the program has neither source nor intermediate
    // language.
    require(can_be_compiled, CL_INVALID_OPERATION)?;
    // clCompileProgram: CL_INVALID_OPERATION when an earlier build runs or kernels are attached.
    program.check_idle()?;
    let notify = notify_of(pfn_notify, user_data)?;
    // SAFETY: the specification demands NULL or a C string.
    let options = unsafe { options_of(options) };
    require_on_all(
        &devices,
        CL_DEVICE_COMPILER_AVAILABLE,
        CL_COMPILER_NOT_AVAILABLE,
    )?;
    let verb = Verb::Compile {
        headers: distinct(headers)?,
    };
    program.build(
        BuildRequest {
            verb,
            devices,
            options,
        },
        notify,
    )
}

/// The result of `clLinkProgram`: it returns a program besides a code even when linking failed.
struct Linked {
    program: cl_program,
    status: Status,
}

/// Reads the programs that are linked.
///
/// # Safety
/// `programs` is NULL or has `count` elements.
unsafe fn inputs_of(
    context: &Arc<Context>,
    count: cl_uint,
    programs: *const cl_program,
) -> ClResult<Vec<Arc<Program>>> {
    // clLinkProgram: CL_INVALID_VALUE when num_input_programs is 0 or input_programs is NULL.
    require(count > 0 && !programs.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: the caller upholds this function's contract.
    let inputs = unsafe { list(programs, count as usize) };
    // clLinkProgram: CL_INVALID_PROGRAM when an input is not a valid program.
    let inputs = inputs
        .iter()
        .map(|&raw| handle::resolve::<Program>(raw))
        .collect::<ClResult<Vec<_>>>()?;
    let same = inputs
        .iter()
        .all(|input| Arc::ptr_eq(input.context(), context));
    // clLinkProgram: CL_INVALID_PROGRAM when an input belongs to another context.
    require(same, CL_INVALID_PROGRAM)?;
    Ok(inputs)
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
    // SAFETY: the specification demands NULL or as many handles as the count says.
    let devices = unsafe { devices_among(context.devices(), num_devices, device_list)? };
    // SAFETY: the specification demands NULL or as many handles as the count says.
    let inputs = unsafe { inputs_of(&context, num_input_programs, input_programs)? };
    // The check of the linker precedes that of the inputs: without a linker the inputs do not matter.
    require_on_all(
        &devices,
        CL_DEVICE_LINKER_AVAILABLE,
        CL_LINKER_NOT_AVAILABLE,
    )?;
    let targets = linkable(devices.clone(), &inputs)?;
    let notify = notify_of(pfn_notify, user_data)?;
    // SAFETY: the specification demands NULL or a C string.
    let options = unsafe { options_of(options) };
    // This is no rule of the specification: a worker refuses a longer list, and dropping an input that
    // appears twice would change the outcome.
    require(inputs.len() <= MAX_LIST, CL_OUT_OF_HOST_MEMORY)?;

    let waits = notify.is_none();
    let stub = Program::to_link(&context, devices, &inputs);
    // The handle is published before the request is sent: the callback may run before this call returns,
    // and gets the same handle.
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
        // clLinkProgram returns the program of a failed link, so that the application can read the build
        // log.
        Err(status) if waits && status.0 == CL_LINK_PROGRAM_FAILURE => {
            Ok(Linked { program, status })
        }
        Err(status) => {
            handle::release::<Program>(program)?;
            fail(status.0)
        }
    }
}

/// This entry point is written without `#[entry_point]`, because a failed link returns both a program and a
/// code.
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
            // SAFETY: not NULL, so by the specification writable.
            unsafe { errcode_ret.write(status.0) };
        }
    }
    program
}
