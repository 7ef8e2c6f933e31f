//! Memory objects: buffers and sub-buffers, and what images share with them.
//!
//! Transfers are in `transfer` and `rect`, maps in `map`, the rest of images in `image`. Invariant:
//! `address .. address + size` is readable and writable as long as the object is held.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::sync::Arc;

use cl_headers::types::*;
use parking_lot::Mutex;

use crate::context::Context;
use crate::device::{BASE_ALIGNMENT, Device};
use crate::error::{ClResult, ensure, fail};
use crate::image::Image;
use crate::map::Mapping;
use crate::object::{Object, Ref, body};
use crate::pipe::Pipe;
use crate::{arg, control, log, tag};

/// From this size on, memory is mapped, so that its pages are allocated at their first use.
const MAPPED_FROM: usize = 1 << 20;

/// How memory was allocated, and has to be freed.
enum Backing {
    /// The application's memory.
    Theirs,
    Heap(Layout),
    Mapped,
}

/// Storage of contents: our own memory, counted on the devices, or the application's memory.
pub(crate) struct Storage {
    pub(crate) address: usize,
    backing: Backing,
    counted_on: Vec<Ref<Device>>,
    size: usize,
}

impl Storage {
    /// Reserves `size` bytes on every device of the context and allocates them. With `host`, uses the
    /// application's memory there instead.
    pub(crate) fn new(context: &Context, size: usize, host: Option<usize>) -> ClResult<Arc<Self>> {
        let mut storage = Self {
            address: host.unwrap_or(0),
            backing: Backing::Theirs,
            counted_on: Vec::new(),
            size,
        };
        for device in &context.devices {
            // On failure, the drop of `storage` returns the reservations made so far.
            device.reserve(size as u64)?;
            storage.counted_on.push(device.clone());
        }
        if host.is_none() {
            storage.allocate()?;
        }
        Ok(Arc::new(storage))
    }

    /// Allocates zeroed memory.
    fn allocate(&mut self) -> ClResult {
        if self.size >= MAPPED_FROM {
            // SAFETY: the mapping is new, so nothing else uses it.
            let address = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    self.size,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            ensure(
                address != libc::MAP_FAILED,
                CL_MEM_OBJECT_ALLOCATION_FAILURE,
            )?;
            self.address = address.addr();
            self.backing = Backing::Mapped;
            return Ok(());
        }
        let layout = Layout::from_size_align(self.size, BASE_ALIGNMENT)
            .or(fail(CL_MEM_OBJECT_ALLOCATION_FAILURE))?;
        // SAFETY: the size is not 0, because every creator of an object has checked it.
        let address = unsafe { alloc_zeroed(layout) };
        ensure(!address.is_null(), CL_MEM_OBJECT_ALLOCATION_FAILURE)?;
        self.address = address.addr();
        self.backing = Backing::Heap(layout);
        Ok(())
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if control::current().leaks {
            return;
        }
        match self.backing {
            Backing::Theirs => {}
            // SAFETY: allocated with this layout, and all objects in it are gone.
            Backing::Heap(layout) => unsafe { dealloc(self.address as *mut u8, layout) },
            // SAFETY: mapped with this size, and all objects in it are gone.
            Backing::Mapped => unsafe {
                libc::munmap(self.address as *mut c_void, self.size);
            },
        }
        for device in &self.counted_on {
            device.give_back(self.size as u64);
        }
    }
}

type Destructor = (unsafe extern "C" fn(cl_mem, *mut c_void), usize);

/// The body of a memory object.
pub(crate) struct Memory {
    pub(crate) context: Ref<Context>,
    pub(crate) flags: cl_mem_flags,
    pub(crate) size: usize,
    pub(crate) address: usize,
    /// Offset in `parent`.
    pub(crate) origin: usize,
    pub(crate) parent: Option<Ref<Memory>>,
    pub(crate) image: Option<Image>,
    pub(crate) pipe: Option<Pipe>,
    /// As given with `CL_MEM_USE_HOST_PTR`.
    host_ptr: usize,
    properties: Vec<u64>,
    pub(crate) maps: Mutex<Vec<Mapping>>,
    destructors: Mutex<Vec<Destructor>>,
    /// These callbacks get the object's own handle, although it is then already dead.
    handle: Mutex<usize>,
    /// Dropped last, so that destructor callbacks come before.
    storage: Option<Arc<Storage>>,
}

body!(Memory, tag::MEMORY, CL_INVALID_MEM_OBJECT);

impl Drop for Memory {
    fn drop(&mut self) {
        let handle = *self.handle.lock();
        for (function, user_data) in self.destructors.get_mut().drain(..).rev() {
            // SAFETY: the application registered this function, and it is called once.
            unsafe { function(handle as cl_mem, user_data as *mut c_void) };
        }
    }
}

impl Memory {
    /// Returns the address of the root object's storage, and the offset in it.
    pub(crate) fn root(&self) -> (usize, usize) {
        (self.address - self.origin, self.origin)
    }

    pub(crate) fn is_buffer(&self) -> bool {
        self.image.is_none() && self.pipe.is_none()
    }
}

