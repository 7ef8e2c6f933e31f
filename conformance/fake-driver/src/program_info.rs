//! Queries of programs and their builds.
//!
//! Invariant: kernel names and their number are reported only when an executable exists.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::arg;
use crate::device::Device;
use crate::error::{ClResult, ensure, fail};
use crate::info::{Info, reply};
use crate::object::Object;
use crate::program::{Origin, Program};

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use super::*;

    pub(crate) unsafe fn clGetProgramInfo(
        program: cl_program,
        name: cl_program_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let program = unsafe { Object::<Program>::borrow(program) }?;
        let answer = match name {
            CL_PROGRAM_REFERENCE_COUNT => Info::uint(program.references()),
            CL_PROGRAM_CONTEXT => Info::handle(program.context.handle()),
            CL_PROGRAM_NUM_DEVICES => Info::uint(program.devices.len() as cl_uint),
            CL_PROGRAM_DEVICES => {
                Info::handles(program.devices.iter().map(|device| device.handle()))
            }
            CL_PROGRAM_SOURCE => match &program.origin {
                Origin::Source(source) => Info::text(source),
                _ => Info::text(""),
            },
            CL_PROGRAM_IL => match &program.origin {
                Origin::Il(module, _) => Info::bytes(module.clone()),
                _ => Info::bytes([]),
            },
            CL_PROGRAM_NUM_KERNELS => Info::size(program.signatures()?.len()),
            CL_PROGRAM_KERNEL_NAMES => {
                let kernels = program.signatures()?;
                let names: Vec<_> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
                Info::text(&names.join(";"))
            }
            CL_PROGRAM_BINARY_SIZES => Info::sizes(binaries(program).iter().map(Vec::len)),
            CL_PROGRAM_BINARIES => {
                // SAFETY: the caller keeps the same contract.
                return unsafe { write_binaries(program, size, value, size_ret) };
            }
            CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT | CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT => {
                Info::bool(false)
            }
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }

    /// Returns the binary for each device. A binary is empty where there is none.
    fn binaries(program: &Program) -> Vec<Vec<u8>> {
        let builds = program.builds.lock();
        let places = builds.iter().zip(&program.devices);
        places
            .map(|(build, device)| {
                let object = build.object.as_ref();
                object.map_or(Vec::new(), |object| object.to_binary(&device.settings.name))
            })
            .collect()
    }

    /// # Safety
    /// `value` is NULL or points to as many pointers as `size` says. Each is NULL or points to enough memory.
    unsafe fn write_binaries(
        program: &Program,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        let binaries = binaries(program);
        let needed = binaries.len() * size_of::<*mut u8>();
        if !value.is_null() {
            ensure(size >= needed, CL_INVALID_VALUE)?;
            // SAFETY: the application's array has this length, as checked above.
            let places = unsafe { arg::list(binaries.len(), value.cast::<*mut u8>()) };
            for (binary, &place) in binaries.iter().zip(places) {
                if !place.is_null() {
                    // SAFETY: the memory is large enough, because the application asked for the sizes.
                    unsafe { place.copy_from(binary.as_ptr(), binary.len()) };
                }
            }
        }
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { arg::put(size_ret, needed) };
        Ok(())
    }

    pub(crate) unsafe fn clGetProgramBuildInfo(
        program: cl_program,
        device: cl_device_id,
        name: cl_program_build_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let program = unsafe { Object::<Program>::borrow(program) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let device = unsafe { Object::<Device>::borrow(device) }?;
        let place = program.place_of(device)?;
        let build = program.builds.lock()[place].clone();
        let answer = match name {
            CL_PROGRAM_BUILD_STATUS => Info::int(build.status),
            CL_PROGRAM_BUILD_OPTIONS => Info::text(&build.options),
            CL_PROGRAM_BUILD_LOG => Info::text(&build.log),
            CL_PROGRAM_BINARY_TYPE => Info::uint(build.kind()),
            CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE => Info::size(0),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }
}
