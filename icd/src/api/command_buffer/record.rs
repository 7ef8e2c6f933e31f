//! `clCommand*KHR`: recording of one command. Each makes the checks of its `clEnqueue*`, through the same
//! functions.

use std::sync::Arc;

use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::handle;
use super::super::image::copy_fill::{self as image, Way};
use super::super::info::list;
use super::super::launch;
use super::super::memory::copy_fill::{self as buffer, Copy, CopyRectangle, Fill};
use super::super::svm::copy_fill as svm;
use super::mutable::{ASSERTS, launch_properties};
use crate::error::{ClResult, require};
use crate::stub::{
    Command, CommandBuffer, Hold, Kernel, Mutable, MutableCommand, Phase, Queue, Recorded,
};

/// The arguments that every command of a command buffer has.
struct Call {
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
}

impl Call {
    /// Makes the checks that all commands but launches share, then those of the command, and records it.
    fn record(&self, command: impl FnOnce(&Arc<Queue>) -> ClResult<Recorded>) -> ClResult {
        let stub = self.recording()?;
        // clCommand*KHR: CL_INVALID_VALUE when mutable_handle is not NULL for a command that cannot be
        // changed.
        require(self.mutable_handle.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the specification demands NULL or a list with at least the 0 that ends it.
        let is_empty = self.properties.is_null() || unsafe { self.properties.read() } == 0;
        // clCommand*KHR: CL_INVALID_VALUE when properties names a property; these commands have none.
        require(is_empty, CL_INVALID_VALUE)?;
        let command = command(stub.queue())?;
        self.append(&stub, command).map(drop)
    }

    /// Returns the command buffer, and checks that it is recording.
    fn recording(&self) -> ClResult<Arc<CommandBuffer>> {
        let stub = handle::resolve::<CommandBuffer>(self.command_buffer)?;
        // clCommand*KHR: CL_INVALID_COMMAND_QUEUE when command_queue is not NULL, which only
        // cl_khr_command_buffer_multi_device allows.
        require(self.command_queue.is_null(), CL_INVALID_COMMAND_QUEUE)?;
        // clCommand*KHR: CL_INVALID_OPERATION when the command buffer is finalized.
        require(stub.phase() == Phase::Recording, CL_INVALID_OPERATION)?;
        Ok(stub)
    }

    /// Records a checked command. Returns its handle if the command may be changed.
    fn append(
        &self,
        stub: &Arc<CommandBuffer>,
        command: Recorded,
    ) -> ClResult<Option<Arc<MutableCommand>>> {
        let (count, wait) = (self.num_sync_points_in_wait_list, self.sync_point_wait_list);
        let is_list = wait.is_null() == (count == 0);
        // clCommand*KHR: CL_INVALID_SYNC_POINT_WAIT_LIST_KHR when the list is NULL and its count is not 0,
        // or the reverse.
        require(is_list, CL_INVALID_SYNC_POINT_WAIT_LIST_KHR)?;
        // SAFETY: NULL or of `count` sync points.
        let wait = unsafe { list(wait, count as usize) };
        let (point, handle) = stub.record(command, wait)?;
        if !self.sync_point.is_null() {
            // SAFETY: the specification lets `sync_point` be NULL or writable.
            unsafe { self.sync_point.write(point) };
        }
        Ok(handle)
    }

    /// Records a launch, which alone may have properties and a handle.
    fn launch(
        &self,
        kernel: cl_kernel,
        dimensions: cl_uint,
        sizes: [*const size_t; 3],
    ) -> ClResult {
        let stub = self.recording()?;
        // SAFETY: the specification demands NULL or a list of pairs that a name of 0 ends.
        let properties = unsafe { launch_properties(&stub, self.properties)? };
        let kernel = handle::resolve::<Kernel>(kernel)?;
        let mut given = None;
        let range = || {
            // SAFETY: the specification demands that each list is NULL or has `dimensions` sizes.
            let range = unsafe { launch::read_range(dimensions, sizes)? };
            given = Some(range);
            Ok(range)
        };
        let deferred = properties.defers_arguments(&stub, !self.mutable_handle.is_null());
        let begun = launch::begun(&kernel, stub.queue(), deferred)?;
        let (launch, range) = launch::checked(begun, range)?;
        // clCommandNDRangeKernelKHR: CL_INVALID_VALUE when the program asserts that there will be no
        // additional work-groups but gives no local size.
        let asserted = (stub.properties().asserts | properties.asserts) & ASSERTS != 0;
        require(!asserted || !sizes[2].is_null(), CL_INVALID_VALUE)?;
        // Updates and queries start from the sizes as the application gave them, not from those that the
        // checks completed.
        let mutable = (!self.mutable_handle.is_null()).then(|| Mutable {
            dispatch: launch.dispatch(&given.unwrap_or(range)),
            fields: properties.fields,
            properties: properties.list,
        });
        let launch = launch.capture(&range)?;
        let command = match mutable {
            Some(mutable) => Recorded::Mutable(launch, Box::new(mutable)),
            None => Recorded::Launch(launch),
        };
        if let Some(command) = self.append(&stub, command)? {
            // SAFETY: not NULL, because there is a handle. So the specification demands room for one.
            unsafe {
                self.mutable_handle
                    .write(handle::publish_permanent(&command))
            };
        }
        Ok(())
    }
}

/// A copy or fill as a recorded command. Without bytes it is a command that does nothing.
fn work(command: Option<Command>, memory: Hold) -> Recorded {
    Recorded::Command(command.unwrap_or(Command::Nothing), memory)
}

fn copying(copy: Copy) -> Recorded {
    work(copy.work(), copy.hold())
}

#[entry_point]
pub(crate) fn clCommandNDRangeKernelKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    kernel: cl_kernel,
    work_dim: cl_uint,
    global_work_offset: *const size_t,
    global_work_size: *const size_t,
    local_work_size: *const size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.launch(
        kernel,
        work_dim,
        [global_work_offset, global_work_size, local_work_size],
    )
}

