//! Programs: made from source, binaries, IL or built-in kernels; built, compiled, linked.
//!
//! Builds block. They may take minutes or crash the process. The caller chooses the thread.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_proto::status::Status;
use opencl_sys::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BINARY_SIZES, CL_PROGRAM_BINARY_TYPE,
    CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, CL_PROGRAM_BUILD_LOG, CL_PROGRAM_BUILD_OPTIONS,
    CL_PROGRAM_BUILD_STATUS, CL_PROGRAM_DEVICES, CL_PROGRAM_IL, CL_PROGRAM_KERNEL_NAMES,
    CL_PROGRAM_NUM_KERNELS, CL_PROGRAM_SOURCE, cl_device_id, cl_program,
};

use super::context::Context;
use super::info;
use super::kernel::Kernel;
use super::library::{check, cl, release_on_drop};
use super::node::Device;
use super::ptx;

/// Maximum size of binaries that are read for the names of kernels, in bytes.
const MOST_READ: usize = 1 << 30;

/// A native program; released when dropped.
#[derive(Debug)]
pub struct Program {
    raw: cl_program,
    // Whether kernels of the program may be queried about their arguments.
    askable: AtomicBool,
}

// SAFETY: OpenCL programs may be used from any thread.
unsafe impl Send for Program {}
// SAFETY: as for `Send`.
unsafe impl Sync for Program {}

/// Result of a build for one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildState {
    /// `CL_PROGRAM_BUILD_STATUS`.
    pub status: i32,
    /// `CL_PROGRAM_BUILD_LOG`.
    pub log: String,
    /// `CL_PROGRAM_BINARY_TYPE`.
    pub binary_type: u32,
    /// `CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE`, in bytes.
    pub global_variable_size: u64,
}

impl Program {
    fn adopt(raw: cl_program, status: i32) -> Result<Program, Status> {
        check(status)?;
        Ok(Program {
            raw,
            askable: AtomicBool::new(true),
        })
    }

    /// Forbids queries about the arguments of this program's kernels, and trials of arguments, until the
    /// next compilation or build. This also applies to programs linked from it. It is needed after a
    /// compilation without argument info follows one with it: NVIDIA's driver then returns arbitrary
    /// answers and damages its memory.
    pub fn forbid_asking(&self) {
        self.askable.store(false, Ordering::Relaxed);
    }

    fn is_askable(&self) -> bool {
        self.askable.load(Ordering::Relaxed)
    }

    /// `clCreateProgramWithSource` with one string.
    pub fn with_source(context: &Context, source: &[u8]) -> Result<Program, Status> {
        // A driver takes a length of 0 to mean that the string ends in NUL.
        let text: &[u8] = if source.is_empty() { b"\0" } else { source };
        let (mut text, length) = (text.as_ptr().cast(), source.len());
        let mut status = 0;
        // SAFETY: the string has the given length, or ends in NUL; the driver copies it.
        let raw = unsafe {
            cl!(clCreateProgramWithSource(
                context.raw,
                1,
                &raw mut text,
                &raw const length,
                &raw mut status
            ))
        };
        Program::adopt(raw, status)
    }

    /// `clCreateProgramWithBinary`. Also returns the driver's status for each binary, even if the call
    /// fails.
    pub fn with_binaries(
        context: &Context,
        devices: &[Device],
        binaries: &[&[u8]],
    ) -> (Result<Program, Status>, Vec<i32>) {
        let mut verdicts = vec![0i32; devices.len()];
        if devices.is_empty() || devices.len() != binaries.len() {
            return (Err(Status::INVALID_VALUE), verdicts);
        }
        let ids: Vec<_> = devices.iter().map(|d| d.raw).collect();
        let lengths: Vec<usize> = binaries.iter().map(|b| b.len()).collect();
        let mut pointers: Vec<*const u8> = binaries.iter().map(|b| b.as_ptr()).collect();
        let mut make = || -> Result<Program, Status> {
            let mut status = 0;
            // SAFETY: all lists are as long as the list of devices; the driver copies the binaries.
            let raw = unsafe {
                cl!(clCreateProgramWithBinary(
                    context.raw,
                    u32::try_from(ids.len()).map_err(|_| Status::INVALID_VALUE)?,
                    ids.as_ptr(),
                    lengths.as_ptr(),
                    pointers.as_mut_ptr(),
                    verdicts.as_mut_ptr(),
                    &raw mut status
                ))
            };
            Program::adopt(raw, status)
        };
        (make(), verdicts)
    }

