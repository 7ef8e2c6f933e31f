//! Programs: creation, reference counts, callbacks and specialization constants. Builds are in `build`,
//! queries in `info`.

mod build;
mod info;

use std::ffi::CStr;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use cl_headers::types::*;

use super::entry::{entry_point, object};
use super::handle;
use super::info::{c_str, list};
use crate::error::{ClResult, fail, require};
use crate::stub::{Context, Device, Platform, Program};

pub(super) use build::*;
pub(super) use info::*;

/// The devices that a `device_list` means: its own, or `all` of them if it is NULL. They are in the
/// application's order, without duplicates.
///
/// # Errors
/// `CL_INVALID_VALUE` when only one of list and count is given; `CL_INVALID_DEVICE` for a device that is
/// not in `all`.
///
/// # Safety
/// `devices` is NULL or points to `count` handles.
unsafe fn devices_among(
    all: &[Arc<Device>],
    count: cl_uint,
    devices: *const cl_device_id,
) -> ClResult<Vec<Arc<Device>>> {
    // clBuildProgram: CL_INVALID_VALUE when device_list is NULL and num_devices is not 0, or the reverse.
    require(devices.is_null() == (count == 0), CL_INVALID_VALUE)?;
    if devices.is_null() {
        return Ok(all.to_vec());
    }
    let mut chosen: Vec<Arc<Device>> = Vec::new();
    // SAFETY: the caller upholds this function's contract.
    for &raw in unsafe { list(devices, count as usize) } {
        let device = handle::resolve::<Device>(raw)?;
        let known = all.iter().any(|one| Arc::ptr_eq(one, &device));
        // clBuildProgram: CL_INVALID_DEVICE when a device is not one of the program's.
        require(known, CL_INVALID_DEVICE)?;
        if !chosen.iter().any(|one| Arc::ptr_eq(one, &device)) {
            chosen.push(device);
        }
    }
    Ok(chosen)
}

/// Joins source strings. A NUL inside of a string, which ends it early in C, is left out.
///
/// # Safety
/// `strings` points to `count` pointers. Each is NULL or points to a text of the length in `lengths`. A
/// length of 0, or `lengths` being NULL, means that a NUL ends the text.
unsafe fn join(
    count: cl_uint,
    strings: *const *const c_char,
    lengths: *const size_t,
) -> ClResult<Bytes> {
    // SAFETY: the caller upholds this function's contract.
    let (strings, lengths) =
        unsafe { (list(strings, count as usize), list(lengths, count as usize)) };
    let mut joined = BytesMut::new();
    for (place, &text) in strings.iter().enumerate() {
        // clCreateProgramWithSource: CL_INVALID_VALUE when an entry of strings is NULL.
        require(!text.is_null(), CL_INVALID_VALUE)?;
        let bytes = match lengths.get(place) {
            // SAFETY: not NULL; a length of 0 means a C string.
            None | Some(0) => unsafe { CStr::from_ptr(text) }.to_bytes(),
            // SAFETY: not NULL, and the caller promises that many bytes.
            Some(&length) => unsafe { list(text.cast::<u8>(), length) },
        };
        for piece in bytes.split(|&byte| byte == 0) {
            joined.put_slice(piece);
        }
    }
    Ok(joined.freeze())
}

/// Whether each of the names, which semicolons separate, is a built-in kernel of at least one of the
/// devices.
fn built_in_everywhere(devices: &[Arc<Device>], names: &str) -> bool {
    let has = |name: &str| {
        let mut devices = devices.iter();
        devices.any(|device| device.has_built_in_kernel(name.trim()))
    };
    names.split(';').all(has)
}

