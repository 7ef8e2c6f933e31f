//! Creation, reference counts and destructor callbacks of buffers and sub-buffers.

use causeway_proto::region::Region;
use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::handle;
use super::{Noun, host_region};
use crate::error::{ClResult, fail, require};
use crate::stub::{Buffer, BufferSpec, Context, memory::svm};

pub(in crate::api) const KERNEL_ACCESS: cl_mem_flags =
    CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
pub(in crate::api) const HOST_ACCESS: cl_mem_flags =
    CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
pub(in crate::api) const HOST_POINTER: cl_mem_flags =
    CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;

/// Whether at most one bit of the set is in the flags.
pub(in crate::api) fn at_most_one(flags: cl_mem_flags, of: cl_mem_flags) -> bool {
    (flags & of).count_ones() <= 1
}

/// Checks flags for unknown bits, and for bits that exclude each other.
pub(in crate::api) fn check_flags(flags: cl_mem_flags) -> ClResult {
    let known = KERNEL_ACCESS | HOST_ACCESS | HOST_POINTER;
    let valid = flags & !known == 0
        && at_most_one(flags, KERNEL_ACCESS)
        && at_most_one(flags, HOST_ACCESS)
        && at_most_one(flags, CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR)
        && at_most_one(flags, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
    // clCreateBuffer: CL_INVALID_VALUE when flags are unknown or mutually exclusive.
    require(valid, CL_INVALID_VALUE)
}

/// Checks the size of a buffer. The limit is the one at which a device really fails, which is not always
/// the one that it reports.
fn check_size(context: &Context, size: usize) -> ClResult {
    let largest = context
        .devices()
        .iter()
        .map(|device| device.largest_buffer())
        .max();
    let fits = largest.is_none_or(|largest| size as u64 <= largest);
    // clCreateBuffer: CL_INVALID_BUFFER_SIZE when size is 0 or exceeds the largest allocation of every
    // device in the context.
    require(size > 0 && fits, CL_INVALID_BUFFER_SIZE)
}

/// Reads a property list, for which no name is known. Returns it with its final 0, or an empty list for
/// NULL.
pub(in crate::api) fn properties_of(properties: *const cl_mem_properties) -> ClResult<Vec<u64>> {
    if properties.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: not NULL, and a list has at least the 0 that ends it.
    let first = unsafe { properties.read() };
    // clCreateBufferWithProperties: CL_INVALID_PROPERTY when a name is not supported.
    require(first == 0, CL_INVALID_PROPERTY)?;
    Ok(vec![0])
}

fn create(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    size: size_t,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    let context = handle::resolve::<Context>(context)?;
    let properties = properties_of(properties)?;
    check_flags(flags)?;
    check_size(&context, size)?;
    // clCreateBuffer: CL_INVALID_HOST_PTR when host_ptr is given without a flag that uses it, or a flag
    // needs it and it is NULL.
    let wants_pointer = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0;
    require(wants_pointer != host_ptr.is_null(), CL_INVALID_HOST_PTR)?;
    let address = host_ptr.expose_provenance();
    let host_address = (flags & CL_MEM_USE_HOST_PTR != 0).then_some(address);
    let spec = BufferSpec {
        context,
        flags,
        properties,
        size: size as u64,
        host_address,
        image: None,
    };
    if let Some((svm, origin)) = host_address.and_then(|of| svm::find(&spec.context, of)) {
        // clCreateBuffer: CL_INVALID_BUFFER_SIZE when host_ptr comes from clSVMAlloc and size is larger
        // than that allocation.
        require(svm.range(origin, spec.size).is_ok(), CL_INVALID_BUFFER_SIZE)?;
        return Ok(handle::publish(Buffer::over_svm(&svm, origin, spec)?));
    }
    let contents = if wants_pointer {
        // clCreateBuffer: CL_INVALID_BUFFER_SIZE when no region of the wire can have this size.
        let whole = Region::linear(0, size as u64).or(fail(CL_INVALID_BUFFER_SIZE))?;
        // SAFETY: the application keeps `size` bytes readable for the length of this call, and all are
        // copied before it returns.
        Some(unsafe { host_region(address, whole) }?)
    } else {
        None
    };
    Ok(handle::publish(Buffer::new(spec, contents)?))
}

/// The flags of a sub-buffer, or of an image over other memory: its own flags, and those that it inherits.
///
/// # Errors
/// `CL_INVALID_VALUE` for flags that conflict with the parent's.
pub(in crate::api) fn inherited_flags(
    parent: cl_mem_flags,
    flags: cl_mem_flags,
) -> ClResult<cl_mem_flags> {
    check_flags(flags)?;
    // clCreateSubBuffer: CL_INVALID_VALUE when flags contains a host pointer flag, which only the parent
    // can have.
    require(flags & HOST_POINTER == 0, CL_INVALID_VALUE)?;
    let conflicts = [
        (CL_MEM_WRITE_ONLY, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY),
        (CL_MEM_READ_ONLY, CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY),
        (CL_MEM_HOST_WRITE_ONLY, CL_MEM_HOST_READ_ONLY),
        (CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY),
        (
            CL_MEM_HOST_NO_ACCESS,
            CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY,
        ),
    ];
    for (of_parent, excluded) in conflicts {
        // clCreateSubBuffer: CL_INVALID_VALUE when flags allows an access that the parent's flags exclude.
        require(
            parent & of_parent == 0 || flags & excluded == 0,
            CL_INVALID_VALUE,
        )?;
    }
    let mut all = flags | parent & HOST_POINTER;
    for of in [KERNEL_ACCESS, HOST_ACCESS] {
        if flags & of == 0 {
            all |= parent & of;
        }
    }
    Ok(all)
}

fn create_sub_buffer(
    buffer: cl_mem,
    flags: cl_mem_flags,
    create_type: cl_buffer_create_type,
    create_info: *const c_void,
) -> ClResult<cl_mem> {
    let parent = Noun::Buffer.resolve(buffer)?;
    // clCreateSubBuffer: CL_INVALID_MEM_OBJECT when buffer is a sub-buffer itself.
    require(parent.parent().is_none(), CL_INVALID_MEM_OBJECT)?;
    let flags = inherited_flags(parent.flags(), flags)?;
    // clCreateSubBuffer: CL_INVALID_VALUE when the type is unknown or the info for it is NULL.
    require(
        create_type == CL_BUFFER_CREATE_TYPE_REGION && !create_info.is_null(),
        CL_INVALID_VALUE,
    )?;
    // SAFETY: not NULL, and for this type the specification demands a cl_buffer_region.
    let cl_buffer_region { origin, size } =
        unsafe { create_info.cast::<cl_buffer_region>().read() };
    let (origin, size) = (origin as u64, size as u64);
    // clCreateSubBuffer: CL_INVALID_VALUE when the region leaves the buffer.
    // This precedes the check of the size, so a region of size 0 outside of the buffer gets this code too.
    parent.range(origin, size)?;
    // clCreateSubBuffer: CL_INVALID_BUFFER_SIZE when the size is 0.
    require(size > 0, CL_INVALID_BUFFER_SIZE)?;
    // clCreateSubBuffer: CL_MISALIGNED_SUB_BUFFER_OFFSET when the origin suits the alignment of no device
    // in the context.
    let suits_one = parent
        .context()
        .devices()
        .iter()
        .any(|device| origin.is_multiple_of(device.sub_buffer_alignment()));
    require(suits_one, CL_MISALIGNED_SUB_BUFFER_OFFSET)?;
    let sub_buffer = Buffer::sub_buffer(&parent, flags, origin, size)?;
    Ok(handle::publish(sub_buffer))
}

#[entry_point]
pub(crate) fn clCreateBuffer(
    context: cl_context,
    flags: cl_mem_flags,
    size: size_t,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    create(context, std::ptr::null(), flags, size, host_ptr)
}

#[entry_point]
pub(crate) fn clCreateBufferWithProperties(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    size: size_t,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    create(context, properties, flags, size, host_ptr)
}

#[entry_point]
pub(crate) fn clCreateSubBuffer(
    buffer: cl_mem,
    flags: cl_mem_flags,
    buffer_create_type: cl_buffer_create_type,
    buffer_create_info: *const c_void,
) -> ClResult<cl_mem> {
    create_sub_buffer(buffer, flags, buffer_create_type, buffer_create_info)
}

#[entry_point]
pub(crate) fn clRetainMemObject(memobj: cl_mem) -> ClResult {
    handle::retain::<Buffer>(memobj)
}

#[entry_point]
pub(crate) fn clReleaseMemObject(memobj: cl_mem) -> ClResult {
    let memory = handle::resolve::<Buffer>(memobj)?;
    let was_last = handle::release_one::<Buffer>(memobj)?;
    // Programs free the host memory after the last release, although only the destructor callback says
    // that it is no longer used. So this call waits for unmaps that still read it. A sub-buffer's host
    // memory belongs to its parent, which may have been released before.
    let root = memory.root();
    if was_last && root.host_address().is_some() {
        let left = handle::reference_count::<Buffer>(handle::raw_of(root));
        if left.is_ok_and(|count| count == 0) {
            memory.leave_host_memory();
        }
    }
    Ok(())
}

#[entry_point]
pub(crate) fn clSetMemObjectDestructorCallback(
    memobj: cl_mem,
    pfn_notify: MemCallback,
    user_data: *mut c_void,
) -> ClResult {
    let buffer = handle::resolve::<Buffer>(memobj)?;
    // clSetMemObjectDestructorCallback: CL_INVALID_VALUE when pfn_notify is NULL.
    let Some(callback) = pfn_notify else {
        return fail(CL_INVALID_VALUE);
    };
    let (address, user_data) = (memobj.expose_provenance(), user_data.expose_provenance());
    buffer.on_destroyed(Box::new(move || {
        let memobj = std::ptr::with_exposed_provenance_mut(address);
        let user_data = std::ptr::with_exposed_provenance_mut(user_data);
        // SAFETY: the application gave this callback and this data for exactly this call, from any
        // thread.
        unsafe { callback(memobj, user_data) };
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_exclude_each_other_are_refused() {
        let good = [
            0,
            CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR,
            CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS,
        ];
        let bad = [
            CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
            CL_MEM_READ_WRITE | CL_MEM_READ_ONLY,
            CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR,
            CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR,
            CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS,
            1 << 6,
            1 << 40,
        ];
        assert!(good.into_iter().all(|flags| check_flags(flags).is_ok()));
        assert!(bad.into_iter().all(|flags| check_flags(flags).is_err()));
    }

    #[test]
    fn a_sub_buffer_inherits_what_it_does_not_say() {
        let parent = CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR | CL_MEM_HOST_WRITE_ONLY;
        assert_eq!(inherited_flags(parent, 0), Ok(parent));
        assert_eq!(
            inherited_flags(parent, CL_MEM_HOST_NO_ACCESS),
            Ok(CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS)
        );
        assert_eq!(
            inherited_flags(CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY),
            Ok(CL_MEM_WRITE_ONLY)
        );
        assert!(inherited_flags(parent, CL_MEM_READ_WRITE).is_err());
        assert!(inherited_flags(parent, CL_MEM_HOST_READ_ONLY).is_err());
        assert!(inherited_flags(0, CL_MEM_COPY_HOST_PTR).is_err());
        assert!(inherited_flags(CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY).is_err());
    }

    #[test]
    fn property_names_are_unknown() {
        assert_eq!(properties_of(std::ptr::null()), Ok(Vec::new()));
        assert_eq!(properties_of([0u64].as_ptr()), Ok(vec![0]));
        assert_eq!(
            properties_of([0x1234u64, 1, 0].as_ptr()).unwrap_err().0,
            CL_INVALID_PROPERTY
        );
    }
}
