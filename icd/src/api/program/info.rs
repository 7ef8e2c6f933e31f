//! `clGetProgramInfo`, `clGetProgramBuildInfo`.

use std::sync::Arc;

use cl_headers::types::*;

use super::entry_point;
use crate::api::handle;
use crate::api::info::{Answered, Info, list};
use crate::error::{ClResult, fail, require};
use crate::stub::{Device, Origin, Program};

#[entry_point]
pub(crate) fn clGetProgramInfo(
    program: cl_program,
    param_name: cl_program_info,
    info: Info,
) -> ClResult {
    let stub = handle::resolve::<Program>(program)?;
    answer(program, &stub, param_name, info).map(drop)
}

#[entry_point]
pub(crate) fn clGetProgramBuildInfo(
    program: cl_program,
    device: cl_device_id,
    param_name: cl_program_build_info,
    info: Info,
) -> ClResult {
    let stub = handle::resolve::<Program>(program)?;
    let device = handle::resolve::<Device>(device)?;
    answer_build(&stub, &device, param_name, info).map(drop)
}

fn answer(
    raw: cl_program,
    program: &Arc<Program>,
    name: cl_program_info,
    info: Info,
) -> ClResult<Answered> {
    match name {
        CL_PROGRAM_REFERENCE_COUNT => info.give(handle::reference_count::<Program>(raw)?),
        CL_PROGRAM_CONTEXT => info.give(handle::raw_of(program.context())),
        CL_PROGRAM_NUM_DEVICES => info.give(program.devices().len() as cl_uint),
        CL_PROGRAM_DEVICES => {
            let devices: Vec<cl_device_id> = program.devices().iter().map(handle::raw_of).collect();
            info.give_slice(&devices)
        }
        CL_PROGRAM_SOURCE => {
            let source: &[u8] = match program.origin() {
                Origin::Source(source) => source,
                _ => b"",
            };
            info.give_bytes(&[source, b"\0"].concat())
        }
        CL_PROGRAM_IL => match program.origin() {
            Origin::Il(module) => info.give_bytes(module),
            _ => info.give_slice::<u8>(&[]),
        },
        CL_PROGRAM_BINARY_SIZES => {
            let sizes = program.binary_sizes()?;
            let sizes: Vec<size_t> = sizes.iter().map(|&size| size as size_t).collect();
            info.give_slice(&sizes)
        }
        CL_PROGRAM_BINARIES => give_binaries(program, info),
        CL_PROGRAM_NUM_KERNELS => info.give(program.kernel_names()?.len()),
        CL_PROGRAM_KERNEL_NAMES => info.give_str(&program.kernel_names()?.join(";")),
        // Only OpenCL 2.2 has these constructors and destructors, and no device reports any.
        CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT | CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT => {
            info.give_bool(false)
        }
        // clGetProgramInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}

/// Writes each binary to the pointer that the application's array has for its device. NULL entries are
/// skipped.
fn give_binaries(program: &Program, info: Info) -> ClResult<Answered> {
    let count = program.devices().len();
    let size = count * size_of::<*mut c_uchar>();
    let (array, room) = info.room();
    let answered = info.give_size(size);
    if !array.is_null() {
        // clGetProgramInfo: CL_INVALID_VALUE when the array is too small for one pointer per device.
        require(room >= size, CL_INVALID_VALUE)?;
        // SAFETY: the array has room for `count` pointers.
        let pointers: &[*mut c_uchar] = unsafe { list(array.cast_const().cast(), count) };
        let wanted = pointers.iter().any(|pointer| !pointer.is_null());
        // The binaries are fetched from the nodes only if the application wants one of them.
        let binaries = if wanted {
            program.binaries()?
        } else {
            Vec::new()
        };
        for (&pointer, binary) in pointers.iter().zip(&binaries) {
            if !pointer.is_null() {
                // SAFETY: the application provides as much room as CL_PROGRAM_BINARY_SIZES reported.
                unsafe { pointer.copy_from_nonoverlapping(binary.as_ptr(), binary.len()) };
            }
        }
    }
    answered
}

fn answer_build(
    program: &Program,
    device: &Device,
    name: cl_program_build_info,
    info: Info,
) -> ClResult<Answered> {
    let Some(build) = program.build_of(device) else {
        // clGetProgramBuildInfo: CL_INVALID_DEVICE when the device is not one of the program's.
        return fail(CL_INVALID_DEVICE);
    };
    match name {
        CL_PROGRAM_BUILD_STATUS => info.give(build.status),
        CL_PROGRAM_BUILD_OPTIONS => info.give_text(&build.options),
        CL_PROGRAM_BUILD_LOG => info.give_str(&build.log),
        CL_PROGRAM_BINARY_TYPE => info.give(build.binary_type),
        CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE => {
            info.give(build.global_variable_size as size_t)
        }
        // clGetProgramBuildInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}
