//! Copies to and from images through host memory, for copies that a driver refuses to do itself.
//!
//! Regions are validated before the driver sees them. A driver that then reports a copy as invalid is
//! wrong, but the client has already been told that the copy was enqueued. NVIDIA's driver does this for
//! some copies from images to buffers.
//!
//! A driver may read the source of a write as soon as the write is enqueued, whatever the write waits for.
//! The write of a piece is therefore enqueued only when its read has ended, and this module blocks until
//! the last read has ended. Invariant: the pieces of a copy are processed one after another, so that all of
//! them can use the same memory.

use causeway_proto::raster::Part;
use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::Queue;
use super::image::{Side, leave_to_driver};
use super::rect::bounded;
use super::transfer::Way;
use crate::runtime::buffer::Buffer;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::host::Host;

/// Maximum size of host memory for a copy, in bytes.
const MOST: u64 = 8 << 20;

/// Divides a box into boxes of at most `most` bytes, or of one element, in packed order. Their origins are
/// relative to the box.
fn pieces(element: u64, size: [u64; 3], most: u64) -> impl Iterator<Item = Part> {
    let [width, rows, slices] = size;
    let (row, slice) = (width * element, width * element * rows);
    let step = if slice <= most {
        [width, rows, most / slice]
    } else if row <= most {
        [width, most / row, 1]
    } else {
        [(most / element).max(1), 1, 1]
    };
    let starts = move |axis: usize| (0..size[axis]).step_by(step[axis] as usize);
    let all = (0..slices).step_by(step[2] as usize);
    let all = all.flat_map(move |z| starts(1).map(move |y| (y, z)));
    let all = all.flat_map(move |(y, z)| starts(0).map(move |x| [x, y, z]));
    all.map(move |origin| Part {
        origin,
        size: std::array::from_fn(|axis| step[axis].min(size[axis] - origin[axis])),
        packed: origin[2] * slice + origin[1] * row + origin[0] * element,
    })
}

impl Queue {
    /// Returns whether a copy that the driver has refused with this error may be retried through host
    /// memory.
    #[must_use]
    pub fn may_go_by_host(refusal: Status, source: &Buffer, destination: &Buffer) -> bool {
        let is_odd = matches!(refusal, Status::INVALID_VALUE | Status::INVALID_OPERATION);
        is_odd && (source.raster().is_some() || destination.raster().is_some())
    }

    /// Like [`Queue::copy`], through host memory, for a copy with an image. Blocks until the source has
    /// been read, so all queues whose commands it waits for must have been flushed.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` for regions that are not boxes of the same size.
    pub fn copy_by_host(
        &self,
        (source, from): (&Buffer, &Region),
        (destination, to): (&Buffer, &Region),
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        bounded(source, from)?;
        bounded(destination, to)?;
        let sides = (Side::of(source, from)?, Side::of(destination, to)?);
        self.copy_in_pieces((&sides.0, &sides.1), wait, MOST)
    }

    /// Copies between two sides, one of them an image, with at most `most` bytes of host memory.
    fn copy_in_pieces(
        &self,
        (from, to): (&Side<'_>, &Side<'_>),
        wait: &WaitList<'_>,
        most: u64,
    ) -> Result<Event, Status> {
        let (element, size) = match (from, to) {
            (Side::Image(_, one, part), Side::Image(_, other, there)) => {
                let same = one.element() == other.element() && part.size == there.size;
                same.then_some((one.element(), part.size))
            }
            (Side::Image(_, raster, part), _) | (_, Side::Image(_, raster, part)) => {
                Some((raster.element(), part.size))
            }
            _ => None,
        }
        .ok_or(Status::INVALID_VALUE)?;
        let length = size.iter().product::<u64>() * element;
        let mut host = Host::target(length.min(most.max(element)) as usize);
        let bytes = Way::ToHost.bytes(&mut host, 0)?;
        let mut events: Vec<Event> = Vec::new();
        for piece in pieces(element, size, most) {
            for (way, side) in [(Way::ToHost, from), (Way::ToDevice, to)] {
                // After the first command, each command waits for the one before it.
                let after: WaitList<'_> = events.last().into_iter().collect();
                let wait = if after.is_empty() { wait } else { &after };
                // SAFETY: the piece lies within its side. The host memory has room for one piece, is used
                // by one command at a time, and is kept until all commands have ended.
                match unsafe { self.transfer_piece(way, side, (&piece, element), bytes, wait) } {
                    Ok(event) => events.push(event),
                    Err(status) => {
                        leave_to_driver(&events, host);
                        return Err(status);
                    }
                }
                if way == Way::ToHost
                    && let Some(Err(status)) = events.last().map(Event::wait)
                {
                    leave_to_driver(&events, host);
                    return Err(status);
                }
            }
        }
        // The last event ends after all others, so it keeps the memory.
        let last = events.pop().ok_or(Status::INVALID_VALUE)?;
        last.keep(host);
        Ok(last)
    }

