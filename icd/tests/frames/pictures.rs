//! Images for tests, with a model of their bytes; on top of `opencl`.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

/// A format with four bytes per element, without conversions.
pub const RGBA8: cl_image_format = cl_image_format {
    image_channel_order: CL_RGBA,
    image_channel_data_type: CL_UNSIGNED_INT8,
};

pub const ELEMENT: usize = 4;

/// Returns a description. `size` counts the layers of arrays last.
pub fn desc(image_type: cl_mem_object_type, size: [usize; 3]) -> cl_image_desc {
    let [image_width, second, third] = size;
    let (image_height, image_depth, image_array_size) = match image_type {
        CL_MEM_OBJECT_IMAGE1D_ARRAY => (0, 0, second),
        CL_MEM_OBJECT_IMAGE2D_ARRAY => (second, 0, third),
        CL_MEM_OBJECT_IMAGE3D => (second, third, 0),
        CL_MEM_OBJECT_IMAGE2D => (second, 0, 0),
        _ => (0, 0, 0),
    };
    cl_image_desc {
        image_type,
        image_width,
        image_height,
        image_depth,
        image_array_size,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        buffer: null_mut(),
    }
}

pub fn create(
    context: cl_context,
    flags: cl_mem_flags,
    desc: &cl_image_desc,
    host: *mut c_void,
) -> Result<cl_mem, cl_int> {
    let format = RGBA8;
    make!(clCreateImage(
        context,
        flags,
        &raw const format,
        std::ptr::from_ref(desc),
        host
    ))
}

/// An image and the expected bytes, without gaps.
pub struct Picture {
    pub memory: cl_mem,
    pub size: [usize; 3],
    pub bytes: Vec<u8>,
}

/// A box of elements.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub origin: [usize; 3],
    pub size: [usize; 3],
}

impl Part {
    pub fn length(&self) -> usize {
        self.size.iter().product::<usize>() * ELEMENT
    }
}

pub fn part(origin: [usize; 3], size: [usize; 3]) -> Part {
    Part { origin, size }
}

impl Picture {
    /// Makes an image with these contents.
    pub fn new(
        context: cl_context,
        image_type: cl_mem_object_type,
        size: [usize; 3],
        seed: usize,
    ) -> Picture {
        let mut bytes = pattern(seed, size.iter().product::<usize>() * ELEMENT);
        let host = bytes.as_mut_ptr().cast();
        let memory = create(context, CL_MEM_COPY_HOST_PTR, &desc(image_type, size), host);
        Picture {
            memory: memory.expect("an image"),
            size,
            bytes,
        }
    }

    pub fn whole(&self) -> Part {
        part([0; 3], self.size)
    }

    fn rows(&self, part: Part) -> Vec<std::ops::Range<usize>> {
        let [width, height, _] = self.size;
        let mut rows = Vec::new();
        for z in part.origin[2]..part.origin[2] + part.size[2] {
            for y in part.origin[1]..part.origin[1] + part.size[1] {
                let first = ((z * height + y) * width + part.origin[0]) * ELEMENT;
                rows.push(first..first + part.size[0] * ELEMENT);
            }
        }
        rows
    }

    /// Returns the expected bytes of a part.
    pub fn expected(&self, part: Part) -> Vec<u8> {
        let rows = self.rows(part).into_iter();
        rows.flat_map(|row| self.bytes[row].to_vec()).collect()
    }

    /// Records that a part contains these bytes now.
    pub fn note(&mut self, part: Part, bytes: &[u8]) {
        let row_length = part.size[0] * ELEMENT;
        for (row, new) in self.rows(part).into_iter().zip(bytes.chunks(row_length)) {
            self.bytes[row].copy_from_slice(new);
        }
    }

    /// Writes a part, and records its bytes.
    pub fn write(&mut self, queue: cl_command_queue, part: Part, seed: usize) {
        let bytes = pattern(seed, part.length());
        ok!(clEnqueueWriteImage(
            queue,
            self.memory,
            CL_TRUE,
            part.origin.as_ptr(),
            part.size.as_ptr(),
            0,
            0,
            bytes.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        self.note(part, &bytes);
    }

    pub fn read(&self, queue: cl_command_queue, part: Part) -> Vec<u8> {
        let mut bytes = vec![0xee; part.length()];
        ok!(clEnqueueReadImage(
            queue,
            self.memory,
            CL_TRUE,
            part.origin.as_ptr(),
            part.size.as_ptr(),
            0,
            0,
            bytes.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        bytes
    }

    /// Checks the image against the model.
    #[track_caller]
    pub fn check(&self, queue: cl_command_queue) {
        let got = self.read(queue, self.whole());
        let wrong = got
            .iter()
            .zip(&self.bytes)
            .position(|(got, want)| got != want);
        assert_eq!(wrong, None, "the first wrong byte");
    }

    /// Maps a part in a blocking call. Returns address, row pitch and slice pitch.
    pub fn map(
        &self,
        queue: cl_command_queue,
        flags: cl_map_flags,
        part: Part,
    ) -> (*mut u8, usize, usize) {
        let (mut row, mut slice) = (77, 77);
        let at = make!(clEnqueueMapImage(
            queue,
            self.memory,
            CL_TRUE,
            flags,
            part.origin.as_ptr(),
            part.size.as_ptr(),
            &raw mut row,
            &raw mut slice,
            0,
            null(),
            null_mut()
        ));
        (at.expect("a map").cast(), row, slice)
    }

    pub fn unmap(&self, queue: cl_command_queue, at: *mut u8) {
        ok!(clEnqueueUnmapMemObject(
            queue,
            self.memory,
            at.cast(),
            0,
            null(),
            null_mut()
        ));
    }

    pub fn release(self) {
        ok!(clReleaseMemObject(self.memory));
    }
}

/// Returns the bytes of a mapped part, without gaps.
pub fn mapped(at: *const u8, part: Part, row: usize, slice: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for z in 0..part.size[2] {
        for y in 0..part.size[1] {
            // SAFETY: the map holds the part, in these pitches.
            let row = unsafe {
                std::slice::from_raw_parts(at.add(z * slice + y * row), part.size[0] * ELEMENT)
            };
            bytes.extend_from_slice(row);
        }
    }
    bytes
}

/// Returns every image type with a size, and a part that touches no edge where there is room.
pub fn shapes() -> Vec<(cl_mem_object_type, [usize; 3], Part)> {
    vec![
        (
            CL_MEM_OBJECT_IMAGE1D,
            [700, 1, 1],
            part([5, 0, 0], [600, 1, 1]),
        ),
        (
            CL_MEM_OBJECT_IMAGE1D_ARRAY,
            [90, 40, 1],
            part([3, 2, 0], [80, 30, 1]),
        ),
        (
            CL_MEM_OBJECT_IMAGE2D,
            [33, 17, 1],
            part([1, 2, 0], [20, 11, 1]),
        ),
        // The bytes of one image travel in chunks, those of the others inside commands.
        (
            CL_MEM_OBJECT_IMAGE2D,
            [900, 400, 1],
            part([7, 3, 0], [880, 390, 1]),
        ),
        (
            CL_MEM_OBJECT_IMAGE2D_ARRAY,
            [100, 60, 5],
            part([9, 8, 1], [64, 40, 3]),
        ),
        (
            CL_MEM_OBJECT_IMAGE3D,
            [60, 50, 20],
            part([10, 20, 5], [45, 25, 12]),
        ),
    ]
}
