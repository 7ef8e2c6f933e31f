//! Tests the answers and refusals of images and samplers.

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::frames::opencl::*;
use crate::frames::pictures::*;

#[test]
fn formats_are_those_of_the_device() {
    let cl = Fixture::new();
    let mut count = 0;
    let ask = |flags, image_type, entries, formats, count| {
        code!(clGetSupportedImageFormats(
            cl.context, flags, image_type, entries, formats, count
        ))
    };
    assert_eq!(
        ask(0, CL_MEM_OBJECT_IMAGE2D, 0, null_mut(), &raw mut count),
        CL_SUCCESS
    );
    assert!(count > 10, "{count}");
    let nothing = cl_image_format {
        image_channel_order: 0,
        image_channel_data_type: 0,
    };
    let mut formats = vec![nothing; count as usize];
    let to = formats.as_mut_ptr();
    assert_eq!(
        ask(
            CL_MEM_READ_ONLY,
            CL_MEM_OBJECT_IMAGE2D,
            count,
            to,
            null_mut()
        ),
        CL_SUCCESS
    );
    let is_ours = |format: &cl_image_format| {
        format.image_channel_order == CL_RGBA && format.image_channel_data_type == CL_UNSIGNED_INT8
    };
    assert!(formats.iter().any(is_ours));
    assert_eq!(
        ask(0, CL_MEM_OBJECT_BUFFER, 0, null_mut(), &raw mut count),
        CL_INVALID_VALUE
    );
    assert_eq!(
        ask(0, CL_MEM_OBJECT_IMAGE2D, 0, to, &raw mut count),
        CL_INVALID_VALUE
    );
    let both = CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY;
    assert_eq!(
        ask(both, CL_MEM_OBJECT_IMAGE2D, 0, null_mut(), &raw mut count),
        CL_INVALID_VALUE
    );
}

#[test]
fn what_is_no_image_is_not_made() {
    let cl = Fixture::new();
    let good = desc(CL_MEM_OBJECT_IMAGE2D, [4, 4, 1]);
    let mut memory = [0u8; 256];
    let host: *mut c_void = memory.as_mut_ptr().cast();
    let try_with = |flags, desc: &cl_image_desc, host| {
        let made = create(cl.context, flags, desc, host);
        if let Ok(image) = made {
            ok!(clReleaseMemObject(image));
        }
        made.err().unwrap_or(CL_SUCCESS)
    };
    let pitched = |row| cl_image_desc {
        image_row_pitch: row,
        ..good
    };
    let copy = CL_MEM_COPY_HOST_PTR;
    let wide = desc(CL_MEM_OBJECT_IMAGE2D, [1 << 30, 1, 1]);
    let no_rows = desc(CL_MEM_OBJECT_IMAGE2D, [4, 0, 1]);
    let mips = cl_image_desc {
        num_mip_levels: 1,
        ..good
    };
    let alone = desc(CL_MEM_OBJECT_IMAGE1D_BUFFER, [4, 1, 1]);
    for (flags, desc, host, code) in [
        (0, &good, null_mut(), CL_SUCCESS),
        (copy, &pitched(20), host, CL_SUCCESS),
        (copy, &pitched(12), host, CL_INVALID_IMAGE_DESCRIPTOR),
        (copy, &pitched(18), host, CL_INVALID_IMAGE_DESCRIPTOR),
        (0, &pitched(16), null_mut(), CL_INVALID_IMAGE_DESCRIPTOR),
        (0, &good, host, CL_INVALID_HOST_PTR),
        (copy, &good, null_mut(), CL_INVALID_HOST_PTR),
        (0, &wide, null_mut(), CL_INVALID_IMAGE_SIZE),
        (0, &no_rows, null_mut(), CL_INVALID_IMAGE_DESCRIPTOR),
        (0, &mips, null_mut(), CL_INVALID_IMAGE_DESCRIPTOR),
        (0, &alone, null_mut(), CL_INVALID_IMAGE_DESCRIPTOR),
        (1 << 40, &good, null_mut(), CL_INVALID_VALUE),
    ] {
        assert_eq!(try_with(flags, desc, host), code);
    }
    let made_of = |order, channel_type| {
        let format = cl_image_format {
            image_channel_order: order,
            image_channel_data_type: channel_type,
        };
        let desc = good;
        let made = make!(clCreateImage(
            cl.context,
            0,
            &raw const format,
            &raw const desc,
            null_mut()
        ));
        made.err()
    };
    assert_eq!(
        made_of(0x9999, CL_FLOAT),
        Some(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)
    );
    assert_eq!(
        made_of(CL_RGB, CL_FLOAT),
        Some(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)
    );
    assert_eq!(
        made_of(CL_DEPTH, CL_FLOAT),
        Some(CL_IMAGE_FORMAT_NOT_SUPPORTED)
    );
    let format = RGBA8;
    let older = make!(clCreateImage2D(
        cl.context,
        0,
        &raw const format,
        0,
        4,
        0,
        null_mut()
    ));
    assert_eq!(older, Err(CL_INVALID_IMAGE_SIZE));
    let no_desc = make!(clCreateImage(
        cl.context,
        0,
        &raw const format,
        null(),
        null_mut()
    ));
    assert_eq!(no_desc, Err(CL_INVALID_IMAGE_DESCRIPTOR));
}