    /// Transfers one piece between host memory and a side.
    ///
    /// # Safety
    /// The piece lies within the side. The host memory has as many bytes and is kept until the event ends.
    unsafe fn transfer_piece(
        &self,
        way: Way,
        side: &Side<'_>,
        (piece, element): (&Part, u64),
        bytes: *mut u8,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        match *side {
            Side::Image(image, raster, ref part) => {
                let there = Part {
                    origin: std::array::from_fn(|axis| part.origin[axis] + piece.origin[axis]),
                    ..*piece
                };
                // SAFETY: the caller guarantees this.
                unsafe { self.transfer_box(way, (image, raster), &there, bytes, wait) }
            }
            Side::Buffer(buffer, offset) => {
                let length = piece.size.iter().product::<u64>() * element;
                let run = (offset + piece.packed as usize, length as usize);
                // SAFETY: the caller guarantees this.
                unsafe { self.transfer_run(way, buffer, run, bytes, wait) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_proto::image_format::ImageFormat;
    use causeway_proto::raster::Raster;
    use opencl_sys::{CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE3D};
    use proptest::prelude::*;

    use super::*;
    use crate::runtime::context::Context;
    use crate::runtime::image::ImageSpec;
    use crate::runtime::node::{Device, Node};

    proptest! {
        #[test]
        fn pieces_are_small_and_together_the_whole(
            element in (0u32..5).prop_map(|n| 1u64 << n), size in [1u64..9, 1u64..7, 1u64..5], most in 1u64..700,
        ) {
            let mut packed = 0;
            for piece in pieces(element, size, most) {
                let bytes = piece.size.iter().product::<u64>() * element;
                prop_assert!(bytes > 0 && bytes <= most.max(element));
                prop_assert_eq!(piece.packed, packed);
                let [x, y, z] = piece.origin;
                prop_assert_eq!(((z * size[1] + y) * size[0] + x) * element, packed);
                let inside = |axis: usize| piece.origin[axis] + piece.size[axis] <= size[axis];
                prop_assert!((0..3).all(inside));
                packed += bytes;
            }
            prop_assert_eq!(packed, size.iter().product::<u64>() * element);
        }
    }

    const RGBA_BYTES: ImageFormat = ImageFormat {
        order: 0x10B5,
        channel_type: 0x10DA,
    };

    fn contents(queue: &Queue, memory: &Buffer) -> Vec<u8> {
        let whole = Region::linear(0, memory.size()).unwrap();
        let target = Host::target(memory.size() as usize);
        let read = queue.read(memory, &whole, target, 0, &WaitList::new());
        let read = read.unwrap();
        read.confirm_end();
        read.take_contents().to_vec()
    }

    fn bytes_of(all: &[u8], raster: &Raster, part: &Part) -> Vec<u8> {
        let region = raster.region(part.origin, part.size).unwrap();
        let runs = region.segments(0, u64::MAX);
        let bytes = runs.flat_map(|run| &all[run.offset as usize..][..run.length as usize]);
        bytes.copied().collect()
    }

    fn with_bytes(all: &[u8], raster: &Raster, part: &Part, by: &[u8]) -> Vec<u8> {
        let mut all = all.to_vec();
        let region = raster.region(part.origin, part.size).unwrap();
        for run in region.segments(0, u64::MAX) {
            let from = &by[run.packed as usize..][..run.length as usize];
            all[run.offset as usize..][..from.len()].copy_from_slice(from);
        }
        all
    }

    fn check_shape(context: &Context, queue: &Queue, spec: &ImageSpec, part: Part) {
        let raster = spec.raster().unwrap();
        let patterned = |salt: u8| -> Vec<u8> {
            let byte = |at: u64| (at % 251) as u8 ^ salt;
            (0..raster.size()).map(byte).collect()
        };
        let image = |salt| Buffer::image(context, 1, spec, None, &patterned(salt)).unwrap();
        let inside = bytes_of(&patterned(1), &raster, &part);
        // These limits divide the copies into parts of a row, rows, and slices.
        for most in [50, 200, 1000] {
            let (one, other) = (image(1), image(2));
            let buffer = Buffer::new(context, 1, inside.len() as u64 + 4, &[]).unwrap();
            let side = |image| Side::Image(image, &raster, part);
            let run = Side::Buffer(&buffer, 4);
            let copy = |from: &Side<'_>, to: &Side<'_>| {
                let copied = queue.copy_in_pieces((from, to), &WaitList::new(), most);
                assert_eq!(copied.unwrap().confirm_end(), Status::SUCCESS);
            };
            copy(&side(&one), &run);
            assert_eq!(contents(queue, &buffer)[4..], inside[..]);
            copy(&run, &side(&other));
            let expected = with_bytes(&patterned(2), &raster, &part, &inside);
            assert_eq!(contents(queue, &other), expected);
            let third = image(3);
            copy(&side(&other), &side(&third));
            let expected = with_bytes(&patterned(3), &raster, &part, &inside);
            assert_eq!(contents(queue, &third), expected);
        }
    }

    #[test]
    fn copies_by_way_of_the_host_are_copies() {
        let node = Node::load();
        let has_images = |device: &Device| {
            device.info(opencl_sys::CL_DEVICE_IMAGE_SUPPORT) == Ok(1u32.to_ne_bytes().to_vec())
        };
        let platforms = node.platforms().iter();
        let mut able = platforms.flat_map(|platform| {
            let device = platform.devices().iter().copied().find(has_images)?;
            Some((platform, device))
        });
        let (platform, device) = able.next().expect("a device with images (PoCL)");
        let context = Context::new(platform, vec![device], Box::new(|_| ())).unwrap();
        let queue = Queue::new(&context, device, &[]).unwrap();
        let layers = ([24, 10, 1], [1, 1, 0], [20, 8, 1]);
        let volume = ([24, 10, 5], [2, 3, 1], [9, 6, 3]);
        for (image_type, (extent, origin, size)) in [
            (CL_MEM_OBJECT_IMAGE1D_ARRAY, layers),
            (CL_MEM_OBJECT_IMAGE3D, volume),
        ] {
            let spec = ImageSpec {
                image_type,
                format: RGBA_BYTES,
                extent,
                row_pitch: 0,
            };
            let part = Part {
                origin,
                size,
                packed: 0,
            };
            check_shape(&context, &queue, &spec, part);
        }
    }
}
