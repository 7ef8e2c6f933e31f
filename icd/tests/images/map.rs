//! Tests of maps of images: pitches, one address for overlapping maps, and the application's own memory.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::pictures::*;

fn store(at: *mut u8, part: Part, row: usize, slice: usize, bytes: &[u8]) {
    let length = part.size[0] * ELEMENT;
    for (number, new) in bytes.chunks(length).enumerate() {
        let (z, y) = (number / part.size[1], number % part.size[1]);
        // SAFETY: the map holds the part, in these pitches.
        unsafe {
            at.add(z * slice + y * row)
                .copy_from_nonoverlapping(new.as_ptr(), length);
        }
    }
}

// The distances between rows and between slices of a map. Layers of one-dimensional images are a slice pitch apart.
fn steps(image_type: cl_mem_object_type, row: usize, slice: usize) -> (usize, usize) {
    if image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY {
        (slice, 0)
    } else {
        (row, slice)
    }
}

#[test]
fn a_map_shows_its_part_and_an_unmap_sends_what_was_written() {
    let cl = Fixture::new();
    for (image_type, size, inner) in shapes() {
        let mut picture = Picture::new(cl.context, image_type, size, 1);
        let (at, row, slice) = picture.map(cl.queue, CL_MAP_READ | CL_MAP_WRITE, inner);
        let (down, behind) = steps(image_type, row, slice);
        assert_eq!(row, size[0] * ELEMENT);
        let has_slices = size[2] > 1 || image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
        assert_eq!(slice == 0, !has_slices);
        assert!(
            mapped(at, inner, down, behind) == picture.expected(inner),
            "{size:?}"
        );
        let new = pattern(2, inner.length());
        store(at, inner, down, behind, &new);
        picture.unmap(cl.queue, at);
        picture.note(inner, &new);
        picture.check(cl.queue);
        // This map fetches no bytes.
        let (at, ..) = picture.map(cl.queue, CL_MAP_WRITE_INVALIDATE_REGION, inner);
        let new = pattern(3, inner.length());
        store(at, inner, down, behind, &new);
        picture.unmap(cl.queue, at);
        picture.note(inner, &new);
        picture.check(cl.queue);
        picture.release();
    }
}

#[test]
fn columns_are_mapped_for_writing_side_by_side_and_send_only_their_own() {
    let cl = Fixture::new();
    let mut picture = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, [40, 30, 1], 1);
    let (left, right) = (part([0, 0, 0], [20, 30, 1]), part([20, 0, 0], [20, 30, 1]));
    let (one, row, _) = picture.map(cl.queue, CL_MAP_WRITE, left);
    let (other, ..) = picture.map(cl.queue, CL_MAP_WRITE, right);
    assert_eq!(mem_info::<cl_uint>(picture.memory, CL_MEM_MAP_COUNT), 2);
    let mut pitch = 0;
    let refused = make!(clEnqueueMapImage(
        cl.queue,
        picture.memory,
        CL_TRUE,
        CL_MAP_WRITE,
        [19, 29, 0].as_ptr(),
        [2, 1, 1].as_ptr(),
        &raw mut pitch,
        null_mut(),
        0,
        null(),
        null_mut()
    ));
    assert_eq!(refused, Err(CL_INVALID_OPERATION));
    // The right map is unmapped first, and must not restore the bytes behind the left one.
    let (new_left, new_right) = (pattern(2, left.length()), pattern(3, right.length()));
    store(other, right, row, 0, &new_right);
    picture.unmap(cl.queue, other);
    picture.note(right, &new_right);
    picture.check(cl.queue);
    store(one, left, row, 0, &new_left);
    picture.unmap(cl.queue, one);
    picture.note(left, &new_left);
    picture.check(cl.queue);
    assert_eq!(mem_info::<cl_uint>(picture.memory, CL_MEM_MAP_COUNT), 0);
    picture.release();
}

#[test]
fn the_applications_memory_is_where_it_is_mapped_in_its_own_pitches() {
    let cl = Fixture::new();
    for (image_type, size, inner) in shapes() {
        let row = size[0] * ELEMENT + 16;
        let slice = match image_type {
            CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE2D => 0,
            CL_MEM_OBJECT_IMAGE1D_ARRAY => 2 * row,
            _ => row * (size[1] + 1),
        };
        let (down, behind) = steps(image_type, row, slice);
        let mut memory = pattern(1, (row + slice) * size[1] * size[2] + row);
        let description = cl_image_desc {
            image_row_pitch: row,
            image_slice_pitch: slice,
            ..desc(image_type, size)
        };
        let host: *mut u8 = memory.as_mut_ptr();
        let made = create(cl.context, CL_MEM_USE_HOST_PTR, &description, host.cast());
        let mut picture = Picture {
            memory: made.expect("an image"),
            size,
            bytes: mapped(host, part([0; 3], size), down, behind),
        };
        picture.check(cl.queue);
        let mut told = [0usize; 2];
        for (place, name) in [CL_IMAGE_ROW_PITCH, CL_IMAGE_SLICE_PITCH]
            .into_iter()
            .enumerate()
        {
            let to = (&raw mut told[place]).cast();
            ok!(clGetImageInfo(picture.memory, name, 8, to, null_mut()));
        }
        assert_eq!(told, [row, slice]);
        assert_eq!(mem_info::<*mut u8>(picture.memory, CL_MEM_HOST_PTR), host);
        picture.write(cl.queue, inner, 4);
        let (at, map_row, map_slice) = picture.map(cl.queue, CL_MAP_READ | CL_MAP_WRITE, inner);
        assert_eq!((map_row, map_slice), (row, slice));
        let [x, y, z] = inner.origin;
        assert_eq!(at, host.wrapping_add(z * behind + y * down + x * ELEMENT));
        assert!(
            mapped(at, inner, down, behind) == picture.expected(inner),
            "{size:?}"
        );
        let new = pattern(5, inner.length());
        store(at, inner, down, behind, &new);
        picture.unmap(cl.queue, at);
        picture.note(inner, &new);
        picture.check(cl.queue);
        picture.release();
        drop(memory);
    }
}
