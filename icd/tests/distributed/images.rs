//! Tests of images and samplers in contexts of several nodes. Rows move as bytes of buffers do, and a node without
//! images refuses its own commands only.

use std::ptr::{null, null_mut};

use crate::frames::nodes::*;
use crate::frames::opencl::*;
use crate::frames::pictures::*;
use crate::frames::programs::*;

const NODES: [Drivers; 3] = [
    Drivers::System,
    Drivers::System,
    Drivers::Fake("[[device]]\nname = \"Poor\""),
];

const SOURCE: &str = "\
kernel void invert(read_only image2d_t from, write_only image2d_t to, sampler_t how) {
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    write_imageui(to, at, 255u - read_imageui(from, how, at));
}
";

struct Stage {
    context: cl_context,
    queues: [cl_command_queue; 3],
    devices: Vec<cl_device_id>,
}

const POOR: usize = 2;

fn stage() -> Stage {
    start(&NODES);
    let devices = devices(3);
    let context = context_over(&devices);
    let queue = |device: usize| make!(clCreateCommandQueue(context, devices[device], 0));
    Stage {
        context,
        queues: [0, 1, 2].map(|device| queue(device).expect("a queue")),
        devices,
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for queue in self.queues {
                ok!(clReleaseCommandQueue(queue));
            }
            ok!(clReleaseContext(self.context));
        }
    }
}

#[test]
fn what_one_node_writes_another_reads() {
    own_process!();
    let cl = stage();
    for (image_type, size, inner) in shapes() {
        let mut picture = Picture::new(cl.context, image_type, size, 1);
        picture.write(cl.queues[0], inner, 2);
        picture.check(cl.queues[1]);
        // Each node has the newest bytes of another part.
        let first = part([0; 3], [size[0] / 2, 1, 1]);
        picture.write(cl.queues[1], first, 3);
        picture.check(cl.queues[0]);
        let (at, row, slice) = picture.map(cl.queues[0], CL_MAP_READ | CL_MAP_WRITE, inner);
        let layers = image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
        let down = if layers { slice } else { row };
        assert!(
            mapped(at, inner, down, slice) == picture.expected(inner),
            "{size:?}"
        );
        // SAFETY: the map holds the part's first row.
        unsafe { at.write_bytes(9, inner.size[0] * ELEMENT) };
        picture.unmap(cl.queues[1], at);
        let top = part(inner.origin, [inner.size[0], 1, 1]);
        picture.note(top, &vec![9; top.length()]);
        picture.check(cl.queues[0]);
        picture.check(cl.queues[1]);
        let colour: [u32; 4] = [1, 2, 3, 4];
        ok!(clEnqueueFillImage(
            cl.queues[1],
            picture.memory,
            colour.as_ptr().cast(),
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            0,
            null(),
            null_mut()
        ));
        ok!(clFinish(cl.queues[1]));
        picture.note(inner, &[1, 2, 3, 4].repeat(inner.length() / ELEMENT));
        picture.check(cl.queues[0]);
        let mut twin = Picture::new(cl.context, image_type, size, 7);
        ok!(clEnqueueCopyImage(
            cl.queues[0],
            picture.memory,
            twin.memory,
            inner.origin.as_ptr(),
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            0,
            null(),
            null_mut()
        ));
        ok!(clFinish(cl.queues[0]));
        twin.note(inner, &picture.expected(inner));
        twin.check(cl.queues[1]);
        twin.release();
        picture.release();
    }
}

/// Images of each kind with rows: each has too many rows to be tracked separately, and a box of most of them.
fn tall_shapes() -> [(cl_mem_object_type, [usize; 3], Part); 4] {
    [
        (
            CL_MEM_OBJECT_IMAGE3D,
            [12, 70, 96],
            part([3, 2, 1], [5, 66, 94]),
        ),
        (
            CL_MEM_OBJECT_IMAGE2D_ARRAY,
            [12, 50, 100],
            part([3, 1, 0], [5, 48, 100]),
        ),
        (
            CL_MEM_OBJECT_IMAGE2D,
            [12, 6000, 1],
            part([3, 1, 0], [5, 5900, 1]),
        ),
        (
            CL_MEM_OBJECT_IMAGE2D_ARRAY,
            [12, 3, 1800],
            part([3, 0, 5], [5, 3, 1700]),
        ),
    ]
}