#[entry_point]
pub(crate) fn clCreateProgramWithSource(
    context: cl_context,
    count: cl_uint,
    strings: *mut *const c_char,
    lengths: *const size_t,
) -> ClResult<cl_program> {
    let context = handle::resolve::<Context>(context)?;
    // clCreateProgramWithSource: CL_INVALID_VALUE when count is 0 or strings is NULL.
    require(count > 0 && !strings.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, and the specification demands strings and lengths of `count` elements.
    let source = unsafe { join(count, strings, lengths)? };
    Ok(handle::publish(Program::from_source(&context, source)?))
}

#[entry_point]
pub(crate) fn clCreateProgramWithBinary(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    lengths: *const size_t,
    binaries: *mut *const c_uchar,
    binary_status: *mut cl_int,
) -> ClResult<cl_program> {
    let context = handle::resolve::<Context>(context)?;
    // clCreateProgramWithBinary: CL_INVALID_VALUE when device_list is NULL or num_devices is 0.
    require(!device_list.is_null() && num_devices > 0, CL_INVALID_VALUE)?;
    // clCreateProgramWithBinary: CL_INVALID_VALUE when lengths or binaries is NULL.
    require(!lengths.is_null() && !binaries.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, with `num_devices` handles.
    let devices = unsafe { devices_among(context.devices(), num_devices, device_list)? };
    let count = num_devices as usize;
    // clCreateProgramWithBinary: CL_INVALID_DEVICE when the list is not one of the context's devices;
    // each device has one binary, so none may appear twice.
    require(devices.len() == count, CL_INVALID_DEVICE)?;
    // SAFETY: not NULL, with `num_devices` elements each.
    let (lengths, binaries) = unsafe { (list(lengths, count), list(binaries, count)) };
    let present = |(&length, &binary): (&size_t, &*const c_uchar)| length > 0 && !binary.is_null();
    let missing = lengths.iter().zip(binaries).map(|pair| {
        if present(pair) {
            CL_SUCCESS
        } else {
            CL_INVALID_VALUE
        }
    });
    let missing: Vec<cl_int> = missing.collect();
    // clCreateProgramWithBinary: CL_INVALID_VALUE, also in binary_status, when a length is 0 or a
    // binary is NULL.
    if missing.contains(&CL_INVALID_VALUE) {
        // SAFETY: the specification demands NULL or room for `num_devices` codes.
        unsafe { give_status(binary_status, &missing) };
        return fail(CL_INVALID_VALUE);
    }
    // SAFETY: the specification demands that each binary has as many bytes as its length says.
    let given = lengths
        .iter()
        .zip(binaries)
        .map(|(&length, &binary)| unsafe { list(binary, length) });
    let given: Vec<&[u8]> = given.collect();
    let (program, verdicts) = Program::from_binaries(&context, devices, &given);
    // SAFETY: the specification demands NULL or room for `num_devices` codes.
    unsafe { give_status(binary_status, &verdicts) };
    Ok(handle::publish(program?))
}

#[entry_point]
pub(crate) fn clCreateProgramWithBuiltInKernels(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    kernel_names: *const c_char,
) -> ClResult<cl_program> {
    let context = handle::resolve::<Context>(context)?;
    // clCreateProgramWithBuiltInKernels: CL_INVALID_VALUE when device_list is NULL or num_devices is 0.
    require(!device_list.is_null() && num_devices > 0, CL_INVALID_VALUE)?;
    // SAFETY: not NULL, with `num_devices` handles.
    let devices = unsafe { devices_among(context.devices(), num_devices, device_list)? };
    // clCreateProgramWithBuiltInKernels: CL_INVALID_VALUE when kernel_names is NULL.
    // SAFETY: the specification demands a C string.
    let names = unsafe { c_str(kernel_names, CL_INVALID_VALUE)? };
    // clCreateProgramWithBuiltInKernels: CL_INVALID_VALUE when a name is a built-in kernel of none of
    // the devices.
    require(built_in_everywhere(&devices, names), CL_INVALID_VALUE)?;
    Ok(handle::publish(Program::from_built_in_kernels(
        &context, devices, names,
    )?))
}

#[entry_point]
pub(crate) fn clCreateProgramWithIL(
    context: cl_context,
    il: *const c_void,
    length: size_t,
) -> ClResult<cl_program> {
    let context = handle::resolve::<Context>(context)?;
    let able = context.devices().iter().any(|device| device.takes_il());
    // clCreateProgramWithIL: CL_INVALID_OPERATION when no device of the context supports intermediate
    // languages.
    require(able, CL_INVALID_OPERATION)?;
    // clCreateProgramWithIL: CL_INVALID_VALUE when il is NULL or length is 0.
    require(!il.is_null() && length > 0, CL_INVALID_VALUE)?;
    // SAFETY: not NULL, and the specification demands `length` bytes.
    let module = unsafe { list(il.cast::<u8>(), length) };
    Ok(handle::publish(Program::from_il(
        &context,
        Bytes::copy_from_slice(module),
    )?))
}

#[entry_point]
pub(crate) fn clRetainProgram(program: cl_program) -> ClResult {
    handle::retain::<Program>(program)
}

#[entry_point]
pub(crate) fn clReleaseProgram(program: cl_program) -> ClResult {
    handle::release::<Program>(program)
}

#[entry_point]
pub(crate) fn clSetProgramReleaseCallback(
    program: cl_program,
    pfn_notify: ProgramCallback,
    user_data: *mut c_void,
) -> ClResult {
    let stub = handle::resolve::<Program>(program)?;
    // clSetProgramReleaseCallback: CL_INVALID_OPERATION when no device has destructors for program
    // scope variables; only OpenCL 2.2 has them.
    let able = stub
        .devices()
        .iter()
        .any(|device| device.version() == (2, 2));
    require(able, CL_INVALID_OPERATION)?;
    // clSetProgramReleaseCallback: CL_INVALID_VALUE when pfn_notify is NULL.
    let Some(callback) = pfn_notify else {
        return fail(CL_INVALID_VALUE);
    };
    let (address, user_data) = (program.expose_provenance(), user_data.expose_provenance());
    stub.on_released(Box::new(move || {
        let program = std::ptr::with_exposed_provenance_mut(address);
        let user_data = std::ptr::with_exposed_provenance_mut(user_data);
        // SAFETY: the application gave this callback and this data for exactly this call, from any
        // thread.
        unsafe { callback(program, user_data) };
    }));
    Ok(())
}

#[entry_point]
pub(crate) fn clSetProgramSpecializationConstant(
    program: cl_program,
    spec_id: cl_uint,
    spec_size: size_t,
    spec_value: *const c_void,
) -> ClResult {
    let program = handle::resolve::<Program>(program)?;
    let able = program.devices().iter().any(|device| device.takes_il());
    // clSetProgramSpecializationConstant: CL_INVALID_OPERATION when no device of the program supports
    // intermediate languages.
    require(able, CL_INVALID_OPERATION)?;
    // clSetProgramSpecializationConstant: CL_INVALID_VALUE when spec_value is NULL.
    require(!spec_value.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, and the specification demands `spec_size` bytes.
    program.set_constant(spec_id, unsafe { list(spec_value.cast::<u8>(), spec_size) })
}

#[entry_point]
pub(crate) fn clUnloadCompiler() -> ClResult {
    Ok(())
}

#[entry_point]
pub(crate) fn clUnloadPlatformCompiler(platform: cl_platform_id) -> ClResult {
    handle::resolve::<Platform>(platform)?.unload_compiler();
    Ok(())
}

/// # Safety
/// `to` is NULL or has room for as many codes as `codes` has.
unsafe fn give_status(to: *mut cl_int, codes: &[cl_int]) {
    if !to.is_null() {
        // SAFETY: the caller upholds this function's contract.
        unsafe { to.copy_from_nonoverlapping(codes.as_ptr(), codes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(pieces: &[(&[u8], usize)]) -> Bytes {
        let strings: Vec<*const c_char> = pieces
            .iter()
            .map(|(text, _)| text.as_ptr().cast())
            .collect();
        let lengths: Vec<size_t> = pieces.iter().map(|(_, length)| *length).collect();
        // SAFETY: every text ends with a NUL and is at least as long as its length says.
        unsafe { join(pieces.len() as cl_uint, strings.as_ptr(), lengths.as_ptr()) }.unwrap()
    }

    #[test]
    fn strings_are_joined_by_length_or_nul_and_nuls_left_out() {
        assert_eq!(&joined(&[(b"abc\0", 0), (b"defg\0", 2)])[..], b"abcde");
        assert_eq!(&joined(&[(b"a\0b\0", 4)])[..], b"ab");
    }

    #[test]
    fn a_null_string_is_refused() {
        let strings = [c"x".as_ptr(), std::ptr::null()];
        // SAFETY: without lengths, each text is NULL or a C string.
        let result = unsafe { join(2, strings.as_ptr(), std::ptr::null()) };
        assert_eq!(result.unwrap_err().0, CL_INVALID_VALUE);
    }
}
