//! Kernels and their arguments.
//!
//! `clSetKernelArg` is not thread-safe, so all functions that set arguments or launch take the kernel by
//! exclusive reference.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use causeway_proto::status::Status;
use opencl_sys::{
    CL_KERNEL_ATTRIBUTES, CL_KERNEL_FUNCTION_NAME, CL_KERNEL_NUM_ARGS, cl_kernel, cl_mem,
};

use super::buffer::Buffer;
use super::device_queue::DeviceQueue;
use super::info;
use super::library::{check, cl, release_on_drop};
use super::node::Device;
use super::sampler::Sampler;

/// A native kernel; released when dropped.
#[derive(Debug)]
pub struct Kernel {
    pub(super) raw: cl_kernel,
    askable: bool,
}

// SAFETY: a kernel may move between threads; the one function that is not thread-safe takes it by exclusive
// reference.
unsafe impl Send for Kernel {}
// SAFETY: calls through a shared reference are queries, which are thread-safe.
unsafe impl Sync for Kernel {}

/// Global size, offset and local size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    dimensions: u8,
    pub(super) global: [usize; 3],
    pub(super) offset: Option<[usize; 3]>,
    pub(super) local: Option<[usize; 3]>,
}

impl Shape {
    /// Converts the lists of a launch message. Returns `None` if their lengths do not fit, or if a number
    /// exceeds `size_t`.
    #[must_use]
    pub fn new(global: &[u64], offset: &[u64], local: &[u64]) -> Option<Shape> {
        let fits = |list: &[u64]| list.is_empty() || list.len() == global.len();
        if global.is_empty() || global.len() > 3 || !fits(offset) || !fits(local) {
            return None;
        }
        let three = |list: &[u64], rest| -> Option<[usize; 3]> {
            let mut out = [rest; 3];
            for (to, from) in out.iter_mut().zip(list) {
                *to = usize::try_from(*from).ok()?;
            }
            Some(out)
        };
        let optional = |list: &[u64], rest| match list {
            [] => Some(None),
            list => three(list, rest).map(Some),
        };
        Some(Shape {
            dimensions: u8::try_from(global.len()).ok()?,
            global: three(global, 1)?,
            offset: optional(offset, 0)?,
            local: optional(local, 1)?,
        })
    }

    pub(super) fn dimensions(&self) -> u32 {
        u32::from(self.dimensions)
    }

    /// Returns whether the launch has no work-items.
    pub fn is_empty(&self) -> bool {
        self.global.contains(&0)
    }
}

impl Kernel {
    /// Takes over the reference to a native kernel.
    ///
    /// # Safety
    /// The driver has just returned `raw` to the caller.
    pub(super) unsafe fn adopt(raw: cl_kernel, askable: bool) -> Kernel {
        Kernel { raw, askable }
    }

    /// Returns whether arguments may be queried, or tried out; see
    /// [`Program::forbid_asking`](super::program::Program::forbid_asking).
    pub fn is_askable(&self) -> bool {
        self.askable
    }

    /// Sets an argument that is passed by value.
    pub fn set_value(&mut self, index: u32, value: &[u8]) -> Result<(), Status> {
        // SAFETY: the driver reads `value.len()` bytes before it returns.
        check(unsafe {
            cl!(clSetKernelArg(
                self.raw,
                index,
                value.len(),
                value.as_ptr().cast()
            ))
        })
    }

    /// Sets a buffer or image argument; `None` passes a null pointer to the kernel.
    pub fn set_buffer(&mut self, index: u32, buffer: Option<&Buffer>) -> Result<(), Status> {
        let raw: cl_mem = buffer.map_or(null_mut(), |b| b.raw);
        let value = if raw.is_null() {
            null()
        } else {
            (&raw const raw).cast()
        };
        // SAFETY: the driver reads one handle, or nothing for a null pointer.
        check(unsafe { cl!(clSetKernelArg(self.raw, index, size_of::<cl_mem>(), value)) })
    }

    /// Sets a sampler argument.
    pub fn set_sampler(&mut self, index: u32, sampler: &Sampler) -> Result<(), Status> {
        self.set_handle(index, &sampler.raw)
    }

    /// Sets a device queue argument.
    pub fn set_device_queue(&mut self, index: u32, queue: &DeviceQueue) -> Result<(), Status> {
        self.set_handle(index, &queue.raw)
    }

    // `raw` is a reference, because the driver reads the handle through a pointer.
    fn set_handle(&mut self, index: u32, raw: &*mut c_void) -> Result<(), Status> {
        let value = std::ptr::from_ref(raw).cast();
        // SAFETY: the driver reads one handle.
        check(unsafe {
            cl!(clSetKernelArg(
                self.raw,
                index,
                size_of::<*mut c_void>(),
                value
            ))
        })
    }

    /// Sets the size of a local memory argument, in bytes.
    pub fn set_local(&mut self, index: u32, size: u64) -> Result<(), Status> {
        let size = usize::try_from(size).map_err(|_| Status::OUT_OF_RESOURCES)?;
        // SAFETY: no value is passed.
        check(unsafe { cl!(clSetKernelArg(self.raw, index, size, null())) })
    }

