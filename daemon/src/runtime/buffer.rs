//! Memory objects: buffers and sub-buffers here, images in [`super::image`].
//!
//! Invariant: of the flags that a client sends, only the kernel access flags reach the driver. Host
//! pointers and host access are handled in the client.

use std::ffi::c_void;
use std::ptr::null_mut;

use causeway_proto::raster::Raster;
use causeway_proto::status::Status;
use opencl_sys::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_COPY_HOST_PTR, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE,
    CL_MEM_WRITE_ONLY, cl_buffer_region, cl_context, cl_mem,
};

use super::context::Context;
use super::library::{check, cl, release_on_drop};
use super::svm::Share;

pub(super) const KERNEL_ACCESS: u64 = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;

/// A native buffer, sub-buffer or image; released when dropped.
#[derive(Debug)]
pub struct Buffer {
    pub(super) raw: cl_mem,
    pub(super) size: u64,
    // Shape of an image; `None` for other objects.
    pub(super) raster: Option<Raster>,
    // The allocation behind shared virtual memory, and behind objects made from it.
    pub(super) svm: Option<Share>,
}

// SAFETY: OpenCL memory objects may be used from any thread.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `clCreateBuffer`, with initial contents unless `contents` is empty.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if `contents` is neither empty nor `size` bytes long.
    pub fn new(
        context: &Context,
        flags: u64,
        size: u64,
        contents: &[u8],
    ) -> Result<Buffer, Status> {
        let bytes = usize::try_from(size).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
        let mut flags = flags & KERNEL_ACCESS;
        let mut host = null_mut();
        if !contents.is_empty() {
            if contents.len() != bytes {
                return Err(Status::INVALID_VALUE);
            }
            flags |= CL_MEM_COPY_HOST_PTR;
            host = contents.as_ptr().cast_mut().cast();
        }
        // SAFETY: the context is live; the contents are `bytes` bytes, or the pointer is null.
        unsafe { Buffer::create(context.raw, flags, bytes, host) }
    }

    /// `clCreateBuffer` with unmodified flags.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The context is live. `host` is null if no flag requires a host pointer; otherwise it points to
    /// `size` bytes. With `CL_MEM_USE_HOST_PTR` these bytes outlive the buffer.
    pub(super) unsafe fn create(
        context: cl_context,
        flags: u64,
        size: usize,
        host: *mut c_void,
    ) -> Result<Buffer, Status> {
        let mut status = 0;
        // SAFETY: the caller guarantees the pointers; copied contents are read before the call returns.
        let raw = unsafe { cl!(clCreateBuffer(context, flags, size, host, &raw mut status)) };
        check(status)?;
        Ok(Buffer {
            raw,
            size: size as u64,
            raster: None,
            svm: None,
        })
    }

    /// `clCreateSubBuffer`. For shared virtual memory, makes a buffer over the same bytes.
    ///
    /// # Errors
    /// The driver's error, for example for a misaligned origin.
    pub fn sub_buffer(&self, flags: u64, origin: u64, size: u64) -> Result<Buffer, Status> {
        match &self.svm {
            Some(share) => share.part(flags, origin, size),
            None => self.native_part(flags, origin, size),
        }
    }

    pub(super) fn native_part(&self, flags: u64, origin: u64, size: u64) -> Result<Buffer, Status> {
        let region = cl_buffer_region {
            origin: usize::try_from(origin).map_err(|_| Status::OUT_OF_HOST_MEMORY)?,
            size: usize::try_from(size).map_err(|_| Status::OUT_OF_HOST_MEMORY)?,
        };
        let mut status = 0;
        // SAFETY: the structure has the type that this creation type requires.
        let raw = unsafe {
            cl!(clCreateSubBuffer(
                self.raw,
                flags & KERNEL_ACCESS,
                CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const region).cast(),
                &raw mut status
            ))
        };
        check(status)?;
        Ok(Buffer {
            raw,
            size,
            raster: None,
            svm: None,
        })
    }

    /// Returns the size in bytes. The size of an image is that of its elements without padding.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Makes a buffer in memory that the driver pins, for staging.
    pub(super) fn pinned(context: &Context, size: usize) -> Result<Buffer, Status> {
        let flags = CL_MEM_READ_WRITE | opencl_sys::CL_MEM_ALLOC_HOST_PTR;
        // SAFETY: the context is live; the flags require no host pointer.
        unsafe { Buffer::create(context.raw, flags, size, null_mut()) }
    }
}

release_on_drop!(Buffer, clReleaseMemObject);
