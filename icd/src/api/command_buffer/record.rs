//! `clCommand*KHR`: recording of one command. Each makes the checks of its `clEnqueue*`, through the same
//! functions.

use std::sync::Arc;

use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::handle;
use super::super::image::copy_fill::{self as image, Way};
use super::super::info::list;
use super::super::launch;
use super::super::memory::copy_fill::{self as buffer, Work};
use super::super::memory::rect::Rectangles;
use super::super::svm::copy_fill as svm;
use super::mutable::{ASSERTS, launch_properties};
use crate::error::{ClResult, require};
use crate::stub::{
    CommandBuffer, Kernel, Mutable, MutableCommand, NodeCommand, Phase, Queue, Recorded,
};

/// The arguments that begin each function that records: where the command is recorded.
pub(super) struct Recorder {
    command_buffer: cl_command_buffer_khr,
    command_queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
}

/// The arguments that end each function that records: the wait list, and the places for what is returned.
pub(super) struct SyncPoints {
    count: cl_uint,
    list: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    mutable_handle: *mut cl_mutable_command_khr,
}

impl SyncPoints {
    /// # Safety
    /// `list` is NULL or points to `count` sync points. The others are NULL or writable.
    unsafe fn from_c(
        count: cl_uint,
        list: *const cl_sync_point_khr,
        sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) -> SyncPoints {
        SyncPoints {
            count,
            list,
            sync_point,
            mutable_handle,
        }
    }

    /// Records a checked command. Returns its handle if the command may be changed.
    fn append(
        &self,
        stub: &Arc<CommandBuffer>,
        command: Recorded,
    ) -> ClResult<Option<Arc<MutableCommand>>> {
        let is_list = self.list.is_null() == (self.count == 0);
        // clCommand*KHR: CL_INVALID_SYNC_POINT_WAIT_LIST_KHR when the list is NULL and its count is not 0,
        // or the reverse.
        require(is_list, CL_INVALID_SYNC_POINT_WAIT_LIST_KHR)?;
        // SAFETY: by `from_c`'s contract NULL or of `count` sync points.
        let wait = unsafe { list(self.list, self.count as usize) };
        let (point, handle) = stub.record(command, wait)?;
        if !self.sync_point.is_null() {
            // SAFETY: not NULL, so by `from_c`'s contract writable.
            unsafe { self.sync_point.write(point) };
        }
        Ok(handle)
    }
}

impl Recorder {
    /// # Safety
    /// `properties` is NULL or points to a list of pairs that a name of 0 ends.
    unsafe fn from_c(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr,
    ) -> Recorder {
        Recorder {
            command_buffer,
            command_queue,
            properties,
        }
    }

    /// Records a copy or fill. Without bytes, records a command that does nothing.
    fn work(
        &self,
        sync: &SyncPoints,
        work: impl FnOnce(&Arc<Queue>) -> ClResult<Work>,
    ) -> ClResult {
        self.record(sync, |queue| {
            let (command, memory) = work(queue)?;
            let command = command.unwrap_or(NodeCommand::Nothing);
            Ok(Recorded::Command(command, memory))
        })
    }