    /// Returns the name of the kernel function.
    pub fn name(&self) -> Result<String, Status> {
        self.info(CL_KERNEL_FUNCTION_NAME).map(info::text)
    }

    /// Returns `CL_KERNEL_ATTRIBUTES`; empty if the driver does not report them.
    pub fn attributes(&self) -> String {
        self.info(CL_KERNEL_ATTRIBUTES)
            .map(info::text)
            .unwrap_or_default()
    }

    /// Returns the number of arguments.
    pub fn arguments(&self) -> Result<u32, Status> {
        let count = info::number(&self.info(CL_KERNEL_NUM_ARGS)?);
        Ok(count.and_then(|n| u32::try_from(n).ok()).unwrap_or(0))
    }

    fn info(&self, name: u32) -> Result<Vec<u8>, Status> {
        info::short_bytes(|size, value, size_ret| {
            // SAFETY: `value` has room for `size` bytes, `size_ret` is null or valid (info::short_bytes).
            check(unsafe { cl!(clGetKernelInfo(self.raw, name, size, value, size_ret)) })
        })
    }

    /// Returns a number from `clGetKernelArgInfo`.
    ///
    /// # Errors
    /// The driver's error; `CL_KERNEL_ARG_INFO_NOT_AVAILABLE` for programs that were built without argument
    /// info.
    pub fn argument_number(&self, index: u32, name: u32) -> Result<u64, Status> {
        Ok(info::number(&self.argument_info(index, name)?).unwrap_or(0))
    }

    /// Returns a text from `clGetKernelArgInfo`.
    ///
    /// # Errors
    /// As [`Kernel::argument_number`].
    pub fn argument_text(&self, index: u32, name: u32) -> Result<String, Status> {
        self.argument_info(index, name).map(info::text)
    }

    fn argument_info(&self, index: u32, name: u32) -> Result<Vec<u8>, Status> {
        info::short_bytes(|size, value, size_ret| {
            // SAFETY: `value` has room for `size` bytes, `size_ret` is null or valid (info::short_bytes).
            check(unsafe {
                cl!(clGetKernelArgInfo(
                    self.raw, index, name, size, value, size_ret
                ))
            })
        })
    }

    /// Returns a raw answer of `clGetKernelWorkGroupInfo`.
    pub fn work_group_info(&self, device: Device, name: u32) -> Result<Vec<u8>, Status> {
        info::short_bytes(|size, value, size_ret| {
            // SAFETY: `value` has room for `size` bytes, `size_ret` is null or valid (info::short_bytes).
            check(unsafe {
                cl!(clGetKernelWorkGroupInfo(
                    self.raw, device.raw, name, size, value, size_ret
                ))
            })
        })
    }

    /// Returns a number from `clGetKernelWorkGroupInfo`; 0 if the driver does not report it.
    #[must_use]
    pub fn work_group_number(&self, device: Device, name: u32) -> u64 {
        let value = self.work_group_info(device, name);
        value.ok().and_then(|v| info::number(&v)).unwrap_or(0)
    }

    /// Returns a list of sizes from `clGetKernelWorkGroupInfo`; empty if the driver does not report it.
    #[must_use]
    pub fn work_group_sizes(&self, device: Device, name: u32) -> Vec<u64> {
        self.work_group_info(device, name)
            .map(|v| info::sizes(&v))
            .unwrap_or_default()
    }

    /// Returns a raw answer of `clGetKernelSubGroupInfo` with at most `room` sizes.
    pub fn sub_group_info(
        &self,
        device: Device,
        name: u32,
        input: &[usize],
        room: usize,
    ) -> Result<Vec<u8>, Status> {
        let mut sizes = vec![0usize; room];
        let mut length = 0;
        let given = if input.is_empty() {
            null()
        } else {
            input.as_ptr().cast()
        };
        // SAFETY: the lists have the given lengths (null when empty).
        check(unsafe {
            cl!(clGetKernelSubGroupInfo(
                self.raw,
                device.raw,
                name,
                size_of_val(input),
                given,
                size_of_val(sizes.as_slice()),
                sizes.as_mut_ptr().cast(),
                &raw mut length
            ))
        })?;
        let mut bytes: Vec<u8> = sizes.into_iter().flat_map(usize::to_ne_bytes).collect();
        bytes.truncate(length);
        Ok(bytes)
    }
}

release_on_drop!(Kernel, clReleaseKernel);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_has_one_to_three_dimensions_of_one_length() {
        assert!(Shape::new(&[], &[], &[]).is_none());
        assert!(Shape::new(&[1; 4], &[], &[]).is_none());
        assert!(Shape::new(&[8, 8], &[1], &[]).is_none());
        let shape = Shape::new(&[8, 4], &[], &[2, 2]).unwrap();
        assert_eq!(
            (shape.dimensions(), shape.global, shape.local),
            (2, [8, 4, 1], Some([2, 2, 1]))
        );
        assert!(Shape::new(&[8, 0], &[], &[]).unwrap().is_empty());
    }
}
