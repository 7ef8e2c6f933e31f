//! `clCommand*KHR`: recording one command. Each checks what its `clEnqueue*` checks, in the same way.

use std::sync::Arc;

use cl_headers::types::*;

use super::super::entry::entry_points;
use super::super::handle;
use super::super::image::copy_fill::{self as image, Way};
use super::super::info::list;
use super::super::launch;
use super::super::memory::copy_fill::{self as buffer, Copy, CopyRectangle, Fill};
use super::super::svm::copy_fill as svm;
use crate::error::{ClResult, require};
use crate::stub::{CommandBuffer, Hold, Kernel, Queue, Recorded, Work};

/// What every command of a command buffer has.
struct Call {
    command_buffer: cl_command_buffer_khr,
    queue: cl_command_queue,
    properties: *const cl_command_properties_khr,
    count: cl_uint,
    wait: *const cl_sync_point_khr,
    sync_point: *mut cl_sync_point_khr,
    handle: *mut cl_mutable_command_khr,
}

impl Call {
    /// Checks what all commands share, then the command, and records it.
    fn record(&self, command: impl FnOnce(&Arc<Queue>) -> ClResult<Recorded>) -> ClResult {
        let stub = handle::resolve::<CommandBuffer>(self.command_buffer)?;
        // "If the cl_khr_command_buffer_multi_device extension is not supported […] command_queue must be NULL."
        require(self.queue.is_null(), CL_INVALID_COMMAND_QUEUE)?;
        require(!stub.is_executable(), CL_INVALID_OPERATION)?;
        require(self.handle.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the specification's contract of a property list: NULL, or at least the 0 that ends it.
        let is_empty = self.properties.is_null() || unsafe { self.properties.read() } == 0;
        require(is_empty, CL_INVALID_VALUE)?;
        let command = command(stub.queue())?;
        let is_list = self.wait.is_null() == (self.count == 0);
        require(is_list, CL_INVALID_SYNC_POINT_WAIT_LIST_KHR)?;
        // SAFETY: NULL or of `count` sync points.
        let wait = unsafe { list(self.wait, self.count as usize) };
        let point = stub.record(command, wait)?;
        if !self.sync_point.is_null() {
            // SAFETY: the specification lets it be NULL or writable.
            unsafe { self.sync_point.write(point) };
        }
        Ok(())
    }
}

/// A copy, fill or what has no bytes.
fn work(work: Option<Work>, memory: Hold) -> Recorded {
    Recorded::Work(work.unwrap_or(Work::Nothing), memory)
}

fn copying(copy: Copy) -> Recorded {
    work(copy.work(), copy.hold())
}

/// The arguments that all have.
macro_rules! call {
    ($command_buffer:ident, $queue:ident, $properties:ident, $count:ident, $wait:ident, $sync_point:ident, $handle:ident) => {
        Call {
            command_buffer: $command_buffer,
            queue: $queue,
            properties: $properties,
            count: $count,
            wait: $wait,
            sync_point: $sync_point,
            handle: $handle,
        }
    };
}

entry_points! {
    fn clCommandBarrierWithWaitListKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr, sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|_| Ok(Recorded::Barrier))
    }

    fn clCommandCopyBufferKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, src_buffer: cl_mem, dst_buffer: cl_mem,
        src_offset: size_t, dst_offset: size_t, size: size_t, num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr, sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
            let offsets = (src_offset, dst_offset, size);
            buffer::bytes(queue, (src_buffer, dst_buffer), offsets).map(copying)
        })
    }

    fn clCommandCopyBufferRectKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, src_buffer: cl_mem, dst_buffer: cl_mem,
        src_origin: *const size_t, dst_origin: *const size_t, region: *const size_t,
        src_row_pitch: size_t, src_slice_pitch: size_t, dst_row_pitch: size_t,
        dst_slice_pitch: size_t, num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr, sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
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

    fn clCommandCopyBufferToImageKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, src_buffer: cl_mem, dst_image: cl_mem,
        src_offset: size_t, dst_origin: *const size_t, region: *const size_t,
        num_sync_points_in_wait_list: cl_uint, sync_point_wait_list: *const cl_sync_point_khr,
        sync_point: *mut cl_sync_point_khr, mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
            let (image, buffer) = ((dst_image, dst_origin, region), (src_buffer, src_offset));
            // SAFETY: the specification's contract: arrays NULL or of three numbers.
            unsafe { image::with_buffer(queue, Way::ToImage, image, buffer) }.map(copying)
        })
    }

    fn clCommandCopyImageKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, src_image: cl_mem, dst_image: cl_mem,
        src_origin: *const size_t, dst_origin: *const size_t, region: *const size_t,
        num_sync_points_in_wait_list: cl_uint, sync_point_wait_list: *const cl_sync_point_khr,
        sync_point: *mut cl_sync_point_khr, mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
            let (images, origins) = ((src_image, dst_image), (src_origin, dst_origin));
            // SAFETY: the specification's contract: arrays NULL or of three numbers.
            unsafe { image::images(queue, images, origins, region) }.map(copying)
        })
    }

    fn clCommandCopyImageToBufferKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, src_image: cl_mem, dst_buffer: cl_mem,
        src_origin: *const size_t, region: *const size_t, dst_offset: size_t,
        num_sync_points_in_wait_list: cl_uint, sync_point_wait_list: *const cl_sync_point_khr,
        sync_point: *mut cl_sync_point_khr, mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
            let (image, buffer) = ((src_image, src_origin, region), (dst_buffer, dst_offset));
            // SAFETY: the specification's contract: arrays NULL or of three numbers.
            unsafe { image::with_buffer(queue, Way::ToBuffer, image, buffer) }.map(copying)
        })
    }

    fn clCommandFillBufferKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, buffer: cl_mem, pattern: *const c_void,
        pattern_size: size_t, offset: size_t, size: size_t, num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr, sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
            let fill = Fill { buffer, pattern, pattern_size, offset, size };
            // SAFETY: the specification's contract: NULL or of `pattern_size` bytes.
            let (filled, memory) = unsafe { fill.work(queue)? };
            Ok(work(filled, memory))
        })
    }

    fn clCommandFillImageKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, image: cl_mem, fill_color: *const c_void,
        origin: *const size_t, region: *const size_t, num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr, sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
            // SAFETY: the specification's contract: a colour, and arrays NULL or of three numbers.
            let (filled, memory) = unsafe { image::filling(queue, image, fill_color, (origin, region))? };
            Ok(work(Some(filled), memory))
        })
    }

    fn clCommandNDRangeKernelKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, kernel: cl_kernel, work_dim: cl_uint,
        global_work_offset: *const size_t, global_work_size: *const size_t,
        local_work_size: *const size_t, num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr, sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
            let kernel = handle::resolve::<Kernel>(kernel)?;
            let lists = [global_work_offset, global_work_size, local_work_size];
            // SAFETY: the specification's contract: NULL or `work_dim` sizes each.
            let range = || unsafe { launch::read_range(work_dim, lists) };
            let (launch, range) = launch::checked(&kernel, queue, range)?;
            Ok(Recorded::Launch(launch.capture(&range)))
        })
    }

    fn clCommandSVMMemcpyKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, dst_ptr: *mut c_void,
        src_ptr: *const c_void, size: size_t, num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr, sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
            let (copied, memory) = svm::copying(queue, dst_ptr, src_ptr, size)?;
            Ok(work(copied, memory))
        })
    }

    fn clCommandSVMMemFillKHR(
        command_buffer: cl_command_buffer_khr, command_queue: cl_command_queue,
        properties: *const cl_command_properties_khr, svm_ptr: *mut c_void,
        pattern: *const c_void, pattern_size: size_t, size: size_t,
        num_sync_points_in_wait_list: cl_uint, sync_point_wait_list: *const cl_sync_point_khr,
        sync_point: *mut cl_sync_point_khr, mutable_handle: *mut cl_mutable_command_khr,
    ) {
        call!(
            command_buffer, command_queue, properties, num_sync_points_in_wait_list,
            sync_point_wait_list, sync_point, mutable_handle
        )
        .record(|queue| {
            let pattern = (pattern, pattern_size);
            // SAFETY: the specification's contract: NULL or of `pattern_size` bytes.
            let (filled, memory) = unsafe { svm::filling(queue, svm_ptr, pattern, size)? };
            Ok(work(filled, memory))
        })
    }
}