    /// `clCreateProgramWithBuiltInKernels`; `names` are separated by semicolons.
    pub fn with_built_in_kernels(
        context: &Context,
        devices: &[Device],
        names: &CStr,
    ) -> Result<Program, Status> {
        let ids: Vec<_> = devices.iter().map(|d| d.raw).collect();
        let mut status = 0;
        // SAFETY: the list has the given length, and the names end in NUL.
        let raw = unsafe {
            cl!(clCreateProgramWithBuiltInKernels(
                context.raw,
                u32::try_from(ids.len()).map_err(|_| Status::INVALID_VALUE)?,
                ids.as_ptr(),
                names.as_ptr(),
                &raw mut status
            ))
        };
        Program::adopt(raw, status)
    }

    /// `clCreateProgramWithIL`.
    pub fn with_il(context: &Context, il: &[u8]) -> Result<Program, Status> {
        let mut status = 0;
        // SAFETY: the driver copies `il.len()` bytes.
        let raw = unsafe {
            cl!(clCreateProgramWithIL(
                context.raw,
                il.as_ptr().cast(),
                il.len(),
                &raw mut status
            ))
        };
        Program::adopt(raw, status)
    }

    /// Makes a second program from the origin of this one: its source, otherwise its intermediate language,
    /// otherwise its binaries. `among` contains the program's devices. The new program is not built.
    ///
    /// # Errors
    /// The driver's error; `CL_OUT_OF_HOST_MEMORY` if the binaries exceed `most` bytes.
    pub fn again(
        &self,
        context: &Context,
        among: &[Device],
        most: usize,
    ) -> Result<Program, Status> {
        let source = self.info(CL_PROGRAM_SOURCE).unwrap_or_default();
        // For a program without source, the answer is empty or only contains the NUL.
        let source = source.strip_suffix(b"\0").unwrap_or(&source);
        if !source.is_empty() {
            return Program::with_source(context, source);
        }
        // Drivers of OpenCL 1.2 do not support this query.
        let il = self.info(CL_PROGRAM_IL).unwrap_or_default();
        if !il.is_empty() {
            return Program::with_il(context, &il);
        }
        let binaries = self.binaries(most)?;
        let places = self.devices(among)?.into_iter().zip(&binaries);
        let (devices, binaries): (Vec<Device>, Vec<&[u8]>) = places
            .filter(|(_, binary)| !binary.is_empty())
            .filter_map(|(at, binary)| Some((*among.get(at?)?, binary.as_slice())))
            .unzip();
        Program::with_binaries(context, &devices, &binaries).0
    }

    /// Returns `CL_PROGRAM_BUILD_OPTIONS` for `device`.
    #[must_use]
    pub fn build_options(&self, device: Device) -> CString {
        let options = self.build_info(device, CL_PROGRAM_BUILD_OPTIONS);
        CString::new(options.map(info::text).unwrap_or_default()).unwrap_or_default()
    }

    /// `clSetProgramSpecializationConstant`.
    pub fn set_constant(&self, id: u32, value: &[u8]) -> Result<(), Status> {
        // SAFETY: the driver copies `value.len()` bytes.
        check(unsafe {
            cl!(clSetProgramSpecializationConstant(
                self.raw,
                id,
                value.len(),
                value.as_ptr().cast()
            ))
        })
    }

    /// `clBuildProgram`; `None` passes a null pointer as options. Blocks.
    pub fn build(&self, devices: &[Device], options: Option<&CStr>) -> Result<(), Status> {
        let ids: Vec<_> = devices.iter().map(|d| d.raw).collect();
        self.askable.store(true, Ordering::Relaxed);
        let (count, ids) = list(&ids)?;
        // SAFETY: the list has the given length (null when empty); without a callback the call blocks.
        check(unsafe {
            cl!(clBuildProgram(
                self.raw,
                count,
                ids,
                options.map_or(null(), CStr::as_ptr),
                None,
                null_mut()
            ))
        })
    }

