//! The reconstruction: an ordinary OpenCL program for however many devices a platform has.
//!
//! One context, one program. The image is one buffer that all devices read; every device adds what
//! its events of a subset say into a correction image of its own; then each sums one slab of all
//! corrections and updates that slab of the image. Queues are tied together by events alone, and the
//! program waits once an iteration. Invariant: what one device writes another reads only behind an
//! event, and parts that are written at one time do not overlap.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Reconstruction;
use super::phantom::Scanner;
use super::{merit, siddon};
use crate::dealing::slice;
use crate::devices::{Argument, Devices, Event, Kernel, Memory};
use crate::experiment::Phases;
use crate::opencl::ClError;

type Error = Box<dyn std::error::Error>;

/// The kernels.
const SOURCE: &str = include_str!("../../programs/osem.cl");

/// Directions of the half sphere by which sensitivity is measured.
const DIRECTIONS: u32 = 1024;

/// Lines whose sums are compared with the host's.
const SAMPLES: usize = 512;

/// What to reconstruct, on what.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) reconstruction: Reconstruction,
    /// The file of events: eight floats each
    #[arg(long = "list")]
    pub(crate) list: PathBuf,
    /// Use this many of the platform's devices at most
    #[arg(long, default_value_t = usize::MAX)]
    pub(crate) devices: usize,
    /// Write the image of every iteration, one after the other, to this file
    #[arg(long)]
    pub(crate) images: PathBuf,
}

/// What a run tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The devices' names, each once.
    pub(crate) names: Vec<String>,
    /// How many devices worked.
    pub(crate) devices: usize,
    /// Transfer is that of the events to the devices; images come back within the iterations.
    #[serde(flatten)]
    pub(crate) phases: Phases,
    /// Seconds of each iteration.
    pub(crate) iterations: Vec<f64>,
    /// The largest difference of a line's sum to the host's, over the largest sum.
    pub(crate) sums: f64,
}

/// A device's events of a subset.
struct Share {
    correct: Kernel,
    events: Memory,
    /// Their places in the list.
    place: Range<usize>,
}

/// The buffers and kernels of a run.
struct Work<'a> {
    devices: &'a Devices,
    scanner: Scanner,
    subsets: usize,
    image: Memory,
    corrections: Vec<Memory>,
    /// Of subset, then device; `None` where there are no events.
    shares: Vec<Vec<Option<Share>>>,
    /// Of device: adds of all others' corrections, then the update; with the slab's voxels.
    combine: Vec<(Vec<Kernel>, usize)>,
    prepare: Vec<Kernel>,
    sums: (Kernel, Memory),
}

/// Reconstructs, and prints the [`Outcome`].
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let what = arguments.reconstruction;
    let scanner = Scanner::new(what.size);
    // Reading the list is no part of it.
    let list = std::fs::read(&arguments.list)?;
    let begin = Instant::now();
    let devices = Devices::open(arguments.devices)?;
    let work = Work::new(&devices, scanner, what.subsets, list.len() / EVENT)?;
    let ready = Instant::now();
    work.upload(&list)?;
    let uploaded = Instant::now();
    let mut ends = vec![uploaded];
    let mut images = Vec::with_capacity(what.iterations);
    let mut image = vec![0; 4 * scanner.voxels()];
    let mut before = work.prepare()?;
    for _ in 0..what.iterations {
        before = work.iterate(before)?;
        devices.read(0, work.image, &mut image, &before)?;
        devices.wait(&before)?;
        before.clear();
        ends.push(Instant::now());
        images.extend_from_slice(&image);
    }
    let done = Instant::now();
    std::fs::write(&arguments.images, images)?;
    let mut names = (0..devices.count())
        .map(|device| devices.name(device))
        .collect::<Result<Vec<_>, _>>()?;
    names.dedup();
    let outcome = Outcome {
        names,
        devices: devices.count(),
        phases: Phases {
            initialisation: (ready - begin).as_secs_f64(),
            transfer: (uploaded - ready).as_secs_f64(),
            computation: (done - uploaded).as_secs_f64(),
        },
        iterations: ends
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_secs_f64())
            .collect(),
        sums: work.compare_sums(&list, &floats(&image))?,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

/// Bytes of an event.
const EVENT: usize = 32;

/// Bytes as the floats that they are.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