#[test]
fn a_buffer_is_no_image_and_an_image_no_buffer() {
    let cl = Fixture::new();
    let buffer = cl.buffer(0, 256);
    let picture = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, [4, 4, 1], 1);
    let (origin, region, mut bytes) = ([0usize; 3], [4, 4, 1usize], [0u8; 256]);
    let (zero, one, to) = (origin.as_ptr(), region.as_ptr(), bytes.as_mut_ptr().cast());
    let (queue, image) = (cl.queue, picture.memory);
    assert_eq!(
        mem_info::<cl_mem_object_type>(image, CL_MEM_TYPE),
        CL_MEM_OBJECT_IMAGE2D
    );
    assert_eq!(mem_info::<usize>(image, CL_MEM_SIZE), 64);
    let wrong = CL_INVALID_MEM_OBJECT;
    let none = (0, null(), null_mut());
    assert_eq!(
        code!(clEnqueueReadImage(
            queue, buffer, 1, zero, one, 0, 0, to, none.0, none.1, none.2
        )),
        wrong
    );
    assert_eq!(
        code!(clEnqueueReadBuffer(
            queue, image, 1, 0, 4, to, none.0, none.1, none.2
        )),
        wrong
    );
    assert_eq!(
        code!(clEnqueueCopyBuffer(
            queue, buffer, image, 0, 0, 4, none.0, none.1, none.2
        )),
        wrong
    );
    assert_eq!(
        code!(clEnqueueCopyImage(
            queue, image, buffer, zero, zero, one, none.0, none.1, none.2
        )),
        wrong
    );
    assert_eq!(
        code!(clGetImageInfo(
            buffer,
            CL_IMAGE_WIDTH,
            0,
            null_mut(),
            null_mut()
        )),
        wrong
    );
    let region = cl_buffer_region {
        origin: 0,
        size: 16,
    };
    let part = make!(clCreateSubBuffer(
        image,
        0,
        CL_BUFFER_CREATE_TYPE_REGION,
        (&raw const region).cast()
    ));
    assert_eq!(part, Err(wrong));
    picture.release();
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn a_box_must_be_inside_and_its_memory_large_enough() {
    let cl = Fixture::new();
    let picture = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, [8, 4, 1], 1);
    let mut bytes = [0u8; 256];
    let read = |origin: Option<[usize; 3]>, region: [usize; 3], row, to| {
        code!(clEnqueueReadImage(
            cl.queue,
            picture.memory,
            CL_TRUE,
            origin.as_ref().map_or(null(), |origin| origin.as_ptr()),
            region.as_ptr(),
            row,
            0,
            to,
            0,
            null(),
            null_mut()
        ))
    };
    let to: *mut c_void = bytes.as_mut_ptr().cast();
    let zero = Some([0; 3]);
    assert_eq!(read(zero, [8, 4, 1], 0, to), CL_SUCCESS);
    for (origin, region, row, to) in [
        (zero, [9, 1, 1], 0, to),
        (Some([8, 0, 0]), [1, 1, 1], 0, to),
        (Some([0, 0, 1]), [1, 1, 1], 0, to),
        (zero, [0, 1, 1], 0, to),
        (zero, [1, 1, 2], 0, to),
        (zero, [8, 4, 1], 31, to),
        (zero, [8, 4, 1], 0, null_mut()),
        (None, [1, 1, 1], 0, to),
        (Some([usize::MAX, 0, 0]), [2, 1, 1], 0, to),
    ] {
        assert_eq!(read(origin, region, row, to), CL_INVALID_VALUE);
    }
    let overlap = code!(clEnqueueCopyImage(
        cl.queue,
        picture.memory,
        picture.memory,
        [0; 3].as_ptr(),
        [1, 1, 0].as_ptr(),
        [4, 2, 1].as_ptr(),
        0,
        null(),
        null_mut()
    ));
    assert_eq!(overlap, CL_MEM_COPY_OVERLAP);
    picture.release();
}