impl Object<Memory> {
    /// Returns the buffer behind a handle. Images and pipes are invalid here.
    ///
    /// # Safety
    /// `handle` comes from the application.
    pub(crate) unsafe fn borrow_buffer<'a>(handle: cl_mem) -> ClResult<&'a Self> {
        // SAFETY: the caller keeps the same contract.
        let memory = unsafe { Self::borrow(handle) }?;
        ensure(memory.is_buffer(), CL_INVALID_MEM_OBJECT)?;
        Ok(memory)
    }

    /// Checks that `offset .. offset + size` lies in the object.
    pub(crate) fn ensure_inside(&self, offset: usize, size: usize) -> ClResult {
        let end = offset.checked_add(size);
        ensure(end.is_some_and(|end| end <= self.size), CL_INVALID_VALUE)
    }
}

const ACCESS: cl_mem_flags = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
const HOST_ACCESS: cl_mem_flags =
    CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
const HOST_PTR: cl_mem_flags = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;

/// Checks flags: only known ones, and at most one of each exclusive group.
pub(crate) fn check_flags(flags: cl_mem_flags, known: cl_mem_flags) -> ClResult {
    ensure(flags & !known == 0, CL_INVALID_VALUE)?;
    ensure((flags & ACCESS).count_ones() <= 1, CL_INVALID_VALUE)?;
    ensure((flags & HOST_ACCESS).count_ones() <= 1, CL_INVALID_VALUE)?;
    let use_host = flags & CL_MEM_USE_HOST_PTR != 0;
    let other = flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0;
    ensure(!(use_host && other), CL_INVALID_VALUE)
}

/// Makes an object with contents according to the flags; for an image, with its description.
///
/// # Safety
/// `host_ptr` has `size` bytes, if the flags use it.
pub(crate) unsafe fn create(
    context: &Object<Context>,
    properties: Vec<u64>,
    flags: cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
    image: Option<Image>,
) -> ClResult<cl_mem> {
    let wants_ptr = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0;
    ensure(wants_ptr != host_ptr.is_null(), CL_INVALID_HOST_PTR)?;
    let host = (flags & CL_MEM_USE_HOST_PTR != 0).then(|| host_ptr.addr());
    let storage = Storage::new(context, size, host)?;
    if flags & CL_MEM_COPY_HOST_PTR != 0 {
        // SAFETY: the application passes `size` bytes, and the storage is new.
        unsafe { (storage.address as *mut u8).copy_from(host_ptr.cast::<u8>(), size) };
    }
    if wants_ptr {
        // SAFETY: the application passes as many bytes as the object has.
        let bytes = unsafe { arg::list(size, host_ptr.cast::<u8>()) };
        log::note("data", || log::digest([bytes]));
    }
    let access = if flags & ACCESS == 0 {
        CL_MEM_READ_WRITE
    } else {
        0
    };
    let memory = Ref::new(Memory {
        context: context.hold(),
        flags: flags | access,
        size,
        address: storage.address,
        origin: 0,
        parent: None,
        image,
        pipe: None,
        host_ptr: host.unwrap_or(0),
        properties,
        maps: Mutex::new(Vec::new()),
        destructors: Mutex::new(Vec::new()),
        handle: Mutex::new(0),
        storage: Some(storage),
    });
    *memory.handle.lock() = memory.handle().addr();
    Ok(memory.publish())
}

/// Makes a sub-buffer.
fn create_part(
    parent: &Object<Memory>,
    flags: cl_mem_flags,
    origin: usize,
    size: usize,
) -> ClResult<cl_mem> {
    ensure(parent.parent.is_none(), CL_INVALID_MEM_OBJECT)?;
    check_flags(flags, ACCESS | HOST_ACCESS)?;
    let narrower = |group: cl_mem_flags, open: cl_mem_flags| {
        let (own, theirs) = (flags & group, parent.flags & group);
        own == 0 || theirs == 0 || theirs == open || own == theirs
    };
    ensure(narrower(ACCESS, CL_MEM_READ_WRITE), CL_INVALID_VALUE)?;
    let host = flags & HOST_ACCESS;
    let host_fits = narrower(HOST_ACCESS, 0) || host == CL_MEM_HOST_NO_ACCESS;
    ensure(host_fits, CL_INVALID_VALUE)?;
    ensure(size > 0, CL_INVALID_BUFFER_SIZE)?;
    parent.ensure_inside(origin, size)?;
    let aligned = origin.is_multiple_of(BASE_ALIGNMENT);
    ensure(aligned, CL_MISALIGNED_SUB_BUFFER_OFFSET)?;
    let inherit = |group: cl_mem_flags| match flags & group {
        0 => parent.flags & group,
        own => own,
    };
    let host_ptr = match parent.host_ptr {
        0 => 0,
        address => address + origin,
    };
    let memory = Ref::new(Memory {
        context: parent.context.clone(),
        flags: inherit(ACCESS) | inherit(HOST_ACCESS) | parent.flags & HOST_PTR,
        size,
        address: parent.address + origin,
        origin,
        parent: Some(parent.hold()),
        image: None,
        pipe: None,
        host_ptr,
        properties: Vec::new(),
        maps: Mutex::new(Vec::new()),
        destructors: Mutex::new(Vec::new()),
        handle: Mutex::new(0),
        storage: parent.storage.clone(),
    });
    *memory.handle.lock() = memory.handle().addr();
    Ok(memory.publish())
}