impl<'a> Work<'a> {
    fn new(
        devices: &'a Devices,
        scanner: Scanner,
        subsets: usize,
        events: usize,
    ) -> Result<Work<'a>, ClError> {
        let count = devices.count();
        let alignment = devices.alignment()?;
        let program = devices.build(SOURCE, "")?;
        let [nx, ny, nz] = scanner.size.map(|side| Argument::Uint(side as u32));
        // A whole number of blocks, so that every slab can be a part of a buffer.
        let block = (alignment / 4).max(1);
        let room = scanner.voxels().next_multiple_of(block);
        let image = devices.buffer(4 * room)?;
        let sensitivity = devices.buffer(4 * room)?;
        let corrections = (0..count)
            .map(|_| devices.buffer(4 * room))
            .collect::<Result<Vec<_>, _>>()?;
        let list = devices.buffer(EVENT * events.max(1))?;
        let mut work = Work {
            devices,
            scanner,
            subsets,
            image,
            corrections,
            shares: Vec::new(),
            combine: Vec::new(),
            prepare: Vec::new(),
            sums: {
                let result = devices.buffer(4 * SAMPLES)?;
                let first = devices.part(list, 0, EVENT * SAMPLES.min(events))?;
                let arguments = [image, first].map(Argument::Memory);
                let rest = [nx, ny, nz, Argument::Memory(result)];
                let kernel = devices.kernel(program, "sums", &[&arguments[..], &rest].concat())?;
                (kernel, result)
            },
        };
        for device in 0..count {
            let slab = slice(room, block, count, device);
            let part = |whole| devices.part(whole, 4 * slab.start, 4 * slab.len());
            if slab.is_empty() {
                work.combine.push((Vec::new(), 0));
                continue;
            }
            let (image, sensitivity) = (part(image)?, part(sensitivity)?);
            let own = Argument::Memory(part(work.corrections[device])?);
            let mut kernels = Vec::with_capacity(count);
            for other in (0..count).filter(|other| *other != device) {
                let theirs = Argument::Memory(part(work.corrections[other])?);
                kernels.push(devices.kernel(program, "add", &[own, theirs])?);
            }
            let [image, sensitivity] = [image, sensitivity].map(Argument::Memory);
            let subsets = Argument::Float(subsets as f32);
            let arguments = [image, own, sensitivity, subsets];
            kernels.push(devices.kernel(program, "update", &arguments)?);
            work.combine.push((kernels, slab.len()));
            let first = Argument::Uint(slab.start as u32);
            let [radius, half] = [scanner.radius, scanner.half_length].map(Argument::Float);
            let rest = [first, nx, ny, nz, radius, half, Argument::Uint(DIRECTIONS)];
            let arguments = [&[sensitivity, image][..], &rest].concat();
            work.prepare
                .push(devices.kernel(program, "prepare", &arguments)?);
        }
        work.deal(
            list,
            events,
            (alignment / EVENT).max(1),
            |work, device, part, count| {
                let arguments = [
                    Argument::Memory(work.image),
                    Argument::Memory(part),
                    Argument::Uint(count as u32),
                    nx,
                    ny,
                    nz,
                    Argument::Memory(work.corrections[device]),
                ];
                devices.kernel(program, "correct", &arguments)
            },
        )?;
        Ok(work)
    }

    /// Deals every subset's events to the devices, in blocks, with a kernel for each part.
    fn deal(
        &mut self,
        list: Memory,
        events: usize,
        block: usize,
        kernel: impl Fn(&Self, usize, Memory, usize) -> Result<Kernel, ClError>,
    ) -> Result<(), ClError> {
        let count = self.devices.count();
        for subset in 0..self.subsets {
            let mut shares = Vec::with_capacity(count);
            for device in 0..count {
                let place = slice(events, block, self.subsets * count, subset * count + device);
                if place.is_empty() {
                    shares.push(None);
                    continue;
                }
                let origin = EVENT * place.start;
                let part = self.devices.part(list, origin, EVENT * place.len())?;
                shares.push(Some(Share {
                    correct: kernel(self, device, part, place.len())?,
                    events: part,
                    place,
                }));
            }
            self.shares.push(shares);
        }
        Ok(())
    }

    /// Sends each device its events.
    fn upload(&self, list: &[u8]) -> Result<(), ClError> {
        let mut pieces = Vec::new();
        for subset in &self.shares {
            for (device, share) in subset.iter().enumerate() {
                if let Some(Share { events, place, .. }) = share {
                    let bytes = EVENT * place.start..EVENT * place.end;
                    pieces.push((device, *events, &list[bytes]));
                }
            }
        }
        self.devices.write(&pieces)
    }

    /// Measures sensitivity and sets the image, each device its slab.
    fn prepare(&self) -> Result<Vec<Event>, ClError> {
        let mut events = Vec::new();
        let slabs = self
            .combine
            .iter()
            .enumerate()
            .filter(|(_, slab)| slab.1 > 0);
        for ((device, (_, voxels)), kernel) in slabs.zip(&self.prepare) {
            events.push(self.devices.launch(device, *kernel, &[*voxels], &[])?);
            self.devices.flush(device)?;
        }
        Ok(events)
    }

    /// One pass over all subsets; `before` ends when the image may be read, the answer likewise.
    fn iterate(&self, mut before: Vec<Event>) -> Result<Vec<Event>, ClError> {
        let size = 4 * self.scanner.voxels();
        for subset in &self.shares {
            let mut corrected = Vec::new();
            for (device, share) in subset.iter().enumerate() {
                let zeroed = self
                    .devices
                    .zero(device, self.corrections[device], size, &before)?;
                corrected.push(match share {
                    Some(share) => {
                        let events = share.place.len();
                        self.devices.launch(device, share.correct, &[events], &[])?
                    }
                    None => zeroed,
                });
                self.devices.flush(device)?;
            }
            before.clear();
            for (device, (kernels, voxels)) in self.combine.iter().enumerate() {
                let mut last = None;
                for kernel in kernels {
                    let waits: &[Event] = if last.is_none() { &corrected } else { &[] };
                    last = Some(self.devices.launch(device, *kernel, &[*voxels], waits)?);
                }
                before.extend(last);
                self.devices.flush(device)?;
            }
        }
        Ok(before)
    }

    /// The largest difference of the device's sums along some lines to the host's, over the largest.
    fn compare_sums(&self, list: &[u8], image: &[f32]) -> Result<f64, ClError> {
        let events = floats(&list[..list.len().min(EVENT * SAMPLES)]);
        let count = events.len() / 8;
        let (kernel, result) = self.sums;
        let done = self.devices.launch(0, kernel, &[count], &[])?;
        let mut bytes = vec![0; 4 * count];
        self.devices.read(0, result, &mut bytes, &[done])?;
        let ours: Vec<f32> = events
            .chunks_exact(8)
            .map(|event| {
                let (from, to) = (
                    [event[0], event[1], event[2]],
                    [event[4], event[5], event[6]],
                );
                siddon::sum(self.scanner.size, image, from, to)
            })
            .collect();
        Ok(merit::difference(&floats(&bytes), &ours))
    }
}