    /// `clCompileProgram` with embedded headers. Blocks.
    pub fn compile(
        &self,
        devices: &[Device],
        options: &CStr,
        headers: &[(&CStr, &Program)],
    ) -> Result<(), Status> {
        let ids: Vec<_> = devices.iter().map(|d| d.raw).collect();
        let names: Vec<_> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let programs: Vec<_> = headers.iter().map(|(_, program)| program.raw).collect();
        self.askable.store(true, Ordering::Relaxed);
        let (count, ids) = list(&ids)?;
        let (headers, programs) = list(&programs)?;
        let names = if names.is_empty() {
            null()
        } else {
            names.as_ptr()
        };
        // SAFETY: the lists have the given lengths (null when empty); without a callback the call blocks.
        check(unsafe {
            cl!(clCompileProgram(
                self.raw,
                count,
                ids,
                options.as_ptr(),
                headers,
                programs,
                names.cast_mut(),
                None,
                null_mut()
            ))
        })
    }

    /// `clLinkProgram`. A failed link may also return a program, which contains the log. Blocks.
    pub fn link(
        context: &Context,
        devices: &[Device],
        options: &CStr,
        inputs: &[&Program],
    ) -> (Option<Program>, Result<(), Status>) {
        let ids: Vec<_> = devices.iter().map(|d| d.raw).collect();
        let askable = inputs.iter().all(|p| p.is_askable());
        let inputs: Vec<_> = inputs.iter().map(|p| p.raw).collect();
        let mut linked = null_mut();
        let mut call = || -> Result<(), Status> {
            let (count, ids) = list(&ids)?;
            let (number, inputs) = list(&inputs)?;
            let mut status = 0;
            // SAFETY: the lists have the given lengths; without a callback the call blocks.
            linked = unsafe {
                cl!(clLinkProgram(
                    context.raw,
                    count,
                    ids,
                    options.as_ptr(),
                    number,
                    inputs,
                    None,
                    null_mut(),
                    &raw mut status
                ))
            };
            check(status)
        };
        let status = call();
        let linked = (!linked.is_null()).then(|| Program {
            raw: linked,
            askable: AtomicBool::new(askable),
        });
        (linked, status)
    }

    /// Returns the result of the last build for `device`.
    #[must_use]
    pub fn build_state(&self, device: Device) -> BuildState {
        let number = |name| {
            let value = self.build_info(device, name);
            value.ok().and_then(|v| info::number(&v)).unwrap_or(0)
        };
        BuildState {
            // The value is an int or an enumerator of 4 bytes, so the cast keeps its bits.
            status: number(CL_PROGRAM_BUILD_STATUS) as u32 as i32,
            log: self
                .build_info(device, CL_PROGRAM_BUILD_LOG)
                .map(info::text)
                .unwrap_or_default(),
            binary_type: number(CL_PROGRAM_BINARY_TYPE) as u32,
            global_variable_size: number(CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE),
        }
    }

    fn build_info(&self, device: Device, name: u32) -> Result<Vec<u8>, Status> {
        info::short_bytes(|size, value, size_ret| {
            // SAFETY: `value` has room for `size` bytes, `size_ret` is null or valid (info::short_bytes).
            check(unsafe {
                cl!(clGetProgramBuildInfo(
                    self.raw, device.raw, name, size, value, size_ret
                ))
            })
        })
    }

    fn info(&self, name: u32) -> Result<Vec<u8>, Status> {
        info::bytes(|size, value, size_ret| {
            // SAFETY: `value` has room for `size` bytes, `size_ret` is null or valid (info::bytes).
            check(unsafe { cl!(clGetProgramInfo(self.raw, name, size, value, size_ret)) })
        })
    }

    /// Returns the program's devices as positions in `among`, in the order of its binaries.
    pub fn devices(&self, among: &[Device]) -> Result<Vec<Option<usize>>, Status> {
        let ids = self.info(CL_PROGRAM_DEVICES)?;
        let raw = info::sizes(&ids)
            .into_iter()
            .map(|id| id as usize as cl_device_id);
        Ok(raw
            .map(|id| among.iter().position(|d| d.raw == id))
            .collect())
    }

    /// Returns the sizes of the binaries, in the order of [`Program::devices`]; 0 for a device without one.
    pub fn binary_sizes(&self) -> Result<Vec<u64>, Status> {
        Ok(info::sizes(&self.info(CL_PROGRAM_BINARY_SIZES)?))
    }