    /// Makes the checks that all commands but launches share, then those of the command, and records it.
    fn record(
        &self,
        sync: &SyncPoints,
        command: impl FnOnce(&Arc<Queue>) -> ClResult<Recorded>,
    ) -> ClResult {
        let stub = self.recording()?;
        // clCommand*KHR: CL_INVALID_VALUE when mutable_handle is not NULL for a command that cannot be
        // changed.
        require(sync.mutable_handle.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: by `from_c`'s contract NULL or a list with at least the 0 that ends it.
        let is_empty = self.properties.is_null() || unsafe { self.properties.read() } == 0;
        // clCommand*KHR: CL_INVALID_VALUE when properties names a property; these commands have none.
        require(is_empty, CL_INVALID_VALUE)?;
        let command = command(stub.queue())?;
        sync.append(&stub, command).map(drop)
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

    /// Records a launch, which alone may have properties and a handle.
    fn launch(
        &self,
        sync: &SyncPoints,
        kernel: cl_kernel,
        dimensions: cl_uint,
        sizes: [*const size_t; 3],
    ) -> ClResult {
        let stub = self.recording()?;
        // SAFETY: by `from_c`'s contract NULL or a list of pairs that a name of 0 ends.
        let properties = unsafe { launch_properties(&stub, self.properties)? };
        let kernel = handle::resolve::<Kernel>(kernel)?;
        let mut given = None;
        let range = || {
            // SAFETY: the specification demands that each list is NULL or has `dimensions` sizes.
            let range = unsafe { launch::read_range(dimensions, sizes)? };
            given = Some(range);
            Ok(range)
        };
        let deferred = properties.defers_arguments(&stub, !sync.mutable_handle.is_null());
        let begun = launch::begun(&kernel, stub.queue(), deferred)?;
        let (launch, range) = launch::checked(begun, range)?;
        // clCommandNDRangeKernelKHR: CL_INVALID_VALUE when the program asserts that there will be no
        // additional work-groups but gives no local size.
        let asserted = (stub.properties().asserts | properties.asserts) & ASSERTS != 0;
        require(!asserted || !sizes[2].is_null(), CL_INVALID_VALUE)?;
        // Updates and queries start from the sizes as the application gave them, not from those that the
        // checks completed.
        let mutable = (!sync.mutable_handle.is_null()).then(|| Mutable {
            dispatch: launch.dispatch(&given.unwrap_or(range)),
            fields: properties.fields,
            properties: properties.list,
        });
        let launch = launch.capture(&range)?;
        let command = match mutable {
            Some(mutable) => Recorded::Mutable(launch, Box::new(mutable)),
            None => Recorded::Launch(launch),
        };
        if let Some(command) = sync.append(&stub, command)? {
            // SAFETY: not NULL, because there is a handle. So by `from_c`'s contract writable.
            unsafe {
                sync.mutable_handle
                    .write(handle::publish_permanent(&command))
            };
        }
        Ok(())
    }
}

#[entry_point]
pub(crate) fn clCommandNDRangeKernelKHR(
    recorder: Recorder,
    kernel: cl_kernel,
    work_dim: cl_uint,
    global_work_offset: *const size_t,
    global_work_size: *const size_t,
    local_work_size: *const size_t,
    sync: SyncPoints,
) -> ClResult {
    let lists = [global_work_offset, global_work_size, local_work_size];
    recorder.launch(&sync, kernel, work_dim, lists)
}

#[entry_point]
pub(crate) fn clCommandBarrierWithWaitListKHR(recorder: Recorder, sync: SyncPoints) -> ClResult {
    recorder.record(&sync, |_| Ok(Recorded::Barrier))
}

#[entry_point]
pub(crate) fn clCommandCopyBufferKHR(
    recorder: Recorder,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_offset: size_t,
    dst_offset: size_t,
    size: size_t,
    sync: SyncPoints,
) -> ClResult {
    let offsets = (src_offset, dst_offset, size);
    recorder.work(&sync, |queue| {
        buffer::bytes(queue, [src_buffer, dst_buffer], offsets)
    })
}

#[entry_point]
pub(crate) fn clCommandCopyBufferRectKHR(
    recorder: Recorder,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    src_row_pitch: size_t,
    src_slice_pitch: size_t,
    dst_row_pitch: size_t,
    dst_slice_pitch: size_t,
    sync: SyncPoints,
) -> ClResult {
    let given = Rectangles {
        origins: [src_origin, dst_origin],
        region,
        pitches: [
            (src_row_pitch, src_slice_pitch),
            (dst_row_pitch, dst_slice_pitch),
        ],
    };
    recorder.work(&sync, |queue| {
        buffer::rectangles(queue, [src_buffer, dst_buffer], &given)
    })
}

#[entry_point]
pub(crate) fn clCommandCopyBufferToImageKHR(
    recorder: Recorder,
    src_buffer: cl_mem,
    dst_image: cl_mem,
    src_offset: size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    sync: SyncPoints,
) -> ClResult {
    let (image, buffer) = ((dst_image, dst_origin, region), (src_buffer, src_offset));
    // SAFETY: the specification demands arrays that are NULL or of three numbers.
    recorder.work(&sync, |queue| unsafe {
        image::with_buffer(queue, Way::ToImage, image, buffer)
    })
}

#[entry_point]
pub(crate) fn clCommandCopyImageKHR(
    recorder: Recorder,
    src_image: cl_mem,
    dst_image: cl_mem,
    src_origin: *const size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    sync: SyncPoints,
) -> ClResult {
    let (from, to) = ((src_image, src_origin), (dst_image, dst_origin));
    // SAFETY: the specification demands arrays that are NULL or of three numbers.
    recorder.work(&sync, |queue| unsafe {
        image::images(queue, from, to, region)
    })
}

#[entry_point]
pub(crate) fn clCommandCopyImageToBufferKHR(
    recorder: Recorder,
    src_image: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const size_t,
    region: *const size_t,
    dst_offset: size_t,
    sync: SyncPoints,
) -> ClResult {
    let (image, buffer) = ((src_image, src_origin, region), (dst_buffer, dst_offset));
    // SAFETY: the specification demands arrays that are NULL or of three numbers.
    recorder.work(&sync, |queue| unsafe {
        image::with_buffer(queue, Way::ToBuffer, image, buffer)
    })
}

#[entry_point]
pub(crate) fn clCommandFillBufferKHR(
    recorder: Recorder,
    buffer: cl_mem,
    pattern: *const c_void,
    pattern_size: size_t,
    offset: size_t,
    size: size_t,
    sync: SyncPoints,
) -> ClResult {
    // SAFETY: the specification demands NULL or `pattern_size` bytes.
    recorder.work(&sync, |queue| unsafe {
        buffer::fill(queue, buffer, (pattern, pattern_size), (offset, size))
    })
}

#[entry_point]
pub(crate) fn clCommandFillImageKHR(
    recorder: Recorder,
    image: cl_mem,
    fill_color: *const c_void,
    origin: *const size_t,
    region: *const size_t,
    sync: SyncPoints,
) -> ClResult {
    // SAFETY: the specification demands a colour, and arrays that are NULL or of three numbers.
    recorder.work(&sync, |queue| unsafe {
        image::filling(queue, image, fill_color, (origin, region))
    })
}

#[entry_point]
pub(crate) fn clCommandSVMMemcpyKHR(
    recorder: Recorder,
    dst_ptr: *mut c_void,
    src_ptr: *const c_void,
    size: size_t,
    sync: SyncPoints,
) -> ClResult {
    recorder.work(&sync, |queue| svm::copying(queue, dst_ptr, src_ptr, size))
}

#[entry_point]
pub(crate) fn clCommandSVMMemFillKHR(
    recorder: Recorder,
    svm_ptr: *mut c_void,
    pattern: *const c_void,
    pattern_size: size_t,
    size: size_t,
    sync: SyncPoints,
) -> ClResult {
    // SAFETY: the specification demands NULL or `pattern_size` bytes.
    recorder.work(&sync, |queue| unsafe {
        svm::filling(queue, svm_ptr, (pattern, pattern_size), size)
    })
}
