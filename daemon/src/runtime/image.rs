//! Images, and the image formats that a device supports.
//!
//! All other modules treat an image as a [`Buffer`] that contains its elements without padding. Invariant:
//! the element size of an image's raster is that of its format.

use std::ptr::null_mut;

use causeway_proto::control::{ImageFormats, ImageUse};
use causeway_proto::image_format::ImageFormat;
use causeway_proto::raster::Raster;
use causeway_proto::status::Status;
use opencl_sys::{
    CL_DEVICE_IMAGE_SUPPORT, CL_MEM_COPY_HOST_PTR, CL_MEM_KERNEL_READ_AND_WRITE,
    CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D_BUFFER,
    CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D, CL_MEM_READ_ONLY,
    CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY, cl_image_desc, cl_image_format,
};

use super::buffer::{Buffer, KERNEL_ACCESS};
use super::context::Context;
use super::info;
use super::library::{check, cl};
use super::node::{Device, Platform};

/// Maximum number of formats in one answer. Drivers report far fewer.
const MOST_FORMATS: u32 = 4096;

/// Parameters of an image.
#[derive(Clone, Copy, Debug)]
pub struct ImageSpec {
    /// `CL_MEM_OBJECT_IMAGE*`.
    pub image_type: u32,
    /// Format of the elements.
    pub format: ImageFormat,
    /// Elements per row, rows, slices.
    pub extent: [u64; 3],
    /// Bytes from row to row in a parent buffer.
    pub row_pitch: u64,
}

impl ImageSpec {
    /// Returns the shape of the image.
    ///
    /// # Errors
    /// `CL_IMAGE_FORMAT_NOT_SUPPORTED` for a format that Causeway does not offer; `CL_INVALID_IMAGE_SIZE`.
    pub fn raster(&self) -> Result<Raster, Status> {
        let element = self.format.element_size();
        let element = element.ok_or(Status::IMAGE_FORMAT_NOT_SUPPORTED)?;
        Raster::new(element, self.extent).map_err(|_| Status::INVALID_IMAGE_SIZE)
    }

    fn description(&self, parent: Option<&Buffer>) -> Result<cl_image_desc, Status> {
        let [width, rows, slices] = self.extent;
        let number = |n: u64| usize::try_from(n).map_err(|_| Status::OUT_OF_HOST_MEMORY);
        let (height, depth, array_size) = match self.image_type {
            CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER if rows == 1 && slices == 1 => {
                (0, 0, 0)
            }
            CL_MEM_OBJECT_IMAGE1D_ARRAY if slices == 1 => (0, 0, rows),
            CL_MEM_OBJECT_IMAGE2D if slices == 1 => (rows, 0, 0),
            CL_MEM_OBJECT_IMAGE2D_ARRAY => (rows, 0, slices),
            CL_MEM_OBJECT_IMAGE3D => (rows, slices, 0),
            _ => return Err(Status::INVALID_IMAGE_DESCRIPTOR),
        };
        Ok(cl_image_desc {
            image_type: self.image_type,
            image_width: number(width)?,
            image_height: number(height)?,
            image_depth: number(depth)?,
            image_array_size: number(array_size)?,
            image_row_pitch: number(if parent.is_some() { self.row_pitch } else { 0 })?,
            image_slice_pitch: 0,
            num_mip_levels: 0,
            num_samples: 0,
            buffer: parent.map_or(null_mut(), |parent| parent.raw),
        })
    }
}