    /// Returns the binaries, in the order of [`Program::devices`]; empty for a device without one.
    ///
    /// # Errors
    /// The driver's error; `CL_OUT_OF_HOST_MEMORY` if they together exceed `most` bytes.
    pub fn binaries(&self, most: usize) -> Result<Vec<Vec<u8>>, Status> {
        let sizes = self.binary_sizes()?;
        // Checked before the allocation, because a driver may report any size.
        if sizes.iter().fold(0u64, |sum, n| sum.saturating_add(*n)) > most as u64 {
            return Err(Status::OUT_OF_HOST_MEMORY);
        }
        let mut binaries: Vec<Vec<u8>> = sizes.iter().map(|n| vec![0; *n as usize]).collect();
        let mut pointers: Vec<*mut u8> = binaries
            .iter_mut()
            .map(|b| {
                // A driver skips entries that are NULL.
                if b.is_empty() {
                    null_mut()
                } else {
                    b.as_mut_ptr()
                }
            })
            .collect();
        // SAFETY: there is one pointer per device, each null or to as many bytes as the driver reported.
        check(unsafe {
            cl!(clGetProgramInfo(
                self.raw,
                CL_PROGRAM_BINARIES,
                size_of_val(pointers.as_slice()),
                pointers.as_mut_ptr().cast(),
                null_mut()
            ))
        })?;
        Ok(binaries)
    }

    /// `clCreateKernel`.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Status> {
        let name = CString::new(name).map_err(|_| Status::INVALID_KERNEL_NAME)?;
        let mut status = 0;
        // SAFETY: the name ends in NUL.
        let raw = unsafe { cl!(clCreateKernel(self.raw, name.as_ptr(), &raw mut status)) };
        check(status)?;
        // SAFETY: the driver has just returned the kernel.
        Ok(unsafe { Kernel::adopt(raw, self.is_askable()) })
    }

    /// Creates every kernel of the program that the driver makes under a listed name; `devices` are those of
    /// the program. Leaves out kernels that differ between the program's devices, as
    /// `clCreateKernelsInProgram` does.
    pub fn kernels(&self, devices: &[Device]) -> Result<Vec<Kernel>, Status> {
        let names = self.kernel_names(devices)?;
        let kernels = names.iter().filter_map(|name| self.kernel(name).ok());
        Ok(kernels.collect())
    }

    /// Returns the names of the program's kernels; `devices` are those of the program.
    ///
    /// For NVIDIA's driver, the names come from the program's binaries if these are PTX. The driver's
    /// `clCreateKernelsInProgram`, `CL_PROGRAM_NUM_KERNELS` and `CL_PROGRAM_KERNEL_NAMES` all damage its heap
    /// if names are long.
    pub fn kernel_names(&self, devices: &[Device]) -> Result<Vec<String>, Status> {
        if !devices.iter().all(|device| device.lists_kernels)
            && let Some(names) = self.entries()
        {
            return Ok(names);
        }
        // NVIDIA's driver follows a null pointer if the names of a program without kernels are queried.
        let count = info::number(&self.info(CL_PROGRAM_NUM_KERNELS)?);
        if count == Some(0) {
            return Ok(Vec::new());
        }
        let names = info::text(self.info(CL_PROGRAM_KERNEL_NAMES)?);
        let names = names.split(';').filter(|name| !name.is_empty());
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns the entry points of all binaries; `None` if one is not PTX, or if there is no binary.
    fn entries(&self) -> Option<Vec<String>> {
        let binaries = self.binaries(MOST_READ).ok()?;
        let mut names: Option<Vec<String>> = None;
        for binary in binaries.iter().filter(|binary| !binary.is_empty()) {
            let listed = ptx::entries(binary)?;
            match &mut names {
                None => names = Some(listed),
                // Each device's binary lists the same kernels, unless one was built with other options.
                Some(names) if *names == listed => {}
                Some(names) => {
                    let seen: HashSet<String> = names.iter().cloned().collect();
                    names.extend(listed.into_iter().filter(|name| !seen.contains(name)));
                }
            }
        }
        names
    }
}

release_on_drop!(Program, clReleaseProgram);

/// Converts a slice to a C list: its length, and its pointer or null if it is empty.
fn list<T>(items: &[T]) -> Result<(u32, *const T), Status> {
    let count = u32::try_from(items.len()).map_err(|_| Status::INVALID_VALUE)?;
    Ok((
        count,
        if items.is_empty() {
            null()
        } else {
            items.as_ptr()
        },
    ))
}
