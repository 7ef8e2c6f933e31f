//! Transfers of images: converts regions of an image's packed bytes to the boxes that a driver takes.
//!
//! Invariant: if several native commands carry out one transfer, a single event represents them. It ends
//! after all of them and keeps the host memory that they use.

use causeway_proto::raster::{Part, Raster};
use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::transfer::Way;
use super::{Queue, enqueue};
use crate::runtime::buffer::Buffer;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::host::Host;

/// A box in the form that the driver takes.
struct Box3 {
    origin: [usize; 3],
    size: [usize; 3],
}

impl Box3 {
    // The casts are lossless: the box lies inside an image whose extent consists of `size_t` numbers.
    fn of(part: &Part) -> Box3 {
        Box3 {
            origin: part.origin.map(|n| n as usize),
            size: part.size.map(|n| n as usize),
        }
    }
}

// Returns the row and slice pitch of a box without padding. The slice pitch is 0 if the image has no
// slices.
fn pitches(raster: &Raster, size: [u64; 3]) -> (usize, usize) {
    let row = size[0] * raster.element();
    let slice = if raster.extent()[2] > 1 {
        row * size[1]
    } else {
        0
    };
    (row as usize, slice as usize)
}

fn only_box(raster: &Raster, region: &Region) -> Result<Part, Status> {
    match raster.boxes(region).as_deref() {
        Some([part]) => Ok(*part),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// Source or destination of a copy.
pub(super) enum Side<'a> {
    /// A box of an image.
    Image(&'a Buffer, &'a Raster, Part),
    /// Bytes of a buffer, from this offset on.
    Buffer(&'a Buffer, usize),
}

impl Side<'_> {
    pub(super) fn of<'a>(memory: &'a Buffer, region: &Region) -> Result<Side<'a>, Status> {
        match memory.raster() {
            Some(raster) => Ok(Side::Image(memory, raster, only_box(raster, region)?)),
            None if region.is_linear() => Ok(Side::Buffer(memory, region.offset() as usize)),
            None => Err(Status::INVALID_VALUE),
        }
    }
}

impl Queue {
    /// Transfers between packed bytes and a region of an image; see [`Queue::write`] and [`Queue::read`].
    pub(super) fn transfer_image(
        &self,
        way: Way,
        (image, raster): (&Buffer, &Raster),
        region: &Region,
        mut host: Host,
        skip: usize,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let parts = checked(raster, region, host.length(), skip)?;
        let bytes = way.bytes(&mut host, skip)?;
        let mut events = Vec::with_capacity(parts.len());
        for part in &parts {
            let bytes = bytes.wrapping_add(part.packed as usize);
            // SAFETY: from `skip` on, the host memory has the region's bytes (checked). It is kept until
            // all events have ended (`together`, `leave_to_driver`). The box lies within the image.
            match unsafe { self.transfer_box(way, (image, raster), part, bytes, wait) } {
                Ok(event) => events.push(event),
                Err(status) => {
                    // The driver may still be transferring earlier boxes, so the memory must outlive them.
                    leave_to_driver(&events, host);
                    return Err(status);
                }
            }
        }
        self.together(events, host)
    }

    /// Transfers between packed host memory and a box of an image.
    ///
    /// # Safety
    /// The box lies within the image. The host memory has as many bytes and is kept until the event ends.
    pub(super) unsafe fn transfer_box(
        &self,
        way: Way,
        (image, raster): (&Buffer, &Raster),
        part: &Part,
        bytes: *mut u8,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let (at, (row, slice)) = (Box3::of(part), pitches(raster, part.size));
        // SAFETY: the caller guarantees the pointers; the host side is packed.
        unsafe {
            match way {
                Way::ToDevice => enqueue!(clEnqueueWriteImage(
                    self,
                    wait,
                    image.raw,
                    0,
                    at.origin.as_ptr(),
                    at.size.as_ptr(),
                    row,
                    slice,
                    bytes.cast_const().cast()
                )),
                Way::ToHost => enqueue!(clEnqueueReadImage(
                    self,
                    wait,
                    image.raw,
                    0,
                    at.origin.as_ptr(),
                    at.size.as_ptr(),
                    row,
                    slice,
                    bytes.cast()
                )),
            }
        }
    }