#[test]
fn host_access_flags_bind_reads_writes_and_maps() {
    let cl = Fixture::new();
    let flat = desc(CL_MEM_OBJECT_IMAGE2D, [4, 4, 1]);
    let image = create(cl.context, CL_MEM_HOST_READ_ONLY, &flat, null_mut()).unwrap();
    let bytes = [0u8; 64];
    let code = code!(clEnqueueWriteImage(
        cl.queue,
        image,
        CL_TRUE,
        [0; 3].as_ptr(),
        [4, 4, 1].as_ptr(),
        0,
        0,
        bytes.as_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    assert_eq!(code, CL_INVALID_OPERATION);
    ok!(clReleaseMemObject(image));
}

static GONE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn gone(_: cl_mem, order: *mut c_void) {
    // Each callback runs once, the last registered one first.
    let place = GONE.fetch_add(1, Ordering::AcqRel);
    assert_eq!(place, order.addr());
}

#[test]
fn destructor_callbacks_hear_of_an_image_once() {
    let cl = Fixture::new();
    let picture = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, [4, 4, 1], 1);
    for order in [1, 0] {
        let order = std::ptr::without_provenance_mut(order);
        ok!(clSetMemObjectDestructorCallback(
            picture.memory,
            Some(gone),
            order
        ));
    }
    picture.check(cl.queue);
    picture.release();
    cl.finish();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while GONE.load(Ordering::Acquire) < 2 {
        assert!(std::time::Instant::now() < end, "the callbacks run");
        std::thread::yield_now();
    }
}

#[test]
fn a_sampler_tells_what_it_was_made_with() {
    let cl = Fixture::new();
    let properties: [cl_sampler_properties; 3] =
        [CL_SAMPLER_FILTER_MODE.into(), CL_FILTER_LINEAR.into(), 0];
    let sampler = make!(clCreateSamplerWithProperties(
        cl.context,
        properties.as_ptr()
    ));
    let sampler = sampler.expect("a sampler");
    let ask = |name| {
        let mut value: cl_uint = 77;
        let to = (&raw mut value).cast();
        ok!(clGetSamplerInfo(sampler, name, 4, to, null_mut()));
        value
    };
    assert_eq!(ask(CL_SAMPLER_REFERENCE_COUNT), 1);
    assert_eq!(ask(CL_SAMPLER_NORMALIZED_COORDS), CL_TRUE);
    assert_eq!(ask(CL_SAMPLER_ADDRESSING_MODE), CL_ADDRESS_CLAMP);
    assert_eq!(ask(CL_SAMPLER_FILTER_MODE), CL_FILTER_LINEAR);
    let (mut echoed, mut size) = ([77; 3], 0);
    let to = echoed.as_mut_ptr().cast();
    ok!(clGetSamplerInfo(
        sampler,
        CL_SAMPLER_PROPERTIES,
        24,
        to,
        &raw mut size
    ));
    assert_eq!((echoed, size), (properties, 24));
    ok!(clRetainSampler(sampler));
    assert_eq!(ask(CL_SAMPLER_REFERENCE_COUNT), 2);
    ok!(clReleaseSampler(sampler));
    ok!(clReleaseSampler(sampler));
    assert_eq!(code!(clReleaseSampler(sampler)), CL_INVALID_SAMPLER);
    let wrong = make!(clCreateSampler(
        cl.context,
        CL_TRUE,
        0x9999,
        CL_FILTER_NEAREST
    ));
    assert_eq!(wrong, Err(CL_INVALID_VALUE));
}
