//! Tests reads, writes, copies and fills of images: every element arrives in its place.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::pictures::*;

#[test]
fn a_part_is_written_and_the_rest_stays() {
    let cl = Fixture::new();
    for (image_type, size, inner) in shapes() {
        let mut picture = Picture::new(cl.context, image_type, size, 1);
        picture.check(cl.queue);
        picture.write(cl.queue, inner, 2);
        assert!(
            picture.read(cl.queue, inner) == picture.expected(inner),
            "{size:?}"
        );
        picture.check(cl.queue);
        picture.write(cl.queue, picture.whole(), 3);
        picture.check(cl.queue);
        picture.release();
    }
}

#[test]
fn the_applications_memory_may_have_pitches() {
    let cl = Fixture::new();
    let (row_gap, slice_gap) = (12, 100);
    for (image_type, size, inner) in shapes() {
        let mut picture = Picture::new(cl.context, image_type, size, 1);
        let row = inner.size[0] * ELEMENT + row_gap;
        let layers = image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
        let rows = if layers { 1 } else { inner.size[1] };
        let slice = match image_type {
            CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE2D => 0,
            _ => row * rows + slice_gap,
        };
        // The distances between rows and between slices.
        let (down, behind) = if layers { (slice, 0) } else { (row, slice) };
        let mut memory = pattern(
            5,
            (row + slice + 1) * inner.size[1].max(1) * inner.size[2] + row,
        );
        ok!(clEnqueueWriteImage(
            cl.queue,
            picture.memory,
            CL_TRUE,
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            row,
            slice,
            memory.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        let written = mapped(memory.as_ptr(), inner, down, behind);
        picture.note(inner, &written);
        picture.check(cl.queue);
        memory.fill(0xee);
        ok!(clEnqueueReadImage(
            cl.queue,
            picture.memory,
            CL_TRUE,
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            row,
            slice,
            memory.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        assert!(
            mapped(memory.as_ptr(), inner, down, behind) == written,
            "{size:?}"
        );
        let gap = &memory[inner.size[0] * ELEMENT..][..row_gap];
        assert!(
            inner.size[1] == 1 || gap.iter().all(|byte| *byte == 0xee),
            "gaps stay"
        );
        picture.release();
    }
}

#[test]
fn images_and_buffers_copy_to_each_other() {
    let cl = Fixture::new();
    for (image_type, size, inner) in shapes() {
        let source = Picture::new(cl.context, image_type, size, 1);
        let mut target = Picture::new(cl.context, image_type, size, 2);
        let to = part([0; 3], inner.size);
        ok!(clEnqueueCopyImage(
            cl.queue,
            source.memory,
            target.memory,
            inner.origin.as_ptr(),
            to.origin.as_ptr(),
            inner.size.as_ptr(),
            0,
            null(),
            null_mut()
        ));
        target.note(to, &source.expected(inner));
        target.check(cl.queue);

        let buffer = cl.buffer_of(&pattern(3, inner.length() + 100));
        ok!(clEnqueueCopyImageToBuffer(
            cl.queue,
            source.memory,
            buffer,
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            64,
            0,
            null(),
            null_mut()
        ));
        assert!(
            cl.read(buffer, 64, inner.length()) == source.expected(inner),
            "{size:?}"
        );
        cl.write(buffer, 0, &pattern(4, inner.length() + 100));
        ok!(clEnqueueCopyBufferToImage(
            cl.queue,
            buffer,
            target.memory,
            32,
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            0,
            null(),
            null_mut()
        ));
        target.note(
            inner,
            &pattern(4, inner.length() + 100)[32..32 + inner.length()],
        );
        target.check(cl.queue);
        ok!(clReleaseMemObject(buffer));
        source.release();
        target.release();
    }
}

#[test]
fn a_slice_of_one_image_is_copied_into_another_type() {
    let cl = Fixture::new();
    let solid = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE3D, [20, 10, 4], 1);
    let mut flat = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, [20, 10, 1], 2);
    let slice = part([0, 0, 2], [20, 10, 1]);
    ok!(clEnqueueCopyImage(
        cl.queue,
        solid.memory,
        flat.memory,
        slice.origin.as_ptr(),
        [0; 3].as_ptr(),
        slice.size.as_ptr(),
        0,
        null(),
        null_mut()
    ));
    flat.note(flat.whole(), &solid.expected(slice));
    flat.check(cl.queue);
    solid.release();
    flat.release();
}

#[test]
fn a_fill_colours_its_part_alone() {
    let cl = Fixture::new();
    let colour: [u32; 4] = [1, 2, 300, 4];
    for (image_type, size, inner) in shapes() {
        let mut picture = Picture::new(cl.context, image_type, size, 1);
        let mut event = null_mut();
        ok!(clEnqueueFillImage(
            cl.queue,
            picture.memory,
            colour.as_ptr().cast(),
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            0,
            null(),
            &raw mut event
        ));
        assert_eq!(command_of(event), CL_COMMAND_FILL_IMAGE);
        ok!(clReleaseEvent(event));
        picture.note(inner, &[1, 2, 255, 4].repeat(inner.length() / ELEMENT));
        picture.check(cl.queue);
        picture.release();
    }
}

#[test]
fn an_image_over_a_buffer_shares_its_bytes() {
    let cl = Fixture::new();
    let length = 5000 * ELEMENT;
    let bytes = pattern(1, length);
    let buffer = cl.buffer_of(&bytes);
    let description = cl_image_desc {
        buffer,
        ..desc(CL_MEM_OBJECT_IMAGE1D_BUFFER, [4000, 1, 1])
    };
    let memory = create(cl.context, 0, &description, null_mut()).expect("an image");
    let mut picture = Picture {
        memory,
        size: [4000, 1, 1],
        bytes: bytes[..4000 * ELEMENT].to_vec(),
    };
    picture.check(cl.queue);
    // Writes through the image are visible in the buffer, and the reverse.
    let inner = part([100, 0, 0], [3000, 1, 1]);
    picture.write(cl.queue, inner, 2);
    assert!(cl.read(buffer, 0, 4000 * ELEMENT) == picture.bytes);
    cl.write(buffer, 40, &pattern(3, 8));
    picture.note(part([10, 0, 0], [2, 1, 1]), &pattern(3, 8));
    picture.check(cl.queue);
    let colour: [u32; 4] = [9, 8, 7, 1000];
    let filled = part([1, 0, 0], [2, 1, 1]);
    ok!(clEnqueueFillImage(
        cl.queue,
        memory,
        colour.as_ptr().cast(),
        filled.origin.as_ptr(),
        filled.size.as_ptr(),
        0,
        null(),
        null_mut()
    ));
    picture.note(filled, &[9, 8, 7, 255, 9, 8, 7, 255]);
    picture.check(cl.queue);
    let mut flat = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, [100, 3, 1], 7);
    let row = part([200, 0, 0], [100, 1, 1]);
    ok!(clEnqueueCopyImage(
        cl.queue,
        memory,
        flat.memory,
        row.origin.as_ptr(),
        [0, 1, 0].as_ptr(),
        row.size.as_ptr(),
        0,
        null(),
        null_mut()
    ));
    flat.note(part([0, 1, 0], [100, 1, 1]), &picture.expected(row));
    flat.check(cl.queue);
    // The image keeps the buffer alive.
    assert_eq!(
        mem_info::<cl_mem>(memory, CL_MEM_ASSOCIATED_MEMOBJECT),
        buffer
    );
    ok!(clReleaseMemObject(buffer));
    picture.check(cl.queue);
    let (at, row_pitch, slice_pitch) = picture.map(cl.queue, CL_MAP_READ, inner);
    assert_eq!((row_pitch, slice_pitch), (4000 * ELEMENT, 0));
    assert!(mapped(at, inner, row_pitch, 0) == picture.expected(inner));
    picture.unmap(cl.queue, at);
    picture.release();
    flat.release();
}
