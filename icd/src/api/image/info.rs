//! `clGetSupportedImageFormats`, `clGetImageInfo`.

use std::sync::Arc;

use causeway_proto::image_format::ImageFormat;
use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::handle;
use super::super::info::{Answered, Info};
use super::super::memory::Noun;
use super::super::memory::buffer::{HOST_ACCESS, HOST_POINTER, KERNEL_ACCESS};
use crate::error::{ClResult, fail, require};
use crate::stub::memory::image::access_of;
use crate::stub::{Buffer, Context, Image};

/// The formats that any device of the context supports, in the order of the first device. Duplicates within
/// one device's list stay.
fn supported(
    context: &Context,
    access: cl_mem_flags,
    image_type: cl_mem_object_type,
) -> Vec<ImageFormat> {
    let mut all = Vec::new();
    for device in context.devices() {
        let formats = device.image_formats(access, image_type);
        let new = formats.iter().filter(|format| !all.contains(*format));
        let new: Vec<ImageFormat> = new.copied().collect();
        all.extend(new);
    }
    all
}

/// The kernel access that a query's flags ask about.
fn asked_access(flags: cl_mem_flags) -> ClResult<cl_mem_flags> {
    let known = KERNEL_ACCESS | HOST_ACCESS | HOST_POINTER | CL_MEM_KERNEL_READ_AND_WRITE;
    let one = (flags & KERNEL_ACCESS).count_ones() <= 1;
    // clGetSupportedImageFormats: CL_INVALID_VALUE when flags are unknown or mutually exclusive.
    require(flags & !known == 0 && one, CL_INVALID_VALUE)?;
    if flags & CL_MEM_KERNEL_READ_AND_WRITE != 0 {
        return Ok(CL_MEM_KERNEL_READ_AND_WRITE);
    }
    Ok(access_of(flags))
}

#[entry_point]
pub(crate) fn clGetSupportedImageFormats(
    context: cl_context,
    flags: cl_mem_flags,
    image_type: cl_mem_object_type,
    num_entries: cl_uint,
    image_formats: *mut cl_image_format,
    num_image_formats: *mut cl_uint,
) -> ClResult {
    let context = handle::resolve::<Context>(context)?;
    let access = asked_access(flags)?;
    let image = CL_MEM_OBJECT_IMAGE2D..=CL_MEM_OBJECT_IMAGE1D_BUFFER;
    // clGetSupportedImageFormats: CL_INVALID_VALUE when image_type is not an image type.
    require(image.contains(&image_type), CL_INVALID_VALUE)?;
    // clGetSupportedImageFormats: CL_INVALID_VALUE when num_entries is 0 and image_formats is not NULL.
    require(image_formats.is_null() || num_entries > 0, CL_INVALID_VALUE)?;
    let formats = supported(&context, access, image_type);
    if !image_formats.is_null() {
        for (place, format) in formats.iter().take(num_entries as usize).enumerate() {
            let format = cl_image_format {
                image_channel_order: format.order,
                image_channel_data_type: format.channel_type,
            };
            // SAFETY: the specification demands room for `num_entries` formats.
            unsafe { image_formats.add(place).write(format) };
        }
    }
    if !num_image_formats.is_null() {
        // SAFETY: not NULL, so the specification demands room for a number.
        unsafe { num_image_formats.write(formats.len() as cl_uint) };
    }
    Ok(())
}

#[entry_point]
pub(crate) fn clGetImageInfo(image: cl_mem, param_name: cl_image_info, info: Info) -> ClResult {
    let memory = Noun::Image.resolve(image)?;
    match memory.image() {
        Some(image) => answer(&memory, image, param_name, info).map(drop),
        // clGetImageInfo: CL_INVALID_MEM_OBJECT when the memory object is not an image.
        None => fail(CL_INVALID_MEM_OBJECT),
    }
}

fn answer(
    memory: &Arc<Buffer>,
    image: &Image,
    name: cl_image_info,
    info: Info,
) -> ClResult<Answered> {
    let [width, rows, slices] = image.raster().extent();
    let only = |of: &[cl_mem_object_type], size: u64| {
        if of.contains(&image.kind()) {
            size as size_t
        } else {
            0
        }
    };
    match name {
        CL_IMAGE_FORMAT => {
            let format = image.format();
            info.give_slice(&[format.order, format.channel_type])
        }
        CL_IMAGE_ELEMENT_SIZE => info.give(image.raster().element() as size_t),
        CL_IMAGE_ROW_PITCH => info.give(image.row_pitch() as size_t),
        CL_IMAGE_SLICE_PITCH => info.give(image.slice_pitch() as size_t),
        CL_IMAGE_WIDTH => info.give(width as size_t),
        CL_IMAGE_HEIGHT => info.give(only(
            &[
                CL_MEM_OBJECT_IMAGE2D,
                CL_MEM_OBJECT_IMAGE2D_ARRAY,
                CL_MEM_OBJECT_IMAGE3D,
            ],
            rows,
        )),
        CL_IMAGE_DEPTH => info.give(only(&[CL_MEM_OBJECT_IMAGE3D], slices)),
        CL_IMAGE_ARRAY_SIZE if image.kind() == CL_MEM_OBJECT_IMAGE1D_ARRAY => {
            info.give(rows as size_t)
        }
        CL_IMAGE_ARRAY_SIZE => info.give(only(&[CL_MEM_OBJECT_IMAGE2D_ARRAY], slices)),
        // The name is deprecated. It reports the buffer of an image over a buffer.
        CL_IMAGE_BUFFER => {
            let buffer = memory.parent().filter(|parent| parent.image().is_none());
            info.give(buffer.map_or(std::ptr::null_mut(), handle::raw_of))
        }
        CL_IMAGE_NUM_MIP_LEVELS | CL_IMAGE_NUM_SAMPLES => info.give(0 as cl_uint),
        // clGetImageInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_asked_for_by_one_access() {
        assert_eq!(asked_access(0), Ok(CL_MEM_READ_WRITE));
        assert_eq!(
            asked_access(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR),
            Ok(CL_MEM_READ_ONLY)
        );
        let both = CL_MEM_KERNEL_READ_AND_WRITE | CL_MEM_READ_WRITE;
        assert_eq!(asked_access(both), Ok(CL_MEM_KERNEL_READ_AND_WRITE));
        assert!(asked_access(CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY).is_err());
        assert!(asked_access(1 << 40).is_err());
    }
}