// The address of an element of a map.
fn element(at: *mut u8, x: usize, [row, slice]: [usize; 2], [y, z]: [usize; 2]) -> *mut u8 {
    at.wrapping_add(x * ELEMENT + y * row + z * slice)
}

#[test]
fn what_lies_beside_a_map_of_many_rows_stays() {
    own_process!();
    let cl = stage();
    for (image_type, size, inner) in tall_shapes() {
        let mut picture = Picture::new(cl.context, image_type, size, 1);
        // One node has the newest bytes, and another node makes the map.
        picture.write(cl.queues[0], picture.whole(), 2);
        for (flags, seed) in [(CL_MAP_WRITE, 3), (CL_MAP_WRITE_INVALIDATE_REGION, 4)] {
            let (at, row, slice) = picture.map(cl.queues[1], flags, inner);
            // This part lies beside the box, and is read while the box is being written.
            let beside = part([9, 0, 0], [2, size[1], size[2]]);
            let new = pattern(seed, inner.length());
            let mut bytes = new.chunks(inner.size[0] * ELEMENT);
            for z in 0..inner.size[2] {
                for y in 0..inner.size[1] {
                    let to = element(at, 0, [row, slice], [y, z]);
                    let bytes = bytes.next().expect("a row");
                    // SAFETY: a row of the box that is mapped for writing.
                    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                }
            }
            let (read, row, slice) = picture.map(cl.queues[0], CL_MAP_READ, beside);
            assert!(
                mapped(read, beside, row, slice) == picture.expected(beside),
                "{size:?}"
            );
            picture.unmap(cl.queues[0], read);
            picture.note(inner, &new);
            picture.unmap(cl.queues[1], at);
            ok!(clFinish(cl.queues[1]));
            picture.check(cl.queues[0]);
            picture.check(cl.queues[1]);
        }
        picture.release();
    }
}

#[test]
fn boxes_of_many_rows_are_written_filled_and_copied_alone() {
    own_process!();
    let cl = stage();
    for (image_type, size, inner) in tall_shapes() {
        let mut picture = Picture::new(cl.context, image_type, size, 1);
        picture.write(cl.queues[0], picture.whole(), 2);
        picture.write(cl.queues[1], inner, 3);
        picture.check(cl.queues[0]);
        let colour: [u32; 4] = [1, 2, 3, 4];
        ok!(clEnqueueFillImage(
            cl.queues[1],
            picture.memory,
            colour.as_ptr().cast(),
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            0,
            null(),
            null_mut()
        ));
        ok!(clFinish(cl.queues[1]));
        picture.note(inner, &[1, 2, 3, 4].repeat(inner.length() / ELEMENT));
        let mut twin = Picture::new(cl.context, image_type, size, 7);
        twin.write(cl.queues[0], twin.whole(), 8);
        ok!(clEnqueueCopyImage(
            cl.queues[1],
            picture.memory,
            twin.memory,
            inner.origin.as_ptr(),
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            0,
            null(),
            null_mut()
        ));
        ok!(clFinish(cl.queues[1]));
        twin.note(inner, &picture.expected(inner));
        for picture in [&picture, &twin] {
            picture.check(cl.queues[0]);
            picture.check(cl.queues[1]);
        }
        twin.release();
        picture.release();
    }
}