/// Makes a pipe, whose packets count as memory.
pub(crate) fn create_pipe(
    context: &Object<Context>,
    flags: cl_mem_flags,
    pipe: Pipe,
) -> ClResult<cl_mem> {
    let size = pipe.size();
    let storage = Storage::new(context, size, None)?;
    let memory = Ref::new(Memory {
        context: context.hold(),
        flags,
        size,
        address: storage.address,
        origin: 0,
        parent: None,
        image: None,
        pipe: Some(pipe),
        host_ptr: 0,
        properties: Vec::new(),
        maps: Mutex::new(Vec::new()),
        destructors: Mutex::new(Vec::new()),
        handle: Mutex::new(0),
        storage: Some(storage),
    });
    *memory.handle.lock() = memory.handle().addr();
    Ok(memory.publish())
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use super::*;
    use crate::info::{Info, reply};

    pub(crate) unsafe fn clCreateBuffer(
        context: cl_context,
        flags: cl_mem_flags,
        size: size_t,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        let none = std::ptr::null();
        // SAFETY: the caller keeps the same contract.
        unsafe { clCreateBufferWithProperties(context, none, flags, size, host_ptr, errcode_ret) }
    }

    pub(crate) unsafe fn clCreateBufferWithProperties(
        context: cl_context,
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        size: size_t,
        host_ptr: *mut c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        // SAFETY: the application passes a list as OpenCL requires.
        let properties = unsafe { arg::properties(properties) };
        // Buffers have no known properties, so only the end of the list is allowed.
        ensure(properties.len() <= 1, CL_INVALID_PROPERTY)?;
        check_flags(flags, ACCESS | HOST_ACCESS | HOST_PTR)?;
        let most = context.devices.iter().map(|device| device.max_allocation());
        let fits = size > 0 && size as u64 <= most.max().unwrap_or(0);
        ensure(fits, CL_INVALID_BUFFER_SIZE)?;
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { create(context, properties, flags, size, host_ptr, None) }
    }

    pub(crate) unsafe fn clCreateSubBuffer(
        buffer: cl_mem,
        flags: cl_mem_flags,
        kind: cl_buffer_create_type,
        info: *const c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let buffer = unsafe { Object::<Memory>::borrow_buffer(buffer) }?;
        ensure(kind == CL_BUFFER_CREATE_TYPE_REGION, CL_INVALID_VALUE)?;
        ensure(!info.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: for this kind of sub-buffer, `info` points to a region.
        let region = unsafe { info.cast::<cl_buffer_region>().read() };
        log::note("region", || format!("{}+{}", region.origin, region.size));
        create_part(buffer, flags, region.origin, region.size)
    }

    pub(crate) unsafe fn clSetMemObjectDestructorCallback(
        memory: cl_mem,
        pfn_notify: MemCallback,
        user_data: *mut c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let memory = unsafe { Object::<Memory>::borrow(memory) }?;
        let Some(function) = pfn_notify else {
            return fail(CL_INVALID_VALUE);
        };
        let mut destructors = memory.destructors.lock();
        destructors.push((function, user_data as usize));
        Ok(())
    }

    pub(crate) unsafe fn clRetainMemObject(memory: cl_mem) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Memory>::borrow(memory) }?.retain();
        Ok(())
    }

    pub(crate) unsafe fn clReleaseMemObject(memory: cl_mem) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Memory>::borrow(memory) }?.release()
    }

    pub(crate) unsafe fn clGetMemObjectInfo(
        memory: cl_mem,
        name: cl_mem_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let memory = unsafe { Object::<Memory>::borrow(memory) }?;
        let kind = memory
            .image
            .as_ref()
            .map_or(CL_MEM_OBJECT_BUFFER, |image| image.kind);
        let kind = if memory.pipe.is_some() {
            CL_MEM_OBJECT_PIPE
        } else {
            kind
        };
        let parent = memory.parent.as_ref();
        let answer = match name {
            CL_MEM_TYPE => Info::uint(kind),
            CL_MEM_FLAGS => Info::ulong(memory.flags),
            CL_MEM_SIZE => Info::size(memory.size),
            CL_MEM_HOST_PTR => Info::size(memory.host_ptr),
            CL_MEM_MAP_COUNT => Info::uint(memory.maps.lock().len() as cl_uint),
            CL_MEM_REFERENCE_COUNT => Info::uint(memory.references()),
            CL_MEM_CONTEXT => Info::handle(memory.context.handle()),
            CL_MEM_ASSOCIATED_MEMOBJECT => {
                Info::handle(parent.map_or(std::ptr::null_mut(), |parent| parent.handle()))
            }
            CL_MEM_OFFSET => Info::size(memory.origin),
            CL_MEM_USES_SVM_POINTER => Info::bool(false),
            CL_MEM_PROPERTIES => Info::ulongs(&memory.properties),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }
}
