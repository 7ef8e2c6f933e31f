//! The properties that make a buffer an image: format, type and shape.
//!
//! Code that moves an image's bytes sees a buffer: the elements row by row and slice by slice, without gaps
//! (`causeway_proto::raster`). An image over a buffer has no bytes of its own. Pitches are those of the
//! application's memory or of the buffer below. Specification: "Image Objects".

use std::sync::Arc;

use causeway_proto::command::CreateImage;
use causeway_proto::image_format::ImageFormat;
use causeway_proto::raster::Raster;
use causeway_proto::region::Region;
use cl_headers::types::{
    CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, CL_DEVICE_IMAGE_SUPPORT,
    CL_DEVICE_IMAGE2D_MAX_HEIGHT, CL_DEVICE_IMAGE2D_MAX_WIDTH, CL_DEVICE_IMAGE3D_MAX_DEPTH,
    CL_DEVICE_IMAGE3D_MAX_HEIGHT, CL_DEVICE_IMAGE3D_MAX_WIDTH, CL_IMAGE_FORMAT_NOT_SUPPORTED,
    CL_INVALID_IMAGE_SIZE, CL_INVALID_OPERATION, CL_INVALID_VALUE, CL_MEM_OBJECT_IMAGE1D_ARRAY,
    CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY,
    CL_MEM_OBJECT_IMAGE3D, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY,
};

use crate::error::{ClResult, Status, require};
use crate::stub::memory::buffer::KERNEL_ACCESS;
use crate::stub::{Buffer, Device};
use crate::transport::Rows;

/// The image part of a [`Buffer`]; see the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    kind: u32,
    format: ImageFormat,
    raster: Raster,
    // As for CL_IMAGE_ROW_PITCH and CL_IMAGE_SLICE_PITCH.
    row_pitch: u64,
    slice_pitch: u64,
}

impl Image {
    /// Makes an image of type `kind` (`CL_MEM_OBJECT_IMAGE*`). Pitches are in bytes; 0 means no gaps. Use
    /// [`Image::whole_in_memory`] to check that the image fits the address space.
    #[must_use]
    pub fn new(
        kind: u32,
        format: ImageFormat,
        raster: Raster,
        row_pitch: u64,
        slice_pitch: u64,
    ) -> Image {
        let or = |pitch: u64, tight: u64| if pitch == 0 { tight } else { pitch };
        let row_pitch = or(row_pitch, raster.row());
        let slice_pitch = match kind {
            CL_MEM_OBJECT_IMAGE1D_ARRAY => or(slice_pitch, row_pitch),
            CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE3D => {
                or(slice_pitch, row_pitch.saturating_mul(raster.extent()[1]))
            }
            _ => 0,
        };
        Image {
            kind,
            format,
            raster,
            row_pitch,
            slice_pitch,
        }
    }

