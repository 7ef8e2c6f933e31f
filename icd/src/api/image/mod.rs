//! Images: their creation and the checks of formats and descriptions. Commands are in `transfer` and
//! `copy_fill`, queries in `info`.
//!
//! An image is a memory object: reference counts, destructor callbacks and unmapping are in
//! `super::memory`.

pub(super) mod copy_fill;
mod info;
mod transfer;

use std::sync::Arc;

use causeway_proto::image_format::ImageFormat;
use causeway_proto::raster::Raster;
use cl_headers::types::*;

use super::entry::entry_point;
use super::handle;
use super::memory::buffer::{check_flags, inherited_flags, properties_of};
use super::memory::host_region;
use crate::error::{ClResult, Status, fail, require};
use crate::stub::memory::image::{has_images, may_have_parent};
use crate::stub::{Buffer, BufferSpec, Context, Device, Image};

pub(super) use copy_fill::*;
pub(super) use info::*;
pub(super) use transfer::*;

/// Reads and checks an image format.
///
/// # Safety
/// `format` is NULL or points to a format.
unsafe fn read_format(format: *const cl_image_format) -> ClResult<ImageFormat> {
    // clCreateImage: CL_INVALID_IMAGE_FORMAT_DESCRIPTOR when image_format is NULL.
    require(!format.is_null(), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    // SAFETY: not NULL.
    let format = unsafe { format.read() };
    let format = ImageFormat {
        order: format.image_channel_order,
        channel_type: format.image_channel_data_type,
    };
    // clCreateImage: CL_INVALID_IMAGE_FORMAT_DESCRIPTOR when order or type is unknown, or the two do not go
    // together.
    require(format.is_valid(), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    Ok(format)
}

/// The extent of a description, as width, rows and slices. Members that the image type does not use are
/// ignored.
fn extent(desc: &cl_image_desc) -> ClResult<[u64; 3]> {
    let number = |n: size_t| n as u64;
    let width = number(desc.image_width);
    let (rows, slices) = match desc.image_type {
        CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER => (1, 1),
        CL_MEM_OBJECT_IMAGE1D_ARRAY => (number(desc.image_array_size), 1),
        CL_MEM_OBJECT_IMAGE2D => (number(desc.image_height), 1),
        CL_MEM_OBJECT_IMAGE2D_ARRAY => (number(desc.image_height), number(desc.image_array_size)),
        CL_MEM_OBJECT_IMAGE3D => (number(desc.image_height), number(desc.image_depth)),
        // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when the image type is unknown.
        _ => return fail(CL_INVALID_IMAGE_DESCRIPTOR),
    };
    let extent = [width, rows, slices];
    // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when a size that the type uses is 0.
    require(!extent.contains(&0), CL_INVALID_IMAGE_DESCRIPTOR)?;
    Ok(extent)
}

/// The image of a description. Its pitches apply to the application's memory; memory of the image's own has
/// none.
fn image_of(desc: &cl_image_desc, format: ImageFormat) -> ClResult<Image> {
    let element = format.element_size();
    // clCreateImage: CL_IMAGE_FORMAT_NOT_SUPPORTED when the format has no known element size.
    let element = element.ok_or(Status(CL_IMAGE_FORMAT_NOT_SUPPORTED))?;
    // clCreateImage: CL_INVALID_IMAGE_SIZE when the size exceeds what any device can have, and so when it
    // overflows.
    let raster = Raster::new(element, extent(desc)?).or(fail(CL_INVALID_IMAGE_SIZE))?;
    // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when num_mip_levels or num_samples is not 0; no device has
    // the extensions for them.
    let plain = desc.num_mip_levels == 0 && desc.num_samples == 0;
    require(plain, CL_INVALID_IMAGE_DESCRIPTOR)?;
    let (row, slice) = (desc.image_row_pitch as u64, desc.image_slice_pitch as u64);
    // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when a row pitch is not 0, and is shorter than a row or
    // not a multiple of the element size.
    let row_fits = row == 0 || row >= raster.row() && row.is_multiple_of(element);
    require(row_fits, CL_INVALID_IMAGE_DESCRIPTOR)?;
    let image = Image::new(desc.image_type, format, raster, row, slice);
    if image.has_slices() && slice != 0 {
        let least = match desc.image_type {
            CL_MEM_OBJECT_IMAGE1D_ARRAY => Some(image.row_pitch()),
            _ => image.row_pitch().checked_mul(raster.extent()[1]),
        };
        let fits = least.is_some_and(|least| slice >= least);
        let even = slice.is_multiple_of(image.row_pitch());
        // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when a slice pitch is shorter than a slice or not a
        // multiple of the row pitch.
        require(fits && even, CL_INVALID_IMAGE_DESCRIPTOR)?;
    }
    Ok(image)
}

fn some_device(context: &Context, takes: impl Fn(&Device) -> bool) -> bool {
    context.devices().iter().any(|device| takes(device))
}

/// Checks that some device of the context can have the image. Commands check their own device again.
fn check_devices(context: &Context, image: &Image, flags: cl_mem_flags) -> ClResult {
    // clCreateImage: CL_INVALID_IMAGE_SIZE when the size exceeds the limits of every device in the context.
    require(
        some_device(context, |device| image.fits(device)),
        CL_INVALID_IMAGE_SIZE,
    )?;
    // clCreateImage: CL_IMAGE_FORMAT_NOT_SUPPORTED when no device of the context has the format for this
    // type and access.
    require(
        some_device(context, |device| image.suits(device, flags)),
        CL_IMAGE_FORMAT_NOT_SUPPORTED,
    )
}

/// The arguments that clCreateImage and its older forms share.
struct Creation {
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    format: *const cl_image_format,
    host: *mut c_void,
}

impl Creation {
    fn make(self, desc: &cl_image_desc) -> ClResult<cl_mem> {
        let context = handle::resolve::<Context>(self.context)?;
        let properties = properties_of(self.properties)?;
        // clCreateImage: CL_INVALID_OPERATION when no device of the context supports images.
        require(some_device(&context, has_images), CL_INVALID_OPERATION)?;
        check_flags(self.flags)?;
        // SAFETY: the specification demands NULL or a format.
        let format = unsafe { read_format(self.format)? };
        let spec = |image: Image, flags| BufferSpec {
            context: context.clone(),
            flags,
            properties: properties.clone(),
            size: image.raster().size(),
            host_address: None,
            image: Some(image),
        };
        let needs_parent = desc.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER;
        if desc.buffer.is_null() {
            // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when a 1D image buffer comes without its buffer.
            require(!needs_parent, CL_INVALID_IMAGE_DESCRIPTOR)?;
            let image = image_of(desc, format)?;
            return self.whole(spec(image, self.flags), desc);
        }
        // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when the type allows no memory object to create the
        // image from.
        require(
            may_have_parent(desc.image_type),
            CL_INVALID_IMAGE_DESCRIPTOR,
        )?;
        // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when the memory object is not valid.
        let parent =
            handle::resolve::<Buffer>(desc.buffer).or(fail(CL_INVALID_IMAGE_DESCRIPTOR))?;
        let same = Arc::ptr_eq(parent.context(), &context);
        let has_bytes = parent.pipe().is_none();
        // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when the memory object is a pipe or of another
        // context.
        require(same && has_bytes, CL_INVALID_IMAGE_DESCRIPTOR)?;
        let image = match (desc.image_type, parent.image()) {
            (CL_MEM_OBJECT_IMAGE1D_BUFFER, None) => over_buffer(desc, format, &parent)?,
            (CL_MEM_OBJECT_IMAGE2D, None) => pitched_over_buffer(desc, format, &parent)?,
            (CL_MEM_OBJECT_IMAGE2D, Some(of)) => over_image(desc, format, &context, of)?,
            // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when the memory object is of a kind that the type
            // cannot use.
            _ => return fail(CL_INVALID_IMAGE_DESCRIPTOR),
        };
        let flags = inherited_flags(parent.flags(), self.flags)?;
        // clCreateImage: CL_INVALID_HOST_PTR when host_ptr is given although the memory is another
        // object's.
        require(self.host.is_null(), CL_INVALID_HOST_PTR)?;
        check_devices(&context, &image, flags)?;
        let made = Buffer::image_over(&parent, spec(image, flags))?;
        Ok(handle::publish(made))
    }

    /// Creates an image with memory of its own, or over the application's memory.
    fn whole(&self, mut spec: BufferSpec, desc: &cl_image_desc) -> ClResult<cl_mem> {
        // `make` always sets the image, so this cannot fail.
        let Some(image) = spec.image.clone() else {
            return fail(CL_INVALID_IMAGE_DESCRIPTOR);
        };
        let wants_pointer = self.flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0;
        // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when host_ptr is NULL and a pitch is not 0.
        let pitched =
            desc.image_row_pitch != 0 || image.has_slices() && desc.image_slice_pitch != 0;
        require(
            !(self.host.is_null() && pitched),
            CL_INVALID_IMAGE_DESCRIPTOR,
        )?;
        // clCreateImage: CL_INVALID_HOST_PTR when host_ptr is given without a flag that uses it, or a flag
        // needs it and it is NULL.
        require(wants_pointer != self.host.is_null(), CL_INVALID_HOST_PTR)?;
        check_devices(&spec.context, &image, self.flags)?;
        let address = self.host.expose_provenance();
        spec.host_address = (self.flags & CL_MEM_USE_HOST_PTR != 0).then_some(address);
        let contents = if wants_pointer {
            // SAFETY: the application keeps the image's bytes, at its pitches, readable for the length of
            // this call, and all are copied before it returns.
            Some(unsafe { host_region(address, image.whole_in_memory()?) }?)
        } else {
            None
        };
        Ok(handle::publish(Buffer::new(spec, contents)?))
    }
}

/// A 1D image over a buffer. Its pitches have no meaning.
fn over_buffer(desc: &cl_image_desc, format: ImageFormat, parent: &Buffer) -> ClResult<Image> {
    let tight = cl_image_desc {
        image_row_pitch: 0,
        image_slice_pitch: 0,
        ..*desc
    };
    let image = image_of(&tight, format)?;
    let fits = image.raster().size() <= parent.size();
    // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when a 1D image buffer is larger than its buffer.
    require(fits, CL_INVALID_IMAGE_DESCRIPTOR)?;
    Ok(image)
}

/// A 2D image over a buffer, at the description's row pitch.
fn pitched_over_buffer(
    desc: &cl_image_desc,
    format: ImageFormat,
    parent: &Arc<Buffer>,
) -> ClResult<Image> {
    let context = parent.context();
    let from_buffer = |device: &Device| device.number(CL_DEVICE_IMAGE_PITCH_ALIGNMENT) > 0;
    // clCreateImage: CL_INVALID_OPERATION when no device of the context can create a 2D image from a
    // buffer.
    require(some_device(context, from_buffer), CL_INVALID_OPERATION)?;
    let tight = cl_image_desc {
        image_slice_pitch: 0,
        ..*desc
    };
    let image = image_of(&tight, format)?;
    let most = |name| {
        let numbers = context.devices().iter().map(|device| device.number(name));
        numbers.max().unwrap_or(0).max(1)
    };
    let element = image.raster().element();
    let pitches = image
        .row_pitch()
        .is_multiple_of(most(CL_DEVICE_IMAGE_PITCH_ALIGNMENT) * element);
    let base = most(CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT) * element;
    // clCreateImage: CL_INVALID_IMAGE_FORMAT_DESCRIPTOR when row pitch or base address does not suit the
    // largest alignment of the context's devices.
    require(
        pitches && parent.origin().is_multiple_of(base),
        CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
    )?;
    let end = image.whole_in_memory()?.end();
    // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when the image at its pitch is larger than the buffer.
    require(end <= parent.size(), CL_INVALID_IMAGE_DESCRIPTOR)?;
    Ok(image)
}

/// A 2D image over another 2D image. Size and channel type are the same; the channel order may differ.
fn over_image(
    desc: &cl_image_desc,
    format: ImageFormat,
    context: &Context,
    of: &Image,
) -> ClResult<Image> {
    // clCreateImage: CL_INVALID_OPERATION when no device of the context can create a 2D image from an
    // image.
    // There is no query for this. Drivers that create images over buffers do this too.
    let has_views = |device: &Device| device.number(CL_DEVICE_IMAGE_PITCH_ALIGNMENT) > 0;
    require(some_device(context, has_views), CL_INVALID_OPERATION)?;
    let tight = cl_image_desc {
        image_row_pitch: 0,
        image_slice_pitch: 0,
        ..*desc
    };
    let image = image_of(&tight, format)?;
    let same_type = format.channel_type == of.format().channel_type;
    let same_element = image.raster().element() == of.raster().element();
    // clCreateImage: CL_INVALID_IMAGE_FORMAT_DESCRIPTOR when the new format is not compatible with the
    // first image's.
    require(
        same_type && same_element,
        CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
    )?;
    let same_shape = of.kind() == CL_MEM_OBJECT_IMAGE2D && image.raster() == of.raster();
    // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when size or type differs from the first image's.
    require(same_shape, CL_INVALID_IMAGE_DESCRIPTOR)?;
    Ok(image)
}

/// Reads an image description.
///
/// # Safety
/// `desc` is NULL or points to a description.
unsafe fn read_desc(desc: *const cl_image_desc) -> ClResult<cl_image_desc> {
    // clCreateImage: CL_INVALID_IMAGE_DESCRIPTOR when image_desc is NULL.
    require(!desc.is_null(), CL_INVALID_IMAGE_DESCRIPTOR)?;
    // SAFETY: not NULL.
    Ok(unsafe { desc.read() })
}

/// The description that the arguments of OpenCL 1.0's functions stand for.
fn older(image_type: cl_mem_object_type, size: [size_t; 3], pitches: [size_t; 2]) -> cl_image_desc {
    cl_image_desc {
        image_type,
        image_width: size[0],
        image_height: size[1],
        image_depth: size[2],
        image_array_size: 0,
        image_row_pitch: pitches[0],
        image_slice_pitch: pitches[1],
        num_mip_levels: 0,
        num_samples: 0,
        buffer: std::ptr::null_mut(),
    }
}

/// Translates the code of `Creation::make` for clCreateImage2D and clCreateImage3D.
fn older_code(status: Status) -> Status {
    // clCreateImage2D, clCreateImage3D: CL_INVALID_IMAGE_SIZE when a size is 0 or a pitch does not suit;
    // these functions have no descriptor to be wrong.
    if status == Status(CL_INVALID_IMAGE_DESCRIPTOR) {
        Status(CL_INVALID_IMAGE_SIZE)
    } else {
        status
    }
}

#[entry_point]
pub(crate) fn clCreateImage(
    context: cl_context,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_desc: *const cl_image_desc,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    let properties = std::ptr::null();
    let creation = Creation {
        context,
        properties,
        flags,
        format: image_format,
        host: host_ptr,
    };
    // SAFETY: the specification demands NULL or a description.
    creation.make(&unsafe { read_desc(image_desc)? })
}

#[entry_point]
pub(crate) fn clCreateImageWithProperties(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_desc: *const cl_image_desc,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    let creation = Creation {
        context,
        properties,
        flags,
        format: image_format,
        host: host_ptr,
    };
    // SAFETY: the specification demands NULL or a description.
    creation.make(&unsafe { read_desc(image_desc)? })
}

#[entry_point]
pub(crate) fn clCreateImage2D(
    context: cl_context,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_width: size_t,
    image_height: size_t,
    image_row_pitch: size_t,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    let properties = std::ptr::null();
    let creation = Creation {
        context,
        properties,
        flags,
        format: image_format,
        host: host_ptr,
    };
    let size = [image_width, image_height, 0];
    let desc = older(CL_MEM_OBJECT_IMAGE2D, size, [image_row_pitch, 0]);
    creation.make(&desc).map_err(older_code)
}

#[entry_point]
pub(crate) fn clCreateImage3D(
    context: cl_context,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_width: size_t,
    image_height: size_t,
    image_depth: size_t,
    image_row_pitch: size_t,
    image_slice_pitch: size_t,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    let properties = std::ptr::null();
    let creation = Creation {
        context,
        properties,
        flags,
        format: image_format,
        host: host_ptr,
    };
    let size = [image_width, image_height, image_depth];
    let pitches = [image_row_pitch, image_slice_pitch];
    creation
        .make(&older(CL_MEM_OBJECT_IMAGE3D, size, pitches))
        .map_err(older_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RGBA8: ImageFormat = ImageFormat {
        order: CL_RGBA,
        channel_type: CL_UNORM_INT8,
    };

    #[test]
    fn a_description_is_read_by_its_type() {
        let mut desc = older(CL_MEM_OBJECT_IMAGE3D, [4, 3, 2], [0, 0]);
        desc.image_array_size = 7;
        let shape = |desc: &cl_image_desc| extent(desc).map_err(|status| status.0);
        for (image_type, expected) in [
            (CL_MEM_OBJECT_IMAGE1D, [4, 1, 1]),
            (CL_MEM_OBJECT_IMAGE1D_ARRAY, [4, 7, 1]),
            (CL_MEM_OBJECT_IMAGE2D, [4, 3, 1]),
            (CL_MEM_OBJECT_IMAGE2D_ARRAY, [4, 3, 7]),
            (CL_MEM_OBJECT_IMAGE3D, [4, 3, 2]),
        ] {
            desc.image_type = image_type;
            assert_eq!(shape(&desc), Ok(expected));
        }
        desc.image_type = CL_MEM_OBJECT_BUFFER;
        assert_eq!(shape(&desc), Err(CL_INVALID_IMAGE_DESCRIPTOR));
        let empty = older(CL_MEM_OBJECT_IMAGE2D, [4, 0, 1], [0, 0]);
        assert_eq!(shape(&empty), Err(CL_INVALID_IMAGE_DESCRIPTOR));
    }

    #[test]
    fn pitches_hold_whole_rows_and_slices() {
        let made = |pitches| image_of(&older(CL_MEM_OBJECT_IMAGE3D, [4, 3, 2], pitches), RGBA8);
        for good in [[0, 0], [16, 48], [20, 60], [20, 80], [0, 64]] {
            assert!(made(good).is_ok(), "{good:?}");
        }
        for bad in [[12, 0], [18, 0], [20, 48], [20, 70], [usize::MAX - 3, 8]] {
            let code = made(bad).unwrap_err().0;
            assert_eq!(code, CL_INVALID_IMAGE_DESCRIPTOR, "{bad:?}");
        }
    }
}