#[entry_point]
pub(crate) fn clCommandBarrierWithWaitListKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|_| Ok(Recorded::Barrier))
}

#[entry_point]
pub(crate) fn clCommandCopyBufferKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_offset: size_t,
    dst_offset: size_t,
    size: size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|queue| {
        let offsets = (src_offset, dst_offset, size);
        buffer::bytes(queue, (src_buffer, dst_buffer), offsets).map(copying)
    })
}

#[entry_point]
pub(crate) fn clCommandCopyBufferRectKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    src_row_pitch: size_t,
    src_slice_pitch: size_t,
    dst_row_pitch: size_t,
    dst_slice_pitch: size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|queue| {
        let rectangle = CopyRectangle {
            source_origin: src_origin,
            destination_origin: dst_origin,
            region,
            source_pitches: (src_row_pitch, src_slice_pitch),
            destination_pitches: (dst_row_pitch, dst_slice_pitch),
        };
        rectangle.copy(queue, src_buffer, dst_buffer).map(copying)
    })
}

#[entry_point]
pub(crate) fn clCommandCopyBufferToImageKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    src_buffer: cl_mem,
    dst_image: cl_mem,
    src_offset: size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|queue| {
        let (image, buffer) = ((dst_image, dst_origin, region), (src_buffer, src_offset));
        // SAFETY: the specification demands arrays that are NULL or of three numbers.
        unsafe { image::with_buffer(queue, Way::ToImage, image, buffer) }.map(copying)
    })
}

#[entry_point]
pub(crate) fn clCommandCopyImageKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    src_image: cl_mem,
    dst_image: cl_mem,
    src_origin: *const size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|queue| {
        let (images, origins) = ((src_image, dst_image), (src_origin, dst_origin));
        // SAFETY: the specification demands arrays that are NULL or of three numbers.
        unsafe { image::images(queue, images, origins, region) }.map(copying)
    })
}

#[entry_point]
pub(crate) fn clCommandCopyImageToBufferKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    src_image: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const size_t,
    region: *const size_t,
    dst_offset: size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|queue| {
        let (image, buffer) = ((src_image, src_origin, region), (dst_buffer, dst_offset));
        // SAFETY: the specification demands arrays that are NULL or of three numbers.
        unsafe { image::with_buffer(queue, Way::ToBuffer, image, buffer) }.map(copying)
    })
}

#[entry_point]
pub(crate) fn clCommandFillBufferKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    buffer: cl_mem,
    pattern: *const c_void,
    pattern_size: size_t,
    offset: size_t,
    size: size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|queue| {
        let fill = Fill {
            buffer,
            pattern,
            pattern_size,
            offset,
            size,
        };
        // SAFETY: the specification demands NULL or `pattern_size` bytes.
        let (filled, memory) = unsafe { fill.work(queue)? };
        Ok(work(filled, memory))
    })
}

#[entry_point]
pub(crate) fn clCommandFillImageKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    image: cl_mem,
    fill_color: *const c_void,
    origin: *const size_t,
    region: *const size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|queue| {
        // SAFETY: the specification demands a colour, and arrays that are NULL or of three numbers.
        let (filled, memory) =
            unsafe { image::filling(queue, image, fill_color, (origin, region))? };
        Ok(work(Some(filled), memory))
    })
}

#[entry_point]
pub(crate) fn clCommandSVMMemcpyKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    dst_ptr: *mut c_void,
    src_ptr: *const c_void,
    size: size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|queue| {
        let (copied, memory) = svm::copying(queue, dst_ptr, src_ptr, size)?;
        Ok(work(copied, memory))
    })
}

#[entry_point]
pub(crate) fn clCommandSVMMemFillKHR(
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    svm_ptr: *mut c_void,
    pattern: *const c_void,
    pattern_size: size_t,
    size: size_t,
    num_sync_points_in_wait_list: cl_uint,
    sync_point_wait_list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
) -> ClResult {
    let call = Call {
        command_buffer,
        command_queue,
        properties,
        num_sync_points_in_wait_list,
        sync_point_wait_list,
        sync_point,
        mutable_handle,
    };
    call.record(|queue| {
        let pattern = (pattern, pattern_size);
        // SAFETY: the specification demands NULL or `pattern_size` bytes.
        let (filled, memory) = unsafe { svm::filling(queue, svm_ptr, pattern, size)? };
        Ok(work(filled, memory))
    })
}