    /// Returns `CL_MEM_TYPE`.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.kind
    }

    /// Returns `CL_IMAGE_FORMAT`.
    #[must_use]
    pub fn format(&self) -> ImageFormat {
        self.format
    }

    /// Returns the shape. The layers of a one-dimensional array are its rows.
    #[must_use]
    pub fn raster(&self) -> &Raster {
        &self.raster
    }

    /// Returns `CL_IMAGE_ROW_PITCH`, in bytes.
    #[must_use]
    pub fn row_pitch(&self) -> u64 {
        self.row_pitch
    }

    /// Returns `CL_IMAGE_SLICE_PITCH`, in bytes; 0 for images without slices.
    #[must_use]
    pub fn slice_pitch(&self) -> u64 {
        self.slice_pitch
    }

    /// Whether the image is an array: then `CL_IMAGE_ARRAY_SIZE` is not 0, and maps have a slice pitch.
    #[must_use]
    pub fn is_array(&self) -> bool {
        matches!(
            self.kind,
            CL_MEM_OBJECT_IMAGE1D_ARRAY | CL_MEM_OBJECT_IMAGE2D_ARRAY
        )
    }

    /// Whether the image has slices or layers: then memory that contains it has a slice pitch.
    #[must_use]
    pub fn has_slices(&self) -> bool {
        self.is_array() || self.kind == CL_MEM_OBJECT_IMAGE3D
    }

    // Bytes from row to row and from slice to slice of the shape, where layers of one-dimensional images
    // are rows.
    fn steps(&self) -> (u64, u64) {
        let rows = self.raster.extent()[1];
        match self.kind {
            CL_MEM_OBJECT_IMAGE1D_ARRAY => {
                (self.slice_pitch, self.slice_pitch.saturating_mul(rows))
            }
            _ if self.slice_pitch == 0 => (self.row_pitch, self.row_pitch.saturating_mul(rows)),
            _ => (self.row_pitch, self.slice_pitch),
        }
    }

    /// Returns the bytes of a box.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when the box is empty or not inside the image.
    pub fn region(&self, origin: [u64; 3], size: [u64; 3]) -> ClResult<Region> {
        let region = self.raster.region(origin, size);
        // Functions on images: CL_INVALID_VALUE when a side of the region is 0, or the region leaves the
        // image.
        region.ok_or(Status(CL_INVALID_VALUE))
    }

    /// Returns the bytes of the whole image in the application's memory, with its pitches.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when the bytes do not fit the address space.
    pub fn whole_in_memory(&self) -> ClResult<Region> {
        let (row, slice) = self.steps();
        let whole = self
            .raster
            .pitched([0; 3], self.raster.extent(), row, slice);
        whole.ok_or(Status(CL_INVALID_VALUE))
    }

    /// Converts a region of the image, which must be one box, to a region of the buffer or image below.
    pub(in crate::stub) fn in_memory(&self, region: &Region) -> Option<Region> {
        let (row, slice) = self.steps();
        match self.raster.boxes(region)?[..] {
            [part] => self.raster.pitched(part.origin, part.size, row, slice),
            _ => None,
        }
    }

    /// Returns the row layout of the image in the application's memory; `None` if there are no gaps.
    fn rows(&self) -> Option<Rows> {
        let (pitch, slice_pitch) = self.steps();
        let [_, count, slices] = self.raster.extent();
        let tight_rows = pitch == self.raster.row() || (count == 1 && slices == 1);
        let tight_slices = slice_pitch == self.raster.slice() || slices == 1;
        (!tight_rows || !tight_slices).then_some(Rows {
            length: self.raster.row(),
            count,
            pitch,
            slice_pitch,
        })
    }

    /// Returns the part of the creation command that the image itself determines.
    pub(in crate::stub) fn to_wire(&self) -> CreateImage {
        let [width, rows, slices] = self.raster.extent();
        CreateImage {
            image_type: self.kind,
            channel_order: self.format.order,
            channel_type: self.format.channel_type,
            width,
            rows,
            slices,
            row_pitch: self.row_pitch,
            ..CreateImage::default()
        }
    }

    /// Whether the device supports images of this size.
    #[must_use]
    pub fn fits(&self, device: &Device) -> bool {
        let [width, rows, slices] = self.raster.extent();
        let within = |size: u64, name| size <= device.number(name);
        match self.kind {
            CL_MEM_OBJECT_IMAGE1D_BUFFER => within(width, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE),
            CL_MEM_OBJECT_IMAGE1D_ARRAY => {
                within(width, CL_DEVICE_IMAGE2D_MAX_WIDTH)
                    && within(rows, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE)
            }
            CL_MEM_OBJECT_IMAGE3D => {
                within(width, CL_DEVICE_IMAGE3D_MAX_WIDTH)
                    && within(rows, CL_DEVICE_IMAGE3D_MAX_HEIGHT)
                    && within(slices, CL_DEVICE_IMAGE3D_MAX_DEPTH)
            }
            kind => {
                within(width, CL_DEVICE_IMAGE2D_MAX_WIDTH)
                    && (rows == 1 || within(rows, CL_DEVICE_IMAGE2D_MAX_HEIGHT))
                    && (kind != CL_MEM_OBJECT_IMAGE2D_ARRAY
                        || within(slices, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE))
            }
        }
    }

    /// Whether the device supports the image's format for the kernel access that `flags` allow.
    #[must_use]
    pub fn suits(&self, device: &Device, flags: u64) -> bool {
        let formats = device.image_formats(access_of(flags), self.kind);
        formats.contains(&self.format)
    }

    /// Checks that a device supports the image.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` for a device without images, `CL_INVALID_IMAGE_SIZE`,
    /// `CL_IMAGE_FORMAT_NOT_SUPPORTED`.
    pub fn check_on(&self, device: &Device, flags: u64) -> ClResult {
        // Functions on images: CL_INVALID_OPERATION when the queue's device has no images.
        require(has_images(device), CL_INVALID_OPERATION)?;
        // Functions on images: CL_INVALID_IMAGE_SIZE when the device does not support the image's
        // size or pitch. clCreateImage has checked the pitch against the largest alignment of the context's
        // devices.
        require(self.fits(device), CL_INVALID_IMAGE_SIZE)?;
        // Functions on images: CL_IMAGE_FORMAT_NOT_SUPPORTED when the device does not support the
        // image's format.
        require(self.suits(device, flags), CL_IMAGE_FORMAT_NOT_SUPPORTED)
    }
}

/// Whether a device supports images.
#[must_use]
pub fn has_images(device: &Device) -> bool {
    device.number(CL_DEVICE_IMAGE_SUPPORT) != 0
}

/// Returns the kernel access that `flags` allow, as one of the flags for format queries.
#[must_use]
pub fn access_of(flags: u64) -> u64 {
    match flags & KERNEL_ACCESS {
        CL_MEM_WRITE_ONLY => CL_MEM_WRITE_ONLY,
        CL_MEM_READ_ONLY => CL_MEM_READ_ONLY,
        _ => CL_MEM_READ_WRITE,
    }
}

