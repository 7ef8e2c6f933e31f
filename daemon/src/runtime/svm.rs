//! Shared virtual memory: coarse-grain buffers, at addresses that the driver chooses.
//!
//! Each allocation has a buffer over it (`CL_MEM_USE_HOST_PTR` with an SVM pointer). The driver confirms
//! that the buffer shares the storage. Sub-buffers of it make all buffer commands work on the allocation.
//! Kernels get its addresses. See "Shared Virtual Memory" in the OpenCL specification. Invariant: an
//! allocation is freed when the last buffer over it is gone.

use std::ffi::c_void;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use causeway_proto::status::Status;
use opencl_sys::{
    CL_KERNEL_EXEC_INFO_SVM_PTRS, CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, CL_MEM_USES_SVM_POINTER,
    CL_TRUE, cl_bool, cl_context,
};

use super::buffer::{Buffer, KERNEL_ACCESS};
use super::context::Context;
use super::kernel::Kernel;
use super::library::{check, cl};

/// Memory from `clSVMAlloc`; freed when dropped.
#[derive(Debug)]
struct Memory {
    context: cl_context,
    base: NonNull<c_void>,
    length: usize,
}

// SAFETY: the memory belongs to the process, and OpenCL contexts may be used from any thread.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(context: &Context, flags: u64, length: usize, alignment: u32) -> Result<Self, Status> {
        // SAFETY: the context is live; the result is null or memory that is owned here.
        let base = unsafe { cl!(clSVMAlloc(context.raw, flags, length, alignment)) };
        let base = NonNull::new(base).ok_or(Status::MEM_ALLOCATION_FAILURE)?;
        // SAFETY: the context is live; this reference keeps it alive until the memory has been freed.
        let kept = check(unsafe { cl!(clRetainContext(context.raw)) });
        if let Err(status) = kept {
            // SAFETY: the memory was just allocated, and no other code has its address.
            unsafe { cl!(clSVMFree(context.raw, base.as_ptr())) };
            return Err(status);
        }
        Ok(Memory {
            context: context.raw,
            base,
            length,
        })
    }

    /// Allocates memory at a multiple of `alignment`. If the driver cannot do that, allocates more, so that
    /// the memory contains such an address.
    fn aligned(
        context: &Context,
        flags: u64,
        length: usize,
        alignment: u32,
    ) -> Result<Self, Status> {
        // Drivers need not support alignments beyond that of their largest type.
        let aligned = Memory::new(context, flags, length, alignment)
            .ok()
            .filter(|made| made.address().is_multiple_of(alignment as usize));
        match aligned {
            Some(made) => Ok(made),
            None => {
                let more = length.checked_add(alignment as usize);
                Memory::new(context, flags, more.ok_or(Status::INVALID_VALUE)?, 0)
            }
        }
    }

    fn address(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// Makes a buffer over some bytes of the memory. The buffer must not outlive the memory.
    fn buffer(&self, flags: u64, origin: usize, size: usize) -> Result<Buffer, Status> {
        let flags = flags & KERNEL_ACCESS | CL_MEM_USE_HOST_PTR;
        let bytes = self.base.as_ptr().wrapping_byte_add(origin);
        // SAFETY: callers pass a range inside the allocation and keep it as long as the buffer; the
        // allocation keeps the context.
        unsafe { Buffer::create(self.context, flags, size, bytes) }
    }

    fn free(&self) -> Result<(), Status> {
        // SAFETY: the memory was allocated in this context and is freed only here; no buffer over it is
        // left.
        unsafe { cl!(clSVMFree(self.context, self.base.as_ptr())) };
        // SAFETY: `new` has taken this reference.
        check(unsafe { cl!(clReleaseContext(self.context)) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.free();
    }
}

/// An allocation with the buffer over all of it. The buffer is the first field, so it is dropped first.
#[derive(Debug)]
struct Allocation {
    whole: Buffer,
    memory: Memory,
}

impl Allocation {
    fn new(memory: Memory) -> Result<Allocation, Status> {
        let whole = memory.buffer(CL_MEM_READ_WRITE, 0, memory.length)?;
        let mut uses: cl_bool = 0;
        // SAFETY: the buffer is live, and `uses` has room for the answer.
        check(unsafe {
            cl!(clGetMemObjectInfo(
                whole.raw,
                CL_MEM_USES_SVM_POINTER,
                size_of::<cl_bool>(),
                (&raw mut uses).cast(),
                null_mut()
            ))
        })?;
        // A buffer that copies the memory would not share its contents with the kernels.
        if uses != CL_TRUE {
            return Err(Status::MEM_ALLOCATION_FAILURE);
        }
        Ok(Allocation { whole, memory })
    }
}

/// The part of an allocation that a buffer covers.
#[derive(Clone, Debug)]
pub(super) struct Share {
    allocation: Arc<Allocation>,
    /// Offset in the allocation, in bytes.
    origin: usize,
}

impl Share {
    /// Makes a buffer over `size` bytes from `offset` within this part.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the bytes are not inside the allocation.
    pub(super) fn part(&self, flags: u64, offset: u64, size: u64) -> Result<Buffer, Status> {
        let Allocation { whole, memory } = &*self.allocation;
        let bounds = || {
            let (offset, size) = (usize::try_from(offset).ok()?, usize::try_from(size).ok()?);
            let origin = self.origin.checked_add(offset)?;
            (origin.checked_add(size)? <= memory.length).then_some((origin, size))
        };
        let (origin, size) = bounds().ok_or(Status::INVALID_VALUE)?;
        let sub_buffer = whole.native_part(flags, origin as u64, size as u64);
        // If no device accepts the sub-buffer, for example because of its alignment, a buffer over the
        // address is used.
        let mut made = sub_buffer.or_else(|_| memory.buffer(flags, origin, size))?;
        made.svm = Some(Share {
            allocation: Arc::clone(&self.allocation),
            origin,
        });
        Ok(made)
    }

    fn address(&self) -> usize {
        self.allocation.memory.address() + self.origin
    }
}

impl Buffer {
    /// `clSVMAlloc`: `size` bytes at a multiple of `alignment`, which is a power of two. The memory up to
    /// the next multiple of `alignment` belongs to the allocation as well.
    ///
    /// # Errors
    /// The driver's error. `CL_MEM_OBJECT_ALLOCATION_FAILURE` if it has no memory; `CL_INVALID_OPERATION`
    /// if it does not support shared virtual memory.
    pub fn svm(context: &Context, flags: u64, size: u64, alignment: u64) -> Result<Buffer, Status> {
        let flags = flags & KERNEL_ACCESS;
        let step = u32::try_from(alignment)
            .ok()
            .filter(|step| step.is_power_of_two());
        let step = step.ok_or(Status::INVALID_VALUE)?;
        let length = usize::try_from(size)
            .ok()
            .and_then(|size| size.checked_next_multiple_of(step as usize));
        let length = length.ok_or(Status::INVALID_VALUE)?;
        let allocation = Allocation::new(Memory::aligned(context, flags, length, step)?)?;
        let base = allocation.memory.address();
        let share = Share {
            allocation: Arc::new(allocation),
            origin: base.next_multiple_of(step as usize) - base,
        };
        share.part(flags, 0, size)
    }

    /// Returns the address of the first byte, if this is shared virtual memory.
    pub fn svm_address(&self) -> Option<u64> {
        Some(self.svm.as_ref()?.address() as u64)
    }
}

impl Kernel {
    /// `clSetKernelArgSVMPointer`, with the address of a byte of shared virtual memory.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` for memory without an address.
    pub fn set_svm(&mut self, index: u32, memory: &Buffer, offset: u64) -> Result<(), Status> {
        let address = memory.svm_address().filter(|_| offset < memory.size);
        let address = address.ok_or(Status::INVALID_VALUE)? + offset;
        let pointer: *const c_void = std::ptr::with_exposed_provenance(address as usize);
        // SAFETY: the pointer refers to an allocation of the kernel's context; the driver only stores its
        // value.
        check(unsafe { cl!(clSetKernelArgSVMPointer(self.raw, index, pointer)) })
    }

    /// `clSetKernelExecInfo`: the shared virtual memory that the kernel reaches through pointers in memory.
    pub fn set_reaches(&mut self, addresses: &[u64]) -> Result<(), Status> {
        let pointers: Vec<*const c_void> = addresses
            .iter()
            .map(|address| std::ptr::with_exposed_provenance(*address as usize))
            .collect();
        let list = match &pointers[..] {
            [] => null(),
            list => list.as_ptr().cast(),
        };
        // SAFETY: the list has as many pointers as its size says.
        let set = check(unsafe {
            cl!(clSetKernelExecInfo(
                self.raw,
                CL_KERNEL_EXEC_INFO_SVM_PTRS,
                size_of_val(&pointers[..]),
                list
            ))
        });
        // A driver that rejects an empty list keeps the previous one. That list names too much memory,
        // never too little.
        if pointers.is_empty() { Ok(()) } else { set }
    }
}