    /// Returns one event for all, which keeps the memory.
    fn together(&self, mut events: Vec<Event>, host: Host) -> Result<Event, Status> {
        if let [_] = &events[..]
            && let Some(only) = events.pop()
        {
            only.keep(host);
            return Ok(only);
        }
        match self.marker(&events.iter().collect()) {
            Ok(all) => {
                all.keep(host);
                Ok(all)
            }
            Err(status) => {
                leave_to_driver(&events, host);
                Err(status)
            }
        }
    }

    /// Copies between two images, or between an image and a buffer; see [`Queue::copy`].
    pub(super) fn copy_image(
        &self,
        (source, from): (&Buffer, &Region),
        (destination, to): (&Buffer, &Region),
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        if from.packed_length() != to.packed_length() {
            return Err(Status::INVALID_VALUE);
        }
        let sides = (Side::of(source, from)?, Side::of(destination, to)?);
        self.copy_directly((&sides.0, &sides.1), wait)
    }

    fn copy_directly(
        &self,
        sides: (&Side<'_>, &Side<'_>),
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        match sides {
            (Side::Image(source, _, part), Side::Image(destination, _, there)) => {
                if part.size != there.size {
                    return Err(Status::INVALID_VALUE);
                }
                let (a, b) = (Box3::of(part), Box3::of(there));
                // SAFETY: both boxes lie within their images.
                unsafe {
                    enqueue!(clEnqueueCopyImage(
                        self,
                        wait,
                        source.raw,
                        destination.raw,
                        a.origin.as_ptr(),
                        b.origin.as_ptr(),
                        a.size.as_ptr()
                    ))
                }
            }
            (Side::Image(source, _, part), Side::Buffer(destination, offset)) => {
                let a = Box3::of(part);
                // SAFETY: the box lies within the image, and the bytes, which are as many, within the
                // buffer.
                unsafe {
                    enqueue!(clEnqueueCopyImageToBuffer(
                        self,
                        wait,
                        source.raw,
                        destination.raw,
                        a.origin.as_ptr(),
                        a.size.as_ptr(),
                        *offset
                    ))
                }
            }
            (Side::Buffer(source, offset), Side::Image(destination, _, part)) => {
                let b = Box3::of(part);
                // SAFETY: as for the copy from an image to a buffer.
                unsafe {
                    enqueue!(clEnqueueCopyBufferToImage(
                        self,
                        wait,
                        source.raw,
                        destination.raw,
                        *offset,
                        b.origin.as_ptr(),
                        b.size.as_ptr()
                    ))
                }
            }
            (Side::Buffer(..), Side::Buffer(..)) => Err(Status::INVALID_VALUE),
        }
    }

    /// `clEnqueueFillImage`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if `image` is not an image, or `region` is not a box of it.
    pub fn fill_image(
        &self,
        image: &Buffer,
        region: &Region,
        colour: [u8; 16],
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let raster = image.raster().ok_or(Status::INVALID_VALUE)?;
        let part = Box3::of(&only_box(raster, region)?);
        // SAFETY: the driver reads the colour, at most 16 bytes, before it returns; the box lies within the
        // image.
        unsafe {
            enqueue!(clEnqueueFillImage(
                self,
                wait,
                image.raw,
                colour.as_ptr().cast(),
                part.origin.as_ptr(),
                part.size.as_ptr()
            ))
        }
    }
}

// Leaks the memory if the driver may still use it for commands that were enqueued before an error.
pub(super) fn leave_to_driver(events: &[Event], host: Host) {
    if !events.iter().all(Event::looks_ended) {
        std::mem::forget(host);
    }
}

fn checked(
    raster: &Raster,
    region: &Region,
    host: usize,
    skip: usize,
) -> Result<Vec<Part>, Status> {
    let needed = (skip as u64).checked_add(region.packed_length());
    let fits = region.packed_length() > 0 && needed.is_some_and(|needed| needed <= host as u64);
    let parts = raster.boxes(region).filter(|_| fits);
    parts.ok_or(Status::INVALID_VALUE)
}