impl Buffer {
    /// Returns the object and region through which bytes are moved. That is the object itself, except for
    /// an image over a buffer. Such bytes are moved as the buffer's, because the nodes' drivers do that
    /// more reliably.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when the region is not inside.
    pub fn stored(self: &Arc<Self>, region: &Region) -> ClResult<(Arc<Buffer>, Region)> {
        match self.parent() {
            Some(parent) if self.image().is_some() && parent.image().is_none() => {
                Ok((parent.clone(), self.in_parent(region)?))
            }
            _ => Ok((self.clone(), *region)),
        }
    }

    /// Returns the row layout of a whole image in the application's memory; `None` without such memory, or
    /// without gaps.
    pub(in crate::stub) fn host_rows(&self) -> Option<Rows> {
        self.host_address()?;
        self.image()?.rows()
    }

    /// Returns the row and slice pitch of the image's maps, in bytes. The slice pitch is 0 for images
    /// without slices.
    #[must_use]
    pub fn map_pitches(self: &Arc<Self>) -> (u64, u64) {
        let Some(image) = self.image() else {
            return (0, 0);
        };
        let (root, raster) = (self.root(), &image.raster);
        // Maps of a buffer or of the application's memory show the bytes in place, with their gaps.
        if root.image().is_none() || root.host_address().is_some() {
            return (image.row_pitch, image.slice_pitch);
        }
        let slice = match image.kind {
            CL_MEM_OBJECT_IMAGE1D_ARRAY => raster.row(),
            _ if image.has_slices() => raster.slice(),
            _ => 0,
        };
        (raster.row(), slice)
    }
}

/// Whether an image of `kind` may be made over the bytes of another memory object.
#[must_use]
pub fn may_have_parent(kind: u32) -> bool {
    matches!(kind, CL_MEM_OBJECT_IMAGE1D_BUFFER | CL_MEM_OBJECT_IMAGE2D)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RGBA8: ImageFormat = ImageFormat {
        order: 0x10B5,
        channel_type: 0x10D2,
    };

    fn image(kind: u32, extent: [u64; 3], pitches: (u64, u64)) -> Image {
        let raster = Raster::new(4, extent).unwrap();
        Image::new(kind, RGBA8, raster, pitches.0, pitches.1)
    }

    #[test]
    fn pitches_that_are_not_given_are_tight() {
        let told = |image: Image| (image.row_pitch(), image.slice_pitch());
        assert_eq!(
            told(image(CL_MEM_OBJECT_IMAGE2D, [5, 3, 1], (0, 0))),
            (20, 0)
        );
        assert_eq!(
            told(image(CL_MEM_OBJECT_IMAGE3D, [5, 3, 2], (32, 0))),
            (32, 96)
        );
        assert_eq!(
            told(image(CL_MEM_OBJECT_IMAGE1D_ARRAY, [5, 3, 1], (0, 0))),
            (20, 20)
        );
        assert_eq!(
            told(image(CL_MEM_OBJECT_IMAGE1D_ARRAY, [5, 3, 1], (0, 64))),
            (20, 64)
        );
    }

    #[test]
    fn memory_with_gaps_is_told_by_rows() {
        assert_eq!(
            image(CL_MEM_OBJECT_IMAGE2D, [5, 3, 1], (20, 0)).rows(),
            None
        );
        assert_eq!(
            image(CL_MEM_OBJECT_IMAGE3D, [5, 3, 1], (20, 80)).rows(),
            None
        );
        let rows = |length, count, pitch, slice_pitch| {
            Some(Rows {
                length,
                count,
                pitch,
                slice_pitch,
            })
        };
        let of = |kind, extent, pitches| image(kind, extent, pitches).rows();
        assert_eq!(
            of(CL_MEM_OBJECT_IMAGE2D, [5, 3, 1], (24, 0)),
            rows(20, 3, 24, 72)
        );
        assert_eq!(
            of(CL_MEM_OBJECT_IMAGE3D, [5, 3, 2], (20, 80)),
            rows(20, 3, 20, 80)
        );
        let layers = of(CL_MEM_OBJECT_IMAGE1D_ARRAY, [5, 3, 1], (20, 64));
        assert_eq!(layers, rows(20, 3, 64, 192));
    }

    #[test]
    fn a_box_lies_in_a_buffer_as_its_pitch_says() {
        let image = image(CL_MEM_OBJECT_IMAGE2D, [5, 3, 1], (32, 0));
        let part = image.region([1, 1, 0], [2, 2, 1]).unwrap();
        let there = Region::rect(36, [8, 2, 1], 32, 64).unwrap();
        assert_eq!(image.in_memory(&part), Some(there));
        let whole = image.region([0; 3], [5, 3, 1]).unwrap();
        let there = Region::rect(0, [20, 3, 1], 32, 96).unwrap();
        assert_eq!(image.in_memory(&whole), Some(there));
    }
}