#[test]
fn the_applications_memory_with_gaps_is_the_clients_copy() {
    own_process!();
    let cl = stage();
    let (size, inner) = ([900, 400, 1], part([7, 3, 0], [880, 390, 1]));
    let row = size[0] * ELEMENT + 16;
    let mut memory = pattern(1, row * size[1]);
    let host: *mut u8 = memory.as_mut_ptr();
    let description = cl_image_desc {
        image_row_pitch: row,
        ..desc(CL_MEM_OBJECT_IMAGE2D, size)
    };
    let made = create(cl.context, CL_MEM_USE_HOST_PTR, &description, host.cast());
    let mut picture = Picture {
        memory: made.expect("an image"),
        size,
        bytes: mapped(host, part([0; 3], size), row, 0),
    };
    picture.check(cl.queues[0]);
    picture.write(cl.queues[1], inner, 2);
    let (at, pitch, _) = picture.map(cl.queues[0], CL_MAP_READ | CL_MAP_WRITE, inner);
    assert_eq!((at, pitch), (host.wrapping_add(3 * row + 7 * ELEMENT), row));
    assert!(mapped(at, inner, row, 0) == picture.expected(inner));
    // SAFETY: the map holds the part's first row.
    unsafe { at.write_bytes(9, inner.size[0] * ELEMENT) };
    picture.unmap(cl.queues[0], at);
    let top = part(inner.origin, [inner.size[0], 1, 1]);
    picture.note(top, &vec![9; top.length()]);
    picture.check(cl.queues[1]);
    picture.check(cl.queues[0]);
    // The bytes between the rows belong to the application.
    let gap = &memory[size[0] * ELEMENT..row];
    assert!(gap == &pattern(1, row)[size[0] * ELEMENT..]);
    picture.release();
}

#[test]
fn kernels_of_two_nodes_pass_an_image_on_and_a_poor_node_refuses() {
    own_process!();
    let cl = stage();
    let rich = &cl.devices[..2];
    let (mut text, length) = (SOURCE.as_ptr().cast(), SOURCE.len());
    let program = make!(clCreateProgramWithSource(
        cl.context,
        1,
        &raw mut text,
        &raw const length
    ))
    .expect("a program");
    ok!(clBuildProgram(
        program,
        2,
        rich.as_ptr(),
        null(),
        None,
        null_mut()
    ));
    let kernel = kernel(program, "invert");
    let size = [300, 200, 1];
    let first = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, size, 1);
    let mut second = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, size, 2);
    let mut third = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, size, 3);
    let mode = CL_ADDRESS_CLAMP_TO_EDGE;
    let sampler = make!(clCreateSampler(
        cl.context,
        CL_FALSE,
        mode,
        CL_FILTER_NEAREST
    ));
    let sampler = sampler.expect("a sampler");
    assert_eq!(set(kernel, 2, &sampler), CL_SUCCESS);
    let launch = |queue, from: &Picture, to: &Picture| {
        assert_eq!(set(kernel, 0, &from.memory), CL_SUCCESS);
        assert_eq!(set(kernel, 1, &to.memory), CL_SUCCESS);
        ok!(clEnqueueNDRangeKernel(
            queue,
            kernel,
            2,
            null(),
            size.as_ptr(),
            null(),
            0,
            null(),
            null_mut()
        ));
        ok!(clFinish(queue));
    };
    launch(cl.queues[0], &first, &second);
    launch(cl.queues[1], &second, &third);
    second.bytes = first.bytes.iter().map(|byte| 255 - byte).collect();
    third.bytes.clone_from(&first.bytes);
    third.check(cl.queues[0]);
    second.check(cl.queues[1]);

    let mut bytes = vec![0u8; first.bytes.len()];
    let refused = code!(clEnqueueReadImage(
        cl.queues[POOR],
        first.memory,
        CL_TRUE,
        [0; 3].as_ptr(),
        size.as_ptr(),
        0,
        0,
        bytes.as_mut_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    assert_eq!(refused, CL_INVALID_OPERATION);
    for picture in [first, second, third] {
        picture.release();
    }
    ok!(clReleaseSampler(sampler));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn an_image_over_a_buffer_is_a_part_of_it_on_all_nodes() {
    own_process!();
    let cl = stage();
    let bytes = pattern(1, 5000 * ELEMENT);
    let buffer = make!(clCreateBuffer(
        cl.context,
        CL_MEM_COPY_HOST_PTR,
        bytes.len(),
        bytes.as_ptr().cast_mut().cast()
    ))
    .expect("a buffer");
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
    picture.check(cl.queues[0]);
    picture.write(cl.queues[0], part([100, 0, 0], [3000, 1, 1]), 2);
    picture.check(cl.queues[1]);
    let mut seen = vec![0u8; picture.bytes.len()];
    ok!(clEnqueueReadBuffer(
        cl.queues[POOR],
        buffer,
        CL_TRUE,
        0,
        seen.len(),
        seen.as_mut_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    assert!(seen == picture.bytes);
    picture.release();
    ok!(clReleaseMemObject(buffer));
}