impl Buffer {
    /// `clCreateImage`: over the bytes of `parent` if there is one, otherwise with initial contents unless
    /// `contents` is empty.
    ///
    /// # Errors
    /// The driver's error. `CL_INVALID_VALUE` if `contents` is neither empty nor as long as the image.
    /// `CL_INVALID_IMAGE_DESCRIPTOR` for an extent that the image type does not allow.
    pub fn image(
        context: &Context,
        flags: u64,
        spec: &ImageSpec,
        parent: Option<&Buffer>,
        contents: &[u8],
    ) -> Result<Buffer, Status> {
        let (raster, description) = (spec.raster()?, spec.description(parent)?);
        let format = cl_image_format {
            image_channel_order: spec.format.order,
            image_channel_data_type: spec.format.channel_type,
        };
        let mut flags = flags & KERNEL_ACCESS;
        let mut host = null_mut();
        if !contents.is_empty() {
            if contents.len() as u64 != raster.size() || parent.is_some() {
                return Err(Status::INVALID_VALUE);
            }
            flags |= CL_MEM_COPY_HOST_PTR;
            host = contents.as_ptr().cast_mut().cast();
        }
        let mut status = 0;
        // SAFETY: with COPY_HOST_PTR the driver reads rows without padding. The contents have that size,
        // because elements have the size that the specification defines for the format. Otherwise the host
        // pointer is null.
        let raw = unsafe {
            cl!(clCreateImage(
                context.raw,
                flags,
                &raw const format,
                &raw const description,
                host,
                &raw mut status
            ))
        };
        check(status)?;
        Ok(Buffer {
            raw,
            size: raster.size(),
            raster: Some(raster),
            svm: parent.and_then(|parent| parent.svm.clone()),
        })
    }

    /// Returns the shape if this is an image.
    pub fn raster(&self) -> Option<&Raster> {
        self.raster.as_ref()
    }
}

const ACCESSES: [u64; 4] = [
    CL_MEM_READ_WRITE,
    CL_MEM_WRITE_ONLY,
    CL_MEM_READ_ONLY,
    CL_MEM_KERNEL_READ_AND_WRITE,
];

const TYPES: [u32; 6] = [
    CL_MEM_OBJECT_IMAGE2D,
    CL_MEM_OBJECT_IMAGE3D,
    CL_MEM_OBJECT_IMAGE2D_ARRAY,
    CL_MEM_OBJECT_IMAGE1D,
    CL_MEM_OBJECT_IMAGE1D_ARRAY,
    CL_MEM_OBJECT_IMAGE1D_BUFFER,
];

/// Returns all image formats that the device supports; equal lists are merged. Empty for a device without
/// images. Creates a context, because the query requires one.
#[must_use]
pub(super) fn formats(platform: &Platform, device: Device) -> Vec<ImageFormats> {
    let support = device.info(CL_DEVICE_IMAGE_SUPPORT).ok();
    if support.and_then(|support| info::number(&support)) != Some(1) {
        return Vec::new();
    }
    let Ok(context) = Context::new(platform, vec![device], Box::new(|_| ())) else {
        return Vec::new();
    };
    let mut lists: Vec<ImageFormats> = Vec::new();
    for flags in ACCESSES {
        for image_type in TYPES {
            let formats = formats_for(&context, flags, image_type).unwrap_or_default();
            if formats.is_empty() {
                continue;
            }
            let of = ImageUse { flags, image_type };
            match lists.iter_mut().find(|list| list.formats == formats) {
                Some(list) => list.uses.push(of),
                None => lists.push(ImageFormats {
                    uses: vec![of],
                    formats,
                }),
            }
        }
    }
    lists
}

fn formats_for(context: &Context, flags: u64, image_type: u32) -> Result<Vec<u32>, Status> {
    let mut count = 0;
    // SAFETY: with 0 entries and no list, the call returns only the count.
    check(unsafe {
        cl!(clGetSupportedImageFormats(
            context.raw,
            flags,
            image_type,
            0,
            null_mut(),
            &raw mut count
        ))
    })?;
    if count == 0 || count > MOST_FORMATS {
        return Ok(Vec::new());
    }
    let nothing = cl_image_format {
        image_channel_order: 0,
        image_channel_data_type: 0,
    };
    let mut formats = vec![nothing; count as usize];
    // SAFETY: the list has room for `count` entries.
    check(unsafe {
        cl!(clGetSupportedImageFormats(
            context.raw,
            flags,
            image_type,
            count,
            formats.as_mut_ptr(),
            null_mut()
        ))
    })?;
    let pairs = formats
        .iter()
        .map(|format| [format.image_channel_order, format.image_channel_data_type]);
    Ok(pairs.flatten().collect())
}
