//! Shared virtual memory: coarse-grain buffers, at addresses that the driver chooses.
//!
//! An allocation has a buffer over it (`CL_MEM_USE_HOST_PTR` with an SVM pointer, which shares the storage; the driver is
//! asked whether it does), of which parts are made, so that every command on buffers works on it; kernels get its
//! addresses. Specification: "Shared Virtual Memory". Invariant: an allocation is freed when the last part is gone.

use std::ffi::c_void;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use causeway_proto::status::Status;
use opencl_sys::{
    CL_KERNEL_EXEC_INFO_SVM_PTRS, CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, CL_MEM_USES_SVM_POINTER,
    CL_TRUE, cl_bool, cl_context,
};

use super::buffer::{ALLOCATION_FAILURE, Buffer, KERNEL_ACCESS};
use super::context::Context;
use super::kernel::Kernel;
use super::library::{check, cl};

const INVALID_VALUE: Status = Status(-30);

/// Memory that `clSVMAlloc` gave; freed when dropped.
#[derive(Debug)]
struct Memory {
    context: cl_context,
    base: NonNull<c_void>,
    length: usize,
}

// SAFETY: the memory belongs to the process, and OpenCL contexts may be used from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(context: &Context, flags: u64, length: usize, alignment: u32) -> Result<Self, Status> {
        // SAFETY: a live context; what comes back is null or memory of ours.
        let base = unsafe { cl!(clSVMAlloc(context.raw, flags, length, alignment)) };
        let base = NonNull::new(base).ok_or(ALLOCATION_FAILURE)?;
        // SAFETY: a live context, of which one reference is kept until the memory has been freed.
        let kept = check(unsafe { cl!(clRetainContext(context.raw)) });
        if let Err(status) = kept {
            // SAFETY: what was just allocated, which nobody knows.
            unsafe { cl!(clSVMFree(context.raw, base.as_ptr())) };
            return Err(status);
        }
        Ok(Memory {
            context: context.raw,
            base,
            length,
        })
    }

    /// The same at a multiple of `alignment`, or longer by that: then there is such an address in it.
    fn aligned(
        context: &Context,
        flags: u64,
        length: usize,
        alignment: u32,
    ) -> Result<Self, Status> {
        // Drivers need not know alignments beyond that of their largest type.
        let aligned = Memory::new(context, flags, length, alignment)
            .ok()
            .filter(|made| made.address().is_multiple_of(alignment as usize));
        match aligned {
            Some(made) => Ok(made),
            None => {
                let more = length.checked_add(alignment as usize);
                Memory::new(context, flags, more.ok_or(INVALID_VALUE)?, 0)
            }
        }
    }

    fn address(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// A buffer over bytes of it, which must not outlive it.
    fn buffer(&self, flags: u64, origin: usize, size: usize) -> Result<Buffer, Status> {
        let flags = flags & KERNEL_ACCESS | CL_MEM_USE_HOST_PTR;
        let bytes = self.base.as_ptr().wrapping_byte_add(origin);
        // SAFETY: callers give bytes of the allocation, and keep it as long as the buffer; it keeps the context.
        unsafe { Buffer::create(self.context, flags, size, bytes) }
    }

    fn free(&self) -> Result<(), Status> {
        // SAFETY: allocated in this context, and freed only here; no buffer over it is left.
        unsafe { cl!(clSVMFree(self.context, self.base.as_ptr())) };
        // SAFETY: the reference that `new` took.
        check(unsafe { cl!(clReleaseContext(self.context)) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.free();
    }
}

/// An allocation with the buffer over all of it, which goes first.
#[derive(Debug)]
struct Allocation {
    whole: Buffer,
    memory: Memory,
}

impl Allocation {
    fn new(memory: Memory) -> Result<Allocation, Status> {
        let whole = memory.buffer(CL_MEM_READ_WRITE, 0, memory.length)?;
        let mut uses: cl_bool = 0;
        // SAFETY: a live buffer, and room for one number.
        check(unsafe {
            cl!(clGetMemObjectInfo(
                whole.raw,
                CL_MEM_USES_SVM_POINTER,
                size_of::<cl_bool>(),
                (&raw mut uses).cast(),
                null_mut()
            ))
        })?;
        // A copy of the memory would be of no use.
        if uses != CL_TRUE {
            return Err(ALLOCATION_FAILURE);
        }
        Ok(Allocation { whole, memory })
    }
}

/// A buffer's part of an allocation.
#[derive(Clone, Debug)]
pub(super) struct Share {
    allocation: Arc<Allocation>,
    /// Where it begins.
    origin: usize,
}

impl Share {
    /// A buffer over bytes from here on.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_VALUE` when they are not all inside.
    pub(super) fn part(&self, flags: u64, offset: u64, size: u64) -> Result<Buffer, Status> {
        let Allocation { whole, memory } = &*self.allocation;
        let bounds = || {
            let (offset, size) = (usize::try_from(offset).ok()?, usize::try_from(size).ok()?);
            let origin = self.origin.checked_add(offset)?;
            (origin.checked_add(size)? <= memory.length).then_some((origin, size))
        };
        let (origin, size) = bounds().ok_or(INVALID_VALUE)?;
        let sub_buffer = whole.native_part(flags, origin as u64, size as u64);
        // Where no device takes a sub-buffer, the address itself is taken.
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
    /// `clSVMAlloc`: `size` bytes at an address that is a multiple of `alignment` (a power of two), with nothing else
    /// behind it up to a multiple of that.
    ///
    /// # Errors
    /// What the driver says; `CL_MEM_OBJECT_ALLOCATION_FAILURE` when it has no memory, `CL_INVALID_OPERATION` when it
    /// knows no shared virtual memory.
    pub fn svm(context: &Context, flags: u64, size: u64, alignment: u64) -> Result<Buffer, Status> {
        let flags = flags & KERNEL_ACCESS;
        let step = u32::try_from(alignment)
            .ok()
            .filter(|step| step.is_power_of_two());
        let step = step.ok_or(INVALID_VALUE)?;
        let length = usize::try_from(size)
            .ok()
            .and_then(|size| size.checked_next_multiple_of(step as usize));
        let length = length.ok_or(INVALID_VALUE)?;
        let allocation = Allocation::new(Memory::aligned(context, flags, length, step)?)?;
        let base = allocation.memory.address();
        let share = Share {
            allocation: Arc::new(allocation),
            origin: base.next_multiple_of(step as usize) - base,
        };
        share.part(flags, 0, size)
    }

    /// The address of its first byte, if it is shared virtual memory.
    #[must_use]
    pub fn svm_address(&self) -> Option<u64> {
        Some(self.svm.as_ref()?.address() as u64)
    }
}

impl Kernel {
    /// `clSetKernelArgSVMPointer`, to a byte of shared virtual memory.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_VALUE` for memory without an address.
    pub fn set_svm(&mut self, index: u32, memory: &Buffer, offset: u64) -> Result<(), Status> {
        let address = memory.svm_address().filter(|_| offset < memory.size);
        let address = address.ok_or(INVALID_VALUE)? + offset;
        let pointer: *const c_void = std::ptr::with_exposed_provenance(address as usize);
        // SAFETY: a pointer into an allocation of the kernel's context; the driver keeps its value.
        check(unsafe { cl!(clSetKernelArgSVMPointer(self.raw, index, pointer)) })
    }

    /// `clSetKernelExecInfo`: the shared virtual memory that it reaches by pointers in memory.
    ///
    /// # Errors
    /// What the driver says.
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
        // A driver that knows no empty list keeps the one before, which says too much and never too little.
        if pointers.is_empty() { Ok(()) } else { set }
    }
}
